r"""Uniformization: the chain watched at the jumps of a Poisson process of rate Λ = λ_m, in log scale.

    exp(A x) = Σ_k e^{-Λx} (Λx)^k / k! · P^k,     P = I + A / Λ

The textbook method, kept for comparison: about Λx terms per row, so heavy tails make it slow. Poisson weights stay in
logarithms and the row vector α P^k is rescaled at every step, so nothing underflows; terms are added until the bound on
what is missing is below 1e-8 of the sum itself, and never fewer than m of them, since an early entry phase reaches the
exit only after m - 1 jumps.
"""

import math

import torch
from torch import Tensor

from phvae.kernels.quantities import CDF, DENSITY

__all__ = ["LARGEST_JUMPS", "TOLERANCE", "log_value"]

LARGEST_JUMPS = 1e5
TOLERANCE = 1e-8


def log_value(quantity: int, x: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """Log of a quantity to relative accuracy 1e-8; differentiable through the sum.

    Args:
        quantity: ``DENSITY``, ``SURVIVAL`` or ``CDF``.
        x: Points, shape ``(n,)``; a ``ValueError`` where ``Λ x`` exceeds `LARGEST_JUMPS`.
        initial: Start weights, shape ``(n, m)``.
        rates: Rates, shape ``(n, m)``.
    """
    ordered = (rates[:, 0] > 0) & (rates.diff(dim=-1) >= 0).all(-1) & (rates[:, -1] < math.inf)
    sound = ordered & (initial >= 0).all(-1) & (initial.sum(-1) > 0) & (initial < math.inf).all(-1) & (x >= 0)
    clock = rates[:, -1] * x
    long = sound & (clock > LARGEST_JUMPS)
    if bool(long.any()):
        row = int(long.nonzero()[0])
        raise ValueError(
            f"x[{row}] = {float(x[row]):g} times the largest rate is {float(clock[row]):.3g}; uniformization takes at "
            f"most {LARGEST_JUMPS:g} expected jumps, use method='auto'"
        )
    answers = torch.full_like(x, math.nan)
    if not bool(sound.any()):
        return answers
    return answers.masked_scatter(sound, _sum(quantity, clock[sound], initial[sound], rates[sound]))


def _sum(quantity: int, clock: Tensor, initial: Tensor, rates: Tensor) -> Tensor:
    """Log of Σ_k Poisson(k; Λx) · reward(α P^k), kept as ``total · exp(level)`` with a level that has no gradient."""
    phases = rates.shape[-1]
    move = rates / rates[:, -1:]
    vector, log_scale = initial, torch.zeros_like(clock)
    absorbed, total = torch.zeros_like(clock), torch.zeros_like(clock)
    level = torch.full_like(clock, -math.inf)
    moving = clock > 0
    log_clock = torch.where(moving, clock, 1.0).log()
    k = 0
    while True:
        log_weight = k * log_clock - clock - math.lgamma(k + 1)
        if k > 0:
            log_weight = torch.where(moving, log_weight, -math.inf)
        if quantity == DENSITY:
            reward, log_unit = vector[:, -1] * rates[:, -1], log_weight + log_scale
        elif quantity == CDF:
            reward, log_unit = absorbed, log_weight
        else:
            reward, log_unit = vector.sum(-1), log_weight + log_scale
        with torch.no_grad():
            highest = torch.maximum(level, log_unit)
            carry = (level - highest).exp()
        total = total * carry + reward * (log_unit - highest).exp()
        level = highest
        if k >= phases - (quantity != CDF) and _complete(
            quantity, k, clock, initial, vector, log_scale, rates, total, level
        ):
            return total.log() + level
        absorbed = absorbed + vector[:, -1] * log_scale.exp()
        passed = vector * move
        vector = vector - passed + torch.nn.functional.pad(passed[:, :-1], (1, 0))
        with torch.no_grad():
            mass = vector.sum(-1)
            mass = torch.where(mass > 0, mass, 1.0)
        vector, log_scale = vector / mass[:, None], log_scale + mass.log()
        k += 1


@torch.no_grad()
def _complete(
    quantity: int, k: int, clock: Tensor, initial: Tensor, vector: Tensor, log_scale: Tensor, rates: Tensor,
    total: Tensor, level: Tensor,
) -> bool:  # fmt: skip
    """Whether the terms after k are negligible in every row, by a bound on the Poisson tail times the reward."""
    if bool((clock >= k + 2).any()):
        return False
    log_tail = (k + 1) * clock.log() - clock - math.lgamma(k + 2) - torch.log1p(-clock / (k + 2))
    if quantity == DENSITY:
        log_largest = vector.sum(-1).log() + log_scale + rates[:, -1].log()
    elif quantity == CDF:
        log_largest = initial.sum(-1).log()
    else:
        log_largest = vector.sum(-1).log() + log_scale
    # a row at x = 0, or whose whole mass is absorbed, has nothing to add: minus infinity on the left
    missing = log_tail + log_largest - total.log() - level
    return not bool((missing > math.log(TOLERANCE)).any())
