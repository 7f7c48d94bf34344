"""Where a law known by integration takes a level: Newton's method kept inside a bracket."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from phvae.risk.law import IntegratedLaw

__all__ = ["search", "search_signed"]

# Steps of the root search, far more than Newton's method takes; the relative width at which it stops; and the longest
# step, in logarithms, that is taken on trust.
MOST_STEPS, CLOSE, LONGEST_STEP = 200, 1e-11, 3.0

LogFunction = Callable[[Tensor], Tensor]


class Line(NamedTuple):
    """A tail of a law as the search walks along it.

    log_tail: Log of ``S``, or of ``F``.
    log_pdf: Log density.
    lower: Where the line begins.
    usual: Logarithm of a usual distance from there, shape ``(R,)``.
    """

    log_tail: LogFunction
    log_pdf: LogFunction
    lower: float
    usual: Tensor


def search(law: "IntegratedLaw", log_level: Tensor, *, upper: bool, start: Tensor | None) -> Tensor:
    """Point where ``log S`` (or ``log F``) takes a level; 0 for a level that falls into an atom at zero."""
    lower = torch.full((1,), law.lower, dtype=torch.float64)
    line = Line(law.log_sf if upper else law.log_cdf, law.log_pdf, law.lower, law.log_usual())
    at_origin = line.log_tail(lower)
    return _walk(line, log_level.expand(law.replicates, log_level.shape[-1]), at_origin, upper=upper, start=start)


def search_signed(law: "IntegratedLaw", log_sf: Tensor, log_cdf: Tensor, start: Tensor | None) -> Tensor:
    """Point of a law on the whole line with this ``log S`` and ``log F``; 0 for a level in an atom at zero.

    On either side of zero the search follows the tail of that side, where no digits are lost.
    """
    size = law.log_usual()
    zero = torch.zeros(1, dtype=torch.float64)
    # the largest point below zero: an atom at zero is no loss
    before = torch.full_like(zero, -torch.finfo(torch.float64).tiny)
    gains = Line(law.log_sf, law.log_pdf, 0.0, size)
    losses = Line(lambda y: law.log_cdf(-y), lambda y: law.log_pdf(-y), 0.0, size)
    gain, loss = (
        _walk(line, level.expand(law.replicates, level.shape[-1]), end, upper=True, start=begin)
        for line, level, end, begin in (
            (gains, log_sf, law.log_sf(zero), start),
            (losses, log_cdf, law.log_cdf(before), None if start is None else -start),
        )
    )
    return gain - loss


def _walk(line: Line, log_level: Tensor, at_origin: Tensor, *, upper: bool, start: Tensor | None) -> Tensor:
    """Point of a line where its tail takes a level; 0 where the level is not on the line.

    Newton's method against ``t = log(x - lower)``, kept inside a bracket that is halved whenever a step would leave
    it. In the upper tail the function is ``log(-log S)``, in the lower one ``log F``: both nearly straight in ``t``.
    """
    atom = (log_level >= at_origin) if upper else (log_level <= at_origin)
    usual = line.usual[:, None].expand_as(log_level)
    t = usual if start is None else torch.where(start > line.lower, (start - line.lower).log(), usual)
    low, high = torch.full_like(t, -math.inf), torch.full_like(t, math.inf)
    stride = torch.ones_like(t)
    for _ in range(MOST_STEPS):
        x = line.lower + t.exp()
        log_tail_x = line.log_tail(x)
        too_low = (log_tail_x > log_level) if upper else (log_tail_x < log_level)
        low, high = torch.where(too_low, t, low), torch.where(too_low, high, t)
        slope = (t + line.log_pdf(x) - log_tail_x).exp()
        step = (log_level - log_tail_x) / slope
        if upper:
            step = (log_level / log_tail_x).log() * -log_tail_x / slope
        # without both ends of a bracket walk, ever faster, toward the missing one
        outward = torch.where(high == math.inf, t + stride, torch.where(low == -math.inf, t - stride, (low + high) / 2))
        inside = (t + step > low) & (t + step < high) & (step.abs() <= LONGEST_STEP)
        moved = torch.where(inside, t + step, outward)
        stride = torch.where(inside, stride, 2 * stride)
        moved = torch.where(atom | (log_tail_x == log_level), t, moved)
        done = ((moved - t).abs() <= CLOSE) | (high - low <= CLOSE)
        t = moved
        if bool(done.all()):
            break
    return torch.where(atom, 0.0, line.lower + t.exp())
