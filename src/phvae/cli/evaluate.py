"""`phvae evaluate`: a model held against a table."""

from typing import TYPE_CHECKING, Any

import typer

from phvae.cli import options
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
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = ".",
) -> None:
    """Hold a model against a table with the same columns: how likely its rows are."""
    loaded = options.load(talk, model)
    sheet = options.read(
        talk,
        table,
        columns=None if loaded._columns is None else [_quoted(str(name)) for name in loaded._columns],
        where=where,
        missing=missing,
        delimiter=delimiter,
        decimal=decimal,
    )
    with talk.working(f"scoring {sheet.table.num_rows:,} rows"), sheet.named():
        scores = loaded.score_samples(sheet.table)
    import numpy as np

    n_rows = len(scores)
    impossible = int(np.isneginf(scores).sum())
    possible = scores[np.isfinite(scores)]
    mean = float(scores.mean())
    error = float(possible.std(ddof=1) / np.sqrt(n_rows)) if not impossible and n_rows > 1 else float("nan")
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


def _quoted(name: str) -> str:
    """A name as one item of a list of names."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
