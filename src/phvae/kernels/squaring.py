r"""Scaling and squaring in non-negative arithmetic for a batch of series chains, in plain torch: slow, never wrong.

Values and derivatives come from `general.log_form` on the bidiagonal generator; nothing is subtracted there. Only the
slopes of S and F to the rates are taken another way: from the expected time t_k in phase k given X = x,

    ∂S/∂λ_k = -t_k f / λ_k,     ∂F/∂λ_k = t_k f / λ_k,     t_k = ∂ log f / ∂ A_kk,

because a chain that hardly moves loses them between numbers near one.
"""

import torch
from torch import Tensor

from phvae.kernels import general
from phvae.kernels.quantities import CDF, DENSITY, SURVIVAL, Evaluation

__all__ = ["fill"]


def fill(
    quantity: int, x: Tensor, initial: Tensor, rates: Tensor, law: Tensor, chosen: Tensor, found: Evaluation
) -> None:
    """Write the rows ``chosen`` of a flat batch, in place; any device."""
    for rows in chosen.split(max(1, 2**20 // initial.shape[-1] ** 2)):
        _fill(quantity, x[rows], initial[law[rows]], rates[law[rows]], rows, found)


def _fill(quantity: int, x: Tensor, initial: Tensor, rates: Tensor, rows: Tensor, found: Evaluation) -> None:
    phases = rates.shape[-1]
    generator = torch.diag_embed(-rates)
    if phases > 1:
        generator = generator + torch.diag_embed(rates[:, :-1], offset=1)
    exits = torch.cat((torch.zeros_like(rates[:, :-1]), rates[:, -1:]), -1)
    gradients = len(found.d_x) > 0
    if gradients:
        log_f, d_x, d_initial, by_generator = general.partials(x, initial, generator, exits, exits)
        stay, move = by_generator.diagonal(dim1=-2, dim2=-1), by_generator.diagonal(1, -2, -1)
    elif quantity == DENSITY:
        log_f = general.log_form(x, initial, generator, exits, exits)
    if quantity == DENSITY:
        found.value[rows] = log_f
        if gradients:
            # the last phase leaves through the exit, whose rate also weighs the density
            d_rates = torch.cat((move, 1 / rates[:, -1:]), -1) - stay
            # Euler's identity where the clock λ_m x has run: there inflow and outflow of the last phase nearly balance
            d_x = torch.where(rates[:, -1] * x < 1, d_x, ((rates * d_rates).sum(-1) - 1) / x)
            found.d_x[rows], found.d_initial[rows], found.d_rates[rows] = d_x, d_initial, d_rates
        return
    start, chain, ends, steered = initial, generator, torch.ones_like(exits), exits
    if quantity == CDF:
        # absorption as one more phase that is never left
        chain = torch.nn.functional.pad(generator, (0, 1, 0, 1))
        chain[:, :phases, phases] = exits
        start = torch.nn.functional.pad(initial, (0, 1))
        ends = torch.zeros_like(start)
        ends[:, phases] = 1
        steered = torch.zeros_like(start)
    value, reach = general.value_and_reach(x, start, chain, ends, steered)
    found.value[rows] = value
    if gradients:
        odds = (log_f - value).exp()
        sign = -1.0 if quantity == SURVIVAL else 1.0
        found.d_x[rows] = sign * odds
        found.d_initial[rows] = reach[:, :phases]
        found.d_rates[rows] = sign * stay * odds[:, None] / rates
