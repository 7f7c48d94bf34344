"""Who computes a flat batch: the fused kernel of the device, then squaring for the rows it doubts, then the limits."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phvae.kernels import limits, squaring
from phvae.kernels.quantities import BOUNDARY, CDF, DOUBTFUL, INVALID, SURVIVAL, TRUSTED, Evaluation

__all__ = ["evaluate", "fused_phases", "in_threads", "shares", "weighted"]

# Below this many phases in all, starting a thread costs more than it saves.
_THREAD_ENTRIES = 100_000


def evaluate(
    quantity: int, x: Tensor, initial: Tensor, rates: Tensor, law: Tensor, method: str, *, gradients: bool
) -> Evaluation:
    """Log of a quantity for rows ``x (n,)`` with parameters ``initial[law], rates[law]``, by "auto" or "squaring".

    Without ``gradients`` the derivative fields are empty tensors.
    """
    arguments = x, initial, rates, law, method, gradients
    if quantity != CDF:
        return _direct(quantity, *arguments)
    found = _cdf(*arguments)
    if not found.regular:
        limits.fill(quantity, x, initial, rates, law, found)
    return found


def fused_phases() -> int:
    """Up to so many phases the kernels of a GPU do the whole work; 0 without Triton."""
    try:
        from phvae.kernels import gpu_squaring
    except ImportError:
        return 0
    return int(gpu_squaring.MOST_PHASES.value)


def weighted(weight: Tensor, slope: Tensor, regular: bool) -> Tensor:
    """``weight (n,)`` times ``slope (n,)`` or ``(n, m)``; a weight of zero also silences an infinite slope."""
    if not regular and slope.is_cuda:
        try:
            from phvae.kernels import gpu
        except ImportError:
            pass
        else:
            return gpu.weighted(weight, slope)
    weight = weight if slope.dim() == 1 else weight[:, None]
    product = weight * slope
    return product if regular else torch.where(weight == 0, 0.0, product)


def _direct(
    quantity: int, x: Tensor, initial: Tensor, rates: Tensor, law: Tensor, method: str, gradients: bool
) -> Evaluation:
    if x.device.type == "cpu":
        found = _on_cpu(quantity, x, initial, rates, law, method, gradients)
    else:
        try:
            from phvae.kernels import gpu
        except ImportError:  # no Triton: slower, and just as right
            found = _in_torch(quantity, x, initial, rates, law, gradients)
        else:
            return gpu.evaluate(quantity, x, initial, rates, law, method, gradients)
    if not found.regular:
        limits.fill(quantity, x, initial, rates, law, found)
    return found


def _in_torch(quantity: int, x: Tensor, initial: Tensor, rates: Tensor, law: Tensor, gradients: bool) -> Evaluation:
    """Every row by squaring in plain torch, on any device."""
    lawful = (rates[:, 0] > 0) & (rates.diff(dim=-1) >= 0).all(-1) & (rates[:, -1] < math.inf)
    lawful &= ((initial >= 0) & (initial < math.inf)).all(-1) & (initial > 0).any(-1)
    inside = (x > 0) & (x < math.inf)
    status = torch.where(inside, DOUBTFUL, BOUNDARY).masked_fill(~(lawful[law] & (x >= 0)), INVALID).to(torch.int8)
    kept = (len(x) if gradients else 0, initial.shape[-1])

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float64, device=x.device)

    found = Evaluation(empty(len(x)), empty(kept[0]), empty(*kept), empty(*kept), status, regular=True)
    chosen = (status == DOUBTFUL).nonzero()[:, 0]
    squaring.fill(quantity, x.detach(), initial.detach(), rates.detach(), law, chosen, found)
    return found._replace(regular=len(chosen) == len(x))


def _cdf(x: Tensor, initial: Tensor, rates: Tensor, law: Tensor, method: str, gradients: bool) -> Evaluation:
    """F as the complement of S above the median, where S is the smaller, and directly below it."""
    over = _direct(SURVIVAL, x, initial, rates, law, method, gradients)
    log_mass = initial.sum(-1).log()[law]
    log_sf = over.value - log_mass
    odds = 1 / torch.expm1(-log_sf)
    found = over._replace(
        value=log_mass + torch.log1p(-log_sf.exp()),
        d_x=-odds * over.d_x if gradients else over.d_x,
        # F = Σα - S
        d_initial=(1 + odds)[:, None] * (-log_mass).exp()[:, None] - odds[:, None] * over.d_initial
        if gradients
        else over.d_initial,
        d_rates=-odds[:, None] * over.d_rates if gradients else over.d_rates,
    )
    below = ((log_sf > -math.log(2)) & (over.status < BOUNDARY)).nonzero()[:, 0]
    if len(below):
        under = _direct(CDF, x[below], initial, rates, law[below], method, gradients)
        found.value[below], found.status[below] = under.value, under.status
        if gradients:
            found.d_x[below], found.d_initial[below], found.d_rates[below] = under.d_x, under.d_initial, under.d_rates
    return found


def shares(quantity: int, x: Tensor, initial: Tensor, rates: Tensor, *, gradients: bool = True) -> dict[str, float]:
    """Share of the rows ``x (n,)``, ``initial (n, m)``, ``rates (n, m)`` that each part of "auto" answers."""
    law = torch.arange(len(x), device=x.device)
    status = evaluate(quantity, x, initial, rates, law, "auto", gradients=gradients).status
    names = {"contour": TRUSTED, "squaring": DOUBTFUL, "limit": BOUNDARY, "invalid": INVALID}
    return {name: float((status == code).double().mean()) for name, code in names.items()}


def _on_cpu(
    quantity: int, x: Tensor, initial: Tensor, rates: Tensor, law: Tensor, method: str, gradients: bool
) -> Evaluation:
    from phvae.kernels import cpu, cpu_squaring

    rows, phases = len(x), initial.shape[-1]
    kept = rows if gradients else 0
    # numpy allocates and compares a small array several times faster than torch does
    outputs = (np.empty(rows), np.empty(kept), np.empty((kept, phases)), np.empty((kept, phases)))
    status = np.empty(rows, dtype=np.int8)
    inputs = tuple(tensor.contiguous().numpy(force=True) for tensor in (x, initial, rates, law))
    if method == "auto":
        contour: Any = cpu.contour_rows
        in_threads(rows, phases, lambda begin, end: contour(quantity, gradients, *inputs, begin, end, *outputs, status))
    else:
        classify: Any = cpu.classify_rows
        classify(*inputs, 0, rows, status)
    regular = True
    if status.any():
        regular = not bool((status >= BOUNDARY).any())
        doubtful = np.flatnonzero(status == DOUBTFUL)
        in_threads(
            len(doubtful),
            phases**2,
            lambda begin, end: cpu_squaring.squaring_rows(quantity, gradients, *inputs, doubtful, begin, end, *outputs),
        )
    value, d_x, d_initial, d_rates = map(torch.from_numpy, outputs)
    return Evaluation(value, d_x, d_initial, d_rates, torch.from_numpy(status), regular)


def in_threads(rows: int, phases: int, work: Any) -> None:
    """Run ``work(begin, end)`` over all rows, on as many threads as torch uses and the work deserves."""
    threads = min(torch.get_num_threads(), math.ceil(rows * phases / _THREAD_ENTRIES))
    if threads <= 1:
        work(0, rows)
        return
    edges = [rows * k // threads for k in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        # list() brings back what a thread raised
        list(pool.map(work, edges[:-1], edges[1:]))
