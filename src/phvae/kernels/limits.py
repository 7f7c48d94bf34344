r"""What log density, survival and cdf tend to as x goes to 0 or to infinity, and NaN for rows that are no law.

With j the last phase of positive start weight, near zero  f ~ α_j λ_j···λ_m x^(m-j) / (m-j)!  and F is its integral, so
gradients to α and λ have limits there. With i the first such phase, at infinity  d log S / dx -> -λ_i.
"""

import math

import torch
from torch import Tensor

from phvae.kernels.quantities import BOUNDARY, CDF, DENSITY, INVALID, SURVIVAL, Evaluation

__all__ = ["fill"]


def fill(quantity: int, x: Tensor, initial: Tensor, rates: Tensor, law: Tensor, found: Evaluation) -> None:
    """Write the rows whose status is BOUNDARY or INVALID, in place."""
    broken = found.status == INVALID
    found.value[broken] = math.nan
    for derivative in (found.d_x, found.d_initial, found.d_rates):
        if len(derivative):
            derivative[broken] = math.nan
    for rows, limit in (
        ((found.status == BOUNDARY) & (x == 0), _at_zero),
        ((found.status == BOUNDARY) & (x == math.inf), _at_infinity),
    ):
        index = rows.nonzero()[:, 0]
        if len(index):
            value, d_x, d_initial, d_rates = limit(quantity, initial[law[index]], rates[law[index]])
            found.value[index] = value
            if len(found.d_x):
                found.d_x[index], found.d_initial[index], found.d_rates[index] = d_x, d_initial, d_rates


def _at_zero(quantity: int, initial: Tensor, rates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    phases = initial.shape[-1]
    exit_density = initial[:, -1] * rates[:, -1]
    if quantity == SURVIVAL:
        mass = initial.sum(-1)
        slopes = (1 / mass)[:, None].expand_as(initial)
        return mass.log(), -exit_density / mass, slopes, torch.zeros_like(rates)
    phase = torch.arange(phases, device=initial.device)
    last = torch.where(initial > 0, phase, -1).amax(-1, keepdim=True)
    d_initial = torch.where(phase > last, math.inf, torch.where(phase == last, 1 / initial, 0.0))
    d_rates = torch.where(phase >= last, 1 / rates, 0.0)
    if quantity == CDF:
        return torch.full_like(exit_density, -math.inf), torch.full_like(exit_density, math.inf), d_initial, d_rates
    slope = -rates[:, -1]
    if phases > 1:
        slope = slope + initial[:, -2] * rates[:, -2] / initial[:, -1]
    d_x = torch.where(initial[:, -1] > 0, slope, math.inf)
    return exit_density.log(), d_x, d_initial, d_rates


def _at_infinity(quantity: int, initial: Tensor, rates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    first = (initial > 0).int().argmax(-1, keepdim=True)
    flat = torch.zeros_like(rates)
    if quantity == CDF:
        mass = initial.sum(-1)
        return mass.log(), torch.zeros_like(mass), (1 / mass)[:, None].expand_as(initial), flat
    assert quantity in (DENSITY, SURVIVAL)
    lost = torch.full_like(rates, math.nan)  # minus infinity moves by an infinite amount: there is no slope to report
    return torch.full_like(rates[:, 0], -math.inf), -rates.gather(-1, first)[:, 0], lost, lost
