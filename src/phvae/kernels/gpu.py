"""The likelihood on a CUDA device: a contour kernel for all rows, then squaring for those it puts on a list (Triton).

The list and its length stay in device memory, limits at zero and infinity are taken there too, and so the host never
waits: a training step can be launched ahead or captured in a graph.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from phvae.kernels import limits, squaring
from phvae.kernels.gpu_few import contour_few
from phvae.kernels.gpu_many import contour_many
from phvae.kernels.gpu_squaring import MOST_PHASES, squaring_listed
from phvae.kernels.nodes import (
    GRADIENT_CANCELLATION,
    GRADIENT_TRUNCATION,
    LONG,
    MANY_PHASES,
    MANY_VALUE_TRUNCATION,
    PROBES,
    RESOLVED_PHASES,
    SHORT,
    VALUE_CANCELLATION,
    VALUE_TRUNCATION,
)
from phvae.kernels.quantities import DOUBTFUL, Evaluation

__all__ = ["evaluate", "weighted"]

_FEW_WARPS = 4
_LANES, _PROBE_LANES = 32, 8  # powers of two; surplus lanes have weight zero
_MANY_ROWS, _MANY_WARPS = 64, 4
_SQUARING_WARPS = {16: 1, 32: 2, 64: 8}
_WEIGH_BLOCK = 1024
# Programs of the squaring kernel that share its list: enough to fill any device, few enough to start at no cost.
_SQUARING_PROGRAMS = 2048
# Below this a product of factors may be denormal, with few digits left.
_SMALLEST_PRODUCT = 1e-280


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes for few phases, row by row with 1/z; nodes for many phases and the probes, column by column."""
    short = [(zr, zi, wr, wi, zr / (zr * zr + zi * zi), -zi / (zr * zr + zi * zi)) for zr, zi, wr, wi in SHORT]
    # a spare lane sits at a harmless node with weight zero
    long = [*LONG, *[(1.0, 1.0, 0.0, 0.0)] * (_LANES - len(LONG))]
    few, many, probes = (torch.tensor(rows, dtype=torch.float64) for rows in (short, long, PROBES))
    return few.to(device), many.T.contiguous().to(device), probes.T.contiguous().to(device)


def evaluate(
    quantity: int, x: Tensor, initial: Tensor, rates: Tensor, law: Tensor, method: str, gradients: bool
) -> Evaluation:
    """Flat rows on a CUDA device, limits included; ``regular`` is never claimed, for the host does not look."""
    rows, phases = len(x), initial.shape[-1]
    kept = rows if gradients else 0

    def empty(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=x.device)

    status = empty(rows, dtype=torch.int8)
    found = Evaluation(empty(rows), empty(kept), empty(kept, phases), empty(kept, phases), status, regular=False)
    if not rows:
        return found
    listed, count = empty(rows, dtype=torch.int32), torch.zeros(1, dtype=torch.int32, device=x.device)
    few, many, probes = _tables(x.device)
    inputs = tuple(tensor.detach().contiguous() for tensor in (x, initial, rates, law))
    # no row has a cancellation below zero: squaring answers all of them
    kappas = (VALUE_CANCELLATION if method == "auto" else 0.0, GRADIENT_CANCELLATION)
    grid: Any
    if phases <= RESOLVED_PHASES:
        grid = (triton.cdiv(rows, 32 * _FEW_WARPS),)
        contour_few[grid](
            *inputs, few, *found[:5], listed, count, rows, len(few),
            phases, quantity, gradients, 32 * _FEW_WARPS, x.is_cuda, *kappas, _SMALLEST_PRODUCT,
            num_warps=_FEW_WARPS,
        )  # fmt: skip
    else:
        grid = (triton.cdiv(rows, _MANY_ROWS),)
        contour_many[grid](
            *inputs, many, probes, *found[:5], listed, count, rows, phases,
            quantity, gradients, _MANY_ROWS, _LANES, _PROBE_LANES, *kappas,
            VALUE_TRUNCATION if phases <= MANY_PHASES else MANY_VALUE_TRUNCATION, GRADIENT_TRUNCATION,
            _SMALLEST_PRODUCT,
            num_warps=_MANY_WARPS,
        )  # fmt: skip
    if phases <= MOST_PHASES.value:
        tile = max(16, triton.next_power_of_2(phases))
        grid = (min(rows, _SQUARING_PROGRAMS),)
        squaring_listed[grid](
            *inputs, *found[:5], listed, count, phases, quantity, gradients, tile, num_warps=_SQUARING_WARPS[tile]
        )
    else:
        doubtful = (status == DOUBTFUL).nonzero()[:, 0]
        squaring.fill(quantity, inputs[0], inputs[1], inputs[2], law, doubtful, found)
        limits.fill(quantity, x, initial, rates, law, found)
    return found


@triton.jit
def _weigh(weight_at, stride, slope_at, product_at, count, width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < count
    weight = tl.load(weight_at + at // width * stride, mask=live, other=0.0)
    slope = tl.load(slope_at + at, mask=live, other=0.0)
    # a weight of zero (a row masked out downstream) also silences an infinite slope
    tl.store(product_at + at, tl.where(weight == 0.0, 0.0, weight * slope), mask=live)


def weighted(weight: Tensor, slope: Tensor) -> Tensor:
    """``weight (n,)`` times ``slope (n,)`` or ``(n, m)``, in one pass over the slopes."""
    product = torch.empty_like(slope)
    if count := slope.numel():
        grid: Any = (triton.cdiv(count, _WEIGH_BLOCK),)
        width = count // len(weight)
        _weigh[grid](weight, weight.stride(0), slope, product, count, width, _WEIGH_BLOCK, num_warps=8)
    return product
