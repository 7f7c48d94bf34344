"""`phvae at`: the model of one row of covariates, in a file of its own that every other command takes."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae.cli import options
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["at", "register"]


def at(
    talk: Talk,
    model: options.Model,
    covariates: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="The covariates of the row, such as region=north.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="File to write the model to.")],
) -> None:
    """Put covariates into a model: the result has none left and can be sampled, scored and asked like any model."""
    options.require_place(output)
    from phvae import PHVAE

    with talk.working("loading"):
        loaded = PHVAE.load(model)
    if loaded.covariates_ is None:
        raise ValueError(f"{model}: this model has no covariates; use it as it is")
    row = dict(_pair(part) for text in covariates for part in next(csv.reader([text]), []))
    names = [str(name) for name in loaded.covariates_.names]
    for name in row:
        if name not in names:
            raise ValueError(f"{name}={row[name]}: the model has no such covariate; give {', '.join(names)}")
    given = loaded.at({how.name: _value(how, row[str(how.name)]) for how in _known(loaded, row)})
    given.save(output)
    values = {"model": str(output), "from": str(model), "given": given.settings_["given"]}

    def show(console: "Console") -> None:
        text = ", ".join(f"{name} = {value}" for name, value in values["given"].items())
        console.print(f"{output}: {model} given {text}", markup=False)

    talk.result(values, None if talk.quiet else show)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(at))


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r} names no value; write name=value, such as region=north")
    return name.strip(), value.strip()


def _known(loaded: Any, row: dict[str, str]) -> list[Any]:
    """The covariates of a model, all of which a row must have."""
    for how in loaded.covariates_.columns:
        if str(how.name) not in row:
            raise ValueError(f"covariate {how.name!r} is missing; give {how.name}=VALUE too")
    return list(loaded.covariates_.columns)


def _value(how: Any, text: str) -> Any:
    """A value from its text: a level that reads like it, or a number if it is one."""
    return next((level for level in getattr(how, "levels", ()) if str(level) == text), options.as_value(text))
