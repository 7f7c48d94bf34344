"""`phvae evaluate`: a model held against a table."""

from typing import TYPE_CHECKING, Any

import typer

from phvae.cli import beside, options
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["evaluate", "register"]


def evaluate(
    talk: Talk,
    model: options.Model,
    table: options.Source,
    where: options.Where = None,
    missing: options.Missing = "error",
    weights: options.Weights = None,
    lower: beside.Lower = None,
    upper: beside.Upper = None,
    censored: beside.Censored = None,
    entry: beside.Entry = None,
    exit: beside.Exit = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = ".",
) -> None:
    """Hold a model against a table with the same columns: how likely its rows are."""
    given = {"lower": lower, "upper": upper, "censored": censored, "entry": entry, "exit": exit}
    known = beside.known_of(given, missing)
    loaded = options.load(talk, model)
    covariates, levels = options.covariates_of(loaded)
    own = None if loaded._columns is None else [options.quoted(str(name)) for name in loaded._columns]
    sheet = options.read(
        talk,
        table,
        columns=known.beside(own),
        where=where,
        missing=missing,
        delimiter=delimiter,
        decimal=decimal,
        weights=weights,
        covariates=covariates,
        levels=levels,
    )
    rows, told = known.split(sheet)
    with talk.working(f"scoring {rows.num_rows:,} rows"), sheet.named():
        scores = loaded.score_samples(rows, covariates=sheet.covariates, **told)
    import numpy as np

    n_rows = len(scores)
    counted = np.ones(n_rows) if sheet.weights is None else sheet.weights
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
    }

    def show(console: "Console") -> None:
        console.print(f"{n_rows:,} rows of {sheet.source}", markup=False)
        console.print(f"mean log-likelihood {mean:.4f} nats per row, standard error {error:.4f}")

    talk.result(values, show)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(evaluate))
