"""Draws of a general chain, jump by jump for all elements at once."""

import torch
from torch import Tensor

MOST_JUMPS = 10_000


def entry_phases(initial: Tensor, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    """Entry phase of each element, by inversion of the cumulated entry probabilities."""
    steps = initial.cumsum(-1)
    uniform = torch.rand((*shape, 1), dtype=initial.dtype, device=initial.device, generator=generator)
    return (uniform * steps[..., -1:] >= steps[..., :-1]).sum(-1)


def absorption_times(
    initial: Tensor, jumps: Tensor, exit_rates: Tensor, shape: torch.Size, generator: torch.Generator | None
) -> Tensor:
    """Simulated time to absorption, shape ``shape`` (which ends with the batch shape).

    Args:
        initial: Entry probabilities, shape ``(..., m)``.
        jumps: Jump rates with a zero diagonal, shape ``(..., m, m)``.
        exit_rates: Rates of absorption, shape ``(..., m)``.
        shape: Shape of the draws.
        generator: Source of randomness.
    """
    size = initial.shape[-1]
    count = initial[..., 0].numel()
    ways = torch.cat((jumps, exit_rates[..., None]), -1).reshape(count, size, size + 1).cumsum(-1)
    law = torch.arange(count, device=initial.device).reshape(initial.shape[:-1]).expand(shape).reshape(-1)
    phase = entry_phases(initial, shape, generator).reshape(-1)
    elapsed = torch.zeros(phase.shape, dtype=initial.dtype, device=initial.device)
    broken = ways[..., -1].isnan().any(-1) | initial.isnan().any(-1).reshape(count)
    elapsed[broken[law]] = torch.nan
    moving = (~elapsed.isnan()).nonzero()[:, 0]
    while len(moving):
        way = ways[law[moving], phase[moving]]
        total = way[:, -1]
        pause = torch.empty_like(total).exponential_(generator=generator)
        elapsed[moving] += pause / total
        uniform = torch.rand(total.shape, dtype=total.dtype, device=total.device, generator=generator)
        phase[moving] = ((uniform * total)[:, None] >= way[:, :-1]).sum(-1)
        moving = moving[phase[moving] < size]
    return elapsed.reshape(shape)
