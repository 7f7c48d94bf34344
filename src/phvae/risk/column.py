"""The law of one column of a model: the decoder's exact tails, integrated over latent space."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from phvae.distributions.tails import TailedLaw
from phvae.risk.latent import NormalMixture
from phvae.risk.law import IntegratedLaw
from phvae.risk.quadrature import Proposal, Quadrature
from phvae.vae import VAE

__all__ = ["ColumnLaw", "column_proposal", "reach"]

# Latent points whose laws are computed in one go, and entries of a table of tails that are held at once.
POINTS_AT_ONCE, ENTRIES_AT_ONCE = 2**15, 2**20
# The rough law that a root search starts from has this share of the points, but never fewer than so many.
COARSE, FEWEST = 16, 128
# From one exceedance probability to the next at which a proposal looks for the part of latent space that matters.
RUNG = 1e-2


class ColumnLaw(IntegratedLaw):
    """``S(x) = Σ_n w_n S(x | z_n)`` over the points of a quadrature, in every replicate.

    Args:
        vae: Model in double precision.
        column: Position of the column.
        proposal: Law the points are drawn from.
        n: Points per replicate, a power of two.
    """

    def __init__(self, vae: VAE, column: int, proposal: Proposal, n: int) -> None:
        self.vae, self.column, self.proposal, self.n = vae, column, proposal, n
        signed = float(vae.decoder.lower[column]) == -math.inf
        self.lower = -math.inf if signed else float(vae.decoder.origin[column])
        self._has_atom = bool(vae.decoder.has_atom[column])
        points = proposal.points(n)
        self.log_weight = points.log_weight
        self.replicates = len(points.z)
        with torch.no_grad():
            self.parts = [
                (replicates, places, vae.decoder.column(points.z[replicates, places], column))
                for replicates, places in _parts(points)
            ]

    def coarse(self) -> "IntegratedLaw":
        """The law from the first of the points."""
        n = self.n // COARSE
        return self if n < FEWEST or not self.vae.latent_dim else ColumnLaw(self.vae, self.column, self.proposal, n)

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density."""
        return self._integral(lambda law, x: law.log_prob(x), x)

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)``."""
        survival = self._integral(lambda law, x: law.log_sf(x), x)
        # certain, where the rounding of the weights would make it a little more or less
        certain = (x < 0) if self._has_atom and self.lower > -math.inf else (x <= self.lower)
        return torch.where(certain, 0.0, survival)

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)``."""
        return self._integral(lambda law, x: law.log_cdf(x), x)

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` for orders 1 and 2."""
        return self._integral(lambda law, x: law.log_excess(x, order), x)

    @cached_property
    def mean(self) -> Tensor:
        """Expected value, shape ``(R,)``; an error where both tails of a signed column have an infinite one."""
        mean = self._average(lambda law: law.mean)
        if bool(mean.isnan().any()):
            raise ValueError(
                "the column has no mean, for both of its tails have an infinite one: ask for quantiles, or for "
                "layers with a limit"
            )
        return mean

    def log_usual(self) -> Tensor:
        """Log of a usual distance from the lower end, or from zero, where a root search begins."""
        if self.lower > -math.inf:
            return super().log_usual()
        return self.vae.decoder.scale[self.column].log().expand(self.replicates)

    @cached_property
    def variance(self) -> Tensor:
        """Mean of the variances given ``z`` and variance of the means, shape ``(R,)``."""
        centre = self.mean
        within = self._average(lambda law: law.variance)
        means = [(law.mean[..., 0] - centre[r, None]).square() for r, _, law in self.parts]
        between = torch.zeros_like(centre)
        for (r, n, _), squares in zip(self.parts, means, strict=True):
            between[r] += (self.log_weight[r, n].exp() * squares).sum(-1)
        return torch.where(within == math.inf, within, within + between)

    def _average(self, quantity: Callable[[TailedLaw], Tensor]) -> Tensor:
        total = torch.zeros(self.replicates, dtype=torch.float64)
        with torch.no_grad():
            for r, n, law in self.parts:
                total[r] += (self.log_weight[r, n].exp() * quantity(law)[..., 0]).sum(-1)
        return total

    def _integral(self, log_function: Callable[[TailedLaw, Tensor], Tensor], x: Tensor) -> Tensor:
        """Log of the mean over points of a function of law and ``x``, shape ``(R, k)``."""
        x = x.double().expand(self.replicates, x.shape[-1])
        total = torch.full(x.shape, -math.inf, dtype=torch.float64)
        with torch.no_grad():
            for r, n, law in self.parts:
                log_weight = self.log_weight[r, n]
                at_once = max(1, ENTRIES_AT_ONCE // log_weight.numel())
                for columns in torch.arange(x.shape[1]).split(at_once):
                    values = log_function(law, x[r][:, columns].T[..., None, None])[..., 0]
                    partial = torch.logsumexp(values + log_weight, -1).T
                    total[r, columns[0] : columns[-1] + 1] = torch.logaddexp(
                        total[r, columns[0] : columns[-1] + 1], partial
                    )
        return total


def column_proposal(
    vae: VAE,
    column: int,
    prior: NormalMixture,
    seed: int,
    *,
    probability: float = 1.0,
    points: Sequence[float] = (),
    below: float = 1.0,
) -> Proposal:
    """Law of latent points under which the tail of a column is estimated well, down to a probability and at points.

    Args:
        vae: Model in double precision.
        column: Position of the column.
        prior: Law of the latent vector.
        seed: Seed of the points.
        probability: Smallest exceedance probability whose quantile, and the tail beyond it, is wanted.
        points: Thresholds whose exceedance probabilities are wanted.
        below: Smallest probability of a signed column to stay below a quantile that is wanted.
    """
    proposal = Proposal(prior, seed)
    signed = float(vae.decoder.lower[column]) == -math.inf

    def beyond(x: float) -> Callable[[Tensor], Tensor]:
        """Log of the chance of a value at least as extreme as ``x``, on the side of zero that it lies on."""

        def log_chance(z: Tensor) -> Tensor:
            with torch.no_grad():
                law = vae.decoder.column(z, column)
                return (law.log_cdf(x) if signed and x < 0 else law.log_sf(x))[:, 0]

        return log_chance

    if vae.latent_dim:
        reach(proposal, lambda: ColumnLaw(vae, column, proposal, FEWEST * 2), beyond, probability, points, below)
    return proposal


def reach(
    proposal: Proposal,
    rough: Callable[[], IntegratedLaw],
    exceeds: Callable[[float], Callable[[Tensor], Tensor]],
    probability: float,
    points: Sequence[float],
    below: float = 1.0,
) -> None:
    """Cover the tail of a loss with a proposal, rung by rung down to a probability, and then at points.

    Args:
        proposal: What is extended.
        rough: A cheap law of the loss under the proposal as it stands.
        exceeds: From a threshold to the log of the chance that it is exceeded, given latent points.
        probability: Smallest exceedance probability whose quantile, and the tail beyond it, is wanted.
        points: Thresholds whose exceedance probabilities are wanted.
        below: Smallest probability to stay below a quantile that is wanted, of a loss with two tails.
    """
    for level in _rungs(probability):
        quantile = rough().isf(torch.tensor([level], dtype=torch.float64)).median()
        proposal.cover(exceeds(float(quantile)))
    for level in _rungs(below):
        quantile = rough().icdf(torch.tensor([level], dtype=torch.float64)).median()
        proposal.cover(exceeds(float(quantile)))
    for x in sorted(point for point in points if point < math.inf):
        proposal.cover(exceeds(x))


def _rungs(probability: float) -> Iterator[float]:
    level = RUNG
    while level > probability:
        yield level
        level *= RUNG
    if probability < 0.5:
        yield probability


def _parts(points: Quadrature) -> Iterator[tuple[slice, slice]]:
    """Slices of replicates and of points that are small enough to be evaluated in one go."""
    replicates, n = points.log_weight.shape
    rows = max(1, POINTS_AT_ONCE // n)
    for r in range(0, replicates, rows):
        for first in range(0, n, POINTS_AT_ONCE):
            yield slice(r, min(r + rows, replicates)), slice(first, min(first + POINTS_AT_ONCE, n))
