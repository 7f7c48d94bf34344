"""Distortion measures and expectiles of a loss known by integration."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from phvae.risk.law import IntegratedLaw

__all__ = ["distorted_mean", "expectile", "proportional_hazard", "wang"]

# Panels and nodes per panel of the integral of a distorted tail, and how many times the usual size it reaches out.
PANELS, ORDER, REACH = 20, 10, 1e7
# Newton's method for expectiles climbs to the root from one side; the steps and the relative width at which it ends.
MOST_STEPS, CLOSE = 200, 1e-13


def wang(shift: float) -> Callable[[Tensor], Tensor]:
    """Wang's transform ``g(s) = Φ(Φ^-1(s) + shift)``; 0 leaves the law as it is.

    >>> wang(1.0)(torch.tensor([0.5, 1.0]))
    tensor([0.8413, 1.0000])
    """
    return lambda survival: torch.special.ndtr(torch.special.ndtri(survival) + shift)


def proportional_hazard(index: float) -> Callable[[Tensor], Tensor]:
    """The proportional hazard transform ``g(s) = s^(1 / index)``: the hazard rate is divided by the index.

    >>> proportional_hazard(2.0)(torch.tensor([0.25, 1.0]))
    tensor([0.5000, 1.0000])
    """
    return lambda survival: survival ** (1 / index)


def distorted_mean(law: IntegratedLaw, distortion: Callable[[Tensor], Tensor]) -> Tensor:
    """``∫ g(S(x)) dx`` over ``x > 0``, the mean under a distorted law, shape ``(R,)``; ``inf`` where it diverges.

    Gauss' rule on panels that widen with the distance from the lower end; beyond the last of them ``g(S)`` goes on as a
    power of ``x`` with the slope it has there.

    Args:
        law: Law of a loss that is never negative.
        distortion: ``g``, increasing, ``g(0) = 0`` and ``g(1) = 1``, from survival probabilities to such.
    """
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(ORDER))
    middle = law.icdf(torch.tensor([0.5], dtype=torch.float64)).median()
    # an atom may take the median: then the size of what is no zero
    usual = float(middle) - law.lower if float(middle) > law.lower else float((law.mean.median() - law.lower).abs())
    edges = torch.linspace(0, math.log(REACH), PANELS + 1, dtype=torch.float64)
    half = edges.diff()[:, None] / 2
    t = (edges[:-1, None] + half * (1 + nodes)).flatten()
    # a last pair of points shows the slope
    end = torch.tensor([edges[-1] - 0.05, edges[-1]], dtype=torch.float64)
    at = law.lower + usual / 16 * torch.expm1(torch.cat([torch.zeros(1, dtype=torch.float64), t, end]))
    # rounding may leave a survival probability a little above one
    values = distortion(law.log_sf(at).clip(max=0.0).exp())
    whole = law.lower * values[:, 0] + (values[:, 1:-2] * (half * weights).flatten() * usual / 16 * t.exp()).sum(-1)
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
