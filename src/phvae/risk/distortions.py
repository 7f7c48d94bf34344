"""Distortion measures and expectiles of a loss known by integration."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from phvae.risk.law import IntegratedLaw

__all__ = ["Distortion", "distorted_mean", "expectile", "proportional_hazard", "wang"]

# Panels and nodes per panel of the integral of a distorted tail, and how many times the usual size it reaches out.
PANELS, ORDER, REACH = 20, 10, 1e7
# Newton's method for expectiles climbs to the root from one side; the steps and the relative width at which it ends.
MOST_STEPS, CLOSE = 200, 1e-13


class Distortion(NamedTuple):
    """A distortion ``g`` of survival probabilities and its dual ``p -> 1 - g(1 - p)``, that of probabilities below.

    >>> squared = Distortion(lambda s: s**2, lambda p: p * (2 - p))
    >>> squared(torch.tensor(0.5)), squared.dual(torch.tensor(0.5))
    (tensor(0.2500), tensor(0.7500))
    """

    function: Callable[[Tensor], Tensor]
    dual: Callable[[Tensor], Tensor]

    def __call__(self, survival: Tensor) -> Tensor:
        """``g`` at survival probabilities."""
        return self.function(survival)

    @classmethod
    def of(cls, function: Callable[[Tensor], Tensor]) -> "Distortion":
        """From ``g`` alone, whose dual has as many digits as ``g`` has near one."""
        return cls(function, lambda below: 1 - function(1 - below))


def wang(shift: float) -> Distortion:
    """Wang's transform ``g(s) = Φ(Φ^-1(s) + shift)``; 0 leaves the law as it is.

    >>> wang(1.0)(torch.tensor([0.5, 1.0]))
    tensor([0.8413, 1.0000])
    """

    def shifted(by: float) -> Callable[[Tensor], Tensor]:
        return lambda chance: torch.special.ndtr(torch.special.ndtri(chance) + by)

    return Distortion(shifted(shift), shifted(-shift))


def proportional_hazard(index: float) -> Distortion:
    """The proportional hazard transform ``g(s) = s^(1 / index)``: the hazard rate is divided by the index.

    >>> proportional_hazard(2.0)(torch.tensor([0.25, 1.0]))
    tensor([0.5000, 1.0000])
    """
    return Distortion(lambda survival: survival ** (1 / index), lambda below: -torch.expm1(torch.log1p(-below) / index))


def distorted_mean(law: IntegratedLaw, distortion: Distortion) -> Tensor:
    """``∫ g(S(x)) dx`` over ``x > 0``, less ``∫ (1 - g(S(x))) dx`` over ``x < 0``: the mean under a distorted law.

    Gauss' rule on panels that widen with the distance from the lower end, or from zero on either side of it; beyond
    the last of them the integrand goes on as a power of ``x`` with the slope it has there.

    Args:
        law: Law of a loss.
        distortion: ``g``, increasing, ``g(0) = 0`` and ``g(1) = 1``, from survival probabilities to such.

    Returns:
        Shape ``(R,)``; infinite where one side diverges.
    """
    middle = law.icdf(torch.tensor([0.5], dtype=torch.float64)).median()
    if law.lower > -math.inf:
        # an atom may take the median: then the size of what is no zero
        usual = float(middle) - law.lower if float(middle) > law.lower else float((law.mean.median() - law.lower).abs())
        first = distortion(_chance(law.log_sf(torch.tensor([law.lower], dtype=torch.float64))))[:, 0]
        return law.lower * first + _area(lambda x: distortion(_chance(law.log_sf(x))), law.lower, usual)
    quarters = law.icdf(torch.tensor([0.25, 0.75], dtype=torch.float64)).median(0).values
    usual = float(quarters.abs().max())
    gained = _area(lambda x: distortion(_chance(law.log_sf(x))), 0.0, usual)
    lost = _area(lambda x: distortion.dual(_chance(law.log_cdf(-x))), 0.0, usual)
    if bool(((gained == math.inf) & (lost == math.inf)).any()):
        raise ValueError("both distorted tails have an infinite mean, so the measure has no value; distort less")
    return gained - lost


def _chance(logs: Tensor) -> Tensor:
    """Probabilities from logs; rounding may leave one a little above one."""
    return logs.clip(max=0.0).exp()


def _area(tail: Callable[[Tensor], Tensor], lower: float, usual: float) -> Tensor:
    """Integral of a falling function of ``(k,)`` points, shape ``(R, k)``, from a point on; ``inf`` if it diverges.

    Args:
        tail: The function.
        lower: Where it begins.
        usual: How far a usual point lies from there.
    """
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(ORDER))
    edges = torch.linspace(0, math.log(REACH), PANELS + 1, dtype=torch.float64)
    half = edges.diff()[:, None] / 2
    t = (edges[:-1, None] + half * (1 + nodes)).flatten()
    # a last pair of points shows the slope
    end = torch.tensor([edges[-1] - 0.05, edges[-1]], dtype=torch.float64)
    at = lower + usual / 16 * torch.expm1(torch.cat([t, end]))
    values = tail(at)
    whole = (values[:, :-2] * (half * weights).flatten() * usual / 16 * t.exp()).sum(-1)
    left, last = values[:, -2], values[:, -1]
    reached = last > 0
    slope = torch.where(reached, (left / torch.where(reached, last, 1.0)).log(), math.inf) / (at[-1] / at[-2]).log()
    rest = last * at[-1] / torch.where(slope > 1, slope - 1, 1.0)
    return whole + torch.where(slope > 1, rest, torch.where(reached, math.inf, 0.0))


def expectile(law: IntegratedLaw, level: Tensor) -> Tensor:
    """Where ``level · E[(X - e)_+] = (1 - level) · E[(e - X)_+]``, levels ``(k,)``, shape ``(R, k)``.

    The difference of both sides is convex or concave in ``e`` and falls, so Newton's method, from the mean, comes to
    the root from one side.
    """
    mean = law.mean[:, None].expand(law.replicates, len(level))
    e = mean.clone()
    if not bool(e.isfinite().all()):
        return torch.full_like(e, math.inf)
    for _ in range(MOST_STEPS):
        excess, survival = law.log_excess(e).exp(), law.log_sf(e).exp()
        above, below = level * excess, (1 - level) * (e - mean + excess)
        step = (above - below) / (level * survival + (1 - level) * (1 - survival))
        e = e + step
        if bool((step.abs() <= CLOSE * e.abs()).all()):
            break
    return e
