"""From what a user gives beside a table to rows that say what is known, for `phvae.PHVAE`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from phvae.layout import Layout
from phvae.observed import Cells, count_columns, read_cells
from phvae.preprocessing import column_names, require_non_negative
from phvae.supports import signed_columns
from phvae.tables import Table, is_frame, to_matrix
from phvae.vae import VAE

if TYPE_CHECKING:
    from phvae.estimator import PHVAE

__all__ = [
    "acceptance",
    "cells_of",
    "observe",
    "observed_rows",
    "read_rows",
    "refuse_beside_stream",
    "rows_of",
    "whole_counts",
]

Array = NDArray[np.float64]

# Latent points that the probability of being seen is a mean over in scores: its logarithm is then off by 1e-4 or so.
ACCEPTANCE_POINTS = 2**13


def read_rows(model: "PHVAE", X: Any, *, reset: bool = False, gaps: bool = False) -> Table:
    """A table with the columns of the fit, >= 0 where they are not signed.

    Args:
        model: Estimator.
        X: Table.
        reset: It is the table of a fit: its columns are taken over.
        gaps: A cell may be NaN.
    """
    framed = is_frame(X)
    if not reset:
        check_is_fitted(model)
        if framed:  # other columns explain missing cells better than the other way round
            validate_data(model, X, reset=False, skip_check_array=True)
    table = to_matrix(X, gaps=gaps)
    if reset or not framed:
        validate_data(model, X if framed else table.values, reset=reset, skip_check_array=True)
    labels = column_names(table.values.shape[1], table.names)
    signed = signed_columns(model.support, labels) if reset else model.scaler_.loss_share_ > 0
    require_non_negative(table.values, labels, signed)
    return table


def observe(model: "PHVAE", X: Any, beside: Mapping[str, Any]) -> tuple[Table, Cells | None, list[int]]:
    """The table of a fit, what is known of its cells where that is not their values, and which columns are counts."""
    gaps = model.missing == "model"
    table = read_rows(model, X, reset=True, gaps=gaps or _some(beside))
    labels = column_names(table.values.shape[1], table.names)
    signed = signed_columns(model.support, labels)
    counts = count_columns(model.counts, table.values, labels, signed)
    if not counts and not _some(beside) and not np.isnan(table.values).any():
        return table, None, []
    cells = read_cells(table.values, labels, **beside, counts=counts, gaps=gaps, signed=signed)
    return table, cells if cells.layout.partial else None, counts


def observed_rows(model: "PHVAE", X: Any, beside: Mapping[str, Any]) -> tuple[Array, Layout]:
    """Rows for a fitted model, and what their slices are: all that it was fitted to, and what is given here."""
    gaps = model.missing == "model"
    table = read_rows(model, X, gaps=gaps or _some(beside))
    return rows_of(model, cells_of(model, table.values, beside, gaps=gaps))


def cells_of(model: "PHVAE", values: Array, beside: Mapping[str, Any], *, gaps: bool) -> Cells:
    """What is known of the cells of a table for a fitted model; `gaps` as in `phvae.observed.read_cells`."""
    labels, signed = column_names(values.shape[1], model.columns_), model.scaler_.loss_share_ > 0
    return read_cells(values, labels, **beside, counts=model.settings_.get("counts", []), gaps=gaps, signed=signed)


def rows_of(model: "PHVAE", cells: Cells) -> tuple[Array, Layout]:
    """Rows of cells for a fitted model, covariates apart, and what their slices are."""
    own, found = model.vae_.layout, cells.layout
    layout = replace(own, intervals=own.intervals or found.intervals, entry=found.entry, exit=found.exit)
    return cells.rows(layout), layout


def whole_counts(model: Any, rows: Array) -> Array:
    """Draws with the columns that are counts rounded to whole numbers."""
    counts = model.settings_.get("counts", [])
    if not counts:
        return rows
    rows = rows.copy()
    # up from the middle, as the intervals of `read_cells` are
    rows[:, counts] = np.ceil(rows[:, counts] - 0.5) + 0.0
    return rows


def acceptance(vae: VAE, x: Tensor) -> Tensor:
    """Log of the probability that a row lies within the bounds of each row, from points that are always the same."""
    generator = torch.Generator(x.device).manual_seed(0)
    return vae.log_acceptance(x, n_points=ACCEPTANCE_POINTS, generator=generator)


def refuse_beside_stream(beside: Mapping[str, Any]) -> None:
    """What comes beside the values of a table is for one in memory."""
    for name, value in beside.items():
        if value is not None:
            raise ValueError(f"{name} is for a table in memory; give a table, such as read_table(path).table")


def _some(beside: Mapping[str, Any]) -> bool:
    return any(value is not None for value in beside.values())
