r"""From a network's outputs to start vectors and rates, and on to the density: one pass there and one back.

initial = softmax(u_1..u_m),    rates_i = (softplus(u_{m+1}) + ... + softplus(u_{m+i})) / scale
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from phvae.kernels import backends, series
from phvae.kernels.once import closed_form
from phvae.kernels.quantities import DENSITY

__all__ = ["chain_parameters", "log_density"]

# From here on softplus(x) = x in float64.
SOFTPLUS_LINEAR = 40.0


def chain_parameters(outputs: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Start vectors and rates, float64, both ``(..., D, m)``, from outputs ``(..., D, 2 m)`` and scales ``(D,)``.

    >>> initial, rates = chain_parameters(torch.zeros(1, 4), torch.tensor([2.0]))
    >>> initial, rates / torch.tensor(2.0).log()
    (tensor([[0.5000, 0.5000]], dtype=torch.float64), tensor([[0.5000, 1.0000]], dtype=torch.float64))
    """
    if _fused(outputs) is not None:
        initial, rates = _ChainParameters.apply(outputs, scale)  # type: ignore[no-untyped-call]
        return initial, rates
    start, steps = outputs.chunk(2, -1)
    increments = softplus(steps.double(), threshold=SOFTPLUS_LINEAR)
    # torch is fast at a softmax over the leading axis and slow at one over a short last axis
    initial = torch.softmax(start.movedim(-1, 0), 0, dtype=torch.float64).movedim(0, -1)
    return initial, increments.cumsum(-1) * (1 / scale)[:, None]


def log_density(x: Tensor, outputs: Tensor, scale: Tensor) -> Tensor:
    """``series.log_density(x, *chain_parameters(outputs, scale))``, with its slope in the outputs from the same pass.

    Args:
        x: Points, shape ``(..., D)``.
        outputs: Outputs ``(..., D, 2 m)``.
        scale: Scales ``(D,)``.

    >>> log_density(torch.tensor([1.0]), torch.zeros(1, 2), torch.tensor([2.0]))
    tensor([-1.4062], dtype=torch.float64)
    """
    if _fused(outputs) is not None:
        value: Tensor = _LogDensity.apply(x, outputs, scale)  # type: ignore[no-untyped-call]
        return value
    return series.log_density(x, *chain_parameters(outputs, scale))


def _fused(outputs: Tensor) -> ModuleType | None:
    """The kernels of the device; None where there are none, which is slower and just as right."""
    try:
        if outputs.is_cuda:
            from phvae.kernels import gpu_heads

            return gpu_heads
        if outputs.device.type == "cpu":
            from phvae.kernels import cpu_heads

            return cpu_heads
    except ModuleNotFoundError:  # no Triton, or no Numba
        pass
    return None


class _ChainParameters(torch.autograd.Function):
    """The map alone; the scale is a constant."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        kernels: Any = _fused(outputs)
        flat, scale = _rows(outputs), scale.double()
        initial, rates = kernels.chains_of(flat, scale)
        ctx.save_for_backward(flat, initial, scale, outputs)
        ctx.shape = outputs.shape
        shape = (*outputs.shape[:-1], outputs.shape[-1] // 2)
        return initial.view(shape), rates.view(shape)

    @staticmethod
    @closed_form
    def backward(ctx: Any, by_initial: Tensor, by_rates: Tensor) -> tuple[Tensor, None]:
        flat, initial, scale, _ = ctx.saved_tensors
        kernels: Any = _fused(flat)
        by_initial, by_rates = by_initial.reshape(initial.shape), by_rates.reshape(initial.shape)
        slopes = kernels.slopes_of(flat, scale, initial, by_initial.contiguous(), by_rates.contiguous())
        return slopes.view(ctx.shape), None


class _LogDensity(torch.autograd.Function):
    """Values and slopes in the forward pass, where everything that they share is at hand; the scale is a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, outputs: Tensor, scale: Tensor) -> Tensor:
        kernels: Any = _fused(outputs)
        flat, scale = _rows(outputs), scale.double()
        initial, rates = kernels.chains_of(flat, scale)
        law = torch.arange(len(flat), device=flat.device)
        wanted = any(ctx.needs_input_grad)
        found = backends.evaluate(
            DENSITY, x.detach().double().reshape(-1), initial, rates, law, "auto", gradients=wanted
        )
        if wanted:
            slopes = kernels.slopes_of(flat, scale, initial, found.d_initial, found.d_rates)
            ctx.save_for_backward(found.d_x, slopes, x, outputs)
            ctx.regular, ctx.shape = found.regular, outputs.shape
        return found.value.view(x.shape)

    @staticmethod
    @closed_form
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_x, slopes, *_ = ctx.saved_tensors
        weight, (by_x, by_outputs, _) = grad.reshape(-1), ctx.needs_input_grad
        return (
            backends.weighted(weight, d_x, ctx.regular).view(grad.shape) if by_x else None,
            backends.weighted(weight.to(slopes.dtype), slopes, ctx.regular).view(ctx.shape) if by_outputs else None,
            None,
        )


def _rows(outputs: Tensor) -> Tensor:
    return outputs.detach().reshape(-1, outputs.shape[-1]).contiguous()
