"""Parquet files as rows that are read again and again, a row group at a time, and never all at once."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phvae.tables.arrow_files import ArrowFile
from phvae.tables.filters import parse
from phvae.tables.read import Missing, choose, needed_columns, open_table, wanted_rows
from phvae.tables.source import Place, expand

__all__ = ["Piece", "RowGroups", "all_parquet"]

Array = NDArray[np.float64]

# Numbers that are decoded at once.
VALUES_AT_ONCE = 2**19


class Piece(NamedTuple):
    """Rows that follow each other in a row group.

    values: The rows, shape ``(k, D)``; a missing cell is NaN.
    rows: Their numbers in their file, shape ``(k,)``.
    """

    values: Array
    rows: NDArray[np.int64]


class RowGroups:
    """The row groups of Parquet files, in the order of the files' names.

    Args:
        source: A Parquet file, a folder of them or a pattern.
        columns: Names of the columns to read; None takes all that hold numbers.
        where: Rows to read, as in `phvae.tables.read.read_table`.
        missing: What a missing cell is, ``"error"`` or a reason to ``"drop"`` its row.

    Attributes:
        names: Names of the columns.
        counts: Rows to read of each row group.
        notices: What was left out, a sentence each.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"loss": [1.0, 5.0, 2.0, 7.0]}), f"{folder}/a.parquet", row_group_size=3)
    ...     groups = RowGroups(folder, where="loss > 1")
    ...     groups.counts, [piece.values.ravel().tolist() for group in (0, 1) for piece in groups.read(group)]
    ([2, 1], [[5.0, 2.0], [7.0]])
    """

    def __init__(
        self,
        source: Place,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        missing: Missing = "error",
    ) -> None:
        self.label = str(source)
        self._files = [_parquet(name) for name in expand(source)]
        self.notices: list[str] = []
        self.names = choose(self._files[0], columns, None, self.notices)
        self._where = None if where is None else parse(where, list(self._files[0].columns))
        self._missing: Missing = missing
        self._groups: list[tuple[ArrowFile, int, int]] = []
        self.counts: list[int] = []
        for file in self._files:
            needed_columns(file, self._files[0], self.names, self._where)  # says which is not there
            start = 0
            for number, n_rows in enumerate(file.row_groups() or ()):
                self._groups.append((file, number, start))
                self.counts.append(n_rows)
                start += n_rows
        if self._where is not None or missing == "drop":
            self._count()
        if not sum(self.counts):
            what = f"no row meets {where!r}" if where else "it has no rows"
            raise ValueError(f"{self.label}: {what}; give it rows, or ask for less")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return sum(self.counts), len(self.names)

    def read(self, group: int) -> Iterator[Piece]:
        """The rows of a row group in turn."""
        return self._pieces(group, Counter())

    def place(self, group: int) -> tuple[str, Callable[[int], str]]:
        """The file of a row group, and how a person finds a row in it."""
        file = self._groups[group][0]
        return file.label, file.place

    def _pieces(self, group: int, count: Counter[str]) -> Iterator[Piece]:
        file, number, start = self._groups[group]
        numbers, others = needed_columns(file, self._files[0], self.names, self._where)
        at_once = max(1, VALUES_AT_ONCE // (len(numbers) + len(others)))
        for batch in file.batches(numbers, others, number, at_once):
            kept = wanted_rows(batch, self.names, self._where, self._missing, count)
            columns = [batch.column(batch.schema.get_field_index(name)) for name in self.names]
            values = np.empty((int(kept.sum()), len(columns)))
            for place, column in enumerate(columns):
                cells = column.to_numpy(zero_copy_only=False)
                values[:, place] = cells if len(values) == len(cells) else cells[kept]
            yield Piece(values, start + np.flatnonzero(kept))
            start += len(batch)

    def _count(self) -> None:
        """How many rows of each row group are kept: a look at all of them."""
        count = Counter[str]()
        groups = range(len(self._groups))
        self.counts = [sum(len(piece.rows) for piece in self._pieces(group, count)) for group in groups]
        if count["dropped"]:
            self.notices.append(f"{count['dropped']:,} of {count['read']:,} rows have a missing cell and are left out")


def all_parquet(source: Place) -> bool:
    """Whether all files that a path stands for are Parquet files."""
    return str(source) != "-" and all(_is_parquet(name) for name in expand(source))


def _is_parquet(name: str) -> bool:
    if not os.path.isfile(name):  # what comes through a pipe can be read only once
        return False
    with open(name, "rb") as file:
        return file.read(4) == b"PAR1"


def _parquet(name: str) -> ArrowFile:
    file = open_table(name, None, ".") if _is_parquet(name) else None
    if not isinstance(file, ArrowFile):
        raise ValueError(
            f"{name}: only Parquet files can be streamed; write it as Parquet, or fit it without streaming"
        )
    return file
