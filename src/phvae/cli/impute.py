"""`phvae impute`: a table with its gaps and censored cells drawn from a model."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae.cli import options
from phvae.cli.beside import NOTHING, Known, told_of_cells
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["impute", "register"]


@told_of_cells
def impute(
    talk: Talk,
    model: options.Model,
    table: options.Source,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="TABLE", help="File to write the filled table to; - for CSV.")
    ] = "-",
    where: options.Where = None,
    known: Known = NOTHING,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = ".",
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="WHOLE", help="Seed; the same one gives the same draws.")
    ] = None,
) -> None:
    """Draw the missing and censored cells of a table, given all that is known of their rows."""
    random_state = None if seed is None else options.as_whole("seed", seed)
    options.require_table(talk, output)
    loaded = options.load(talk, model)
    from phvae.preprocessing import column_names
    from phvae.settings import seed_of
    from phvae.tables.write import table_writer

    used = seed_of(random_state)
    covariates, levels = options.covariates_of(loaded)
    sheet = options.read(
        talk,
        table,
        columns=known.beside(options.columns_of(loaded)),
        where=where,
        missing="error",
        delimiter=delimiter,
        decimal=decimal,
        covariates=covariates,
        levels=levels,
    )
    rows, told = known.split(sheet)
    with talk.working(f"drawing cells of {rows.num_rows:,} rows"), sheet.named():
        filled = loaded.impute(rows, random_state=used, covariates=sheet.covariates, **told)
    names = column_names(loaded.n_features_in_, loaded.columns_)
    import numpy as np

    with table_writer(output, names) as write:
        write(np.column_stack([filled.column(name).to_numpy() for name in rows.column_names]))
    from phvae.imputation import unknown_cells
    from phvae.observing import read_rows

    table_read = read_rows(loaded, rows, gaps=True).values
    n_missing = int(np.isnan(table_read).sum())
    n_within = int(unknown_cells(loaded, table_read, told)[1].sum()) - n_missing
    values: dict[str, Any] = {
        "table": output,
        "model": str(model),
        "n_rows": rows.num_rows,
        "n_missing": n_missing,
        "n_within": n_within,
        "seed": used,
    }

    def show(console: "Console") -> None:
        within = f" and {n_within:,} censored or in an interval" if n_within or told else ""
        text = f"{output}: {rows.num_rows:,} rows, {n_missing:,} missing cells{within} drawn, seed {used}"
        console.print(text, markup=False)

    talk.result(values, None if talk.quiet or output == "-" else show)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(impute))
