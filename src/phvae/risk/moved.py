"""Where in a model's own law the points of a spliced tail come from, for very many points."""

import math

import torch
from torch import Tensor

from phvae.risk.law import Pooled
from phvae.risk.splice import Spliced
from phvae.risk.two_tails import TwoTails

__all__ = ["Moved", "MovedBoth"]

# Knots of the interpolation, and the log survival beyond the threshold of the last one.
KNOTS, REACH = 129, 64.0


class Moved:
    """`Spliced.origin_of` and its slope by cubic interpolation, exact at its knots with their slopes.

    It is one against ``v = -log P(X > x | X > u)``, with ``u`` the threshold, in which an exponential tail is straight;
    so it goes on beyond the last knot. A tail with an end point has all ``v`` before it, and beyond it nothing.

    Args:
        law: The spliced law.
    """

    def __init__(self, law: Spliced) -> None:
        self.law, self.threshold = law, law.threshold
        log_mass, self.tail = law.pooled_tail()
        self.width = REACH / (KNOTS - 1)
        own = Pooled(law.law)
        self.own = own.from_log_sf(log_mass - self.width * torch.arange(KNOTS, dtype=torch.float64))[0]
        self.own[0] = law.threshold
        self.slope = (own.log_sf(self.own) - own.log_pdf(self.own))[0].exp()

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Points of the model's law and the slope there against ``x``, for points ``x`` of any shape."""
        excess = torch.where(x > self.threshold, x - self.threshold, 0.0)
        log_survival = self.tail.log_sf(excess)
        beyond, never = excess > 0, log_survival == -math.inf
        hazard = torch.where(never, 0.0, (self.tail.log_prob(torch.where(never, 0.0, excess)) - log_survival).exp())
        place = torch.where(never, 0.0, -log_survival) / self.width
        left = place.floor().clamp(0, KNOTS - 2).long()
        s = place - left
        start, end = self.own[left], self.own[left + 1]
        first, last = self.slope[left] * self.width, self.slope[left + 1] * self.width
        rise = end - start
        a, b = first - rise, rise - last
        own = start + s * rise + s * (1 - s) * (a * (1 - s) + b * s)
        pace = rise + (1 - 2 * s) * (a * (1 - s) + b * s) + s * (1 - s) * (b - a)
        far = s > 1
        own = torch.where(never, math.inf, torch.where(far, end + last * (s - 1), own))
        pace = torch.where(far, last, pace) / self.width * hazard
        return torch.where(beyond, own, x), torch.where(beyond, pace, 1.0)


class MovedBoth:
    """The same of a law with two spliced tails.

    Args:
        law: The law.
    """

    def __init__(self, law: TwoTails) -> None:
        self.law = law
        self.upper, self.losses = Moved(law.upper), Moved(law.losses)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Points of the model's law and the slope there against ``x``, for points ``x`` of any shape."""
        gain, loss = self.upper(x), self.losses(-x)
        return torch.where(x < 0, -loss[0], gain[0]), torch.where(x < 0, loss[1], gain[1])
