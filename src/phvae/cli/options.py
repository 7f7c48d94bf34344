"""Options that several commands have in common, and how their text is read."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae import defaults

if TYPE_CHECKING:
    from phvae.cli.talk import Talk
    from phvae.streaming import ParquetStream
    from phvae.tables.read import Missing as MissingCell
    from phvae.tables.read import Sheet

__all__ = [
    "LEVELS",
    "Columns",
    "Covariates",
    "Decimal",
    "Delimiter",
    "Layers",
    "Levels",
    "Missing",
    "MissingInFit",
    "Model",
    "Source",
    "Splice",
    "Weights",
    "Where",
    "as_layer",
    "as_numbers",
    "as_value",
    "as_whole",
    "columns_of",
    "covariates_of",
    "listed",
    "load",
    "quoted",
    "read",
    "read_covariates",
    "require_place",
    "require_table",
    "stream",
]

LEVELS = ",".join(f"{level:g}" for level in defaults.REPORT_LEVELS)
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="File of a fitted model.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="CSV (also gzip), Parquet or Arrow file, a folder of them, a pattern in quotes, or - for standard input.",
    ),
]
Columns = Annotated[
    list[str] | None, typer.Option("--columns", "-c", help="Columns to read, as a,b or given repeatedly.")
]
Where = Annotated[str | None, typer.Option("--where", help="Rows to read, such as 'loss > 10 and kind != \"x\"'.")]
Missing = Annotated[str, typer.Option("--missing", help="A row with a missing cell is an error, or dropped: drop.")]
MissingInFit = Annotated[
    str,
    typer.Option("--missing", help="A row with a missing cell is an error, or dropped: drop, or has a gap: model."),
]
Weights = Annotated[
    str | None, typer.Option("--weights", metavar="COLUMN", help="Column that says how many rows each row stands for.")
]
Covariates = Annotated[
    list[str] | None,
    typer.Option(
        "--covariates", metavar="COLUMNS", help="Columns that are given, not modelled, as a,b or given repeatedly."
    ),
]
Levels = Annotated[
    list[str] | None,
    typer.Option("--levels", metavar="COLUMNS", help="Covariates that are levels though they look like numbers."),
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="What stands between cells of a CSV file, if it is not plain to see.")
]
Splice = Annotated[str | None, typer.Option(metavar="gpd", help="Generalised Pareto tails beyond the trust points.")]
Layers = Annotated[
    list[str] | None,
    typer.Option("--layer", metavar="LIMITxsATTACHMENT", help="Layer to price, such as 10xs20; may be repeated."),
]
Decimal = Annotated[str, typer.Option("--decimal", help="Decimal mark in a CSV file.")]


def read(
    talk: "Talk",
    table: str,
    *,
    columns: Sequence[str] | None,
    where: str | None,
    missing: str,
    delimiter: str | None,
    decimal: str,
    weights: str | None = None,
    covariates: Sequence[str] | None = None,
    levels: Sequence[str] | None = None,
) -> "Sheet":
    """The table that the options of a command describe, with its notices said."""
    kept = _missing(missing)
    if delimiter in ("tab", "\\t"):
        delimiter = "\t"
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii()):
        raise ValueError(f"delimiter = {delimiter!r}; give one character, or tab")
    if decimal not in (".", ","):
        raise ValueError(f"decimal = {decimal!r}; give . or ,")
    given, as_text = listed(covariates) or [], listed(levels) or []
    for name in as_text:
        if name not in given:
            raise ValueError(f"levels = {name!r} is no covariate; name it in --covariates too")
    from phvae.tables.read import read_table

    with talk.counting("reading") as progress:
        sheet = read_table(
            table,
            columns=listed(columns),
            where=where,
            weights=weights,
            covariates=given,
            levels=as_text,
            missing=kept,
            delimiter=delimiter,
            decimal=decimal,
            progress=progress,
        )
    for notice in sheet.notices:
        talk.note(notice)
    return sheet


def read_covariates(talk: "Talk", table: str, loaded: Any) -> "Sheet":
    """The covariates of a model from a table that need not have the columns of the model."""
    names, levels = covariates_of(loaded)
    if not names:
        raise ValueError(f"covariates_from = {table!r}: this model has no covariates; leave it out")
    from phvae.tables.read import read_table

    with talk.counting("reading") as progress:
        return read_table(
            table, columns=[], covariates=listed(names) or [], levels=listed(levels) or [], progress=progress
        )


def stream(
    talk: "Talk",
    table: str,
    *,
    always: bool,
    columns: Sequence[str] | None,
    where: str | None,
    missing: str,
    beside: Sequence[str] = (),
) -> "ParquetStream | None":
    """The same rows to be read in pieces, where that is asked for or they are too many for memory; else None.

    Rows that come with more than their values, by the options named in ``beside``, are read as a whole.
    """
    if beside:
        if always:
            raise ValueError(f"--stream reads values alone; leave it out, or {beside[0]}")
        return None
    kept, names = _missing(missing), listed(columns)
    with talk.working("reading"):
        from phvae.streaming.fitting import ParquetStream, stream_if_large

        open_stream = ParquetStream if always else stream_if_large
        rows = open_stream(table, columns=names, where=where, missing=kept)
    for notice in () if rows is None else rows.row_groups.notices:
        talk.note(notice)
    return rows


def listed(columns: Sequence[str] | None) -> list[str] | None:
    """Names out of a list of lists of them, as options give it; None for none."""
    return [name for text in columns or () for name in next(csv.reader([text]), [])] or None


def _missing(text: str) -> "MissingCell":
    if text == "drop":
        return "drop"
    if text == "error":
        return "error"
    raise ValueError(f"missing = {text!r}; give error or drop")


def load(talk: "Talk", model: Path) -> Any:
    """The model in a file, giving samples as arrays."""
    with talk.working("loading"):
        from phvae import PHVAE

        loaded = PHVAE.load(model)
    loaded.table_kind_ = "numpy"
    return loaded


def require_place(path: str | os.PathLike[str]) -> None:
    """Refuse at once a file that could not be written at the end."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ValueError(f"{path}: is a folder; give the name of a file in it")
    if not target.parent.is_dir():
        raise ValueError(f"{path}: its folder does not exist; make it or give another place")
    if not os.access(target if target.exists() and not target.is_file() else target.parent, os.W_OK):
        raise ValueError(f"{path}: its folder may not be written to; ask for permission, or choose another place")


def require_table(talk: "Talk", output: str) -> None:
    """Refuse at once a file that rows could not be written to; - is standard output."""
    if output == "-" and talk.as_json:
        raise ValueError("--json and the rows cannot both go to standard output; give -o a file")
    from phvae.tables.write import require_format

    require_format(output)
    if output != "-":
        require_place(output)


def as_whole(name: str, text: str) -> int:
    """A whole number, also as 1e6 or 1_000_000.

    >>> as_whole("n", "1e6"), as_whole("n", "1_000")
    (1000000, 1000)
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.5
    if not (abs(value) < 2**63 and value == int(value)):
        raise ValueError(f"{name} = {text!r}; give a whole number, such as 1000 or 1e6")
    return int(text) if text.strip("+-").isdigit() else int(value)


def as_layer(text: str) -> tuple[float, float]:
    """A layer from its text: 10xs20 is 10 in excess of 20.

    >>> as_layer("10xs20"), as_layer("inf xs 50")
    ((10.0, 20.0), (inf, 50.0))
    """
    limit, found, attachment = text.replace(" ", "").partition("xs")
    try:
        return float(limit), float(attachment) if found else 0.0
    except ValueError:
        raise ValueError(f"layer = {text!r}; give limit and attachment, such as 10xs20") from None


def as_numbers(name: str, text: str) -> list[float]:
    """Numbers separated by commas.

    >>> as_numbers("levels", "0.9, 0.99")
    [0.9, 0.99]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} = {text!r}; give numbers separated by commas, such as 0.9,0.99") from None


def as_value(text: str) -> int | float | str:
    """A number if the text is one.

    >>> as_value("7"), as_value("1e-3"), as_value("auto")
    (7, 0.001, 'auto')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def quoted(name: str) -> str:
    """A name as one item of a list of names."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def columns_of(loaded: Any) -> list[str] | None:
    """The columns of a model as options have them; None where they have no names."""
    return None if loaded.columns_ is None else [quoted(str(name)) for name in loaded.columns_]


def covariates_of(loaded: Any) -> tuple[list[str], list[str]]:
    """The covariates of a model as options have them, and those of them that are levels of text."""
    if loaded.covariates_ is None:
        return [], []
    if not loaded.covariates_.named:
        raise ValueError("this model was fitted with covariates of an array, which have no names; ask it in Python")
    columns = loaded.covariates_.columns
    text = [column for column in columns if all(isinstance(level, str) for level in getattr(column, "levels", [0]))]
    names, levels = ([quoted(str(column.name)) for column in some] for some in (columns, text))
    return names, levels
