"""`phvae demo`: claims with a known law, fitted, and their tails held against the truth."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae import defaults
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["demo", "register"]


def demo(
    talk: Talk,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for model, page and numbers.")] = Path("demo"),
    rtol: Annotated[
        float, typer.Option(metavar="SHARE", help="Relative standard error to integrate to.")
    ] = defaults.REPORT_RTOL,
) -> None:
    """Fit built-in claims with a known law, print their tails beside the truth and write a report."""
    output.mkdir(parents=True, exist_ok=True)
    page = output / "report.html"
    with talk.working("starting"):
        from phvae.demo import run_demo

    result = run_demo(verbose=not talk.quiet)
    result.model.save(output / "claims.phvae")
    with talk.working("integrating tails"):
        report = result.model.report(
            result.data,
            page,
            held_out=result.held_out,
            truth=result.truth,
            unit=result.unit,
            title="Fire losses with a known law",
            model_name="claims.phvae",
            data_name="built-in claims",
            held_out_name="the same law",
            rtol=rtol,
        )
    numbers = report.numbers

    def show(console: "Console") -> None:
        settings = result.model.settings_
        console.print(
            f"\n{settings['n_rows']:,} claims of three dependent columns drawn from a known law; "
            f"{settings['n_phases']} phases each, latent dimension {settings['latent_dim']}",
            markup=False,
        )
        for column in numbers["verdicts"]:
            console.print(_tails(column["name"], numbers))
            console.print(f"[bold]{column['verdict']}[/bold]. ", end="")
            console.print(f"{column['words']}\n", markup=False, style="dim")
        console.print(
            "Intervals are those of the integration; * extrapolated: beyond the largest observation.",
            style="dim",
        )
        console.print(f"Report: {page}; its numbers: {page.with_suffix('.json')}", markup=False)

    values = {"page": str(page), "model": str(output / "claims.phvae"), "unit": result.unit, "risk": numbers["risk"]}
    talk.result(values, None if talk.quiet else show)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(demo))


def _tails(name: str, numbers: dict[str, Any]) -> "Table":
    """VaR and CVaR of a column, beside the truth and the data."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from phvae.report.wording import figure, percent

    # square brackets hold a unit here, not markup
    title = escape(f"{name} [{numbers['unit']}]")
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for heading in ("level", "true\nVaR", "model\nVaR", "\ninterval", "true\nCVaR", "model\nCVaR", "\ninterval", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in numbers["risk"]:
        if row["column"] != name:
            continue
        var, cvar = row["var"], row["cvar"]
        table.add_row(
            percent(row["level"]),
            figure(row["truth"]["var"]),
            figure(var["value"]),
            f"{figure(var['low'])} - {figure(var['high'])}",
            figure(row["truth"]["cvar"]),
            figure(cvar["value"]),
            f"{figure(cvar['low'])} - {figure(cvar['high'])}",
            "[yellow]*[/]" if var["extrapolated"] or cvar["extrapolated"] else "",
        )
    return table
