"""What can be asked, and the one sentence a user reads when a question has no answer."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "at_least",
    "checked_rtol",
    "distortion",
    "levels",
    "one_positive",
    "place",
    "places",
    "positive",
    "real",
    "thresholds",
    "weights",
    "whole",
]

Array = NDArray[np.float64]


def place(column: Any, names: Sequence[Any], argument: str = "column") -> int:
    """Position of a column given by name or by position.

    >>> place("b", ["a", "b"]), place(0, ["a", "b"])
    (1, 0)
    """
    for position, name in enumerate(names):
        if type(column) is type(name) and column == name:
            return position
    if isinstance(column, int | np.integer) and not isinstance(column, bool) and 0 <= column < len(names):
        return int(column)
    raise ValueError(f"{argument} = {column!r}: there is no such column; give one of {list(names)} or its position")


def places(columns: Any, names: Sequence[Any], argument: str = "column") -> list[int]:
    """Positions of one column, of several, or of all (None)."""
    if columns is None:
        return list(range(len(names)))
    if isinstance(columns, str | int | np.integer) or not isinstance(columns, Sequence | np.ndarray):
        return [place(columns, names, argument)]
    found = [place(column, names, f"{argument}[{i}]") for i, column in enumerate(columns)]
    if not found:
        raise ValueError(f"{argument} is empty; give at least one of {list(names)}")
    for i, position in enumerate(found):
        if position in found[:i]:
            raise ValueError(f"{argument}[{i}] = {columns[i]!r} is named twice; name each column once")
    return found


def levels(name: str, value: Any) -> Array:
    """Probabilities strictly between 0 and 1."""
    return _all(name, value, lambda p: 0 < p < 1, "give probabilities strictly between 0 and 1, such as 0.99")


def thresholds(name: str, value: Any, lower: float = 0.0) -> Array:
    """Finite points, not negative where a loss cannot be."""
    if lower < 0:
        return _all(name, value, math.isfinite, "give finite numbers")
    return _all(name, value, lambda x: 0 <= x < math.inf, "give finite thresholds >= 0; the column is never negative")


def positive(name: str, value: Any, *, infinite: bool = False) -> Array:
    """Numbers above zero."""
    end = "" if infinite else "finite "
    return _all(name, value, lambda x: 0 < x < math.inf or (infinite and x == math.inf), f"give {end}numbers > 0")


def real(name: str, value: Any) -> Array:
    """Finite numbers."""
    return _all(name, value, math.isfinite, "give finite numbers")


def at_least(name: str, value: Any, least: float) -> Array:
    """Finite numbers that are large enough."""
    return _all(name, value, lambda x: least <= x < math.inf, f"give finite numbers of at least {least:g}")


def distortion(name: str, function: Any) -> Callable[[Tensor], Tensor]:
    """A distortion of survival probabilities, tried on a grid, from and to tensors."""
    if not callable(function):
        raise ValueError(f"{name} = {function!r:.60}; give a function of survival probabilities, such as numpy.sqrt")
    grid = np.linspace(0.0, 1.0, 65)
    found = np.asarray(function(grid.copy()), dtype=np.float64)
    if found.shape != grid.shape or found[0] != 0 or found[-1] != 1 or not bool((np.diff(found) >= 0).all()):
        raise ValueError(
            f"{name} is no distortion: give one that takes an array and increases from g(0) = 0 to g(1) = 1"
        )
    return lambda survival: torch.from_numpy(np.asarray(function(survival.numpy()), dtype=np.float64))


def weights(value: Any, positions: Sequence[int], names: Sequence[Any], argument: str = "weights") -> list[float]:
    """One positive number for each of some columns, from a list, a dict by column, or None for ones.

    >>> weights({"b": 2}, [0, 1], ["a", "b"]), weights(None, [0], ["a", "b"])
    ([1.0, 2.0], [1.0])
    """
    if value is None:
        return [1.0] * len(positions)
    if isinstance(value, Mapping):
        given = {
            place(column, names, argument): float(positive(f"{argument}[{column!r}]", w)[0])
            for column, w in value.items()
        }
        for position in given:
            if position not in positions:
                raise ValueError(f"{argument} has {names[position]!r}, which is not among the columns; leave it out")
        return [given.get(position, 1.0) for position in positions]
    numbers = positive(argument, value)
    if len(numbers) != len(positions):
        raise ValueError(f"{argument} has {len(numbers)} numbers for {len(positions)} columns; give one for each")
    return [float(number) for number in numbers]


def one_positive(name: str, value: Any) -> float:
    """One number above zero.

    >>> one_positive("within", 2)
    2.0
    """
    if np.ndim(value):
        raise ValueError(f"{name} has shape {np.shape(value)}; give one number")
    return float(positive(name, value)[0])


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is large enough."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} = {value!r}; give a whole number of at least {least}")
    return int(value)


def checked_rtol(rtol: Any) -> float:
    """A relative tolerance."""
    if not isinstance(rtol, int | float | np.number) or not 0 < rtol < 1:
        raise ValueError(f"rtol = {rtol!r}; give a relative tolerance between 0 and 1, such as 1e-3")
    return float(rtol)


def _all(name: str, value: Any, holds: Any, remedy: str) -> Array:
    if isinstance(value, Mapping | str | bytes):
        raise ValueError(f"{name} = {value!r}; {remedy}")
    try:
        # torch takes no array that is reversed or a field of another, such as the values of an answer
        numbers = np.atleast_1d(np.array(value, dtype=np.float64, order="C"))
    except (TypeError, ValueError):
        raise ValueError(f"{name} = {value!r:.60} is not a number or a list of numbers; {remedy}") from None
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(f"{name} has shape {numbers.shape}; give one number or a list of numbers")
    for i, number in enumerate(numbers):
        if not holds(float(number)):
            where = name if np.ndim(value) == 0 else f"{name}[{i}]"
            raise ValueError(f"{where} = {number:g}; {remedy}")
    return numbers
