"""Losses that can be integrated to any accuracy: the columns of a fitted model."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from phvae.fitted import unconditional
from phvae.preprocessing import column_names
from phvae.risk.column import ColumnLaw, column_proposal
from phvae.risk.estimate import MOST
from phvae.risk.latent import NormalMixture
from phvae.risk.law import IntegratedLaw
from phvae.risk.quadrature import Proposal
from phvae.risk.record import ColumnRecord
from phvae.risk.splice import Spliced
from phvae.risk.trust import RARER, Trust, trust_point
from phvae.risk.turned import Tail, turned
from phvae.risk.two_tails import TwoTails
from phvae.signed_decoders import SignedDecoder
from phvae.vae import VAE

__all__ = ["Build", "Column", "Fitted", "Source", "Splice"]

Build = Callable[[int], IntegratedLaw]
Splice = Literal["gpd"] | None

# Points per replicate of the law that a trust point is read off and that draws are moved with.
STEADY = 2**8
# Spacing of numbers below one: no level near one is rarer.
RESOLUTION = 2.0**-53


class Fitted(NamedTuple):
    """What a fitted model gives to its tail answers.

    vae: The model in double precision, in the user's units.
    names: Names of its columns.
    kind: Kind of table that answers are.
    seed: Seed of the integration.
    n_rows: Rows it was fitted to.
    records: The largest values of each column; None where they are not known.
    losses: The largest values of minus each signed column.
    minus: Columns that stand here with the other sign, by position.
    """

    vae: VAE
    names: Sequence[Any]
    kind: str
    seed: int
    n_rows: int
    records: Sequence[ColumnRecord] | None
    losses: Sequence[ColumnRecord | None] = ()
    minus: frozenset[int] = frozenset()

    @classmethod
    def of(cls, model: Any, seed: int | None = None) -> Self:
        """What a fitted `phvae.PHVAE` gives; the seed of its fit is that of its integrals unless another is given."""
        check_is_fitted(model)
        names, record = model.columns_, model.tail_record_
        return cls(
            unconditional(model),
            column_names(model.n_features_in_, None) if names is None else names,
            model.table_kind_,
            model.settings_["seed"] if seed is None else seed,
            model.settings_["n_rows"],
            None if record is None else record.columns,
            () if record is None else record.losses,
        )

    def asked(self, tail: Tail, positions: Sequence[int]) -> "Fitted":
        """The same model for questions about some columns, where those whose lower tail is asked about are mirrored."""
        minus = turned(tail, positions, self.names, self.vae.decoder.lower.tolist())
        return self.mirrored(minus) if minus else self

    def mirrored(self, columns: Sequence[int]) -> "Fitted":
        """The same model of rows in which these columns have the other sign."""
        vae = copy.deepcopy(self.vae)
        assert isinstance(vae.decoder, SignedDecoder)
        vae.decoder.mirror(columns)
        if self.records is None:
            return self._replace(vae=vae, minus=self.minus ^ frozenset(columns))
        pairs = list(zip(self.records, self.losses, strict=True))
        records = [pair[::-1] if j in columns else pair for j, pair in enumerate(pairs)]
        return self._replace(
            vae=vae,
            records=[upper for upper, _ in records if upper is not None],
            losses=[lower for _, lower in records],
            minus=self.minus ^ frozenset(columns),
        )

    def title(self, column: int) -> Any:
        """What the values of a column are called: its name, and ``-name`` where it has the other sign."""
        return f"-{self.names[column]}" if column in self.minus else self.names[column]

    def is_signed(self, column: int) -> bool:
        """Whether a column has two tails."""
        return float(self.vae.decoder.lower[column]) == -math.inf

    def beyond(self, column: int, x: NDArray[np.float64], probability: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether points lie beyond all observations, or where the model expects less than one of the rows of the fit.

        The second tells of a tail that falls off faster than the data's: its rare levels lie among the observations.
        """
        signed = self.is_signed(column)
        # a level of exactly one row in all is none too rare, whatever its rounding
        rare = (1 - 1e-6) / self.n_rows
        beyond: NDArray[np.bool_] = (probability < rare) | (signed & (probability > 1 - rare))
        if self.records is None:
            return beyond
        beyond = beyond | (x > self.records[column].largest)
        other = self.losses[column] if signed else None
        return beyond if other is None else beyond | (-x > other.largest)

    @property
    def prior(self) -> NormalMixture:
        """Law of the latent vector."""
        return NormalMixture.of_prior(self.vae.prior)

    def proposal(
        self, column: int, *, probability: float = 1.0, points: Sequence[float] = (), below: float = 1.0
    ) -> Proposal:
        """Law of latent points suited to the tails of a column; arguments as in `column_proposal`."""
        prior, seed = self.prior, self.seed
        return column_proposal(self.vae, column, prior, seed, probability=probability, points=points, below=below)

    def trust(self, column: int, record: ColumnRecord | None = None) -> Trust:
        """How far the tail of a column can be trusted, from the rows of the fit or of another record."""
        if record is None:
            if self.records is None:
                raise ValueError(
                    'splice = "gpd": this model keeps no record of the largest values: it is one given covariates, for '
                    "which there is none, or was saved by an older version; fit it again"
                )
            record = self.records[column]
        proposal = self.proposal(column, probability=1 / (RARER * record.n))
        try:
            return trust_point(ColumnLaw(self.vae, column, proposal, STEADY), record)
        except ValueError as error:
            raise ValueError(f"column {self.title(column)!r}: {error}") from None


class Source(ABC):
    """A loss, from which a law can be had for any question.

    name: What the loss is called.
    lower: Its least possible value.
    """

    name: Any
    lower: float
    # Points per replicate at which an integration ends.
    most: int = MOST

    @abstractmethod
    def at(self, *, probability: float = 1.0, points: Sequence[float] = ()) -> Build:
        """Laws, by number of points per replicate, that are accurate where a question looks.

        Args:
            probability: Smallest exceedance probability whose quantile, and the tail beyond it, is wanted.
            points: Thresholds whose exceedance probabilities are wanted.
        """

    def between(self, survival: NDArray[np.float64]) -> Build:
        """Laws that are accurate at the quantiles with these exceedance probabilities."""
        return self.at(probability=float(survival.min()))

    @abstractmethod
    def extrapolated(self, law: IntegratedLaw, x: Tensor) -> NDArray[np.bool_]:
        """Whether points ``(R, k)`` lie beyond what the rows of the fit can show, shape ``(k,)``."""


class Column(Source):
    """One column of a fitted model, with its own tail or a spliced one."""

    def __init__(self, fitted: Fitted, position: int, splice: Splice = None) -> None:
        if splice not in (None, "gpd"):
            raise ValueError(f"splice = {splice!r}; give 'gpd', or None for the tail of the model itself")
        self.fitted, self.position = fitted, position
        self.name = fitted.title(position)
        self.lower = float(fitted.vae.decoder.lower[position])
        self.trust = fitted.trust(position) if splice else None
        self.other = fitted.mirrored([position]) if splice and fitted.is_signed(position) else None
        self.trust_below = None if self.other is None else self.other.trust(position)

    def at(self, *, probability: float = 1.0, points: Sequence[float] = ()) -> Build:
        """Laws of the column; a spliced tail needs no more than the law at its threshold."""
        return self._at(probability, points)

    def between(self, survival: NDArray[np.float64]) -> Build:
        """Laws that are accurate at the quantiles with these exceedance probabilities, on both sides of zero."""
        below = rare_below(survival) if self.fitted.is_signed(self.position) else 1.0
        return self._at(float(survival.min()), (), below)

    def _at(self, probability: float, points: Sequence[float], below: float = 1.0) -> Build:
        trust, other = self.trust, self.trust_below
        if trust is not None:
            points, probability = [trust.point, *(x for x in points if x < trust.point)], 1.0
        if other is not None:
            points, below = [-other.point, *(x for x in points if x > -other.point)], 1.0
        proposal = self.fitted.proposal(self.position, probability=probability, points=points, below=below)

        def law(n: int) -> IntegratedLaw:
            own = ColumnLaw(self.fitted.vae, self.position, proposal, n)
            if trust is None:
                return own
            upper = Spliced(own, trust.point, trust.fit.shape)
            if other is None or self.other is None:
                return upper
            mirrored = ColumnLaw(self.other.vae, self.position, proposal, n)
            return TwoTails(upper, Spliced(mirrored, other.point, other.fit.shape))

        return law

    def spliced(self) -> Spliced | TwoTails | None:
        """One spliced law for all draws, so that equal draws stay equal; None without a splice."""
        law = self.at()(STEADY) if self.trust is not None else None
        return law if isinstance(law, Spliced | TwoTails) else None

    def own_points(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where in the model's own law points of a spliced one were."""
        law = self.spliced()
        return x if law is None else law.origin_of(tensor(x)).numpy()

    def extrapolated(self, law: IntegratedLaw, x: Tensor) -> NDArray[np.bool_]:
        """Whether points lie beyond all observations."""
        return self.fitted.beyond(self.position, x.mean(0).numpy(), law.log_sf(x).exp().mean(0).numpy())


def rare_below(survival: NDArray[np.float64]) -> float:
    """Smallest probability to stay below the quantiles with these exceedance probabilities."""
    return max(float(1 - survival.max()), RESOLUTION)


def rarer_than_seen(law: IntegratedLaw, x: Tensor, n_rows: int) -> NDArray[np.bool_]:
    """Whether fewer than one of so many rows is expected beyond points ``(R, k)``."""
    return (law.log_sf(x).exp().mean(0) < 1 / n_rows).numpy()


def tensor(values: Any) -> Tensor:
    """Numbers as float64."""
    return torch.as_tensor(values, dtype=torch.float64)
