"""A law on the whole line: one law for the gains, one for the losses, and the probability of a loss."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from phvae.distributions import checks
from phvae.distributions.base import AbsorptionTime
from phvae.distributions.checks import Numbers
from phvae.distributions.tails import TailedLaw, typical

Side = TailedLaw | AbsorptionTime
# Panels of an integral up to a limit, each half as wide as the next, and Gauss' points in each.
HALVINGS, GAUSS = 40, 12


class TwoSided(TailedLaw):
    """``X = -L`` with probability ``q = sigmoid(loss_logit)``, otherwise ``X = G``, for non-negative ``L`` and ``G``.

    ``f(x) = (1 - q) f_G(x)`` for ``x >= 0`` and ``q f_L(-x)`` below; both tails are those of their own law, exact in
    logs. A logit of ``-inf`` means that there are no losses: the law is then that of ``G``.

    Args:
        loss_logit: Log odds of a loss, shape broadcastable with the batch shapes of the laws.
        loss: Law of the size of a loss, univariate and continuous, support in ``[0, inf)``.
        gain: Law of a gain, likewise.
        validate_args: Check the logit and refuse missing values; ``False`` gives NaN instead.

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = TwoSided(0.0, loss=SeriesPhaseType([1.0], [1.0]), gain=SeriesPhaseType([1.0], [2.0]))
    >>> float(law.mean), float(law.cdf(0.0)), round(float(law.log_sf(1e5) - law.log_sf(0.0)), 6)
    (-0.25, 0.5, -200000.0)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real
    has_rsample = False

    def __init__(self, loss_logit: Numbers, loss: Side, gain: Side, validate_args: bool | None = None) -> None:
        self.loss_logit = checks.as_tensor("loss_logit", loss_logit).double()
        batch_shape = torch.broadcast_shapes(loss.batch_shape, gain.batch_shape, self.loss_logit.shape)
        self.loss: Side = loss if loss.batch_shape == batch_shape else loss.expand(batch_shape)
        self.gain: Side = gain if gain.batch_shape == batch_shape else gain.expand(batch_shape)
        self._setup(batch_shape, validate_args)
        if self._validate_args and bool((self.loss_logit.isnan() | (self.loss_logit == torch.inf)).any()):
            raise ValueError("loss_logit has an entry that is NaN or inf; give log odds < inf, -inf for no losses")
        self.has_losses = self.loss_logit != -torch.inf
        # without losses the logit is replaced before any function sees it: no infinity enters a gradient
        logit = torch.where(self.has_losses, self.loss_logit, 0.0)
        self.log_loss = torch.where(self.has_losses, logsigmoid(logit), -torch.inf)
        self.log_gain = torch.where(self.has_losses, logsigmoid(-logit), 0.0)

    def expand(self, batch_shape: Any, _instance: None = None) -> Self:
        """The same law with its batch expanded to ``batch_shape``."""
        shape = torch.Size(batch_shape)
        return type(self)(self.loss_logit, self.loss.expand(shape), self.gain.expand(shape), self._validate_args)

    def _split(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether points are losses, and two arguments: for the law of the losses and for that of the gains.

        The law that does not answer is asked about a point without infinite gradients.
        """
        below = (points < 0) & self.has_losses
        with torch.no_grad():
            spare_loss, spare_gain = typical(self.loss), typical(self.gain)
        return below, torch.where(below, -points, spare_loss), torch.where(below, spare_gain, points)

    def log_prob(self, value: Numbers) -> Tensor:
        """Log density at ``value``, shape ``broadcast(value, batch_shape)``."""
        below, loss, gain = self._split(self._points("value", value))
        return torch.where(below, self.log_loss + self.loss.log_prob(loss), self.log_gain + self.gain.log_prob(gain))

    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``."""
        below, loss, gain = self._split(self._points("value", value))
        not_so_low = self._with_losses(self.log_gain, self.loss.log_cdf(loss))
        return torch.where(below, not_so_low, self.log_gain + self.gain.log_sf(gain))

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``."""
        below, loss, gain = self._split(self._points("value", value))
        no_more = self.log_gain + self.gain.log_cdf(gain)
        whole = torch.zeros_like(no_more)
        return torch.where(below, self.log_loss + self.loss.log_sf(loss), self._with_losses(no_more, whole))

    def log_interval(self, lower: Numbers, upper: Numbers) -> Tensor:
        """Log of ``P(lower < X <= upper)``; the ends may be infinite, and the whole line has exactly 0."""
        start, end = self._points("lower", lower), self._points("upper", upper)
        gains = self.log_gain + self.gain.log_interval(torch.where(start <= 0, -torch.inf, start), end)
        # a side that an interval does not reach is asked about all of itself, and not listened to
        reached = (start < 0) & self.has_losses
        most, least = torch.where(reached, -start, torch.inf), torch.where(reached & (end < 0), -end, -torch.inf)
        losses = torch.where(self.has_losses, self.log_loss, 0.0) + self.loss.log_interval(least, most)
        some = torch.where(end > 0, torch.logaddexp(gains, torch.where(reached, losses, 0.0)), losses)
        some = torch.where(reached, some, gains)
        return torch.where((start == -torch.inf) & (end == torch.inf), 0.0, some)

    def _with_losses(self, log_gains: Tensor, log_losses: Tensor) -> Tensor:
        """Log of a probability of gains plus one of losses, given that there are any."""
        losses = torch.where(self.has_losses, self.log_loss, 0.0) + log_losses
        return torch.where(self.has_losses, torch.logaddexp(log_gains, losses), log_gains)

    def icdf(self, value: Numbers) -> Tensor:
        """Point with ``P(X <= point) = value``; for levels near one use `isf`."""
        levels = self._levels("value", value)
        share = self.log_loss.exp()
        return self._inverse(levels < share, levels, levels - share, self.loss.isf, self.gain.icdf)

    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``, for levels far below the spacing of numbers near one."""
        levels = self._levels("value", value)
        share = self.log_gain.exp()
        return self._inverse((levels > share) & self.has_losses, levels - share, levels, self.loss.icdf, self.gain.isf)

    def _inverse(
        self,
        below: Tensor,
        of_loss: Tensor,
        of_gain: Tensor,
        inverse_loss: Callable[[Tensor], Tensor],
        inverse_gain: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The inverse of one side, at the probability of that side given that it is taken."""
        loss = _at_most_one(torch.where(below, of_loss / self.log_loss.exp(), 0.5))
        gain = _at_most_one(torch.where(below, 0.5, of_gain / self.log_gain.exp()))
        return torch.where(below, -inverse_loss(loss), inverse_gain(gain))

    @property
    def mean(self) -> Tensor:
        """Expected value ``(1 - q) E[G] - q E[L]``; NaN where both are infinite, and there is none."""
        return self.log_gain.exp() * self.gain.mean - self._share_of(self.loss.mean)

    @property
    def variance(self) -> Tensor:
        """Variance: that within the sides, and that of their means ``q (1 - q) (E[G] + E[L])^2``."""
        gains = self.log_gain.exp()
        between = gains * self._share_of((self.gain.mean + self.loss.mean).square())
        return gains * self.gain.variance + self._share_of(self.loss.variance) + between

    def _share_of(self, of_losses: Tensor) -> Tensor:
        """What losses add to an expectation: their probability times this, and 0 where there are none."""
        return torch.where(self.has_losses, self.log_loss.exp() * of_losses, 0.0)

    @property
    def typical(self) -> Tensor:
        """A point of finite density inside the law, that of the gains."""
        return typical(self.gain)

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``E[X - u | X > u]`` over ``threshold``."""
        points = self._points("threshold", threshold)
        below, _, gain = self._split(points)
        beyond = self.gain.mean_excess(gain)
        if not bool(below.any()):
            return beyond
        return torch.where(below, (self.log_excess(points) - self.log_sf(points)).exp(), beyond)

    def log_excess(self, threshold: Numbers, order: int = 1) -> Tensor:
        """Log of the stop-loss moment ``E[(X - u)_+^k]`` for ``k = order``, 1 or 2.

        Below zero, with ``a = -u``: ``(1 - q) E[(G + a)^k] + q E[(a - L)_+^k]``.
        """
        if order not in (1, 2):
            raise ValueError(f"order = {order!r}; give 1 or 2")
        below, loss, gain = self._split(self._points("threshold", threshold))
        beyond = self.log_gain + self.gain.log_excess(gain, order)
        if not bool(below.any()):
            return beyond
        gains = self.gain.mean + loss
        if order == 2:
            gains = self.gain.variance + gains.square()
        moment = self.log_gain.exp() * gains + self._share_of(_room(self.loss, loss, order))
        return torch.where(below, moment.log(), beyond)

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        leading = shape[: len(shape) - len(self.batch_shape)]
        uniform = torch.rand(shape, dtype=self.log_loss.dtype, device=self.log_loss.device, generator=generator)
        gain = self.gain.sample(leading, generator=generator)
        return torch.where(uniform < self.log_loss.exp(), -self.loss.sample(leading, generator=generator), gain)


def _room(law: Side, limit: Tensor, order: int) -> Tensor:
    """``E[(a - L)_+^k]`` for a limit ``a > 0``: by the moments of ``L``; without them ``∫ k (a - t)^(k-1) F(t) dt``."""
    left = limit - law.mean
    excess = law.log_excess(limit, order).exp()
    room = left + excess if order == 1 else law.variance + left.square() - excess
    if bool(room.isfinite().all()):
        return room
    node, weight = (torch.from_numpy(part).to(limit.device) for part in _halvings())
    axes = (-1, *(1,) * room.ndim)
    node, weight = node.view(axes), weight.view(axes)
    integral = (weight * order * (1 - node) ** (order - 1) * law.cdf(limit * node)).sum(0) * limit**order
    return torch.where(room.isfinite(), room, integral)


def _halvings() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gauss' points and weights on [0, 1] in panels each of which is half as wide as the next."""
    edges = np.concatenate([[0.0], 0.5 ** np.arange(HALVINGS, -1, -1)])
    point, weight = np.polynomial.legendre.leggauss(GAUSS)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + point)).ravel(), (half * weight).ravel()


def _at_most_one(levels: Tensor) -> Tensor:
    """Levels that rounding has lifted by a unit above one, back at one."""
    return torch.where(levels > 1, 1.0, levels)
