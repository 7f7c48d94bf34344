r"""The likelihood as a contour integral of its Laplace transform, in plain torch: what the fused kernels follow.

For the series chain the transform is a product, so every quantity is a short sum over nodes s_n = z_n / x - shift:

    f(x) = exp(-shift x) / x · Re Σ_n w_n L(s_n),    L(s) = Σ_i α_i Π_{k>=i} λ_k / (s + λ_k).

The cost is O(m) per node whatever x is. Shifting by the slowest rate keeps the exponential decay of the tail out of
the sum. S has (Σ α - L(s)) / s in place of L, summed phase by phase so that nothing is subtracted; F has L(s) / s,
unshifted.
"""

import torch
from torch import Tensor

from phvae.kernels.nodes import table as nodes_for
from phvae.kernels.quantities import CDF, SURVIVAL

__all__ = ["condition", "log_value"]


def log_value(quantity: int, x: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """Log of a quantity, whatever the condition of the sum: NaN where rounding leaves it negative or x is 0 or inf.

    Args:
        quantity: ``DENSITY``, ``SURVIVAL`` or ``CDF``.
        x: Points, shape ``(n,)``.
        initial: Start weights, shape ``(n, m)``.
        rates: Rates, shape ``(n, m)``.
    """
    terms, shift = _terms(quantity, x, initial, rates)
    return terms.real.sum(-1).log() - shift * x


def condition(quantity: int, x: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """Cancellation ``κ = Σ |terms| / |Re Σ terms|``: the relative error of the sum is about κ · 1e-16."""
    terms, _ = _terms(quantity, x, initial, rates)
    return terms.abs().sum(-1) / terms.real.sum(-1).abs()


def _terms(quantity: int, x: Tensor, initial: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted transform at every node, shape ``(n, nodes)``, and the shift."""
    table = torch.tensor(nodes_for(rates.shape[-1]), dtype=torch.float64, device=x.device)
    node, weight = torch.complex(table[:, 0], table[:, 1]), torch.complex(table[:, 2], table[:, 3])
    shift = torch.zeros_like(x) if quantity == CDF else rates[:, 0]
    s = node / x[:, None] - shift[:, None]
    passed, spent = torch.ones_like(s), torch.zeros_like(s)
    total = torch.zeros_like(s)
    for i in reversed(range(rates.shape[-1])):
        step = rates[:, i, None] / (s + rates[:, i, None])
        passed = passed * step
        spent = (spent + 1 / rates[:, i, None]) * step
        total = total + initial[:, i, None] * (spent if quantity == SURVIVAL else passed)
    if quantity == CDF:
        total = total / s
    return weight * total / x[:, None], shift
