"""Latent points and divergences for the CPU (Numba): one pass there and one back."""

import math
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from phvae.kernels.backends import in_threads

__all__ = ["drawn", "slopes_of"]

_jit: Any = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})


def drawn(outputs: Tensor, noise: Tensor, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Points ``(s, n, d)`` and divergences ``(n,)`` from outputs ``(n, 2 d)`` and noise ``(s, n, d)``."""
    inputs = outputs.numpy(), noise.numpy(), *bounds
    points, divergence = np.empty_like(inputs[1]), np.empty(len(outputs))
    in_threads(len(outputs), noise.shape[-1], lambda begin, end: _drawn(*inputs, begin, end, points, divergence))
    return torch.from_numpy(points), torch.from_numpy(divergence)


def slopes_of(
    outputs: Tensor, noise: Tensor, bounds: tuple[float, float], by_points: Tensor, by_divergence: Tensor
) -> Tensor:
    """Slope of a number in the outputs from its slopes in points and divergences; shape and type of the outputs."""
    inputs = outputs.numpy(), noise.numpy(), *bounds, by_points.numpy(), by_divergence.numpy()
    slopes = np.empty_like(inputs[0])
    in_threads(len(outputs), noise.shape[-1], lambda begin, end: _slopes(*inputs, begin, end, slopes))
    return torch.from_numpy(slopes)


@_jit
def _drawn(
    outputs: np.ndarray,
    noise: np.ndarray,
    lower: float,
    upper: float,
    begin: int,
    end: int,
    points: np.ndarray,
    divergence: np.ndarray,
) -> None:
    draws, _, d = noise.shape
    for r in range(begin, end):
        total = 0.0
        for i in range(d):
            mean, given = np.float64(outputs[r, i]), np.float64(outputs[r, d + i])
            # comparisons that leave a NaN what it is
            log_variance = lower if given < lower else upper if given > upper else given
            deviation = math.exp(log_variance / 2.0)
            for s in range(draws):
                points[s, r, i] = mean + deviation * noise[s, r, i]
            total += mean * mean + (deviation * deviation - 1.0 - log_variance)
        divergence[r] = total / 2.0


@_jit
def _slopes(
    outputs: np.ndarray,
    noise: np.ndarray,
    lower: float,
    upper: float,
    by_points: np.ndarray,
    by_divergence: np.ndarray,
    begin: int,
    end: int,
    slopes: np.ndarray,
) -> None:
    draws, _, d = noise.shape
    for r in range(begin, end):
        for i in range(d):
            mean, log_variance = np.float64(outputs[r, i]), np.float64(outputs[r, d + i])
            by_mean, by_deviation = by_divergence[r] * mean, 0.0
            for s in range(draws):
                by_mean += by_points[s, r, i]
                by_deviation += by_points[s, r, i] * np.float64(noise[s, r, i])
            slopes[r, i] = by_mean
            # beyond its bounds a log-variance moves nothing
            by_log_variance = 0.0
            if lower <= log_variance <= upper:
                deviation = math.exp(log_variance / 2.0)
                by_log_variance = (deviation * by_deviation + by_divergence[r] * (deviation * deviation - 1.0)) / 2.0
            slopes[r, d + i] = by_log_variance
