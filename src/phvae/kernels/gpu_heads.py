"""Start vectors and rates for CUDA: one kernel there and one back, in place of a dozen small ones (Triton)."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["chains_of", "slopes_of"]

_TILE = 512  # entries of a program's tile
# From here on softplus(x) = x in float64, as in `heads`.
_LINEAR = tl.constexpr(40.0)


@triton.jit
def _chains(outputs_at, scale_at, initial_at, rates_at, rows, columns, phases, P: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, P)[None, :]
    live = (r < rows)[:, None] & (k < phases)
    here = r[:, None] * (2 * phases) + k
    start = tl.load(outputs_at + here, mask=live, other=-float("inf")).to(tl.float64)
    step = tl.load(outputs_at + here + phases, mask=live, other=0.0).to(tl.float64)
    top = tl.max(start, 1)
    top = tl.where(r < rows, top, 0.0)
    weight = tl.exp(start - top[:, None])
    total = tl.sum(weight, 1)
    total = tl.where(r < rows, total, 1.0)
    small = tl.exp(tl.minimum(step, _LINEAR))
    whole = 1.0 + small
    # log(1 + e) with all digits for small e, whatever the rounding of 1 + e
    bent = tl.where(whole == 1.0, small, tl.log(whole) * small / tl.where(whole == 1.0, 1.0, whole - 1.0))
    speed = tl.where(live, tl.where(step > _LINEAR, step, bent), 0.0)
    scale = tl.load(scale_at + r % columns, mask=r < rows, other=1.0)
    there = r[:, None] * phases + k
    tl.store(initial_at + there, weight / total[:, None], mask=live)
    tl.store(rates_at + there, tl.cumsum(speed, 1) * (1.0 / scale)[:, None], mask=live)


@triton.jit
def _slopes(
    outputs_at, scale_at, initial_at, by_initial_at, by_rates_at, slopes_at, rows, columns, phases,
    P: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, P)[None, :]
    live = (r < rows)[:, None] & (k < phases)
    here, there = r[:, None] * (2 * phases) + k, r[:, None] * phases + k
    initial = tl.load(initial_at + there, mask=live, other=0.0)
    by_initial = tl.load(by_initial_at + there, mask=live, other=0.0)
    by_rates = tl.load(by_rates_at + there, mask=live, other=0.0)
    step = tl.load(outputs_at + here + phases, mask=live, other=0.0).to(tl.float64)
    scale = tl.load(scale_at + r % columns, mask=r < rows, other=1.0)
    mean = tl.sum(initial * by_initial, 1)
    later = tl.cumsum(by_rates, 1, reverse=True) * (1.0 / scale)[:, None]
    into = slopes_at.dtype.element_ty
    tl.store(slopes_at + here, (initial * (by_initial - mean[:, None])).to(into), mask=live)
    tl.store(slopes_at + here + phases, (later / (1.0 + tl.exp(-step))).to(into), mask=live)


def _launch(kernel: Any, outputs: Tensor, columns: int, *arguments: Tensor) -> None:
    rows, phases = len(outputs), outputs.shape[1] // 2
    if rows:
        tile = triton.next_power_of_2(phases)
        block = max(1, _TILE // tile)
        kernel[(triton.cdiv(rows, block),)](
            outputs, *arguments, rows, columns, phases, tile, block, num_warps=4
        )  # fmt: skip


def chains_of(outputs: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Start vectors and rates, both ``(n, m)``, from outputs ``(n, 2 m)``; row ``r`` has scale ``r % D``."""
    initial = torch.empty((len(outputs), outputs.shape[1] // 2), dtype=torch.float64, device=outputs.device)
    rates = torch.empty_like(initial)
    _launch(_chains, outputs, len(scale), scale, initial, rates)
    return initial, rates


def slopes_of(outputs: Tensor, scale: Tensor, initial: Tensor, by_initial: Tensor, by_rates: Tensor) -> Tensor:
    """Slope of a number in the outputs from its slopes in start vectors and rates; shape and type of the outputs."""
    slopes = torch.empty_like(outputs)
    _launch(_slopes, outputs, len(scale), scale, initial, by_initial, by_rates, slopes)
    return slopes
