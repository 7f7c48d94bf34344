"""How many events a period has: Poisson, or negative binomial where years differ more than that."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["Frequency"]


class Frequency(NamedTuple):
    """Number of events with a mean and a ratio of variance to mean: 1 is Poisson, above 1 negative binomial.

    mean: Expected number of events per period.
    dispersion: Variance over mean.

    >>> counts = Frequency(3.0, 2.0)
    >>> round(float(counts.generating(0.0)), 12), round(float(stats.nbinom(3.0, 0.5).pmf(0)), 12)
    (0.125, 0.125)
    """

    mean: float
    dispersion: float = 1.0

    def generating(self, z: Any) -> Any:
        """Probability generating function ``E[z^N]`` for ``|z| <= 1``, real or complex."""
        return self.without(1 - z)

    def without(self, rest: Any) -> Any:
        """``E[(1 - rest)^N]``, with all digits where ``rest`` is small."""
        if self.dispersion == 1:
            return np.exp(-self.mean * rest)
        more = self.dispersion - 1
        return np.exp(-self.mean / more * np.log1p(more * rest))

    def some(self, chance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Chance that at least one event is of a kind that has this chance per event."""
        if self.dispersion == 1:
            return np.asarray(-np.expm1(-self.mean * chance))
        more = self.dispersion - 1
        return np.asarray(-np.expm1(-self.mean / more * np.log1p(more * chance)))

    def most(self, probability: float) -> float:
        """Number of events that is exceeded with at most this probability."""
        if self.dispersion == 1:
            return float(stats.poisson.isf(probability, self.mean))
        more = self.dispersion - 1
        return float(stats.nbinom.isf(probability, self.mean / more, 1 / self.dispersion))
