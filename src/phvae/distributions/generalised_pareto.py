"""The generalised Pareto law of what a loss exceeds a high threshold by, and its maximum likelihood fit."""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, stats
from torch import Tensor
from torch.distributions import constraints

from phvae.distributions import checks
from phvae.distributions.checks import Numbers
from phvae.distributions.tails import TailedLaw

__all__ = ["GeneralisedPareto", "ParetoTailFit", "fit_generalised_pareto"]

Array = NDArray[np.float64]

# Below this shape the likelihood has no maximum: it is unbounded where the law ends at the largest excess.
LOWEST_SHAPE = -1.0
# Down to this shape the estimates are asymptotically normal (Smith 1985).
REGULAR_SHAPE = -0.5
# Largest shape of a profile over the shape, far beyond any law whose quantiles mean something.
HIGHEST_SHAPE = 10.0
# Points of the profile likelihood at which its highest hill is looked for, on either side of the exponential law.
SEARCHED = 120
NEWTON_STEPS = 20


class GeneralisedPareto(TailedLaw):
    """``S(x) = (1 + shape x / scale)^(-1 / shape)`` for ``x >= 0``; exponential at shape 0, bounded below it.

    The hazard rate is ``1 / (scale + shape x)``: its reciprocal is a line, and the law given ``X > u`` is again
    generalised Pareto, with the same shape and with scale ``scale + shape u``.

    Args:
        shape: Tail index ``ξ``, of either sign; moments of order ``1 / ξ`` and above are infinite.
        scale: Positive.

    >>> law = GeneralisedPareto(0.5, 2.0)
    >>> float(law.sf(12.0)), float(law.isf(0.0625)), float(law.mean_excess(12.0))
    (0.0625, 12.0, 16.0)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "shape": constraints.real,
        "scale": constraints.positive,
    }
    shape: Tensor
    scale: Tensor

    def __init__(self, shape: Numbers, scale: Numbers, validate_args: bool | None = None) -> None:
        tail, size = (checks.as_tensor(name, value).double() for name, value in (("shape", shape), ("scale", scale)))
        self.shape, self.scale = torch.broadcast_tensors(tail, size)
        self._setup(self.shape.shape, validate_args)
        if self._validate_args:
            checks.require_finite("shape", self.shape)
            checks.require_positive("scale", self.scale)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """From 0 to the upper end, which is finite for a negative shape."""
        return constraints.interval(0.0, self.upper)

    def expand(self, batch_shape: Any, _instance: None = None) -> Self:
        """The same law with its batch expanded to ``batch_shape``."""
        law = copy(self)
        law.shape, law.scale = (part.expand(torch.Size(batch_shape)) for part in (self.shape, self.scale))
        law._setup(law.shape.shape, self._validate_args)
        return law

    @property
    def upper(self) -> Tensor:
        """Upper end of the support."""
        return torch.where(self.shape < 0, -self.scale / self.shape, math.inf)

    def log_prob(self, value: Numbers) -> Tensor:
        """Log density; ``-inf`` outside the support."""
        points = self._points("value", value)
        inside = (points >= 0) & (points < self.upper)
        hazard = (self.scale + self.shape * points).log()
        return torch.where(inside, self._log_tail(points) - hazard, -math.inf)

    def log_sf(self, value: Numbers) -> Tensor:
        """Log of ``P(X > value)``."""
        return self._log_tail(self._points("value", value))

    def log_cdf(self, value: Numbers) -> Tensor:
        """Log of ``P(X <= value)``."""
        log_sf = self.log_sf(value)
        # the first form has all digits where the survival is near one, the second where it is small
        return torch.where(log_sf > -math.log(2), (-torch.expm1(log_sf)).log(), torch.log1p(-log_sf.exp()))

    def icdf(self, value: Numbers) -> Tensor:
        """Point with ``P(X <= point) = value``; for levels near one use `isf`."""
        return self.point(torch.log1p(-self._levels("value", value)))

    def isf(self, value: Numbers) -> Tensor:
        """Point with ``P(X > point) = value``."""
        return self.point(self._levels("value", value).log())

    @property
    def mean(self) -> Tensor:
        """Expected value; infinite from shape 1 on."""
        return torch.where(self.shape < 1, self.scale / (1 - self.shape), math.inf)

    @property
    def variance(self) -> Tensor:
        """Variance; infinite from shape 1/2 on."""
        finite = (self.scale / (1 - self.shape)).square() / (1 - 2 * self.shape)
        return torch.where(self.shape < 0.5, finite, math.inf)

    def mean_excess(self, threshold: Numbers) -> Tensor:
        """Expected excess ``(scale + shape u) / (1 - shape)`` over ``u`` in the support; a `ValueError` if infinite."""
        points = self._points("threshold", threshold)
        self._require_moment(1)
        return torch.where(self.shape < 1, (self.scale + self.shape * points) / (1 - self.shape), math.inf)

    def log_excess(self, threshold: Numbers, order: int = 1) -> Tensor:
        """Log of ``E[(X - u)_+^k]`` for ``k = order``, 1 or 2: ``S(u) k! Π_j (scale + shape u) / (1 - j shape)``.

        A moment that is infinite is a `ValueError`; without validation it is ``inf``.
        """
        if order not in (1, 2):
            raise ValueError(f"order = {order!r}; give 1 or 2")
        points = self._points("threshold", threshold)
        finite = self._require_moment(order)
        above, below = torch.where(points > 0, points, 0.0), torch.where(points < 0, -points, 0.0)
        # beyond a finite upper end nothing is left, and the line is 0 times its own survival
        line = self.scale + self.shape * torch.minimum(above, self.upper)
        moment = self._log_tail(above) + math.log(order)
        for j in range(1, order + 1):
            moment = moment + (line / (1 - j * self.shape)).log()
        moment = torch.where(line > 0, moment, -math.inf)
        first = self.mean
        shifted = (first + below).log() if order == 1 else ((first + below).square() + self.variance).log()
        return torch.where(finite, torch.where(points < 0, shifted, moment), math.inf)

    def _require_moment(self, order: int) -> Tensor:
        """Where the moment is finite."""
        finite: Tensor = self.shape * order < 1
        if self._validate_args and not bool(finite.all()):
            shape = float(self.shape[~finite].flatten()[0])
            raise ValueError(
                f"shape = {shape:g} gives no finite moment of order {order}; moments exist below order 1 / shape: "
                "ask for quantiles or for a layer with a limit"
            )
        return finite

    def _log_tail(self, points: Tensor) -> Tensor:
        ratio = torch.where(points > 0, torch.minimum(points, self.upper), 0.0) / self.scale
        straight = self.shape == 0
        shape = torch.where(straight, 1.0, self.shape)
        curved = torch.log1p(self.shape * ratio) / shape
        return -torch.where(straight, ratio, torch.where(points >= self.upper, math.inf, curved))

    def point(self, log_survival: Tensor) -> Tensor:
        """Point with this log of ``P(X > point)``, for survivals that are no numbers any more."""
        straight = self.shape == 0
        shape = torch.where(straight, 1.0, self.shape)
        return self.scale * torch.where(straight, -log_survival, torch.expm1(-self.shape * log_survival) / shape)

    def _draw(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        pause = torch.empty(shape, dtype=self.scale.dtype, device=self.scale.device).exponential_(generator=generator)
        return self.point(-pause)


@dataclass(frozen=True)
class ParetoTailFit:
    """A generalised Pareto law fitted to excesses, with what is known about the fit.

    `covariance` is the inverse of the observed information in ``(shape, scale)``; NaN where the estimates are not
    asymptotically normal, at shapes of -1/2 and below.
    """

    shape: float
    scale: float
    covariance: Array
    log_likelihood: float
    excess: Array

    @property
    def law(self) -> GeneralisedPareto:
        """The fitted law of the excess."""
        return GeneralisedPareto(self.shape, self.scale)

    @property
    def shape_error(self) -> float:
        """Standard error of the shape."""
        return float(np.sqrt(self.covariance[0, 0]))

    @property
    def scale_error(self) -> float:
        """Standard error of the scale."""
        return float(np.sqrt(self.covariance[1, 1]))

    def shape_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Shapes that the likelihood ratio does not reject at this confidence."""
        return self._interval(self.shape, self._best_at_shape, level, LOWEST_SHAPE, HIGHEST_SHAPE, 0.1)

    def quantile(self, probability: float) -> float:
        """Excess that is exceeded with this probability, given that the threshold is."""
        return float(self.law.isf(probability))

    def quantile_interval(self, probability: float, level: float = 0.95) -> tuple[float, float]:
        """Excesses at this probability that the likelihood ratio does not reject at this confidence."""
        best = math.log(self.quantile(probability))

        def best_at(log_quantile: float) -> float:
            return self._best_at_quantile(math.exp(log_quantile), probability)

        low, high = self._interval(best, best_at, level, best - 30, best + 30, 0.1)
        return math.exp(low), math.exp(high)

    def _interval(
        self, best: float, profile: Callable[[float], float], level: float, lowest: float, highest: float, step: float
    ) -> tuple[float, float]:
        drop = float(stats.chi2.ppf(level, 1)) / 2

        def lacking(at: float) -> float:
            return self.log_likelihood - profile(at) - drop

        ends = []
        for sign, limit in ((-1, lowest), (1, highest)):
            inner, stride = best, step
            while True:
                outer = max(inner - stride, limit) if sign < 0 else min(inner + stride, limit)
                if outer == limit or lacking(outer) > 0:
                    break
                inner, stride = outer, 2 * stride
            open_ended = lacking(outer) <= 0
            ends.append(outer if open_ended else float(optimize.brentq(lacking, inner, outer, xtol=1e-6)))
        return ends[0], ends[1]

    def _best_at_shape(self, shape: float) -> float:
        """Highest log-likelihood among the laws of this shape."""
        lowest = math.log(-shape * self.excess.max()) if shape < 0 else -math.inf
        start = math.log(self.excess.mean())
        low = max(lowest + 1e-9, start - 20)

        def lost(log_scale: float) -> float:
            return -_log_likelihood(self.excess, shape, math.exp(log_scale))

        return -float(optimize.minimize_scalar(lost, bounds=(low, low + 40), method="bounded").fun)

    def _best_at_quantile(self, quantile: float, probability: float) -> float:
        """Highest log-likelihood among the laws with this quantile."""

        def lost(shape: float) -> float:
            growth = -math.log(probability) if shape == 0 else math.expm1(-shape * math.log(probability)) / shape
            return -_log_likelihood(self.excess, shape, quantile / growth)

        # a few shapes first: the hill may be narrow beside the range
        grid = np.concatenate([np.linspace(LOWEST_SHAPE, 2, 31), np.linspace(2, HIGHEST_SHAPE, 9)[1:]])
        values = [lost(shape) for shape in grid]
        at = int(np.argmin(values))
        bounds = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
        return -min(values[at], float(optimize.minimize_scalar(lost, bounds=bounds, method="bounded").fun))


def fit_generalised_pareto(excess: Numbers) -> ParetoTailFit:
    """Fit a generalised Pareto law by maximum likelihood among shapes of at least -1.

    With ``θ = shape / scale`` the best shape is ``mean log(1 + θ x)``, so one dimension is left (Davison 1984). Its
    profile may have several hills: it is searched over all ``θ`` on a grid, and Newton's method in both parameters
    finishes.

    Args:
        excess: Positive excesses over a threshold, any shape, read as one sample of at least two different values.

    >>> x = GeneralisedPareto(0.3, 5.0).icdf((torch.arange(1000, dtype=torch.float64) + 0.5) / 1000)
    >>> fit = fit_generalised_pareto(x)
    >>> round(fit.shape, 2), round(fit.scale, 1), round(fit.shape_error, 3)
    (0.3, 5.0, 0.041)
    """
    values = np.asarray(checks.as_tensor("excess", excess).detach().double().cpu().numpy()).reshape(-1)
    wrong = ~((values > 0) & np.isfinite(values))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(f"excess[{at}] is {values[at]:g}; give positive finite excesses over a threshold")
    if len(np.unique(values)) < 2:
        raise ValueError(f"excess has {len(np.unique(values))} different values; give at least 2")
    unit = float(values.mean())
    x = values / unit
    shape, scale = _polished(x, *_highest(x))
    covariance = np.full((2, 2), np.nan)
    if shape > REGULAR_SHAPE:
        # from (shape, log scale) to (shape, scale)
        unfolded = np.diag([1.0, scale * unit])
        covariance = unfolded @ np.linalg.inv(-_curvature(x, shape, scale)) @ unfolded
    log_likelihood = _log_likelihood(x, shape, scale) - len(x) * math.log(unit)
    return ParetoTailFit(float(shape), float(scale * unit), covariance, log_likelihood, values)


def _highest(x: Array) -> tuple[float, float]:
    """Shape and scale at the top of the profile likelihood."""
    longest, middle = float(x.max()), float(np.median(x))
    steps = np.linspace(0, 1, SEARCHED)
    # θ from next to its lower end, -1 / max, up to where a median excess is reached at shapes beyond 20
    negative = -(1 - 10.0 ** (-9 * steps[1:])) / longest
    positive = 10.0 ** (-6 + 14 * steps) / middle
    grid = np.concatenate([negative[::-1], [0.0], positive])
    values = np.array([_profile(x, theta) for theta in grid])
    at = int(np.argmax(values))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    found = optimize.minimize_scalar(
        lambda theta: -_profile(x, theta), bounds=(low, high), method="bounded", options={"xatol": 1e-9 * (high - low)}
    )
    theta = float(found.x) if -found.fun > values[at] else float(grid[at])
    shape = float(np.log1p(theta * x).mean())
    if shape <= LOWEST_SHAPE or _log_likelihood(x, LOWEST_SHAPE, longest) >= _profile(x, theta):
        return LOWEST_SHAPE, longest
    return (shape, shape / theta) if theta else (0.0, float(x.mean()))


def _profile(x: Array, theta: float) -> float:
    """Log-likelihood of the best law with this ratio of shape to scale; -inf below the lowest shape."""
    shape = float(np.log1p(theta * x).mean())
    if shape <= LOWEST_SHAPE:
        return -math.inf
    log_scale = math.log(shape / theta) if theta else math.log(x.mean())
    return -len(x) * (log_scale + shape + 1)


def _log_likelihood(x: Array, shape: float, scale: float) -> float:
    line = 1 + shape * x / scale
    if shape < 0 and float(line.min()) <= 0:
        # only the uniform law has a density at its upper end
        return -len(x) * math.log(scale) if shape == LOWEST_SHAPE and float(line.min()) == 0 else -math.inf
    if shape == 0:
        return -len(x) * math.log(scale) - float(x.sum()) / scale
    return -len(x) * math.log(scale) - (1 + 1 / shape) * float(np.log1p(shape * x / scale).sum())


def _polished(x: Array, shape: float, scale: float) -> tuple[float, float]:
    """Newton's method in shape and log scale from a point near the top; a step that does not climb ends it."""
    if shape <= REGULAR_SHAPE:
        return shape, scale
    height = _log_likelihood(x, shape, scale)
    for _ in range(NEWTON_STEPS):
        step = np.linalg.solve(-_curvature(x, shape, scale), _slope(x, shape, scale))
        trial = float(shape + step[0]), float(scale * np.exp(step[1]))
        higher = _log_likelihood(x, *trial) if trial[0] > LOWEST_SHAPE else -math.inf
        if not higher > height:
            break
        (shape, scale), height = trial, higher
    return shape, scale


def _slope(x: Array, shape: float, scale: float) -> Array:
    """Derivatives of the log-likelihood in shape and log scale."""
    t = x / scale
    y = 1 + shape * t
    # [log(1 + w) - w / (1 + w)] / w², w = shape t
    bent = _smooth(shape * t, lambda w: (np.log1p(w) - w / (1 + w)) / w**2, lambda k: 1 - 1 / k, 2)
    return np.array([(t**2 * bent - t / y).sum(), ((1 + shape) * t / y - 1).sum()])


def _curvature(x: Array, shape: float, scale: float) -> Array:
    """Second derivatives of the log-likelihood in shape and log scale."""
    t = x / scale
    y = 1 + shape * t
    # [-2 log(1 + w) + 2 w / (1 + w) + w² / (1 + w)²] / w³
    bent = _smooth(
        shape * t,
        lambda w: (-2 * np.log1p(w) + 2 * w / (1 + w) + (w / (1 + w)) ** 2) / w**3,
        lambda k: 2 / k + k - 3,
        3,
    )
    mixed = (t * (1 - t) / y**2).sum()
    return np.array([[(t**3 * bent + (t / y) ** 2).sum(), mixed], [mixed, (-(1 + shape) * t / y**2).sum()]])


def _smooth(w: Array, direct: Callable[[Array], Array], coefficient: Callable[[int], float], first: int) -> Array:
    """A function of ``w`` that loses its digits near zero, there by its series ``Σ_k (-1)^k c_k w^(k - first)``."""
    near = np.abs(w) < 0.05
    series = np.zeros_like(w)
    for k in range(first, first + 14):
        series += (-1) ** k * coefficient(k) * np.where(near, w, 0.0) ** (k - first)
    return np.where(near, series, direct(np.where(near, 1.0, w)))
