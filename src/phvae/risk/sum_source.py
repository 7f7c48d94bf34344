"""A weighted sum of columns as a loss: by transforms where the columns are chains, by draws where they are not."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.distributions.located import Located
from phvae.distributions.phase_type import SeriesPhaseType
from phvae.distributions.zero_atom import ZeroAtom
from phvae.risk.chain_sum import ChainSumLaw, sum_given
from phvae.risk.column import reach
from phvae.risk.drawn_sum import DrawnSumLaw
from phvae.risk.law import IntegratedLaw
from phvae.risk.moved import Moved
from phvae.risk.quadrature import Proposal
from phvae.risk.sources import Build, Column, Fitted, Source, Splice, rarer_than_seen
from phvae.risk.splice import Spliced

__all__ = ["Sum", "SumLaw"]

SumLaw = ChainSumLaw | DrawnSumLaw

# Columns with both an atom and an origin up to which every set of them is summed on its own.
MOST_MIXED = 4
# Points per replicate at which an integration with draws ends: each costs a tail of every column.
MOST_DRAWN = 2**13
# Points per replicate of the rough laws that a proposal is found with.
ROUGH = 2**7


class Sum(Source):
    """``X = Σ_j weight_j X_j``.

    Given the latent vector, columns that are chains have the product of their transforms, which is inverted exactly;
    for bent clocks and spliced tails all columns but the largest are drawn.

    Args:
        fitted: The model.
        columns: Positions of the columns.
        weights: Their weights, positive.
        splice: ``"gpd"`` for power tails beyond the trust points.
    """

    def __init__(self, fitted: Fitted, columns: Sequence[int], weights: Sequence[float], splice: Splice = None) -> None:
        self.fitted, self.positions, self.weights = fitted, list(columns), list(weights)
        self.columns = [Column(fitted, position, splice) for position in columns]
        if not all(torch.tensor([column.lower for column in self.columns]).isfinite()):
            raise ValueError(f"columns = {self._names}: one of them has negative values; give columns of losses only")
        terms = [f"{name}" if w == 1 else f"{w:g} {name}" for name, w in zip(self._names, self.weights, strict=True)]
        self.name = " + ".join(terms)
        # an atom at zero is a value of the sum, whatever the origin beside it
        self.lower = sum(column.lower * w for column, w in zip(self.columns, self.weights, strict=True))
        self.by_transform = splice is None and self._are_chains()
        if not self.by_transform:
            self.most = MOST_DRAWN
        spliced = [column.spliced() for column in self.columns]
        self._moved = [Moved(law) if isinstance(law, Spliced) else None for law in spliced]

    @property
    def _names(self) -> list[Any]:
        return [column.name for column in self.columns]

    def _are_chains(self) -> bool:
        decoder = self.fitted.vae.decoder
        with torch.no_grad():
            law: Any = decoder(torch.zeros(1, self.fitted.vae.latent_dim, dtype=torch.float64)).base_dist
        law = law.law if isinstance(law, ZeroAtom) else law
        mixed = (decoder.has_atom & (decoder.origin != 0))[self.positions].sum()
        return isinstance(law, Located) and isinstance(law.base, SeriesPhaseType) and int(mixed) <= MOST_MIXED

    def law(self, proposal: Proposal, n: int) -> SumLaw:
        """The law from ``n`` points per replicate of a proposal."""
        if self.by_transform:
            return ChainSumLaw(self.fitted.vae, self.positions, self.weights, proposal, n)
        return DrawnSumLaw(self.fitted.vae, self.positions, self.weights, self._moved, proposal, n)

    def at(self, *, probability: float = 1.0, points: Sequence[float] = ()) -> Build:
        """Laws that are accurate down to a probability and at points."""
        proposal = Proposal(self.fitted.prior, self.fitted.seed)
        if self.fitted.vae.latent_dim:
            reach(proposal, lambda: self.law(proposal, ROUGH), self._exceeds, probability, points)
        return lambda n: self.law(proposal, n)

    def _exceeds(self, x: float) -> Callable[[Tensor], Tensor]:
        """Log of the chance that the sum exceeds ``x`` given latent points; with draws, that one column makes it so."""
        vae = self.fitted.vae

        def by_transform(z: Tensor) -> Tensor:
            at = torch.full((1, len(z)), x, dtype=torch.float64)
            return sum_given(vae, self.positions, self.weights, z).mixed(lambda law: law.log_sf(at))[0]

        def by_one(z: Tensor) -> Tensor:
            with torch.no_grad():
                laws = [vae.decoder.column(z, position) for position in self.positions]
                # medians, which every tail has
                middle = [w * law.icdf(0.5)[:, 0] for w, law in zip(self.weights, laws, strict=True)]
                total, parts = torch.stack(middle).sum(0), []
                for law, own, w, moved in zip(laws, middle, self.weights, self._moved, strict=True):
                    at = ((x - total + own) / w).clip(min=0)
                    parts.append(law.log_sf((at if moved is None else moved(at)[0])[:, None])[:, 0])
                return torch.logsumexp(torch.stack(parts), 0).clip(max=0)

        return by_transform if self.by_transform else by_one

    def extrapolated(self, law: IntegratedLaw, x: Tensor) -> NDArray[Any]:
        """Whether fewer than one row of the fit is expected beyond."""
        return rarer_than_seen(law, x, self.fitted.n_rows)
