"""Confidence intervals from an estimate and its values in resamples."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["METHOD", "METHODS", "Interval", "acceleration", "interval"]

Array = NDArray[np.float64]

METHODS = ("percentile", "basic", "bias-corrected", "accelerated")
METHOD = "accelerated"


class Interval(NamedTuple):
    """An estimate, the ends of its interval and its standard error, each of the shape of the measure."""

    value: Array
    low: Array
    high: Array
    standard_error: Array


def interval(
    value: Array,
    replicates: Array,
    *,
    level: float = 0.95,
    method: str = METHOD,
    counts: NDArray[Any] | None = None,
) -> Interval:
    """Interval of a measure from its values in resamples.

    `"percentile"`: quantiles of the resamples. `"basic"`: these mirrored at the estimate, ``2 t - q``.
    `"bias-corrected"`: percentiles at levels moved by how far the estimate is from the median of the resamples.
    `"accelerated"`: also by how the width of the interval grows with the estimate (Efron 1987), see `acceleration`.

    Args:
        value: The estimate, any shape.
        replicates: Its values in the resamples, on the first axis.
        level: Confidence.
        method: One of `METHODS`.
        counts: How often each resample holds each row or group of rows, shape ``(B, G)``; for `"accelerated"`.

    >>> found = interval(np.array(4.0), np.arange(101.0), level=0.5, method="percentile")
    >>> float(found.low), float(found.high)
    (25.0, 75.0)
    """
    if not 0 < level < 1:
        raise ValueError(f"level = {level!r}; give a confidence between 0 and 1, such as 0.95")
    if method not in METHODS:
        raise ValueError(f"method = {method!r}; give one of {METHODS}")
    if (len(replicates) + 1) * (1 - level) < 2:
        raise ValueError(
            f"{len(replicates)} resamples are too few for level = {level:g}; "
            f"take at least {math.ceil(2 / (1 - level)) - 1}"
        )
    if np.isnan(replicates).any():
        lost = int(np.isnan(replicates).reshape(len(replicates), -1).any(1).sum())
        raise ValueError(f"the measure is no number in {lost} of {len(replicates)} resamples; ask for one that exists")
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    # a mean may be infinite in some resamples: their quantiles are what they are, and their deviation is infinite
    finite = np.isfinite(replicates).all(0)
    error = np.where(finite, np.where(finite, replicates, 0.0).std(0, ddof=1), np.inf)
    if method in ("bias-corrected", "accelerated"):
        # ties count half, and no share is 0 or 1, where the shift would be infinite
        below = (replicates < value).sum(0) + (replicates == value).sum(0) / 2
        shift = special.ndtri((below + 0.5) / (len(replicates) + 1))
        growth = np.zeros_like(shift)
        if method == "accelerated":
            if counts is None:
                raise ValueError('method = "accelerated" needs counts: how often each resample holds each row')
            growth = acceleration(counts, np.where(finite, replicates, 0.0))
        ends = [_quantile(replicates, _level(shift, growth, z)) for z in special.ndtri(tails)]
        return Interval(value, ends[0], ends[1], error)
    low, high = (_quantile(replicates, np.full(np.shape(value), tail)) for tail in tails)
    if method == "basic":
        low, high = 2 * value - high, 2 * value - low
    return Interval(value, low, high, error)


def acceleration(counts: NDArray[Any], replicates: Array) -> Array:
    """A sixth of the skewness of what the rows contribute to a measure, found from the resamples alone.

    A row contributes ``u_i``, the covariance of its count with the measure: for independent rows it is the row's
    influence, for blocks it is ``c`` times that of a group of rows, with ``c`` the variance of a count over its mean.
    The acceleration is ``Σ_i u_i³ / 6 σ³``; what the noise of so many covariances adds to the cubes is taken out.

    Args:
        counts: How often each resample holds each row or group of rows, shape ``(B, G)``.
        replicates: The measure in the resamples, on the first axis.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.exponential(size=100)
    >>> counts = rng.multinomial(100, np.full(100, 0.01), 2000)
    >>> skewness = ((x - x.mean()) ** 3).mean() / x.std() ** 3
    >>> bool(abs(acceleration(counts, counts @ x / 100) - skewness / 60) < 0.01)
    True
    """
    flat = replicates.reshape(len(replicates), -1)
    centred, deviation = counts - counts.mean(0), flat.std(0)
    variance, typical = centred.var(0), counts.mean(0)
    stretch = variance.sum() / typical.sum()
    # a measure that is the same in all resamples has no influence anywhere
    moved = (flat - flat.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    found = np.empty(flat.shape[1])
    for k, measure in enumerate(moved.T):
        influence = centred.T @ measure / len(flat) / stretch
        noise = variance / len(flat) / stretch**2
        found[k] = (influence**3 - 3 * influence * noise).sum() / 6
    return found.reshape(replicates.shape[1:])


def _level(shift: Array, growth: Array, z: float) -> Array:
    """Level of the resamples at which an interval ends that a normal law ends at ``z``."""
    moved = shift + z
    left = 1 - growth * moved
    # where the width grows faster than the distance, the interval has no end in the resamples
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(left > 0, special.ndtr(shift + moved / left), np.where(moved > 0, 1.0, 0.0)))


def _quantile(replicates: Array, level: Array) -> Array:
    """Quantiles along the first axis at a level of their own for every other place."""
    ordered = np.sort(replicates, 0)
    place = np.asarray(level) * (len(ordered) - 1)
    lower = np.floor(place).astype(np.int64)
    upper = np.minimum(lower + 1, len(ordered) - 1)
    at_lower, at_upper = (np.take_along_axis(ordered, at[None], 0)[0] for at in (lower, upper))
    with np.errstate(invalid="ignore"):
        between = at_lower + (place - lower) * (at_upper - at_lower)
    # next to infinity there is nothing between
    return np.asarray(np.where((at_lower == at_upper) | (place == lower), at_lower, between))
