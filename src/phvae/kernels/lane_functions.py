"""Exponentials and logarithms of eight numbers at once, which compilers without a vector library take one by one.

Both are power series after the usual reductions, to about the last digit of float64.
"""

import math
from typing import Any

import numba

from phvae.kernels.lanes import choose_greater, greater, magnitude, nearest, power_of_two, spread

__all__ = ["exponential", "log_one_plus", "softplus"]

_PER_LOG_TWO = 1.0 / math.log(2.0)
# log 2 in two parts, of which the first has so few digits that its multiples are exact.
_LOG_TWO, _LOG_TWO_REST = 0.6931471803691238, 1.9082149292705877e-10
# Below this one exp is zero in float64.
_ZERO_BELOW = -750.0
# 1 / k! from the highest needed on, and 1 / (2 k + 1) likewise.
_EXPONENTIAL = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
_INVERSE_ODD = tuple(1.0 / (2 * k + 1) for k in range(10, -1, -1))
# Above this one the logarithm of half of 1 + t is taken, whose series is shorter.
_HALVED_ABOVE = math.sqrt(2.0) - 1.0

_jit: Any = numba.njit(nogil=True, error_model="numpy", fastmath={"contract"})


@_jit
def exponential(x: Any) -> Any:
    """``exp(x)`` for ``x`` up to 700: ``2^k exp(x - k log 2)`` with the nearest whole ``k``."""
    x = greater(spread(_ZERO_BELOW), x)
    k = nearest(x * _PER_LOG_TWO)
    rest = (x - k * _LOG_TWO) - k * _LOG_TWO_REST
    series = spread(_EXPONENTIAL[0])
    for coefficient in _EXPONENTIAL[1:]:
        series = series * rest + coefficient
    # in two steps, for the power alone may be too small for a float64
    half = nearest(k * 0.5)
    return series * power_of_two(half) * power_of_two(k - half)


@_jit
def log_one_plus(t: Any) -> Any:
    """``log(1 + t)`` for ``t`` in [0, 1], with all digits for small ``t``: ``2 artanh(t / (2 + t))``."""
    edge = spread(_HALVED_ABOVE)
    part = choose_greater(t, edge, (t - 1.0) * 0.5, t)
    twice = (part + part) / (part + 2.0)
    square = twice * twice * 0.25
    series = spread(_INVERSE_ODD[0])
    for coefficient in _INVERSE_ODD[1:]:
        series = series * square + coefficient
    return series * twice + choose_greater(t, edge, spread(math.log(2.0)), spread(0.0))


@_jit
def softplus(u: Any) -> tuple[Any, Any]:
    """``log(1 + exp(u))`` and its slope, with all digits for very negative ``u``."""
    zero = spread(0.0)
    small = exponential(zero - magnitude(u))
    share = 1.0 / (small + 1.0)
    return greater(u, zero) + log_one_plus(small), choose_greater(u, zero, share, share * small)
