"""The likelihood of a row of which only this much is known: values, intervals, gaps."""

import torch
from torch import Tensor
from torch.distributions import Independent

from phvae.distributions.tails import TailedLaw, typical
from phvae.layout import Layout

__all__ = ["log_likelihood", "representative"]


def log_likelihood(law: Independent[TailedLaw], x: Tensor, layout: Layout) -> Tensor:
    """``Σ_j log f_j(x_j)`` over the cells that are values plus ``Σ_j log P_j(lower_j < X_j <= upper_j)`` over the rest.

    Nothing is known of a missing cell: it adds exactly 0, with gradient 0.

    Args:
        law: Law of the columns, batch shape ``(..., n)``.
        x: Rows, shape ``(n, layout.width)``.
        layout: What their slices are.

    Returns:
        Float64, shape ``(..., n)``.
    """
    columns, lower = law.base_dist, layout.lower(x)
    if not layout.intervals:
        return columns.log_prob(lower).sum(-1)
    upper = layout.upper(x)
    exact = lower == upper
    if bool(exact.all()):
        return columns.log_prob(lower).sum(-1)
    within = columns.log_interval(torch.where(exact, -torch.inf, lower), torch.where(exact, torch.inf, upper))
    if not bool(exact.any()):
        return within.sum(-1)
    with torch.no_grad():
        # cells that are no values are asked about a point without infinite gradients, and not listened to
        points = torch.where(exact, lower, typical(columns))
    return torch.where(exact, columns.log_prob(points), within).sum(-1)


def representative(x: Tensor, layout: Layout, origin: Tensor, signed: Tensor | None = None) -> Tensor:
    """One value for every cell: itself, the middle of an interval, the end of an open one; ``origin`` where missing.

    Args:
        x: Rows, shape ``(..., layout.width)``.
        layout: What their slices are.
        origin: Least value of each column, shape ``(D,)``, where an interval without lower end begins.
        signed: Columns that have no least value, shape ``(D,)``.
    """
    lower = layout.lower(x)
    if not layout.intervals:
        return lower
    upper = layout.upper(x)
    begin = torch.maximum(lower, origin)
    if signed is not None:
        least = torch.where(upper == torch.inf, origin, upper)
        begin = torch.where(signed, torch.where(lower == -torch.inf, least, lower), begin)
    end = torch.where(upper == torch.inf, begin, upper)
    # of equal ends the middle is the end, to the last bit
    return torch.where(lower == upper, lower, begin + (end - begin) / 2)
