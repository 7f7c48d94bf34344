"""A non-negative law moved to start at an origin."""

from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from phvae.distributions import checks
from phvae.distributions.base import AbsorptionTime
from phvae.distributions.checks import Numbers
from phvae.distributions.tails import TailedLaw, drawn, typical


class _Moved(constraints.Constraint):
    """Values whose distance from an origin satisfies a constraint."""

    def __init__(self, constraint: constraints.Constraint, origin: Tensor) -> None:
        self.constraint, self.origin = constraint, origin

    def check(self, value: Tensor) -> Tensor:
        holds: Tensor = self.constraint.check(value - self.origin)
        return holds


class Located(TailedLaw):
    """Law of ``origin + X`` for a non-negative ``X``: a deductible, a reporting threshold, a Pareto's lower end.

    ``f(x) = f_X(x - origin)`` and ``S(x) = S_X(x - origin)``. A value below the origin has density zero and is
    exceeded with certainty; asking about one is no error.

    Args:
        base: Law of the excess ``X``, univariate, support in ``[0, inf)``.
        origin: Lower end of the support, finite, shape broadcastable with the batch shape of ``base``.
        validate_args: Check the origin and refuse missing values; ``False`` gives NaN instead.

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = Located(SeriesPhaseType([1.0], [2.0]), origin=3.0)
    >>> float(law.mean), float(law.log_sf(2.5)), round(float(law.log_sf(4.0)), 9)
    (3.5, 0.0, -2.0)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"origin": constraints.real}

    def __init__(self, base: TailedLaw | AbsorptionTime, origin: Numbers, validate_args: bool | None = None) -> None:
        self.origin = checks.as_tensor("origin", origin).double()
        self.base: TailedLaw | AbsorptionTime = base
        if self.origin.ndim == 0 or self.origin.shape == base.batch_shape[-self.origin.ndim :]:
            batch_shape = base.batch_shape
        else:
            batch_shape = torch.broadcast_shapes(base.batch_shape, self.origin.shape)
            self.base = base.expand(batch_shape)
        self._setup(batch_shape, validate_args)
        if self._validate_args:
            checks.require_finite("origin", self.origin)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether draws of the excess carry gradients."""
        return bool(self.base.has_rsample)

    @property
    def support(self) -> constraints.Constraint:
        """The support of the excess, moved to the origin."""
        return _Moved(self.base.support or constraints.nonnegative, self.origin)

    def expand(self, batch_shape: Any, _instance: None = None) -> Self:
        """The same law with its batch expanded to ``batch_shape``."""
        return type(self)(self.base.expand(torch.Size(batch_shape)), self.origin, self._validate_args)

    def _excess(self, name: str, value: Numbers) -> tuple[Tensor, Tensor]:
        """Whether a value is below the origin, and its distance from it."""
        return _distance(self._points(name, value) - self.origin)

    def log_prob(self, value: Numbers) -> Tensor:
        """Log density at ``value``, shape ``broadcast(value, batch_shape)``; ``-inf`` below the origin."""
        excess = self._points("value", value) - self.origin
        # the usual case without a value below; on a GPU the question would cost more than its answer saves
        if excess.device.type == "cpu" and not bool((excess < 0).any()):
            return self.base.log_prob(excess)
        below, distance = _distance(excess)
        return torch.where(below, -torch.inf, self.base.log_prob(distance))

    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``; 0 below the origin."""
        below, distance = self._excess("value", value)
        return torch.where(below, 0.0, self.base.log_sf(distance))

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``; ``-inf`` below the origin."""
        below, distance = self._excess("value", value)
        return torch.where(below, -torch.inf, self.base.log_cdf(distance))

    def log_interval(self, lower: Numbers, upper: Numbers) -> Tensor:
        """Log of ``P(lower < X <= upper)``; the ends may be infinite, and the whole line has exactly 0."""
        start, end = self._points("lower", lower) - self.origin, self._points("upper", upper) - self.origin
        # an interval that ends below the origin is asked about as the whole line, and is impossible
        below = end <= 0
        begin = torch.where((start <= 0) | below, -torch.inf, start)
        return torch.where(below, -torch.inf, self.base.log_interval(begin, torch.where(below, torch.inf, end)))

    def icdf(self, value: Numbers) -> Tensor:
        """Point with ``P(X <= point) = value``; for levels near one use `isf`."""
        return self.origin + self.base.icdf(self._levels("value", value))

    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``, for levels down to those of the base law."""
        return self.origin + self.base.isf(self._levels("value", value))

    @property
    def typical(self) -> Tensor:
        """A point of finite density inside the law, that of the excess moved."""
        return self.origin + typical(self.base)

    @property
    def mean(self) -> Tensor:
        """Expected value."""
        return self.origin + self.base.mean

    @property
    def variance(self) -> Tensor:
        """Variance, that of the excess."""
        return self.base.variance

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``E[X - u | X > u]`` over ``threshold``."""
        below, distance = self._excess("threshold", threshold)
        beyond = self.base.mean_excess(distance)
        return torch.where(below, self.base.mean + distance, beyond) if bool(below.any()) else beyond

    def log_excess(self, threshold: Numbers, order: int = 1) -> Tensor:
        """Log of the stop-loss moment ``E[(X - u)_+^k]`` for ``k = order``, 1 or 2."""
        if order not in (1, 2):
            raise ValueError(f"order = {order!r}; give 1 or 2")
        below, distance = self._excess("threshold", threshold)
        if not bool(below.any()):
            return self.base.log_excess(distance, order)
        mean = self.base.mean + distance
        certain = mean if order == 1 else self.base.variance + mean.square()
        return torch.where(below, certain.log(), self.base.log_excess(distance, order))

    def cvar(self, level: Numbers) -> Tensor:
        """Expected shortfall: the mean of the quantiles above ``level``."""
        return self.origin + self.base.cvar(self._levels("level", level))

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        leading = shape[: len(shape) - len(self.batch_shape)]
        return self.origin + drawn(self.base, leading, generator)

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws that carry pathwise gradients, where the base law has them; arguments as in `sample`."""
        return self.origin + self.base.rsample(torch.Size(sample_shape), generator=generator)


def _distance(excess: Tensor) -> tuple[Tensor, Tensor]:
    below = excess < 0
    # below the origin the result is a constant; the distance keeps the unused branch and its gradient finite
    return below, torch.where(below, -excess, excess)
