"""Losses that can be integrated to any accuracy: the columns of a fitted model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from phvae.preprocessing import column_names
from phvae.risk.column import ColumnLaw, column_proposal
from phvae.risk.estimate import MOST
from phvae.risk.latent import NormalMixture
from phvae.risk.law import IntegratedLaw
from phvae.risk.quadrature import Proposal
from phvae.risk.record import ColumnRecord
from phvae.risk.splice import Spliced
from phvae.risk.trust import RARER, Trust, trust_point
from phvae.vae import VAE

__all__ = ["Build", "Column", "Fitted", "Source", "Splice"]

Build = Callable[[int], IntegratedLaw]
Splice = Literal["gpd"] | None

# Points per replicate of the law that a trust point is read off and that draws are moved with.
STEADY = 2**8


class Fitted(NamedTuple):
    """What a fitted model gives to its tail answers.

    vae: The model in double precision, in the user's units.
    names: Names of its columns.
    kind: Kind of table that answers are.
    seed: Seed of the integration.
    n_rows: Rows it was fitted to.
    records: The largest values of each column; None where they are not known.
    """

    vae: VAE
    names: Sequence[Any]
    kind: str
    seed: int
    n_rows: int
    records: Sequence[ColumnRecord] | None

    @classmethod
    def of(cls, model: Any, seed: int | None = None) -> Self:
        """What a fitted `phvae.PHVAE` gives; the seed of its fit is that of its integrals unless another is given."""
        check_is_fitted(model)
        names, record = model._columns, model.tail_record_
        return cls(
            model._exact("cpu"),
            column_names(model.n_features_in_, None) if names is None else names,
            model.table_kind_,
            model.settings_["seed"] if seed is None else seed,
            model.settings_["n_rows"],
            None if record is None else record.columns,
        )

    def beyond(self, column: int, x: NDArray[np.float64], probability: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether points exceed the largest observation; without a record, whether less than one row is expected."""
        if self.records is None:
            return probability < 1 / self.n_rows
        return x > self.records[column].largest

    @property
    def prior(self) -> NormalMixture:
        """Law of the latent vector."""
        return NormalMixture.of_prior(self.vae.prior)

    def proposal(self, column: int, *, probability: float = 1.0, points: Sequence[float] = ()) -> Proposal:
        """Law of latent points suited to the tail of a column."""
        return column_proposal(self.vae, column, self.prior, self.seed, probability=probability, points=points)

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
            raise ValueError(f"column {self.names[column]!r}: {error}") from None


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

    @abstractmethod
    def extrapolated(self, law: IntegratedLaw, x: Tensor) -> NDArray[np.bool_]:
        """Whether points ``(R, k)`` lie beyond what the rows of the fit can show, shape ``(k,)``."""


class Column(Source):
    """One column of a fitted model, with its own tail or a spliced one."""

    def __init__(self, fitted: Fitted, position: int, splice: Splice = None) -> None:
        if splice not in (None, "gpd"):
            raise ValueError(f"splice = {splice!r}; give 'gpd', or None for the tail of the model itself")
        self.fitted, self.position = fitted, position
        self.name = fitted.names[position]
        self.lower = float(fitted.vae.decoder.origin[position])
        if bool(fitted.vae.decoder.has_atom[position]):
            self.lower = min(self.lower, 0.0)
        self.trust = fitted.trust(position) if splice else None

    def at(self, *, probability: float = 1.0, points: Sequence[float] = ()) -> Build:
        """Laws of the column; a spliced tail needs no more than the law at its threshold."""
        trust = self.trust
        if trust is not None:
            points, probability = [trust.point, *(x for x in points if x < trust.point)], 1.0
        proposal = self.fitted.proposal(self.position, probability=probability, points=points)

        def law(n: int) -> IntegratedLaw:
            own = ColumnLaw(self.fitted.vae, self.position, proposal, n)
            return own if trust is None else Spliced(own, trust.point, trust.fit.shape)

        return law

    def spliced(self) -> Spliced | None:
        """One spliced law for all draws, so that equal draws stay equal; None without a splice."""
        law = self.at()(STEADY) if self.trust is not None else None
        return law if isinstance(law, Spliced) else None

    def own_points(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where in the model's own law points of a spliced one were."""
        law = self.spliced()
        return x if law is None else law.origin_of(tensor(x)).numpy()

    def extrapolated(self, law: IntegratedLaw, x: Tensor) -> NDArray[np.bool_]:
        """Whether points are larger than the largest observation."""
        return self.fitted.beyond(self.position, x.mean(0).numpy(), law.log_sf(x).exp().mean(0).numpy())


def rarer_than_seen(law: IntegratedLaw, x: Tensor, n_rows: int) -> NDArray[np.bool_]:
    """Whether fewer than one of so many rows is expected beyond points ``(R, k)``."""
    return (law.log_sf(x).exp().mean(0) < 1 / n_rows).numpy()


def tensor(values: Any) -> Tensor:
    """Numbers as float64."""
    return torch.as_tensor(values, dtype=torch.float64)
