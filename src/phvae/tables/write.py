"""Tables to files, block by block: in little memory however many rows there are, and whole or not at all."""

import csv
import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phvae.files import Place, whole_file

__all__ = ["FORMATS", "require_format", "table_writer"]

Array = NDArray[np.float64]

FORMATS = (".csv", ".csv.gz", ".parquet", ".pq", ".arrow", ".feather", ".ipc")

# Rows that are written at once: a row group of Parquet, a batch of Arrow.
ROWS_AT_ONCE = 2**17


def require_format(path: Place) -> str:
    """The format that the name of a file asks for; standard output, ``-``, and devices take CSV.

    >>> require_format("synthetic.PARQUET")
    '.parquet'
    """
    text = os.fspath(path)
    for ending in sorted(FORMATS, key=len, reverse=True):
        if text.lower().endswith(ending):
            return ending
    if text == "-" or (os.path.exists(text) and not os.path.isfile(text) and not os.path.isdir(text)):
        return ".csv"
    raise ValueError(f"{text}: no format is known by this ending; end the name in {', '.join(FORMATS)}")


@contextmanager
def table_writer(path: Place, names: Sequence[str]) -> Iterator[Callable[[Array], None]]:
    """A function that appends rows to a table; the file has its name when all of it is written.

    CSV holds every number in the shortest form that reads back as the same number.

    Args:
        path: Where to; its ending says the format, ``.csv``, ``.csv.gz``, ``.parquet`` or ``.arrow`` (``.feather``).
            ``-`` writes CSV to standard output.
        names: Names of the columns, no two the same.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with table_writer(f"{folder}/a.csv", ["x", "y"]) as write:
    ...         write(np.array([[0.1, 2.0]]))
    ...         write(np.array([[3.0, 1e-300]]))
    ...     print(pathlib.Path(folder, "a.csv").read_text())
    x,y
    0.1,2
    3,1e-300
    <BLANKLINE>
    """
    kind = require_format(path)
    for name in names:
        if list(names).count(name) > 1:
            raise ValueError(f"two columns are called {name!r}; rename one")
    with _standard_output() if os.fspath(path) == "-" else whole_file(path) as file:
        sink = _Sink(file)
        writer = _OPENERS[kind](sink, list(names))
        rows = _Gathered(names, writer.write)
        try:
            yield rows.add
            rows.flush()
            writer.close()
        except BaseException:
            sink.closed_to_all = True
            writer.close()
            raise


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        if error.filename is None:
            error.filename = "standard output"
        raise


class _Sink(io.RawIOBase):
    """A file for writers that want to finish what they began, even if nobody wants it any more."""

    closed_to_all = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        if not self.closed_to_all:
            self._file.write(content)
        return memoryview(content).nbytes


class _Gathered:
    """Rows on their way to a file, in batches of `ROWS_AT_ONCE`."""

    def __init__(self, names: Sequence[str], write: Callable[[pa.RecordBatch], None]) -> None:
        self._names, self._write = list(names), write
        self._blocks: list[Array] = []
        self._n_rows = 0

    def add(self, rows: Array) -> None:
        if rows.ndim != 2 or rows.shape[1] != len(self._names):
            raise ValueError(f"rows have shape {rows.shape}; give {len(self._names)} columns")
        self._blocks.append(rows)
        self._n_rows += len(rows)
        if self._n_rows >= ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if self._blocks:
            columns = [
                pa.array(np.concatenate([block[:, place] for block in self._blocks]))
                for place in range(len(self._names))
            ]
            self._blocks, self._n_rows = [], 0
            self._write(pa.RecordBatch.from_arrays(columns, names=self._names))


class _Csv:
    def __init__(self, file: io.RawIOBase, names: list[str]) -> None:
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(names)
        self._file = file
        self._file.write(header.getvalue().encode())

    def write(self, batch: pa.RecordBatch) -> None:
        buffer = pa.BufferOutputStream()
        pyarrow.csv.write_csv(batch, buffer, pyarrow.csv.WriteOptions(include_header=False))
        self._file.write(buffer.getvalue())

    def close(self) -> None:
        pass


class _GzippedCsv(_Csv):
    def __init__(self, file: io.RawIOBase, names: list[str]) -> None:
        # no name and no time in it: the same rows make the same file
        self._packed = gzip.GzipFile("", "wb", 6, cast(BinaryIO, file), mtime=0)
        super().__init__(cast(io.RawIOBase, self._packed), names)

    def close(self) -> None:
        self._packed.close()


class _Parquet:
    def __init__(self, file: io.RawIOBase, names: list[str]) -> None:
        # numbers that hardly repeat gain nothing from a dictionary
        self._writer = pq.ParquetWriter(file, _schema(names), use_dictionary=False)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Arrow:
    def __init__(self, file: io.RawIOBase, names: list[str]) -> None:
        self._writer = pa.ipc.new_file(file, _schema(names))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


def _schema(names: list[str]) -> pa.Schema:
    return pa.schema([(name, pa.float64()) for name in names])


_OPENERS: dict[str, Callable[[io.RawIOBase, list[str]], Any]] = {
    ".csv": _Csv,
    ".csv.gz": _GzippedCsv,
    ".parquet": _Parquet,
    ".pq": _Parquet,
    ".arrow": _Arrow,
    ".feather": _Arrow,
    ".ipc": _Arrow,
}
