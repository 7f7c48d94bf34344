"""Frames (numpy, pandas, polars, Arrow) as one float64 matrix with names, and back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

__all__ = ["KINDS", "DataError", "Table", "from_matrix", "is_frame", "rows_as_given", "to_matrix"]

Array = NDArray[np.float64]

# What `from_matrix` can write.
KINDS = ("numpy", "pandas", "polars", "pyarrow", "modin", "cudf")


class DataError(ValueError):
    """Data that no model can use; knows the row, so that a reader of files can say where in the file that is.

    Args:
        what: The whole sentence, or its part before the row.
        row: Row of the table, counted from 0.
        fault: The part after the row.

    >>> error = DataError("column 'loss'", 3, "is inf; remove the row")
    >>> print(error)
    column 'loss', row 3 is inf; remove the row
    >>> error.at(lambda row: f"line {row + 2}")
    "column 'loss', line 5 is inf; remove the row"
    """

    def __init__(self, what: str, row: int | None = None, fault: str = "") -> None:
        super().__init__(what if row is None else f"{what}, row {row} {fault}")
        self.what, self.row, self.fault = what, row, fault

    def at(self, place: Callable[[int], str]) -> str:
        """The sentence with another way to say which row it is."""
        return self.what if self.row is None else f"{self.what}, {place(self.row)} {self.fault}"


@contextmanager
def rows_as_given(places: NDArray[np.int64]) -> Iterator[None]:
    """Let what is wrong with one of some rows be said of its number in the table they were taken from, ``places``."""
    try:
        yield
    except DataError as error:
        if error.row is None:
            raise
        raise DataError(error.what, int(places[error.row]), error.fault) from None


class Table(NamedTuple):
    """A matrix ``(n, D)``, the names of its columns (``None`` for an array) and the kind of table it came from."""

    values: Array
    names: list[Any] | None
    kind: str


def is_frame(data: Any) -> bool:
    """Whether data are a table with named columns."""
    return bool(nw.dependencies.is_into_dataframe(data))


def to_matrix(data: Any, *, name: str = "X", gaps: bool = False, infinite: bool = False) -> Table:
    """Read a table into a float64 matrix of finite numbers.

    Args:
        data: A pandas, polars or Arrow table, or anything numpy reads as an array of shape ``(n, D)``.
        name: What messages call the table.
        gaps: Whether a cell may be missing, which is NaN then.
        infinite: Whether numbers may be infinite.

    >>> import polars as pl
    >>> to_matrix(pl.DataFrame({"loss": [1, 2], "days": [0.5, 3.0]}))
    Table(values=array([[1. , 0.5], [2. , 3. ]]), names=['loss', 'days'], kind='polars')
    """
    if is_frame(data):
        return _from_frame(data, name, gaps, infinite)
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        raise ValueError(f"{name} is a lazy frame; give {name}.collect()")
    if nw.dependencies.is_into_series(data):
        raise ValueError(f"{name} is a single column; give a table, such as frame[['column']]. Expected 2D input")
    if hasattr(data, "toarray") and hasattr(data, "nnz"):
        raise ValueError(f"{name} is sparse, and sparse data are not supported; give {name}.toarray()")
    values = _numbers(np.asarray(data), name, gaps=gaps)
    _require_finite(values, [f"x{j}" for j in range(values.shape[1])], gaps, infinite)
    return Table(values, None, "numpy")


def from_matrix(values: Array, names: list[Any] | None, kind: Any) -> Any:
    """Write a matrix as a table of the given kind, the inverse of `to_matrix`.

    >>> from_matrix(np.array([[1.0, 2.0]]), ["a", "b"], "pyarrow").to_pydict()
    {'a': [1.0], 'b': [2.0]}
    """
    if kind == "numpy":
        return values
    labels = [f"x{j}" for j in range(values.shape[1])] if names is None else names
    try:
        frame = nw.from_numpy(values, schema=[str(label) for label in labels], backend=kind).to_native()
    except ImportError as error:
        raise ValueError(
            f"this model gives {kind} tables and {kind} is not installed; install it, or set table_kind_ to 'numpy'"
        ) from error
    if any(not isinstance(label, str) for label in labels):
        frame.columns = labels  # only pandas allows names that are no text
    return frame


def _from_frame(data: Any, name: str, gaps: bool, infinite: bool) -> Table:
    labels = list(getattr(data, "column_names", data.columns))
    _require_distinct(labels, name)
    frame = nw.from_native(data, eager_only=True)
    kind = str(frame.implementation.value)
    values = np.empty((len(frame), len(labels)))
    _require_2d(values, name)
    for j, label in enumerate(labels):
        values[:, j] = _column(frame.get_column(label), label, gaps)
    _require_finite(values, labels, gaps, infinite)
    return Table(values, labels, kind)


def _column(series: "nw.Series[Any]", label: Any, gaps: bool) -> Array:
    if not (series.dtype.is_numeric() or series.dtype in (nw.Boolean, nw.Object, nw.Unknown)):
        raise ValueError(
            f"column {label!r} is {series.dtype}, not numbers{_example(series)}; drop it or turn it into numbers"
        )
    missing = series.is_null()
    if missing.any() and gaps:
        present = ~missing.to_numpy().astype(bool)
        column = np.full(len(series), np.nan)
        if present.any():
            column[present] = _column(series.drop_nulls(), label, gaps)
        return column
    if missing.any():
        raise _not_a_number(label, int(missing.arg_true()[0]), "missing (NaN)", int(missing.sum()))
    column = series.to_numpy()
    if column.dtype == object:
        return _numbers(column[:, None], f"column {label!r}", [label], gaps)[:, 0]
    return column.astype(np.float64)


def _example(series: "nw.Series[Any]") -> str:
    known = series.drop_nulls()
    return f" (such as {known[0]!r})" if len(known) else ""


def _numbers(array: NDArray[Any], name: str, labels: list[Any] | None = None, gaps: bool = False) -> Array:
    """An array as float64, or the sentence that says which entry is no number."""
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported; give real numbers")
    if array.ndim != 2:
        raise ValueError(
            f"{name} has shape {array.shape}. Expected 2D input. Reshape your data: "
            f"{name}.reshape(-1, 1) for one column, {name}.reshape(1, -1) for one row"
        )
    _require_2d(array, name)
    if array.dtype.kind in "USMm":
        raise ValueError(f"{name} holds {array.dtype} (such as {array.flat[0]}), not numbers; turn it into numbers")
    if array.dtype.kind == "O":
        return _objects(array, labels, gaps)
    return array.astype(np.float64, copy=False)


def _objects(array: NDArray[Any], labels: list[Any] | None, gaps: bool) -> Array:
    """Numbers out of Python objects, one by one."""
    values = np.empty(array.shape)
    for (row, j), entry in np.ndenumerate(array):
        label = f"x{j}" if labels is None else labels[j]
        if entry is None and gaps:
            values[row, j] = np.nan
            continue
        if entry is None:
            raise _not_a_number(label, row, "missing (NaN)")
        if isinstance(entry, str | bytes):
            raise _not_a_number(label, row, f"the text {entry!r}")
        try:
            values[row, j] = entry
        except TypeError as error:
            raise TypeError(str(_not_a_number(label, row, f"{entry!r} ({error})"))) from error
    return values


def _require_2d(values: NDArray[Any], name: str) -> None:
    for count, what in zip(values.shape, ("sample(s)", "feature(s)"), strict=True):
        if count == 0:
            raise ValueError(f"{name} has 0 {what} (shape={values.shape}) while a minimum of 1 is required.")


def _require_distinct(labels: list[Any], name: str) -> None:
    for position, label in enumerate(labels):
        first = labels.index(label)
        if first < position:
            raise ValueError(f"{name} has two columns {label!r}, at positions {first} and {position}; rename one")


def _require_finite(values: Array, labels: list[Any], gaps: bool, infinite: bool) -> None:
    # a finite sum has finite terms: one pass, without a temporary of the size of the data
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    wrong = ~np.isfinite(values) & ~(np.isnan(values) & gaps) & ~(np.isinf(values) & infinite)
    if wrong.any():
        row, j = divmod(int(wrong.argmax()), values.shape[1])
        entry = values[row, j]
        what = "missing (NaN)" if np.isnan(entry) else f"{entry:g}"
        raise _not_a_number(labels[j], int(row), what, int(wrong.sum()))


def _not_a_number(label: Any, row: int, what: str, count: int = 1) -> DataError:
    others = f" and {count - 1} more" if count > 1 else ""
    learn = ", or set missing to 'model'" if what.startswith("missing") else ""
    return DataError(f"column {label!r}", row, f"is {what}{others}; remove the row or fill in a number{learn}")
