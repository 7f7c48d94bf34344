"""The law of a sum of any columns: all but the largest are drawn, and the largest is integrated exactly."""

import copy
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from phvae.distributions.tails import TailedLaw
from phvae.distributions.zero_atom import ZeroAtom
from phvae.risk.law import IntegratedLaw
from phvae.risk.moved import Moved, MovedBoth
from phvae.risk.quadrature import REPLICATES, Proposal, uniform_points
from phvae.vae import VAE

__all__ = ["DrawnSumLaw"]

# The rough law that a root search starts from has this share of the points, but never fewer than so many.
COARSE, FEWEST = 16, 64
# Panels and nodes per panel of stop-loss moments, and how many times the typical size they reach out.
PANELS, ORDER, REACH = 16, 6, 1e6
# Entries of a table of tails that are held at once.
ENTRIES_AT_ONCE = 2**20


class DrawnSumLaw(IntegratedLaw):
    """Law of ``X = Σ_j Y_j``, ``Y_j = weight_j X_j``, from latent points and draws of the columns there.

    With ``M_j`` the largest and ``T_j`` the sum of all drawn columns but ``j``,

        P(X > x) = Σ_j E[ P(Y_j > max(M_j, x - T_j) | z) ]

    over which column is the largest (Asmussen and Kroese, "Improved algorithms for rare event simulation with heavy
    tails", Adv. Appl. Prob. 38, 2006). The replicate's mass is made one, so each is a proper law. Stop-loss moments are
    integrals of the survival function by Gauss' rule, continued as a power beyond its last panel. This serves columns
    with bent clocks and spliced tails, of which sums have no closed transform. With signed columns it is the upper tail
    alone, at points from zero on, and its `mirror` is the lower one.

    Args:
        vae: Model in double precision.
        columns: Positions of the columns.
        weights: Their weights, positive.
        moved: What moves each column to its spliced tail and back; None for its own tail.
        proposal: Law the latent points are drawn from.
        n: Points per replicate, a power of two.
    """

    def __init__(
        self,
        vae: VAE,
        columns: Sequence[int],
        weights: Sequence[float],
        moved: Sequence[Moved | MovedBoth | None],
        proposal: Proposal,
        n: int,
    ) -> None:
        self.arguments = vae, columns, weights, moved, proposal
        self.n, self.replicates = n, REPLICATES
        self.weights, self.moved = weights, moved
        origin = torch.tensor(weights, dtype=torch.float64) * vae.decoder.origin[list(columns)]
        atom = vae.decoder.has_atom[list(columns)]
        self._certain = not bool(atom.all())
        # with an atom at zero the sum begins with the least of its columns
        self.lower = float(origin[~atom].sum()) if self._certain else float(origin.min())
        self.signed = bool((vae.decoder.lower[list(columns)] == -math.inf).any())
        self.turned = False
        if self.signed:
            self.lower = 0.0
        d, prior, law = vae.latent_dim, proposal.prior, proposal.law
        points = [
            uniform_points(d + 1 + len(columns), n, (proposal.seed, 0, replicate)) for replicate in range(REPLICATES)
        ]
        z = torch.cat([law.place(uniform[:, : d + 1]) for uniform in points])
        weight = torch.zeros(len(z), dtype=torch.float64)
        if d:
            weight = prior.log_density(z) - law.log_density(z)
        weight = weight.view(REPLICATES, n)
        self.log_weight = weight - torch.logsumexp(weight, -1, keepdim=True)
        uniform = torch.cat(points)[:, d + 1 :]
        with torch.no_grad():
            self.laws: list[TailedLaw] = [vae.decoder.column(z, position) for position in columns]
            drawn = []
            for k, (given, w, splice) in enumerate(zip(self.laws, weights, moved, strict=True)):
                own = given.icdf(uniform[:, k, None])[:, 0]
                drawn.append(w * (own if splice is None else splice.law.move(own)))
        self._arrange(torch.stack(drawn, -1).view(REPLICATES, n, -1))
        self.unit = torch.ones(REPLICATES, 1, dtype=torch.float64)
        if not self.signed:
            # a column without atom may begin exactly where the others end
            reached = self._columns(torch.full((REPLICATES, 1), -math.inf, dtype=torch.float64))[:, 0].sum(-1)
            self.unit = (reached / (reached + (0.0 if self._certain else self.atom)) / reached)[:, None]

    def _arrange(self, drawn: Tensor) -> None:
        """Keep the drawn columns, and of each the sum and the largest of the others."""
        self.drawn = drawn
        self.others = drawn.sum(-1, keepdim=True) - drawn
        if drawn.shape[-1] == 1:
            self.most = torch.full_like(drawn, -math.inf)
        else:
            top = drawn.topk(2, -1).values
            self.most = torch.where(drawn == top[..., :1], top[..., 1:], top[..., :1])

    @property
    def atom(self) -> Tensor:
        """Chance that all columns are zero, shape ``(R,)``."""
        zero = torch.zeros(self.log_weight.shape, dtype=torch.float64)
        for law in self.laws:
            zero = zero + (law.log_zero[:, 0].view_as(zero) if isinstance(law, ZeroAtom) else -math.inf)
        return (zero + self.log_weight).exp().sum(-1)

    def mirror(self) -> Self:
        """The upper tail of minus the sum, from the same draws."""
        other = copy.copy(self)
        other.turned = not self.turned
        other._arrange(-self.drawn)
        return other

    def coarse(self) -> "IntegratedLaw":
        """The law from the first of the points."""
        n = self.n // COARSE
        return self if n < FEWEST else DrawnSumLaw(*self.arguments, n)

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density."""
        return (self._columns(self._expanded(x), density=True).sum(-1) * self.unit).log()

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)``."""
        return (self._columns(self._expanded(x)).sum(-1) * self.unit).log()

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)``, as the complement."""
        survival = self.log_sf(x)
        return torch.where(survival < 0, torch.log(-torch.expm1(survival)), -math.inf)

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` for orders 1 and 2; ``inf`` where the moment is infinite."""
        return self._excess(self._expanded(x), order).sum(-1).log()

    def tail_parts(self, x: Tensor) -> Tensor:
        """``E[Y_j; X > x]`` of every column, shape ``(R, k, D)``; they add up to ``E[X; X > x]``."""
        x = self._expanded(x)
        largest = x[..., None] * self._columns(x) * self.unit[..., None] + self._excess(x, 1)
        total = torch.zeros_like(largest)
        for j in range(len(self.laws)):
            # of the drawn columns when j is the largest; j itself has what is left of the sum
            drawn = self._columns(x, only=j) * self.unit[..., None]
            others = [i for i in range(len(self.laws)) if i != j]
            total[..., others] += drawn[..., others]
            total[..., j] += largest[..., j] - drawn[..., others].sum(-1)
        return total

    @cached_property
    def mean(self) -> Tensor:
        """Expected value, shape ``(R,)``."""
        low = self._start
        return low[0] + self._excess(low.expand(self.replicates, 1), 1).sum((1, 2))

    @cached_property
    def variance(self) -> Tensor:
        """Variance, shape ``(R,)``."""
        low = self._start.expand(self.replicates, 1)
        first, second = (self._excess(low, order).sum((1, 2)) for order in (1, 2))
        return torch.where(second < math.inf, second - first.square(), math.inf)

    @property
    def _start(self) -> Tensor:
        return torch.tensor([self.lower if self._certain else 0.0], dtype=torch.float64)

    def _expanded(self, x: Tensor) -> Tensor:
        return x.double().expand(self.replicates, x.shape[-1])

    def _columns(self, x: Tensor, *, density: bool = False, only: int | None = None) -> Tensor:
        """Chance (or density) that the sum exceeds ``x (R, k)`` and a column is the largest, ``(R, k, D)``.

        With ``only = j``: the mean of every drawn column when ``j`` is the largest and the sum exceeds ``x``.
        """
        total = torch.zeros(*x.shape, len(self.laws), dtype=torch.float64)
        at_once = max(1, ENTRIES_AT_ONCE // (self.n * self.replicates))
        weight = self.log_weight.exp()
        with torch.no_grad():
            for first in range(0, x.shape[1], at_once):
                block = slice(first, min(first + at_once, x.shape[1]))
                for j in range(len(self.laws)) if only is None else [only]:
                    gap = x[:, block].T[..., None] - self.others[..., j]
                    if density:
                        value = self._density(j, gap)
                    else:
                        value = self._survival(j, torch.maximum(gap, self.most[..., j]))
                    if only is None:
                        total[:, block, j] = torch.einsum("krn,rn->rk", value, weight)
                    else:
                        total[:, block] = torch.einsum("krn,rn,rni->rki", value, weight, self.drawn)
        return total

    def _survival(self, j: int, y: Tensor) -> Tensor:
        """``P(Y_j > y | z)`` at points ``(k, R, n)``."""
        at, splice = self._own(j, y), self.moved[j]
        if splice is not None:
            at, _ = splice(at)
        at = at.reshape(len(y), -1, 1)
        if self.turned:
            # a zero is no loss
            return self.laws[j].log_cdf(torch.where(at == 0, -torch.finfo(at.dtype).tiny, at)).exp().view_as(y)
        return self.laws[j].log_sf(at).exp().view_as(y)

    def _own(self, j: int, y: Tensor) -> Tensor:
        """The values of a column that parts of the sum belong to."""
        return -y / self.weights[j] if self.turned else y / self.weights[j]

    def _density(self, j: int, y: Tensor) -> Tensor:
        """Density of ``Y_j`` given ``z`` where it is the largest, at points ``(k, R, n)``; an atom is no part of it."""
        inside = (y > self.most[..., j]) & (y > 0)
        at, pace, splice = (
            torch.where(inside, self._own(j, y), self._own(j, torch.ones(()))),
            torch.ones(()),
            self.moved[j],
        )
        if splice is not None:
            at, pace = splice(at)
        density = self.laws[j].log_prob(at.reshape(len(y), -1, 1)).exp().view_as(y) * pace
        return torch.where(inside, density / self.weights[j], 0.0)

    def _excess(self, x: Tensor, order: int) -> Tensor:
        """``E[(X - x)_+^order]`` by which column is the largest, at points ``(R, k)``, shape ``(R, k, D)``."""
        nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(ORDER))
        edges = torch.linspace(0, math.log(REACH), PANELS + 1, dtype=torch.float64)
        half = edges.diff()[:, None] / 2
        t = (edges[:-1, None] + half * (1 + nodes)).flatten()
        share = (half * weights).flatten()
        total = self.drawn.sum(-1)
        typical = total.abs().median() if self.signed else total.median()
        unit = torch.maximum(x - self.lower, typical - self.lower)[..., None] / 8
        distance = unit * torch.expm1(torch.cat([t, edges[-1:]]))
        at = (x[..., None] + distance).flatten(1)
        survival = (self._columns(at) * self.unit[..., None]).view(*distance.shape, -1)
        density = self._columns(at[:, len(t) :: len(t) + 1], density=True) * self.unit[..., None]
        measure = order * share * unit * t.exp() * distance[..., :-1] ** (order - 1)
        inner = (measure[..., None] * survival[..., :-1, :]).sum(-2)
        last, end = survival[..., -1, :], distance[..., -1, None]
        # beyond the last panel a power with the slope it has there
        slope = torch.where(last > 0, density * end / torch.where(last > 0, last, 1.0), math.inf)
        rest = order * last * end**order / torch.where(slope > order, slope - order, 1.0)
        return inner + torch.where(slope > order, rest, torch.where(last > 0, math.inf, 0.0))
