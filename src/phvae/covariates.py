"""Covariates: columns that are given with every row, not modelled, as the numbers that networks read."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from phvae import weights as weighing
from phvae.tables import DataError
from phvae.tables.given import Column, RawColumns, as_levels, as_numbers

__all__ = ["Categorical", "Covariates", "Numeric"]

Array = NDArray[np.float64]

# A value so many spreads from the middle is in another unit than the others.
WIDEST = 1e30
# Levels that are named in a message.
LISTED = 12


class Numeric(NamedTuple):
    """A covariate of numbers, read as ``(asinh((x - centre) / spread) - mean) / deviation``.

    That is a straight line in the middle and a logarithm far out: a heavy tail does not drown what is usual, and a
    value beyond all of the fit moves a network by little.

    name: Name of the column.
    centre: Median of the rows of the fit.
    spread: Median distance from it; the mean distance where more than half of the values are equal.
    mean, deviation: Those of the ``asinh``.
    """

    name: Any
    centre: float
    spread: float
    mean: float
    deviation: float

    @property
    def width(self) -> int:
        """Numbers it is read as."""
        return 1

    def described(self) -> str:
        """What it holds, in words."""
        return f"numbers, median {self.centre:.6g}, half of them within {self.spread:.6g} of it"

    @classmethod
    def fit(cls, name: Any, values: Array, mass: Array | None) -> Self:
        """Learn centre and spread from values that are not all equal, with weights of the rows."""
        centre = weighing.median(values, mass)
        distance = np.abs(values - centre)
        spread = weighing.median(distance, mass) or float(weighing.mean(distance, mass))
        bent = np.arcsinh((values - centre) / spread)
        mean = float(weighing.mean(bent, mass))
        return cls(name, centre, spread, mean, math.sqrt(float(weighing.mean((bent - mean) ** 2, mass))))

    def read(self, column: Column) -> Array:
        """Numbers of shape ``(n, 1)``."""
        values = as_numbers(self.name, column)
        scaled = (values - self.centre) / self.spread
        far = np.abs(scaled) > WIDEST
        if far.any():
            row = int(far.argmax())
            fault = f"is {values[row]:g}, where the fit has seen values around {self.centre:g}; check its unit"
            raise DataError(f"covariate {self.name!r}", row, fault)
        return np.asarray((np.arcsinh(scaled) - self.mean) / self.deviation)[:, None]


class Categorical(NamedTuple):
    """A covariate of levels, read as a number for each: 1 for the level of a row, 0 for the others.

    name: Name of the column.
    levels: The levels seen in the fit, in order.
    """

    name: Any
    levels: tuple[Any, ...]

    @property
    def width(self) -> int:
        """Numbers it is read as."""
        return len(self.levels)

    def described(self) -> str:
        """What it holds, in words."""
        return f"levels {_listed(self.levels)}"

    def read(self, column: Column) -> Array:
        """Numbers of shape ``(n, levels)``."""
        places = {level: place for place, level in enumerate(self.levels)}
        found = np.zeros((len(column), len(places)))
        for row, level in enumerate(as_levels(self.name, column)):
            if level not in places:
                raise DataError(
                    f"covariate {self.name!r}",
                    row,
                    f"is {level!r}, a level the fit has not seen; give one of {_listed(self.levels)}",
                )
            found[row, places[level]] = 1.0
        return found


class Covariates:
    """How the covariates of a fit are read: numbers centred and scaled, levels one by one.

    Args:
        columns: How each of them is read.
        named: Whether their names are those of a frame, by which they are found in another one.

    >>> table = {"size": [1.0, 2.0, 9.0], "region": ["north", "south", "north"]}
    >>> covariates = Covariates.fit(table, 3)
    >>> covariates.names, covariates.width
    (['size', 'region'], 3)
    >>> covariates.read({"region": "south", "size": 2.0})[:, 1:].tolist()
    [[0.0, 1.0]]
    """

    def __init__(self, columns: Iterable[Numeric | Categorical], *, named: bool) -> None:
        self.columns, self.named = tuple(columns), named

    @classmethod
    def fit(cls, data: Any, n_rows: int, sample_weight: Array | None = None) -> Self:
        """Learn how to read covariates from the rows of a fit.

        Args:
            data: A pandas, polars or Arrow table, a dict of columns, or an array of shape ``(n, covariates)``. Text,
                categories and truth values are levels, all else is numbers.
            n_rows: Rows of the table that they belong to.
            sample_weight: Weights of the rows, shape ``(n,)``.
        """
        raw = RawColumns.of(data)
        raw.require_rows(n_rows)
        used = np.ones(n_rows, bool) if sample_weight is None else sample_weight > 0
        mass = None if sample_weight is None else sample_weight[used]
        columns: list[Numeric | Categorical] = []
        for name, column, has_levels in zip(raw.labels, raw.columns, raw.has_levels, strict=True):
            if has_levels:
                seen = [level for level, counts in zip(as_levels(name, column), used, strict=True) if counts]
                levels = sorted(set(seen), key=lambda level: (type(level).__name__, level))
                _require_two(name, levels)
                columns.append(Categorical(name, tuple(levels)))
            else:
                values = as_numbers(name, column)[used]
                _require_two(name, np.unique(values[[values.argmin(), values.argmax()]]).tolist())
                columns.append(Numeric.fit(name, values, mass))
        return cls(columns, named=raw.names is not None)

    @property
    def names(self) -> list[Any]:
        """Names of the covariates; ``c0, c1, ...`` where the fit was to an array."""
        return [column.name for column in self.columns]

    @property
    def width(self) -> int:
        """Numbers that the covariates of a row are read as."""
        return sum(column.width for column in self.columns)

    def read(self, data: Any, rows: NDArray[np.bool_] | None = None) -> Array:
        """The numbers for networks, shape ``(n, width)``.

        Args:
            data: Table as in `fit`, of which other columns are left alone; a dict of values stands for one row.
            rows: Which rows to read, shape ``(n,)``; all when omitted.
        """
        raw = RawColumns.of(data) if rows is None else RawColumns.of(data).only(rows)
        return np.concatenate(
            [how.read(column) for how, column in zip(self.columns, self._chosen(raw), strict=True)], 1
        )

    def rows(self, data: Any) -> list[dict[Any, Any]]:
        """The rows of a table, by name, as plain values; they are those that can be read."""
        self.read(data)
        columns = [
            as_levels(how.name, column) if isinstance(how, Categorical) else as_numbers(how.name, column).tolist()
            for how, column in zip(self.columns, self._chosen(RawColumns.of(data)), strict=True)
        ]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def one_row(self, data: Any) -> dict[Any, Any]:
        """The one row of a table."""
        RawColumns.of(data).require_one()
        return self.rows(data)[0]

    def _chosen(self, raw: RawColumns) -> list[Column]:
        """The columns of a table that are the covariates, in their order."""
        if self.named and raw.names is not None:
            for name in self.names:
                if name not in raw.names:
                    raise ValueError(
                        f"covariates have no column {name!r}; give those of the fit, {_listed(self.names)}"
                    )
            return [raw.columns[raw.names.index(name)] for name in self.names]
        if len(raw.columns) != len(self.columns):
            raise ValueError(
                f"covariates has {len(raw.columns)} columns; give those of the fit in order, {_listed(self.names)}"
            )
        return raw.columns

    def header(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "named": self.named,
            "columns": [
                {"kind": "categorical" if isinstance(column, Categorical) else "numeric", **column._asdict()}
                for column in self.columns
            ],
        }

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Self:
        """The same from what `header` gave; a `ValueError` where that is no such thing."""
        columns: list[Numeric | Categorical] = []
        for entry in header["columns"]:
            rest = {name: value for name, value in entry.items() if name != "kind"}
            if entry["kind"] == "categorical":
                columns.append(Categorical(rest["name"], tuple(rest["levels"])))
                sound = len(set(rest["levels"])) == len(rest["levels"]) >= 2
            else:
                numeric = Numeric(**rest)
                columns.append(numeric)
                sound = all(map(math.isfinite, numeric[1:])) and numeric.spread > 0 and numeric.deviation > 0
            if not sound:
                raise ValueError(f"covariate {rest['name']!r:.40} is not described in full")
        return cls(columns, named=bool(header["named"]))


def _require_two(name: Any, values: Sequence[Any]) -> None:
    if len(values) < 2:
        raise ValueError(f"covariate {name!r} is {values[0]!r} in every row; it says nothing: leave it out")


def _listed(values: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, values[:LISTED]))
    return shown + (f" and {len(values) - LISTED} more" if len(values) > LISTED else "")
