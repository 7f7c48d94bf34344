r"""From a network's outputs to start vectors and rates: on a GPU, or for a small batch, one pass there and one back.

initial = softmax(u_1..u_m),    rates_i = (softplus(u_{m+1}) + ... + softplus(u_{m+i})) / scale
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

__all__ = ["chain_parameters"]

# Up to here the calls that are saved weigh more than torch's vector registers.
FUSED_ENTRIES = 8192
# From here on softplus(x) = x in float64.
SOFTPLUS_LINEAR = 40.0


def chain_parameters(outputs: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Start vectors and rates, float64, both ``(..., D, m)``, from outputs ``(..., D, 2 m)`` and scales ``(D,)``.

    >>> initial, rates = chain_parameters(torch.zeros(1, 4), torch.tensor([2.0]))
    >>> initial, rates / torch.tensor(2.0).log()
    (tensor([[0.5000, 0.5000]], dtype=torch.float64), tensor([[0.5000, 1.0000]], dtype=torch.float64))
    """
    if outputs.is_cuda or (outputs.device.type == "cpu" and outputs.numel() <= FUSED_ENTRIES):
        try:
            initial, rates = _ChainParameters.apply(outputs, scale)  # type: ignore[no-untyped-call]
        except ModuleNotFoundError:  # no Triton, or no Numba: slower, and just as right
            pass
        else:
            return initial, rates
    start, steps = outputs.chunk(2, -1)
    increments = softplus(steps.double(), threshold=SOFTPLUS_LINEAR)
    # torch is fast at a softmax over the leading axis and slow at one over a short last axis
    initial = torch.softmax(start.movedim(-1, 0), 0, dtype=torch.float64).movedim(0, -1)
    return initial, increments.cumsum(-1) * (1 / scale)[:, None]


class _ChainParameters(torch.autograd.Function):
    """The fused pass; the scale is a constant."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        phases = outputs.shape[-1] // 2
        flat, scale = outputs.detach().reshape(-1, 2 * phases), scale.double()
        if outputs.is_cuda:
            from phvae.kernels import gpu_heads

            initial, rates = gpu_heads.chains_of(flat.contiguous(), scale)
        else:
            from phvae.kernels import cpu_heads

            first, second = np.empty((len(flat), phases)), np.empty((len(flat), phases))
            cpu_heads.chains_of(flat.numpy(), scale.numpy(), first, second)
            initial, rates = torch.from_numpy(first), torch.from_numpy(second)
        ctx.save_for_backward(flat, initial, scale)
        ctx.shape = outputs.shape
        shape = (*outputs.shape[:-1], phases)
        return initial.view(shape), rates.view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_initial: Tensor, by_rates: Tensor) -> tuple[Tensor, None]:
        flat, initial, scale = ctx.saved_tensors
        by_initial, by_rates = by_initial.reshape(initial.shape), by_rates.reshape(initial.shape)
        if flat.is_cuda:
            from phvae.kernels import gpu_heads

            slopes = gpu_heads.slopes_of(
                flat.contiguous(), scale, initial, by_initial.contiguous(), by_rates.contiguous()
            )
            return slopes.view(ctx.shape), None
        from phvae.kernels import cpu_heads

        found = np.empty_like(flat.numpy())
        cpu_heads.slopes_of(flat.numpy(), scale.numpy(), initial.numpy(), by_initial.numpy(), by_rates.numpy(), found)
        return torch.from_numpy(found).view(ctx.shape), None
