"""A loss known by integration: replicated estimates of its tail, and what follows from them alone."""

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from phvae.risk.search import search, search_signed

__all__ = ["IntegratedLaw", "Pooled"]

# Panels and nodes per panel of integrals that no closed form gives.
PANELS, ORDER = 32, 12


class IntegratedLaw(ABC):
    """Law of one loss ``X >= lower``, known as ``R`` laws from independent integrations.

    Each replicate is a proper law of its own, so every identity between measures holds in each; the mean over
    replicates is the answer and their spread its error. Points ``x`` have shape ``(k,)`` or ``(R, k)``; results have
    shape ``(R, k)``, float64.
    """

    replicates: int
    # No mass below this point, but for an atom at zero; ``-inf`` for a law on the whole line.
    lower: float

    @abstractmethod
    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density."""

    @abstractmethod
    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)``."""

    @abstractmethod
    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)``."""

    @abstractmethod
    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` for orders 1 and 2."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Expected value, shape ``(R,)``."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Variance, shape ``(R,)``."""

    def coarse(self) -> "IntegratedLaw":
        """A cheaper version of nearly the same law, where root searches begin."""
        return self

    def log_usual(self) -> Tensor:
        """Log of a usual distance from the lower end, or from zero, where a root search begins, shape ``(R,)``."""
        if self.lower == -math.inf:
            size = (self.variance + self.mean.square()).log() / 2
            return torch.where(size.isfinite(), size, 0.0)
        usual = (self.mean - self.lower).log()
        if bool(usual.isfinite().all()):
            return usual
        # with an atom at zero the mean may lie below the lower end: of what lies beyond it
        lower = torch.full((1,), self.lower, dtype=torch.float64)
        beyond = (self.log_excess(lower) - self.log_sf(lower))[:, 0]
        # where that is infinite the walk begins at one unit, and makes long strides
        return torch.where(usual.isfinite(), usual, torch.where(beyond.isfinite(), beyond, 0.0))

    def isf(self, probability: Tensor) -> Tensor:
        """Smallest point with ``P(X > point) <= probability``, for probabilities ``(k,)`` or ``(R, k)`` in (0, 1)."""
        rough = self.coarse()
        start = None if rough is self else rough.isf(probability)
        if self.lower == -math.inf:
            return search_signed(self, probability.double().log(), torch.log1p(-probability.double()), start)
        return search(self, probability.double().log(), upper=True, start=start)

    def from_log_sf(self, log_survival: Tensor) -> Tensor:
        """Point with this log of ``P(X > point)``, for probabilities that may be no numbers any more."""
        if self.lower == -math.inf:
            # nearly one, and no number any more where the survival is none
            return search_signed(self, log_survival, torch.log1p(-log_survival.exp()), None)
        return search(self, log_survival, upper=True, start=None)

    def icdf(self, level: Tensor) -> Tensor:
        """Smallest point with ``P(X <= point) >= level``, for levels ``(k,)`` or ``(R, k)`` in (0, 1)."""
        level = level.double()
        # above the middle the complement is exact (to half a unit of its last digit) and the tail is the smaller number
        high = level >= 0.5
        if bool(high.all()):
            return self.isf(1 - level)
        if bool(high.any()):
            both = torch.empty(
                torch.broadcast_shapes(level.shape, (self.replicates, level.shape[-1])), dtype=level.dtype
            )
            both[:, high] = self.isf(1 - level[high])
            both[:, ~high] = self.icdf(level[~high])
            return both
        rough = self.coarse()
        start = None if rough is self else rough.icdf(level)
        if self.lower == -math.inf:
            return search_signed(self, torch.log1p(-level), level.log(), start)
        return search(self, level.log(), upper=False, start=start)

    def mean_excess(self, x: Tensor) -> Tensor:
        """``E[X - x | X > x]``."""
        return (self.log_excess(x) - self.log_sf(x)).exp()

    def limited(self, x: Tensor) -> Tensor:
        """``E[min(X, x)]``."""
        return self.mean[:, None] - self.log_excess(x).exp()

    def layer_area(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """``∫ S`` and ``2 ∫ (x - low) S`` over layers from ``low`` to ``high``, ``(k,)`` each, by Gauss' rule."""
        if self.lower > -math.inf:
            return self._area(low, high, self.lower)
        # either side of zero by itself, where the law bends
        above, below = (low.clamp(min=0), high.clamp(min=0)), (low.clamp(max=0), high.clamp(max=0))
        area, moment = self._area(*above, 0.0)
        mirrored, mirrored_moment = self._area(-below[1], -below[0], 0.0, -1.0)
        width = below[1] - below[0]
        return area + mirrored, moment + 2 * (above[0] - low) * area + 2 * width * mirrored - mirrored_moment

    def _area(self, low: Tensor, high: Tensor, origin: float, sign: float = 1.0) -> tuple[Tensor, Tensor]:
        """``∫ S(sign · x) dx`` and ``2 ∫ (x - low) S(sign · x) dx``; 0 for layers without width."""
        start = low - origin
        # equal ratios from one panel to the next, and the first panel as wide as the distance from the origin
        unit = torch.where(start > 0, start, (high - low) / 2**PANELS)
        unit = torch.where(unit > 0, unit, 1.0)
        edges = torch.linspace(0, 1, PANELS + 1, dtype=torch.float64)[:, None]
        t = torch.log1p((high - low) / unit) * edges
        half = t.diff(dim=0)[:, None] / 2
        middle = (t[:-1, None] + t[1:, None]) / 2
        nodes, weights = (torch.from_numpy(part)[:, None] for part in np.polynomial.legendre.leggauss(ORDER))
        distance = unit * torch.expm1(middle + half * nodes)
        measure = half * weights * (distance + unit)
        shape = (self.replicates, *distance.shape)
        survival = self.log_sf((sign * (low + distance)).reshape(1, -1)).exp().view(shape)
        return (measure * survival).sum((1, 2)), (2 * measure * distance * survival).sum((1, 2))

    def tail_mean(self, probability: Tensor) -> Tensor:
        """Mean of the worst share ``probability`` of outcomes: ``q + E[(X - q)_+] / probability``, ``q = isf``."""
        quantile = self.isf(probability)
        return quantile + self.log_excess(quantile).exp() / probability


class Pooled(IntegratedLaw):
    """The mean of the replicates of a law, as a law of one replicate."""

    replicates = 1

    def __init__(self, law: IntegratedLaw) -> None:
        self.law, self.lower = law, law.lower

    def log_usual(self) -> Tensor:
        """Log of a usual distance from the lower end, where a root search begins."""
        return self.law.log_usual().mean(0, keepdim=True)

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density."""
        return self._mean(self.law.log_pdf(x))

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)``."""
        return self._mean(self.law.log_sf(x))

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)``."""
        return self._mean(self.law.log_cdf(x))

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` for orders 1 and 2."""
        return self._mean(self.law.log_excess(x, order))

    @property
    def mean(self) -> Tensor:
        """Expected value, shape ``(1,)``."""
        return self.law.mean.mean(0, keepdim=True)

    @property
    def variance(self) -> Tensor:
        """Variance, shape ``(1,)``."""
        within, between = self.law.variance.mean(0, keepdim=True), self.law.mean.var(0, correction=0, keepdim=True)
        return within + between

    def _mean(self, logs: Tensor) -> Tensor:
        return torch.logsumexp(logs, 0, keepdim=True) - math.log(len(logs))
