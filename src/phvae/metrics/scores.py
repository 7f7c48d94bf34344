"""Proper scores of a generated column on real observations: the better law has the smaller expected score."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phvae.metrics.samples import column

__all__ = ["crps", "energy_distance_1d", "mean_difference", "pinball_loss"]

Array = NDArray[np.float64]


def pinball_loss(real: ArrayLike, generated: ArrayLike, level: float = 0.99) -> float:
    """Mean loss ``max(level (y - q), (level - 1)(y - q))`` of the generated quantile ``q`` on real rows ``y``.

    >>> pinball_loss([0.0, 4.0], [2.0, 2.0], level=0.75)
    1.0
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level:g} must lie between 0 and 1; 99% is 0.99")
    excess = column("real", real) - np.quantile(column("generated", generated), level)
    return float(np.maximum(level * excess, (level - 1) * excess).mean())


def crps(real: ArrayLike, generated: ArrayLike, threshold: float = -math.inf) -> float:
    """Continuous ranked probability score ``int_threshold (F(x) - 1{y <= x})^2 dx``, mean over real rows ``y``.

    A threshold makes it the threshold-weighted score, which judges the law beyond the threshold alone: it is the score
    of ``max(x, threshold)``. Computed as ``E|X - y| - E|X - X'|/2`` without bias, in n log n time.

    >>> crps([1.0], [0.0, 2.0]), crps([1.0, 5.0], [0.0, 2.0], threshold=10.0)
    (0.0, 0.0)
    """
    x = np.sort(np.maximum(column("generated", generated), threshold))
    y = np.maximum(column("real", real), threshold)
    if len(x) < 2:
        raise ValueError(f"generated has {len(x)} rows; give two or more")
    below = np.searchsorted(x, y)
    sums = np.concatenate([[0.0], x.cumsum()])
    distance = (y * (2 * below - len(x)) + sums[-1] - 2 * sums[below]) / len(x)
    return float(distance.mean() - mean_difference(x) / 2)


def mean_difference(x: Array) -> float:
    """``E|X - X'|`` over all pairs of different rows of a sorted column (Gini's mean difference).

    >>> mean_difference(np.array([0.0, 1.0, 3.0]))
    2.0
    """
    n = len(x)
    return float(2 / (n * (n - 1)) * ((2 * np.arange(n) - n + 1) @ x))


def energy_distance_1d(x: Array, y: Array) -> float:
    """``2 int (F - G)^2`` of two columns, which is ``2 E|X - Y| - E|X - X'| - E|Y - Y'|``.

    >>> energy_distance_1d(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    3.0
    """
    both = np.sort(np.concatenate([x, y]))
    difference = [np.searchsorted(np.sort(rows), both[:-1], side="right") / len(rows) for rows in (x, y)]
    return float(2 * ((difference[0] - difference[1]) ** 2 @ np.diff(both)))
