"""Linear systems of a sub-generator without subtraction: state elimination after Grassmann, Taksar and Heyman."""

import torch
from torch import Tensor


def solve(generator: Tensor, exit_rates: Tensor, right: Tensor) -> Tensor:
    """Entrywise accurate ``(-generator)^-1 · right`` for ``right >= 0``.

    Each phase is censored out of the chain in turn; only jump and exit rates enter, never the diagonal, so nothing is
    subtracted. Differentiable.

    Args:
        generator: Sub-generator, shape ``(..., m, m)``.
        exit_rates: Minus its row sums, shape ``(..., m)``.
        right: Right-hand sides, shape ``(..., m, r)``.

    >>> generator = torch.tensor([[-2.0, 2.0], [0.0, -4.0]])
    >>> solve(generator, torch.tensor([0.0, 4.0]), torch.ones(2, 1))[:, 0]              # expected time to absorption
    tensor([0.7500, 0.2500])
    """
    size = generator.shape[-1]
    jumps, exits, sources = generator, exit_rates, right
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    for last in reversed(range(size)):
        out = jumps[..., last, :last]
        total = exits[..., last] + out.sum(-1)
        rows.append((out, total, sources[..., last, :]))
        share = jumps[..., :last, last] / total[..., None]
        exits = exits[..., :last] + share * exits[..., last, None]
        sources = sources[..., :last, :] + share[..., None] * sources[..., last, None, :]
        jumps = jumps[..., :last, :last] + share[..., None] * out[..., None, :]
    solution: list[Tensor] = []
    for out, total, source in reversed(rows):
        if solution:
            source = source + (out[..., None, :] @ torch.stack(solution, -2))[..., 0, :]
        solution.append(source / total[..., None])
    return torch.stack(solution, -2)


def sojourns(generator: Tensor, exit_rates: Tensor) -> Tensor:
    """Expected time spent in phase ``j`` from phase ``i``: ``(-generator)^-1``, shape ``(..., m, m)``.

    >>> sojourns(torch.tensor([[-2.0, 2.0], [0.0, -4.0]]), torch.tensor([0.0, 4.0]))
    tensor([[0.5000, 0.2500],
            [0.0000, 0.2500]])
    """
    identity = torch.eye(generator.shape[-1], dtype=generator.dtype, device=generator.device)
    return solve(generator, exit_rates, identity.expand_as(generator))


def tail_rate(initial: Tensor, generator: Tensor, exit_rates: Tensor) -> Tensor:
    """Rate at which the survival of a chain dies off: the slowest decay among the phases it can reach.

    A class of phases that reach one another decays at one over the largest eigenvalue of its expected sojourns, which
    are accurate entry by entry; a class of one phase decays at exactly its own rate.

    Args:
        initial: Entry weights, shape ``(..., m)``.
        generator: Sub-generator, shape ``(..., m, m)``.
        exit_rates: Minus its row sums, shape ``(..., m)``.

    >>> generator = torch.tensor([[-2.0, 1.0], [1.0, -2.0]], dtype=torch.float64)
    >>> round(float(tail_rate(torch.tensor([1.0, 0.0]), generator, torch.tensor([1.0, 1.0]))), 12)
    1.0
    """
    size = generator.shape[-1]
    reached = (generator > 0) | torch.eye(size, dtype=torch.bool, device=generator.device)
    for _ in range(size.bit_length()):
        reached = (reached.double() @ reached.double()) > 0
    entered = ((initial > 0)[..., None] & reached).any(-2)
    together = reached & reached.mT & entered[..., None, :]
    times = sojourns(generator, exit_rates)
    # the eigensolver refuses NaN, which only means that this row is no law
    sound = times.isfinite().all(-1).all(-1) & initial.isfinite().all(-1)
    classes = torch.where(together & sound[..., None, None], times, 0.0)
    slowest = torch.linalg.eigvals(classes).real.amax(-1)
    return torch.where(sound, 1 / torch.where(sound, slowest, 1.0), torch.nan)
