"""Start vectors and rates for the CPU, eight rows at once (Numba): one pass there and one back."""

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from phvae.kernels.backends import in_threads
from phvae.kernels.lane_functions import exponential, softplus
from phvae.kernels.lanes import LANES, greater, load, spread, store

__all__ = ["chains_of", "slopes_of"]

_jit: Any = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})


def chains_of(outputs: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Start vectors and rates, both ``(n, m)``, from outputs ``(n, 2 m)``; row ``r`` has scale ``r % D``."""
    rows, phases = len(outputs), outputs.shape[1] // 2
    # numpy allocates a small array several times faster than torch does
    initial, rates = np.empty((rows, phases)), np.empty((rows, phases))
    inputs = outputs.numpy(), scale.numpy()
    in_threads(rows, phases, lambda begin, end: _chains(*inputs, begin, end, initial, rates))
    return torch.from_numpy(initial), torch.from_numpy(rates)


def slopes_of(outputs: Tensor, scale: Tensor, initial: Tensor, by_initial: Tensor, by_rates: Tensor) -> Tensor:
    """Slope of a number in the outputs from its slopes in start vectors and rates; shape and type of the outputs."""
    inputs = tuple(tensor.numpy() for tensor in (outputs, scale, initial, by_initial, by_rates))
    slopes = np.empty_like(inputs[0])
    in_threads(len(initial), initial.shape[1], lambda begin, end: _slopes(*inputs, begin, end, slopes))
    return torch.from_numpy(slopes)


@_jit
def _chains(
    outputs: np.ndarray, scale: np.ndarray, begin: int, end: int, initial: np.ndarray, rates: np.ndarray
) -> None:
    m = initial.shape[1]
    # a lane for each row: its outputs, then 1 / scale
    w = np.zeros((2 * m + 1) * LANES)
    for block in range(begin, end, LANES):
        filled = min(LANES, end - block)
        for lane in range(filled):
            r = block + lane
            for i in range(2 * m):
                w[i * LANES + lane] = outputs[r, i]
            w[2 * m * LANES + lane] = 1.0 / scale[r % len(scale)]
        top = load(w, 0)
        for i in range(1, m):
            top = greater(load(w, i * LANES), top)
        total = spread(0.0)
        for i in range(m):
            weight = exponential(load(w, i * LANES) - top)
            store(w, i * LANES, weight)
            total = total + weight
        share, unit, reached = 1.0 / total, load(w, 2 * m * LANES), spread(0.0)
        for i in range(m):
            store(w, i * LANES, load(w, i * LANES) * share)
            step, _ = softplus(load(w, (m + i) * LANES))
            reached = reached + step
            store(w, (m + i) * LANES, reached * unit)
        for lane in range(filled):
            r = block + lane
            for i in range(m):
                initial[r, i] = w[i * LANES + lane]
                rates[r, i] = w[(m + i) * LANES + lane]


@_jit
def _slopes(
    outputs: np.ndarray,
    scale: np.ndarray,
    initial: np.ndarray,
    by_initial: np.ndarray,
    by_rates: np.ndarray,
    begin: int,
    end: int,
    slopes: np.ndarray,
) -> None:
    m = initial.shape[1]
    w = np.zeros(m * LANES)
    for block in range(begin, end, LANES):
        filled = min(LANES, end - block)
        for lane in range(filled):
            for i in range(m):
                w[i * LANES + lane] = outputs[block + lane, m + i]
        for i in range(m):
            _, slope = softplus(load(w, i * LANES))
            store(w, i * LANES, slope)
        for lane in range(filled):
            r = block + lane
            mean = 0.0
            for i in range(m):
                mean += initial[r, i] * by_initial[r, i]
            unit = 1.0 / scale[r % len(scale)]
            later = 0.0
            for i in range(m - 1, -1, -1):
                slopes[r, i] = initial[r, i] * (by_initial[r, i] - mean)
                later += by_rates[r, i]
                slopes[r, m + i] = later * unit * w[i * LANES + lane]
