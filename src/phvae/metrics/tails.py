"""How well a generated column has the tail of a law, or of real rows.

The truth comes first and is either rows or a law with ``sf``, ``isf`` and ``cvar`` on numpy arrays, such as those of
`phvae.datasets`. Quantiles of rows are those of `numpy.quantile`.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phvae.metrics.samples import FEWEST_ROWS, column, is_law, not_available, warn_if_discrete

__all__ = [
    "below_zero",
    "cvar_error",
    "quantile_error",
    "survival_curve",
    "tail_anderson_darling",
    "tail_distance",
    "tail_mass",
]

Array = NDArray[np.float64]


def tail_distance(real: Any, generated: ArrayLike, level: float = 0.95, *, fewest: int = FEWEST_ROWS) -> float:
    """Kolmogorov-Smirnov distance of the conditional laws beyond the true quantile ``x_level``.

    ``sup_{x >= x_level} |F_generated(x | X > x_level) - F_real(x | X > x_level)|``. It sees the shape of the tail, not
    its mass (`tail_mass`). With n generated rows beyond ``x_level`` the truth itself scores ``0.87 / sqrt(n)``.

    Args:
        real: Law or rows.
        generated: Rows.
        level: Of the threshold.
        fewest: Generated rows beyond the threshold needed for an answer; with fewer it is nan, with a warning.

    >>> from phvae.datasets import PAPER_LAWS
    >>> law = PAPER_LAWS["Pareto"]
    >>> round(tail_distance(law, law.sample(100_000, seed=1)), 2)
    0.01
    """
    name = "tail distance"
    threshold = _threshold(real, level)
    generated = column("generated", generated)
    tail = np.sort(generated[generated > threshold])
    n = len(tail)
    if n < fewest:
        return not_available(name, f"{n} of {len(generated):,} generated rows lie beyond {threshold:g}, under {fewest}")
    warn_if_discrete(name, "generated", tail)
    if is_law(real):
        true = 1 - np.asarray(real.sf(tail)) / (1 - level)
        return float(max(np.abs(true - np.arange(n) / n).max(), np.abs(true - np.arange(1, n + 1) / n).max()))
    rows = column("real", real)
    truth = np.sort(rows[rows > threshold])
    if len(truth) == 0:
        return not_available(name, f"no real row lies beyond {threshold:g}")
    warn_if_discrete(name, "real", truth)
    return float(np.abs(_ecdf(tail, truth, tail) - _ecdf(truth, truth, tail)).max())


def quantile_error(real: Any, generated: ArrayLike, level: float = 0.99, *, fewest: int = FEWEST_ROWS) -> float:
    """Relative error ``|Q_generated - Q_real| / Q_real`` of the quantile of a level.

    Args:
        real: Law or rows.
        generated: Rows.
        level: Of the quantile.
        fewest: Generated rows expected beyond the quantile needed for an answer; nan with a warning below.

    >>> quantile_error([1.0, 2.0, 3.0], [1.0, 3.0, 5.0], 0.5, fewest=0)
    0.5
    """
    true = _threshold(real, level)
    generated = column("generated", generated)
    if (reason := _too_few(len(generated), level, fewest)) is not None:
        return not_available("quantile error", reason)
    if true == 0:
        return not_available("quantile error", f"the true quantile of level {level:g} is 0, and the error is relative")
    return abs(float(np.quantile(generated, level)) - true) / abs(true)


def cvar_error(real: Any, generated: ArrayLike, level: float = 0.99, *, fewest: int = FEWEST_ROWS) -> float:
    """Relative error of the mean above each sample's own quantile, ``E[X | X > Q_level]``.

    Args:
        real: Law (with ``cvar``) or rows.
        generated: Rows.
        level: Of the quantiles.
        fewest: Generated rows beyond the quantile needed for an answer; nan with a warning below.

    >>> round(cvar_error([1.0, 2.0, 3.0], [1.0, 2.0, 6.0], 0.5, fewest=0), 12)
    1.0
    """
    generated = column("generated", generated)
    if (reason := _too_few(len(generated), level, fewest)) is not None:
        return not_available("CVaR error", reason)
    true = float(real.cvar(level)) if is_law(real) else _mean_beyond(column("real", real), level)
    if not math.isfinite(true):
        return not_available("CVaR error", "the true mean above the quantile does not exist")
    found = _mean_beyond(generated, level)
    if math.isnan(found):
        return not_available("CVaR error", f"no generated row lies above its own quantile of level {level:g}")
    return abs(found - true) / abs(true)


def tail_mass(real: Any, generated: ArrayLike, level: float = 0.95) -> float:
    """Share of generated rows beyond the true quantile of a level; ``1 - level`` is right.

    >>> tail_mass([0.0, 1.0, 2.0], [0.5, 1.5, 2.5, 3.5], level=0.5)
    0.75
    """
    return float((column("generated", generated) > _threshold(real, level)).mean())


def below_zero(generated: ArrayLike) -> float:
    """Share of generated rows below zero, where no claim, latency or count can be; over all columns.

    >>> below_zero([-1.0, 0.0, 2.0, 3.0])
    0.25
    """
    return float((np.asarray(generated, dtype=np.float64) < 0).mean())


def tail_anderson_darling(real: Any, generated: ArrayLike) -> float:
    """Anderson-Darling statistic weighted to the upper tail, ``n int (F_n - F)^2 / (1 - F) dF``.

    Against a law it is the statistic of Sinclair, Spurr and Ahmad (1990), whose mean under the truth is 1/2 for every
    n. Against m rows ``F`` is the pooled distribution in the weight, and the factor is ``nm / (n + m)``.

    >>> from phvae.datasets import PAPER_LAWS
    >>> law = PAPER_LAWS["Weibull"]
    >>> tail_anderson_darling(law, law.sample(10_000, seed=0)) < 2 < tail_anderson_darling(law, np.arange(1000) + 0.5)
    True
    """
    x = np.sort(column("generated", generated))
    n = len(x)
    if is_law(real):
        sf = np.asarray(real.sf(x))
        weights = 2 - (2 * np.arange(1, n + 1) - 1) / n
        with np.errstate(divide="ignore"):
            return float(n / 2 - 2 * (1 - sf).sum() - weights @ np.log(sf))
    y = np.sort(column("real", real))
    both = np.concatenate([x, y])
    at, counts = np.unique(both, return_counts=True)
    total = len(both)
    pooled = counts.cumsum() / total
    inside = pooled < 1
    squares = (_ecdf(x, at) - _ecdf(y, at))[inside] ** 2
    return float(n * len(y) / total * (squares / (1 - pooled[inside]) * counts[inside] / total).sum())


def survival_curve(x: ArrayLike) -> tuple[Array, Array]:
    """Distinct values and the share of rows at least as large: the points of a log-log tail plot.

    >>> survival_curve([3.0, 1.0, 1.0, 2.0])
    (array([1., 2., 3.]), array([1.  , 0.5 , 0.25]))
    """
    values = np.sort(column("x", x))
    distinct, first = np.unique(values, return_index=True)
    return distinct, (len(values) - first) / len(values)


def _threshold(real: Any, level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level={level:g} must lie between 0 and 1; 95% is 0.95")
    return float(real.isf(1 - level)) if is_law(real) else float(np.quantile(column("real", real), level))


def _too_few(n: int, level: float, fewest: int) -> str | None:
    # rounded: 1 - 0.99 is not quite a hundredth
    beyond = round(n * (1 - level), 6)
    return (
        f"{beyond:.0f} of {n:,} generated rows lie beyond their quantile, under {fewest}" if beyond < fewest else None
    )


def _mean_beyond(x: Array, level: float) -> float:
    beyond = x[x > np.quantile(x, level)]
    return float(beyond.mean()) if len(beyond) else math.nan


def _ecdf(rows: Array, *at: Array) -> Array:
    """Distribution function of sorted rows at the given points."""
    return np.searchsorted(rows, np.concatenate(at), side="right") / len(rows)
