"""Any acyclic phase-type representation as a series chain with the same number of phases (Cumani, 1982).

In series form the law is a mixture of the transforms of the sub-chains that end at the exit,

    P_k(s) = prod_{j >= k} r_j / (s + r_j),      r_1 <= ... <= r_n,

and P_{n+1} = 1. Two identities are all it takes, and neither has a negative term: with h(r) = r / (s + r),

    h(r) = (r/λ) h(λ) + (1 - r/λ) h(λ) h(r)       for r <= λ    (a slow phase makes room for a faster one),
    h(λ) = (λ/μ) h(μ) + (1 - λ/μ) h(μ) h(λ)       for λ <= μ    (the same, read from the other side).

Every difference is one of two given rates, so each weight keeps its relative accuracy however stiff the chain.
"""

import numpy as np
import torch
from torch import Tensor

from phvae.distributions import checks
from phvae.distributions.checks import Numbers
from phvae.kernels.general import row_deficits

__all__ = ["insert_rate", "to_series"]


def to_series(initial: Numbers, generator: Numbers, exit_rates: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Series canonical form (initial, rates) of an acyclic phase-type law, rates ascending.

    A phase of rate λ that moves to phase j with probability p_j and leaves the chain with probability p_0 has the
    transform h(λ) (p_0 + Σ_j p_j L_j(s)). Phases are visited from the exit backwards; each adds its rate to the
    basis P_k, in which all laws so far are kept as non-negative vectors.

    Args:
        initial: start probabilities, shape (..., m).
        generator: sub-generator, shape (..., m, m): off-diagonal rates >= 0, row sums <= 0, no cycle.
        exit_rates: minus the row sums where they are known better than the rows tell, shape (..., m).

    Returns:
        Start probabilities and ascending rates, each (..., m) in float64, differentiable in both arguments.

    Reference: A. Cumani, Microelectronics and Reliability 22 (1982) 583-602.

    >>> initial, rates = to_series(torch.tensor([0.5, 0.5]), torch.tensor([[-4.0, 0.0], [0.0, -1.0]]))
    >>> initial, rates                                     # two parallel phases become two in a row
    (tensor([0.3750, 0.6250], dtype=torch.float64), tensor([1., 4.], dtype=torch.float64))
    """
    initial, generator = checks.as_tensor("initial", initial), checks.as_tensor("generator", generator)
    batch = checks.same_phases(("initial", initial, 1), ("generator", generator, 2))
    checks.require_entry(initial)
    checks.require_generator(generator)
    if exit_rates is None:
        exit_rates = row_deficits(generator.double(), torch.finfo(generator.dtype).eps)
    m = initial.shape[-1]
    initial = initial.double().expand(*batch, m).reshape(-1, m)
    generator = generator.double().expand(*batch, m, m).reshape(-1, m, m)
    rates, jumps = _jump_chain(generator, exit_rates.expand(*batch, m).reshape(-1, m))

    order = _exit_first(generator, batch)
    rates = torch.gather(rates, 1, order)
    initial = torch.gather(initial, 1, order)
    jumps = torch.gather(jumps, 1, order[:, :, None].expand(-1, -1, m + 1))
    exits, moves = jumps[..., m:], torch.gather(jumps, 2, order[:, None, :].expand(-1, m, -1))

    basis = rates[:, :0]
    laws = torch.ones_like(rates[:, :1, None])  # the absorbed chain: the constant 1
    for i in range(m):
        rate = rates[:, i : i + 1]
        weights = torch.cat([exits[:, i], moves[:, i, :i]], dim=1)
        # Absorption is row 0 of `laws`; the phases done so far follow it in the order they were visited.
        successor = (weights[:, :, None] * laws).sum(1)
        added = _precede(successor, basis, rate)
        laws = torch.cat([_widen(laws, basis[:, None, :], rate[:, None, :]), added[:, None, :]], dim=1)
        basis = torch.cat([basis, rate], dim=1).sort(dim=1).values
    mixture = (initial[:, :, None] * laws[:, 1:]).sum(1)
    return mixture[:, :m].reshape(*batch, m), basis.reshape(*batch, m)


def insert_rate(initial: Tensor, rates: Tensor, rate: Tensor | float) -> tuple[Tensor, Tensor]:
    """The same law with one more phase, of the given rate.

    Each P_k with r_k <= λ becomes (r_k/λ) P'_{k+1} + (1 - r_k/λ) P'_k; faster phases keep their weights. If λ lies
    above r_1 and all start probabilities are positive, they stay so.

    Args:
        initial: start probabilities, shape (..., m).
        rates: ascending rates, shape (..., m).
        rate: the rate λ > 0 to insert, a number or shape (...).

    Returns:
        Start probabilities and ascending rates, each (..., m + 1) in float64.

    >>> insert_rate(torch.tensor([1.0]), torch.tensor([1.0]), 4.0)
    (tensor([0.7500, 0.2500], dtype=torch.float64), tensor([1., 4.], dtype=torch.float64))
    """
    initial, rates = initial.double(), rates.double()
    new = torch.as_tensor(rate, dtype=torch.float64, device=rates.device)
    if not bool(((new > 0) & torch.isfinite(new)).all()):
        raise ValueError(f"rate is {new.tolist()}; give a positive finite rate")
    batch = torch.broadcast_shapes(initial.shape[:-1], rates.shape[:-1], new.shape)
    m = rates.shape[-1]
    initial, rates, new = initial.expand(*batch, m), rates.expand(*batch, m), new.expand(batch)[..., None]
    absorbed = torch.zeros_like(new)
    widened = _widen(torch.cat([initial, absorbed], dim=-1), rates, new)
    return widened[..., : m + 1], torch.cat([rates, new], dim=-1).sort(dim=-1).values


def _widen(weights: Tensor, basis: Tensor, rate: Tensor) -> Tensor:
    """Weights over P_1..P_{n+1} of the basis rates, rewritten over the basis that also holds `rate`."""
    slower = basis < rate
    on = torch.where(slower, basis / rate, torch.ones_like(basis))
    stay = torch.where(slower, (rate - basis) / rate, torch.zeros_like(basis))
    kept, last = weights[..., :-1], weights[..., -1:]
    none = torch.zeros_like(last)
    return torch.cat([kept * stay, none, none], -1) + torch.cat([none, kept * on, last], -1)


def _precede(weights: Tensor, basis: Tensor, rate: Tensor) -> Tensor:
    """Law of a phase of the given rate followed by Σ_k weights_k P_k, over the basis that also holds `rate`."""
    n = basis.shape[-1]
    pending = weights[..., n]
    columns = [torch.zeros_like(pending)]  # nothing stays at the constant 1: the phase takes time
    for k in reversed(range(n)):
        neighbour, own = basis[..., k], rate[..., 0]
        faster = neighbour > own
        columns.append(pending * torch.where(faster, own / neighbour, torch.ones_like(own)))
        pending = pending * torch.where(faster, (neighbour - own) / neighbour, torch.zeros_like(own)) + weights[..., k]
    columns.append(pending)
    return torch.stack(columns[::-1], dim=-1)


def _jump_chain(generator: Tensor, exit_rates: Tensor) -> tuple[Tensor, Tensor]:
    """Rates (B, m) and jump probabilities (B, m, m + 1), the last column being the exit."""
    rates = -generator.diagonal(dim1=-2, dim2=-1)
    moves = generator + torch.diag_embed(rates)
    return rates, torch.cat([moves, exit_rates[..., None]], -1) / rates[..., None]


def _exit_first(generator: Tensor, batch: torch.Size) -> Tensor:
    """Per batch element, the phases ordered so that every phase comes after all phases it can move to."""
    m = generator.shape[-1]
    edges = (generator.detach() > 0).cpu().numpy() & ~np.eye(m, dtype=bool)
    patterns, first, which = np.unique(edges.reshape(len(edges), -1), axis=0, return_index=True, return_inverse=True)
    places = [", ".join(str(i) for i in np.unravel_index(row, batch)) if batch else "" for row in first]
    orders = np.array(
        [_topological(pattern.reshape(m, m), place) for pattern, place in zip(patterns, places, strict=True)]
    ).reshape(-1, m)
    return torch.as_tensor(orders[which.reshape(-1)], dtype=torch.int64, device=generator.device)


def _topological(edges: np.ndarray, place: str) -> list[int]:
    """Phases, successors before predecessors; a cycle is an error that spells it out."""
    done: list[int] = []
    waiting = list(range(len(edges)))
    while waiting:
        ready = [i for i in waiting if not edges[i, waiting].any()]
        if not ready:
            path = [waiting[0]]
            while path.count(path[-1]) == 1:
                path.append(next(j for j in waiting if edges[path[-1], j]))
            cycle = " -> ".join(str(i) for i in path[path.index(path[-1]) :])
            raise ValueError(
                f"generator{f'[{place}]' if place else ''} has a cycle: phases {cycle}; only acyclic laws always have "
                "a series form with as many phases, so keep this law as a PhaseType"
            )
        done += ready
        waiting = [i for i in waiting if i not in ready]
    return done
