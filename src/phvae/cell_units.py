"""Cells of which not everything is known, in the units of the networks: origin and scale of what is there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phvae import defaults
from phvae.observed import Cells
from phvae.preprocessing import Origin, PositiveScaler, column_names, rounded
from phvae.supports import ATOM_FROM, Support, signed_columns
from phvae.tables import DataError

__all__ = ["fit_scaler", "log_volume", "unit_free"]

Array = NDArray[np.float64]


def fit_scaler(
    cells: Cells,
    origin: Origin,
    names: Sequence[object] | None = None,
    sample_weight: Array | None = None,
    *,
    support: Support = defaults.SUPPORT,
    atom_from: float = ATOM_FROM,
) -> PositiveScaler:
    """Origin, scale, shares of zeros and of losses from the cells that say where the values are.

    A value stands for itself, a finite interval for its middle, one without upper end for its lower one. The origin of
    a column is estimated only if none of its cells reaches down to zero and no row had to pass a bound to be seen; it
    is 0 otherwise, for what lies below was not looked at. In a signed column a cell counts if its sign is known, an
    interval without lower end for its upper one.

    Args:
        cells: The cells, in the user's units.
        origin: As in `PositiveScaler`.
        names: Names of the columns.
        sample_weight: Positive weights of the rows, shape ``(n,)``.
        support, atom_from: As in `PositiveScaler`.
    """
    lower, upper = cells.lower, cells.upper
    exact, signed = lower == upper, signed_columns(support, column_names(lower.shape[1], names))
    with np.errstate(invalid="ignore"):
        middle = np.where(upper == np.inf, lower, lower + (upper - lower) / 2)
    middle = np.where(signed & (lower == -np.inf), upper, middle)
    # an end at zero says which sign, and is no zero
    used = exact | (lower > 0) | (signed & ((lower == 0) | (upper <= 0)) & (middle != 0))
    points = np.where(exact, lower, np.where(used, middle, 0.0))
    open_below = ((lower == -np.inf) & (upper < np.inf)).any(0)
    if cells.entry is not None:
        open_below |= (cells.entry > 0).any(0)
    open_below |= signed
    automatic = [
        0.0 if open_below[j] else _estimated(lower[:, j], points[:, j], used[:, j], sample_weight)
        for j in range(lower.shape[1])
    ]
    for j in np.flatnonzero(~used.any(0) & open_below & ~signed):
        # nothing but intervals that begin at zero: their ends say how wide the column is
        used[:, j] = upper[:, j] < np.inf
        points[used[:, j], j] = upper[used[:, j], j]
    scaler = PositiveScaler(origin, support, atom_from).fit(
        points, names, sample_weight, used=used, automatic=automatic
    )
    impossible = (upper <= scaler.origin_) & ~exact & ~signed & ~((lower == -np.inf) & (scaler.zero_share_ > 0))
    if impossible.any():
        row, j = divmod(int(impossible.argmax()), lower.shape[1])
        label = column_names(lower.shape[1], names)[j]
        fault = f"is {upper[row, j]:g}, at or below the origin {scaler.origin_[j]:g}; lower the origin or use 'auto'"
        raise DataError(f"upper of column {label!r}", row, fault)
    return scaler


def unit_free(cells: Cells, scaler: PositiveScaler) -> Cells:
    """The same cells in units of the scaler; a value has the bits of single precision, as in `rounded`."""
    exact = cells.lower == cells.upper
    values = rounded(scaler.transform(np.where(exact, cells.lower, 1.0)))
    ends = [np.where(exact, values, _moved(end, scaler)) for end in (cells.lower, cells.upper)]
    bounds = [None if bound is None else _moved(bound, scaler) for bound in (cells.entry, cells.exit)]
    return Cells(ends[0], ends[1], bounds[0], bounds[1], cells.flagged)


def log_volume(cells: Cells, scaler: PositiveScaler) -> Array:
    """What a log-likelihood in the user's units has less than one of unit-free cells, shape ``(n,)``.

    Only values have a density, and so a unit; intervals have probabilities.
    """
    value = (cells.lower == cells.upper) & ~((cells.lower == 0) & (scaler.zero_share_ > 0))
    total: Array = np.where(value, np.log(scaler.scale_), 0.0).sum(-1)
    return total


def _moved(ends: Array, scaler: PositiveScaler) -> Array:
    """Ends in units of the scaler. An atom is at zero: an end above it stays there, also one below the origin."""
    moved = (ends - scaler.origin_) / scaler.scale_
    stays = (scaler.zero_share_ > 0) & (scaler.loss_share_ == 0)
    kept: Array = np.where(stays & (ends > -np.inf), np.maximum(moved, 0.0), moved)
    return kept


def _estimated(lower: Array, points: Array, used: NDArray[np.bool_], mass: Array | None) -> float | None:
    """Origin of a column of which some cells are intervals, from their lower ends; None for the estimate of values."""
    ends, middles = lower[used], points[used]
    positive = middles > 0
    if not positive.any() or np.array_equal(ends, middles):
        return None
    ends, middles = ends[positive], middles[positive]
    weights = None if mass is None else mass[used][positive]
    n = len(ends) if weights is None else float(weights.sum())
    least = float(ends.min())
    gap = (float(np.average(middles, weights=weights)) - least) / n
    return max(0.0, min(least - gap, float(np.nextafter(least, 0))))
