"""`phvae risk`: what a model says of its tails, row by row."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae import defaults
from phvae.cli import options
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["register", "risk"]


def risk(
    talk: Talk,
    model: options.Model,
    columns: Annotated[list[str] | None, typer.Option("--columns", "-c", help="Columns to ask about.")] = None,
    level: Annotated[
        str | None, typer.Option(metavar="P,...", help=f"Levels of VaR and CVaR; {options.LEVELS} if nothing is asked.")
    ] = None,
    exceeds: Annotated[
        str | None, typer.Option(metavar="X,...", help="Amounts whose probability to be exceeded is asked.")
    ] = None,
    periods: Annotated[str | None, typer.Option(metavar="T,...", help="Return periods whose level is asked.")] = None,
    events_per_period: Annotated[
        float, typer.Option(metavar="NUMBER", help="Rows per period; 1 counts periods in rows.")
    ] = 1.0,
    splice: options.Splice = None,
    tail: Annotated[
        str,
        typer.Option(
            metavar="TAIL", help="upper, or lower for the losses of signed columns: those of minus the column."
        ),
    ] = "upper",
    rtol: Annotated[float, typer.Option(metavar="SHARE", help="Relative standard error to integrate to.")] = (
        defaults.REPORT_RTOL
    ),
) -> None:
    """Answer questions about the tails of a model: VaR and CVaR, exceedance probabilities, return levels."""
    if level is None and exceeds is None and periods is None:
        level = options.LEVELS
    asked: list[tuple[str, str, Any]] = []
    if level is not None:
        at = options.as_numbers("level", level)
        asked += [("var", "level", lambda losses: losses.var(at)), ("cvar", "level", lambda losses: losses.cvar(at))]
    if exceeds is not None:
        amounts = options.as_numbers("exceeds", exceeds)
        asked.append(("sf", "x", lambda losses: losses.sf(amounts)))
    if periods is not None:
        years = options.as_numbers("periods", periods)
        asked.append(("return_level", "periods", lambda losses: losses.return_level(years, events_per_period)))
    loaded = options.load(talk, model)
    rows = []
    with talk.working("integrating tails"):
        losses = loaded.losses(options.listed(columns), splice=splice, tail=tail, rtol=rtol)
        for measure, argument, question in asked:
            for row in question(losses):
                found = dict(zip(row.dtype.names, row.tolist(), strict=True))
                rows.append({"measure": measure, "at": found.pop(argument), **found})

    def show(console: "Console") -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD)
        for heading in ("column", "measure", "at", "value", "interval of the integration", ""):
            table.add_column(heading, justify="left" if heading in ("column", "measure") else "right", no_wrap=True)
        for row in rows:
            ends = f"{row['low']:.6g} to {row['high']:.6g}"
            flag = "extrapolated" if row["extrapolated"] else ""
            cells = (str(row["column"]), row["measure"], f"{row['at']:.10g}", f"{row['value']:.6g}", ends, flag)
            table.add_row(*map(Text, cells))
        console.print(table)

    talk.result({"model": str(model), "splice": splice, "tail": tail, "rtol": rtol, "answers": rows}, show)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(risk))
