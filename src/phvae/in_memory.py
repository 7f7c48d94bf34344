"""A fit to a table in memory: the fit of `phvae.PHVAE`, from the table to the attributes of the estimator."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from phvae import assembly, cell_units
from phvae.checkpoint import Place, fingerprint
from phvae.covariates import Covariates
from phvae.history import EpochRecord
from phvae.observed import Cells
from phvae.preprocessing import PositiveScaler, rounded
from phvae.risk.record import TailRecord
from phvae.settings import batch_size_of, resolve
from phvae.supports import atom_from, signed_settings
from phvae.tables import Table, rows_as_given
from phvae.weights import distinct_rows

if TYPE_CHECKING:
    from phvae.estimator import PHVAE

__all__ = ["Given", "fit_table"]

Array = NDArray[np.float64]
Model = TypeVar("Model", bound="PHVAE")


class Given(NamedTuple):
    """Covariates that were read before: how, or None without any, and as what, shape ``(n, width)``."""

    encoding: Covariates | None
    numbers: Array


def fit_table(
    model: Model,
    table: Table,
    sample_weight: Array | None,
    *,
    covariates: Any = None,
    cells: Cells | None = None,
    counts: Sequence[int] = (),
    checkpoint: Place | None = None,
    resume: Place | None = None,
    callback: Callable[[EpochRecord], Any] | None = None,
) -> Model:
    """Fit an estimator to a table; arguments and result as in `phvae.PHVAE.fit`.

    Args:
        model: Estimator to fit.
        table: Its table.
        sample_weight: Weights of the rows.
        covariates: What the law of the columns is conditioned on: a table, or what one was read as.
        cells: What is known of the cells, where that is not their values.
        counts: Positions of the columns that are counts.
        checkpoint: File to keep the state of training in.
        resume: Such a file to go on from.
        callback: Called with the record of every epoch.
    """
    given, shape = model.get_params(), table.values.shape
    # a weight counts rows: what depends on their number is that of the rows they stand for
    n_rows = shape[0] if sample_weight is None else round(float(sample_weight.sum()))
    read = isinstance(covariates, Given)
    encoding, c = covariates if read else read_covariates(covariates, table, sample_weight)
    known = table.values if cells is None else cells.rows(cells.layout)
    rows = np.concatenate((known, c), 1) if encoding else known
    places, weights = distinct_rows(rows, sample_weight, batch_size_of(given, n_rows, shape[1]))
    settings = resolve(given, n_rows, shape[1], len(places), c.shape[1])
    zeros = atom_from(settings["tail"])
    with rows_as_given(places):
        if cells is None:
            values = table.values if len(places) == shape[0] and weights is None else table.values[places]
            scaler = PositiveScaler(model.origin, model.support, zeros).fit(values, table.names, weights)
            u, volume = rounded(scaler.transform(values)), scaler.log_volume(values)
        else:
            used = Cells.of_rows(known[places], cells.layout)
            scaler = cell_units.fit_scaler(
                used, model.origin, table.names, weights, support=model.support, atom_from=zeros
            )
            u, volume = cell_units.unit_free(used, scaler).rows(cells.layout), cell_units.log_volume(used, scaler)
            settings["layout"] = cells.layout.as_dict() | {"n_covariates": c.shape[1]}
    settings |= signed_settings(scaler.loss_share_)
    u = np.concatenate((u, c[places]), 1) if encoding else u
    settings |= assembly.settle_phases(u, scaler.zero_share_, volume, settings, weights)
    vae, history, _, found = assembly.fit(
        u,
        scaler.zero_share_,
        volume,
        settings,
        weights=weights,
        checkpoint=checkpoint,
        resume=resume,
        callback=callback,
        progress=None if model.verbose else False,
    )
    assembly.to_users_units(vae, scaler)
    cut = [] if cells is None else cells.cut(counts)
    model.settings_ = settings | found | ({"counts": list(counts)} if counts else {}) | ({"cut": cut} if cut else {})
    model.scaler_, model.vae_, model.history_ = scaler, vae, history
    signed = scaler.loss_share_ > 0
    seen = table.values if cells is None else cells.seen(counts, signed)
    model.tail_record_ = TailRecord.of(seen, sample_weight, signed)
    model.table_kind_ = table.kind
    model.covariates_ = encoding
    digested = (rows,) if sample_weight is None else (rows, sample_weight)
    model.fingerprint_ = fingerprint(
        *(torch.from_numpy(np.require(part, requirements=["C", "W"])) for part in digested)
    )
    model.columns_ = table.names
    return model


def read_covariates(covariates: Any, table: Table, sample_weight: Array | None) -> Given:
    """How the covariates of a table are read, and what they are read as."""
    if covariates is None:
        return Given(None, np.zeros((len(table.values), 0)))
    encoding = Covariates.fit(covariates, len(table.values), sample_weight)
    for name in table.names or ():
        if encoding.named and name in encoding.names:
            raise ValueError(f"column {name!r} is in X and in covariates: it is modelled or given; take it out of one")
    numbers = np.zeros((len(table.values), encoding.width))
    # a row of weight zero is no row: it may have a level that no row has
    used = np.ones(len(numbers), bool) if sample_weight is None else sample_weight > 0
    numbers[used] = encoding.read(covariates, used)
    return Given(encoding, numbers)
