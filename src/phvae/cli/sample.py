"""`phvae sample`: new rows from a model, in little memory however many there are."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from phvae.cli import options
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["register", "sample"]


def sample(
    talk: Talk,
    model: options.Model,
    n_samples: Annotated[
        str | None, typer.Option("--n-samples", "-n", metavar="ROWS", help="Rows to draw, such as 1e6.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="TABLE", help="Ends in .csv, .csv.gz, .parquet or .arrow; - writes CSV to stdout."
        ),
    ] = "-",
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="WHOLE", help="Seed; the same one gives the same rows.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Only part I of N: the parts, one after the other, are the sample of one."),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option(metavar="CONDITIONS", help="What every row meets, such as 'loss > 50 and 1 < days <= 7'."),
    ] = None,
    splice: options.Splice = None,
    covariates_from: Annotated[
        str | None,
        typer.Option(
            "--covariates-from",
            metavar="TABLE",
            help="Table with the covariates of the model: a row is drawn for each of its rows, or as many as -n says.",
        ),
    ] = None,
) -> None:
    """Draw rows from a model."""
    if n_samples is None and covariates_from is None:
        raise ValueError("n_samples = None; say how many rows to draw, such as -n 1000")
    count = options.as_whole("n_samples", "1" if n_samples is None else n_samples)
    random_state = None if seed is None else options.as_whole("seed", seed)
    part = None if shard is None else _part(shard, seeded=seed is not None)
    if given is not None and (part is not None or covariates_from is not None):
        other = "shard" if part is not None else "covariates-from"
        raise ValueError(
            f"given = {given!r} cannot be used with --{other}; leave one of them out"
            + ("" if part is not None else ", or put the covariates in with phvae at first")
        )
    options.require_table(talk, output)
    loaded = options.load(talk, model)
    from phvae.preprocessing import column_names
    from phvae.settings import seed_of
    from phvae.tables.write import table_writer

    used = seed_of(random_state)
    sheet = None if covariates_from is None else options.read_covariates(talk, covariates_from, loaded)
    if sheet is None and loaded.covariates_ is not None:
        listed = ", ".join(map(repr, loaded.covariates_.names))
        raise ValueError(
            f"{model}: it has the covariates {listed}; give --covariates-from, or put a row of them in with phvae at"
        )
    names = column_names(loaded.n_features_in_, loaded.columns_)
    covariates = None if sheet is None else sheet.covariates
    event: dict[str, float] = {}
    if given is not None:
        from phvae.tables.filters import conditions

        with talk.working(f"drawing {count:,} rows"):
            drawn = loaded.conditional_sample(count, conditions(given, names), used, splice=splice)
        blocks = iter([drawn.rows])
        event = {"probability": drawn.probability, "standard_error": drawn.standard_error}
    else:
        with nullcontext() if sheet is None else sheet.named():
            blocks = loaded.sample_blocks(count, used, splice=splice, shard=part, covariates=covariates)
    count *= 1 if covariates is None else covariates.num_rows
    if part is not None:
        count = len(range(count)[_slice(count, part)])
    done = 0
    with table_writer(output, names) as write, talk.counting("drawing", count) as progress:
        for rows in blocks:
            write(rows)
            done += len(rows)
            progress(done)

    def show(console: "Console") -> None:
        text = f"{output}: {count:,} rows, {len(names)} column{'s' * (len(names) > 1)}, seed {used}"
        if event:
            text += f"; P({given}) = {event['probability']:.4g}, standard error {event['standard_error']:.1g}"
        console.print(text, markup=False)

    values = {"table": output, "model": str(model), "n_rows": count, "columns": names, "seed": used}
    values |= {} if given is None else {"given": given, **event}
    talk.result(values, None if talk.quiet or output == "-" else show)


def _part(text: str, *, seeded: bool) -> tuple[int, int]:
    number, _, total = text.partition("/")
    if not (number.isdecimal() and total.isdecimal()):
        raise ValueError(f"shard = {text!r}; give i/n with i from 1 to n, such as 2/8")
    if not seeded:
        raise ValueError(f"shard = {text!r}: parts of one sample have one seed; give --seed too")
    return int(number), int(total)


def _slice(n_rows: int, part: tuple[int, int]) -> slice:
    """Which rows of the sample are in a part."""
    from phvae.blocks import BLOCK, blocks_of

    blocks = blocks_of(n_rows, part)
    return slice(BLOCK * blocks.start, BLOCK * blocks.stop)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(command(sample))
