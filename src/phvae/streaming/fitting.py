"""A fit to Parquet files that are read again in every epoch: the fit of `phvae.PHVAE` in bounded memory."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae import assembly, defaults
from phvae.checkpoint import Place
from phvae.decoders import PhaseTypeDecoder
from phvae.history import EpochRecord
from phvae.preprocessing import PositiveScaler
from phvae.settings import resolve
from phvae.signed_decoders import SignedDecoder
from phvae.start import fit_marginals, reachable
from phvae.streaming.shuffle import StreamedRows
from phvae.streaming.survey import ColumnSurvey, Survey, survey, unit_free
from phvae.supports import signed_settings
from phvae.tables.read import Missing, read_table
from phvae.tables.row_groups import RowGroups, all_parquet
from phvae.vae import VAE

if TYPE_CHECKING:
    from phvae.estimator import PHVAE

Model = TypeVar("Model", bound="PHVAE")

__all__ = ["ParquetStream", "fit_stream", "rows_of", "stream_if_large", "table_or_stream"]

# Numbers in a table from which on a path is streamed: a gibibyte, of which training in memory holds several copies.
STREAMED_FROM = 2**27
# Bytes of rows in memory at a time.
BUFFER_BYTES = 2**27
# Most rows held out of a stream: the mean of so many is known to a three-hundredth of their deviation.
MOST_HELD_OUT = 100_000
# Rows up to which the held-out rows are those of a fit in memory.
FEW_ROWS = 2**22


class ParquetStream:
    """Rows of Parquet files for `phvae.PHVAE.fit`, streamed whatever their number.

    Args:
        source: A Parquet file, a folder of them or a pattern such as ``"claims/*.parquet"``.
        columns: Names of the columns to read; None takes all that hold numbers.
        where: Rows to read, such as ``loss > 10 and kind != "x"``.
        missing: What a missing cell is, ``"error"`` or a reason to ``"drop"`` its row.
        buffer_bytes: Memory for rows that are shuffled together.

    Rows are shuffled within the buffer, which holds rows of up to sixteen row groups chosen by chance: files that are
    sorted want row groups of at most a sixteenth of the buffer.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> x = np.random.default_rng(0).pareto(2.4, 300) + 1
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"loss": x}), f"{folder}/a.parquet", row_group_size=100)
    ...     ParquetStream(folder, buffer_bytes=800).shape
    (300, 1)
    """

    def __init__(
        self,
        source: Place,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        missing: Missing = "error",
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.row_groups = RowGroups(source, columns=columns, where=where, missing=missing)
        n_columns = len(self.row_groups.names)
        if buffer_bytes < 8 * n_columns:
            raise ValueError(f"buffer_bytes = {buffer_bytes!r} does not hold a row; give at least {8 * n_columns}")
        self.buffer_bytes = buffer_bytes

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.row_groups.shape


def table_or_stream(data: Any) -> Any:
    """What a path stands for in `phvae.PHVAE.fit`, a table or a stream of large Parquet files; else what is given."""
    if not isinstance(data, str | os.PathLike):
        return data
    return stream_if_large(data) or read_table(data).table


def stream_if_large(
    path: Place, *, columns: Sequence[str] | None = None, where: str | None = None, missing: Missing = "error"
) -> ParquetStream | None:
    """A stream of what a path stands for, if that is Parquet and too much for memory; arguments as there."""
    if not all_parquet(path):
        return None
    n_rows, n_columns = RowGroups(path, columns=columns).shape
    if n_rows * n_columns <= STREAMED_FROM:
        return None
    return ParquetStream(path, columns=columns, where=where, missing=missing)


def fit_stream(
    model: Model,
    stream: ParquetStream,
    *,
    checkpoint: Place | None = None,
    resume: Place | None = None,
    callback: Callable[[EpochRecord], Any] | None = None,
) -> Model:
    """Fit an estimator to a stream; arguments and result as in `phvae.PHVAE.fit`."""
    groups = stream.row_groups
    settings = resolve(model.get_params(), *groups.shape)
    if settings["n_phases"] == "auto":
        raise ValueError("n_phases = 'auto' compares fits to a table in memory; give a number or None for a stream")
    if settings["tail"] != defaults.TAIL:
        raise ValueError(f"tail = {settings['tail']!r} fits columns held in memory; leave it out for a stream")
    held_out = held_out_rows(groups.shape[0], settings["validation_fraction"], settings["seed"])
    found = survey(groups, model.origin, held_out, model.support)
    settings |= signed_settings(found.scaler.loss_share_)
    vae, smoothness = prepared(found, settings)
    rows = rows_of(stream, found, held_out, device=settings["device"])
    validation = torch.from_numpy(unit_free(found.scaler, found.held_out)) if len(found.held_out) else None
    history, settled = assembly.learn(
        vae,
        rows,
        settings,
        smoothness=smoothness,
        translate=_translation(found, rows.shape[0]),
        validation=validation,
        checkpoint=checkpoint,
        resume=resume,
        callback=callback,
        progress=None if model.verbose else False,
    )
    vae = vae.cpu().eval()
    assembly.to_users_units(vae, found.scaler)
    model.settings_ = {**settings, **settled, "smoothness": smoothness.tolist()}
    model.scaler_, model.vae_, model.history_ = found.scaler, vae, history
    model.tail_record_, model.fingerprint_ = found.tail_record, found.fingerprint
    model.table_kind_ = "pyarrow"
    model.columns_ = list(groups.names)
    model.n_features_in_ = len(groups.names)
    model.feature_names_in_ = np.array(groups.names, dtype=object)
    return model


def rows_of(stream: ParquetStream, found: Survey, held_out: NDArray[np.int64], *, device: str = "cpu") -> StreamedRows:
    """The unit-free rows to train on."""
    scaler = found.scaler
    digest = f"{found.fingerprint} {scaler.origin_.tolist()} {scaler.scale_.tolist()}"
    return StreamedRows(
        stream.row_groups,
        digest,
        held_out,
        lambda x: unit_free(scaler, x),
        window=max(1, stream.buffer_bytes // (8 * stream.shape[1])),
        device=device,
    )


def held_out_rows(n_rows: int, fraction: float, seed: int) -> NDArray[np.int64]:
    """Numbers of the rows to hold out, ascending, at most `MOST_HELD_OUT`; for few rows those of a fit in memory."""
    fraction = min(fraction, MOST_HELD_OUT / n_rows)
    if n_rows <= FEW_ROWS:
        return assembly.split(n_rows, fraction, seed)[1]
    chosen = np.random.default_rng([seed, n_rows]).choice(n_rows, round(fraction * n_rows), replace=False)
    return np.sort(chosen).astype(np.int64)


def prepared(found: Survey, settings: dict[str, Any]) -> tuple[VAE, Tensor]:
    """The model before training, at the start laws of its columns, and the weight of roughness per column."""
    scaler = found.scaler
    ones = np.ones(len(scaler.scale_))
    vae = assembly.build(settings, PositiveScaler.of(0 * ones, ones, scaler.zero_share_))
    columns = [_unit_free(column, scaler, place) for place, column in enumerate(found.columns)]
    _standardise(vae, columns)
    decoder = vae.decoder
    assert isinstance(decoder, PhaseTypeDecoder)
    initial, rates, smoothness = _starts(columns, settings)
    decoder.set_start(initial, rates)
    if isinstance(decoder, SignedDecoder):
        # a column without losses keeps its gains there, which nobody reads
        initial, rates, losses = _starts([column.losses or column for column in columns], settings)
        decoder.set_losses(initial, rates)
        smoothness = torch.lerp(smoothness, losses, decoder.loss_share)
    return vae.to(settings["device"]), smoothness


def _translation(found: Survey, n_rows: int) -> assembly.Translation:
    """To the user's units, from the counts of what was surveyed: no row is read again."""
    scaler = found.scaler
    zeros = np.array([column.zeros for column in found.columns]) / n_rows
    volume = float((np.log(scaler.scale_) * (1 - np.where(scaler.zero_share_ > 0, zeros, 0.0))).sum())
    return assembly.Translation(volume, float(scaler.log_volume(found.held_out).mean()) if len(found.held_out) else 0.0)


def _unit_free(column: ColumnSurvey, scaler: PositiveScaler, place: int) -> ColumnSurvey:
    losses = None if column.losses is None else _unit_free(column.losses, scaler, place)
    return column._replace(x=(column.x - scaler.origin_[place]) / scaler.scale_[place], losses=losses)


def _starts(columns: list[ColumnSurvey], settings: dict[str, Any]) -> list[Tensor]:
    """Start probabilities and rates, ``(D, m)``, and weights of roughness, ``(D,)``."""
    starts = [_start(column, settings) for column in columns]
    return [torch.cat(part) for part in zip(*starts, strict=True)]


def _start(column: ColumnSurvey, settings: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Start probabilities and rates, ``(1, m)``, and weight of roughness, ``(1,)``, as `phvae.assembly` has them."""
    x, weights = torch.from_numpy(column.x)[:, None], torch.from_numpy(column.weights)
    wanted, n_phases = settings["smoothness"], settings["n_phases"]
    if settings["start"] == "fitted":
        law = fit_marginals(x, n_phases=n_phases, weights=weights)
        initial, rates = reachable(law.initial, law.rates)
        advised = law.smoothness
    else:
        median = column.x[np.searchsorted(np.cumsum(column.weights), column.weights.sum() / 2)]
        rates = torch.from_numpy(np.geomspace(3 / column.x[-1], 20 / median, n_phases))[None]
        initial = torch.full_like(rates, 1 / n_phases)
        advised = torch.tensor([defaults.STRENGTH / (column.weights.sum() + column.zeros)], dtype=torch.float64)
    return initial, rates, advised if wanted == "auto" else torch.full_like(advised, wanted)


def _standardise(vae: VAE, columns: list[ColumnSurvey]) -> None:
    """Give the encoder mean and deviation of its features, which look at one column each."""
    encoder = vae.encoder
    means, deviations = encoder.feature_mean.view(-1, len(columns)), encoder.feature_deviation.view(-1, len(columns))
    for place, column in enumerate(columns):
        # exact zeros have features at zero
        values, counts = np.append(column.x, 0.0), np.append(column.weights, column.zeros)
        if column.losses is not None:
            values, counts = np.append(values, -column.losses.x), np.append(counts, column.losses.weights)
        x, weights = torch.from_numpy(values)[:, None], torch.from_numpy(counts / counts.sum())
        features = (x * encoder.resolutions.T).asinh()
        mean = weights @ features
        deviation = (weights @ (features - mean).square()).sqrt()
        means[:, place] = mean
        deviations[:, place] = torch.where(deviation > 0, deviation, 1.0)
