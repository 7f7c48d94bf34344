"""One pass over rows that do not fit into memory: all that training has to know before it begins."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phvae import defaults
from phvae.preprocessing import (
    Origin,
    PositiveScaler,
    column_names,
    endpoints,
    require_no_origin,
    require_non_negative,
    rounded,
)
from phvae.risk.record import ColumnRecord, TailRecord
from phvae.streaming.sketch import Cells, QuantileSketch, together
from phvae.supports import ATOM_FROM, Support, require_sides, signed_columns
from phvae.tables import DataError
from phvae.tables.row_groups import RowGroups

__all__ = ["Survey", "survey"]

Array = NDArray[np.float64]


class ColumnSurvey(NamedTuple):
    """What is known of a column of the rows to train on.

    x: Positive values or means of neighbouring ones, ascending.
    weights: How many each of them stands for.
    zeros: Exact zeros.
    error: Largest error of a rank, as a share of the number of values beyond it at the nearer end.
    losses: The same of minus a signed column; None for another one.
    """

    x: Array
    weights: Array
    zeros: int
    error: float
    losses: "ColumnSurvey | None" = None


class _Found(NamedTuple):
    """Origin, scale, share of zeros, share of losses, and what is kept of the tails of a column, from all rows."""

    origin: float
    scale: float
    zero_share: float
    loss_share: float
    record: ColumnRecord
    losses: ColumnRecord | None


class Survey(NamedTuple):
    """What one pass has found.

    scaler: Origin, scale, shares of zeros and of losses of each column, from all rows.
    columns: The columns of the rows to train on.
    held_out: The rows held out, shape ``(v, D)``.
    tail_record: Counts and largest values of all rows.
    fingerprint: Digest of all rows, that of the same rows in memory.
    """

    scaler: PositiveScaler
    columns: list[ColumnSurvey]
    held_out: Array
    tail_record: TailRecord
    fingerprint: str


class _Column:
    """A column while it is read."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.trained, self.held_out = QuantileSketch(), QuantileSketch()
        self.zeros = self.zeros_held_out = 0
        self.reference: float | None = None
        self.shifted = 0.0

    def add(self, values: Array, held_out: NDArray[np.bool_]) -> None:
        positive = values > 0
        self.zeros += int((~positive).sum())
        self.zeros_held_out += int((~positive & held_out).sum())
        self.trained.add(values[positive & ~held_out])
        self.held_out.add(values[positive & held_out])
        if positive.any():
            if self.reference is None:
                self.reference = float(values[positive.argmax()])
            # shares of differences: neither huge values nor a far origin spoil the mean
            self.shifted += float(((values[positive] - self.reference) / self.n_rows).sum())

    def cells(self) -> Cells:
        """The positive values of all rows."""
        both = QuantileSketch()
        both.merge(self.trained)
        both.merge(self.held_out)
        return both.cells()

    def found(self, given: float | None, label: str) -> _Found:
        """What all rows say, as `PositiveScaler` has it."""
        known = self.cells()
        n = self.n_rows - self.zeros
        if not n or self.reference is None:
            raise DataError(f"column {label!r} is 0 in every row; it has no law to learn: drop it")
        smallest = float(known.low.min())
        if smallest == float(known.high.max()):
            raise DataError(f"column {label!r} is {smallest:g} wherever it is not 0; it has no law to learn: drop it")
        if given is None:
            gap = ((self.reference - smallest) + self.shifted * (self.n_rows / n)) / n
            origin = max(0.0, min(smallest - gap, float(np.nextafter(smallest, 0))))
        elif smallest <= given:
            raise DataError(
                f"column {label!r} has the value {smallest:g}, not above its origin {given:g}; "
                "remove such rows, lower the origin or use 'auto'"
            )
        else:
            origin = given
        scale = _median(known, n, origin, label)
        return _Found(origin, scale, 1 - n / self.n_rows, 0.0, _record(known, n, self.zeros, self.n_rows), None)

    def survey(self) -> ColumnSurvey:
        known = self.trained.cells()
        zeros = self.zeros - self.zeros_held_out
        return ColumnSurvey(known.mean, known.weight, zeros, self.trained.relative_rank_error())


class _Signed:
    """A column with both signs while it is read: its gains, and minus its losses."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows, self.gains, self.losses = n_rows, _Column(n_rows), _Column(n_rows)

    def add(self, values: Array, held_out: NDArray[np.bool_]) -> None:
        self.gains.add(values, held_out)
        self.losses.add(-values, held_out)

    def found(self, given: float | None, label: str) -> _Found:
        """What all rows say, as `PositiveScaler` has it."""
        require_no_origin(given, label)
        gains, losses = self.gains.cells(), self.losses.cells()
        require_sides(len(gains.mean), len(losses.mean), label)
        n_gains, n_losses = self.n_rows - self.gains.zeros, self.n_rows - self.losses.zeros
        n = n_gains + n_losses
        zeros, zero_share = self.n_rows - n, 1 - n / self.n_rows
        scale = _median(together([gains, losses]), n, 0.0, label)
        records = (_record(side, count, zeros, self.n_rows) for side, count in ((gains, n_gains), (losses, n_losses)))
        return _Found(0.0, scale, zero_share if zero_share >= ATOM_FROM else 0.0, n_losses / n, *records)

    def survey(self) -> ColumnSurvey:
        gains, losses = self.gains.survey(), self.losses.survey()
        # rows without a gain and rows without a loss are all rows, and the zeros twice
        n_gains, n_losses = (int(side.weights.sum()) for side in (gains, losses))
        return gains._replace(zeros=gains.zeros - n_losses, losses=losses._replace(zeros=losses.zeros - n_gains))


def _median(known: Cells, n: int, origin: float, label: str) -> float:
    """Median distance of values from their origin."""
    ends = np.cumsum(known.weight)
    lower, upper = (known.mean[np.searchsorted(ends, [(n - 1) // 2, n // 2], side="right")] - origin).tolist()
    scale: float = lower + (upper - lower) / 2
    largest = float(known.high.max())
    if not (largest - origin) / scale < np.inf:
        raise DataError(f"column {label!r} reaches {largest:g}, beyond 1e308 times the median excess {scale:g}")
    return scale


def _record(known: Cells, n: int, zeros: int, n_rows: int) -> ColumnRecord:
    """The largest of ``n`` positive values."""
    kept = ColumnRecord.kept(n, n_rows)
    top = np.repeat(known.mean[: -kept - 1 : -1], known.weight[: -kept - 1 : -1].astype(np.int64).clip(max=kept))
    return ColumnRecord(n_rows, zeros, top[:kept])


def survey(
    groups: RowGroups, origin: Origin, held_out: NDArray[np.int64], support: Support = defaults.SUPPORT
) -> Survey:
    """Read all rows once; a value that no model can use is a ValueError that names file, row and column.

    Args:
        groups: The rows.
        origin: As in `PositiveScaler`.
        held_out: Numbers of the rows to hold out, ascending.
        support: As in `PositiveScaler`.
    """
    n_rows, n_columns = groups.shape
    names = column_names(n_columns, groups.names)
    given, signed = endpoints(origin, names), signed_columns(support, names)
    columns = [_Signed(n_rows) if sign else _Column(n_rows) for sign in signed]
    digest = hashlib.sha256(f"{groups.shape} float64".encode())
    kept: list[Array] = []
    seen = 0
    for group in range(len(groups.counts)):
        for piece in groups.read(group):
            _require_usable(groups, group, piece.values, piece.rows, names, signed)
            digest.update(piece.values.data)
            first, last = np.searchsorted(held_out, (seen, seen + len(piece.values)))
            out = np.zeros(len(piece.values), bool)
            out[held_out[first:last] - seen] = True
            kept.append(piece.values[out])
            for column, values in zip(columns, piece.values.T, strict=True):
                column.add(values, out)
            seen += len(piece.values)
    try:
        found = [column.found(end, name) for column, end, name in zip(columns, given, names, strict=True)]
    except DataError as error:
        raise ValueError(f"{groups.label}: {error}") from error
    numbers = np.array([part[:4] for part in found], dtype=np.float64)
    scaler = PositiveScaler.of(*np.ascontiguousarray(numbers.T))
    losses = tuple(part.losses for part in found) if signed.any() else ()
    record = TailRecord(tuple(part.record for part in found), losses)
    return Survey(scaler, [c.survey() for c in columns], np.concatenate(kept), record, digest.hexdigest())


def unit_free(scaler: PositiveScaler, x: Array) -> Array:
    """Rows as they are trained on."""
    return rounded(scaler.transform(x))


def _require_usable(
    groups: RowGroups,
    group: int,
    values: Array,
    rows: NDArray[np.int64],
    names: Sequence[str],
    signed: NDArray[np.bool_],
) -> None:
    try:
        wrong = ~np.isfinite(values)
        if wrong.any():
            row, place = divmod(int(wrong.argmax()), values.shape[1])
            what = "missing (NaN)" if np.isnan(values[row, place]) else f"{values[row, place]:g}"
            raise DataError(f"column {names[place]!r}", row, f"is {what}; remove the row or fill in a number")
        require_non_negative(values, names, signed)
    except DataError as error:
        label, place_of = groups.place(group)
        raise ValueError(f"{label}: {error.at(lambda row: place_of(int(rows[row])))}") from error
