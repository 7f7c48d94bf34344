"""A law on the whole line with a power tail at either end."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from phvae.risk.law import IntegratedLaw
from phvae.risk.splice import Spliced

__all__ = ["TwoTails"]


class TwoTails(IntegratedLaw):
    """The law of a signed column between two thresholds, and generalised Pareto laws beyond both.

    Where ``x < -u``, with ``u`` the threshold of the losses, the law of ``-X`` answers, and that of ``X`` elsewhere.

    Args:
        upper: Law of ``X`` with its upper tail replaced.
        lower: Law of ``-X``, from the same latent points, with its upper tail replaced.
    """

    lower = -math.inf

    def __init__(self, upper: Spliced, lower: Spliced) -> None:
        self.upper, self.losses = upper, lower
        self.replicates = upper.replicates

    def log_usual(self) -> Tensor:
        """Log of a usual size, where a root search begins: that of the law within."""
        return self.upper.law.log_usual()

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density."""
        return self._joined(x, self.losses.log_pdf, self.upper.log_pdf)

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)``."""
        return self._joined(x, self.losses.log_cdf, self.upper.log_sf)

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)``."""
        return self._joined(x, self.losses.log_sf, self.upper.log_cdf)

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` for orders 1 and 2; ``inf`` where the moment is infinite.

        Down to the lower threshold it does not matter where the losses lie. Beyond, with ``a = -x``,
        ``E[(X + a)_+^k] = E[(X + a)^k] - (-1)^k E[(L - a)_+^k]`` for ``L = -X``.
        """
        return self._joined(x, lambda a: self._excess_below(a, order), lambda x: self.upper.log_excess(x, order))

    def _excess_below(self, a: Tensor, order: int) -> Tensor:
        if order * self.upper.shape >= 1:
            return torch.full(a.shape, math.inf, dtype=torch.float64)
        if order * self.losses.shape >= 1:
            raise ValueError(
                f"a threshold of {-float(a.max()):g} lies in a lower tail of shape {self.losses.shape:.3g}, whose "
                f"moment of order {order} is infinite; give one above {-self.losses.threshold:g}"
            )
        moved, beyond = self.mean[:, None] + a, self.losses.log_excess(a, order).exp()
        if order == 1:
            return (moved + beyond).log()
        return (self.variance[:, None] + moved.square() - beyond).log()

    @property
    def mean(self) -> Tensor:
        """Expected value, shape ``(R,)``; infinite where one tail has none, an error where both have none."""
        if self.upper.shape >= 1 and self.losses.shape >= 1:
            raise ValueError(
                f"splice = 'gpd': both tails have an infinite mean (shapes {self.upper.shape:.3g} and "
                f"{self.losses.shape:.3g}), so the column has none; ask for quantiles or layers with a limit"
            )
        return self.upper.mean - self.losses.gained(1)

    @property
    def variance(self) -> Tensor:
        """Variance, shape ``(R,)``."""
        if max(self.upper.shape, self.losses.shape) >= 0.5:
            return torch.full((self.replicates,), math.inf, dtype=torch.float64)
        own = self.upper.law
        square = own.variance + own.mean.square()
        for tail in (self.upper, self.losses):
            square = square + tail.gained(2) + 2 * tail.threshold * tail.gained(1)
        return square - self.mean.square()

    def limited(self, x: Tensor) -> Tensor:
        """``E[min(X, x)]`` for limits above the lower threshold."""
        return self.upper.limited(x) - self.losses.gained(1)[:, None]

    def isf(self, probability: Tensor) -> Tensor:
        """Smallest point with ``P(X > point) <= probability``."""
        return self._inverted(1 - probability.double(), self.upper.isf, probability.double())

    def icdf(self, level: Tensor) -> Tensor:
        """Smallest point with ``P(X <= point) >= level``."""
        return self._inverted(level.double(), self.upper.icdf, level.double())

    def move(self, x: Tensor) -> Tensor:
        """Draws of the model made draws of this law, shape of ``x``; the order is kept."""
        return torch.where(x < 0, -self.losses.move(-x), self.upper.move(x))

    def origin_of(self, x: Tensor) -> Tensor:
        """Where in the model's law a point of this one was, the inverse of `move`."""
        return torch.where(x < 0, -self.losses.origin_of(-x), self.upper.origin_of(x))

    def _joined(self, x: Tensor, losses: Callable[[Tensor], Tensor], others: Callable[[Tensor], Tensor]) -> Tensor:
        x = x.double().expand(self.replicates, x.shape[-1])
        below = x < -self.losses.threshold
        if not bool(below.any()):
            return others(x)
        inside = others(torch.where(below, 0.0, x))
        return torch.where(below, losses(torch.where(below, -x, 2 * self.losses.threshold)), inside)

    def _inverted(self, level: Tensor, others: Callable[[Tensor], Tensor], argument: Tensor) -> Tensor:
        edge = torch.full((1,), self.losses.threshold, dtype=torch.float64)
        below = level < self.losses.log_sf(edge).exp()
        points = others(argument)
        if not bool(below.any()):
            return points
        beyond = torch.where(below, level, 0.5)
        return torch.where(below, -self.losses.isf(beyond), points)
