"""A power tail beyond a threshold: the law of a model below it, a generalised Pareto law above, one smooth density."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from phvae.distributions.generalised_pareto import GeneralisedPareto
from phvae.risk.law import IntegratedLaw, Pooled

__all__ = ["Spliced"]

# Points between which the log survival of a model is interpolated when draws are moved to the spliced tail.
NODES = 512


class Spliced(IntegratedLaw):
    """``S(x) = S_model(u) G(x - u)`` beyond a threshold ``u``, with ``G`` generalised Pareto; the model up to ``u``.

    The scale of ``G`` is ``S_model(u) / f_model(u)``, so that mass and density, and with them hazard rate and local
    slope, are continuous at ``u``, in every replicate. With a shape of 1 or more the mean is infinite, with 1/2 or more
    the variance, and measures that need them are ``inf``; `moments` says why.

    Args:
        law: Law of the model.
        threshold: Where the tail is replaced, inside the support.
        shape: Tail index of the new tail, of either sign; 0 continues exponentially.
    """

    def __init__(self, law: IntegratedLaw, threshold: float, shape: float) -> None:
        if not (math.isfinite(threshold) and threshold > law.lower):
            raise ValueError(f"threshold = {threshold!r}; give a finite one above the lower end {law.lower:g}")
        if not (math.isfinite(shape) and shape > -1):
            raise ValueError(f"shape = {shape!r}; give a tail index above -1, such as 0.3")
        self.law, self.threshold, self.shape = law, float(threshold), float(shape)
        self.replicates, self.lower = law.replicates, law.lower
        at = torch.full((1,), self.threshold, dtype=torch.float64)
        self._log_mass = law.log_sf(at)
        self.tail = GeneralisedPareto(self.shape, (self._log_mass - law.log_pdf(at)).exp(), validate_args=False)
        if not bool(self.tail.scale.isfinite().all() & (self._log_mass > -math.inf).all()):
            raise ValueError(
                f"threshold = {threshold:g} is so far out that the model has no density left there; give a lower one"
            )

    @property
    def moments(self) -> str | None:
        """Why a moment is infinite; None where mean and variance are finite."""
        if self.shape < 0.5:
            return None
        what = "mean and variance are" if self.shape >= 1 else "variance is"
        return f"the {what} infinite: the tail beyond {self.threshold:g} has shape {self.shape:.3g}"

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density."""
        return self._joined(x, self.law.log_pdf, lambda beyond: self._log_mass + self.tail.log_prob(beyond))

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)``."""
        return self._joined(x, self.law.log_sf, lambda beyond: self._log_mass + self.tail.log_sf(beyond))

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)``."""
        return self._joined(
            x, self.law.log_cdf, lambda beyond: torch.log1p(-(self._log_mass + self.tail.log_sf(beyond)).exp())
        )

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` for orders 1 and 2; ``inf`` where the moment is infinite."""
        if order * self.shape >= 1:
            return torch.full((self.replicates, x.shape[-1]), math.inf, dtype=torch.float64)
        return self._joined(
            x,
            lambda x: self._excess_below(x, order),
            lambda beyond: self._log_mass + self.tail.log_excess(beyond, order),
        )

    @property
    def mean(self) -> Tensor:
        """Expected value, shape ``(R,)``."""
        return self.law.mean + self.gained(1)

    @property
    def variance(self) -> Tensor:
        """Variance, shape ``(R,)``."""
        if self.shape >= 0.5:
            return torch.full_like(self.law.mean, math.inf)
        centre = self.mean
        around = self.law.variance + (self.law.mean - centre).square()
        return around + self.gained(2) + 2 * (self.threshold - centre) * self.gained(1)

    def limited(self, x: Tensor) -> Tensor:
        """``E[min(X, x)]``, finite also where the mean is infinite."""
        x = x.double().expand(self.replicates, x.shape[-1])
        inner = x.minimum(torch.tensor(self.threshold, dtype=torch.float64))
        log_survival, power = self.tail.log_sf(x - inner), 1 - self.shape
        share = -torch.expm1(power * log_survival) / power if power else -log_survival
        return self.law.limited(inner) + self._log_mass.exp() * self.tail.scale * share

    def origin_of(self, x: Tensor) -> Tensor:
        """Where in the model's law a point of this one was: ``S_model^-1(S_spliced(x))``, the inverse of `move`."""
        beyond = x > self.threshold
        if not bool(beyond.any()):
            return x
        log_mass, tail = self.pooled_tail()
        origin = x.double().clone()
        origin[beyond] = Pooled(self.law).from_log_sf(log_mass + tail.log_sf(x[beyond] - self.threshold))[0]
        return origin

    def isf(self, probability: Tensor) -> Tensor:
        """Smallest point with ``P(X > point) <= probability``."""
        probability = probability.double()
        return self._inverted(probability.log(), self.law.isf, probability)

    def icdf(self, level: Tensor) -> Tensor:
        """Smallest point with ``P(X <= point) >= level``."""
        level = level.double()
        return self._inverted(torch.log1p(-level), self.law.icdf, level)

    def move(self, x: Tensor) -> Tensor:
        """Draws of the model made draws of this law: ``S_spliced^-1(S_model(x))``, shape of ``x``; the order is kept.

        Only values beyond the threshold move, and each by its own survival probability, so rows keep their dependence.
        The probabilities are means over replicates, interpolated between exact values and exact slopes.
        """
        beyond = x > self.threshold
        if not bool(beyond.any()):
            return x
        moved = x.double().clone()
        log_mass, tail = self.pooled_tail()
        moved[beyond] = self.threshold + tail.point(self._pooled_log_sf(moved[beyond]) - log_mass)
        return moved

    def pooled_tail(self) -> tuple[Tensor, GeneralisedPareto]:
        """Log of the mass beyond the threshold and law of the excess, for the mean of the replicates."""
        mass, density = self._log_mass.exp().mean(), (self._log_mass - self.tail.scale.log()).exp().mean()
        return mass.log(), GeneralisedPareto(self.shape, mass / density, validate_args=False)

    def _joined(self, x: Tensor, below: Callable[[Tensor], Tensor], above: Callable[[Tensor], Tensor]) -> Tensor:
        x = x.double().expand(self.replicates, x.shape[-1])
        beyond = x > self.threshold
        values = torch.empty(x.shape, dtype=torch.float64)
        inner = (~beyond).any(0)
        if bool(inner.any()):
            # columns of which some replicates lie beyond are read at the threshold there, and overwritten
            values[:, inner] = below(torch.where(beyond, self.threshold, x)[:, inner])
        return torch.where(beyond, above(torch.where(beyond, x - self.threshold, 0.0)), values)

    def gained(self, order: int) -> Tensor:
        """What the new tail adds to ``E[(X - u)_+^order]``, shape ``(R,)``."""
        if order * self.shape >= 1:
            return torch.full((self.replicates,), math.inf, dtype=torch.float64)
        new, old = self._at_threshold(order)
        return (new.exp() - old.exp())[:, 0]

    def _at_threshold(self, order: int) -> tuple[Tensor, Tensor]:
        """Log of ``E[(X - u)_+^order]`` of the new tail and of the model, both ``(R, 1)``."""
        at = torch.full((1,), self.threshold, dtype=torch.float64)
        return self._log_mass + self.tail.log_excess(0.0, order), self.law.log_excess(at, order)

    def _excess_below(self, x: Tensor, order: int) -> Tensor:
        """``E[(X - x)_+^k]`` of the model, its part beyond ``u`` exchanged, where ``x <= u``.

        With ``h = u - x``, the square of ``X - x`` is that of ``X - u`` plus ``2 h (X - u) + h²``; the last term has
        the same mean in both laws.
        """
        whole = self.law.log_excess(x, order)
        new, old = self._at_threshold(order)
        change = (new - whole).exp() - (old - whole).exp()
        if order == 2:
            new, old = self._at_threshold(1)
            height = (2 * (self.threshold - x)).log()
            change = change + (new + height - whole).exp() - (old + height - whole).exp()
        return whole + torch.log1p(change)

    def _inverted(self, log_survival: Tensor, invert: Callable[[Tensor], Tensor], argument: Tensor) -> Tensor:
        log_survival = log_survival.expand(self.replicates, log_survival.shape[-1])
        beyond = log_survival < self._log_mass
        points = torch.empty(log_survival.shape, dtype=torch.float64)
        inner = (~beyond).any(0)
        if bool(inner.any()):
            points[:, inner] = invert(argument[..., inner])
        within = torch.where(beyond, log_survival - self._log_mass, 0.0)
        return torch.where(beyond, self.threshold + self.tail.point(within), points)

    def _pooled_log_sf(self, x: Tensor) -> Tensor:
        """Log of the mean survival probability over replicates, for many points beyond the threshold, ``(n,)``."""
        if len(x) <= NODES:
            return torch.logsumexp(self.law.log_sf(x), 0) - math.log(self.replicates)
        # a signed law has no lower end, and thresholds above zero
        lower = 0.0 if self.lower == -math.inf else self.lower
        start = self.threshold - lower
        nodes = torch.linspace(math.log(start), math.log(float(x.max()) - lower), NODES, dtype=torch.float64)
        at = lower + nodes.exp()
        at[0], at[-1] = self.threshold, float(x.max())
        values = torch.logsumexp(self.law.log_sf(at), 0) - math.log(self.replicates)
        densities = torch.logsumexp(self.law.log_pdf(at), 0) - math.log(self.replicates)
        # cubic Hermite in log(x - lower): value and slope are exact at every node
        slopes = -(densities - values + nodes).exp()
        t = (x - lower).log()
        left = torch.searchsorted(nodes[1:-1], t)
        width = nodes[left + 1] - nodes[left]
        s = (t - nodes[left]) / width
        rise = values[left + 1] - values[left]
        first, last = slopes[left] * width - rise, rise - slopes[left + 1] * width
        return values[left] + s * rise + s * (1 - s) * (first * (1 - s) + last * s)
