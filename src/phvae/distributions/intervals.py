"""Probabilities of intervals, in logarithms and without cancellation."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from phvae.distributions.tails import TailedLaw

# Part of its lower end up to which an interval is narrow: an integral by three Gauss points is then right to 1e-10,
# as long as the log density changes by no more than this over it. Where it changes more, tails differ enough to be
# subtracted.
NARROW, FLAT = 1 / 16, 0.1
NODES = (0.5 - math.sqrt(0.15), 0.5, 0.5 + math.sqrt(0.15))
LOG_WEIGHTS = (math.log(5 / 18), math.log(4 / 9), math.log(5 / 18))

# The name of a function of a law, points, and the places of the points: its values there.
Evaluate = Callable[[str, Tensor, Tensor], Tensor]


def log_interval(evaluate: Evaluate, lower: Tensor, upper: Tensor) -> Tensor:
    """Log of ``P(lower < X <= upper)`` for a law on ``[0, inf)``; only what an interval needs is evaluated.

    A narrow interval is an integral of the density; a wide one the difference of two survivals, or of two
    distribution functions, whichever are smaller; an open one needs a single tail, and the whole line none.

    Args:
        evaluate: Gives ``"log_prob"``, ``"log_sf"`` or ``"log_cdf"`` at points.
        lower: Lower ends, shape ``(n,)``, negative where there is none.
        upper: Upper ends, shape ``(n,)``, ``inf`` where there is none.
    """
    from_zero, open_ended = lower <= 0, upper == torch.inf
    finite = ~(from_zero | open_ended)
    narrow = finite & (upper - lower <= NARROW * lower)
    # no mass at or below zero, none in an interval without length
    result = torch.where((upper <= 0) | (lower >= upper), -torch.inf, torch.zeros_like(lower))
    finite, narrow = finite & (lower < upper), narrow & (lower < upper)
    right, left = (~from_zero & open_ended).nonzero()[:, 0], (from_zero & ~open_ended & (upper > 0)).nonzero()[:, 0]
    if len(right):
        result = result.index_copy(0, right, evaluate("log_sf", lower[right], right))
    if len(left):
        result = result.index_copy(0, left, evaluate("log_cdf", upper[left], left))
    places = narrow.nonzero()[:, 0]
    steep = places[:0]
    if len(places):
        integral, change = _integrals(evaluate, lower[places], upper[places], places)
        flat = change <= FLAT
        result = result.index_copy(0, places[flat], integral[flat])
        steep = places[~flat]
    wide = torch.cat(((finite & ~narrow).nonzero()[:, 0], steep))
    if len(wide):
        result = result.index_copy(0, wide, _differences(evaluate, lower[wide], upper[wide], wide))
    return result


def log_difference(log_more: Tensor, log_less: Tensor) -> Tensor:
    """``log(exp(log_more) - exp(log_less))``, to the last digit of what the two have told apart."""
    gap = log_more - log_less
    near = gap < math.log(2)
    # each branch sees an argument of its own: no infinity of the one enters the gradient of the other
    close = torch.log(-torch.expm1(-torch.where(near, gap, 1.0)))
    apart = torch.log1p(-torch.exp(-torch.where(near, 1.0, gap)))
    return log_more + torch.where(near, close, apart)


def _integrals(evaluate: Evaluate, lower: Tensor, upper: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the integral of the density over each interval, and how much its logarithm changes there."""
    width = upper - lower
    logs = torch.stack([evaluate("log_prob", lower + node * width, places) for node in NODES])
    weights = torch.tensor(LOG_WEIGHTS, dtype=logs.dtype, device=logs.device)[:, None]
    change = logs.detach().amax(0) - logs.detach().amin(0)
    return width.log() + torch.logsumexp(logs + weights, 0), change


def _differences(evaluate: Evaluate, lower: Tensor, upper: Tensor, places: Tensor) -> Tensor:
    more, less = evaluate("log_sf", lower, places), evaluate("log_sf", upper, places)
    below = (more.detach() > -math.log(2)).nonzero()[:, 0]
    if len(below):
        # most of the law lies above the lower end: what lies below the ends is smaller
        at = places[below]
        more = more.index_copy(0, below, evaluate("log_cdf", upper[below], at))
        less = less.index_copy(0, below, evaluate("log_cdf", lower[below], at))
    return log_difference(more, less)


def log_interval_by_tails(law: "TailedLaw", lower: Tensor, upper: Tensor) -> Tensor:
    """The same for a law on the whole line that is known by its tails: the smaller two of them are subtracted."""
    shape = torch.broadcast_shapes(law.batch_shape, lower.shape, upper.shape)
    lower, upper = lower.expand(shape), upper.expand(shape)
    below, beyond, empty = lower == -torch.inf, upper == torch.inf, lower >= upper
    with torch.no_grad():
        inside = law.typical.expand(shape)
    start, end = torch.where(below, inside, lower), torch.where(beyond, inside, upper)
    more, less = law.log_sf(start), law.log_sf(end)
    more_below, less_below = law.log_cdf(end), law.log_cdf(start)
    apart = ~(below | beyond | empty)
    # where an end is open there is nothing to subtract, and where most of the law is above, what is below is smaller
    low = more.detach() > -math.log(2)
    larger = torch.where(apart, torch.where(low, more_below, more), 0.0)
    smaller = torch.where(apart, torch.where(low, less_below, less), -1.0)
    result = torch.where(apart, log_difference(larger, smaller), 0.0)
    result = torch.where(beyond & ~below, more, torch.where(below & ~beyond, more_below, result))
    return torch.where(empty, -torch.inf, result)
