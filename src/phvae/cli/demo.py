"""`phvae demo`: built-in data with a known tail, fitted, and held against the truth."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from phvae.report import QuantileRow, TailRow

__all__ = ["demo", "register"]


def demo(
    talk: Talk,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the page.")] = Path("phvae-demo"),
) -> None:
    """Fit built-in heavy-tailed data, print the tail table and write a page with pictures."""
    output.mkdir(parents=True, exist_ok=True)
    page = output / "index.html"
    page.touch()
    with talk.working("fitting 5,000 rows"):
        from phvae.demo import run_demo
        from phvae.report import quantile_table, tail_table, thresholds, write_report

        result = run_demo()
    laws = [refit.law for refit in result.refits]
    quantiles = quantile_table(result.fit.law, result.x, result.truth, laws)
    tails = tail_table(result.fit.law, result.x, result.truth, laws, thresholds(result.x))
    write_report(result, quantiles, tails, page)

    def show(console: "Console") -> None:
        console.print(f"\nTruth: {result.truth} {result.unit}\n{result.fit}\n", markup=False)
        console.print(_quantiles(quantiles, result.unit))
        console.print(_tails(tails, result.unit))
        console.print(f"Ranges: {len(laws)} refits to resampled rows, sampling uncertainty only.", style="dim")
        console.print(f"Page: {page}", markup=False)

    values = {
        "page": str(page),
        "unit": result.unit,
        "quantiles": [asdict(row) for row in quantiles],
        "tails": [asdict(row) for row in tails],
    }
    talk.result(values, None if talk.quiet else show)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(demo))


def _table(title: str, *columns: str) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    # Square brackets hold units here, not markup.
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(escape(column), justify="right", no_wrap=True)
    return table


def _quantiles(rows: "list[QuantileRow]", unit: str) -> "Table":
    from phvae.report import COVERAGE, figure, level

    table = _table(
        f"Quantiles [{unit}], by exceedance level",
        "level",
        "true",
        "fitted",
        f"{COVERAGE:.0%} range",
        "data",
        "error",
        "",
    )
    for row in rows:
        table.add_row(
            level(row.level),
            figure(row.true),
            figure(row.fitted),
            f"{figure(row.low)} - {figure(row.high)}",
            "-" if row.empirical is None else figure(row.empirical),
            f"{100 * row.relative_error:+.1f}%",
            "[yellow]extrapolated[/]" if row.extrapolated else "",
        )
    return table


def _tails(rows: "list[TailRow]", unit: str) -> "Table":
    from phvae.report import COVERAGE, figure, power

    table = _table("Probability of exceeding x", f"x [{unit}]", "true", "fitted", f"{COVERAGE:.0%} range", "data", "")
    for row in rows:
        table.add_row(
            figure(row.threshold),
            power(row.true),
            power(row.fitted),
            f"{power(row.low)} - {power(row.high)}",
            "-" if row.empirical is None else power(row.empirical),
            "[yellow]extrapolated[/]" if row.extrapolated else "",
        )
    return table
