"""Where tables come from: a file, a folder, a pattern or standard input; and what to say of one that is damaged."""

import glob
import gzip
import os
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

import pyarrow as pa

__all__ = ["ENDINGS", "Column", "Origin", "Place", "TableFile", "damage_named", "expand"]

Place = str | os.PathLike[str]

# Names of the files that are read from a folder.
ENDINGS = (".csv", ".csv.gz", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".feather", ".ipc")


class Column(NamedTuple):
    """What a column holds, ``"numbers"`` or what else there is to say of it, and a cell of it."""

    kind: str
    example: str = ""


class TableFile(Protocol):
    """A file that holds a table, whatever its format."""

    label: str

    @property
    def columns(self) -> dict[str, Column]:
        """The columns by name."""

    def batches(self, numbers: Sequence[str], others: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows in turn: numbers as float64, other columns as they are."""

    def place(self, row: int) -> str:
        """How a person finds a row, counted from 0, in the file."""


def expand(source: Place) -> list[str]:
    """The files that a path, a folder or a pattern stands for, in the order of their names; ``-`` is standard input."""
    text = os.fspath(source)
    if text == "-" or os.path.isfile(text) or (os.path.exists(text) and not os.path.isdir(text)):
        return [text]
    if os.path.isdir(text):
        files = sorted(str(path) for path in _visible(Path(text)))
        if not files:
            os.listdir(text)  # says so where the folder may not be read
            raise ValueError(
                f"{text}: the folder holds no tables; give one with files that end in {', '.join(ENDINGS)}"
            )
        return files
    if glob.has_magic(text):
        files = sorted(path for path in glob.glob(text, recursive=True) if os.path.isfile(path))
        if not files:
            raise ValueError(f"{text}: no file matches this pattern; check it, and put it in quotes in a shell")
        return files
    raise FileNotFoundError(2, os.strerror(2), text)


class Origin:
    """A file, or a copy of what came through a pipe, that can be opened again and again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.label = "standard input" if name == "-" else name
        self._copy: BinaryIO | None = None
        if name == "-":
            self._keep(sys.stdin.buffer)
        elif not os.path.isfile(name):
            with open(name, "rb") as pipe:
                self._keep(pipe)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The file from its beginning, with gzip undone."""
        with nullcontext(self._copy) if self._copy else open(self.name, "rb") as raw:
            raw.seek(0)
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if compressed:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield raw

    def _keep(self, pipe: BinaryIO) -> None:
        copy = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, copy.close)
        shutil.copyfileobj(pipe, copy, 2**20)
        self._copy = copy


@contextmanager
def damage_named(label: str) -> Iterator[None]:
    """Say which file it is that cannot be read."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException) as error:
        raise _damaged(label, error) from error
    except OSError as error:
        if error.errno is None:  # Arrow says so of contents it cannot read
            raise _damaged(label, error) from error
        if error.filename is None:
            error.filename = label
        raise


def _damaged(label: str, error: Exception) -> ValueError:
    reason = " ".join(str(error).split())[:100] or type(error).__name__
    return ValueError(f"{label}: the file is cut short or damaged ({reason}); copy it again")


def _visible(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if not hidden and path.name.lower().endswith(ENDINGS) and path.is_file():
            yield path
