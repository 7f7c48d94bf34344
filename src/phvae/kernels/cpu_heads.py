"""Start vectors and rates of a small batch fused for the CPU (Numba): one pass there and one back."""

import math
from typing import Any

import numba
import numpy as np

__all__ = ["chains_of", "slopes_of"]

# From here on softplus(x) = x in float64; `heads` has the same, and compiled code keeps constants of its own module.
SOFTPLUS_LINEAR = 40.0

_jit: Any = numba.njit(nogil=True, cache=True, error_model="numpy")


@_jit
def chains_of(outputs: np.ndarray, scale: np.ndarray, initial: np.ndarray, rates: np.ndarray) -> None:
    """Write start vectors and rates, both ``(n, m)``; row ``r`` has scale ``r % D``."""
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
def slopes_of(
    outputs: np.ndarray,
    scale: np.ndarray,
    initial: np.ndarray,
    by_initial: np.ndarray,
    by_rates: np.ndarray,
    slopes: np.ndarray,
) -> None:
    """Write the slopes ``(n, 2 m)`` of a number in the outputs from those in start vectors and rates."""
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
