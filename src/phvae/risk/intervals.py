"""Confidence intervals from an estimate and its values in resamples."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["METHODS", "Interval", "interval"]

Array = NDArray[np.float64]

METHODS = ("percentile", "basic", "bias-corrected")


class Interval(NamedTuple):
    """An estimate, the ends of its interval and its standard error, each of the shape of the measure."""

    value: Array
    low: Array
    high: Array
    standard_error: Array


def interval(value: Array, replicates: Array, *, level: float = 0.95, method: str = "percentile") -> Interval:
    """Interval of a measure from its values in resamples.

    `"percentile"`: quantiles of the resamples. `"basic"`: these mirrored at the estimate, ``2 t - q``.
    `"bias-corrected"`: percentiles at levels moved by how far the estimate is from the median of the resamples
    (Efron 1987, without acceleration).

    Args:
        value: The estimate, any shape.
        replicates: Its values in the resamples, on the first axis.
        level: Confidence.
        method: One of `METHODS`.

    >>> found = interval(np.array(4.0), np.arange(101.0), level=0.5)
    >>> float(found.low), float(found.high)
    (25.0, 75.0)
    """
    if not 0 < level < 1:
        raise ValueError(f"level = {level!r}; give a confidence between 0 and 1, such as 0.95")
    if method not in METHODS:
        raise ValueError(f"method = {method!r}; give one of {METHODS}")
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    error = replicates.std(0, ddof=1)
    if method == "bias-corrected":
        # ties count half, and no share is 0 or 1, where the shift would be infinite
        below = (replicates < value).sum(0) + (replicates == value).sum(0) / 2
        shift = special.ndtri((below + 0.5) / (len(replicates) + 1))
        levels = special.ndtr(2 * shift + special.ndtri(tails).reshape(2, *(1,) * np.ndim(value)))
        ends = [_quantile(replicates, part) for part in levels]
        return Interval(value, ends[0], ends[1], error)
    low, high = np.quantile(replicates, tails, axis=0)
    if method == "basic":
        low, high = 2 * value - high, 2 * value - low
    return Interval(value, low, high, error)


def _quantile(replicates: Array, level: Array) -> Array:
    """Quantiles along the first axis at a level of their own for every other place."""
    ordered = np.sort(replicates, 0)
    place = np.asarray(level) * (len(ordered) - 1)
    lower = np.floor(place).astype(np.int64)
    upper = np.minimum(lower + 1, len(ordered) - 1)
    at_lower, at_upper = (np.take_along_axis(ordered, at[None], 0)[0] for at in (lower, upper))
    return np.asarray(at_lower + (place - lower) * (at_upper - at_lower))
