"""What a command is told of cells beside their values: ends of intervals, censoring, bounds of truncation."""

import csv
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae.cli import options

if TYPE_CHECKING:
    from phvae.tables.read import Sheet

__all__ = ["NOTHING", "Known", "told_of_cells"]

PANEL = "What is known of cells"


OPTIONS = {
    "lower": "Lower ends of cells that are intervals: SOURCE is another column, empty where there is none.",
    "upper": "Upper ends, likewise; inf where there is none.",
    "censored": "Which values are only known to be exceeded: a column of 1 and 0.",
    "entry": "Value from which on a cell is seen at all, such as a deductible: a column, or one number.",
    "exit": "Value up to which a cell is seen at all: a column, or one number.",
}


class Known:
    """The options of a command by name, read: for each column of the model a column of the file, or one number.

    >>> known = Known(entry=["loss=deductible,days=2"], exit=None)
    >>> known.sources, bool(known)
    (['deductible'], True)
    """

    def __init__(self, **given: Sequence[str] | None) -> None:
        self.given = {name: dict(_pair(name, text) for text in _parts(texts)) for name, texts in given.items() if texts}

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def sources(self) -> list[str]:
        """The columns of the file that are no columns of the model."""
        found = [source for pairs in self.given.values() for source in pairs.values() if isinstance(source, str)]
        return list(dict.fromkeys(found))

    def require_kept(self, missing: str) -> None:
        """With any of these rows with missing cells are not dropped: an end may be missing on purpose."""
        if self and missing == "drop":
            raise ValueError(f"missing = 'drop' cannot be used with --{next(iter(self.given))}; leave one of them out")

    def beside(self, columns: Sequence[str] | None) -> list[str] | None:
        """The columns to read: those asked for and the sources; None for all."""
        return None if columns is None else [*columns, *map(options.quoted, self.sources)]

    def split(self, sheet: "Sheet") -> tuple[Any, dict[str, Any]]:
        """The table without the sources, and what `phvae.PHVAE.fit` is to be told of its cells."""
        table, sources = sheet.table, self.sources
        for name, pairs in self.given.items():
            for column, source in pairs.items():
                if column in sources or column not in table.column_names:
                    raise ValueError(f"{name} = '{column}={source}': there is no column {column!r} to model")
                if isinstance(source, str) and source not in table.column_names:
                    raise ValueError(f"{name} = '{column}={source}': there is no column of numbers {source!r}")
        told: dict[str, Any] = {
            name: {
                column: table.column(source).to_numpy() if isinstance(source, str) else source
                for column, source in pairs.items()
            }
            for name, pairs in self.given.items()
        }
        left = [name for name in table.column_names if name not in sources]
        if not left:
            raise ValueError("every column says something of another one; name those to model with --columns")
        return table.select(left), told


NOTHING = Known()


def told_of_cells(function: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for each of `OPTIONS`, in place of its parameter ``known``, which is what they say."""

    @wraps(function)
    def told(*arguments: Any, **named: Any) -> None:
        known = Known(**{name: named.pop(name, None) for name in OPTIONS})
        function(*arguments, **named, known=known)

    signature = inspect.signature(function)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "known":
            parameters += [parameter.replace(name=name, default=None, annotation=_option(name)) for name in OPTIONS]
        else:
            parameters.append(parameter)
    told.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return told


def _option(name: str) -> Any:
    option = typer.Option(f"--{name}", metavar="COLUMN=SOURCE", help=OPTIONS[name], rich_help_panel=PANEL)
    return Annotated[list[str] | None, option]


def _parts(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in next(csv.reader([text]), [])]


def _pair(name: str, text: str) -> tuple[str, float | str]:
    column, sign, source = text.rpartition("=")
    if not sign or not column or not source:
        raise ValueError(f"{name} = {text!r}; write COLUMN=SOURCE, such as loss=deductible or loss=0.5")
    value = options.as_value(source.strip())
    return column.strip(), value if isinstance(value, str) else float(value)
