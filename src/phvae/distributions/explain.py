"""Where an observation spent its time: the phases of the chain, given the value it took."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from phvae.kernels import elimination, general, series

_INSTANT = 1e-30

Given = Literal["equal", "exceeds"]


class PhasePosterior(NamedTuple):
    """Posterior of the hidden chain, both of shape ``broadcast(x, batch) + (m,)``.

    ``entry`` is the probability of each entry phase, ``time`` the expected total time in each phase; the times add up
    to ``x``, or to ``x + mean_excess(x)`` when only ``X > x`` is known.
    """

    entry: Tensor
    time: Tensor


def _leaf(value: Tensor, shape: torch.Size, dims: int) -> Tensor:
    return value.detach().expand(*shape, *value.shape[value.ndim - dims :]).clone().requires_grad_()


def series_posterior(x: Tensor, initial: Tensor, rates: Tensor, given: Given) -> PhasePosterior:
    """Posterior for a series chain.

    Given ``X = x``: ``entry_i = α_i ∂log f/∂α_i`` and ``time_k = -λ_k (∂log S/∂λ_k) S/f``.
    Given ``X > x``: ``entry_i = α_i ∂log S/∂α_i`` and ``time_k = S_k(x) / (λ_k S(x))``, where ``S_k`` belongs to the
    chain with phase ``k`` passed twice, entered at phase ``k`` or before it. All by squaring: nothing is subtracted, so
    even the smallest probability is positive and keeps its digits.
    """
    x = x.detach()
    shape = torch.broadcast_shapes(x.shape, initial.shape[:-1], rates.shape[:-1])
    entry, speed = _leaf(initial, shape, 1), _leaf(rates, shape, 1)
    with torch.enable_grad():
        log_sf = series.log_survival(x, entry, speed, method="squaring")
        log_f = series.log_density(x, entry, speed, method="squaring")
        known = log_f if given == "equal" else log_sf
        (by_entry,) = torch.autograd.grad(known.sum(), entry, retain_graph=True)
        (by_speed,) = torch.autograd.grad(log_sf.sum(), speed)
    entry, speed = entry.detach(), speed.detach()
    # a phase that is never entered stays so, however steep the likelihood is in its weight
    posterior = torch.where(entry == 0, entry, entry * by_entry)
    if given == "equal":
        time = -speed * by_speed * (log_sf - log_f).detach().exp()[..., None]
        time = torch.where(x[..., None] == 0, 0 * entry, time)
    else:
        size = speed.shape[-1]
        phase, place = torch.arange(size, device=x.device), torch.arange(size + 1, device=x.device)
        twice = place - (place > phase[:, None]).long()
        reached = torch.where(phase <= phase[:, None], entry[..., None, :], 0.0)
        reached = torch.cat((reached, torch.zeros_like(reached[..., :1])), -1)
        never = (reached == 0).all(-1)
        # a chain that is entered nowhere is no chain: any other stands in for it
        reached = torch.where(never[..., None], 1.0, reached)
        again = series.log_survival(x[..., None], reached, speed[..., twice], method="squaring")
        time = torch.where(never, 0.0, (again - log_sf.detach()[..., None]).exp() / speed)
    return PhasePosterior(posterior, time)


def general_posterior(
    x: Tensor, initial: Tensor, generator: Tensor, exit_rates: Tensor, given: Given
) -> PhasePosterior:
    """Posterior for any chain: ``time_k = ∫ P(phase k at u, and what is known) du`` is the derivative by ``A_kk``.

    Given ``X > x`` the time after ``x`` is added: the phase at ``x`` times the expected sojourns from there on.
    """
    x = x.detach()
    shape = torch.broadcast_shapes(x.shape, initial.shape[:-1], generator.shape[:-2])
    # so short a time is the limit at zero to the last digit, and leaves a density to divide by
    fastest = -generator.detach().diagonal(dim1=-2, dim2=-1).amin(-1)
    x = torch.where(x == 0, _INSTANT / fastest, x)
    entry, flow = _leaf(initial, shape, 1), _leaf(generator, shape, 2)
    exits = exit_rates.detach().expand(*shape, -1)
    target = (exits if given == "equal" else torch.ones_like(exits)).clone().requires_grad_()
    with torch.enable_grad():
        known = general.log_form(x, entry, flow, target, exits)
        by_entry, by_flow, by_target = torch.autograd.grad(known.sum(), (entry, flow, target))
    time = by_flow.diagonal(dim1=-2, dim2=-1)
    if given == "exceeds":
        sojourns = elimination.sojourns(generator.detach(), exit_rates.detach())
        time = time + (by_target[..., None, :] @ sojourns)[..., 0, :]
    return PhasePosterior(entry.detach() * by_entry, time)
