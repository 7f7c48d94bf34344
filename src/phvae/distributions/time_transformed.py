"""Inhomogeneous phase-type laws: a Markov chain whose clock is bent, so that its tail is no longer exponential."""

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from phvae.distributions import checks
from phvae.distributions.base import AbsorptionTime
from phvae.distributions.checks import Numbers
from phvae.distributions.tails import TailedLaw

# Panels of the quadrature of stop-loss moments to the left and to the right of its centre, the growth of their widths,
# and Gauss points in each: 1e-9 of the result or better for shapes from 0.2 to 10.
LEFT, RIGHT, GROWTH, GAUSS = 12, 14, 1.5, 12
# Expected stays in the slowest phase after which what is left of a survival probability is far below any rounding.
SPENT = 1e4


class TimeTransformed(TailedLaw):
    """Law of ``X = scale · g(Y)`` for an absorption time ``Y`` and an increasing ``g`` with ``g(0) = 0``.

    With ``h = g⁻¹``: ``S(x) = S_Y(h(x / scale))`` and ``f(x) = f_Y(h(x / scale)) h'(x / scale) / scale``, so every tail
    is that of the chain, read at another time; quantiles are ``scale · g`` of the chain's. Moments are integrals of the
    survival by quadrature, checked to 1e-9, and ``inf`` where they do not exist. (Albrecher, Bladt, "Inhomogeneous
    phase-type distributions and heavy tails", J. Appl. Prob. 56, 2019.)

    Args:
        base: Law of ``Y``.
        shape: Shape of the transform, positive, shape broadcastable with the batch shape of ``base``.
        scale: Unit of ``X``, positive, shape broadcastable with the batch shape of ``base``.
        validate_args: Check shape and scale and refuse missing values; ``False`` gives NaN instead.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "shape": constraints.positive,
        "scale": constraints.positive,
    }
    support: ClassVar[constraints.Constraint] = constraints.nonnegative
    has_rsample = True
    # Whether another scale is another law; if not, the rates of the chain say all that a scale could.
    scale_is_free: ClassVar[bool] = True
    # The least shape that leaves the tail of the kind the family stands for; a decoder stays above it.
    least_shape: ClassVar[float] = 0.0

    def __init__(
        self, base: AbsorptionTime, shape: Numbers, scale: Numbers = 1.0, validate_args: bool | None = None
    ) -> None:
        bend, unit = (checks.as_tensor(*pair).double() for pair in (("shape", shape), ("scale", scale)))
        batch_shape = torch.broadcast_shapes(base.batch_shape, bend.shape, unit.shape)
        self.base = base if base.batch_shape == batch_shape else base.expand(batch_shape)
        self.shape, self.scale = bend.expand(batch_shape), unit.expand(batch_shape)
        self._setup(batch_shape, validate_args)
        if self._validate_args:
            checks.require_positive("shape", self.shape)
            checks.require_positive("scale", self.scale)

    @abstractmethod
    def _log_time(self, log_value: Tensor) -> Tensor:
        """``log h(u)`` from ``log u``."""

    @abstractmethod
    def _log_pace(self, log_value: Tensor) -> Tensor:
        """Log of ``dh(u) / d log u`` from ``log u``."""

    @abstractmethod
    def _log_value(self, time: Tensor) -> Tensor:
        """``log g(y)`` from ``y``."""

    @property
    @abstractmethod
    def tail_index(self) -> Tensor:
        """Index ``ξ`` of a tail ``S(x) ~ x^(-1/ξ)``; 0 where every moment exists. Moments below ``1/ξ`` exist."""

    @property
    @abstractmethod
    def _last_speed(self) -> Tensor:
        """Limit of ``dh/dx`` at infinity, of the whole law: 0, a number, or infinity."""

    @property
    def typical(self) -> Tensor:
        """A point inside the law, of finite density: where the chain's mean is taken."""
        return (self._log_value(self.base.mean) + self.scale.log()).exp()

    def expand(self, batch_shape: Any, _instance: None = None) -> Self:
        """The same law with its batch expanded to ``batch_shape``."""
        shape = torch.Size(batch_shape)
        return type(self)(
            self.base.expand(shape), self.shape.expand(shape), self.scale.expand(shape), self._validate_args
        )

    def _split(self, name: str, value: Numbers) -> tuple[Tensor, Tensor, Tensor]:
        """Points, whether each is positive and finite, and the logarithm of its multiple of the scale if it is."""
        points = self._points(name, value)
        inside = (points > 0) & (points < torch.inf)
        # elsewhere the answer is a limit; the scale keeps the unused branch and its gradient finite
        log_value = torch.where(inside, points, self.scale).log() - self.scale.log()
        return points, inside, log_value

    def log_prob(self, value: Numbers) -> Tensor:
        """Log density at ``value``, shape ``broadcast(value, batch_shape)``; ``-inf`` below zero."""
        points, inside, log_value = self._split("value", value)
        time = self._log_time(log_value).exp()
        density = self.base.log_prob(time) + self._log_pace(log_value) - log_value - self.scale.log()
        # the usual case; on a GPU nothing is asked, for a step that is made a graph of may look at no number
        if inside.device.type == "cpu" and bool(inside.all()):
            return density
        # near zero h(u) ~ u^shape in every family
        first = torch.where(self.shape < 1, torch.inf, torch.where(self.shape > 1, -torch.inf, -self.scale.log()))
        at_zero = self.base.log_prob(torch.zeros_like(self.scale)) + first
        return torch.where(inside, density, torch.where(points == 0, at_zero, -torch.inf))

    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``; 0 below zero."""
        points, inside, log_value = self._split("value", value)
        tail = self._log_sf_of(log_value)
        return torch.where(inside, tail, torch.where(points > 0, -torch.inf, torch.where(points <= 0, 0.0, torch.nan)))

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``; ``-inf`` below zero."""
        points, inside, log_value = self._split("value", value)
        body = self.base.log_cdf(self._log_time(log_value).exp())
        return torch.where(inside, body, torch.where(points > 0, 0.0, torch.where(points <= 0, -torch.inf, torch.nan)))

    def log_interval(self, lower: Numbers, upper: Numbers) -> Tensor:
        """Log of ``P(lower < X <= upper)``, that of the chain at other times; the whole line has exactly 0."""
        times = []
        for name, end in (("lower", lower), ("upper", upper)):
            points, inside, log_value = self._split(name, end)
            times.append(torch.where(inside, self._log_time(log_value).exp(), points))
        return self.base.log_interval(*times)

    def _log_sf_of(self, log_value: Tensor) -> Tensor:
        return self.base.log_sf(self._log_time(log_value).exp())

    def _log_sf_until(self, log_value: Tensor, latest: Tensor) -> Tensor:
        """Log survival, ``-inf`` beyond a time of the chain."""
        time = self._log_time(log_value).exp()
        early = time < latest
        return torch.where(early, self.base.log_sf(torch.where(early, time, latest)), -torch.inf)

    def hazard(self, value: Numbers) -> Tensor:
        """Hazard rate ``f / S`` at ``value``; at infinity its limit."""
        points = self._points("value", value)
        far = points == torch.inf
        ratio = super().hazard(torch.where(far, self.scale, points))
        return torch.where(far, self.base.tail_rate * self._last_speed, ratio)

    def icdf(self, value: Numbers) -> Tensor:
        """Point with ``P(X <= point) = value``; for levels near one use `isf`."""
        return self._at(self.base.icdf(self._levels("value", value)))

    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``, for levels down to 1e-300."""
        return self._at(self.base.isf(self._levels("value", value)))

    def _at(self, time: Tensor) -> Tensor:
        """The value at a time of the chain."""
        usual = (time > 0) & (time < torch.inf)
        value = (self._log_value(torch.where(usual, time, 1.0)) + self.scale.log()).exp()
        return torch.where(usual, value, time)

    @property
    def mean(self) -> Tensor:
        """Expected value; ``inf`` where the tail index is 1 or more."""
        return self.log_excess(0.0).exp()

    @property
    def variance(self) -> Tensor:
        """Variance; ``inf`` where the tail index is 1/2 or more."""
        second = self.log_excess(0.0, 2).exp()
        return torch.where(second < torch.inf, second - self.mean.square(), torch.inf)

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``E[X - u | X > u]`` over ``threshold``; at infinity its limit."""
        points = self._points("threshold", threshold)
        far = points == torch.inf
        near = torch.where(far, self.scale, points)
        ratio = (self.log_excess(near) - self.log_sf(near)).exp()
        limit = 1 / (self.base.tail_rate * self._last_speed)
        return torch.where(far & (ratio < torch.inf), limit, ratio)

    def log_excess(self, threshold: Numbers, order: int = 1) -> Tensor:
        """Log of the stop-loss moment ``E[(X - u)_+^k]`` for ``k = order``; ``inf`` where it does not exist.

        ``∫ k exp(k v) S(u + exp(v)) dv`` by Gauss panels that widen from the middle; beyond the last of them the
        integrand falls off at the rate it has there.

        Args:
            threshold: ``u >= 0``, shape broadcastable with the batch shape.
            order: ``k``, a positive integer.
        """
        if not checks.is_whole(order, least=1):
            raise ValueError(f"order = {order!r} is not the order of a stop-loss moment; give an integer >= 1")
        points = self._points("threshold", threshold)
        if self._validate_args:
            checks.require_non_negative("threshold", points)
        far = points == torch.inf
        start = torch.where(far, 0.0, points) / self.scale
        log_start = start.log()
        with torch.no_grad():
            # where the tail has fallen by a factor e or so: the middle of what matters
            time = torch.where(start > 0, self._log_time(torch.where(start > 0, log_start, 0.0)).exp(), 0.0)
            log_end = self._log_value(time + torch.where(start > 0, 1 / self.base.tail_rate, self.base.mean))
            middle = torch.where(start > 0, _log_difference(log_end, log_start), log_end)
            finite = middle.isfinite()
            middle = torch.where(finite, middle, log_start)
            width = 1 / torch.maximum(self.shape, torch.ones_like(self.shape))
        node, weight, last = _panels()
        axes = (-1, *(1,) * middle.ndim)
        v = middle + width * node.to(middle.device).view(axes)
        latest = time + SPENT / self.base.tail_rate
        log_values = order * v + self._log_sf_until(torch.logaddexp(log_start, v), latest)
        total = torch.logsumexp(log_values + weight.log().to(v.device).view(axes) + width.log(), 0)
        end = middle + width * last
        at_end = torch.logaddexp(log_start, end)
        log_tail = self._log_sf_until(at_end, latest)
        # d log S / dv = - hazard of the chain · pace · share of v in the value
        reached = log_tail > -torch.inf
        chain = self.base.hazard(torch.where(reached, self._log_time(at_end).exp(), latest))
        fall = torch.where(reached, chain * (self._log_pace(at_end) + end - at_end).exp() - order, 1.0)
        exists = (order * self.tail_index < 1) & (fall > 0)
        beyond = order * end + log_tail - torch.where(exists, fall, 1.0).log()
        result = torch.logaddexp(total, beyond) + np.log(order) + order * self.scale.log()
        return torch.where(exists, torch.where(far, -torch.inf, result), torch.inf)

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        leading = shape[: len(shape) - len(self.batch_shape)]
        return self._at(self.base.sample(leading, generator=generator))

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws that carry pathwise gradients; arguments as in `sample`."""
        return self._at(self.base.rsample(torch.Size(sample_shape), generator=generator))


def log_expm1(y: Tensor) -> Tensor:
    """``log(exp(y) - 1)`` for positive ``y`` of any size."""
    return y + torch.log(-torch.expm1(-y))


def log1p_exp(t: Tensor) -> Tensor:
    """``log(1 + exp(t))``, to the last digit on either side."""
    return torch.logaddexp(torch.zeros_like(t), t)


def _log_difference(log_high: Tensor, log_low: Tensor) -> Tensor:
    return log_high + torch.log(-torch.expm1(log_low - log_high))


def _panels() -> tuple[Tensor, Tensor, float]:
    """Points and weights of all panels in units of the narrowest, around zero, and the right end of the last."""
    widths = GROWTH ** np.arange(max(LEFT, RIGHT))
    reach = widths.cumsum()
    edges = np.concatenate([-reach[:LEFT][::-1], [0.0], reach[:RIGHT]])
    node, weight = np.polynomial.legendre.leggauss(GAUSS)
    half = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + half * (1 + node)
    return torch.from_numpy(nodes.ravel()), torch.from_numpy((half * weight).ravel()), float(edges[-1])
