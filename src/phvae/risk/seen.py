"""Rows that a model is held against: what is known of their cells, within which bounds, and how much they count."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from phvae.checkpoint import fingerprint
from phvae.observed import Cells
from phvae.observing import observed_rows
from phvae.weights import copies, sample_weights

__all__ = ["SeenColumn", "SeenRows", "cut_columns"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class SeenColumn(NamedTuple):
    """What is known of the cells of one column, shape ``(n,)`` each.

    lower: Lower ends of the cells; a cell lies in ``(lower, upper]`` and is a value where both are equal.
    upper: Upper ends.
    entry: Value from which on a cell is seen at all; None where no row has such a bound.
    exit: Value up to which it is.
    weights: How many rows a row stands for; None for one each.
    whole: Whether values are whole numbers, each of which stands for what is rounded to it.
    selected: Whether rows are also seen or not by their values in other columns.

    >>> column = SeenColumn(np.array([1.0, 2.0, -np.inf]), np.array([1.0, np.inf, np.inf]))
    >>> column.exact.tolist(), column.missing.tolist(), column.cut.tolist()
    ([True, False, False], [False, False, True], [False, True, False])
    """

    lower: Array
    upper: Array
    entry: Array | None = None
    exit: Array | None = None
    weights: Array | None = None
    whole: bool = False
    selected: bool = False

    @property
    def exact(self) -> Mask:
        """Cells that are values."""
        same: Mask = self.lower == self.upper
        return same

    @property
    def missing(self) -> Mask:
        """Cells of which nothing is known but the bounds they were seen in."""
        first = -np.inf if self.entry is None else self.entry
        last = np.inf if self.exit is None else self.exit
        nothing: Mask = (self.lower <= first) & (self.upper >= last) & ~self.exact
        return nothing

    @property
    def cut(self) -> Mask:
        """Cells only known to be larger than their lower end."""
        last = np.inf if self.exit is None else self.exit
        return (self.upper >= last) & ~self.exact & ~self.missing

    @property
    def between(self) -> Mask:
        """Cells known to lie below an upper end, without being values."""
        return ~(self.exact | self.missing | self.cut)

    @property
    def bounded(self) -> bool:
        """Whether cells were seen only within bounds."""
        return self.entry is not None or self.exit is not None

    @property
    def values(self) -> Array:
        """The values of the cells that have one, counts rounded; else NaN."""
        whole = self.rounded
        return np.where(whole.exact, whole.lower, np.nan)

    @property
    def mass(self) -> Array:
        """How many rows each row stands for."""
        return np.ones_like(self.lower) if self.weights is None else self.weights

    @property
    def known(self) -> "SeenColumn":
        """The cells that are not missing."""
        return self.of_rows(~self.missing)

    @property
    def rounded(self) -> "SeenColumn":
        """The column with whole numbers as values."""
        if not self.whole:
            return self
        middle = np.where(self.lower == -np.inf, 0.0, self.lower + 0.5)
        number = self.upper - middle == 0.5
        return self._replace(lower=np.where(number, middle, self.lower), upper=np.where(number, middle, self.upper))

    @property
    def mirrored(self) -> "SeenColumn":
        """The same of minus the column."""
        entry, last = (None if bound is None else -bound for bound in (self.exit, self.entry))
        return self._replace(lower=-self.upper, upper=-self.lower, entry=entry, exit=last)

    def of_rows(self, rows: Mask) -> "SeenColumn":
        """Some of the rows."""
        parts = (None if part is None else part[rows] for part in self[:5])
        lower, upper, entry, last, weights = parts
        assert lower is not None
        assert upper is not None
        return SeenColumn(lower, upper, entry, last, weights, self.whole, self.selected)


class SeenRows(NamedTuple):
    """Rows of a table beside a fitted model; rows of weight zero are left out.

    cells: Their cells, counts as the intervals of what is rounded to them.
    weights: How many rows each stands for; None for one each.
    counts: Positions of the columns that are counts.
    dependent: Whether the columns of the model depend on each other.
    of_the_fit: Whether they are the rows of the fit.
    digest: A fingerprint of them.
    """

    cells: Cells
    weights: Array | None
    counts: Sequence[int]
    dependent: bool
    of_the_fit: bool
    digest: str

    @classmethod
    def of(cls, model: Any, X: Any, sample_weight: Any, beside: Mapping[str, Any]) -> "SeenRows":
        """The rows of a table.

        Args:
            model: Fitted `phvae.PHVAE`.
            X: Table with its columns.
            sample_weight: Weights of the rows.
            beside: What is known of the cells, by the names that `phvae.PHVAE.fit` has for it.
        """
        if cut_columns(model) and all(value is None for value in beside.values()):
            warnings.warn(
                "the model was fitted to cells that are cut or seen only within bounds, and the rows given beside it "
                "are taken for plain values; say so in lower, upper, censored, entry or exit as in fit, or "
                "censored=False if they are",
                stacklevel=4,
            )
        rows, layout = observed_rows(model, X, beside)
        cells = Cells.of_rows(rows, layout)
        weights = sample_weights(sample_weight, len(rows))
        parts = (cells.rows(cells.layout),) if weights is None else (cells.rows(cells.layout), weights)
        digest = fingerprint(*(torch.from_numpy(np.require(part, requirements=["C", "W"])) for part in parts))
        if weights is not None and not weights.all():
            used = weights > 0
            first, last = (None if bound is None else bound[used] for bound in (cells.entry, cells.exit))
            cells, weights = Cells(cells.lower[used], cells.upper[used], first, last, cells.flagged), weights[used]
        counts = model.settings_.get("counts", [])
        dependent = model.settings_["latent_dim"] > 0
        return cls(cells, weights, counts, dependent, digest == model.fingerprint_, digest)

    @property
    def n_rows(self) -> int:
        """How many rows they stand for."""
        return len(self.cells.lower) if self.weights is None else round(float(self.weights.sum()))

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.cells.lower.shape[1])

    @property
    def bounded(self) -> Mask:
        """Columns in which some row is seen only within bounds, shape ``(D,)``."""
        found = np.zeros(self.n_columns, bool)
        for bound in (self.cells.entry, self.cells.exit):
            if bound is not None:
                found |= np.isfinite(bound).any(0)
        return found

    def column(self, position: int) -> SeenColumn:
        """What is known of one column."""
        others = self.dependent and bool(np.delete(self.bounded, position).any())
        ends = self.cells.lower[:, position], self.cells.upper[:, position]
        own = (None if bound is None else bound[:, position] for bound in (self.cells.entry, self.cells.exit))
        first, last = (None if bound is None or np.isinf(bound).all() else bound for bound in own)
        return SeenColumn(*ends, first, last, self.weights, position in self.counts, others)

    def complete(self) -> Array:
        """The rows of which every cell is a value, as often as their weights say, shape ``(m, D)``."""
        columns = [self.column(j).rounded for j in range(self.n_columns)]
        whole = np.all([column.exact for column in columns], 0)
        values = np.stack([column.lower for column in columns], 1)[whole]
        return values if self.weights is None else np.repeat(values, copies(self.weights[whole]), axis=0)


def cut_columns(model: Any) -> list[int]:
    """Positions of the columns of which the fit has seen values cut, or rows selected by their bounds or by others'."""
    layout = model.settings_.get("layout", {})
    if (layout.get("entry") or layout.get("exit")) and model.settings_["latent_dim"]:
        return list(range(model.n_features_in_))
    return list(model.settings_.get("cut", []))
