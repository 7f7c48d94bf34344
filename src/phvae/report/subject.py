"""What a report is about: a model, rows to hold it against, and how questions are asked."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phvae.distributions.generalised_pareto import ParetoTailFit
from phvae.preprocessing import column_names
from phvae.risk.record import TailRecord
from phvae.risk.sources import STEADY, Column, Fitted, Splice
from phvae.risk.trust import FEWEST, data_tail

__all__ = ["Rows", "Subject"]

Array = NDArray[np.float64]
# Relative standard error that nobody sees in a picture.
DRAWN_RTOL = 1e-2
# Rows of an answer by name, as JSON knows them.
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Subject:
    """A fitted model beside rows, with the settings that every question of a report shares.

    model: The model; its answers are structured arrays.
    names: Names of the columns, as text.
    values: The rows, ``(n, D)``; a missing value is NaN.
    truth: Law of each column where it is known; else None.
    splice: As in the tail answers.
    rtol: Relative standard error that integrals are computed to.
    tails: Where each column's tail begins, and the generalised Pareto law of what exceeds that; None without a tail.
    """

    model: Any
    names: list[str]
    values: Array
    truth: list[Any]
    splice: Splice
    rtol: float
    tails: list[tuple[float, ParetoTailFit] | None]

    @classmethod
    def of(cls, model: Any, X: Any, truth: Mapping[Any, Any] | None, splice: Splice, rtol: float) -> "Subject":
        """The subject of a report on a fitted `phvae.PHVAE` and a table with its columns."""
        values = model._read(X, reset=False).values
        asked = copy.copy(model)
        asked.table_kind_ = "numpy"
        records = (TailRecord.of(values) if model.tail_record_ is None else model.tail_record_).columns
        if model.tail_record_ is None:
            # a model of an older version remembers no tail: the rows given stand for those of its fit
            asked.tail_record_ = TailRecord(tuple(records))
        names = [str(name) for name in column_names(model.n_features_in_, model._columns)]
        known = {str(name): law for name, law in (truth or {}).items()}
        if unknown := set(known) - set(names):
            raise ValueError(f"truth names {sorted(unknown)}; give laws of columns of the model, which has {names}")
        tails = [data_tail(record) if len(np.unique(record.top)) > FEWEST else None for record in records]
        return cls(asked, names, values, [known.get(name) for name in names], splice, rtol, tails)

    @property
    def record(self) -> TailRecord:
        """Counts and largest values of the rows of the fit."""
        record: TailRecord = self.model.tail_record_
        return record

    def column(self, position: int) -> Array:
        """The values of a column that are not missing, largest first."""
        values = self.values[:, position]
        return -np.sort(-values[~np.isnan(values)])

    def ask(self, question: Callable[[Any], Any]) -> Rows:
        """The answer of the model to a question, row by row.

        Args:
            question: From losses, as `phvae.PHVAE.losses` gives them for all columns, to an answer.
        """
        return rows_of(question(self.model.losses(None, splice=self.splice, rtol=self.rtol)))

    def ask_column(self, position: int, question: Callable[[Any], Any]) -> Rows:
        """The same of one column, as exactly as a picture needs."""
        return rows_of(question(self.model.losses(position, splice=self.splice, rtol=self.drawn_rtol)))

    def rough_isf(self, position: int, probability: float) -> float:
        """About where a column is exceeded with a probability, to end a picture there."""
        law = Column(Fitted.of(self.model), position, self.splice).at(probability=probability)(STEADY)
        return float(law.isf(torch.tensor([probability], dtype=torch.float64)).mean())

    def rough_mean_excess(self, position: int, x: Array) -> Array:
        """Mean excess of a column as exactly as a picture needs: its integral reaches a tolerance slowly."""
        law = Column(Fitted.of(self.model), position, self.splice).at(points=x.tolist())(4 * STEADY)
        return np.asarray(law.mean_excess(torch.from_numpy(x)).mean(0).numpy())

    @property
    def drawn_rtol(self) -> float:
        """Relative standard error of what is drawn."""
        return max(self.rtol, DRAWN_RTOL)


def rows_of(answer: NDArray[Any]) -> Rows:
    """The rows of a structured array, as JSON knows them.

    >>> rows_of(np.array([(1.5, True)], dtype=[("value", float), ("extrapolated", bool)]))
    [{'value': 1.5, 'extrapolated': True}]
    """
    names: Sequence[str] = answer.dtype.names or ()
    return [dict(zip(names, row, strict=True)) for row in answer.tolist()]


def estimate(row: Mapping[str, Any]) -> dict[str, Any]:
    """Value, error, interval and flag of a row of an answer."""
    return {name: row[name] for name in ("value", "standard_error", "low", "high", "extrapolated")}
