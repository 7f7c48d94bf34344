"""Quantiles of a law known by its log survival, log cdf and log density."""

import math
from typing import Protocol

import torch
from torch import Tensor

_LOWEST, _HIGHEST = math.log(5e-324), math.log(1.7976931348623157e308)
_STEPS = 200
_CLOSE = 1e-10


class Tails(Protocol):
    """What inversion needs of a law: unchecked log functions of ``x`` and numbers that bracket every quantile."""

    @property
    def mean(self) -> Tensor:
        """Mean, shape of the batch."""

    @property
    def _highest_density(self) -> Tensor:
        """A bound the density never exceeds, shape of the batch."""

    def _log_density(self, x: Tensor) -> Tensor: ...

    def _log_survival(self, x: Tensor) -> Tensor: ...

    def _log_distribution(self, x: Tensor) -> Tensor: ...


def invert(law: Tails, log_sf: Tensor, log_cdf: Tensor) -> Tensor:
    """Point where the law has the given log survival and log cdf, with implicit gradients.

    The smaller of the two tails is matched: ``log F`` against ``log x`` below the median, ``log(-log S)`` against
    ``log x`` above it. Both are nearly straight lines in the tails, so Newton's method takes few steps; each step is
    kept inside a bracket that halves whenever Newton does not. It starts from ``F(x) <= x max f`` and Markov's
    inequality ``S(x) <= mean / x``.

    Args:
        law: The law, with batch shape broadcastable against the levels.
        log_sf: Log of the survival probability sought.
        log_cdf: Log of its complement.
    """
    never = (log_sf == -math.inf) | (log_cdf == -math.inf)
    unknown = log_sf.isnan() | log_cdf.isnan()
    limit = torch.where(log_sf == -math.inf, math.inf, 0.0).to(log_sf)
    half = torch.full_like(log_sf, -math.log(2))
    log_sf, log_cdf = (torch.where(never | unknown, half, level) for level in (log_sf, log_cdf))
    upper = log_sf <= log_cdf
    with torch.no_grad():
        x = _search(law, log_sf, log_cdf, upper)
    x = follow(law, x, log_sf, log_cdf)
    return torch.where(unknown, math.nan, torch.where(never, limit, x))


def _search(law: Tails, log_sf: Tensor, log_cdf: Tensor, upper: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(log_sf.shape, law.mean.shape)
    target = torch.where(upper, (-log_sf).log(), log_cdf).expand(shape)
    upper, position = upper.expand(shape), law.mean.log().expand(shape)
    # a little wider than the bounds, for their rounding
    low, high = log_cdf - law._highest_density.log() - 1e-3, position - log_sf + 1e-3
    low = torch.where(low > _LOWEST, low, _LOWEST).expand(shape)
    high = torch.where(high < _HIGHEST, high, _HIGHEST).expand(shape)
    position = torch.where((position > low) & (position < high), position, (low + high) / 2)
    last_step = high - low
    any_upper, any_lower = bool(upper.any()), not bool(upper.all())
    for _ in range(_STEPS):
        x = position.exp()
        log_f = law._log_density(x)
        height = slope = position
        if any_upper:
            log_s = law._log_survival(x)
            # rounding may lift the survival of a tiny x to one or above: too low a point, and no slope to follow
            height = torch.where(log_s < 0, (-log_s).log(), torch.where(log_s >= 0, -math.inf, math.nan))
            slope = (position + log_f - log_s).exp() / -log_s
        if any_lower:
            log_d = law._log_distribution(x)
            height = torch.where(upper, height, log_d)
            slope = torch.where(upper, slope, (position + log_f - log_d).exp())
        miss = height - target
        low, high = torch.where(miss < 0, position, low), torch.where(miss > 0, position, high)
        step = torch.where(miss == 0, 0.0, -miss / slope)
        newton = (position + step > low) & (position + step < high) & (step.abs() <= last_step / 2)
        newton |= miss == 0
        moved = torch.where(newton, position + step, (low + high) / 2)
        last_step = (moved - position).abs()
        position = moved
        # a narrow bracket: the level does not determine the point any better in this precision
        narrow = high - low <= 4 * torch.finfo(low.dtype).eps * torch.maximum(low.abs(), high.abs())
        if bool((newton & (last_step <= _CLOSE) | narrow | miss.isnan()).all()):
            break
    return torch.where(miss.isnan(), math.nan, position.exp())


def follow(law: Tails, x: Tensor, log_sf: Tensor | None = None, log_cdf: Tensor | None = None) -> Tensor:
    """``x`` unchanged, with the gradient of the point that keeps its place in the law.

    From ``S(x; θ) = p`` follows ``dx = (d_θ log S - d log p) S / f``; below the median the same with ``F``, whose
    derivatives keep their digits as ``x`` goes to zero. The levels are constants unless given.
    """
    x = x.detach()
    anchor = law.mean.detach()
    with torch.no_grad():
        log_f, log_s = law._log_density(x), law._log_survival(x)
        upper = log_s < -math.log(2)
        safe = x.isfinite() & (x > 0)
    # the branch that is not used is evaluated at the mean, where its gradient is finite
    above, below = torch.where(safe & upper, x, anchor), torch.where(safe & ~upper, x, anchor)
    survival, distribution = law._log_survival(above), law._log_distribution(below)
    if not any(value is not None and value.requires_grad for value in (survival, log_sf, log_cdf)):
        return x.expand(survival.shape)
    over = survival if log_sf is None else survival - log_sf
    under = -distribution if log_cdf is None else log_cdf - distribution
    rate_over = torch.where(safe & upper, log_s.detach() - log_f, 0.0).exp()
    rate_under = torch.where(safe & ~upper, distribution.detach() - log_f, 0.0).exp()
    drift = torch.where(upper, over * rate_over, under * rate_under)
    return x + torch.where(safe, drift - drift.detach(), 0.0)
