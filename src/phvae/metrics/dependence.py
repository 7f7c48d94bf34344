"""Whether generated columns depend on one another as real ones do: correlation, ranks, and extremes together."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phvae.metrics.samples import not_available, table

__all__ = [
    "coexceedance",
    "coexceedance_error",
    "correlation_error",
    "kendall_error",
    "kendall_tau",
    "log_correlation",
]

Array = NDArray[np.float64]


def log_correlation(x: ArrayLike) -> Array:
    """Correlation matrix of ``log(1 + x)``, which depends on the unit of x.

    >>> log_correlation([[0.0, 0.0], [1.0, 1.0], [3.0, 3.0]]).round(12).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    values = table("x", x)
    if (values <= -1).any():
        raise ValueError(
            "x has values of -1 or less, where log(1 + x) does not exist; remove those rows and count them"
        )
    return np.asarray(np.corrcoef(np.log1p(values).T))


def correlation_error(real: ArrayLike, generated: ArrayLike) -> float:
    """Frobenius norm of the difference of the correlation matrices of ``log(1 + x)``.

    Rows of a generator that can be -1 or less have no ``log(1 + x)``: they are taken as 0, the nearest value a
    non-negative column can have, in the generated table alone.

    >>> round(correlation_error([[0.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]), 12) == round(8**0.5, 12)
    True
    """
    rows, positive = table("real", real), np.maximum(table("generated", generated), 0.0)
    for name, values in (("real", rows), ("generated", positive)):
        if (constant := np.ptp(values, axis=0) == 0).any():
            reason = f"column {int(constant.argmax())} of the {name} rows is constant"
            return not_available("correlation error", reason)
    return float(np.linalg.norm(log_correlation(rows) - log_correlation(positive)))


def kendall_tau(x: ArrayLike) -> Array:
    """Kendall's tau-b of every pair of columns, ``(D, D)``; n log n time, ties counted.

    >>> kendall_tau([[1.0, 10.0], [2.0, 30.0], [3.0, 20.0]]).round(6).tolist()
    [[1.0, 0.333333], [0.333333, 1.0]]
    """
    from phvae.metrics.inversions import inversions

    values = table("x", x)
    n, d = values.shape
    ranks = np.empty((d, n), dtype=np.int64)
    tied = np.empty(d)
    for j in range(d):
        _, inverse, counts = np.unique(values[:, j], return_inverse=True, return_counts=True)
        ranks[j], tied[j] = inverse, _pairs(counts)
    every = n * (n - 1) / 2
    tau = np.eye(d)
    for i, j in _below(d):
        # one key sorts by the first column, and by the second where the first is tied
        key = np.sort(ranks[i] * n + ranks[j])
        both = _pairs(np.diff(np.flatnonzero(np.diff(key, prepend=-1, append=-1)))) if tied[i] and tied[j] else 0.0
        agreement = every - tied[i] - tied[j] + both - 2 * inversions(key % n)
        untied = (every - tied[i]) * (every - tied[j])
        tau[i, j] = tau[j, i] = agreement / untied**0.5 if untied > 0 else np.nan
    return tau


def kendall_error(real: ArrayLike, generated: ArrayLike) -> float:
    """Mean absolute difference of Kendall's tau over the pairs of columns.

    >>> kendall_error([[1.0, 1.0], [2.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]])
    2.0
    """
    error = _mean_difference(kendall_tau(real), kendall_tau(generated))
    return not_available("Kendall error", "a column is constant") if np.isnan(error) else error


def coexceedance(x: ArrayLike, thresholds: ArrayLike) -> Array:
    """Share of rows in which two columns both exceed their thresholds, ``(D, D)``; the margins on the diagonal.

    >>> coexceedance([[1.0, 1.0], [3.0, 3.0], [3.0, 1.0], [1.0, 1.0]], [2.0, 2.0]).tolist()
    [[0.5, 0.25], [0.25, 0.25]]
    """
    values = table("x", x)
    beyond = (values > np.asarray(thresholds)).astype(np.float64)
    return np.asarray(beyond.T @ beyond / len(values))


def coexceedance_error(real: ArrayLike, generated: ArrayLike, level: float = 0.99) -> float:
    """Mean absolute difference, over pairs, of the probability that both columns exceed the real quantiles of a level.

    >>> rows = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]])
    >>> coexceedance_error(rows, rows[:, ::-1], level=0.5), coexceedance_error(rows, rows * 0, level=0.5)
    (0.0, 0.5)
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level:g} must lie between 0 and 1; 99% is 0.99")
    thresholds = np.quantile(table("real", real), level, axis=0)
    return _mean_difference(coexceedance(real, thresholds), coexceedance(generated, thresholds))


def _below(d: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(d) for j in range(i))


def _mean_difference(real: Array, generated: Array) -> float:
    if real.shape != generated.shape:
        raise ValueError(f"real has {len(real)} columns and generated {len(generated)}; give the same columns")
    below = np.tril_indices(len(real), -1)
    return float(np.abs(real - generated)[below].mean())


def _pairs(counts: NDArray[np.integer]) -> float:
    sizes = counts.astype(np.float64)
    return float((sizes * (sizes - 1)).sum() / 2)
