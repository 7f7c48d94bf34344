"""The command line. Heavy imports happen inside the commands, so that help answers at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phvae import __version__

if TYPE_CHECKING:
    from rich.table import Table

    from phvae.report import QuantileRow, TailRow

__all__ = ["app", "main"]

app = typer.Typer(
    help="Phase-type models of heavy-tailed, non-negative data, with exact tails.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"phvae {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Phase-type models of heavy-tailed, non-negative data, with exact tails."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the page.")] = Path("phvae-demo"),
) -> None:
    """Fit built-in heavy-tailed data, print the tail table and write a page with pictures."""
    with one_line_errors():
        output.mkdir(parents=True, exist_ok=True)
        page = output / "index.html"
        page.touch()
    from rich.console import Console

    from phvae.demo import run_demo
    from phvae.report import quantile_table, tail_table, thresholds, write_report

    with Console(stderr=True).status("fitting 5,000 rows"):
        result = run_demo()
    laws = [refit.law for refit in result.refits]
    quantiles = quantile_table(result.fit.law, result.x, result.truth, laws)
    tails = tail_table(result.fit.law, result.x, result.truth, laws, thresholds(result.x))
    with one_line_errors():
        write_report(result, quantiles, tails, page)
    console = Console()
    console.print(f"\nTruth: {result.truth} {result.unit}\n{result.fit}\n", highlight=False)
    console.print(_quantiles(quantiles, result.unit))
    console.print(_tails(tails, result.unit))
    console.print(f"Ranges: {len(laws)} refits to resampled rows, sampling uncertainty only.", style="dim")
    typer.echo(f"Page: {page}")


def main() -> None:
    """Run the command line."""
    app()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn a user's mistake into one line on stderr and exit status 2."""
    try:
        yield
    except OSError as error:
        typer.echo(f"phvae: {error.filename}: {error.strerror}; choose another place to write to", err=True)
        raise typer.Exit(2) from None
    except ValueError as error:
        typer.echo(f"phvae: {error}", err=True)
        raise typer.Exit(2) from None


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
