"""A fitted model fitted again to resampled rows, from where it stands."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from phvae import cell_units, defaults
from phvae.decoders import PhaseTypeDecoder
from phvae.layout import Layout
from phvae.observed import Cells
from phvae.observed_start import ObservedColumn, fit_cells, observed_columns, scores_of_cells
from phvae.preprocessing import column_names, rounded
from phvae.settings import device_of
from phvae.start import Scores, cells, climb, fit_marginals, natural, penalty, reachable
from phvae.tables import Table
from phvae.training import train
from phvae.vae import VAE

__all__ = ["BY_COLUMN", "TOGETHER", "TRAINED", "Refit", "Way", "refit_column", "refits", "resampled", "way_of"]

Array = NDArray[np.float64]

# Scores of so many values and parameters are held at once when one column is fitted to many resamples.
ENTRIES_AT_ONCE = 2**21
# Gain in total log-likelihood below which a refit has arrived, closer than a fit: a resample moves a law by less.
ARRIVED = 1e-3
# Resamples whose laws are fitted together: what a fit rests on must not depend on how many there are in all.
TOGETHER = 16
# How a model is fitted again: laws without a latent vector in one go, networks by training on, and what is neither
# (a start without training, a law of another family) by a fit from the beginning with its numbers of phases.
Way = str
BY_COLUMN, TRAINED, FROM_START = "by column", "trained", "from start"


class Refit(NamedTuple):
    """A model of a resample: the tensors of its parts and the share of zeros of each column.

    ``settings`` holds what was found again beside the laws.
    """

    tensors: dict[str, Tensor]
    zero_share: Array
    settings: dict[str, Any]


def resampled(
    n: int, seed: int, replicate: int, block_length: int = 1, weights: Array | None = None
) -> NDArray[np.int64]:
    """Rows of one resample: drawn with replacement, or as blocks of neighbours on a circle.

    Rows that depend on the rows before them keep that dependence within a block (Politis and Romano 1992). A row of
    weight ``w`` stands for ``w`` rows in its place: there are as many draws as rows that all of them stand for, and
    each takes the row that holds a place among these.

    Args:
        n: Rows of the table.
        seed: Seed of all resamples.
        replicate: Number of this one.
        block_length: Rows of a block; 1 for independent rows.
        weights: Weights of the rows, shape ``(n,)``.

    >>> resampled(6, seed=0, replicate=1, block_length=3)
    array([3, 4, 5, 5, 0, 1])
    >>> resampled(2, seed=0, replicate=1, block_length=3, weights=np.array([4.0, 2.0]))
    array([0, 1, 1, 1, 0, 0])
    """
    rng = np.random.default_rng([seed, replicate])
    total = float(n) if weights is None else float(weights.sum())
    drawn = round(total)
    starts = rng.integers(drawn, size=-(-drawn // block_length))
    places = starts[:, None] + np.arange(block_length)
    if weights is None:
        rows: NDArray[np.int64] = (places % n).ravel()[:n]
        return rows
    # within its place a draw falls anywhere, so that weights that are no whole numbers count in proportion as well
    points = (places + rng.random((len(starts), 1))) % drawn * (total / drawn)
    found = np.searchsorted(np.cumsum(weights), points.ravel()[:drawn], side="right")
    return np.minimum(found, int(np.flatnonzero(weights)[-1]))


def way_of(model: Any) -> Way:
    """How a model is fitted again."""
    settings = model.settings_
    if type(model.vae_.decoder) is not PhaseTypeDecoder:
        return FROM_START
    if model.vae_.decoder.latent_dim:
        return TRAINED if settings["epochs"] else FROM_START
    return BY_COLUMN if settings["epochs"] or settings["start"] == "fitted" else FROM_START


def refits(
    model: Any, x: Array, rows: Mapping[int, NDArray[np.int64]], seed: int, weights: Array | None, epochs: int
) -> dict[int, Refit]:
    """One fit for each resample of a table, by the number of the resample.

    Args:
        model: Fitted estimator.
        x: The table it was fitted to: rows of its layout, shape ``(n, width)``.
        rows: Rows of each resample, by its number; laws of `TOGETHER` resamples are fitted together.
        seed: Seed of the bootstrap.
        weights: Weights of the rows of the table, shape ``(n,)``, in the fit of the model.
        epochs: Passes over the rows where networks are trained on.
    """
    way, numbers = way_of(model), list(rows)
    if way == BY_COLUMN:
        groups = [numbers[first : first + TOGETHER] for first in range(0, len(numbers), TOGETHER)]
        parts = [_by_column(model, x, [rows[b] for b in group], weights) for group in groups]
        return dict(zip(numbers, (refit for part in parts for refit in part), strict=True))
    columns = _marginals(model, x, weights) if way == TRAINED else None
    found = {}
    for b in numbers:
        own_seed = int(np.random.SeedSequence([seed, b]).generate_state(1)[0])
        try:
            if columns is None:
                found[b] = _from_start(model, x, rows[b], own_seed)
            else:
                found[b] = _trained(model, x, rows[b], columns, own_seed, epochs, weights)
        except ValueError as error:
            raise ValueError(f"resample {b}: {error}") from error
    return found


def _by_column(model: Any, x: Array, rows: list[NDArray[np.int64]], weights: Array | None) -> list[Refit]:
    """The laws of all columns of a model without latent vector, for every resample."""
    scale, smoothness = model.scaler_.scale_, np.broadcast_to(model.settings_["smoothness"], model.n_features_in_)
    laws = [model.phase_type(j) for j in range(model.n_features_in_)]
    columns = [(law.initial, law.rates * scale[j], smoothness[j]) for j, law in enumerate(laws)]
    initial, rates, shares = _columns_again(model, x, rows, columns, weights)
    found = []
    for b, share in enumerate(shares):
        vae: VAE = copy.deepcopy(model.vae_)
        decoder = vae.decoder
        assert isinstance(decoder, PhaseTypeDecoder)
        decoder.set_start(initial[b], rates[b])
        if decoder.atoms:
            decoder.set_zero_share(torch.from_numpy(share))
        found.append(Refit(vae.state_dict(), share, {}))
    return found


# Of each column: start probabilities and unit-free rates of a law, and its smoothness.
Columns = Sequence[tuple[Tensor, Tensor, float]]


def _columns_again(
    model: Any, x: Array, rows: list[NDArray[np.int64]], columns: Columns, weights: Array | None
) -> tuple[Tensor, Tensor, Array]:
    """Start probabilities and rates ``(B, D, m)`` of columns on their own, and shares of zeros ``(B, D)``."""
    layout: Layout = model.vae_.layout
    counts = np.stack([np.bincount(part, minlength=len(x)) for part in rows])
    u = _unit_free(model, x)
    if layout.partial:
        own = observed_columns(Cells.of_rows(u, layout), weights)
        laws = [_refit_cells(cells, counts, *column) for cells, column in zip(own, columns, strict=True)]
    else:
        laws = [refit_column(u[:, j], counts, *column, weights=weights) for j, column in enumerate(columns)]
    seen = Cells.of_rows(x, layout)
    exact = seen.lower == seen.upper
    # of cells that say where they are, as in a fit: neither gaps nor what may lie at zero
    shares = counts @ (exact & (seen.lower == 0)) / (counts @ (exact | (seen.lower > 0)))
    parts = [torch.stack([law[i] for law in laws], 1) for i in (0, 1)]
    kept = [reachable(*pair) for pair in zip(*parts, strict=True)]
    shares = shares * (model.scaler_.zero_share_ > 0)
    return torch.stack([law[0] for law in kept]), torch.stack([law[1] for law in kept]), shares


def _marginals(model: Any, x: Array, weights: Array | None) -> Columns:
    """The law of each column on its own, as a fit begins with it."""
    layout: Layout = model.vae_.layout
    u, n_phases = _unit_free(model, x), model.settings_["n_phases"]
    if layout.partial:
        found = fit_cells(Cells.of_rows(u, layout), n_phases=n_phases, weights=weights)
    else:
        values = torch.from_numpy(u[:, : layout.n_columns])
        found = fit_marginals(values, n_phases=n_phases, weights=None if weights is None else torch.from_numpy(weights))
    return list(zip(found.initial, found.rates, found.smoothness.tolist(), strict=True))


def _unit_free(model: Any, x: Array) -> Array:
    """Rows of the layout in the units of the networks, shape ``(n, width)``; covariates are as they are."""
    layout: Layout = model.vae_.layout
    if layout.partial:
        u = cell_units.unit_free(Cells.of_rows(x, layout), model.scaler_).rows(layout)
    else:
        u = rounded(model.scaler_.transform(x[:, : layout.n_columns]))
    return np.concatenate((u, x[:, x.shape[1] - layout.n_covariates :]), 1)


def _trained(
    model: Any, x: Array, rows: NDArray[np.int64], columns: Columns, seed: int, epochs: int, weights: Array | None
) -> Refit:
    """The networks of a model trained on with the rows of a resample, from where its columns on their own have moved.

    Training follows the latent vector within few epochs and a tail only slowly, for few rows are in it. So every law
    first moves as the law of its column on its own does between table and resample, in the outputs of the decoder.
    """
    settings, scaler = model.settings_, model.scaler_
    vae: VAE = copy.deepcopy(model.vae_)
    decoder = vae.decoder
    assert isinstance(decoder, PhaseTypeDecoder)
    before = reachable(torch.stack([column[0] for column in columns]), torch.stack([column[1] for column in columns]))
    initial, rates, shares = _columns_again(model, x, [rows], columns, weights)
    decoder.move_start(before, (initial[0], rates[0]))
    if decoder.atoms:
        decoder.move_zero_share(torch.from_numpy(scaler.zero_share_), torch.from_numpy(shares[0]))
    # unit-free rows, as in the fit: the model of them is the one with origin 0 and scale 1
    parts = (vae.encoder, decoder)
    for part in parts:
        part.origin.zero_()
        part.scale.fill_(1.0)
    vae.to(device_of(model.device))
    train(
        vae,
        torch.from_numpy(_unit_free(model, x[rows])),
        epochs=epochs,
        batch_size=settings["batch_size"],
        learning_rate=settings["learning_rate"],
        weight_decay=settings["weight_decay"],
        clip_norm=settings["clip_norm"],
        beta=settings["beta"],
        smoothness=torch.as_tensor(settings["smoothness"], dtype=torch.float64),
        seed=seed,
        progress=False,
    )
    vae = vae.cpu().eval()
    for part in parts:
        part.origin.copy_(torch.from_numpy(scaler.origin_))
        part.scale.copy_(torch.from_numpy(scaler.scale_))
    return Refit(vae.state_dict(), shares[0], {})


def _from_start(model: Any, x: Array, rows: NDArray[np.int64], seed: int) -> Refit:
    """A fit of the same settings and phases from the beginning; lower ends stay where they are."""
    again = clone(model).set_params(
        origin=model.scaler_.origin_.tolist(),
        support=["real" if share else defaults.SUPPORT for share in model.scaler_.loss_share_],
        n_phases=model.settings_["n_phases"],
        random_state=seed,
        verbose=False,
    )
    places, counts = np.unique(rows, return_counts=True)
    layout: Layout = model.vae_.layout
    drawn, own = Cells.of_rows(x[places], layout), model.settings_.get("counts", [])
    names = column_names(layout.n_columns, model.columns_)
    # the estimator stands above this module in the house
    from phvae.in_memory import Given, fit_table

    fit_table(
        again,
        Table(drawn.lower, names, "numpy"),
        counts.astype(np.float64),
        covariates=Given(model.covariates_, x[places, x.shape[1] - layout.n_covariates :]),
        cells=drawn if layout.partial else None,
        counts=own,
    )
    settings = {name: value for name, value in again.settings_.items() if name not in ("seed", "n_rows")}
    return Refit(again.vae_.state_dict(), again.scaler_.zero_share_, settings)


def refit_column(
    u: Array,
    counts: NDArray[np.int64],
    initial: Tensor,
    rates: Tensor,
    smoothness: float,
    *,
    weights: Array | None = None,
) -> tuple[Tensor, Tensor]:
    """Series phase-type laws of one column by penalised maximum likelihood, one for every resample, from one law.

    Args:
        u: Unit-free values, shape ``(n,)``; exact zeros are left out.
        counts: How often each resample holds each value, shape ``(B, n)``.
        initial: Start probabilities of the fitted law, shape ``(m,)``.
        rates: Its rates, shape ``(m,)``.
        smoothness: Weight of the penalty on uneven phases, beside a mean log-likelihood.
        weights: Weights of the values in the fit, shape ``(n,)``.

    Returns:
        Start probabilities and rates, both of shape ``(B, m)``.
    """
    kept = slice(None) if weights is None else weights > 0
    distinct, where = np.unique(u[kept], return_inverse=True)
    original = np.bincount(where, weights=None if weights is None else weights[kept])
    positive = distinct > 0
    distinct, original = distinct[positive], original[positive]
    first = cells(original)
    middle = np.add.reduceat(original * distinct, first) / np.add.reduceat(original, first)
    x, masses = [], []
    for row in counts:
        mass = np.bincount(where, weights=row[kept])[positive]
        total = np.add.reduceat(mass, first)
        # a cell that this resample misses keeps a value, at weight zero
        x.append(np.divide(np.add.reduceat(mass * distinct, first), total, out=middle.copy(), where=total > 0))
        masses.append(total)
    strength = smoothness * float(original.sum())
    return _climb_again(np.stack(x), np.stack(masses), initial, rates, strength)


def _refit_cells(
    cells: ObservedColumn, counts: NDArray[np.int64], initial: Tensor, rates: Tensor, smoothness: float
) -> tuple[Tensor, Tensor]:
    """As `refit_column` for a column of which not everything is known."""
    masses = cells.masses(counts)
    ends = np.broadcast_to(cells.ends, (len(masses), *cells.ends.shape))
    strength = smoothness * float(cells.sketch.weights.sum())
    return _climb_again(ends, masses, initial, rates, strength, scores_of_cells)


def _climb_again(
    x: Array, masses: Array, initial: Tensor, rates: Tensor, strength: float, scores: Scores | None = None
) -> tuple[Tensor, Tensor]:
    """Laws of all resamples from one law; arguments as in `phvae.start.climb`."""
    point = torch.cat([initial.log(), rates.diff(prepend=torch.zeros(1, dtype=rates.dtype)).log()])
    prior = penalty(len(initial), strength)
    at_once = max(1, ENTRIES_AT_ONCE // (masses.shape[1] * len(point)))
    parts = []
    for b in range(0, len(x), at_once):
        # a copy: the same cells for all resamples are one array seen many times
        values, totals = (torch.from_numpy(np.array(part[b : b + at_once])) for part in (x, masses))
        start = point.repeat(len(values), 1)
        parts.append(climb(values, totals, start, prior, arrived=ARRIVED, scores=scores))
    return natural(torch.cat([reached for reached, _, _ in parts]))
