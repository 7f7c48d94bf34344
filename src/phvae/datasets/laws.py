"""Heavy-tailed laws of one variable, exact in both tails: what synthetic data come from and are held against.

Every law writes its survival function and its two quantile functions in the form that keeps their digits where they
are small, so that ``isf(1e-12)`` is as right as ``isf(0.5)``. The means above a quantile are incomplete gamma and beta
functions, not averages of draws.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["BurrIII", "BurrXII", "Law", "Lognormal", "Pareto", "Weibull", "WithZeros"]

Array = NDArray[np.float64]


class Law(ABC):
    """A law on the non-negative numbers with exact tails, quantiles and tail means.

    Parameters are positive numbers unless a class says otherwise.
    """

    _free: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if not math.isfinite(value) or (value <= 0 and field.name not in self._free):
                raise ValueError(f"{field.name}={value:g} of {type(self).__name__} must be positive and finite")

    def log_pdf(self, x: ArrayLike) -> Array:
        """Log density; ``-inf`` below the support."""
        return self._log_pdf(np.asarray(x, dtype=np.float64))

    def pdf(self, x: ArrayLike) -> Array:
        """Density."""
        return np.exp(self.log_pdf(x))

    def sf(self, x: ArrayLike) -> Array:
        """P(X > x)."""
        return self._sf(np.asarray(x, dtype=np.float64))

    def cdf(self, x: ArrayLike) -> Array:
        """P(X <= x)."""
        return self._cdf(np.asarray(x, dtype=np.float64))

    def quantile(self, p: ArrayLike) -> Array:
        """The x with P(X <= x) = p."""
        return self._quantile(_probability("p", p))

    def isf(self, p: ArrayLike) -> Array:
        """The x with P(X > x) = p, exact for the smallest p."""
        return self._isf(_probability("p", p))

    @property
    def mean(self) -> float:
        """E[X]; ``inf`` where it does not exist."""
        return self._cvar(0.0)

    def cvar(self, level: float) -> float:
        """E[X | X > x] at the quantile x of the level; ``inf`` where the mean does not exist."""
        if not 0 <= level < 1:
            raise ValueError(f"level={level:g} must lie in [0, 1)")
        return self._cvar(level)

    def sample(self, n: int, seed: Any = None) -> Array:
        """Draws of shape ``(n,)``, by inversion: one uniform number each, from a seed or a numpy generator."""
        return self.isf(1.0 - np.random.default_rng(seed).random(n))  # never 0, whose quantile is infinite

    @abstractmethod
    def _log_pdf(self, x: Array) -> Array: ...

    @abstractmethod
    def _sf(self, x: Array) -> Array: ...

    @abstractmethod
    def _cdf(self, x: Array) -> Array: ...

    @abstractmethod
    def _quantile(self, p: Array) -> Array: ...

    @abstractmethod
    def _isf(self, p: Array) -> Array: ...

    @abstractmethod
    def _cvar(self, level: float) -> float: ...


@dataclass(frozen=True)
class Weibull(Law):
    """P(X > x) = exp(-(x/scale)^shape).

    >>> law = Weibull(0.8)
    >>> round(float(law.isf(1e-6)), 4), round(law.cvar(0.99), 4)
    (26.6354, 8.6646)
    """

    shape: float
    scale: float = 1.0

    def _log_pdf(self, x: Array) -> Array:
        z = x / self.scale
        inside = np.where(z > 0, z, 1.0)
        density = math.log(self.shape / self.scale) + (self.shape - 1) * np.log(inside) - inside**self.shape
        return np.where(z > 0, density, -np.inf)

    def _sf(self, x: Array) -> Array:
        return np.exp(-self._hazard(x))

    def _cdf(self, x: Array) -> Array:
        return -np.expm1(-self._hazard(x))

    def _quantile(self, p: Array) -> Array:
        return self.scale * _log_inverse(1, p) ** (1 / self.shape)

    def _isf(self, p: Array) -> Array:
        return self.scale * _log_inverse(0, p) ** (1 / self.shape)

    def _cvar(self, level: float) -> float:
        from scipy import special

        whole = self.scale * math.gamma(1 + 1 / self.shape)
        return whole * float(special.gammaincc(1 + 1 / self.shape, -math.log1p(-level))) / (1 - level)

    def _hazard(self, x: Array) -> Array:
        return (np.maximum(x, 0.0) / self.scale) ** self.shape


@dataclass(frozen=True)
class Pareto(Law):
    """P(X > x) = (scale/x)^shape from ``scale`` on.

    >>> law = Pareto(2.4)
    >>> round(float(law.isf(0.01)), 4), round(law.cvar(0.99) / float(law.isf(0.01)), 4)
    (6.8129, 1.7143)
    """

    shape: float
    scale: float = 1.0

    def _log_pdf(self, x: Array) -> Array:
        z = x / self.scale
        density = math.log(self.shape / self.scale) - (self.shape + 1) * np.log(np.maximum(z, 1.0))
        return np.where(z >= 1, density, -np.inf)

    def _sf(self, x: Array) -> Array:
        return np.maximum(x / self.scale, 1.0) ** -self.shape

    def _cdf(self, x: Array) -> Array:
        return -np.expm1(-self.shape * np.log(np.maximum(x / self.scale, 1.0)))

    def _quantile(self, p: Array) -> Array:
        return self.scale * np.exp(_log_inverse(1, p) / self.shape)

    def _isf(self, p: Array) -> Array:
        return self.scale * np.exp(_log_inverse(0, p) / self.shape)

    def _cvar(self, level: float) -> float:
        return float(self.quantile(level)) * self.shape / (self.shape - 1) if self.shape > 1 else math.inf


@dataclass(frozen=True)
class Lognormal(Law):
    """log X is normal with mean ``mu`` (any number) and standard deviation ``sigma``.

    >>> law = Lognormal(0.0, 1.5)
    >>> round(float(law.quantile(0.99)), 4), round(law.cvar(0.0) - law.mean, 12)
    (32.7703, 0.0)
    """

    mu: float
    sigma: float
    _free: ClassVar[tuple[str, ...]] = ("mu",)

    def _log_pdf(self, x: Array) -> Array:
        log = np.log(np.where(x > 0, x, 1.0))
        density = -(((log - self.mu) / self.sigma) ** 2) / 2 - log - math.log(self.sigma) - math.log(2 * math.pi) / 2
        return np.where(x > 0, density, -np.inf)

    def _sf(self, x: Array) -> Array:
        from scipy import special

        return np.asarray(special.ndtr(-self._standardised(x)))

    def _cdf(self, x: Array) -> Array:
        from scipy import special

        return np.asarray(special.ndtr(self._standardised(x)))

    def _quantile(self, p: Array) -> Array:
        from scipy import special

        return np.asarray(np.exp(self.mu + self.sigma * special.ndtri(p)))

    def _isf(self, p: Array) -> Array:
        from scipy import special

        return np.asarray(np.exp(self.mu - self.sigma * special.ndtri(p)))

    def _cvar(self, level: float) -> float:
        from scipy import special

        whole = math.exp(self.mu + self.sigma**2 / 2)
        return whole * float(special.ndtr(self.sigma - special.ndtri(level))) / (1 - level)

    def _standardised(self, x: Array) -> Array:
        return np.where(x > 0, (np.log(np.where(x > 0, x, 1.0)) - self.mu) / self.sigma, -np.inf)


@dataclass(frozen=True)
class BurrXII(Law):
    """P(X > x) = (1 + (x/scale)^c)^-k, the Singh-Maddala law (`scipy.stats.burr12`).

    >>> law = BurrXII(1.5, 0.8)
    >>> round(float(law.isf(0.01)), 4), round(law.cvar(0.99), 4)
    (46.318, 278.4262)
    """

    c: float
    k: float
    scale: float = 1.0

    def _log_pdf(self, x: Array) -> Array:
        log = _log(x, self.scale, outside=0.0)
        density = math.log(self.c * self.k / self.scale) + (self.c - 1) * log
        return np.where(x > 0, density - (self.k + 1) * np.logaddexp(0, self.c * log), -np.inf)

    def _sf(self, x: Array) -> Array:
        return np.exp(-self.k * np.logaddexp(0, self.c * _log(x, self.scale)))

    def _cdf(self, x: Array) -> Array:
        return -np.expm1(-self.k * np.logaddexp(0, self.c * _log(x, self.scale)))

    def _quantile(self, p: Array) -> Array:
        return self.scale * np.expm1(_log_inverse(1, p) / self.k) ** (1 / self.c)

    def _isf(self, p: Array) -> Array:
        return self.scale * np.expm1(_log_inverse(0, p) / self.k) ** (1 / self.c)

    def _cvar(self, level: float) -> float:
        from scipy import special

        if self.c * self.k <= 1:
            return math.inf
        # with u = P(X > x)^(1/k) the tail mean is an incomplete beta integral from 0 to (1 - level)^(1/k)
        a, b = self.k - 1 / self.c, 1 + 1 / self.c
        beyond = special.beta(a, b) * special.betainc(a, b, (1 - level) ** (1 / self.k))
        return self.scale * self.k * float(beyond) / (1 - level)


@dataclass(frozen=True)
class BurrIII(Law):
    """P(X <= x) = (1 + (x/scale)^-c)^-k, the Dagum law (`scipy.stats.burr`); its reciprocal is a Burr XII law.

    >>> law = BurrIII(1.5, 0.8)
    >>> round(float(law.isf(0.01)), 4), round(law.cvar(0.99), 4)
    (18.4269, 55.5945)
    """

    c: float
    k: float
    scale: float = 1.0

    def _log_pdf(self, x: Array) -> Array:
        log = _log(x, self.scale, outside=0.0)
        density = math.log(self.c * self.k / self.scale) + (self.c * self.k - 1) * log
        return np.where(x > 0, density - (self.k + 1) * np.logaddexp(0, self.c * log), -np.inf)

    def _sf(self, x: Array) -> Array:
        return -np.expm1(-self.k * np.logaddexp(0, -self.c * _log(x, self.scale)))

    def _cdf(self, x: Array) -> Array:
        return np.exp(-self.k * np.logaddexp(0, -self.c * _log(x, self.scale)))

    def _quantile(self, p: Array) -> Array:
        with np.errstate(divide="ignore"):
            return self.scale * np.expm1(_log_inverse(0, p) / self.k) ** (-1 / self.c)

    def _isf(self, p: Array) -> Array:
        with np.errstate(divide="ignore"):
            return self.scale * np.expm1(_log_inverse(1, p) / self.k) ** (-1 / self.c)

    def _cvar(self, level: float) -> float:
        from scipy import special

        if self.c <= 1:
            return math.inf
        # with u = P(X <= x)^(1/k) the tail mean is an incomplete beta integral from level^(1/k) to 1
        a, b = self.k + 1 / self.c, 1 - 1 / self.c
        beyond = special.beta(a, b) * special.betaincc(a, b, level ** (1 / self.k))
        return self.scale * self.k * float(beyond) / (1 - level)


@dataclass(frozen=True)
class WithZeros(Law):
    """0 with probability ``zeros``, otherwise a draw of ``law``; the density is that beside the atom.

    >>> law = WithZeros(Pareto(2.0), 0.75)
    >>> float(law.sf(0.0)), float(law.quantile(0.7)), round(float(law.quantile(0.99)), 6)
    (0.25, 0.0, 5.0)
    """

    law: Law
    zeros: float

    def __post_init__(self) -> None:
        if not 0 < self.zeros < 1:
            raise ValueError(f"zeros={self.zeros:g} must lie between 0 and 1")

    def _log_pdf(self, x: Array) -> Array:
        return math.log1p(-self.zeros) + self.law.log_pdf(x)

    def _sf(self, x: Array) -> Array:
        return np.where(x < 0, 1.0, (1 - self.zeros) * self.law.sf(x))

    def _cdf(self, x: Array) -> Array:
        return np.where(x < 0, 0.0, self.zeros + (1 - self.zeros) * self.law.cdf(x))

    def _quantile(self, p: Array) -> Array:
        beyond = (p - self.zeros) / (1 - self.zeros)
        return np.where(beyond > 0, self.law.quantile(np.maximum(beyond, 0.0)), 0.0)

    def _isf(self, p: Array) -> Array:
        share = p / (1 - self.zeros)
        return np.where(share < 1, self.law.isf(np.minimum(share, 1.0)), 0.0)

    @property
    def mean(self) -> float:
        """E[X]; ``inf`` where it does not exist."""
        return (1 - self.zeros) * self.law.mean

    def _cvar(self, level: float) -> float:
        if level < self.zeros:  # the mean above the quantile 0 is that of the values that are not 0
            return self.law.mean
        return self.law.cvar((level - self.zeros) / (1 - self.zeros))


def _log_inverse(lower: int, p: Array) -> Array:
    """``-log p``, or ``-log(1 - p)`` for a probability that is counted from below."""
    with np.errstate(divide="ignore"):
        return -np.log1p(-p) if lower else -np.log(p)


def _log(x: Array, scale: float, *, outside: float = -math.inf) -> Array:
    """Log of x/scale, and ``outside`` from zero down."""
    x = x / scale
    return np.log(x, where=x > 0, out=np.full(x.shape, outside))


def _probability(name: str, p: ArrayLike) -> Array:
    p = np.asarray(p, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"{name} has values outside [0, 1]; probabilities are asked for, not percent")
    return p
