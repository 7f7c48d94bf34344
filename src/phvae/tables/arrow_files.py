"""Parquet and Arrow files, read in batches."""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from phvae.tables.source import Column, Origin, damage_named

__all__ = ["ArrowFile"]

ROWS = 2**16
BUFFER = 2**18  # bytes of a column that are fetched at once where a row group is read page by page


class ArrowFile:
    """A Parquet file, an Arrow (Feather) file or an Arrow stream.

    Args:
        origin: The file.
        parquet: Whether it is a Parquet file.
    """

    def __init__(self, origin: Origin, *, parquet: bool) -> None:
        self.label = origin.label
        self._origin, self._parquet = origin, parquet
        with damage_named(self.label), origin.open() as stream:
            schema = self._read(stream)[0]
        self.columns = {field.name: _column(field) for field in schema}
        for name in schema.names:
            if schema.names.count(name) > 1:
                raise ValueError(f"{self.label}: two columns are called {name!r}; rename one")

    def row_groups(self) -> list[int] | None:
        """Rows of each row group of a Parquet file; None for other files."""
        if not self._parquet:
            return None
        with damage_named(self.label), self._origin.open() as stream:
            about = pq.ParquetFile(stream).metadata
            return [about.row_group(index).num_rows for index in range(about.num_row_groups)]

    def batches(
        self, numbers: Sequence[str], others: Sequence[str], row_group: int | None = None, rows: int = ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows in turn: numbers as float64, other columns as they are.

        Args:
            numbers: Columns of numbers.
            others: Other columns.
            row_group: The one row group of a Parquet file to read, page by page; None reads all.
            rows: Rows at once, of a row group.
        """
        names = [*numbers, *others]
        with damage_named(self.label), self._origin.open() as stream:
            if row_group is None:
                batches = self._read(stream, names)[1]
            else:
                # without these two all of the row group would be held in memory
                file = pq.ParquetFile(stream, pre_buffer=False, buffer_size=BUFFER)
                batches = file.iter_batches(rows, row_groups=[row_group], columns=names)
            for batch in batches:
                columns = [_number(batch, name, self.label) for name in numbers]
                columns += [_plain(batch.column(batch.schema.get_field_index(name))) for name in others]
                yield pa.RecordBatch.from_arrays(columns, names=names)

    def place(self, row: int) -> str:
        """Rows have no lines here."""
        return f"row {row + 1} (counted from 1)"

    def _read(self, stream: BinaryIO, names: Sequence[str] | None = None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        if self._parquet:
            file = pq.ParquetFile(stream)
            return file.schema_arrow, file.iter_batches(ROWS, columns=names)
        start = stream.read(6)
        stream.seek(0)
        if start == b"ARROW1":
            reader: Any = pa.ipc.open_file(stream)
            return reader.schema, (reader.get_batch(index) for index in range(reader.num_record_batches))
        reader = pa.ipc.open_stream(stream)
        return reader.schema, iter(reader)


def _column(field: Any) -> Column:
    kind, types = field.type, pa.types
    if field.name.startswith("__index_level_"):
        return Column("the index of a data frame")
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return Column("numbers")
    if types.is_temporal(kind):
        return Column("dates" if types.is_date(kind) or types.is_timestamp(kind) else "times")
    if types.is_boolean(kind):
        return Column("true or false")
    if types.is_null(kind):
        return Column("nothing")
    while types.is_dictionary(kind):
        kind = kind.value_type
    return Column("text" if types.is_string(kind) or types.is_large_string(kind) else str(kind))


def _number(batch: pa.RecordBatch, name: str, label: str) -> Any:
    column = batch.column(batch.schema.get_field_index(name))
    try:
        return pc.cast(column, pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(
            f"{label}: column {name!r} holds {_column(pa.field(name, column.type)).kind}, not numbers; "
            "leave it out or turn it into numbers"
        ) from None


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
