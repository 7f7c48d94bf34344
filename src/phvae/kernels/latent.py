"""From an encoder's outputs to a latent point and the divergence of its law from a standard normal one.

z = mean + exp(v / 2) noise,    KL = Σ (mean² + exp(v) - 1 - v) / 2,    v the log-variance within its bounds.
"""

import math
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from phvae.kernels.once import closed_form

__all__ = ["draw", "fused"]

Bounds = tuple[float, float]


def fused(outputs: Tensor) -> ModuleType | None:
    """The kernels of the device; None where there are none."""
    if outputs.device.type != "cpu":
        return None
    try:
        from phvae.kernels import cpu_latent
    except ModuleNotFoundError:  # no Numba
        return None
    return cpu_latent


def draw(outputs: Tensor, noise: Tensor, bounds: Bounds) -> tuple[Tensor, Tensor]:
    """Latent points and exact divergences with their slopes in the outputs, where there are kernels for both.

    Args:
        outputs: Means and log-variances side by side, shape ``(n, 2 d)``.
        noise: Standard normal numbers, shape ``(..., n, d)``.
        bounds: Bounds of a log-variance; beyond them it counts as the nearer one.

    Returns:
        Points, shape and type of the noise, and divergences, float64, shape ``(n,)``.

    >>> z, divergence = draw(torch.tensor([[1.0, 0.0]]), torch.tensor([[-0.5]]), (-30.0, 20.0))
    >>> float(z), float(divergence)
    (0.5, 0.5)
    """
    z, divergence = _Draw.apply(outputs, noise, bounds)  # type: ignore[no-untyped-call]
    return z, divergence


class _Draw(torch.autograd.Function):
    """Points and divergences in one pass, their slopes in another; noise and bounds are constants."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, noise: Tensor, bounds: Bounds) -> tuple[Tensor, Tensor]:
        kernels: Any = fused(outputs)
        given, outputs = outputs, outputs.detach().contiguous()
        draws = noise.reshape(math.prod(noise.shape[:-2]), *noise.shape[-2:]).contiguous()
        ctx.save_for_backward(outputs, draws, given)
        ctx.bounds = bounds
        points, divergence = kernels.drawn(outputs, draws, bounds)
        return points.view(noise.shape), divergence

    @staticmethod
    @closed_form
    def backward(ctx: Any, by_points: Tensor, by_divergence: Tensor) -> tuple[Tensor, None, None]:
        outputs, draws, _ = ctx.saved_tensors
        kernels: Any = fused(outputs)
        by_points = by_points.reshape(draws.shape).contiguous()
        return kernels.slopes_of(outputs, draws, ctx.bounds, by_points, by_divergence.contiguous()), None, None
