"""Weights of rows: how many rows each of them stands for."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from phvae.tables import DataError

__all__ = ["copies", "distinct_rows", "mean", "median", "repeated", "sample_weights"]

Array = NDArray[np.float64]

# Rows up to which equal ones are looked for: more do not fit into a batch.
MERGED_UP_TO = 2**16


def sample_weights(given: Any, n_rows: int) -> Array | None:
    """Weights as float64, shape ``(n,)``, or None where none are given.

    >>> sample_weights([1, 2.5], 2)
    array([1. , 2.5])
    """
    if given is None:
        return None
    try:
        weights = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"sample_weight = {given!r:.60} are no numbers; give one weight per row") from None
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weights.shape}; give one weight per row, shape ({n_rows},)")
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        what = "missing (NaN)" if np.isnan(weights[row]) else f"{weights[row]:g}"
        raise DataError("sample_weight", row, f"is {what}; weights count rows: give finite numbers >= 0")
    total = float(weights.sum())
    if not total:
        raise ValueError("sample_weight is zero in every row; give at least two rows a weight above zero")
    if not 2 <= total < np.inf:
        raise ValueError(
            f"sample_weight sums to {total:.4g}, as if there were so many rows; a weight counts rows, "
            "so divide relative weights by their mean"
        )
    return weights


def distinct_rows(rows: Array, weights: Array | None, batch_size: int) -> tuple[NDArray[np.int64], Array | None]:
    """Numbers of the rows to train on, and their weights.

    Rows of weight zero are left out. Where the distinct rows fit into one batch, equal ones become one: copies of a row
    then share the noise of a step, so that a weight and as many copies are the same fit.

    >>> distinct_rows(np.array([[3.0], [2.0], [3.0]]), None, 32)
    (array([1, 0]), array([1., 2.]))
    """
    used = np.arange(len(rows)) if weights is None else np.flatnonzero(weights)
    mass = None if weights is None else weights[used]
    if len(used) > MERGED_UP_TO:
        return used, mass
    # as bytes: an order that any row has, also one with gaps
    plain = np.ascontiguousarray(rows[used] + 0.0)
    keys = plain.view(np.dtype((np.void, plain.itemsize * plain.shape[1])))[:, 0]
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > batch_size or (mass is None and len(first) == len(used)):
        return used, mass
    return used[first], np.bincount(place.reshape(-1), weights=mass).astype(np.float64)


def mean(values: Array, weights: Array | None) -> Array:
    """Mean over rows of values of shape ``(n, ...)``."""
    return np.asarray(np.average(values, axis=0, weights=weights))


def median(values: Array, weights: Array | None) -> float:
    """The middle value, or between the two middle ones; a weight counts a value so many times.

    >>> median(np.array([3.0, 1.0, 2.0]), np.array([2.0, 1.0, 1.0]))
    2.5
    """
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    counted = np.cumsum(weights[order])
    middle = counted[-1] / 2
    low, high = (values[order[np.searchsorted(counted, middle, side=side)]] for side in ("left", "right"))
    return float(low / 2 + high / 2)


def copies(weights: Array) -> NDArray[np.int64]:
    """Whole numbers of copies whose running sums are those of weights, rounded.

    >>> copies(np.array([1.0, 2.0, 0.4, 0.4])).tolist()
    [1, 2, 0, 1]
    """
    until: NDArray[np.int64] = np.rint(np.cumsum(weights)).astype(np.int64)
    times: NDArray[np.int64] = until - np.concatenate([np.zeros(1, np.int64), until[:-1]])
    return times


def repeated(x: Array, weights: Array) -> Array:
    """Values, largest first, as often as their weights say, the largest one at least once.

    >>> repeated(np.array([1.0, 5.0, 3.0]), np.array([2.0, 0.4, 1.0])).tolist()
    [5.0, 3.0, 1.0, 1.0]
    """
    order = np.argsort(-x, kind="stable")
    order = order[weights[order] > 0]
    times = copies(weights[order])
    times[:1] = np.maximum(times[:1], 1)
    return np.repeat(x[order], times)
