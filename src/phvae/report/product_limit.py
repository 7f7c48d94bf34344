"""What rows alone say of a column of which some cells are cut or seen within bounds: the product-limit estimate."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from phvae.report.empirical import Empirical, Hill, hill_counts, thinned
from phvae.risk.estimate import CONFIDENCE
from phvae.risk.seen import SeenColumn

__all__ = ["ProductLimit"]

Array = NDArray[np.float64]

# Sums of weights and products of shares are off by less.
ROUNDING = 1e-9


class ProductLimit(Empirical):
    """The survival curve ``S(x) = share · Π_{x_k <= x} (1 - d_k / Y_k)`` of Kaplan and Meier.

    ``d_k`` rows have the value ``x_k``, and ``Y_k`` are known to reach it: not below it, not cut before it, and seen
    from a bound below it on. A cell known to lie in an interval counts at its middle, so that the curve is right at the
    ends of intervals that do not overlap. It begins at the lowest bound from which on somebody is always left,
    ``begin``; ``share`` is what is taken for the probability to exceed that, 1 where it is the lower end of the column.
    Rows seen only up to a bound, or by bounds of other columns, give no curve.

    Args:
        column: The cells; those that are missing are left out.
        survival: Probability to exceed a point, where rows say nothing of that: from a model.
        lowest: Least possible value; an interval that begins at none counts at its upper end.

    >>> ends = np.array([1.0, 2.0, 2.0, 4.0])
    >>> curve = ProductLimit(SeenColumn(ends, np.array([1.0, np.inf, 2.0, 4.0])), lambda x: 1.0)
    >>> curve.x.tolist(), curve.after.tolist()
    ([1.0, 2.0, 4.0], [0.75, 0.5, 0.0])
    """

    def __init__(self, column: SeenColumn, survival: Callable[[float], float], lowest: float = 0.0) -> None:
        known = column.rounded.known
        event, between, mass = known.exact | known.between, known.between, known.mass
        end = np.where(known.exact, known.upper, known.lower)
        least = np.maximum(known.lower[between], lowest)
        least = np.where(least == -np.inf, known.upper[between], least)
        end[between] = (least + known.upper[between]) / 2
        self._maybe_zero = bool((~known.exact & (known.lower < 0) & (known.upper >= 0)).any())
        self.n = round(float(mass.sum()))
        positive = event & (end > 0)
        seen = end[positive] if positive.any() else end[end > 0]
        self.seen = -np.sort(-seen)
        self.largest = float(end[event].max()) if event.any() else math.nan
        self._end, self._event, self._mass = end, event, mass
        self._entry = np.full_like(end, -np.inf) if known.entry is None else known.entry
        self.open = known.exit is not None or known.selected
        used = event & (not self.open)
        x = np.unique(end[used])
        died = np.bincount(np.searchsorted(x, end[used]), weights=mass[used], minlength=len(x))
        at_risk = _beyond(x, end, mass, "left") - _beyond(x, self._entry, mass, "right")
        left = np.where(at_risk - died > ROUNDING * at_risk, at_risk - died, 0.0)
        emptied = np.flatnonzero((left == 0) & (x < end.max(initial=-np.inf)))
        lowest = float(self._entry.min(initial=np.inf))
        self.begin = max(lowest, float(x[emptied[-1]])) if len(emptied) else lowest
        kept = x > self.begin
        x, died, at_risk, left = x[kept], died[kept], at_risk[kept], left[kept]
        self.share = 1.0 if self.begin == -np.inf or not len(x) else survival(self.begin)
        self.x: Array = x
        self._at_risk: Array = at_risk
        self.after = self.share * np.cumprod(left / at_risk)
        self.before = np.concatenate([[self.share], self.after[:-1]]) if len(x) else self.after
        with np.errstate(divide="ignore"):
            self._variance = np.cumsum(died / (at_risk * left))
        self._died = died

    @property
    def complete(self) -> bool:
        """Whether the curve comes down to zero, so that no share of the rows is of unknown size."""
        return bool(len(self.x)) and self.after[-1] == 0

    @property
    def reach(self) -> float:
        """Up to where the curve is known."""
        if self.complete:
            return math.inf
        return float(self._end.max()) if len(self.x) else -math.inf

    def sf(self, x: ArrayLike) -> Array:
        """Share of the rows beyond points; NaN below the beginning of the curve and beyond its reach."""
        at = np.asarray(x, dtype=np.float64)
        curve = np.concatenate([[self.share], self.after])
        return np.where((at < self.begin) | (at > self.reach), np.nan, curve[np.searchsorted(self.x, at, side="right")])

    @property
    def zero_share(self) -> float | None:
        """Share of exact zeros; None where a cell that is no value may be one."""
        if not len(self.x) or self.begin > -math.inf or self._maybe_zero:
            return None
        return float((self.before - self.after)[self.x == 0].sum())

    @property
    def median(self) -> float | None:
        """Value that half of the rows exceed."""
        return self._first(0.5)

    @property
    def mean(self) -> float | None:
        """Mean of the rows; None where the curve does not begin at the lower end or does not come down to zero."""
        if not self.complete or self.begin > -math.inf:
            return None
        return float(((self.before - self.after) * self.x).sum())

    def quantile(self, level: float) -> float | None:
        """Smallest value with no more than ``1 - level`` beyond; None where less than one row is expected there."""
        share = round(1 - level, 12)
        if not len(self.x) or round(float(self.size(np.array([share]))[0]) * share, 9) < 1:
            return None
        return self._first(share)

    def at_risk(self, level: float) -> dict[str, Any]:
        """Quantile with the interval of its ranks among as many rows as say as much, and the mean beyond it."""
        var, share = self.quantile(level), round(1 - level, 12)
        found: dict[str, Any] = {"var": var, "low": None, "high": None, "cvar": None, "n_beyond": 0}
        if var is None:
            return found
        n = float(self.size(np.array([share]))[0])
        few, many = (
            float(stats.binom.ppf(p, round(n), share)) / n for p in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
        )
        # products of exact shares are off by rounding
        below = self.x[self.before >= (many + 1 / n) * (1 - ROUNDING)]
        above = self.x[self.before >= few * (1 - ROUNDING)]
        found["low"] = float(below[-1]) if len(below) else None
        # where the curve ends above this share, the value that has it is not known
        found["high"] = float(above[-1]) if few > 0 and self.after[-1] < few else None
        found["cvar"] = self._mean_beyond(share)
        beyond = np.where(self._event, self._end > var, self._end >= var)
        found["n_beyond"] = round(float(self._mass[beyond].sum()))
        return found

    def layer(self, limit: float, attachment: float) -> float | None:
        """``∫ S`` over a layer; None where the curve does not reach over all of it."""
        top = attachment + limit
        if not len(self.x) or attachment < self.begin or top > self.reach:
            return None
        inside = self.x[(self.x > attachment) & (self.x < top)]
        if math.isinf(top):
            top = max(self.largest, attachment)
        edges = np.concatenate([[attachment], inside, [max(top, attachment)]])
        return float((self.sf(edges[:-1]) * np.diff(edges)).sum())

    def points(self) -> tuple[Array, Array]:
        """Some of the positive values, largest first, and the shares of rows that are not below them."""
        positive = self.x > 0
        places = np.flatnonzero(positive)[::-1][thinned(int(positive.sum())) - 1]
        return self.x[places], np.asarray(self.before[places], dtype=np.float64)

    def size(self, share: Array) -> Array:
        """Rows of values with the same variance as Greenwood's: ``s (1 - s) / Var`` near shares ``s`` of the curve."""
        if not len(self.x):
            return np.full(share.shape, np.nan)
        # the variance of the curve before it steps below a share
        place = np.searchsorted(-self.before, -share, side="right") - 1
        place = np.clip(place, 0, len(self.x) - 1)
        steps = np.concatenate([[0.0], self._variance[:-1]])[place]
        part = self.before[place]
        with np.errstate(divide="ignore", invalid="ignore"):
            # before the first step no row has been lost yet
            size: Array = np.where(steps > 0, (1 - part) / (part * steps), self._at_risk[0])
        return size

    def mean_excess(self, at: Array) -> tuple[Array, Array]:
        """Mean excess over thresholds, and its standard error; NaN where the curve does not come down to zero."""
        if not self.complete:
            nothing: Array = np.full(at.shape, np.nan)
            return nothing, nothing
        mass, found = self.before - self.after, []
        for u in at:
            beyond = self.x > u
            total, count = mass[beyond].sum(), float(self._died[beyond].sum())
            if u < self.begin or count <= 1:
                found.append((np.nan, np.nan))
                continue
            mean = float((mass * (self.x - u))[beyond].sum() / total)
            spread = float((mass * (self.x - u - mean) ** 2)[beyond].sum() / total)
            found.append((mean, (spread / (count - 1)) ** 0.5))
        pairs: Array = np.array(found)
        return pairs[:, 0], pairs[:, 1]

    def hill(self) -> Hill:
        """Maximum likelihood of a power tail: ``Σ log(end / max(u, entry))`` of cells that reach ``u``, by its values.

        Of values alone it is Hill's estimate; a cell that is cut adds what it is known to reach, and no value.
        """
        order = np.argsort(-self._end, kind="stable")
        if self.open:
            return Hill(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        order = order[self._end[order] > 0]
        end, entry = self._end[order], self._entry[order]
        values = np.cumsum(np.where(self._event, self._mass, 0.0)[order])
        rank = hill_counts(len(end), len(self._end))
        rank = rank[(values[rank - 1] >= 1) & (end[rank] >= self.begin)]
        u = end[rank]
        reached = [
            float((self._mass[order[:k]] * np.log(end[:k] / np.maximum(low, entry[:k]))).sum())
            for k, low in zip(rank.tolist(), u.tolist(), strict=True)
        ]
        count = values[rank - 1]
        return Hill(np.rint(count).astype(np.int64), np.array(reached) / count, self.sf(u))

    def _first(self, share: float) -> float | None:
        """The smallest value with no more than a share beyond it."""
        found = np.flatnonzero(self.after <= share * (1 + ROUNDING))
        if not len(found) or self.share < share:
            return None
        return float(self.x[found[0]])

    def _mean_beyond(self, share: float) -> float | None:
        """Mean of the largest share of rows; None where that of some is not known."""
        if not self.complete or self.share < share:
            return None
        counted = np.diff(np.minimum(np.concatenate([[0.0], self.before[::-1]]), share))
        return float((counted * self.x[::-1]).sum() / share)


def _beyond(x: Array, ends: Array, mass: Array, side: Literal["left", "right"]) -> Array:
    """Mass of ends that are not below points, or beyond them for the other side."""
    order = np.argsort(ends, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(mass[order])])
    return np.asarray(total[-1] - total[np.searchsorted(ends[order], x, side=side)])
