"""The law of a sum with two tails, each from draws of all columns but the one that goes farthest."""

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from phvae.risk.drawn_sum import DrawnSumLaw
from phvae.risk.law import IntegratedLaw
from phvae.risk.signed_sum import log_rest

__all__ = ["TwoDrawnTails"]


class TwoDrawnTails(IntegratedLaw):
    """``X = Σ_j Y_j`` of which some ``Y_j`` are signed: its tail above zero, and that of ``-X``.

    In every replicate the mass of both tails and of the atom at zero is made one.

    Args:
        upper: The tail above zero.
    """

    lower = -math.inf

    def __init__(self, upper: DrawnSumLaw) -> None:
        self.upper, self.losses = upper, upper.mirror()
        self.replicates = upper.replicates
        zero = torch.zeros(1, dtype=torch.float64)
        mass = (upper.log_sf(zero).exp() + self.losses.log_sf(zero).exp())[:, 0] + upper.atom
        self.upper.unit = self.losses.unit = upper.unit / mass[:, None]

    def coarse(self) -> IntegratedLaw:
        """The law from the first of the points."""
        rough = self.upper.coarse()
        return TwoDrawnTails(rough) if rough is not self.upper and isinstance(rough, DrawnSumLaw) else self

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density."""
        return self._joined(x, self.losses.log_pdf, self.upper.log_pdf)

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)``."""
        return self._joined(x, lambda y: log_rest(self.losses.log_sf(y)), self.upper.log_sf)

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)``."""
        return self._joined(x, self.losses.log_sf, lambda x: log_rest(self.upper.log_sf(x)))

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` for orders 1 and 2; ``inf`` where the moment is infinite.

        Below zero it is the moment around ``x``, of ``X - x``, less that of what lies below ``x``.
        """
        return self._joined(x, lambda y: self._excess_below(y, order), lambda x: self.upper.log_excess(x, order))

    def _excess_below(self, y: Tensor, order: int) -> Tensor:
        gained, lost = (side[order - 1][:, None] for side in (self._gained, self._lost))
        beyond = self.losses.log_excess(y, order).exp()
        if bool((gained < math.inf).all()) and bool((beyond == math.inf).any()):
            raise ValueError(
                f"a threshold of {-float(y.max()):g} lies in a lower tail whose moment of order {order} is infinite; "
                "give one of at least 0"
            )
        if bool((gained == math.inf).any()):
            return torch.full(y.shape, math.inf, dtype=torch.float64)
        if order == 1:
            return (gained - lost + y + beyond).log()
        first = self.mean[:, None]
        return (gained + lost + 2 * y * first + y.square() - beyond).log()

    def tail_parts(self, x: Tensor) -> Tensor:
        """``E[Y_j; X > x]`` of every column, shape ``(R, k, D)``; they add up to ``E[X; X > x]``."""
        x = x.double().expand(self.replicates, x.shape[-1])
        below = (x < 0)[..., None]
        upper = self.upper.tail_parts(torch.where(x < 0, 0.0, x))
        if not bool(below.any()):
            return upper
        # the parts between x and zero: those of all losses, but for what lies beyond
        zero = torch.zeros(1, dtype=torch.float64)
        between = self.losses.tail_parts(torch.where(x < 0, -x, 0.0)) - self.losses.tail_parts(zero)
        return torch.where(below, upper + between, upper)

    @property
    def mean(self) -> Tensor:
        """Expected value, shape ``(R,)``; infinite where one tail has none, an error where both have none."""
        gained, lost = self._gained[0], self._lost[0]
        if bool(((gained == math.inf) & (lost == math.inf)).any()):
            raise ValueError("both tails of the sum have an infinite mean, so it has none; ask for quantiles")
        return gained - lost

    @property
    def variance(self) -> Tensor:
        """Variance, shape ``(R,)``."""
        square = self._gained[1] + self._lost[1]
        return torch.where(square < math.inf, square - self.mean.square(), math.inf)

    @cached_property
    def _gained(self) -> tuple[Tensor, Tensor]:
        return _moments(self.upper)

    @cached_property
    def _lost(self) -> tuple[Tensor, Tensor]:
        return _moments(self.losses)

    def _joined(self, x: Tensor, losses: Callable[[Tensor], Tensor], others: Callable[[Tensor], Tensor]) -> Tensor:
        x = x.double().expand(self.replicates, x.shape[-1])
        below = x < 0
        if bool(below.all()):
            return losses(-x)
        found = others(torch.where(below, 0.0, x))
        if not bool(below.any()):
            return found
        return torch.where(below, losses(torch.where(below, -x, 0.0)), found)


def _moments(side: DrawnSumLaw) -> tuple[Tensor, Tensor]:
    """``E[X_+]`` and ``E[X_+^2]``, shape ``(R,)`` each."""
    zero = torch.zeros(1, dtype=torch.float64)
    first, second = (side.log_excess(zero, order).exp()[:, 0] for order in (1, 2))
    return first, second
