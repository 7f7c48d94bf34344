"""From settings to a trained model of unit-free columns: parts put together, start laws, held-out rows, training."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae import defaults
from phvae import weights as weighing
from phvae.batches import RowsInMemory, RowSource
from phvae.checkpoint import Place
from phvae.decoders import PhaseTypeDecoder
from phvae.history import EpochRecord, History
from phvae.layout import Layout
from phvae.observed import Cells
from phvae.observed_start import fit_cells, representatives
from phvae.outskirts import settle_prior
from phvae.preprocessing import PositiveScaler, geometric_start
from phvae.priors import ConditionalPrior, MixturePrior, Prior, StandardNormal
from phvae.signed_decoders import SignedDecoder, decoder_of
from phvae.signed_start import choose_signed_phases, set_signed_start
from phvae.start import fit_marginals, reachable
from phvae.training import TrainingError, cosine_schedule, step_schedule, train
from phvae.transformed_decoders import TransformedDecoder, family_of
from phvae.transformed_start import choose_transformed_phases, set_transformed_start
from phvae.vae import VAE, GaussianEncoder

__all__ = [
    "Fitted",
    "Translation",
    "build",
    "choose_phases",
    "fit",
    "learn",
    "settle_phases",
    "split",
    "to_users_units",
]

Array = NDArray[np.float64]

# Rows held out to compare numbers of phases, where the fit itself holds out fewer.
COMPARISON_FRACTION = 0.2


class Fitted(NamedTuple):
    """A trained model of unit-free columns, its history in the user's units, and the rows it has not seen.

    What the fit of the columns found beside their laws is in ``found``, by name: JSON values.
    """

    vae: VAE
    history: History
    held_out_rows: NDArray[np.int64]
    found: dict[str, Any]


def build(settings: Mapping[str, Any], scaler: PositiveScaler) -> VAE:
    """Encoder, decoder and prior of the sizes in the settings, in the units of the scaler, with first weights."""
    generator = torch.Generator().manual_seed(settings["seed"])
    latent_dim, hidden = settings["latent_dim"], settings["hidden"]
    units = {"origin": torch.from_numpy(scaler.origin_), "scale": torch.from_numpy(scaler.scale_)}
    layout = Layout(len(scaler.origin_), **settings.get("layout", {}))
    losses = settings.get("loss_share")
    encoder = GaussianEncoder(
        len(scaler.origin_),
        latent_dim,
        hidden=hidden,
        layout=layout,
        signed=None if losses is None else torch.tensor(losses) > 0,
        generator=generator,
        **units,
    )
    decoder = decoder_of(
        settings, hidden=hidden, zero_share=torch.from_numpy(scaler.zero_share_), generator=generator, **units
    )
    prior: Prior = StandardNormal(latent_dim)
    if settings["prior"] == "mixture":
        prior = MixturePrior(latent_dim, settings["n_components"], generator=generator)
    if latent_dim and layout.n_covariates:
        return VAE(encoder, decoder, ConditionalPrior(prior, layout.n_covariates))
    return VAE(encoder, decoder, prior)


def fit(
    u: Array,
    zero_share: Array,
    volume: Array,
    settings: Mapping[str, Any],
    *,
    weights: Array | None = None,
    checkpoint: Place | None = None,
    resume: Place | None = None,
    callback: Callable[[EpochRecord], Any] | None = None,
    progress: bool | None = False,
) -> Fitted:
    """Train on unit-free rows.

    Args:
        u: Unit-free values, shape ``(n, D)``, and beside them what else the layout in the settings has in a row.
        zero_share: Share of exact zeros per column, shape ``(D,)``.
        volume: What the log-likelihood of each row has less in the user's units, shape ``(n,)``.
        settings: Values of every setting, none of them "auto" but smoothness.
        weights: Positive weights of the rows, shape ``(n,)``.
        checkpoint: File to write checkpoints to.
        resume: Checkpoint to go on from.
        callback: Called with the record of every epoch.
        progress: Show a bar; None shows it on a terminal.
    """
    rows, held_out_rows = split(len(u), settings["validation_fraction"], settings["seed"])
    x = torch.from_numpy(u[rows])
    validation = torch.from_numpy(u[held_out_rows]) if len(held_out_rows) else None
    mass, held_out_mass = (None if weights is None else weights[part] for part in (rows, held_out_rows))
    counted, held_out_counted = (None if part is None else torch.from_numpy(part) for part in (mass, held_out_mass))
    ones = np.ones(len(zero_share))
    vae = build(settings, PositiveScaler.of(0 * ones, ones, zero_share))
    vae.encoder.standardise(x, counted)
    assert isinstance(vae.decoder, PhaseTypeDecoder)
    smoothness, found = _start(vae.decoder, x, counted, settings)
    vae = vae.to(settings["device"])
    held_out_volume = float(weighing.mean(volume[held_out_rows], held_out_mass)) if len(held_out_rows) else 0.0
    history, settled = learn(
        vae,
        x,
        settings,
        smoothness=smoothness,
        translate=Translation(float(weighing.mean(volume[rows], mass)), held_out_volume),
        weights=counted,
        validation=validation,
        validation_weights=held_out_counted if validation is not None else None,
        checkpoint=checkpoint,
        resume=resume,
        callback=callback,
        progress=progress,
    )
    found |= settled
    found |= {"smoothness": smoothness.tolist()}
    return Fitted(vae.cpu().eval(), history, held_out_rows, found)


def learn(
    vae: VAE,
    rows: Tensor | RowSource,
    settings: Mapping[str, Any],
    *,
    smoothness: Tensor,
    translate: "Translation",
    weights: Tensor | None = None,
    validation: Tensor | None,
    validation_weights: Tensor | None = None,
    checkpoint: Place | None = None,
    resume: Place | None = None,
    callback: Callable[[EpochRecord], Any] | None = None,
    progress: bool | None = False,
) -> tuple[History, dict[str, Any]]:
    """Train a model that stands at its start laws, in place, then settle its prior.

    Args:
        vae: Model of unit-free columns, on the device of the settings.
        rows: Unit-free rows to train on, shape ``(n, width)``, or a source of them.
        settings: As in `fit`.
        smoothness: Weight of the roughness of each column, shape ``(D,)``.
        translate: From the log-likelihoods of these rows to those in the user's units.
        weights: Positive weights of the rows, shape ``(n,)``; a source has its own.
        validation: Held-out rows, shape ``(v, width)``.
        validation_weights: Their weights.
        checkpoint, resume, callback, progress: As in `fit`.

    Returns:
        The history in the user's units, and the number of components of the prior where that has changed, by name.
    """
    if not settings["epochs"]:
        return History(()), {}
    try:
        history = train(
            vae,
            rows,
            epochs=settings["epochs"],
            batch_size=settings["batch_size"],
            learning_rate=settings["learning_rate"],
            weight_decay=settings["weight_decay"],
            clip_norm=settings["clip_norm"],
            schedule=step_schedule if settings["schedule"] == "step" else cosine_schedule,
            beta=settings["beta"],
            kl_warmup=settings["kl_warmup"],
            smoothness=smoothness,
            validation=validation,
            patience=settings["patience"] if validation is not None else None,
            seed=settings["seed"],
            weights=weights,
            validation_weights=validation_weights,
            checkpoint=checkpoint,
            checkpoint_seconds=settings["checkpoint_seconds"],
            resume=resume,
            callback=None if callback is None else lambda record: callback(translate.record(record)),
            progress=progress,
        )
    except TrainingError as error:
        where = f"values are unit-free, rows are counted among the {rows.shape[0]} that are not held out"
        raise TrainingError(f"{error} ({where})") from error
    if isinstance(rows, Tensor):
        device = settings["device"]
        rows = RowsInMemory(rows.to(device), None if weights is None else weights.to(device))
    n_components = settle_prior(vae, rows, seed=settings["seed"])
    return translate.history(history), {"n_components": n_components} if n_components else {}


def settle_phases(
    u: Array, zero_share: Array, volume: Array, settings: Mapping[str, Any], weights: Array | None = None
) -> dict[str, Any]:
    """The number of phases, where the data are to say it, and how the numbers compared; nothing where it is set."""
    if settings["n_phases"] == "auto":
        chosen, bounds = choose_phases(u, zero_share, volume, settings, weights)
        return {"n_phases": chosen, "held_out": [list(pair) for pair in bounds]}
    if settings["n_phases"] is None:
        family = family_of(settings)
        assert family is not None
        layout = Layout(len(zero_share), **settings.get("layout", {}))
        data = Cells.of_rows(u, layout) if layout.partial else torch.from_numpy(u[:, : len(zero_share)])
        if "loss_share" in settings:
            return {"n_phases": choose_signed_phases(data, np.array(settings["loss_share"]) > 0, family, weights)}
        return {"n_phases": choose_transformed_phases(data, family, weights=weights)[0]}
    return {}


def choose_phases(
    u: Array, zero_share: Array, volume: Array, settings: Mapping[str, Any], weights: Array | None = None
) -> tuple[int, list[tuple[int, float]]]:
    """The number of phases with the highest held-out bound, and the bound of each, in nats per row; as `fit`."""
    fraction = max(settings["validation_fraction"], COMPARISON_FRACTION)
    bounds: list[tuple[int, float]] = []
    for n_phases in defaults.PHASE_CHOICES:
        tried = {**settings, "n_phases": n_phases, "validation_fraction": fraction}
        fitted = fit(u, zero_share, volume, tried, weights=weights)
        places = fitted.held_out_rows
        mass = None if weights is None else weights[places]
        noise = torch.Generator().manual_seed(settings["seed"])
        with torch.no_grad():
            bound = fitted.vae.elbo(torch.from_numpy(u[places]), generator=noise, n_samples=8).numpy()
        bounds.append((n_phases, float(weighing.mean(bound - volume[places], mass))))
    best, _ = max(bounds, key=lambda pair: pair[1])
    return best, bounds


def to_users_units(vae: VAE, scaler: PositiveScaler) -> None:
    """Fold origin and scale into a model of unit-free columns; its likelihoods are then in the user's units."""
    for part in (vae.encoder, vae.decoder):
        part.origin.copy_(torch.from_numpy(scaler.origin_))
        part.scale.copy_(torch.from_numpy(scaler.scale_))


class Translation(NamedTuple):
    """From log-likelihoods of unit-free rows to those in the user's units: rows trained on, and rows held out."""

    volume: float
    held_out_volume: float

    def record(self, record: EpochRecord) -> EpochRecord:
        """An epoch in the user's units."""
        held_out = record.validation_elbo
        return replace(
            record,
            elbo=record.elbo - self.volume,
            log_likelihood=record.log_likelihood - self.volume,
            validation_elbo=None if held_out is None else held_out - self.held_out_volume,
        )

    def history(self, history: History) -> History:
        """A history in the user's units."""
        return replace(history, records=tuple(map(self.record, history)))


def _start(
    decoder: PhaseTypeDecoder, x: Tensor, weights: Tensor | None, settings: Mapping[str, Any]
) -> tuple[Tensor, dict[str, Any]]:
    """Set the decoder to the start laws; the weight of roughness per column, and what else was found of them."""
    wanted = settings["smoothness"]
    found: dict[str, Any] = {}
    total = len(x) if weights is None else float(weights.sum())
    mass = None if weights is None else weights.numpy()
    layout = Layout(decoder.n_columns, **settings.get("layout", {}))
    cells = Cells.of_rows(x.numpy(), layout) if layout.partial else None
    x = layout.lower(x) if cells is None else torch.from_numpy(representatives(cells))
    advised = torch.full((decoder.n_columns,), defaults.STRENGTH / total, dtype=torch.float64)
    fitted = settings["start"] == "fitted"
    if isinstance(decoder, TransformedDecoder):
        found = set_transformed_start(decoder, x, fitted=fitted, weights=mass, cells=cells)
    elif isinstance(decoder, SignedDecoder):
        known = x if cells is None else cells
        advised, found = set_signed_start(decoder, known, fitted=fitted, weights=mass, advised=advised)
    elif fitted:
        if cells is None:
            marginals = fit_marginals(x, n_phases=settings["n_phases"], weights=weights)
        else:
            marginals = fit_cells(cells, n_phases=settings["n_phases"], weights=mass)
        decoder.set_start(*reachable(marginals.initial, marginals.rates))
        advised = marginals.smoothness
    else:
        decoder.set_start(*geometric_start(x.numpy(), settings["n_phases"], mass))
    return advised if wanted == "auto" else torch.full_like(advised, wanted), found


def split(n_rows: int, fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and rows to hold out, each ascending."""
    n_held_out = round(fraction * n_rows)
    shuffled = np.random.default_rng([seed, n_rows]).permutation(n_rows)
    return np.sort(shuffled[n_held_out:]), np.sort(shuffled[:n_held_out])
