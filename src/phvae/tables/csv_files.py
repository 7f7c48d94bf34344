"""CSV files, read in batches; what is wrong with one is named by its line."""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv

from phvae.tables.source import Column, Origin, damage_named

__all__ = ["MISSING", "CsvFile"]

# Cells that say nothing is known.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "#NA", "NaN", "nan", "NULL", "null", "None")

HEAD = 2**20  # bytes from which the format and the kinds of columns are judged
BLOCK = 2**22
ROWS_JUDGED = 20_000
_UTF_16_OR_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?")
_IN_QUOTES = re.compile(r'"[^"]*"')


class _Head(NamedTuple):
    """The beginning of a file: names, where the rows begin, the first rows, and whether they are all there are."""

    names: list[str]
    start: int
    lines: int
    rows: list[list[str]]
    whole: bool


class CsvFile:
    """A text file with a line of names and one line a row.

    Args:
        origin: The file.
        delimiter: What stands between cells; None takes the one the line of names shows.
        decimal: The decimal mark.
    """

    def __init__(self, origin: Origin, *, delimiter: str | None = None, decimal: str = ".") -> None:
        self.label = origin.label
        self._origin, self._decimal = origin, decimal
        with damage_named(self.label), origin.open() as stream:
            head = stream.read(HEAD)
        text = _text(head, self.label)
        first = text.lstrip("\r\n").splitlines()[0] if text.strip() else ""
        self._delimiter = delimiter or _delimiter(first)
        self._head = self._read_head(head, text)
        self.columns = {name: self._judge(place) for place, name in enumerate(self._head.names) if name}

    def batches(self, numbers: Sequence[str], others: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows in turn: numbers as float64, other columns as text."""
        names = [*numbers, *others]
        positions = [f"{place}" for place in range(len(self._head.names))]
        wanted = [positions[self._head.names.index(name)] for name in names]
        kinds = dict.fromkeys(wanted[: len(numbers)], pa.float64())
        kinds |= dict.fromkeys(wanted[len(numbers) :], pa.string())
        with damage_named(self.label), self._origin.open() as stream:
            stream.seek(self._head.start)
            if not stream.read(1):
                return
            stream.seek(self._head.start)
            try:
                reader = pyarrow.csv.open_csv(
                    stream,
                    pyarrow.csv.ReadOptions(block_size=BLOCK, column_names=positions),
                    pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                    pyarrow.csv.ConvertOptions(
                        column_types=kinds,
                        include_columns=wanted,
                        null_values=list(MISSING),
                        strings_can_be_null=True,
                        decimal_point=self._decimal,
                    ),
                )
                for batch in reader:
                    yield batch.rename_columns(names)
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                fault = self._fault([self._head.names.index(name) for name in numbers])
                if fault is None:
                    raise
                raise ValueError(f"{self.label}: {fault}") from error

    def place(self, row: int) -> str:
        """The line of a row, counted from 1 as editors do."""
        for count, (line, _) in enumerate(self._rows()):
            if count == row:
                return f"line {line}"
        raise AssertionError(f"row {row} is not in {self.label}")

    def _read_head(self, head: bytes, text: str) -> _Head:
        whole = len(head) < HEAD
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter)
        names: list[str] = []
        rows: list[list[str]] = []
        lines = 0
        try:
            for cells in reader:
                if cells and not names:
                    names, lines = [cell.strip() for cell in cells], reader.line_num
                elif cells:
                    rows.append(cells)
                if len(rows) > ROWS_JUDGED:
                    break
        except csv.Error as error:
            raise ValueError(f"{self.label}, line {reader.line_num}: {error}; save the file as plain CSV") from error
        if not names:
            raise ValueError(f"{self.label}: the file is empty; give one with a line of names and a line for each row")
        self._check_names(names)
        if not whole and len(rows) <= ROWS_JUDGED:
            rows = rows[:-1]
        kept = io.StringIO(text, newline="")
        start = len("".join(kept.readline() for _ in range(lines)).encode("utf-8", "surrogateescape"))
        start += len(codecs.BOM_UTF8) * head.startswith(codecs.BOM_UTF8)
        return _Head(names, start, lines, rows, whole)

    def _check_names(self, names: list[str]) -> None:
        if all(self._is_number(name) for name in names):
            raise ValueError(
                f"{self.label}: its first line holds numbers ({self._delimiter.join(names)[:40]}) "
                "where the names of the columns belong; put a line of names above it"
            )
        for name in names:
            if name and names.count(name) > 1:
                first, second, *_ = (place + 1 for place, other in enumerate(names) if other == name)
                raise ValueError(f"{self.label}: columns {first} and {second} are both called {name!r}; rename one")

    def _judge(self, place: int) -> Column:
        """A column is one of numbers if half of the cells that hold something are numbers; the others are mistakes."""
        cells = [row[place] for row in self._head.rows if place < len(row) and row[place].strip() not in MISSING]
        if not cells:
            return Column("nothing" if self._head.whole and self._head.rows else "numbers")
        others = [cell for cell in cells if not self._is_number(cell)]
        if 2 * len(others) <= len(cells):
            return Column("numbers", cells[0])
        return Column("dates" if _DATE.fullmatch(others[0].strip()) else "text", others[0])

    def _is_number(self, cell: str) -> bool:
        if "_" in cell or (self._decimal != "." and "." in cell):
            return False
        try:
            float(cell.replace(self._decimal, "."))
        except ValueError:
            return False
        return True

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Every row with its line, slowly."""
        with self._origin.open() as stream:
            stream.seek(self._head.start)
            text = io.TextIOWrapper(stream, "utf-8", errors="surrogateescape", newline="")
            reader = csv.reader(text, delimiter=self._delimiter)
            after = self._head.lines
            try:
                for cells in reader:
                    line, after = after + 1, self._head.lines + reader.line_num
                    if cells:
                        yield line, cells
            finally:
                text.detach()  # the file is closed by whom it was opened by

    def _fault(self, numbers: Sequence[int]) -> str | None:
        """What is wrong with the first row that is not as it should be."""
        n_columns, line = len(self._head.names), self._head.lines
        try:
            for line, cells in self._rows():
                if len(cells) != n_columns:
                    return (
                        f"line {line} has {len(cells)} cell{'s' * (len(cells) > 1)} and the line of names "
                        f"{n_columns}; complete the row or remove it"
                    )
                for place in numbers:
                    if cells[place] not in MISSING and not self._is_number(cells[place]):
                        return (
                            f"column {self._head.names[place]!r}, line {line} holds the text {_brief(cells[place])}; "
                            "write a number such as 1234.5, or remove the row"
                        )
        except csv.Error as error:
            return f"after line {line}: {error}; save the file as plain CSV"
        return None


def _text(head: bytes, label: str) -> str:
    """The beginning of a file as text; what is not UTF-8 is kept as it is, for it may be in columns nobody needs."""
    if head.startswith(_UTF_16_OR_32):
        raise ValueError(f"{label}: the file is UTF-16 text; save it as UTF-8")
    if b"\0" in head:
        raise ValueError(
            f"{label}: the file is neither text nor Parquet nor Arrow; give a table as CSV, Parquet or Arrow"
        )
    text = head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    first = next((line for line in text.splitlines() if line), "")
    if any("\udc80" <= character <= "\udcff" for character in first):
        raise ValueError(f"{label}: its first line is not UTF-8 text; save the file as UTF-8")
    return text


def _delimiter(first: str) -> str:
    """A comma, unless the line of names has none and another one instead."""
    outside = _IN_QUOTES.sub("", first)
    return "," if "," in outside else max(",;\t|", key=outside.count)


def _brief(cell: str) -> str:
    return repr(cell if len(cell) <= 30 else f"{cell[:27]}...")
