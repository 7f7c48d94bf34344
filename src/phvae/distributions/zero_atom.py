"""A law with an atom at zero: claims that do not happen, days without rain."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from phvae.distributions import checks
from phvae.distributions.base import AbsorptionTime
from phvae.distributions.checks import Numbers
from phvae.distributions.tails import TailedLaw, drawn, typical


class _WithZero(constraints.Constraint):
    """Zero where there is an atom, and whatever satisfies a constraint."""

    def __init__(self, constraint: constraints.Constraint, has_atom: Tensor) -> None:
        self.constraint, self.has_atom = constraint, has_atom

    def check(self, value: Tensor) -> Tensor:
        holds: Tensor = ((value == 0) & self.has_atom) | self.constraint.check(value)
        return holds


class ZeroAtom(TailedLaw):
    """``X = 0`` with probability ``sigmoid(zero_logit)``, otherwise a draw of a continuous law.

    `log_prob` is the log density with respect to length plus a unit mass at zero: ``log p`` at 0 and
    ``log(1 - p) + log f(x)`` elsewhere. A logit of ``-inf`` means no atom: there, zero is a value like any other.

    Args:
        zero_logit: Log odds of a zero, shape broadcastable with the batch shape of ``law``.
        law: Law of the values that are no exact zeros, univariate and continuous.
        validate_args: Check the logit and refuse missing values; ``False`` gives NaN instead.

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = ZeroAtom(0.0, SeriesPhaseType([1.0], [2.0]))
    >>> float(law.mean), float(law.cdf(0.0)), float(law.icdf(0.4))
    (0.25, 0.5, 0.0)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = False

    def __init__(self, zero_logit: Numbers, law: TailedLaw | AbsorptionTime, validate_args: bool | None = None) -> None:
        self.zero_logit = checks.as_tensor("zero_logit", zero_logit).double()
        batch_shape = torch.broadcast_shapes(law.batch_shape, self.zero_logit.shape)
        self.law: TailedLaw | AbsorptionTime = law if law.batch_shape == batch_shape else law.expand(batch_shape)
        self._setup(batch_shape, validate_args)
        if self._validate_args and bool((self.zero_logit.isnan() | (self.zero_logit == torch.inf)).any()):
            raise ValueError("zero_logit has an entry that is NaN or inf; give log odds < inf, -inf for no atom")
        self.has_atom = self.zero_logit != -torch.inf
        # where there is no atom the logit is replaced before any function sees it: no infinity enters a gradient
        logit = torch.where(self.has_atom, self.zero_logit, 0.0)
        self.log_zero = torch.where(self.has_atom, logsigmoid(logit), -torch.inf)
        self.log_rest = torch.where(self.has_atom, logsigmoid(-logit), 0.0)

    @property
    def support(self) -> constraints.Constraint:
        """The support of the continuous law, and zero where there is an atom."""
        return _WithZero(self.law.support or constraints.real, self.has_atom)

    def expand(self, batch_shape: Any, _instance: None = None) -> Self:
        """The same law with its batch expanded to ``batch_shape``."""
        return type(self)(self.zero_logit, self.law.expand(torch.Size(batch_shape)), self._validate_args)

    def log_prob(self, value: Numbers) -> Tensor:
        """Log of the probability of a zero, log density of any other value, shape ``broadcast(value, batch_shape)``."""
        points = self._points("value", value)
        zero = (points == 0) & self.has_atom
        with torch.no_grad():
            # where the atom answers, the continuous law is asked about a point without infinite gradients
            elsewhere = torch.where(zero, typical(self.law), points)
        return torch.where(zero, self.log_zero, self.log_rest + self.law.log_prob(elsewhere))

    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``."""
        points = self._points("value", value)
        rest = self.log_rest + self.law.log_sf(points)
        return torch.where((points < 0) & self.has_atom, self._with_atom(rest), rest)

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``."""
        points = self._points("value", value)
        rest = self.log_rest + self.law.log_cdf(points)
        return torch.where((points >= 0) & self.has_atom, self._with_atom(rest), rest)

    def log_interval(self, lower: Numbers, upper: Numbers) -> Tensor:
        """Log of ``P(lower < X <= upper)``; the ends may be infinite, and the whole line has exactly 0."""
        start, end = self._points("lower", lower), self._points("upper", upper)
        rest = self.log_rest + self.law.log_interval(start, end)
        some = torch.where((start < 0) & (end >= 0) & self.has_atom, self._with_atom(rest), rest)
        return torch.where((start == -torch.inf) & (end == torch.inf), 0.0, some)

    def _with_atom(self, log_rest: Tensor) -> Tensor:
        return torch.logaddexp(torch.where(self.has_atom, self.log_zero, 0.0), log_rest)

    def _inverse(self, levels: Tensor, at_zero: Tensor, inverse: Callable[[Tensor], Tensor]) -> Tensor:
        """0 where the level falls into the atom, which begins ``at_zero``; elsewhere the continuous law's inverse."""
        rest = self.log_rest.exp()
        atom = torch.where(self.has_atom, self.log_zero.exp(), 0.0)
        inside = (levels >= at_zero) & (levels <= at_zero + atom) & self.has_atom
        beyond = levels > at_zero + atom
        level = torch.where(beyond, levels - atom, levels) / rest
        # rounding may lift the last level by one unit above one
        level = torch.where(inside, 0.5, torch.where(level > 1, 1.0, level))
        return torch.where(inside, 0.0, inverse(level))

    def icdf(self, value: Numbers) -> Tensor:
        """Smallest point with ``P(X <= point) >= value``; for levels near one use `isf`."""
        at_zero = (self.log_rest + self._law_at_zero(self.law.log_cdf)).exp()
        return self._inverse(self._levels("value", value), at_zero, self.law.icdf)

    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``; 0 for a level that falls into the atom."""
        at_zero = (self.log_rest + self._law_at_zero(self.law.log_sf)).exp()
        return self._inverse(self._levels("value", value), at_zero, self.law.isf)

    def _law_at_zero(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(torch.zeros_like(self.zero_logit))

    @property
    def mean(self) -> Tensor:
        """Expected value ``(1 - p) E[law]``."""
        return self.log_rest.exp() * self.law.mean

    @property
    def variance(self) -> Tensor:
        """Variance ``(1 - p) (Var[law] + p E[law]^2)``."""
        return self.log_rest.exp() * (self.law.variance + self.log_zero.exp() * self.law.mean.square())

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``E[X - u | X > u]`` over ``threshold``."""
        points = self._points("threshold", threshold)
        log_rest = self.law.log_sf(points) + self.log_rest
        share = (log_rest - self.log_sf(points)).exp()
        return share * self.law.mean_excess(points) + torch.where(share < 1, (1 - share) * -points, 0.0)

    def log_excess(self, threshold: Numbers, order: int = 1) -> Tensor:
        """Log of the stop-loss moment ``E[(X - u)_+^k]`` for ``k = order``, 1 or 2; below zero the atom is beyond."""
        points = self._points("threshold", threshold)
        rest = self.log_rest + self.law.log_excess(points, order)
        below = (points < 0) & self.has_atom
        if not bool(below.any()):
            return rest
        atom = self.log_zero + order * torch.where(below, -points, 1.0).log()
        return torch.where(below, torch.logaddexp(torch.where(self.has_atom, atom, 0.0), rest), rest)

    def cvar(self, level: Numbers) -> Tensor:
        """Expected shortfall: the mean of the quantiles above ``level``."""
        levels = self._levels("level", level)
        quantile = self.icdf(levels)
        finite = quantile < torch.inf
        point = torch.where(finite, quantile, self.mean)
        # E[max(X - q, 0)] over the tail mass; right also where the level falls into the atom
        shortfall = point + self.sf(point) * self.mean_excess(point) / (1 - levels)
        return torch.where(finite, shortfall, quantile)

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        uniform = torch.rand(shape, dtype=self.log_zero.dtype, device=self.log_zero.device, generator=generator)
        draw = drawn(self.law, shape[: len(shape) - len(self.batch_shape)], generator)
        return torch.where(uniform < self.log_zero.exp(), 0.0, draw)
