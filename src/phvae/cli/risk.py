"""`phvae risk`: what a model says of its tails, row by row."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae import defaults
from phvae.cli import options
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["register", "risk"]

# Of a total: the rarest exceedance probability that its grid is made for, where nothing rarer is asked.
RAREST = 1e-4
# Room for a line of the table.
WIDTH = 200
# A question about losses: its name, the argument of the answer that says where it was asked, and what it is given.
Question = tuple[str, str, tuple[Any, ...]]


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
    layers: options.Layers = None,
    added: Annotated[bool, typer.Option("--sum", help="Ask about the sum of the columns, not about each.")] = False,
    total: Annotated[
        bool,
        typer.Option(
            "--total",
            help="Ask about the total of a period of --events-per-period events, each of which costs the columns.",
        ),
    ] = False,
    events_per_period: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Rows per period, on average; without it periods are rows.")
    ] = None,
    dispersion: Annotated[
        float | None,
        typer.Option(metavar="RATIO", help="Of a total: variance over mean of the number of events; 1 for Poisson."),
    ] = None,
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
    """Answer questions about the tails of a model: VaR and CVaR, exceedances, return levels, layers, sums, totals."""
    if level is None and exceeds is None and periods is None and not layers:
        level = options.LEVELS
    levels = [] if level is None else options.as_numbers("level", level)
    amounts = [] if exceeds is None else options.as_numbers("exceeds", exceeds)
    years = [] if periods is None else options.as_numbers("periods", periods)
    priced = [(text.replace(" ", ""), *options.as_layer(text)) for text in layers or ()]
    asked = _questions(levels, amounts, years, priced, events_per_period, total)
    if total and events_per_period is None:
        raise ValueError("total: it is that of a period; say of how many events, such as --events-per-period 100")
    if events_per_period is not None and not 0 < events_per_period < float("inf"):
        raise ValueError(f"events_per_period = {events_per_period:g}; give a positive number")
    if dispersion is not None and not total:
        raise ValueError(f"dispersion = {dispersion:g}: it is about the number of events in a total; give --total too")
    if tail != "upper" and total:
        raise ValueError(f"tail = {tail!r}: a total is of the columns as they are; leave it out")
    names = options.listed(columns)
    loaded = options.load(talk, model)
    rows = []
    with talk.working("integrating tails"):
        if total:
            rarest = min([RAREST, *(1 - p for p in levels), *(1 / t for t in years)])
            more = {} if dispersion is None else {"dispersion": dispersion}
            losses = loaded.aggregate(
                names, frequency=events_per_period, rarest=rarest, splice=splice, rtol=rtol, **more
            )
        elif added:
            losses = loaded.sum(names, splice=splice, tail=tail, rtol=rtol)
        else:
            losses = loaded.losses(names, splice=splice, tail=tail, rtol=rtol)
        for measure, at, given in asked:
            for row in getattr(losses, measure)(*given):
                found = dict(zip(row.dtype.names, row.tolist(), strict=True))
                # the rows of a layer have names of their own, and it is named as it was asked for
                name, place = (found.pop("measure"), at) if "measure" in found else (measure, found.pop(at))
                figures = {key: found[key] for key in found if key not in ("attachment", "limit")}
                rows.append({"measure": name, "at": place, **figures})

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
            at = row["at"] if isinstance(row["at"], str) else f"{row['at']:.10g}"
            cells = (str(row["column"]), row["measure"], at, f"{row['value']:.6g}", ends, flag)
            table.add_row(*map(Text, cells))
        # figures are never cut short, however narrow the screen is
        console.width = max(console.width, WIDTH)
        console.print(table)

    of = "total" if total else "sum" if added else "columns"
    values = {"model": str(model), "of": of, "splice": splice, "tail": tail, "rtol": rtol, "answers": rows}
    talk.result(values, show)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(risk))


def _questions(
    levels: list[float],
    amounts: list[float],
    years: list[float],
    layers: list[tuple[str, float, float]],
    events_per_period: float | None,
    total: bool,
) -> list[Question]:
    """What is asked of every loss."""
    points, curves = (("aep", "oep"), ("aep_curve", "oep_curve")) if total else (("sf",), ("return_level",))
    rate = () if total else (1.0 if events_per_period is None else events_per_period,)
    asked: list[Question] = [(name, "level", (levels,)) for name in ("var", "cvar") if levels]
    asked += [(name, "x", (amounts,)) for name in points if amounts]
    asked += [(name, "periods", (years, *rate)) for name in curves if years]
    beside = () if total else (events_per_period,)
    return [*asked, *(("layer", text, (limit, start, *beside)) for text, limit, start in layers)]
