"""`phvae fit`: a model of a table."""

import inspect
import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phvae import defaults
from phvae.cli import options
from phvae.cli.beside import NOTHING, Known, told_of_cells
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["fit", "register"]


@told_of_cells
def fit(
    talk: Talk,
    context: typer.Context,
    table: options.Source,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="File to write the model to.")],
    columns: options.Columns = None,
    where: options.Where = None,
    missing: options.MissingInFit = "error",
    weights: options.Weights = None,
    covariates: options.Covariates = None,
    levels: options.Levels = None,
    known: Known = NOTHING,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = ".",
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Read Parquet in pieces, as happens by itself from a gibibyte of numbers on."),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="File to keep the state of training in; MODEL.checkpoint, removed at the end, if not given."),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Checkpoint of the same call to go on from.")] = None,
    **settings: str | None,
) -> None:
    """Learn the joint law of the columns of a table."""
    began = time.monotonic()
    given_resume = resume
    kept = checkpoint or resume or output.with_name(f"{output.name}.checkpoint")
    for place in (output, kept):
        options.require_place(place)
    given = {name: _as_setting(name, text) for name, text in settings.items() if text is not None}
    if missing == "model":
        given["missing"], missing = missing, "error"
    if resume is not None:
        given.setdefault("random_state", _seed_of(resume))
    known.require_kept(missing)
    beside = ["--weights"] if weights is not None else []
    beside += ["--missing model"] if "missing" in given else []
    beside += ["--covariates"] if covariates else []
    beside += [f"--{name}" for name in known.given]
    rows: Any = options.stream(talk, table, always=stream, columns=columns, where=where, missing=missing, beside=beside)
    extras: dict[str, Any] = {}
    named: Callable[[], AbstractContextManager[None]] = nullcontext
    if rows is None:
        sheet = options.read(
            talk,
            table,
            columns=known.beside(columns),
            where=where,
            missing=missing,
            delimiter=delimiter,
            decimal=decimal,
            weights=weights,
            covariates=covariates,
            levels=levels,
        )
        (rows, told), named = known.split(sheet), sheet.named
        extras |= {"sample_weight": sheet.weights, "covariates": sheet.covariates, **told}
    with talk.working("starting"):
        from phvae import PHVAE, distributed
        from phvae.settings import seed_of

    with distributed.joined() as world:
        if resume is None and distributed.restarted() and kept.exists():
            resume = kept
            given.setdefault("random_state", _seed_of(kept))
        # drawn here, so that the hint of an interrupted run can name it
        seed = given["random_state"] = seed_of(given.get("random_state"), shared=True)
        first = world is None or world.rank == 0
        model = PHVAE(**given, verbose=first and not talk.quiet)
        try:
            with named():
                model.fit(rows, checkpoint=kept, resume=resume, **extras)
        except KeyboardInterrupt as interrupt:
            interrupt.__notes__ = [_hint(interrupt, context, kept, seed)]
            raise
    if not first:
        return
    model.save(output)
    if checkpoint is None and given_resume is None:
        kept.unlink(missing_ok=True)
    _report(talk, model, output, time.monotonic() - began)


def register(app: typer.Typer) -> None:
    """Add the command."""
    signature = inspect.signature(fit)
    *parameters, _ = signature.parameters.values()
    offered = [
        inspect.Parameter(
            setting.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, _option(setting)],
        )
        for setting in defaults.SETTINGS
        # the command has its own, which can leave rows out as well
        if setting.name != "missing"
    ]
    fit.__signature__ = signature.replace(parameters=[*parameters, *offered])  # type: ignore[attr-defined]
    app.command()(command(fit))


def _option(setting: defaults.Setting) -> Any:
    name = f"--{setting.name.replace('_', '-')}"
    shown = ",".join(map(str, setting.default)) if isinstance(setting.default, tuple) else setting.default
    return typer.Option(
        *([name, "--seed"] if setting.form == "seed" else [name]),
        help=setting.help,
        show_default=False if shown is None else str(shown),
        metavar="SETTING",
        rich_help_panel="Settings of the model",
    )


def _as_setting(name: str, text: str) -> Any:
    """The value of a setting from its text; what is no such value is left to the estimator to refuse."""
    if text == "None":
        return None
    form = next(setting.form for setting in defaults.SETTINGS if setting.name == name)
    if form == "seed":
        return options.as_whole(name, text)
    if form == "widths":
        return tuple(options.as_value(width) for width in text.split(",") if width)
    if form == "origin" and "=" in text:
        pairs = (part.rpartition("=") for part in text.split(","))
        return {column.strip(): options.as_value(value) for column, _, value in pairs}
    if form == "columns" and text != "auto":
        return [name.strip() for name in text.split(",")]
    if form == "origin" and "," in text:
        return [options.as_value(value) for value in text.split(",")]
    return options.as_value(text)


def _seed_of(checkpoint: Path) -> int:
    """The seed of the run a checkpoint belongs to."""
    if not checkpoint.exists():
        raise ValueError(f"resume = '{checkpoint}': there is no such file; leave resume out to start anew")
    from phvae import modelfile

    header, _ = modelfile.read(checkpoint)
    if "checkpoint" not in header:
        raise ValueError(f"resume = '{checkpoint}' is a model, not a checkpoint of a training run")
    return int(header["settings"]["seed"])


def _hint(interrupt: KeyboardInterrupt, context: typer.Context, checkpoint: Path, seed: int) -> str:
    """What to type to go on."""
    stopped = next((note for note in getattr(interrupt, "__notes__", []) if note.startswith("stopped")), None)
    if stopped is None:
        return "interrupted before training began; nothing was written"
    words = ["phvae", *(context.obj or sys.argv[1:])]
    if "--checkpoint" not in words:
        words += ["--checkpoint", os.fspath(checkpoint)]
    if "--resume" not in words:
        words += ["--resume", os.fspath(checkpoint)]
    return f"{stopped.partition(';')[0]}; go on with: {shlex.join(words)}"


def _report(talk: Talk, model: Any, output: Path, seconds: float) -> None:
    settings, history = model.settings_, model.history_
    last = None if not len(history) else history[(history.best_epoch or len(history)) - 1]
    names = list(model.feature_names_in_)
    values = {
        "model": str(output),
        "n_rows": settings["n_rows"],
        "columns": names,
        "covariates": [] if model.covariates_ is None else model.covariates_.names,
        "settings": settings,
        "epochs": len(history),
        "elbo": None if last is None else last.elbo,
        "validation_elbo": None if last is None else last.validation_elbo,
        "seconds": seconds,
        "fingerprint": model.fingerprint_,
    }

    def show(console: "Console") -> None:
        text = f"{output}: {settings['n_rows']:,} rows, {len(names)} column{'s' * (len(names) > 1)}, "
        given = values["covariates"]
        text += f"{len(given)} covariate{'s' * (len(given) > 1)}, " if given else ""
        text += f"{settings['n_phases']} phases each, latent dimension {settings['latent_dim']}"
        if last is not None:
            text += f", {len(history)} epochs, bound of the mean log-likelihood {last.elbo:.4f} nats per row"
            if last.validation_elbo is not None:
                text += f" ({last.validation_elbo:.4f} held out)"
        console.print(f"{text}, {seconds:.0f} s, seed {settings['seed']}", markup=False)

    talk.result(values, None if talk.quiet else show)
