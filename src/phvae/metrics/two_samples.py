"""Whole tables against one another: energy distance, a classifier that tries to tell them apart, copied rows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phvae.metrics.samples import column, table
from phvae.metrics.scores import energy_distance_1d

__all__ = ["ClassifierTest", "Memorisation", "classifier_test", "energy_distance", "memorisation"]

Array = NDArray[np.float64]


def energy_distance(real: ArrayLike, generated: ArrayLike, *, rows: int = 4000, random_state: Any = 0) -> float:
    """Energy distance ``2 E|X - Y| - E|X - X'| - E|Y - Y'|`` (squared; 0 for equal laws alone).

    One column takes n log n time and every row. Several columns are compared by Euclidean distance, on random subsets
    of ``rows``: bring them to one unit first, and take logs where single extremes should not decide. The expectations
    run over all pairs of a sample, so equal laws score about ``E|X - X'| (1/n + 1/m)``, not 0.

    Args:
        real: Rows.
        generated: Rows.
        rows: Largest number of rows compared, of several columns.
        random_state: Seed of the subsets.

    >>> energy_distance([0.0, 1.0], [0.0, 1.0]), energy_distance([0.0], [3.0])
    (0.0, 6.0)
    """
    if np.ndim(real) == 1 or np.shape(real)[1] == 1:
        return energy_distance_1d(column("real", real), column("generated", generated))
    from scipy.spatial.distance import cdist

    rng = np.random.default_rng(random_state)
    x, y = _same_columns(real, generated)
    x, y = _subset(x, rows, rng), _subset(y, rows, rng)
    return float(2 * cdist(x, y).mean() - cdist(x, x).mean() - cdist(y, y).mean())


class ClassifierTest(NamedTuple):
    """Result of `classifier_test`: ``auc`` 0.5 where nothing tells the tables apart, its error, and the p-value."""

    auc: float
    standard_error: float
    p_value: float


def classifier_test(
    real: ArrayLike, generated: ArrayLike, *, rows: int = 10_000, random_state: Any = 0
) -> ClassifierTest:
    """Train boosted trees to tell generated rows from real ones, and say how well they do on rows they have not seen.

    ``auc`` is the probability that a generated row looks more generated than a real one. Under equal laws its standard
    error is ``sqrt((n + m + 1) / (12 n m))`` for n and m held-out rows, whatever the classifier; the p-value is for it
    being above 1/2 (Lopez-Paz and Oquab 2017, with ranks in place of accuracy).

    Args:
        real: Rows; half of them are held out. Do not give the rows a model was trained on: copies of them win.
        generated: Rows.
        rows: Largest number of rows taken of each table.
        random_state: Seed of the split and of the classifier.

    >>> x = np.random.default_rng(0).exponential(size=(400, 2))
    >>> classifier_test(x[:200], x[200:]).p_value > 0.001, classifier_test(x[:200], x[200:] + 3).auc
    (True, 1.0)
    """
    from scipy import stats
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng(random_state)
    x, y = _same_columns(real, generated)
    n = min(len(x), len(y), rows) // 2
    if n < 10:
        raise ValueError(f"real has {len(x)} rows and generated {len(y)}; give 20 or more of each")
    x, y = _subset(x, 2 * n, rng), _subset(y, 2 * n, rng)
    learn, check = np.concatenate([x[:n], y[:n]]), np.concatenate([x[n:], y[n:]])
    generated_here = np.repeat([False, True], n)
    trees = HistGradientBoostingClassifier(random_state=int(rng.integers(2**31)), early_stopping=False)
    scores = trees.fit(learn, generated_here).decision_function(check)
    ranks = stats.rankdata(scores)
    auc = (ranks[generated_here].sum() / n - (n + 1) / 2) / n
    error = ((2 * n + 1) / (12 * n * n)) ** 0.5
    return ClassifierTest(float(auc), float(error), float(stats.norm.sf((auc - 0.5) / error)))


class Memorisation(NamedTuple):
    """Result of `memorisation`: share of generated rows nearer to training rows, its error, and share of copies."""

    nearer_to_training: float
    standard_error: float
    copies: float


def memorisation(
    train: ArrayLike, held_out: ArrayLike, generated: ArrayLike, *, rows: int = 10_000, random_state: Any = 0
) -> Memorisation:
    """Whether generated rows lie nearer to the rows a model was trained on than to rows it never saw.

    Equally many training and held-out rows are taken, so a model that has learned the law scores 1/2 and one that
    repeats its training rows scores 1. Distances are Euclidean over ``log(1 + x / median)`` per column; ``copies`` are
    generated rows that equal a training row in every column and are no row of the held-out ones.

    Args:
        train: Rows the model was trained on.
        held_out: Rows of the same source it never saw.
        generated: Rows.
        rows: Largest number of rows taken of each table.
        random_state: Seed of the subsets.

    >>> x = np.random.default_rng(0).exponential(size=(600, 2))
    >>> memorisation(x[:300], x[300:], x[:300]).nearer_to_training, memorisation(x[:300], x[300:], x[:300]).copies
    (1.0, 1.0)
    """
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(random_state)
    x, y = (np.atleast_2d(np.asarray(t, dtype=np.float64).T).T for t in (train, held_out))
    g = np.atleast_2d(np.asarray(generated, dtype=np.float64).T).T
    if not x.shape[1] == y.shape[1] == g.shape[1]:
        raise ValueError(f"train, held_out and generated have {x.shape[1]}, {y.shape[1]} and {g.shape[1]} columns")
    n = min(len(x), len(y), rows)
    x, y, g = _subset(x, n, rng), _subset(y, n, rng), _subset(g, rows, rng)
    scale = [np.median(column[column != 0]) if column.any() else 1.0 for column in np.abs(x).T]
    x, y, g = (np.sign(t) * np.log1p(np.abs(t) / scale) for t in (x, y, g))
    to_train, to_held_out = cKDTree(x).query(g)[0], cKDTree(y).query(g)[0]
    nearer = np.where(to_train == to_held_out, 0.5, to_train < to_held_out)
    copies = (to_train == 0) & (to_held_out > 0)
    # both trees are random: the error is that of n training rows as much as of the generated ones
    error = float(np.sqrt(nearer.var() / len(g) + nearer.var() / n))
    return Memorisation(float(nearer.mean()), error, float(copies.mean()))


def _same_columns(real: ArrayLike, generated: ArrayLike) -> tuple[Array, Array]:
    if np.ndim(real) == 1 or np.shape(real)[1] == 1:
        return column("real", real)[:, None], column("generated", generated)[:, None]
    x, y = table("real", real), table("generated", generated)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"real has {x.shape[1]} columns and generated {y.shape[1]}; give the same columns")
    return x, y


def _subset(x: Array, rows: int, rng: np.random.Generator) -> Array:
    return x[rng.permutation(len(x))[:rows]]
