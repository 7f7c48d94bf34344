"""The curves of one column's tail: survival, quantiles and probabilities against the data, mean excess, Hill."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from phvae.report.subject import Subject
from phvae.risk.estimate import CONFIDENCE

__all__ = ["hill", "tail_curves"]

Array = NDArray[np.float64]

# Points of the survival curve, thresholds of the mean excess, and data points drawn of each picture.
NODES, THRESHOLDS, DRAWN = 60, 20, 240
# Share of the data that counts as tail in the pictures that zoom in on it, and in how much it begins.
TAIL, BODY = 0.1, 0.5
# How far the survival curve goes on beyond the data: in exceedances expected, and in largest observations.
DEEPEST, FURTHEST = 0.02, 4.0


def tail_curves(subject: Subject, position: int, trust_point: float) -> dict[str, Any]:
    """Everything that is drawn of the tail of a column, as JSON values."""
    x = subject.column(position)
    positive = x[x > 0]
    law, tail, n = subject.truth[position], subject.tails[position], len(x)
    start = float(np.quantile(positive, 1 - BODY)) / 4
    # not further than the model thinks worth mentioning, but always a little beyond the data
    end = float(np.clip(subject.rough_isf(position, DEEPEST / n), 1.3 * x[0], FURTHEST * x[0]))
    grid = np.geomspace(start, end, NODES)
    answer = subject.ask_column(position, lambda losses: losses.sf(grid))
    survival = Survival(grid, [row["value"] for row in answer])
    ranks = _thinned(len(positive))
    curves: dict[str, Any] = {
        "column": subject.names[position],
        "n": n,
        "largest": float(x[0]),
        "trust_point": None if tail is None else trust_point,
        "threshold": None if tail is None else tail[0],
        "survival": {
            "x": grid,
            "model": survival.values,
            "low": [row["low"] for row in answer],
            "high": [row["high"] for row in answer],
            "data": {"x": positive[ranks - 1], "share": ranks / n},
            "band": _band(survival, n),
            "gpd": None if tail is None else _pareto_curve(subject, position, grid),
            "truth": None if law is None else law.sf(grid),
        },
        **_against_data(survival, positive, n),
        "mean_excess": _mean_excess(subject, position, positive),
        "hill": _hill_curves(survival, positive, n),
    }
    return curves


class Survival:
    """A survival curve between exact points: straight in logarithms of both axes.

    >>> curve = Survival(np.array([1.0, 10.0]), np.array([1.0, 0.01]))
    >>> round(float(curve.sf(100**0.5)), 6), round(float(curve.isf(0.1)), 6), round(float(curve.hill(1.0)), 6)
    (0.01, 3.162278, 0.5)
    """

    def __init__(self, x: Array, values: ArrayLike) -> None:
        self.x, self.values = x, np.asarray(values, dtype=np.float64)
        self._log_x, self._log_s = np.log(self.x), np.log(self.values)

    def sf(self, x: ArrayLike) -> Array:
        """Probability to exceed points within the curve."""
        return np.exp(np.interp(np.log(x), self._log_x, self._log_s))

    def isf(self, probability: ArrayLike) -> Array:
        """Points that are exceeded with a probability; NaN beyond the ends of the curve."""
        log_p = np.log(probability)
        inside = np.interp(-log_p, -self._log_s, self._log_x, left=np.nan, right=np.nan)
        return np.asarray(np.exp(inside))

    def hill(self, threshold: ArrayLike) -> Array:
        """``E[log(X / u) | X > u] = ∫_u^∞ S(x) / x dx / S(u)``; the last slope goes on beyond the curve."""
        step, slope = np.diff(self._log_x), np.diff(self._log_s) / np.diff(self._log_x)
        # on a straight piece S is a power of x: its integral against d log x in closed form
        pieces = np.where(slope < 0, self.values[1:] * np.expm1(-slope * step) / -np.where(slope < 0, slope, -1), 0.0)
        pieces = np.where(slope < 0, pieces, self.values[1:] * step)
        beyond = self.values[-1] / -slope[-1]
        total = np.append(np.cumsum(pieces[::-1])[::-1], 0.0) + beyond
        return np.asarray(np.interp(np.log(threshold), self._log_x, total) / self.sf(threshold))


def hill(x: Array, k: NDArray[np.int64]) -> Array:
    """Hill's estimate of one over the tail exponent from the ``k`` largest of values, largest first (Hill 1975).

    >>> hill(np.array([8.0, 4.0, 2.0, 1.0]), np.array([1, 3])).round(3).tolist()
    [0.693, 1.386]
    """
    logs = np.log(x)
    return np.asarray(np.cumsum(logs)[k - 1] / k - logs[k])


def _against_data(survival: Survival, x: Array, n: int) -> dict[str, Any]:
    """Q-Q and P-P of the tail: the i-th largest value beside the model's quantile and the model's probability."""
    most = min(max(int(TAIL * n), 10), len(x))
    ranks = _thinned(most)
    # the i-th largest of n uniform numbers has mean i / (n + 1)
    plotting = ranks / (n + 1)
    low, high = _rank_interval(ranks, n)
    inside = (x[ranks - 1] >= survival.x[0]) & (plotting <= survival.values[0])
    ranks, plotting, low, high = (part[inside] for part in (ranks, plotting, low, high))
    return {
        "qq": {
            "model": survival.isf(plotting),
            "data": x[ranks - 1],
            "low": survival.isf(high),
            "high": survival.isf(low),
        },
        "pp": {"expected": plotting, "model": survival.sf(x[ranks - 1]), "low": low, "high": high},
    }


def _band(survival: Survival, n: int) -> dict[str, Any]:
    """Where the i-th largest of ``n`` draws of the model lies with 95% probability, each on its own."""
    ranks = np.unique(np.geomspace(1, n * BODY, 40).astype(np.int64))[::-1]
    low, high = _rank_interval(ranks, n)
    left, right = survival.isf(high), survival.isf(low)
    kept = np.isfinite(left)
    return {"share": (ranks / n)[kept], "low": left[kept], "high": right[kept]}


def _rank_interval(ranks: NDArray[np.int64], n: int) -> tuple[Array, Array]:
    """Exceedance probabilities between which the i-th largest of ``n`` draws lies: a beta law."""
    law = stats.beta(ranks, n + 1 - ranks)
    return law.ppf((1 - CONFIDENCE) / 2), law.ppf((1 + CONFIDENCE) / 2)


def _pareto_curve(subject: Subject, position: int, grid: Array) -> dict[str, Any]:
    tail, record = subject.tails[position], subject.record.columns[position]
    assert tail is not None
    threshold, fit = tail
    beyond = np.concatenate([[threshold], grid[grid > threshold]])
    share = float((record.top > threshold).sum()) / record.n
    return {"x": beyond, "share": share * fit.law.log_sf(torch.as_tensor(beyond - threshold)).exp().numpy()}


def _mean_excess(subject: Subject, position: int, x: Array) -> dict[str, Any]:
    """Mean excess over thresholds up to the tenth largest value, with the error of the data's mean."""
    top = x[min(10, len(x) - 1)]
    low = float(np.quantile(x, 1 - BODY))
    at = np.linspace(low, max(float(top), low * 1.01), THRESHOLDS)
    law = subject.truth[position]
    excesses = [x[x > u] - u for u in at]
    mean = np.array([e.mean() if len(e) else np.nan for e in excesses])
    error = np.array([e.std(ddof=1) / len(e) ** 0.5 if len(e) > 1 else np.nan for e in excesses])
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    truth = None
    if law is not None:
        truth = [float(law.cvar(float(law.cdf(u)))) - u for u in at]
    model = subject.rough_mean_excess(position, at)
    return {
        "x": at,
        "model": model,
        "data": mean,
        "low": mean - reach * error,
        "high": mean + reach * error,
        "truth": truth,
    }


def _hill_curves(survival: Survival, x: Array, n: int) -> dict[str, Any]:
    """Hill's estimate by how many values it rests on, beside its value for the model at the same thresholds."""
    most = min(int(0.25 * n), len(x) - 1)
    k = np.unique(np.geomspace(min(10, max(1, most // 4)), most, 60).astype(np.int64))
    data = hill(x, k)
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) / np.sqrt(k)
    at = survival.isf(k / n)
    inside = np.isfinite(at)
    model = np.full(len(k), np.nan)
    model[inside] = survival.hill(at[inside])
    return {"k": k, "data": data, "low": data * (1 - reach), "high": data * (1 + reach), "model": model}


def _thinned(n: int) -> NDArray[np.int64]:
    """Ranks from 1 to ``n``: the first hundred, and then ever fewer."""
    first = np.arange(1, min(n, 100) + 1)
    if n <= 100:
        return first
    return np.unique(np.concatenate([first, np.geomspace(100, n, DRAWN - 100).astype(np.int64)]))
