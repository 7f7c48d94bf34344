"""Exceedances of a quantile in rows: whether there are as many as expected, and whether they come in clusters."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

__all__ = ["Clustering", "ExceedanceTest", "clustering", "kupiec"]

Array = NDArray[np.float64]

# A count this many standard deviations away has no probability left in double precision.
REACH = 40


class ExceedanceTest(NamedTuple):
    """Rows beyond the model's quantile at a level.

    level: Of the quantile.
    expected: Rows that exceed it on average under the model.
    observed: Rows that do for sure.
    p_value: Of Kupiec's test; NaN where the rows do not decide it.
    undecided: Rows of which it is not known whether they do.
    """

    level: float
    expected: float
    observed: int
    p_value: float
    undecided: int = 0

    @property
    def nearest(self) -> float:
        """The number of exceedances closest to the expected one that the rows leave open."""
        return min(max(self.expected, self.observed), self.observed + self.undecided)


class Clustering(NamedTuple):
    """Whether large values of neighbouring rows come together.

    p_value: Chance of so few runs of large values among rows in random order.
    size: Large values per run.
    """

    p_value: float
    size: float


def kupiec(observed: int, n: int, probability: float) -> float:
    """p-value of Kupiec's likelihood ratio test of a number of exceedances (1995), exact for every sample size.

    ``LR(k) = 2 [k log(k / n p) + (n - k) log((n - k) / n (1 - p))]``, and the p-value is the binomial probability of
    all counts whose ``LR`` is at least that of ``observed``.

    Args:
        observed: Exceedances.
        n: Rows.
        probability: Of an exceedance.

    >>> round(kupiec(20, 1000, 0.01), 4), round(kupiec(0, 1000, 0.001), 4)
    (0.006, 0.4479)
    """
    mean = n * probability
    spread = (mean * (1 - probability)) ** 0.5
    first, last = max(0, int(mean - REACH * (spread + 1))), min(n, int(mean + REACH * (spread + 1)))
    counts = np.arange(first, last + 1)
    # ratios that are equal but for rounding count as equal
    extreme = counts[_ratio(counts, n, probability) >= _ratio(np.array([observed]), n, probability) * (1 - 1e-9)]
    below, above = extreme[extreme < mean], extreme[extreme >= mean]
    chance = stats.binom.cdf(below[-1], n, probability) if len(below) else 0.0
    if len(above):
        chance += stats.binom.sf(above[0] - 1, n, probability)
    return min(1.0, float(chance))


def clustering(x: Array, level: float = 0.9) -> Clustering | None:
    """Whether values above their own quantile at a level follow each other; None where none or all are above.

    The number of runs of ``k`` marked among ``n`` rows in random order is hypergeometric: ``k`` draws from ``n`` items
    of which ``n - k + 1`` count.

    Args:
        x: Values in the order of the rows, shape ``(n,)``.
        level: Of the quantile.

    >>> clustering(np.arange(100.0)).size
    10.0
    """
    large = x > np.quantile(x, level) if len(x) else np.zeros(0, dtype=bool)
    k = int(large.sum())
    if not 1 < k < len(x):
        return None
    runs = int(large[0]) + int((large[1:] & ~large[:-1]).sum())
    return Clustering(float(stats.hypergeom.cdf(runs, len(x), len(x) - k + 1, k)), k / runs)


def _ratio(k: NDArray[np.int64], n: int, probability: float) -> Array:
    ratio: Array = special.rel_entr(k, n * probability) + special.rel_entr(n - k, n * (1 - probability))
    return ratio
