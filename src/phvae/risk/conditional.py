"""Rows given a condition, without rejection: latent points drawn given the event, then columns drawn given both."""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from phvae.risk.conditions import Range, log_chance
from phvae.risk.estimate import IntegrationWarning
from phvae.risk.latent import NormalMixture
from phvae.risk.quadrature import REPLICATES, Proposal
from phvae.vae import VAE

__all__ = ["ConditionalSample", "Event", "draw_given"]

# Rows drawn together, and weighted latent points they are chosen from: so many times more, never fewer than the second
# number, and where they are not enough up to the third.
ROWS, MANY, FEWEST_POINTS, MOST_POINTS = 2**14, 8, 2**14, 2**21
# Effective points per row that are enough.
ENOUGH = 0.1
# The rarest event that can be drawn from: beyond, probabilities given a latent point are no numbers any more.
RAREST = -690.0


class ConditionalSample(NamedTuple):
    """Rows given a condition, and how well they were drawn.

    rows: Table of rows, each of which meets the condition.
    probability: Probability of the condition.
    standard_error: Of the probability.
    effective_size: Effective number of weighted latent points that the rows were chosen from; at least a tenth of the
        rows, or a warning says that it is not.
    n_points: Number of weighted latent points.
    extrapolated: Whether a condition begins beyond the largest observation of its column.
    """

    rows: Any
    probability: float
    standard_error: float
    effective_size: float
    n_points: int
    extrapolated: bool


class Event:
    """Conditions on the columns of a model, and the law of latent points that suits them.

    Args:
        vae: Model in double precision.
        prior: Law of the latent vector.
        ranges: Conditions, all of which must hold.
        seed: Seed of latent points.
    """

    def __init__(self, vae: VAE, prior: NormalMixture, ranges: Sequence[Range], seed: int) -> None:
        self.vae, self.ranges, self.seed = vae, ranges, seed
        self.proposal = Proposal(prior, seed)
        try:
            self.proposal.cover(self.log_chance)
        except ArithmeticError:
            raise ValueError(f"given: the conditions never hold together under this model: {ranges}") from None

    def log_chance(self, z: Tensor) -> Tensor:
        """Log of its probability given latent points ``(n, d)``."""
        return log_chance(self.vae, self.ranges, z)

    def points(self, n: int, stream: int) -> tuple[Tensor, Tensor]:
        """Latent points ``(n, d)`` and logs of their shares in the event's probability, ``(R, n / R)``."""
        points = self.proposal.points(n // REPLICATES, stream=stream)
        z = points.z.flatten(0, 1)
        return z, points.log_weight + self.log_chance(z).view_as(points.log_weight)


def draw_given(event: Event, n: int) -> Iterator[tuple[Tensor, Tensor, float, int]]:
    """Blocks of rows given an event.

    The rows of a block stem from many more weighted latent points, of which each row gets one in proportion to its
    weight (systematic resampling). The columns of the event are drawn by inverting their law between the ends of its
    condition, so that every row meets it; the others are drawn from their laws.

    Args:
        event: The event.
        n: Number of rows.

    Yields:
        Rows ``(b, D)``, the probability of the event in every replicate, the effective size and number of points.
    """
    for block, first in enumerate(range(0, n, ROWS)):
        rows = min(ROWS, n - first)
        rng = np.random.default_rng([event.seed, 1, block])
        n_points = max(FEWEST_POINTS, 2 ** math.ceil(math.log2(MANY * rows)))
        while True:
            z, log_share = event.points(n_points, stream=1000 + block)
            log_total = torch.logsumexp(log_share.flatten(), 0)
            if not float(log_total) > RAREST:
                raise ValueError("given: the probability of the conditions is below 1e-300; give less extreme ones")
            weights = (log_share.flatten() - log_total).exp()
            effective = 1 / float(weights.square().sum())
            if effective >= ENOUGH * rows or n_points >= MOST_POINTS or len(weights) == 1:
                break
            n_points *= 4
        if effective < ENOUGH * rows and len(weights) > 1:
            warnings.warn(
                f"given: {rows:,} rows stem from latent points whose effective number is {effective:,.0f}, below a "
                "tenth of the rows, so many of them are alike; give less extreme conditions, or take fewer rows",
                IntegrationWarning,
                stacklevel=4,
            )
        if len(weights) == 1:
            # without latent variables there is one law, and rows are independent
            effective = float(rows)
        places = (torch.arange(rows, dtype=torch.float64) + float(rng.random())) / rows
        steps = weights.cumsum(0)
        chosen = torch.searchsorted(steps / steps[-1], places).clip(max=len(weights) - 1)
        # neighbouring places share latent points; in another order rows look alike no more than by chance
        chosen = chosen[torch.from_numpy(rng.permutation(rows))]
        yield _draw_columns(event, z[chosen], rng), torch.logsumexp(log_share, 1).exp(), effective, len(weights)


def _draw_columns(event: Event, z: Tensor, rng: np.random.Generator) -> Tensor:
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    ranges = {condition.column: condition for condition in event.ranges}
    columns = []
    with torch.no_grad():
        for position in range(event.vae.n_columns):
            law = event.vae.decoder.column(z, position)
            if position in ranges:
                # in (0, 1]: at 0 a tail would be drawn at infinity
                uniform = 1 - torch.rand(law.batch_shape, dtype=torch.float64, generator=generator)
                columns.append(ranges[position].draw(law, uniform))
            else:
                columns.append(law.sample((), generator=generator))
    return torch.cat(columns, 1)


def summary(parts: Sequence[tuple[Tensor, float, int]]) -> tuple[float, float, float, int]:
    """Probability of the event with its standard error, effective size and number of points, over all blocks."""
    chances = torch.cat([chance for chance, _, _ in parts])
    error = float(chances.std()) / math.sqrt(len(chances)) if len(chances) > 1 else 0.0
    return float(chances.mean()), error, sum(part[1] for part in parts), sum(part[2] for part in parts)
