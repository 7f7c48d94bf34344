"""Gaussian, lognormal, gamma and Student laws in the form decoders need: exact log tails, explicit generators.

torch has the densities; what it lacks are survival functions that do not underflow to ``1 - 1``, quantiles of every
family, and draws from a generator of the caller's.
"""

import math
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Self

import torch
from scipy import special
from torch import Tensor
from torch.distributions import constraints

from phvae.distributions import checks
from phvae.distributions.checks import Numbers
from phvae.distributions.tails import TailedLaw

_LOG_ROOT_TWO_PI = math.log(2 * math.pi) / 2
_log_ndtr: Callable[[Tensor], Tensor] = torch.special.log_ndtr
_ndtri: Callable[[Tensor], Tensor] = torch.special.ndtri


class _Family(TailedLaw):
    """A law with named parameters of one common shape, all positive but the first where that is a location."""

    def _set(self, validate_args: bool | None, **parameters: Numbers) -> None:
        tensors = [checks.as_tensor(name, value).double() for name, value in parameters.items()]
        tensors = list(torch.broadcast_tensors(*tensors))
        for name, tensor in zip(parameters, tensors, strict=True):
            setattr(self, name, tensor)
        self._setup(tensors[0].shape, validate_args)
        if self._validate_args:
            for name, tensor in zip(parameters, tensors, strict=True):
                located = self.arg_constraints[name] is constraints.real
                (checks.require_finite if located else checks.require_positive)(name, tensor)

    def expand(self, batch_shape: Any, _instance: None = None) -> Self:
        """The same law with its batch expanded to ``batch_shape``."""
        parameters = {name: getattr(self, name).expand(torch.Size(batch_shape)) for name in self.arg_constraints}
        law = copy(self)
        law._set(self._validate_args, **parameters)
        return law


class Gaussian(_Family):
    """Normal law with mean ``loc`` and standard deviation ``scale``.

    >>> float(Gaussian(0.0, 1.0).log_sf(40.0).round(decimals=3))
    -804.608
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: ClassVar[constraints.Constraint] = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Numbers, scale: Numbers, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, scale=scale)

    def _standardised(self, value: Numbers) -> Tensor:
        return (self._points("value", value) - self.loc) / self.scale

    def log_prob(self, value: Numbers) -> Tensor:
        """Log density."""
        return -(self._standardised(value) ** 2) / 2 - self.scale.log() - _LOG_ROOT_TWO_PI

    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``."""
        return _log_ndtr(-self._standardised(value))

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``."""
        return _log_ndtr(self._standardised(value))

    def icdf(self, value: Numbers) -> Tensor:
        """Point with ``P(X <= point) = value``."""
        return self.loc + self.scale * _ndtri(self._levels("value", value))

    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``."""
        return self.loc - self.scale * _ndtri(self._levels("value", value))

    @property
    def mean(self) -> Tensor:
        """Expected value."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Variance."""
        return self.scale**2

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``loc - u + scale^2 h(u)`` with the hazard rate ``h``."""
        points = self._points("threshold", threshold)
        return self.loc - points + self.scale**2 * self.hazard(points)

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws ``loc + scale · noise`` with gradients."""
        shape = self._extended_shape(torch.Size(sample_shape))
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device, generator=generator)
        return self.loc + self.scale * noise

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self.rsample(shape[: len(shape) - len(self.batch_shape)], generator)


class LogNormal(_Family):
    """Law of ``exp(G)`` for a Gaussian ``G`` with mean ``loc`` and standard deviation ``scale``.

    >>> float(LogNormal(0.0, 1.0).icdf(0.5)), float(LogNormal(0.0, 1.0).log_prob(0.0))
    (1.0, -inf)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: ClassVar[constraints.Constraint] = constraints.positive
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Numbers, scale: Numbers, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, scale=scale)

    @property
    def _log(self) -> Gaussian:
        return Gaussian(self.loc, self.scale, validate_args=False)

    def log_prob(self, value: Numbers) -> Tensor:
        """Log density; ``-inf`` at and below zero."""
        positive, logs = self._logs(value)
        return torch.where(positive, self._log.log_prob(logs) - logs, -torch.inf)

    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``."""
        positive, logs = self._logs(value)
        return torch.where(positive, self._log.log_sf(logs), 0.0)

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``."""
        positive, logs = self._logs(value)
        return torch.where(positive, self._log.log_cdf(logs), -torch.inf)

    def _logs(self, value: Numbers) -> tuple[Tensor, Tensor]:
        points = self._points("value", value)
        positive = ~(points <= 0)
        # where the answer is a constant the unused branch is evaluated at one
        return positive, torch.where(positive, points, 1.0).log()

    def icdf(self, value: Numbers) -> Tensor:
        """Point with ``P(X <= point) = value``."""
        return self._log.icdf(self._levels("value", value)).exp()

    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``."""
        return self._log.isf(self._levels("value", value)).exp()

    @property
    def mean(self) -> Tensor:
        """Expected value."""
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def variance(self) -> Tensor:
        """Variance."""
        return self.mean**2 * torch.expm1(self.scale**2)

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess: the mean of the size-biased law beyond ``threshold``, less the threshold."""
        points = self._points("threshold", threshold)
        biased = LogNormal(self.loc + self.scale**2, self.scale, validate_args=False)
        return self.mean * (biased.log_sf(points) - self.log_sf(points)).exp() - points

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws with gradients."""
        return self._log.rsample(sample_shape, generator).exp()

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self._log._draw(shape, generator).exp()


class Gamma(_Family):
    """Gamma law with shape ``concentration`` and ``rate``; its tails carry no gradients and end near 1e-300.

    >>> float(Gamma(1.0, 2.0).log_sf(3.0).round(decimals=12))
    -6.0
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: ClassVar[constraints.Constraint] = constraints.positive
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Numbers, rate: Numbers, validate_args: bool | None = None) -> None:
        self._set(validate_args, concentration=concentration, rate=rate)

    def log_prob(self, value: Numbers) -> Tensor:
        """Log density; ``-inf`` below zero, the limit from the right at zero."""
        points = self._points("value", value)
        inside = ~(points < 0)
        x, k = torch.where(inside, points, 1.0), self.concentration
        density = torch.special.xlogy(k - 1, x) + k * self.rate.log() - self.rate * x - torch.lgamma(k)
        return torch.where(inside, density, -torch.inf)

    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``."""
        beyond: Tensor = torch.special.gammaincc(self.concentration.detach(), self._reached(value))
        return beyond.log()

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``."""
        within: Tensor = torch.special.gammainc(self.concentration.detach(), self._reached(value))
        return within.log()

    def _reached(self, value: Numbers) -> Tensor:
        scaled = self.rate.detach() * self._points("value", value)
        return torch.where(scaled < 0, 0.0, scaled)

    def icdf(self, value: Numbers) -> Tensor:
        """Point with ``P(X <= point) = value``."""
        return _on_cpu(special.gammaincinv, self.concentration, self._levels("value", value)) / self.rate.detach()

    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``."""
        return _on_cpu(special.gammainccinv, self.concentration, self._levels("value", value)) / self.rate.detach()

    @property
    def mean(self) -> Tensor:
        """Expected value."""
        return self.concentration / self.rate

    @property
    def variance(self) -> Tensor:
        """Variance."""
        return self.concentration / self.rate**2

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``(k - rate u + u h(u)) / rate`` with the hazard rate ``h``."""
        points = self._points("threshold", threshold)
        pull = torch.where(points > 0, points * self.hazard(points), 0.0)
        return (self.concentration - self.rate * points + pull) / self.rate

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return torch._standard_gamma(self.concentration.expand(shape).contiguous(), generator=generator) / self.rate


class StudentT(_Family):
    """Student law with ``degrees`` of freedom; its tail functions carry no gradients and end near 1e-300.

    >>> float(StudentT(0.0, 1.0, 1.0).icdf(0.75).round(decimals=12))
    1.0
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "degrees": constraints.positive,
    }
    support: ClassVar[constraints.Constraint] = constraints.real
    loc: Tensor
    scale: Tensor
    degrees: Tensor

    def __init__(self, loc: Numbers, scale: Numbers, degrees: Numbers, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, scale=scale, degrees=degrees)

    def _standardised(self, value: Numbers) -> Tensor:
        return (self._points("value", value) - self.loc) / self.scale

    def log_prob(self, value: Numbers) -> Tensor:
        """Log density."""
        t, nu = self._standardised(value), self.degrees
        normaliser = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - (nu * math.pi).log() / 2 - self.scale.log()
        return normaliser - (nu + 1) / 2 * torch.log1p(t**2 / nu)

    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``."""
        return _on_cpu(special.stdtr, self.degrees, -self._standardised(value)).log()

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``."""
        return _on_cpu(special.stdtr, self.degrees, self._standardised(value)).log()

    def icdf(self, value: Numbers) -> Tensor:
        """Point with ``P(X <= point) = value``."""
        t = _on_cpu(special.stdtrit, self.degrees, self._levels("value", value))
        return self.loc.detach() + self.scale.detach() * t

    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``."""
        t = _on_cpu(special.stdtrit, self.degrees, self._levels("value", value))
        return self.loc.detach() - self.scale.detach() * t

    @property
    def mean(self) -> Tensor:
        """Expected value; NaN unless there is more than one degree of freedom."""
        return torch.where(self.degrees > 1, self.loc, torch.nan)

    @property
    def variance(self) -> Tensor:
        """Variance; infinite up to two degrees of freedom, NaN up to one."""
        nu = self.degrees
        variance = torch.where(nu > 2, self.scale**2 * nu / (nu - 2), torch.inf)
        return torch.where(nu > 1, variance, torch.nan)

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``scale ((nu + t^2) / (nu - 1) h(t) - t)``, ``t`` standardised; infinite for ``nu <= 1``."""
        points = self._points("threshold", threshold)
        t, nu = self._standardised(points), self.degrees
        excess = (nu + t**2) / (nu - 1) * self.scale**2 * self.hazard(points) - self.scale * t
        return torch.where(nu > 1, excess, torch.inf)

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device, generator=generator)
        half = (self.degrees / 2).expand(shape).contiguous()
        chi_square = 2 * torch._standard_gamma(half, generator=generator)
        return self.loc + self.scale * noise * (self.degrees / chi_square).sqrt()


def _on_cpu(function: Any, *arguments: Tensor) -> Tensor:
    """A function of scipy, without gradient, its result on the device of the last argument."""
    values = function(*(argument.detach().cpu().numpy() for argument in arguments))
    return torch.as_tensor(values, device=arguments[-1].device)
