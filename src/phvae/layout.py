"""What a row says of its cells: which slices of it are values, ends of intervals, bounds of truncation, covariates."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """The slices ``[lower | upper | entry | exit | covariates]`` of a row; a plain row is its values alone.

    A cell is known to lie in ``(lower, upper]``: an exact value where both are equal, ``(c, inf)`` where it is
    censored from the right at ``c``, ``(-inf, c]`` from the left, ``(-inf, inf)`` where it is missing. A row is in the
    table because its cells lie within ``(entry, exit]``. What a table does not have takes no place in its rows.

    Args:
        n_columns: Columns ``D`` of the table.
        intervals: Whether a cell has two ends; otherwise there is one slice, the values.
        entry: Whether there are lower bounds of truncation.
        exit: Whether there are upper bounds of truncation.
        flagged: Whether the encoder is told which cells are missing or censored.
        n_covariates: Columns at the end that are given and not modelled.

    >>> layout = Layout(2, intervals=True)
    >>> row = torch.tensor([[1.0, 3.0, 1.0, torch.inf]])
    >>> layout.width, layout.lower(row).tolist(), layout.upper(row).tolist(), layout.exact(row).tolist()
    (4, [[1.0, 3.0]], [[1.0, inf]], [[True, False]])
    """

    n_columns: int
    intervals: bool = False
    entry: bool = False
    exit: bool = False
    flagged: bool = False
    n_covariates: int = 0

    @property
    def plain(self) -> bool:
        """Whether a row is its values alone."""
        return self.width == self.n_columns

    @property
    def partial(self) -> bool:
        """Whether rows say less or more than the values of their cells."""
        return self.intervals or self.truncated

    @property
    def truncated(self) -> bool:
        """Whether rows have bounds of truncation."""
        return self.entry or self.exit

    @property
    def width(self) -> int:
        """Length of a row."""
        return self.n_columns * (1 + self.intervals + self.entry + self.exit) + self.n_covariates

    def lower(self, x: Tensor) -> Tensor:
        """Lower ends of the cells, shape ``(..., D)``: the values themselves where there are no intervals."""
        return x if self.plain else x[..., : self.n_columns]

    def upper(self, x: Tensor) -> Tensor:
        """Upper ends of the cells, shape ``(..., D)``."""
        return self._slice(x, int(self.intervals))

    def entries(self, x: Tensor) -> Tensor | None:
        """Lower bounds of truncation, shape ``(..., D)``, ``-inf`` where there is none."""
        return self._slice(x, 1 + self.intervals) if self.entry else None

    def exits(self, x: Tensor) -> Tensor | None:
        """Upper bounds of truncation, shape ``(..., D)``, ``inf`` where there is none."""
        return self._slice(x, 1 + self.intervals + self.entry) if self.exit else None

    def covariates(self, x: Tensor) -> Tensor:
        """What is given and not modelled, shape ``(..., n_covariates)``."""
        return x[..., x.shape[-1] - self.n_covariates :]

    def exact(self, x: Tensor) -> Tensor:
        """Which cells are values, shape ``(..., D)``."""
        lower = self.lower(x)
        return lower == self.upper(x) if self.intervals else torch.ones_like(lower, dtype=torch.bool)

    def missing(self, x: Tensor) -> Tensor:
        """Of which cells nothing is known, shape ``(..., D)``."""
        return (self.lower(x) == -torch.inf) & (self.upper(x) == torch.inf)

    def usable(self, x: Tensor) -> Tensor:
        """Which entries of rows can be what they stand for, shape ``(..., width)``."""
        good = x.isfinite()
        below, above = -torch.inf, torch.inf
        ends = ((self.intervals, below), (self.intervals, above), (self.entry, below), (self.exit, above))
        first = 0 if self.intervals else self.n_columns
        for none in (none for there, none in ends if there):
            part = slice(first, first + self.n_columns)
            # an end or a bound that is not there is infinite, on its own side only
            good[..., part] |= x[..., part] == none
            first += self.n_columns
        if self.intervals:
            good[..., self.n_columns : 2 * self.n_columns] &= self.lower(x) <= self.upper(x)
        return good

    def as_dict(self) -> dict[str, Any]:
        """All but the number of columns, as plain values: what a file keeps."""
        return {name: value for name, value in asdict(self).items() if name != "n_columns"}

    def _slice(self, x: Tensor, number: int) -> Tensor:
        return x[..., number * self.n_columns : (number + 1) * self.n_columns]
