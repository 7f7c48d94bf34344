"""What a fitted model remembers of the tails it was fitted to: counts and the largest values of every column."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from phvae.weights import repeated

__all__ = ["MOST_KEPT", "ColumnRecord", "TailRecord"]

Array = NDArray[np.float64]

# Values kept of a column: the largest tenth, but never more than the first number and, if there are so many, never
# fewer than the second; and one more, the threshold that they exceed.
MOST_KEPT, FEWEST_KEPT = 1000, 50
SHARE_KEPT = 0.1


class ColumnRecord(NamedTuple):
    """What is known of the tail of one column of training rows.

    n: Values seen.
    zeros: Exact zeros among them.
    top: The largest positive values, descending; the last one is the threshold the others exceed.

    >>> record = ColumnRecord.of(np.array([0.0, 3.0, 1.0, 2.0]))
    >>> record.n, record.zeros, record.largest, record.exceedances(1.5)
    (4, 1, 3.0, 2)
    """

    n: int
    zeros: int
    top: Array

    @classmethod
    def of(cls, x: Array, weights: Array | None = None) -> "ColumnRecord":
        """The record of values, shape ``(n,)``; missing ones are left out, and only positive ones are kept.

        A value of weight 2 is one that was seen twice; where weights are no whole numbers, so is their running sum
        from the largest value down, rounded.
        """
        used = ~np.isnan(x)
        seen = x[used] if weights is None else repeated(x[used], weights[used])
        positive = seen[seen > 0]
        kept = cls.kept(len(positive), len(seen))
        largest = np.partition(positive, len(positive) - kept)[len(positive) - kept :]
        return cls(len(seen), int((seen == 0).sum()), -np.sort(-largest))

    @staticmethod
    def kept(n_positive: int, n: int) -> int:
        """How many of so many positive values a record keeps, among ``n`` seen."""
        return min(n_positive, 1 + min(MOST_KEPT, max(FEWEST_KEPT, int(SHARE_KEPT * n))))

    @property
    def largest(self) -> float:
        """Largest value."""
        return float(self.top[0])

    def exceedances(self, x: float) -> int | None:
        """How many values exceed ``x``; None where the record does not reach that far down."""
        if x < self.top[-1] and len(self.top) < self.n - self.zeros:
            return None
        return int((self.top > x).sum())


class TailRecord(NamedTuple):
    """The records of all columns of a table.

    columns: One record per column.
    losses: Of the signed columns those of the values with the other sign; None for the others.

    >>> record = TailRecord.of(np.array([[0.0, 5.0], [3.0, 4.0]]))
    >>> [column.largest for column in record.columns]
    [3.0, 5.0]
    """

    columns: tuple[ColumnRecord, ...]
    losses: tuple[ColumnRecord | None, ...] = ()

    @classmethod
    def of(cls, x: Array, weights: Array | None = None, signed: NDArray[np.bool_] | None = None) -> "TailRecord":
        """The record of a table, shape ``(n, D)``, with weights of its rows.

        Args:
            x: Values, >= 0 but in signed columns.
            weights: Weights of the rows, shape ``(n,)``.
            signed: Which columns are signed, shape ``(D,)``.
        """
        columns = tuple(ColumnRecord.of(column, weights) for column in x.T)
        if signed is None or not signed.any():
            return cls(columns)
        return cls(
            columns, tuple(ColumnRecord.of(-c, weights) if s else None for c, s in zip(x.T, signed, strict=True))
        )

    def arrays(self) -> dict[str, NDArray[np.int64] | Array]:
        """The record as arrays: three counts per column, and the kept values of all columns one after the other."""
        arrays = _arrays(self.columns)
        if self.losses:
            losses = _arrays([record for record in self.losses if record is not None])
            arrays |= {f"losses.{name}": part for name, part in losses.items()}
        return arrays

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, NDArray[np.int64] | Array],
        n_columns: int,
        signed: NDArray[np.bool_] | None = None,
    ) -> "TailRecord":
        """The record in arrays made by `arrays`; a `ValueError` where they are no record of so many columns.

        Args:
            arrays: Arrays by name.
            n_columns: Number of columns.
            signed: Which of them are signed.
        """
        columns = _records(arrays["counts"], arrays["top"], n_columns)
        if signed is None or not signed.any():
            return cls(columns)
        losses = iter(_records(arrays["losses.counts"], arrays["losses.top"], int(signed.sum())))
        return cls(columns, tuple(next(losses) if kind else None for kind in signed))


def _arrays(columns: Sequence[ColumnRecord]) -> dict[str, NDArray[np.int64] | Array]:
    counts = [(column.n, column.zeros, len(column.top)) for column in columns]
    return {"counts": np.array(counts, dtype=np.int64), "top": np.concatenate([c.top for c in columns])}


def _records(counts: NDArray[Any], top: NDArray[Any], n_columns: int) -> tuple[ColumnRecord, ...]:
    """Records in arrays of counts and of kept values, nothing taken on trust."""
    if counts.dtype != np.int64 or counts.shape != (n_columns, 3):
        raise ValueError(f"its tail record counts {counts.shape} {counts.dtype} for {n_columns} columns")
    kept = counts[:, 2]
    sound = (kept >= 1) & (kept <= MOST_KEPT + 1) & (counts[:, 1] >= 0) & (kept + counts[:, 1] <= counts[:, 0])
    if not sound.all() or top.dtype != np.float64 or top.shape != (int(kept.sum()),):
        raise ValueError("the counts of its tail record do not agree with each other")
    parts = np.split(top, np.cumsum(kept)[:-1])
    if not np.isfinite(top).all() or any((np.diff(part) > 0).any() or part[-1] <= 0 for part in parts):
        raise ValueError("the values of its tail record are not positive, finite and descending")
    rows: Sequence[list[int]] = counts.tolist()
    return tuple(ColumnRecord(n, zeros, part) for (n, zeros, _), part in zip(rows, parts, strict=True))
