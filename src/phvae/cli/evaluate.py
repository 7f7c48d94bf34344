"""`phvae evaluate`: a model held against a table."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae.cli import options
from phvae.cli.beside import NOTHING, Known, told_of_cells
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["evaluate", "register"]


@told_of_cells
def evaluate(
    talk: Talk,
    model: options.Model,
    table: options.Source,
    where: options.Where = None,
    missing: options.Missing = "error",
    weights: options.Weights = None,
    known: Known = NOTHING,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows", metavar="ROWS", help="Score only so many rows, drawn at random: quick where a table is long."
        ),
    ] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="WHOLE", help="Seed of the rows drawn; the same one draws the same.")
    ] = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = ".",
) -> None:
    """Hold a model against a table with the same columns: how likely its rows are."""
    known.require_kept(missing)
    wanted = None if rows is None else _at_least_two(options.as_whole("rows", rows))
    if seed is not None and wanted is None:
        raise ValueError(f"seed = {seed}: all rows are scored, and none drawn; give --rows too, or leave it out")
    random_state = None if seed is None else options.as_whole("seed", seed)
    loaded = options.load(talk, model)
    covariates, levels = options.covariates_of(loaded)
    sheet = options.read(
        talk,
        table,
        columns=known.beside(options.columns_of(loaded)),
        where=where,
        missing=missing,
        delimiter=delimiter,
        decimal=decimal,
        weights=weights,
        covariates=covariates,
        levels=levels,
    )
    chosen, told = known.split(sheet)
    import numpy as np

    from phvae.settings import seed_of
    from phvae.tables import rows_as_given

    of_rows, used = chosen.num_rows, None
    places = np.arange(of_rows)
    if wanted is not None and wanted < of_rows:
        used = seed_of(random_state)
        places = np.sort(np.random.default_rng(used).choice(of_rows, wanted, replace=False))
        chosen = chosen.take(places)
        told = {name: {column: _of(ends, places) for column, ends in pairs.items()} for name, pairs in told.items()}
    n_rows = len(places)
    beside_rows = None if sheet.covariates is None else sheet.covariates.take(places)
    with talk.working(f"scoring {n_rows:,} rows"), sheet.named(), rows_as_given(places):
        scores = loaded.score_samples(chosen, covariates=beside_rows, **told)
    counted = np.ones(n_rows) if sheet.weights is None else sheet.weights[places]
    if not counted.sum():
        raise ValueError(f"rows = {n_rows}: all rows drawn have weight zero; draw more")
    scores, shares = scores[counted > 0], counted[counted > 0] / counted.sum()
    impossible = int(np.isneginf(scores).sum())
    mean, error = float(shares @ scores), float("nan")
    if not impossible and len(scores) > 1:
        spread = np.square(shares * (scores - mean)).sum()
        error = float(np.sqrt(spread * len(scores) / (len(scores) - 1)))
    values: dict[str, Any] = {
        "model": str(model),
        "table": table,
        "n_rows": n_rows,
        "mean_log_likelihood": mean,
        "standard_error": error,
        "n_impossible": impossible,
        **({} if used is None else {"drawn_from": of_rows, "seed": used}),
    }

    def show(console: "Console") -> None:
        drawn = "" if used is None else f" of {of_rows:,}, drawn with seed {used},"
        console.print(f"{n_rows:,} rows{drawn} of {sheet.source}", markup=False)
        console.print(f"mean log-likelihood {mean:.4f} nats per row, standard error {error:.4f}")

    talk.result(values, show)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(evaluate))


def _at_least_two(rows: int) -> int:
    if rows < 2:
        raise ValueError(f"rows = {rows}; give at least 2, or leave it out to score all")
    return rows


def _of(ends: Any, places: Any) -> Any:
    """What is told of the cells of some rows: one number is told of all."""
    return ends[places] if hasattr(ends, "__len__") else ends
