"""One pass over rows that do not fit into memory: all that training has to know before it begins."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phvae.preprocessing import Origin, PositiveScaler, column_names, require_non_negative, rounded
from phvae.preprocessing import _endpoints as endpoints
from phvae.risk.record import ColumnRecord, TailRecord
from phvae.streaming.sketch import QuantileSketch
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
    """

    x: Array
    weights: Array
    zeros: int
    error: float


class Survey(NamedTuple):
    """What one pass has found.

    scaler: Origin, scale and share of zeros of each column, from all rows.
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

    def scale(self, given: float | None, label: str) -> tuple[float, float, float, ColumnRecord]:
        """Origin, scale, share of zeros and record, from all rows; as `PositiveScaler` has them."""
        both = QuantileSketch()
        both.merge(self.trained)
        both.merge(self.held_out)
        known = both.cells()
        n = self.n_rows - self.zeros
        if not n or self.reference is None:
            raise DataError(f"column {label!r} is 0 in every row; it has no law to learn: drop it")
        smallest, largest = float(known.low.min()), float(known.high.max())
        if smallest == largest:
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
        ends = np.cumsum(known.weight)
        lower, upper = (known.mean[np.searchsorted(ends, [(n - 1) // 2, n // 2], side="right")] - origin).tolist()
        scale = lower + (upper - lower) / 2
        if not (largest - origin) / scale < np.inf:
            raise DataError(f"column {label!r} reaches {largest:g}, beyond 1e308 times the median excess {scale:g}")
        kept = ColumnRecord.kept(n, self.n_rows)
        top = np.repeat(known.mean[: -kept - 1 : -1], known.weight[: -kept - 1 : -1].astype(np.int64).clip(max=kept))
        return origin, scale, 1 - n / self.n_rows, ColumnRecord(self.n_rows, self.zeros, top[:kept])

    def survey(self) -> ColumnSurvey:
        known = self.trained.cells()
        zeros = self.zeros - self.zeros_held_out
        return ColumnSurvey(known.mean, known.weight, zeros, self.trained.relative_rank_error())


def survey(groups: RowGroups, origin: Origin, held_out: NDArray[np.int64]) -> Survey:
    """Read all rows once; a value that no model can use is a ValueError that names file, row and column.

    Args:
        groups: The rows.
        origin: As in `PositiveScaler`.
        held_out: Numbers of the rows to hold out, ascending.
    """
    n_rows, n_columns = groups.shape
    names = column_names(n_columns, groups.names)
    given = endpoints(origin, names)
    columns = [_Column(n_rows) for _ in names]
    digest = hashlib.sha256(f"{groups.shape} float64".encode())
    kept: list[Array] = []
    seen = 0
    for group in range(len(groups.counts)):
        for piece in groups.read(group):
            _require_usable(groups, group, piece.values, piece.rows, names)
            digest.update(piece.values.data)
            first, last = np.searchsorted(held_out, (seen, seen + len(piece.values)))
            out = np.zeros(len(piece.values), bool)
            out[held_out[first:last] - seen] = True
            kept.append(piece.values[out])
            for column, values in zip(columns, piece.values.T, strict=True):
                column.add(values, out)
            seen += len(piece.values)
    try:
        found = [column.scale(end, name) for column, end, name in zip(columns, given, names, strict=True)]
    except DataError as error:
        raise ValueError(f"{groups.label}: {error}") from error
    origins, scales, shares, records = zip(*found, strict=True)
    scaler = PositiveScaler.of(np.array(origins), np.array(scales), np.array(shares))
    record = TailRecord(tuple(records))
    return Survey(scaler, [c.survey() for c in columns], np.concatenate(kept), record, digest.hexdigest())


def unit_free(scaler: PositiveScaler, x: Array) -> Array:
    """Rows as they are trained on."""
    return rounded(scaler.transform(x))


def _require_usable(
    groups: RowGroups, group: int, values: Array, rows: NDArray[np.int64], names: Sequence[str]
) -> None:
    try:
        wrong = ~np.isfinite(values)
        if wrong.any():
            row, place = divmod(int(wrong.argmax()), values.shape[1])
            what = "missing (NaN)" if np.isnan(values[row, place]) else f"{values[row, place]:g}"
            raise DataError(f"column {names[place]!r}", row, f"is {what}; remove the row or fill in a number")
        require_non_negative(values, names)
    except DataError as error:
        label, place_of = groups.place(group)
        raise ValueError(f"{label}: {error.at(lambda row: place_of(int(rows[row])))}") from error
