"""Where in a model's own law the points of a spliced tail come from, for very many points."""

import math

import torch
from torch import Tensor

from phvae.risk.splice import Spliced

__all__ = ["Moved"]

# Knots of the interpolation, and how many times the threshold the last one is.
KNOTS, REACH = 65, 1e8


class Moved:
    """`Spliced.origin_of` and its slope by cubic interpolation against ``log x``, exact at its knots with their slopes.

    Beyond the last knot it goes on as a straight line in ``log x``, as an exponential tail behind a power does.

    Args:
        law: The spliced law.
    """

    def __init__(self, law: Spliced) -> None:
        self.law, self.threshold = law, law.threshold
        self.first = math.log(law.threshold)
        self.width = math.log(REACH) / (KNOTS - 1)
        # the first knot a little inside the tail, where both laws are those of the tail
        logs = self.first + self.width * torch.arange(KNOTS, dtype=torch.float64)
        x = logs.exp()
        x[0] = law.threshold * (1 + 1e-12)
        self.own = law.origin_of(x)
        self.slope = x * law.log_pace(x, self.own).exp()
        self.own[0] = law.threshold

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Points of the model's law and the slope there against ``x``, for points ``x`` of any shape."""
        beyond = x > self.threshold
        place = (torch.where(beyond, x, self.threshold).log() - self.first) / self.width
        left = place.floor().clamp(0, KNOTS - 2).long()
        s = place - left
        start, end = self.own[left], self.own[left + 1]
        first, last = self.slope[left] * self.width, self.slope[left + 1] * self.width
        rise = end - start
        a, b = first - rise, rise - last
        own = start + s * rise + s * (1 - s) * (a * (1 - s) + b * s)
        pace = rise + (1 - 2 * s) * (a * (1 - s) + b * s) + s * (1 - s) * (b - a)
        far = s > 1
        own = torch.where(far, end + last * (s - 1), own)
        pace = torch.where(far, last, pace)
        return torch.where(beyond, own, x), torch.where(beyond, pace / self.width / x, 1.0)
