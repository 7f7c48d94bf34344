"""Eight float64 numbers in one vector register, as a type of Numba: a row of the batch in every lane.

Compilers find vector code in scalar loops only now and then, and on many machines use half the width of the registers.
With this type the arithmetic of a row is written once, as if it were scalar, and runs for eight rows; where registers
hold fewer numbers, LLVM uses several. Every operation acts lane by lane, so a row's result depends on no other row.
"""

import operator
from typing import Any

import numba
from llvmlite import ir
from numba import extending
from numba.core import cgutils
from numba.extending import models, overload, register_model

__all__ = [
    "LANES",
    "choose_greater",
    "greater",
    "load",
    "magnitude",
    "nearest",
    "power_of_two",
    "root",
    "spread",
    "store",
]

LANES = 8
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_WHOLE = ir.VectorType(ir.IntType(64), LANES)
# Exponent of 1 and number of digits behind the point of a float64.
_BIAS, _DIGITS = 1023, 52
_NOTHING = ir.Constant(_VECTOR, ir.Undefined)
# Products may be fused into sums; order and rounding are otherwise as written.
_FLAGS = ("contract",)

_intrinsic: Any = extending.intrinsic


class _Lanes(numba.types.Type):
    def __init__(self) -> None:
        super().__init__(name="lanes")


_lanes = _Lanes()


@register_model(_Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), _VECTOR.as_pointer())


@_intrinsic
def load(typing_context: Any, array: Any, at: Any) -> Any:
    """Lanes ``array[at : at + LANES]`` of a contiguous float64 array."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature, arguments), align=8)

    return _lanes(array, numba.intp), emit


@_intrinsic
def store(typing_context: Any, array: Any, at: Any, value: Any) -> Any:
    """Write lanes to ``array[at : at + LANES]``."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _address(context, builder, signature, arguments), align=8)
        return context.get_dummy_value()

    return numba.void(array, numba.intp, _lanes), emit


@_intrinsic
def spread(typing_context: Any, value: Any) -> Any:
    """The same number in every lane."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.insert_element(_NOTHING, arguments[0], cgutils.int32_t(0))
        everywhere = ir.Constant(ir.VectorType(cgutils.int32_t, LANES), [0] * LANES)
        return builder.shuffle_vector(first, _NOTHING, everywhere)

    return _lanes(numba.float64), emit


@_intrinsic
def magnitude(typing_context: Any, value: Any) -> Any:
    """Absolute values."""
    return _lanes(_lanes), _built_in("llvm.fabs")


@_intrinsic
def root(typing_context: Any, value: Any) -> Any:
    """Square roots."""
    return _lanes(_lanes), _built_in("llvm.sqrt")


@_intrinsic
def nearest(typing_context: Any, value: Any) -> Any:
    """The nearest whole numbers."""
    return _lanes(_lanes), _built_in("llvm.rint")


@_intrinsic
def power_of_two(typing_context: Any, exponent: Any) -> Any:
    """Powers of two for whole exponents between -1022 and 1023."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # the exponent is written where a float64 keeps it
        biased = builder.add(builder.fptosi(arguments[0], _WHOLE), ir.Constant(_WHOLE, [_BIAS] * LANES))
        return builder.bitcast(builder.shl(biased, ir.Constant(_WHOLE, [_DIGITS] * LANES)), _VECTOR)

    return _lanes(_lanes), emit


def _built_in(name: str) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{LANES}f64"), arguments)

    return emit


@_intrinsic
def greater(typing_context: Any, one: Any, other: Any) -> Any:
    """The greater of two in every lane; the other where one is NaN."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return _lanes(_lanes, _lanes), emit


@_intrinsic
def choose_greater(typing_context: Any, one: Any, other: Any, then: Any, otherwise: Any) -> Any:
    """``then`` in the lanes where one is greater than the other, ``otherwise`` in the rest and where one is NaN."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments[:2]), *arguments[2:])

    return _lanes(_lanes, _lanes, _lanes, _lanes), emit


def _arithmetic(symbol: Any, instruction: str) -> None:
    @_intrinsic
    def both(typing_context: Any, one: Any, other: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments, flags=_FLAGS)

        return _lanes(_lanes, _lanes), emit

    def two_lanes(one: Any, other: Any) -> Any:
        return both(one, other)

    def lanes_and_number(one: Any, other: Any) -> Any:
        return both(one, spread(other))

    def number_and_lanes(one: Any, other: Any) -> Any:
        return both(spread(one), other)

    @overload(symbol)
    def choose(one: Any, other: Any) -> Any:
        kinds = isinstance(one, _Lanes), isinstance(other, _Lanes)
        return {(True, True): two_lanes, (True, False): lanes_and_number, (False, True): number_and_lanes}.get(kinds)


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _arithmetic(_symbol, _instruction)
