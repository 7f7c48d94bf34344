"""The empirical body with a generalised Pareto tail: the first tool of extreme value statistics."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from phvae.baselines.baseline import Baseline
from phvae.distributions.generalised_pareto import fit_generalised_pareto

__all__ = ["EmpiricalWithParetoTail", "SplicedLaw"]

Array = NDArray[np.float64]

# Rows beyond a threshold below which two parameters of a tail cannot be told.
FEWEST = 10


@dataclass(frozen=True)
class SplicedLaw:
    """Law of one column: order statistics joined by lines up to a threshold, a generalised Pareto tail beyond it.

    ``S(x) = p (1 + ξ (x - u) / σ)^(-1/ξ)`` for ``x > u``, with ``u`` the quantile of the column at `level`, ``p`` the
    share of rows beyond it and ``(ξ, σ)`` of maximum likelihood. Below, the value with rank ``i`` of ``n`` is the
    quantile at ``(i - 1/2) / n``; equal values share their mean rank.

    >>> law = SplicedLaw.fit(np.arange(1.0, 201.0))
    >>> law.threshold, round(law.mass, 3), float(law.quantile(1 - law.mass)), float(law.cdf(law.threshold))
    (180.1, 0.1, 180.1, 0.9)
    """

    points: Array
    """Different values of the body, ascending, and the threshold."""
    levels: Array
    """Distribution function at these points."""
    first_level: Array
    """Where the flat part of the quantile function at these points begins."""
    last_level: Array
    """Where it ends."""
    threshold: float
    mass: float
    shape: float
    scale: float

    @classmethod
    def fit(cls, x: Array, level: float = 0.9) -> Self:
        """Law of a column of values, shape ``(n,)``."""
        threshold = float(np.quantile(x, level))
        beyond = x[x > threshold] - threshold
        if len(beyond) < FEWEST:
            raise ValueError(
                f"{len(beyond)} of {len(x)} values lie beyond the threshold {threshold:g}; give a lower level than "
                f"{level} or more rows, so that at least {FEWEST} do"
            )
        body, counts = np.unique(x[x <= threshold], return_counts=True)
        mass = len(beyond) / len(x)
        after = counts.cumsum()
        first, last = (after - counts + 0.5) / len(x), (after - 0.5) / len(x)
        if body[-1] < threshold:
            body, first, last = (np.append(part, end) for part, end in ((body, threshold), (first, 1), (last, 1)))
            first[-1] = 1 - mass
        last[-1] = 1 - mass
        levels = (first + last) / 2
        levels[-1] = 1 - mass
        tail = fit_generalised_pareto(beyond)
        return cls(body, levels, first, last, threshold, mass, tail.shape, tail.scale)

    @property
    def tail(self) -> Any:
        """Law of the excess beyond the threshold."""
        return stats.genpareto(self.shape, scale=self.scale)

    def sf(self, x: Array | float) -> Array:
        """Survival function, with all digits in the tail."""
        x = np.asarray(x, dtype=np.float64)
        body = 1 - np.interp(x, self.points, self.levels)
        return np.where(x > self.threshold, self.mass * self.tail.sf(x - self.threshold), body)

    def cdf(self, x: Array | float) -> Array:
        """Distribution function."""
        return 1 - self.sf(x)

    def isf(self, share: Array | float) -> Array:
        """Value that is exceeded with this probability."""
        share = np.asarray(share, dtype=np.float64)
        places = np.stack((self.first_level, self.last_level), 1).ravel()
        body = np.interp(1 - share, places, np.repeat(self.points, 2))
        beyond = self.threshold + self.tail.isf(np.minimum(share / self.mass, 1))
        return np.where(share < self.mass, beyond, body)

    def quantile(self, level: Array | float) -> Array:
        """Value that is not exceeded with this probability."""
        return self.isf(1 - np.asarray(level, dtype=np.float64))


class EmpiricalWithParetoTail(Baseline):
    """Rows drawn with replacement, every value beyond its column's threshold replaced by one of a fitted Pareto tail.

    In one column this is the `SplicedLaw` with the values of the body as they were. In several, a value beyond its
    threshold with rank ``r`` of ``k`` there becomes the quantile of the tail at a level uniform on
    ``((r - 1) / k, r / k)``, so the dependence is that of the rows.

    Args:
        level: Level of the threshold.

    >>> x = np.random.default_rng(0).pareto(2.4, (200, 2))
    >>> EmpiricalWithParetoTail().fit(x, seed=0).sample(3, seed=1).shape
    (3, 2)
    """

    name = "empirical body, Pareto tail"

    def __init__(self, *, level: float = 0.9) -> None:
        self.level = level

    @property
    def n_parameters(self) -> int:
        """Shape and scale of every column; the body is the rows themselves."""
        return 2 * len(self.laws_)

    def _fit(self, x: Array, seed: int) -> None:
        self.rows_ = x.copy()
        self.laws_ = [SplicedLaw.fit(column, self.level) for column in x.T]

    def _draw(self, n: int, seed: int) -> Array:
        rng = np.random.default_rng(seed)
        chosen = rng.integers(len(self.rows_), size=n)
        rows = self.rows_[chosen]
        for j, law in enumerate(self.laws_):
            column = self.rows_[:, j]
            beyond = np.flatnonzero(column > law.threshold)
            rank = np.zeros(len(column))
            rank[beyond[column[beyond].argsort(kind="stable")]] = np.arange(len(beyond))
            in_tail = rows[:, j] > law.threshold
            # the exceeded share of the tail, uniform on the interval of this rank and never 0
            left = (len(beyond) - rank[chosen[in_tail]] - rng.random(int(in_tail.sum()))) / len(beyond)
            rows[in_tail, j] = law.threshold + law.tail.isf(left)
        return rows
