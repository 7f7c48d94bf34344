"""`phvae report`: one page about the tails of a model, beside data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae import defaults
from phvae.cli import options
from phvae.cli.beside import NOTHING, Known, told_of_cells
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["register", "report"]

PERIODS = ",".join(f"{period:g}" for period in defaults.REPORT_PERIODS)


@told_of_cells
def report(
    talk: Talk,
    model: options.Model,
    data: Annotated[str, typer.Option("--data", "-d", metavar="TABLE", help="Table of the fit, or rows like it.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PAGE", help="HTML file; its numbers go beside it as .json.")
    ] = Path("report.html"),
    held_out: Annotated[
        str | None, typer.Option("--held-out", metavar="TABLE", help="Rows the fit has not seen, for the back-test.")
    ] = None,
    level: Annotated[str, typer.Option(metavar="P,...", help="Levels of VaR and CVaR.")] = options.LEVELS,
    periods: Annotated[str, typer.Option(metavar="T,...", help="Return periods.")] = PERIODS,
    events_per_period: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Rows per period; without it, periods are counted in rows.")
    ] = None,
    layers: options.Layers = None,
    splice: options.Splice = None,
    tail: Annotated[
        str,
        typer.Option(metavar="TAIL", help="both, upper or lower tail of signed columns; lower: of minus them."),
    ] = "both",
    unit: Annotated[str, typer.Option(help="Unit of the columns, for tables and axes.")] = "",
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    rtol: Annotated[
        float, typer.Option(metavar="SHARE", help="Relative standard error to integrate to.")
    ] = defaults.REPORT_RTOL,
    where: options.Where = None,
    missing: options.Missing = "error",
    weights: options.Weights = None,
    known: Known = NOTHING,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = ".",
) -> None:
    """Write a page about the tails of a model: verdicts, risk measures, pictures, dependence, back-test.

    What is said of weights and cells holds for both tables, which then have the same columns for it.
    """
    if output.suffix == ".json":
        raise ValueError(f"output = '{output}': this is where its numbers go; end the name of the page in .html")
    for place in (output, output.with_suffix(".json")):
        options.require_place(place)
    asked: dict[str, Any] = {
        "levels": options.as_numbers("level", level),
        "periods": options.as_numbers("periods", periods),
        "layers": [options.as_layer(text) for text in layers or ()],
        "events_per_period": events_per_period,
        "splice": splice,
        "tail": tail,
        "unit": unit,
        "title": title,
        "rtol": rtol,
        "model_name": model.name,
        "data_name": _name(data),
    }
    known.require_kept(missing)
    loaded = options.load(talk, model)

    def rows(table: str) -> tuple[Any, dict[str, Any]]:
        sheet = options.read(
            talk,
            table,
            columns=known.beside(options.columns_of(loaded)),
            where=where,
            missing=missing,
            weights=weights,
            delimiter=delimiter,
            decimal=decimal,
        )
        X, told = known.split(sheet)
        return sheet, {"X": X, "sample_weight": sheet.weights, "beside": told}

    sheet, told = rows(data)
    if held_out is not None:
        fresh, of_fresh = rows(held_out)
        from phvae.risk.seen import SeenRows

        with fresh.named():
            asked |= {"held_out": SeenRows.of(loaded, **of_fresh), "held_out_name": _name(held_out)}
    with talk.working("integrating tails"), sheet.named():
        found = loaded.report(told["X"], sample_weight=told["sample_weight"], **told["beside"], **asked)
    with talk.working("drawing"):
        numbers = found.write(output)
    verdicts = {column["name"]: column["verdict"] for column in found.numbers["verdicts"]}

    def show(console: "Console") -> None:
        said = ", ".join(f"{name}: {verdict}" for name, verdict in verdicts.items())
        console.print(f"{output}: {sheet.table.num_rows:,} rows; {said}; numbers in {numbers}", markup=False)

    values = {"page": str(output), "numbers": str(numbers), "verdicts": verdicts, "risk": found.numbers["risk"]}
    talk.result(values, None if talk.quiet else show)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(report))


def _name(table: str) -> str:
    """What a page calls a table."""
    return "standard input" if table == "-" else Path(table).name
