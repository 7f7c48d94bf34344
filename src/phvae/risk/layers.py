"""Layers of a loss: the first two moments of what a limited cover pays."""

import math

import torch
from torch import Tensor

from phvae.risk.law import IntegratedLaw

__all__ = ["layer_moments"]


def layer_moments(law: IntegratedLaw, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """``E[Y]`` and ``E[Y²]`` of ``Y = min((X - low)_+, high - low)``, shape ``(R, k)`` each.

    ``E[Y^k]`` is the difference of stop-loss moments, ``E[(X - low)_+²] - E[(X - high)_+²] - 2 (high - low) E[(X -
    high)_+]`` for the second. Where these are infinite and the layer is not, both are integrals of the survival
    function.

    Args:
        law: Law of the loss.
        low: Where layers begin, shape ``(k,)``.
        high: Where they end, ``inf`` for no end, shape ``(k,)``.
    """
    ends = high < math.inf
    top = torch.where(ends, high, low + 1)
    first, second = (law.log_excess(low, order).exp() for order in (1, 2))
    above, square = (torch.where(ends, law.log_excess(top, order).exp(), 0.0) for order in (1, 2))
    paid, squares = first - above, second - square - 2 * torch.where(ends, high - low, 0.0) * above
    by_area = ends & ~(squares.isfinite() & paid.isfinite()).all(0)
    if bool(by_area.any()):
        paid[:, by_area], squares[:, by_area] = law.layer_area(low[by_area], high[by_area])
    return paid, squares
