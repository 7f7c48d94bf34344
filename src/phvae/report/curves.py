"""The curves of one column's tail: survival, quantiles and probabilities against the data, mean excess, Hill."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from phvae.report.empirical import Empirical
from phvae.report.subject import Subject
from phvae.risk.estimate import CONFIDENCE

__all__ = ["tail_curves"]

Array = NDArray[np.float64]

# Points of the survival curve, and thresholds of the mean excess.
NODES, THRESHOLDS = 60, 20
# Share of the data that counts as tail in the pictures that zoom in on it, fewest values of it, and in how much it
# begins. Shares are off by less than the last number.
TAIL, FEWEST, BODY, ROUNDING = 0.1, 10, 0.5, 1e-9
# How far the survival curve goes on beyond the data: in exceedances expected, and in largest observations.
DEEPEST, FURTHEST = 0.02, 4.0


def tail_curves(subject: Subject, place: int, trust_point: float) -> dict[str, Any]:
    """Everything that is drawn of one tail, as JSON values."""
    data, law, tail = subject.data[place], subject.truth[place], subject.tails[place]
    largest, n = float(data.seen[0]), data.n
    start = float(np.quantile(data.seen, 1 - BODY)) / 4
    # not further than the model thinks worth mentioning, but always a little beyond the data
    end = float(np.clip(subject.rough_isf(place, DEEPEST / n), 1.3 * largest, FURTHEST * largest))
    grid = np.geomspace(start, end, NODES)
    answer = subject.ask_side(place, lambda losses: losses.sf(grid))
    survival = Survival(grid, [row["value"] for row in answer])
    x, share = data.points()
    excess = _mean_excess(subject, place)
    curves: dict[str, Any] = {
        "column": subject.sides[place].name,
        "n": n,
        "largest": largest,
        "open": bool(np.isnan(excess["data"]).all()),
        "trust_point": None if tail is None else trust_point,
        "threshold": None if tail is None else tail[0],
        "survival": {
            "x": grid,
            "model": survival.values,
            "low": [row["low"] for row in answer],
            "high": [row["high"] for row in answer],
            "data": {"x": x, "share": share},
            "band": _band(survival, data),
            "gpd": None if tail is None else _pareto_curve(subject, place, grid),
            "truth": None if law is None else law.sf(grid),
        },
        **_against_data(survival, data),
        "mean_excess": excess,
        "hill": _hill_curves(survival, data),
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


def _against_data(survival: Survival, data: Empirical) -> dict[str, Any]:
    """Q-Q and P-P of the tail: the i-th largest value beside the model's quantile and the model's probability."""
    x, share = data.points()
    size = data.size(share)
    # the i-th largest of n uniform numbers has mean i / (n + 1)
    plotting = share * size / (size + 1)
    low, high = data.interval(share)
    tail = (share <= TAIL * (1 + ROUNDING)) | (np.arange(len(x)) < FEWEST)
    inside = tail & (x >= survival.x[0]) & (plotting <= survival.values[0])
    x, plotting, low, high = (part[inside] for part in (x, plotting, low, high))
    return {
        "qq": {"model": survival.isf(plotting), "data": x, "low": survival.isf(high), "high": survival.isf(low)},
        "pp": {"expected": plotting, "model": survival.sf(x), "low": low, "high": high},
    }


def _band(survival: Survival, data: Empirical) -> dict[str, Any]:
    """Where the i-th largest of the draws of the model lies with 95% probability, each on its own."""
    share = np.unique(np.geomspace(1, data.n * BODY, 40).astype(np.int64))[::-1] / data.n
    low, high = data.interval(share)
    left, right = survival.isf(high), survival.isf(low)
    kept = np.isfinite(left)
    return {"share": share[kept], "low": left[kept], "high": right[kept]}


def _pareto_curve(subject: Subject, place: int, grid: Array) -> dict[str, Any]:
    tail, record = subject.tails[place], subject.record(subject.sides[place])
    assert tail is not None
    threshold, fit = tail
    beyond = np.concatenate([[threshold], grid[grid > threshold]])
    share = float((record.top > threshold).sum()) / record.n
    return {"x": beyond, "share": share * fit.law.log_sf(torch.as_tensor(beyond - threshold)).exp().numpy()}


def _mean_excess(subject: Subject, place: int) -> dict[str, Any]:
    """Mean excess over thresholds up to the tenth largest value, with the error of the data's mean."""
    data, law = subject.data[place], subject.truth[place]
    top = data.seen[min(10, len(data.seen) - 1)]
    low = float(np.quantile(data.seen, 1 - BODY))
    at = np.linspace(low, max(float(top), low * 1.01), THRESHOLDS)
    mean, error = data.mean_excess(at)
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    truth = None
    if law is not None:
        truth = [float(law.cvar(float(law.cdf(u)))) - u for u in at]
    return {
        "x": at,
        "model": subject.rough_mean_excess(place, at),
        "data": mean,
        "low": mean - reach * error,
        "high": mean + reach * error,
        "truth": truth,
    }


def _hill_curves(survival: Survival, data: Empirical) -> dict[str, Any]:
    """Hill's estimate by how many values it rests on, beside its value for the model at the same thresholds."""
    k, estimates, share = data.hill()
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) / np.sqrt(k)
    at = survival.isf(share)
    inside = np.isfinite(at)
    model = np.full(len(k), np.nan)
    model[inside] = survival.hill(at[inside])
    return {"k": k, "data": estimates, "low": estimates * (1 - reach), "high": estimates * (1 + reach), "model": model}
