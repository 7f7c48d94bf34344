"""Tables of numbers and of levels, such as covariates: their columns as they are, whatever the table is made of."""

import math
from collections.abc import Mapping
from itertools import compress
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from phvae.tables.frames import DataError, is_frame

__all__ = ["Column", "RawColumns", "as_levels", "as_numbers"]

Array = NDArray[np.float64]
# An array holds numbers; a list holds whatever it holds.
Column = NDArray[Any] | list[Any]


class RawColumns(NamedTuple):
    """Columns of covariates as they are, whether they hold levels, and their names, or None for an array."""

    names: list[Any] | None
    columns: list[Column]
    has_levels: list[bool]

    @classmethod
    def of(cls, data: Any) -> "RawColumns":
        """The columns of a frame, a series, an array, or a dict of columns or of the values of one row."""
        if isinstance(data, Mapping):
            return cls._of_mapping(data)
        if nw.dependencies.is_into_series(data):
            series = nw.from_native(data, series_only=True)
            column, has_levels = _column(series)
            return cls(None if series.name is None else [series.name], [column], [has_levels])._whole()
        if is_frame(data):
            labels = list(getattr(data, "column_names", data.columns))
            for position, label in enumerate(labels):
                if label in labels[:position]:
                    raise ValueError(f"covariates has two columns {label!r}; rename one")
            frame = nw.from_native(data, eager_only=True)
            pairs = [_column(frame.get_column(label)) for label in labels]
            return cls(labels, [column for column, _ in pairs], [has_levels for _, has_levels in pairs])._whole()
        if hasattr(data, "collect_schema"):
            raise ValueError("covariates is a lazy frame; give covariates.collect()")
        array = np.asarray(data)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            raise ValueError(f"covariates has shape {array.shape}; give a table, shape (n, covariates)")
        columns = [column if column.dtype.kind in "fiu" else column.tolist() for column in array.T]
        return cls(None, columns, [*map(_has_levels, columns)])._whole()

    @classmethod
    def _of_mapping(cls, data: Mapping[Any, Any]) -> "RawColumns":
        """A dict of columns, or of the values of one row."""
        single = [isinstance(value, str) or np.ndim(value) == 0 for value in data.values()]
        if any(single) and not all(single):
            raise ValueError("covariates mixes values and columns; give one row of values, or columns of one length")
        columns: list[Column] = [
            [value] if alone else list(value) for value, alone in zip(data.values(), single, strict=True)
        ]
        lengths = sorted(set(map(len, columns)))
        if len(lengths) > 1:
            raise ValueError(f"covariates has columns of {lengths[0]} and of {lengths[-1]} rows; give one length")
        return cls(list(data), columns, [*map(_has_levels, columns)])._whole()

    def _whole(self) -> "RawColumns":
        if not self.columns or not len(self.columns[0]):
            raise ValueError("covariates is empty; give at least one row of at least one column")
        return self

    @property
    def labels(self) -> list[Any]:
        """Names to speak of columns by."""
        return [f"c{j}" for j in range(len(self.columns))] if self.names is None else self.names

    def only(self, rows: NDArray[np.bool_]) -> "RawColumns":
        """Some of the rows."""
        columns: list[Column] = [
            column[rows] if isinstance(column, np.ndarray) else list(compress(column, rows)) for column in self.columns
        ]
        return self._replace(columns=columns)

    def require_rows(self, n_rows: int) -> None:
        """Refuse covariates of other rows."""
        if len(self.columns[0]) != n_rows:
            raise ValueError(
                f"covariates has {len(self.columns[0])} rows and X {n_rows}; give one row of covariates for each of X"
            )

    def require_one(self) -> None:
        """Refuse more rows than one."""
        if len(self.columns[0]) != 1:
            raise ValueError(f"covariates has {len(self.columns[0])} rows; give one, such as a dict from name to value")


def _column(series: "nw.Series[Any]") -> tuple[Column, bool]:
    """The values of a column, and whether they are levels."""
    if series.dtype.is_temporal():
        raise ValueError(
            f"covariate {series.name!r} is {series.dtype}; turn it into numbers, such as years, or into text"
        )
    if series.dtype.is_numeric() and not series.is_null().any():
        return series.to_numpy(), False
    values = list(series.to_list())
    return values, series.dtype in (nw.Categorical, nw.Enum) or _has_levels(values)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    same: Any = value == value
    # what is not equal to itself is NaN; NA of pandas does not even say whether it is
    return not isinstance(same, bool | np.bool_) or not same


def _require_known(name: Any, column: Column) -> None:
    missing = np.isnan(column) if isinstance(column, np.ndarray) else np.array([*map(_is_missing, column)])
    if missing.any():
        others = f" and {int(missing.sum()) - 1} more" if missing.sum() > 1 else ""
        fault = f"is missing{others}; remove the row, or fill in a value (such as 'unknown')"
        raise DataError(f"covariate {name!r}", int(missing.argmax()), fault)


def _has_levels(column: Column) -> bool:
    """Whether any value is one that is no number."""
    if isinstance(column, np.ndarray):
        return False
    return any(not isinstance(value, int | float | np.number) or isinstance(value, bool) for value in column)


def as_numbers(name: Any, column: Column) -> Array:
    """Finite numbers, shape ``(n,)``."""
    values = np.empty(len(column))
    if isinstance(column, np.ndarray):
        values[:] = column
    else:
        _require_known(name, column)
        for row, value in enumerate(column):
            try:
                values[row] = float(value) if not isinstance(value, str) else math.nan
            except (TypeError, ValueError):
                values[row] = math.nan
            if math.isnan(values[row]):
                raise DataError(f"covariate {name!r}", row, f"is {value!r}, where the fit has seen numbers; give one")
    _require_known(name, values)
    if not np.isfinite(values).all():
        row = int(np.isinf(values).argmax())
        raise DataError(f"covariate {name!r}", row, f"is {values[row]:g}; remove the row or give a finite number")
    return values


def as_levels(name: Any, column: Column) -> list[Any]:
    """Levels as JSON knows them."""
    _require_known(name, column)
    plain = (value.item() if isinstance(value, np.generic) else value for value in column)
    return [value if isinstance(value, str | int | float) else str(value) for value in plain]
