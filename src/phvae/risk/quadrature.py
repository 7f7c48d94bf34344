"""Points of latent space to integrate over: replicated quasi-Monte-Carlo, tilted toward the events asked for."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from phvae.risk.latent import NormalMixture

__all__ = ["REPLICATES", "Proposal", "Quadrature", "effective_share", "uniform_points"]

# Independent scramblings of the points; their spread is the standard error.
REPLICATES = 8
# Points of a proposal's search, and the effective share of them with which it is content.
PILOT, ENOUGH = 4096, 0.2
# Effective share of points that a step of the tempering leaves: each step must find enough to fit. Fits to the event
# itself are repeated so often, while they are not good enough.
STEP, REFITS = 0.05, 2
MOST_STEPS = 40
# Bits of a coordinate: with fewer, points of large tables coincide and the corners of the cube are never reached.
BITS = 50
# Numbers of points up to this one are kept for the next question.
LARGEST_KEPT = 4096


class Quadrature(NamedTuple):
    """Points ``z (R, N, d)`` with weights that sum to one in each replicate: ``E[g(z)] ≈ Σ_n exp(log_weight) g(z)``."""

    z: Tensor
    log_weight: Tensor


class Proposal:
    """Law that integration points are drawn from: the prior, and normal laws fitted to where events have their mass.

    Args:
        prior: Law of the latent vector.
        seed: Seed of all points.

    >>> from phvae.priors import StandardNormal
    >>> proposal = Proposal(NormalMixture.of_prior(StandardNormal(1)), seed=0)
    >>> share = proposal.cover(lambda z: 6 * z[:, 0])
    >>> points = proposal.points(512)
    >>> mean = (points.log_weight + 6 * points.z[..., 0]).exp().sum(-1).mean()
    >>> share > 0.2, bool((mean / math.exp(18) - 1).abs() < 0.01)
    (True, True)
    """

    def __init__(self, prior: NormalMixture, seed: int) -> None:
        self.prior, self.seed = prior, seed
        self._tilts: list[NormalMixture] = []

    @property
    def law(self) -> NormalMixture:
        """The whole proposal: a third of it the prior, so that no weight exceeds three."""
        if not self._tilts:
            return self.prior
        return NormalMixture.blend([(0.5, self.prior), *((1 / len(self._tilts), tilt) for tilt in self._tilts)])

    def points(self, n: int, *, replicates: int = REPLICATES, stream: int = 0) -> Quadrature:
        """``n`` weighted points in each of ``replicates`` independent scramblings; ``n`` is a power of two.

        Args:
            n: Points per replicate; the first half of ``2 n`` points are these.
            replicates: Number ``R`` of scramblings.
            stream: Points of another stream are independent of these.
        """
        d = self.prior.means.shape[1]
        if not d:
            return Quadrature(torch.zeros(1, 1, 0, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
        law = self.law
        z = torch.cat([law.place(uniform_points(d + 1, n, (self.seed, stream, k))) for k in range(replicates)])
        if self._tilts:
            log_weight = (self.prior.log_density(z) - law.log_density(z)).view(replicates, n)
        else:
            log_weight = torch.zeros(replicates, n, dtype=torch.float64)
        return Quadrature(z.view(replicates, n, d), log_weight - torch.logsumexp(log_weight, -1, keepdim=True))

    def cover(self, log_event: Callable[[Tensor], Tensor]) -> float:
        """Add a normal law near the mass of ``p(z) exp(log_event(z))``, unless enough points fall there already.

        The event is approached in steps, raised to powers between 0 and 1 such that each step leaves points to fit.

        Args:
            log_event: Log of a probability, from points ``(n, d)`` to ``(n,)``.

        Returns:
            Effective share of the points under the proposal found.
        """
        if not self.prior.means.shape[1]:
            return 1.0
        settled = list(self._tilts)
        arrived = 0
        for step in range(MOST_STEPS):
            points = self.points(PILOT, replicates=1, stream=1 + step)
            z, log_weight = points.z[0], points.log_weight[0]
            log_chance = log_event(z)
            share = effective_share(log_weight + log_chance)
            if arrived == REFITS or share >= ENOUGH / (1 + len(settled)):
                break
            power = _reachable_power(log_weight, log_chance)
            self._tilts = [*settled, NormalMixture.around(z, (log_weight + power * log_chance).softmax(0))]
            arrived += power == 1.0
        return share


def effective_share(log_weight: Tensor) -> float:
    """Effective number of weighted points over their number, ``(Σ w)² / (n Σ w²)``; 0 if no point has weight.

    >>> round(effective_share(torch.tensor([0.0, 0.0, -torch.inf, -torch.inf])), 6)
    0.5
    """
    if not bool((log_weight > -torch.inf).any()):
        return 0.0
    log_share = 2 * torch.logsumexp(log_weight, 0) - torch.logsumexp(2 * log_weight, 0)
    return math.exp(float(log_share)) / len(log_weight)


def _reachable_power(log_weight: Tensor, log_chance: Tensor) -> float:
    """Largest power of the event up to 1 under which the effective share stays at `STEP`."""
    low, high = 0.0, 1.0
    if effective_share(log_weight + log_chance) >= STEP:
        return 1.0
    # points where the event is impossible have no weight under any power
    log_weight, log_chance = log_weight[log_chance > -torch.inf], log_chance[log_chance > -torch.inf]
    if not len(log_chance):
        raise ArithmeticError("the event has probability zero at every point of latent space that was tried")
    for _ in range(40):
        middle = (low + high) / 2
        enough = effective_share(log_weight + middle * log_chance) >= STEP
        low, high = (middle, high) if enough else (low, middle)
    return low if low > 0 else high


def uniform_points(d: int, n: int, key: tuple[int, ...]) -> Tensor:
    """``n`` scrambled Sobol points inside the unit cube of dimension ``d``; nobody may change them in place."""
    # scrambling costs more than the laws at a few hundred points do, and questions share their points
    return _kept(d, n, key) if n <= LARGEST_KEPT else _scrambled(d, n, key)


def _scrambled(d: int, n: int, key: tuple[int, ...]) -> Tensor:
    engine = qmc.Sobol(d, scramble=True, bits=BITS, rng=np.random.default_rng(key))
    # from the middle of their cells no coordinate is 0, where a normal quantile is infinite
    return torch.from_numpy(engine.random(n) + 2.0 ** -(BITS + 1))


_kept = lru_cache(maxsize=128)(_scrambled)
