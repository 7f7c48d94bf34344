"""What rows alone say of a column: quantiles, means, layers and curves, where all of its cells are values."""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from phvae.risk.estimate import CONFIDENCE

__all__ = ["Empirical", "Hill", "Values", "hill", "thinned"]

Array = NDArray[np.float64]

# Data points drawn of a curve.
DRAWN = 240
# Values that Hill's estimate rests on at least, where there are so many, and the share of the rows it does at most.
FEWEST_HILL, MOST_HILL = 10, 0.25


class Hill(NamedTuple):
    """Hill's estimates of one over the tail exponent: how many values each rests on, and the share of rows beyond."""

    k: NDArray[np.int64]
    estimate: Array
    share: Array


class Empirical(ABC):
    """A column as rows show it; a figure that they leave open is None, or NaN among others.

    n: Rows with a value, or with some knowledge of it.
    seen: The positive values, largest first.
    largest: The largest value.
    """

    n: int
    seen: Array
    largest: float

    @property
    @abstractmethod
    def zero_share(self) -> float | None:
        """Share of exact zeros."""

    @property
    @abstractmethod
    def median(self) -> float | None:
        """Value that half of the rows exceed."""

    @property
    @abstractmethod
    def mean(self) -> float | None:
        """Mean of the rows."""

    @abstractmethod
    def quantile(self, level: float) -> float | None:
        """Quantile; None where less than one row is expected beyond it."""

    @abstractmethod
    def at_risk(self, level: float) -> dict[str, Any]:
        """Quantile ``var`` with its interval, mean beyond it ``cvar``, and how many rows are beyond."""

    @abstractmethod
    def layer(self, limit: float, attachment: float) -> float | None:
        """Mean of what a layer pays of a row."""

    @abstractmethod
    def points(self) -> tuple[Array, Array]:
        """Some of the positive values, largest first, and the shares of rows that are not below them."""

    @abstractmethod
    def size(self, share: Array) -> Array:
        """Rows that would say as much of the probabilities near these shares as values."""

    @abstractmethod
    def mean_excess(self, at: Array) -> tuple[Array, Array]:
        """Mean excess over thresholds, and its standard error."""

    @abstractmethod
    def hill(self) -> Hill:
        """Hill's estimates from ever more of the largest values."""

    def interval(self, share: Array) -> tuple[Array, Array]:
        """Probabilities between which that of not being below a value lies that has this share: a beta law."""
        n = self.size(share)
        rank = n * share
        law = stats.beta(rank, n + 1 - rank)
        return law.ppf((1 - CONFIDENCE) / 2), law.ppf((1 + CONFIDENCE) / 2)


class Values(Empirical):
    """A column of values.

    Args:
        values: The values, in any order.

    >>> column = Values(np.arange(101.0))
    >>> column.quantile(0.9), column.quantile(0.999), round(column.layer(10.0, 95.0), 6)
    (90.0, None, 0.148515)
    """

    def __init__(self, values: Array) -> None:
        self.values = -np.sort(-values)
        self.n, self.seen = len(values), self.values[self.values > 0]
        self.largest = float(self.values[0]) if self.n else math.nan

    @property
    def zero_share(self) -> float:
        """Share of exact zeros."""
        return float((self.values == 0).mean())

    @property
    def median(self) -> float:
        """Value that half of the rows exceed."""
        return float(np.median(self.values))

    @property
    def mean(self) -> float:
        """Mean of the rows."""
        return float(self.values.mean())

    def quantile(self, level: float) -> float | None:
        """Quantile, ``numpy``'s; None where less than one row is expected beyond it."""
        # rounded: 1 - 0.99 is not quite a hundredth
        return float(np.quantile(self.values, level)) if round(self.n * (1 - level), 9) >= 1 else None

    def at_risk(self, level: float) -> dict[str, Any]:
        """Quantile with the interval that order statistics give, mean beyond it, and how many rows are beyond."""
        n, var, x = self.n, self.quantile(level), self.values
        # between which ranks, counted from the largest, the quantile lies with this confidence, whatever the law
        few, many = (int(stats.binom.ppf(p, n, 1 - level)) for p in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
        return {
            "var": var,
            "low": float(x[many]) if var is not None and many < n else None,
            "high": float(x[few - 1]) if var is not None and few >= 1 else None,
            "cvar": self.tail_mean(level),
            "n_beyond": 0 if var is None else int((x > var).sum()),
        }

    def tail_mean(self, level: float) -> float | None:
        """Mean of the worst share ``1 - level`` of rows; the last of them counts in part.

        >>> Values(np.array([4.0, 2.0, 1.0, 1.0])).tail_mean(0.625)
        3.3333333333333335
        """
        count = round(self.n * (1 - level), 9)
        if count < 1:
            return None
        whole = math.floor(count)
        part = (count - whole) * self.values[whole] if whole < self.n else 0.0
        return float((self.values[:whole].sum() + part) / count)

    def layer(self, limit: float, attachment: float) -> float:
        """Mean of what a layer pays of a row."""
        return float(np.minimum(np.maximum(self.values - attachment, 0.0), limit).mean())

    def points(self) -> tuple[Array, Array]:
        """Some of the positive values, largest first, and the shares of rows that are not below them."""
        ranks = thinned(len(self.seen))
        return self.seen[ranks - 1], ranks / self.n

    def size(self, share: Array) -> Array:
        """The number of rows."""
        return np.full(share.shape, float(self.n))

    def mean_excess(self, at: Array) -> tuple[Array, Array]:
        """Mean excess over thresholds, and its standard error."""
        excesses = [self.seen[self.seen > u] - u for u in at]
        mean = np.array([e.mean() if len(e) else np.nan for e in excesses])
        return mean, np.array([e.std(ddof=1) / len(e) ** 0.5 if len(e) > 1 else np.nan for e in excesses])

    def hill(self) -> Hill:
        """Hill's estimates from ever more of the largest values."""
        k = hill_counts(len(self.seen), self.n)
        return Hill(k, hill(self.seen, k), k / self.n)


def hill(x: Array, k: NDArray[np.int64]) -> Array:
    """Hill's estimate of one over the tail exponent from the ``k`` largest of values, largest first (Hill 1975).

    >>> hill(np.array([8.0, 4.0, 2.0, 1.0]), np.array([1, 3])).round(3).tolist()
    [0.693, 1.386]
    """
    logs = np.log(x)
    return np.asarray(np.cumsum(logs)[k - 1] / k - logs[k])


def hill_counts(n_positive: int, n: int) -> NDArray[np.int64]:
    """How many of the largest values Hill's estimates rest on; none of fewer than two."""
    most = min(int(MOST_HILL * n), n_positive - 1)
    if most < 1:
        return np.zeros(0, dtype=np.int64)
    return np.unique(np.geomspace(min(FEWEST_HILL, max(1, most // 4)), most, 60).astype(np.int64))


def thinned(n: int) -> NDArray[np.int64]:
    """Ranks from 1 to ``n``: the first hundred, and then ever fewer."""
    first = np.arange(1, min(n, 100) + 1)
    if n <= 100:
        return first
    return np.unique(np.concatenate([first, np.geomspace(100, n, DRAWN - 100).astype(np.int64)]))
