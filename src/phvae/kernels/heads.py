r"""From a network's outputs to start vectors and rates: for a small batch in one pass there and one back.

initial = softmax(u_1..u_m),    rates_i = (softplus(u_{m+1}) + ... + softplus(u_{m+i})) / scale
"""

import math
from typing import Any

import numba
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
    >>> initial, rates / math.log(2)
    (tensor([[0.5000, 0.5000]], dtype=torch.float64), tensor([[0.5000, 1.0000]], dtype=torch.float64))
    """
    if outputs.device.type == "cpu" and outputs.numel() <= FUSED_ENTRIES:
        initial, rates = _ChainParameters.apply(outputs, scale)  # type: ignore[no-untyped-call]
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
        flat = outputs.detach().reshape(-1, 2 * phases)
        initial, rates = np.empty((len(flat), phases)), np.empty((len(flat), phases))
        _forward(flat.numpy(), scale.double().numpy(), initial, rates)
        shape = (*outputs.shape[:-1], phases)
        start = torch.from_numpy(initial).view(shape)
        ctx.save_for_backward(flat, start, scale)
        ctx.shape = outputs.shape
        return start, torch.from_numpy(rates).view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_initial: Tensor, by_rates: Tensor) -> tuple[Tensor, None]:
        flat, initial, scale = ctx.saved_tensors
        slopes = np.empty_like(flat.numpy())
        size = (len(flat), flat.shape[1] // 2)
        _backward(
            flat.numpy(),
            scale.double().numpy(),
            initial.reshape(size).numpy(),
            by_initial.reshape(size).numpy(),
            by_rates.reshape(size).numpy(),
            slopes,
        )
        return torch.from_numpy(slopes).view(ctx.shape), None


_jit: Any = numba.njit(nogil=True, cache=True, error_model="numpy")


@_jit
def _forward(outputs: np.ndarray, scale: np.ndarray, initial: np.ndarray, rates: np.ndarray) -> None:
    m = initial.shape[1]
    for r in range(len(outputs)):
        top = np.float64(outputs[r, 0])
        for i in range(1, m):
            top = max(top, np.float64(outputs[r, i]))
        total = 0.0
        for i in range(m):
            initial[r, i] = math.exp(outputs[r, i] - top)
            total += initial[r, i]
        reached = 0.0
        unit = 1.0 / scale[r % len(scale)]
        for i in range(m):
            initial[r, i] /= total
            u = np.float64(outputs[r, m + i])
            reached += u if u > SOFTPLUS_LINEAR else math.log1p(math.exp(u))
            rates[r, i] = reached * unit


@_jit
def _backward(
    outputs: np.ndarray,
    scale: np.ndarray,
    initial: np.ndarray,
    by_initial: np.ndarray,
    by_rates: np.ndarray,
    slopes: np.ndarray,
) -> None:
    m = initial.shape[1]
    for r in range(len(outputs)):
        mean = 0.0
        for i in range(m):
            mean += initial[r, i] * by_initial[r, i]
        unit = 1.0 / scale[r % len(scale)]
        later = 0.0
        for i in range(m - 1, -1, -1):
            slopes[r, i] = initial[r, i] * (by_initial[r, i] - mean)
            later += by_rates[r, i]
            slopes[r, m + i] = later * unit / (1.0 + math.exp(-np.float64(outputs[r, m + i])))
