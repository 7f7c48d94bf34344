"""`phvae info` and `phvae verify`: what a model file holds, and whether it can be trusted."""

from typing import TYPE_CHECKING, Any

import typer

from phvae.cli import options
from phvae.cli.talk import Talk, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["info", "register", "verify"]


def info(talk: Talk, model: options.Model) -> None:
    """Say what a model file holds."""
    loaded = options.load(talk, model)
    from phvae import modelfile
    from phvae.history import training_note
    from phvae.preprocessing import column_names

    names = column_names(loaded.n_features_in_, loaded.columns_)
    scaler, settings, history = loaded.scaler_, loaded.settings_, loaded.history_
    columns: list[dict[str, Any]] = [
        {
            "name": name,
            "origin": float(scaler.origin_[j]),
            "scale": float(scaler.scale_[j]),
            "zero_share": float(scaler.zero_share_[j]),
            "loss_share": float(scaler.loss_share_[j]),
        }
        for j, name in enumerate(names)
    ]
    values = {
        "model": str(model),
        "phvae": modelfile.read(model)[0]["phvae"],
        "n_rows": settings["n_rows"],
        "columns": columns,
        "covariates": [] if loaded.covariates_ is None else loaded.covariates_.header()["columns"],
        "settings": settings,
        "epochs": len(history),
        "stopped_early": history.stopped_early,
        "training_note": training_note(loaded),
        "fingerprint": loaded.fingerprint_,
        "n_parameters": sum(value.numel() for value in loaded.vae_.parameters()),
    }

    def show(console: "Console") -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        console.print(
            f"{model}: phvae {values['phvae']}, {settings['n_rows']:,} rows, fingerprint {loaded.fingerprint_[:16]}",
            markup=False,
        )
        table = Table(box=box.SIMPLE_HEAD)
        signed = ["share of losses"] if (scaler.loss_share_ > 0).any() else []
        for heading in ("column", "origin", "median above it", "share of zeros", *signed):
            table.add_column(heading, justify="left" if heading == "column" else "right")
        for column in columns:
            losses = [f"{column['loss_share']:.2%}"] if signed else []
            figures = f"{column['origin']:.6g}", f"{column['scale']:.6g}", f"{column['zero_share']:.2%}", *losses
            table.add_row(Text(column["name"]), *figures)
        console.print(table)
        for how in () if loaded.covariates_ is None else loaded.covariates_.columns:
            console.print(f"  covariate {how.name!s:10} {how.described()}", markup=False)
        for name, value in settings.items():
            console.print(f"  {name:20} {_brief(value)}", markup=False)
        console.print(f"  {'epochs done':20} {len(history)}{' (stopped early)' if history.stopped_early else ''}")
        if values["training_note"]:
            console.print(f"  {values['training_note']}", markup=False)

    talk.result(values, show)


def verify(talk: Talk, model: options.Model) -> None:
    """Check a model file: its digest, its shapes, and its self-test values computed again."""
    with talk.working("computing the self-test again"):
        from phvae import PHVAE

        checked = PHVAE.verify(model)
    values = {"model": str(model), "intact": True, **checked._asdict()}

    def show(console: "Console") -> None:
        agreement = f"{checked.n_values} self-test values agree to {checked.largest_difference:.1e}"
        console.print(f"{model}: intact; {agreement}", markup=False)

    talk.result(values, None if talk.quiet else show)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(command(info))
    app.command()(command(verify))


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_brief, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
