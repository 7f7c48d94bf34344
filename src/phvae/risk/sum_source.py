"""A weighted sum of columns as a loss: by transforms where the columns are chains, by draws where they are not."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.distributions.located import Located
from phvae.distributions.phase_type import SeriesPhaseType
from phvae.distributions.two_sided import TwoSided
from phvae.distributions.zero_atom import ZeroAtom
from phvae.risk.chain_sum import ChainSumLaw, sum_given
from phvae.risk.column import reach
from phvae.risk.drawn_sum import DrawnSumLaw
from phvae.risk.law import IntegratedLaw
from phvae.risk.moved import Moved, MovedBoth
from phvae.risk.quadrature import Proposal
from phvae.risk.record import ColumnRecord
from phvae.risk.sources import Build, Column, Fitted, Source, Splice, rare_below, rarer_than_seen
from phvae.risk.splice import Spliced
from phvae.risk.two_drawn_tails import TwoDrawnTails
from phvae.risk.two_tails import TwoTails

__all__ = ["Sum", "SumLaw"]

SumLaw = ChainSumLaw | DrawnSumLaw | TwoDrawnTails

# Columns with both an atom and an origin up to which every set of them is summed on its own.
MOST_MIXED = 4
# Points per replicate at which an integration with draws ends: each costs a tail of every column.
MOST_DRAWN = 2**13
# Points per replicate of the rough laws that a proposal is found with.
ROUGH = 2**7


class Sum(Source):
    """``X = Σ_j weight_j X_j``.

    Given the latent vector, columns that are chains have the product of their transforms, which is inverted exactly;
    for bent clocks and spliced tails all columns but the largest are drawn. With a signed column the sum has two tails.

    Args:
        fitted: The model.
        columns: Positions of the columns.
        weights: Their weights, positive.
        splice: ``"gpd"`` for power tails beyond the trust points.
    """

    def __init__(self, fitted: Fitted, columns: Sequence[int], weights: Sequence[float], splice: Splice = None) -> None:
        self.fitted, self.positions, self.weights = fitted, list(columns), list(weights)
        self.columns = [Column(fitted, position, splice) for position in columns]
        self.name = _name(fitted, self.positions, self.weights)
        # an atom at zero is a value of the sum, whatever the origin beside it
        self.lower = sum(column.lower * w for column, w in zip(self.columns, self.weights, strict=True))
        self.signed = self.lower == -math.inf
        self.by_transform = splice is None and self._are_chains()
        if self.signed or not self.by_transform:
            # a sum with two tails may be next to nothing, and no number of points tells it from that
            self.most = MOST_DRAWN
        self._moved = [_moved(column.spliced()) for column in self.columns]

    def _are_chains(self) -> bool:
        decoder = self.fitted.vae.decoder
        with torch.no_grad():
            law: Any = decoder(torch.zeros(1, self.fitted.vae.latent_dim, dtype=torch.float64)).base_dist
        law = law.law if isinstance(law, ZeroAtom) else law
        law = law.gain if isinstance(law, TwoSided) else law
        mixed = (decoder.has_atom & (decoder.origin != 0))[self.positions].sum()
        return isinstance(law, Located) and isinstance(law.base, SeriesPhaseType) and int(mixed) <= MOST_MIXED

    def law(self, proposal: Proposal, n: int) -> SumLaw:
        """The law from ``n`` points per replicate of a proposal."""
        vae = self.fitted.vae
        if self.by_transform:
            return ChainSumLaw(vae, self.positions, self.weights, proposal, n)
        upper = DrawnSumLaw(vae, self.positions, self.weights, self._moved, proposal, n)
        return TwoDrawnTails(upper) if self.signed else upper

    def at(self, *, probability: float = 1.0, points: Sequence[float] = ()) -> Build:
        """Laws that are accurate down to a probability and at points."""
        return self._at(probability, points)

    def between(self, survival: NDArray[np.float64]) -> Build:
        """Laws that are accurate at the quantiles with these exceedance probabilities, on both sides of zero."""
        return self._at(float(survival.min()), (), rare_below(survival) if self.signed else 1.0)

    def _at(self, probability: float, points: Sequence[float], below: float = 1.0) -> Build:
        proposal = Proposal(self.fitted.prior, self.fitted.seed)
        if self.fitted.vae.latent_dim:
            reach(proposal, lambda: self.law(proposal, ROUGH), self._beyond, probability, points, below)
        return lambda n: self.law(proposal, n)

    def _beyond(self, x: float) -> Callable[[Tensor], Tensor]:
        """Log of the chance of a sum at least as extreme as ``x`` given latent points, on the side of zero it lies on.

        With draws it is the chance that one column makes it so.
        """
        vae, falls = self.fitted.vae, self.signed and x < 0

        def by_transform(z: Tensor) -> Tensor:
            at = torch.full((1, len(z)), x, dtype=torch.float64)
            sum_law = sum_given(vae, self.positions, self.weights, z)
            return sum_law.mixed(lambda law: law.log_cdf(at) if falls else law.log_sf(at))[0]

        def by_one(z: Tensor) -> Tensor:
            with torch.no_grad():
                laws = [vae.decoder.column(z, position) for position in self.positions]
                # medians, which every tail has
                middle = [w * law.icdf(0.5)[:, 0] for w, law in zip(self.weights, laws, strict=True)]
                total, parts = torch.stack(middle).sum(0), []
                for law, own, w, moved in zip(laws, middle, self.weights, self._moved, strict=True):
                    at = (x - total + own) / w
                    at = (at if self.signed else at.clip(min=0))[:, None]
                    at = at if moved is None else moved(at)[0]
                    parts.append((law.log_cdf(at) if falls else law.log_sf(at))[:, 0])
                return torch.logsumexp(torch.stack(parts), 0).clip(max=0)

        return by_transform if self.by_transform else by_one

    def extrapolated(self, law: IntegratedLaw, x: Tensor) -> NDArray[Any]:
        """Whether points lie beyond what rows of the fit can have shown, in either tail of a sum that has two.

        That is where fewer than one of these rows is expected, and beyond the sum of the columns' largest values: the
        sums of the rows themselves are not remembered.
        """
        beyond, at = rarer_than_seen(law, x, self.fitted.n_rows), x.mean(0).numpy()
        if self.fitted.records is not None:
            beyond |= at > self._largest(self.fitted.records)
        if self.signed:
            beyond |= (law.log_cdf(x).exp().mean(0) < 1 / self.fitted.n_rows).numpy()
            losses = self.fitted.losses
            if all(losses[position] is not None for position in self.positions):
                beyond |= -at > self._largest(losses)
        return beyond

    def _largest(self, records: Sequence[ColumnRecord | None]) -> float:
        """The weighted sum of the largest values in records of the columns."""
        largest = [records[position] for position in self.positions]
        return sum(w * record.largest for w, record in zip(self.weights, largest, strict=True) if record is not None)


def _name(fitted: Fitted, columns: Sequence[int], weights: Sequence[float]) -> str:
    """A sum as it is written, columns that stand with the other sign behind a minus."""
    name = ""
    for k, (column, w) in enumerate(zip(columns, weights, strict=True)):
        minus = column in fitted.minus
        sign = ("-" if minus else "") if k == 0 else (" - " if minus else " + ")
        name += f"{sign}{'' if w == 1 else f'{w:g} '}{fitted.names[column]}"
    return name


def _moved(law: Spliced | TwoTails | None) -> Moved | MovedBoth | None:
    """What moves draws of a column to its spliced law and back."""
    if isinstance(law, TwoTails):
        return MovedBoth(law)
    return None if law is None else Moved(law)
