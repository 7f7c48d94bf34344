"""What a user knows of the cells of a table: values, intervals, gaps, counts, bounds of truncation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from phvae.layout import Layout
from phvae.tables import DataError, is_frame, to_matrix

__all__ = ["Cells", "count_columns", "read_cells"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# What to do about a cell of which nothing is known.
GAP = "remove the row or fill in a number, or set missing to 'model'"
# A whole-numbered column counts by itself where half of its values are below this: rounding to the next whole number
# is then no small change, and most values are tied.
COUNTS_BELOW = 100
# Fewer rows than these do not show that a column is made of whole numbers.
COUNTS_FROM = 20


class Cells(NamedTuple):
    """Ends of the cells and bounds of truncation in the user's units, shape ``(n, D)`` each.

    A cell lies in ``(lower, upper]``, is exact where both are equal, and a row is seen only if its cells are within
    ``(entry, exit]``. An end that is not there is infinite; bounds are None where no row has any.
    """

    lower: Array
    upper: Array
    entry: Array | None = None
    exit: Array | None = None
    flagged: bool = False

    @classmethod
    def of_rows(cls, rows: Array, layout: Layout) -> "Cells":
        """The cells that rows of a layout, shape ``(n, layout.width)``, are made of."""
        width = layout.width - layout.n_covariates
        parts = np.split(rows[:, :width], width // layout.n_columns, 1)
        lower, upper, *bounds = parts if layout.intervals else [parts[0], *parts]
        entry = bounds.pop(0) if layout.entry else None
        return cls(lower, upper, entry, bounds.pop(0) if layout.exit else None, layout.flagged)

    @property
    def layout(self) -> Layout:
        """The layout of `rows`."""
        intervals = not np.array_equal(self.lower, self.upper)
        bounds = {"entry": self.entry is not None, "exit": self.exit is not None}
        return Layout(self.lower.shape[1], intervals=intervals, flagged=self.flagged, **bounds)

    def seen(self, counts: Sequence[int] = (), signed: Mask | None = None) -> Array:
        """The values of the cells that are exact, or counts, shape ``(n, D)``; NaN where there is none.

        Of a column, or of a side of a signed one, without any, the ends of its intervals that are nearest to zero,
        which some value has reached.

        Args:
            counts: Positions of the columns that are counts.
            signed: Which columns are signed, shape ``(D,)``.
        """
        exact = self.lower == self.upper
        signs = np.zeros(self.lower.shape[1], bool) if signed is None else signed
        values = np.where(exact, self.lower, np.nan)
        for j in counts:
            rounded = np.where((self.lower[:, j] == -np.inf) & ~signs[j], 0.0, self.lower[:, j] + 0.5)
            values[:, j] = np.where(self.upper[:, j] - rounded == 0.5, rounded, np.nan)
        for j in range(len(signs)):
            lower, upper = self.lower[:, j], self.upper[:, j]
            lower = lower if signs[j] else np.maximum(lower, 0.0)
            if not (values[:, j] > 0).any():
                values[:, j] = _nearest(lower, upper, values[:, j] if signs[j] else np.nan)
            if signs[j] and not (values[:, j] < 0).any():
                values[:, j] = -_nearest(-upper, -lower, -values[:, j])
        return values

    def rows(self, layout: Layout) -> Array:
        """Rows as a layout has them, shape ``(n, layout.width)`` without covariates."""
        parts = [self.lower]
        if layout.intervals:
            parts.append(self.upper)
        for there, bound, none in ((layout.entry, self.entry, -np.inf), (layout.exit, self.exit, np.inf)):
            if there:
                parts.append(np.full_like(self.lower, none) if bound is None else bound)
        return np.concatenate(parts, 1)


def read_cells(
    values: Array,
    labels: Sequence[str],
    *,
    lower: Any = None,
    upper: Any = None,
    censored: Any = None,
    entry: Any = None,
    exit: Any = None,
    counts: Sequence[int] = (),
    gaps: bool = False,
    signed: Mask | None = None,
) -> Cells:
    """Cells from values, shape ``(n, D)``, and what is known beside them.

    Args:
        values: Values, >= 0 in columns that are not signed; NaN where there is none.
        labels: Names of the columns, for messages.
        lower: Lower ends, where a cell is an interval: an array ``(n, D)``, a frame of some columns, a dict from
            column to numbers or one number for all. NaN leaves the cell as it is; ``-inf`` is for a signed column, in
            which a value is only known not to be exceeded.
        upper: Upper ends, likewise; ``inf`` where the value is only known to be larger than the lower end.
        censored: Which values are only known to be exceeded: True or False, likewise.
        entry: Value from which on a cell is seen at all, such as a deductible; likewise, NaN for none, and 0 where the
            column is not signed.
        exit: Value up to which a cell is seen at all; ``inf`` or NaN for none.
        counts: Positions of columns of whole numbers, of which each stands for what is rounded to it.
        gaps: Whether a cell may be missing, with no value and no end.
        signed: Which columns have both signs, shape ``(D,)``; none when omitted.

    >>> cells = read_cells(np.array([[5.0], [2.0]]), ["loss"], censored=[[True], [False]])
    >>> cells.lower.tolist(), cells.upper.tolist()
    ([[5.0], [2.0]], [[inf], [2.0]])
    """
    given = {
        name: _read(name, data, values.shape, labels)
        for name, data in (("lower", lower), ("upper", upper), ("censored", censored), ("entry", entry), ("exit", exit))
    }
    one_sided = np.ones(values.shape[1], bool) if signed is None else ~signed
    for name in ("lower", "upper", "entry", "exit"):
        what = "is {x:g}; a bound lies at or above 0: give 0 for none"
        _refuse(given[name], lambda x: (x < 0) & one_sided, name, labels, what)
    low = _replaced(values, given["lower"])
    high = _replaced(values, given["upper"])
    flags = given["censored"]
    if flags is not None:
        _refuse(flags, lambda x: ~((x == 0) | (x == 1)), "censored", labels, "is {x:g}; give True or False")
        cut = flags == 1
        row_column = _first(cut & np.isnan(low))
        if row_column:
            raise _at("censored", labels, row_column, "is True and there is no value; give the value that was exceeded")
        high = np.where(cut, np.inf, high)
    missing = np.isnan(values) & np.isnan(low) & np.isnan(high)
    if not gaps and missing.any():
        place = _first(missing)
        assert place is not None
        raise _at("column", labels, place, "is missing (NaN); " + GAP)
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    _refuse_pair(low > high, low, high, "lower", "upper", labels)
    _refuse(low, lambda x: x == np.inf, "lower", labels, "is inf, and no value lies above it; give a number")
    _refuse(high, lambda x: x == -np.inf, "upper", labels, "is -inf, and no value lies below it; give a number")
    flagged = bool((low != high).any())
    low, high = _counted(low, high, counts, labels)
    # an interval from zero on holds the zero
    low = np.where((low <= 0) & (high > low) & one_sided, -np.inf, low)
    first, last = _bounds(given["entry"], given["exit"], counts, labels, one_sided)
    low, high = _seen(low, high, first, last, labels)
    return Cells(low, high, first, last, flagged)


def count_columns(wanted: Any, values: Array, labels: Sequence[str], signed: Mask | None = None) -> list[int]:
    """Positions of the columns that are counts.

    ``"auto"`` takes a column of whole numbers of which half are below 100: rounding shapes such a column, while larger
    numbers are next to continuous. Signed columns are counts only if they are named.

    Args:
        wanted: ``"auto"``, None for no column, or the names or positions of columns.
        values: Values, shape ``(n, D)``; NaN where there is none.
        labels: Names of the columns.
        signed: Which columns are signed, shape ``(D,)``; none when omitted.

    >>> count_columns("auto", np.stack([np.arange(40.0), 0.5 * np.arange(40)], 1), ["claims", "loss"])
    [0]
    """
    if wanted is None:
        return []
    if isinstance(wanted, str):
        if wanted == "auto":
            return [
                j for j in range(values.shape[1]) if not (signed is not None and signed[j]) and _counts(values[:, j])
            ]
        wanted = [wanted]
    if not isinstance(wanted, Sequence | np.ndarray):
        raise ValueError(f"counts = {wanted!r}; give 'auto', None or the names of the columns that are counts")
    return sorted({_position(column, labels) for column in wanted})


def _counts(column: Array) -> bool:
    known = column[~np.isnan(column)]
    # the first values tell most columns apart without a pass over the rest
    if len(known) < COUNTS_FROM or (known[:COUNTS_FROM] % 1).any() or (known % 1).any():
        return False
    return bool(np.median(known) < COUNTS_BELOW and len(np.unique(known)) > 2)


def _position(column: Any, labels: Sequence[str]) -> int:
    if not isinstance(column, str) and isinstance(column, int | np.integer) and 0 <= column < len(labels):
        return int(column)
    if str(column) in labels:
        return labels.index(str(column))
    raise ValueError(f"counts names column {column!r}, which the data do not have; they have {list(labels)}")


def _read(name: str, data: Any, shape: tuple[int, ...], labels: Sequence[str]) -> Array | None:
    """Numbers for every cell, NaN where none is given."""
    if data is None:
        return None
    if isinstance(data, Mapping):
        columns = {str(key): value for key, value in data.items()}
    elif is_frame(data):
        table = to_matrix(data, name=name, gaps=True, infinite=True)
        assert table.names is not None
        columns = {str(label): table.values[:, j] for j, label in enumerate(table.names)}
    else:
        return _array(name, data, shape)
    unknown = [key for key in columns if key not in labels]
    if unknown:
        raise ValueError(f"{name} names column {unknown[0]!r}, which the data do not have; they have {list(labels)}")
    full = np.full(shape, 0.0 if name == "censored" else np.nan)
    for key, value in columns.items():
        full[:, labels.index(key)] = _array(f"{name}[{key!r}]", value, shape[:1])
    return full


def _array(name: str, data: Any, shape: tuple[int, ...]) -> Array:
    try:
        array = np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} = {data!r:.60} are no numbers; give one for each cell of the table") from None
    if array.shape == shape[:1] and shape[1:] == (1,):
        array = array[:, None]
    if array.shape not in (shape, ()):
        raise ValueError(f"{name} has shape {array.shape}; give one number for each cell of the table, shape {shape}")
    return np.array(np.broadcast_to(array, shape))


def _nearest(lower: Array, upper: Array, known: Array | float) -> Array:
    """What is known of values above zero, and beside it the lower ends of intervals there, or else the upper ones."""
    ends = np.where(lower > 0, lower, np.nan)
    if np.isnan(ends).all():
        ends = np.where((lower >= 0) & (upper > 0) & (upper < np.inf), upper, np.nan)
    return np.where(np.isnan(known), ends, known)


def _replaced(values: Array, ends: Array | None) -> Array:
    return values if ends is None else np.where(np.isnan(ends), values, ends)


def _counted(low: Array, high: Array, counts: Sequence[int], labels: Sequence[str]) -> tuple[Array, Array]:
    """Whole numbers as the intervals of what is rounded to them."""
    if not len(counts):
        return low, high
    low, high, own = low.copy(), high.copy(), list(counts)
    for ends in (low, high):
        part = ends[:, own]
        with np.errstate(invalid="ignore"):
            place = _first(np.isfinite(part) & (part % 1 != 0))
        if place:
            row, column = place
            what = f"is {part[place]:g}, no whole number; round it, or take the column out of counts"
            raise _at("column", labels, (row, own[column]), what)
    low[:, own] -= 0.5
    high[:, own] += 0.5
    return low, high


def _bounds(
    entry: Array | None, exits: Array | None, counts: Sequence[int], labels: Sequence[str], one_sided: Mask
) -> tuple[Array | None, Array | None]:
    first = None if entry is None else np.where(np.isnan(entry) | ((entry == 0) & one_sided), -np.inf, entry)
    last = None if exits is None else np.where(np.isnan(exits), np.inf, exits)
    for bound, shift in ((first, -0.5), (last, 0.5)):
        if bound is not None and len(counts):
            bound[:, list(counts)] += shift
    _refuse(
        last, lambda x: (x <= 0) & one_sided, "exit", labels, "is {x:g}; no value lies below it: give a bound above 0"
    )
    if first is not None and last is not None:
        _refuse_pair(first >= last, first, last, "entry", "exit", labels)
    if first is not None and not np.isfinite(first).any():
        first = None
    if last is not None and not np.isfinite(last).any():
        last = None
    return first, last


def _seen(
    low: Array, high: Array, first: Array | None, last: Array | None, labels: Sequence[str]
) -> tuple[Array, Array]:
    """Cells that are no values, within the bounds in which the row is seen; a value outside of them is refused."""
    if first is not None:
        exact = low == high
        place = _first((high < first) | (~exact & (high <= first)))
        if place:
            what = f"is {first[place]:g}, above the value {high[place]:g} that was seen; lower it or remove the row"
            raise _at("entry", labels, place, what)
        low = np.where(exact, low, np.maximum(low, first))
    if last is not None:
        exact = low == high
        place = _first((low > last) | (~exact & (low >= last)))
        if place:
            what = f"is {last[place]:g}, below the value {low[place]:g} that was seen; raise it or remove the row"
            raise _at("exit", labels, place, what)
        high = np.where(exact, high, np.minimum(high, last))
    return low, high


def _first(wrong: Mask) -> tuple[int, int] | None:
    """Row and column of the first cell that is wrong."""
    if not wrong.any():
        return None
    row, column = divmod(int(wrong.argmax()), wrong.shape[1])
    return row, column


def _at(name: str, labels: Sequence[str], place: tuple[int, int], fault: str) -> DataError:
    row, column = place
    what = f"column {labels[column]!r}" if name == "column" else f"{name} of column {labels[column]!r}"
    return DataError(what, row, fault)


def _refuse(bounds: Array | None, wrong: Callable[[Array], Mask], name: str, labels: Sequence[str], what: str) -> None:
    if bounds is None:
        return
    place = _first(wrong(bounds) & ~np.isnan(bounds))
    if place:
        raise _at(name, labels, place, what.format(x=bounds[place]))


def _refuse_pair(wrong: Mask, low: Array, high: Array, less: str, more: str, labels: Sequence[str]) -> None:
    place = _first(wrong)
    if place:
        raise _at(less, labels, place, f"is {low[place]:g} and {more} is {high[place]:g}; give the smaller one first")
