"""Quantiles of more values than memory holds, with a bound of their error that the sketch itself computes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phvae.start import cells

__all__ = ["Cells", "QuantileSketch", "together"]

Array = NDArray[np.float64]

# Values from which on neighbours are put together; up to so many a sketch is exact.
LEAF = 2**17
# Values kept one by one at either end when two parts become one; further in, a cell has this fraction of the values
# beyond it, so that a rank is off by at most about 2 / SINGLES of itself for each doubling of the number of values.
SINGLES = 1024


class Cells(NamedTuple):
    """Neighbouring values, put together: mean, weight, smallest and largest of each cell, ascending by mean."""

    mean: Array
    weight: Array
    low: Array
    high: Array


class QuantileSketch:
    """How many values up to ``x`` were seen: exact for few, and at both ends; `merge` joins what several have seen.

    Parts of equal size are joined two by two, like digits of a binary counter, so that a value is put together with
    neighbours once for each doubling of the number of values. Ranks are exact among the `SINGLES` smallest and largest.

    >>> sketch = QuantileSketch()
    >>> for start in range(0, 400_000, 100_000):
    ...     sketch.add(np.arange(start, start + 100_000.0))
    >>> low, high = sketch.rank_bounds(300_000.0)
    >>> low <= 300_001 <= high, high - low < 0.005 * 100_000, sketch.rank_bounds(399_990.0)
    (True, True, (399991.0, 399991.0))
    """

    def __init__(self) -> None:
        self._levels: list[Cells | None] = []
        self._fresh: list[Array] = []
        self._n_fresh = 0

    def add(self, values: Array) -> None:
        """See more values, all finite, shape ``(k,)``."""
        while len(values):
            some, values = values[: LEAF - self._n_fresh], values[LEAF - self._n_fresh :]
            self._fresh.append(some.copy())
            self._n_fresh += len(some)
            if self._n_fresh == LEAF:
                leaf, self._fresh, self._n_fresh = np.concatenate(self._fresh), [], 0
                self._carry(_of_values(leaf), 0)

    def merge(self, other: "QuantileSketch") -> None:
        """See what another sketch has seen."""
        for level, part in enumerate(other._levels):
            if part is not None:
                self._carry(part, level)
        for values in other._fresh:
            self.add(values)

    def cells(self) -> Cells:
        """All that is known; single values where the sketch is exact."""
        parts = [part for part in self._levels if part is not None]
        if self._n_fresh:
            parts.append(_of_values(np.concatenate(self._fresh)))
        return together(parts)

    def rank_bounds(self, x: float) -> tuple[float, float]:
        """Between which numbers the number of values up to ``x`` lies, for certain."""
        known = self.cells()
        return float(known.weight[known.high <= x].sum()), float(known.weight[known.low <= x].sum())

    def relative_rank_error(self) -> float:
        """Largest width of `rank_bounds` over all ``x``, as a share of the values beyond ``x`` at the nearer end."""
        known = self.cells()
        total = known.weight.sum()
        points = np.sort(known.low)
        lower, upper = (_weight_up_to(points, ends, known.weight) for ends in (known.high, known.low))
        width = upper - lower
        nearer = np.minimum(upper, total - lower)
        return float((width[width > 0] / nearer[width > 0]).max(initial=0.0))

    def _carry(self, part: Cells, level: int) -> None:
        """Take up a part; two of a level become one of the next."""
        while len(self._levels) <= level:
            self._levels.append(None)
        there = self._levels[level]
        if there is None:
            self._levels[level] = part
        else:
            self._levels[level] = None
            self._carry(_compressed(together([there, part])), level + 1)


def _of_values(values: Array) -> Cells:
    distinct, counts = np.unique(values, return_counts=True)
    return Cells(distinct, counts.astype(np.float64), distinct, distinct)


def together(parts: list[Cells]) -> Cells:
    """Cells of several parts as those of one; where a mean occurs twice it becomes one cell."""
    if not parts:
        nothing = np.zeros(0)
        return Cells(nothing, nothing, nothing, nothing)
    mean, weight, low, high = (np.concatenate(field) for field in zip(*parts, strict=True))
    order = np.argsort(mean, kind="stable")
    mean, weight, low, high = mean[order], weight[order], low[order], high[order]
    first = np.flatnonzero(np.diff(mean, prepend=-np.inf))
    return Cells(
        mean[first], np.add.reduceat(weight, first), np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)
    )


def _compressed(part: Cells) -> Cells:
    first = cells(part.weight, top=SINGLES, bottom=SINGLES)
    weight = np.add.reduceat(part.weight, first)
    # a share of each, so that huge values do not overflow; a cell of one value keeps it as it is
    mean = np.add.reduceat(part.mean * (part.weight / np.repeat(weight, np.diff(first, append=len(part.mean)))), first)
    single = np.diff(first, append=len(part.mean)) == 1
    mean = np.where(single, part.mean[first], mean)
    return Cells(mean, weight, np.minimum.reduceat(part.low, first), np.maximum.reduceat(part.high, first))


def _weight_up_to(points: Array, ends: Array, weight: Array) -> Array:
    order = np.argsort(ends, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(weight[order])])
    return np.asarray(sums[np.searchsorted(ends[order], points, side="right")])
