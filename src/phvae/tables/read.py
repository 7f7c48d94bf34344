"""Tables from files: which columns and rows to take, and where in the file each row stands."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phvae.tables.arrow_files import ArrowFile
from phvae.tables.csv_files import CsvFile
from phvae.tables.filters import RowFilter, known, parse
from phvae.tables.frames import DataError
from phvae.tables.source import Origin, Place, TableFile, damage_named, expand

__all__ = ["Missing", "Sheet", "choose", "needed_columns", "open_table", "read_table", "wanted_rows"]

Missing = Literal["error", "drop"]


@dataclass(frozen=True)
class Sheet:
    """Columns of numbers out of files, and what a person should know of them.

    Attributes:
        table: The columns, float64; a missing cell is null.
        weights: Weight of each row, where a column of weights was named.
        covariates: Columns that are given beside those of numbers, where any were named: numbers, or text for levels.
        notices: What was left out, a sentence each.
    """

    table: pa.Table
    weights: NDArray[np.float64] | None
    notices: list[str]
    source: str
    _pieces: list["_Piece"] = field(repr=False)
    covariates: pa.Table | None = None

    def place(self, row: int) -> tuple[str, str]:
        """The file a row of the table came from, and where in it."""
        for piece in self._pieces:
            if row < len(piece):
                return piece.file.label, piece.file.place(piece.row(row))
            row -= len(piece)
        raise IndexError(row)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Let what is wrong with the data say the file, and the line instead of the row."""
        try:
            yield
        except DataError as error:
            if error.row is None:
                raise ValueError(f"{self.source}: {error}") from error
            label, where = self.place(error.row)
            raise ValueError(f"{label}: {error.at(lambda _: where)}") from error


def read_table(
    source: Place,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    weights: str | None = None,
    covariates: Sequence[str] = (),
    levels: Sequence[str] = (),
    missing: Missing = "error",
    delimiter: str | None = None,
    decimal: str = ".",
    progress: Callable[[int], None] | None = None,
) -> Sheet:
    """Read columns of numbers.

    Args:
        source: A CSV (also gzip), Parquet or Arrow file, a folder of them, a pattern such as ``"2024-*.csv"``, or ``-``
            for standard input. What a file holds is judged by its contents.
        columns: Names of the columns to read; None takes all that hold numbers, and a notice names the others.
        where: Rows to read, such as ``loss > 10 and kind != "x"``; see `phvae.tables.filters`.
        weights: Name of a column of weights, which is not among the columns then.
        covariates: Names of columns that are given and not modelled, which are not among the columns either.
        levels: Those of them to read as text though they look like numbers.
        missing: What a missing cell among the columns is: a mistake, ``"error"``, which is found when the table is
            used, or a reason to leave out its row, ``"drop"``.
        delimiter: What stands between the cells of a CSV file; None takes the one that its first line shows.
        decimal: Decimal mark in a CSV file.
        progress: Called with the number of rows read so far.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "claims.csv")
    ...     _ = path.write_text("day,loss,kind\\n2024-01-01,1.5,a\\n2024-01-02,20,b\\n2024-01-03,30,x\\n")
    ...     sheet = read_table(path, where='loss > 10 and kind != "x"')
    ...     sheet.table.to_pydict(), sheet.notices, sheet.place(0)[1]
    ({'loss': [20.0]}, ["columns that hold no numbers are left out: 'day' (dates), 'kind' (text)"], 'line 3')
    """
    names = expand(source)
    files = (open_table(name, delimiter, decimal) for name in names)
    first = next(files)
    notices: list[str] = []
    chosen = choose(first, columns, weights, notices, covariates)
    rows = parse(where, list(first.columns)) if where is not None else None
    text = [name for name in covariates if name in levels or first.columns[name].kind != "numbers"]
    as_numbers = [name for name in covariates if name not in text]
    numbers = [*chosen, *([weights] if weights is not None else []), *as_numbers]
    pieces: list[_Piece] = []
    count = Counter[str]()
    for file in (first, *files):
        piece = _Piece(file)
        for batch in _batches(file, first, numbers, rows, text):
            piece.take(_with_text(batch, text), [*numbers, *text], [*chosen, *covariates], rows, missing, count)
            if progress is not None:
                progress(count["read"])
        pieces.append(piece)
    label = _label(source)
    if count["dropped"]:
        notices.append(f"{count['dropped']:,} of {count['read']:,} rows have a missing cell and are left out")
    if not sum(map(len, pieces)):
        raise ValueError(f"{label}: {_no_rows(where, count)}")
    whole = pa.Table.from_batches([batch for piece in pieces for batch in piece.batches])
    given = whole.select(list(covariates)) if covariates else None
    sheet = Sheet(whole.select(chosen), None, notices, label, pieces, given)
    return sheet if weights is None else _weighted(sheet, whole.column(weights), weights)


class _Piece:
    """The rows taken from one file, and which rows of the file they are."""

    def __init__(self, file: TableFile) -> None:
        self.file = file
        self.batches: list[pa.RecordBatch] = []
        self._taken: list[NDArray[np.int64] | range] = []
        self._n_seen = 0

    def __len__(self) -> int:
        return sum(map(len, self._taken))

    def row(self, position: int) -> int:
        """The row of the file that is the one at this position."""
        for taken in self._taken:
            if position < len(taken):
                return int(taken[position])
            position -= len(taken)
        raise IndexError(position)

    def take(
        self,
        batch: pa.RecordBatch,
        numbers: Sequence[str],
        chosen: Sequence[str],
        rows: RowFilter | None,
        missing: Missing,
        count: Counter[str],
    ) -> None:
        """Keep the rows that are wanted of a batch."""
        seen, self._n_seen = self._n_seen, self._n_seen + len(batch)
        kept = wanted_rows(batch, chosen, rows, missing, count)
        batch = batch.select(list(numbers))
        if kept.all():
            self._taken.append(range(seen, seen + len(batch)))
            self.batches.append(batch)
        else:
            self._taken.append(seen + np.flatnonzero(kept))
            self.batches.append(batch.filter(pa.array(kept)))


def wanted_rows(
    batch: pa.RecordBatch, chosen: Sequence[str], rows: RowFilter | None, missing: Missing, count: Counter[str]
) -> NDArray[np.bool_]:
    """Which rows of a batch to keep, with those read and dropped counted."""
    count["read"] += len(batch)
    kept = np.ones(len(batch), bool) if rows is None else _array(rows.mask(batch))
    if missing == "drop":
        whole = kept.copy()
        for name in chosen:
            whole &= _array(known(batch.column(batch.schema.get_field_index(name))).is_valid())
        count["dropped"] += int(kept.sum() - whole.sum())
        kept = whole
    return kept


def open_table(name: str, delimiter: str | None, decimal: str) -> TableFile:
    """A file as the table that its contents, or else its name, show it to be."""
    origin = Origin(name)
    with damage_named(origin.label), origin.open() as stream:
        start = stream.read(8)
    parquet = start.startswith(b"PAR1")
    ending = name.lower()
    if parquet or ending.endswith((".parquet", ".pq")):
        if not parquet:
            what = "is empty" if not start else "is no Parquet file, whatever its name says"
            raise ValueError(f"{name}: the file {what}; write it again, or call it .csv if it is one")
        return ArrowFile(origin, parquet=True)
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")) or ending.endswith((".arrow", ".feather", ".ipc")):
        return ArrowFile(origin, parquet=False)
    return CsvFile(origin, delimiter=delimiter, decimal=decimal)


def _label(source: Place) -> str:
    return "standard input" if str(source) == "-" else str(source)


def choose(
    file: TableFile,
    columns: Sequence[str] | None,
    weights: str | None,
    notices: list[str],
    covariates: Sequence[str] = (),
) -> list[str]:
    """The columns to read from a table, and a notice of those that are left out."""
    there = file.columns
    for name in [*(columns or ()), *([weights] if weights is not None else []), *covariates]:
        _require_column(file, name)
    for name in covariates:
        if name in (columns or ()) or name == weights or list(covariates).count(name) > 1:
            raise ValueError(f"column {name!r} is a covariate and named once more; give every column one part")
        if there[name].kind in ("dates", "times"):
            raise ValueError(
                f"{file.label}: covariate {name!r} holds {there[name].kind}; turn it into numbers, such as years"
            )
    if columns is not None:
        for name in columns:
            if list(columns).count(name) > 1:
                raise ValueError(f"columns names {name!r} twice; name each column once")
        if weights in columns:
            raise ValueError(f"column {weights!r} is among the columns and holds the weights; take it out of one")
        return list(columns)
    left = [name for name in there if name != weights and name not in covariates]
    chosen = [name for name in left if there[name].kind == "numbers"]
    others = [f"{name!r} ({there[name].kind})" for name in left if there[name].kind != "numbers"]
    if not chosen:
        what = f"its columns are {_listed(others)}" if others else "it has no column with a name"
        hint = "; if they are numbers with a decimal comma, give decimal = ','" if _decimal_commas(file) else ""
        raise ValueError(f"{file.label}: no column holds numbers: {what}{hint or '; give a table with numbers'}")
    if others:
        hint = "; if some are numbers with a decimal comma, give decimal = ','" if _decimal_commas(file) else ""
        notices.append(f"columns that hold no numbers are left out: {_listed(others)}{hint}")
    return chosen


def _decimal_commas(file: TableFile) -> bool:
    cells = [column.example.strip().replace(",", "", 1) for column in file.columns.values() if "," in column.example]
    return any(cell.isdigit() for cell in cells)


def _require_column(file: TableFile, name: str) -> None:
    if name in file.columns:
        return
    near = difflib.get_close_matches(name, file.columns, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {_listed([repr(column) for column in file.columns])}"
    raise ValueError(f"{file.label}: there is no column {name!r}; {hint}")


def _batches(
    file: TableFile, first: TableFile, numbers: Sequence[str], rows: RowFilter | None, text: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Batches of a file, with the columns that the first file has shown to be needed."""
    return file.batches(*needed_columns(file, first, numbers, rows, text))


def needed_columns(
    file: TableFile, first: TableFile, numbers: Sequence[str], rows: RowFilter | None, text: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The columns of a file to read as numbers and as they are, as the first file has shown them to be needed."""
    others = [name for name in (rows.names if rows else ()) if name not in numbers and name not in text]
    for name in [*numbers, *others, *text]:
        _require_column(file, name)
    # a filter looks at numbers as numbers, whatever the format
    as_numbers = [name for name in others if first.columns[name].kind == "numbers"]
    return [*numbers, *as_numbers], [*(name for name in others if name not in as_numbers), *text]


def _with_text(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with these columns as text, so that files of any format have the same levels."""
    for name in names:
        position = batch.schema.get_field_index(name)
        batch = batch.set_column(position, name, batch.column(position).cast(pa.string()))
    return batch


def _weighted(sheet: Sheet, column: Any, name: str) -> Sheet:
    values = known(column.combine_chunks()).to_numpy(zero_copy_only=False).astype(np.float64)
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        label, where = sheet.place(row)
        what = "missing" if np.isnan(values[row]) else f"{values[row]:g}"
        raise ValueError(f"{label}: column {name!r}, {where} is {what}; a weight is a finite number >= 0")
    if not values.any():
        raise ValueError(f"{sheet.source}: every weight in column {name!r} is 0; give some rows a weight")
    return replace(sheet, weights=values)


def _no_rows(where: str | None, count: Counter[str]) -> str:
    if count["dropped"]:
        return f"each of its {count['read']:,} rows has a missing cell; choose columns with fewer gaps"
    if where and count["read"]:
        return f"none of its {count['read']:,} rows meets {where!r}; ask for less"
    return "it has names of columns and no rows; give it rows"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _array(mask: Any) -> NDArray[np.bool_]:
    values: NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False).astype(bool)
    return values
