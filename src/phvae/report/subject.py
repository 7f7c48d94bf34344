"""What a report is about: tails of a model, rows to hold them against, and how questions are asked."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from phvae.distributions.generalised_pareto import ParetoTailFit
from phvae.report.empirical import Empirical, Values
from phvae.report.product_limit import ProductLimit
from phvae.risk.law import IntegratedLaw, Pooled
from phvae.risk.losses import Losses
from phvae.risk.questions import place
from phvae.risk.record import ColumnRecord, TailRecord
from phvae.risk.seen import SeenColumn, SeenRows, cut_columns
from phvae.risk.sources import STEADY, Column, Fitted, Splice
from phvae.risk.trust import FEWEST, data_tail
from phvae.risk.turned import turned
from phvae.weights import repeated

__all__ = ["Rows", "Side", "Subject", "sides_of"]

Array = NDArray[np.float64]
# Relative standard error that nobody sees in a picture.
DRAWN_RTOL = 1e-2
TAILS = ("both", "upper", "lower")
# Rows of an answer by name, as JSON knows them.
Rows = list[dict[str, Any]]


class Side(NamedTuple):
    """One tail of one column: the upper tail of it, or of minus it."""

    position: int
    minus: bool
    name: str


def sides_of(tail: Any, names: Sequence[str], lower: Sequence[float]) -> list[Side]:
    """The tails of a page, column by column.

    Args:
        tail: ``"both"``, ``"upper"`` or ``"lower"``, or a dict from column to one of them, ``"both"`` for the others;
            of a column that is not signed ``"both"`` is the upper tail.
        names: Names of the columns.
        lower: Their least possible values, ``-inf`` for a signed one.

    >>> [side.name for side in sides_of("both", ["stock", "claims"], [float("-inf"), 0.0])]
    ['stock', '-stock', 'claims']
    """
    asked = dict.fromkeys(range(len(names)), "both" if isinstance(tail, Mapping) else tail)
    if isinstance(tail, Mapping):
        asked |= {place(column, names, "tail"): side for column, side in tail.items()}
    for position, side in asked.items():
        if not isinstance(side, str) or side not in TAILS:
            where = f"tail[{names[position]!r}]" if isinstance(tail, Mapping) else "tail"
            raise ValueError(
                f"{where} = {side!r}; give 'both', 'upper' or 'lower', or a dict from column to one of them"
            )
    # the lower tail of a column that has none is refused there
    minus = turned({names[j]: side for j, side in asked.items() if side == "lower"}, [*asked], names, lower)
    sides = []
    for position, name in enumerate(names):
        if position not in minus:
            sides.append(Side(position, False, name))
        if position in minus or (asked[position] == "both" and lower[position] == -np.inf):
            sides.append(Side(position, True, f"-{name}"))
    return sides


@dataclass(frozen=True)
class Subject:
    """A fitted model beside rows, with the settings that every question of a report shares.

    model: The model; its answers are structured arrays.
    names: Names of the columns, as text.
    sides: The tails that the report is about; what has a place by side has it in this order.
    rows: The rows.
    truth: Law of each side where it is known; else None.
    splice: As in the tail answers.
    rtol: Relative standard error that integrals are computed to.
    tails: Where each side's tail begins in the rows of the fit, and the generalised Pareto law of what exceeds that;
        None without a tail, or where the fit has seen values of it cut.
    """

    model: Any
    names: list[str]
    sides: list[Side]
    rows: SeenRows
    truth: list[Any]
    splice: Splice
    rtol: float
    tails: list[tuple[float, ParetoTailFit] | None]
    fits: tuple[Fitted, Fitted]

    @classmethod
    def of(
        cls,
        model: Any,
        rows: SeenRows,
        truth: Mapping[Any, Any] | None,
        splice: Splice,
        rtol: float,
        tail: Any = "both",
    ) -> "Subject":
        """The subject of a report on a fitted `phvae.PHVAE` and rows of its columns."""
        asked = copy.copy(model)
        asked.table_kind_ = "numpy"
        signed = asked.scaler_.loss_share_ > 0
        if asked.tail_record_ is None:
            # a model of an older version or of a row of covariates remembers none: the rows given stand for its fit
            seen = np.stack([rows.column(j).values for j in range(rows.n_columns)], 1)
            asked.tail_record_ = TailRecord.of(seen, rows.weights, signed)
        fitted = Fitted.of(asked)
        names = [str(name) for name in fitted.names]
        sides = sides_of(tail, names, np.where(signed, -np.inf, asked.scaler_.lower_).tolist())
        fits = (fitted, fitted.mirrored(np.flatnonzero(signed).tolist()) if signed.any() else fitted)
        known = {str(name): law for name, law in (truth or {}).items()}
        titles = [side.name for side in sides]
        if unknown := set(known) - set(titles):
            raise ValueError(f"truth names {sorted(unknown)}; give laws of columns of the model, which has {titles}")
        cut = cut_columns(asked)
        tails = [None if side.position in cut else _tail(_record(fits, side)) for side in sides]
        laws = [known.get(title) for title in titles]
        subject = cls(asked, names, sides, rows, laws, splice, rtol, tails, fits)
        for side, data in zip(sides, subject.data, strict=True):
            if not len(data.seen):
                raise ValueError(
                    f"column {side.name!r} has no value above zero in the rows given; give rows that show its tail"
                )
        return subject

    @cached_property
    def data(self) -> list[Empirical]:
        """What the rows say of each side."""
        return [self._empirical(side) for side in self.sides]

    def seen(self, side: Side) -> SeenColumn:
        """What is known of the cells of a column, with the sign of a side."""
        column = self.rows.column(side.position)
        return column.mirrored if side.minus else column

    def record(self, side: Side) -> ColumnRecord:
        """Counts and largest values of the rows of the fit."""
        return _record(self.fits, side)

    def is_signed(self, position: int) -> bool:
        """Whether a column has two tails."""
        return self.fits[0].is_signed(position)

    def ask(self, question: Callable[[Any], Any]) -> Rows:
        """The answer of the model to a question, row by row.

        Args:
            question: From losses, as `phvae.PHVAE.losses` gives them, here of all sides, to an answer.
        """
        return rows_of(question(self._losses(self.sides, self.rtol)))

    def ask_side(self, place: int, question: Callable[[Any], Any]) -> Rows:
        """The same of one side, as exactly as a picture needs."""
        return rows_of(question(self._losses([self.sides[place]], self.drawn_rtol)))

    def ask_other(self, place: int, question: Callable[[Any], Any]) -> Rows:
        """The same of the other side of a signed column."""
        side = self.sides[place]
        return rows_of(question(self._losses([side._replace(minus=not side.minus)], self.drawn_rtol)))

    def rough_isf(self, place: int, probability: float) -> float:
        """About where a column is exceeded with a probability, to end a picture there."""
        law = self._source(self.sides[place]).at(probability=probability)(STEADY)
        return float(law.isf(torch.tensor([probability], dtype=torch.float64)).mean())

    def rough_mean_excess(self, place: int, x: Array) -> Array:
        """Mean excess of a column as exactly as a picture needs: its integral reaches a tolerance slowly."""
        law = self._source(self.sides[place]).at(points=x.tolist())(4 * STEADY)
        return np.asarray(law.mean_excess(torch.from_numpy(x)).mean(0).numpy())

    def law(self, side: Side) -> IntegratedLaw:
        """The law of a side as exactly as rows can tell, of one replicate."""
        return Pooled(self._source(side).at(probability=1 / max(self.rows.n_rows, 2))(STEADY))

    @property
    def drawn_rtol(self) -> float:
        """Relative standard error of what is drawn."""
        return max(self.rtol, DRAWN_RTOL)

    def _source(self, side: Side) -> Column:
        return Column(self.fits[side.minus], side.position, self.splice)

    def _losses(self, sides: Sequence[Side], rtol: float) -> Losses:
        return Losses([self._source(side) for side in sides], "numpy", rtol)

    def _empirical(self, side: Side) -> Empirical:
        column = self.seen(side)
        known = column.rounded.known
        if known.exact.all() and not known.bounded and not known.selected:
            return Values(known.lower if known.weights is None else repeated(known.lower, known.weights))
        lowest = -np.inf if self.is_signed(side.position) else 0.0

        def survival(x: float) -> float:
            return float(self.law(side).log_sf(torch.tensor([x], dtype=torch.float64)).exp())

        return ProductLimit(column, survival, lowest)


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


def _record(fits: tuple[Fitted, Fitted], side: Side) -> ColumnRecord:
    records = fits[side.minus].records
    assert records is not None
    return records[side.position]


def _tail(record: ColumnRecord) -> tuple[float, ParetoTailFit] | None:
    return data_tail(record) if len(np.unique(record.top)) > FEWEST else None
