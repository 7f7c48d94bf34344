"""Maximum likelihood in classical families, column by column: what a user tries before any network."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from phvae.baselines.baseline import Baseline
from phvae.training import TrainingError

__all__ = [
    "BurrIIIFit",
    "BurrXIIFit",
    "GammaFit",
    "LognormalFit",
    "MaximumLikelihood",
    "ParetoFit",
    "WeibullFit",
    "most_likely",
]

Array = NDArray[np.float64]


class MaximumLikelihood(Baseline):
    """One family of positive laws for every column, columns independent; exact zeros keep their share.

    The shapes and the scale maximise ``Σ_i log f(x_i)`` over the positive values of a column; the law starts at zero.

    >>> x = np.random.default_rng(0).exponential([1.0, 2.0], (200, 2))
    >>> for family in WeibullFit, LognormalFit, ParetoFit, GammaFit, BurrXIIFit, BurrIIIFit:
    ...     print(family().fit(x, seed=0).sample(3, seed=1).shape, end=" ")
    (3, 2) (3, 2) (3, 2) (3, 2) (3, 2) (3, 2)
    """

    family: ClassVar[Any]
    start: ClassVar[tuple[float, ...]]
    """Shapes to begin the search from, as the family of scipy names them."""

    @property
    def n_parameters(self) -> int:
        """Shapes and scale of every column."""
        return len(self.laws_) * (1 + len(self.start))

    def _fit(self, x: Array, seed: int) -> None:
        if (x < 0).any():
            raise ValueError(f"{self.name}: x has {int((x < 0).sum())} values below 0; the family is for values >= 0")
        self.zero_share_ = (x == 0).mean(0)
        self.laws_ = [self._fit_column(column[column > 0]) for column in x.T]

    def _fit_column(self, x: Array) -> Any:
        scale = float(np.median(x))
        scaled = x / scale

        def log_likelihood(logs: Array) -> float:
            *shapes, factor = np.exp(logs)
            return float(self.family.logpdf(scaled, *shapes, scale=factor).mean())

        *shapes, factor = np.exp(most_likely(log_likelihood, np.log([*self.start, 1.0]), self.name))
        return self.family(*shapes, scale=scale * factor)

    def _draw(self, n: int, seed: int) -> Array:
        rng = np.random.default_rng(seed)
        rows = np.stack([law.rvs(size=n, random_state=rng) for law in self.laws_], 1)
        return np.where(rng.random(rows.shape) < self.zero_share_, 0.0, rows)


class WeibullFit(MaximumLikelihood):
    """Weibull law: ``S(x) = exp(-(x / scale)^k)``."""

    name = "Weibull, maximum likelihood"
    family = stats.weibull_min
    start = (1.0,)


class LognormalFit(MaximumLikelihood):
    """Lognormal law: ``log x`` is normal with mean ``log scale`` and deviation ``σ``, both in closed form."""

    name = "lognormal, maximum likelihood"
    family = stats.lognorm
    start = (1.0,)

    def _fit_column(self, x: Array) -> Any:
        logs = np.log(x)
        return self.family(logs.std(), scale=np.exp(logs.mean()))


class ParetoFit(MaximumLikelihood):
    """Pareto law: ``S(x) = (x / scale)^-α`` beyond the smallest value, ``α = 1 / mean(log(x / scale))``."""

    name = "Pareto, maximum likelihood"
    family = stats.pareto
    start = (1.0,)

    def _fit_column(self, x: Array) -> Any:
        smallest = x.min()
        return self.family(1 / np.log(x / smallest).mean(), scale=smallest)


class GammaFit(MaximumLikelihood):
    """Gamma law: ``f(x) ∝ x^(a - 1) exp(-x / scale)``."""

    name = "gamma, maximum likelihood"
    family = stats.gamma
    start = (1.0,)


class BurrXIIFit(MaximumLikelihood):
    """Burr XII law: ``S(x) = (1 + (x / scale)^c)^-d``; ``scipy.stats.burr12``."""

    name = "Burr XII, maximum likelihood"
    family = stats.burr12
    start = (1.5, 1.0)


class BurrIIIFit(MaximumLikelihood):
    """Burr III law: ``F(x) = (1 + (x / scale)^-c)^-d``; ``scipy.stats.burr``."""

    name = "Burr III, maximum likelihood"
    family = stats.burr
    start = (1.5, 1.0)


def most_likely(log_likelihood: Callable[[Array], float], start: Array, what: str) -> Array:
    """Point with the highest mean log-likelihood, by the simplex of Nelder and Mead, restarted once where it stopped.

    Args:
        log_likelihood: Mean over the rows; ``-inf`` where a point is impossible.
        start: Point to begin at, possible.
        what: What is fitted, for the message of a failure.
    """
    point, best, message = start, log_likelihood(start), "the rows are impossible where the search begins"
    if np.isfinite(best):
        for _ in range(2):
            found = optimize.minimize(
                lambda values: -log_likelihood(values),
                point,
                method="Nelder-Mead",
                options={"xatol": 1e-7, "fatol": 1e-12, "maxiter": 2000},
            )
            point, message = found.x, found.message
        if found.success:
            return np.asarray(point)
    raise TrainingError(f"{what}: the likelihood has no maximum that can be found ({message})")
