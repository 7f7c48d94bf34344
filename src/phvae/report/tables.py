"""The figures of a report: risk measures, return levels and layers beside data, generalised Pareto law and truth."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from phvae.report.subject import Rows, Subject, estimate
from phvae.risk.estimate import CONFIDENCE

__all__ = ["layer_rows", "return_rows", "risk_rows", "tail_mean", "value_at_risk"]

Array = NDArray[np.float64]


def risk_rows(subject: Subject, levels: Sequence[float]) -> Rows:
    """VaR and CVaR of every column and level: of the model, the data, a generalised Pareto law, and the truth."""
    var, cvar = subject.ask(lambda losses: losses.var(levels)), subject.ask(lambda losses: losses.cvar(levels))
    rows = []
    for i, (at, beyond) in enumerate(zip(var, cvar, strict=True)):
        position, level = i // len(levels), float(at["level"])
        law = subject.truth[position]
        rows.append(
            {
                "column": subject.names[position],
                "level": level,
                "var": estimate(at),
                "cvar": estimate(beyond),
                "data": _of_data(subject.column(position), level),
                "gpd": _of_tail(subject, position, level),
                "truth": None if law is None else {"var": float(law.isf(1 - level)), "cvar": float(law.cvar(level))},
            }
        )
    return rows


def return_rows(subject: Subject, periods: Sequence[float], events_per_period: float) -> Rows:
    """Levels exceeded once in so many periods on average, by model, data and truth."""
    rows = []
    for i, row in enumerate(subject.ask(lambda losses: losses.return_level(periods, events_per_period))):
        position, period = i // len(periods), float(row["periods"])
        level = 1 - 1 / (period * events_per_period)
        law = subject.truth[position]
        rows.append(
            {
                "column": subject.names[position],
                "period": period,
                "level": level,
                **estimate(row),
                "data": value_at_risk(subject.column(position), level),
                "truth": None if law is None else float(law.isf(1 - level)),
            }
        )
    return rows


def layer_rows(subject: Subject, layers: Sequence[tuple[float, float]], events_per_period: float | None) -> Rows:
    """Expected loss, standard deviation, frequency and return period of layers ``(limit, attachment)``."""
    limits, attachments = [layer[0] for layer in layers], [layer[1] for layer in layers]
    answer = subject.ask(lambda losses: losses.layer(limits, attachments, events_per_period))
    rows: Rows = []
    for position, name in enumerate(subject.names):
        own = answer[4 * len(layers) * position : 4 * len(layers) * (position + 1)]
        x = subject.column(position)
        for i, (limit, attachment) in enumerate(layers):
            paid = np.minimum(np.maximum(x - attachment, 0.0), limit)
            measures = {str(row["measure"]): estimate(row) for row in own[i :: len(layers)]}
            loss = float(paid.mean()) * (1.0 if events_per_period is None else events_per_period)
            rows.append({"column": name, "limit": limit, "attachment": attachment, **measures, "data": loss})
    return rows


def value_at_risk(x: Array, level: float) -> float | None:
    """Quantile of values, ``numpy``'s; None where less than one value is expected beyond it.

    >>> value_at_risk(np.arange(101.0), 0.9), value_at_risk(np.arange(10.0), 0.99)
    (90.0, None)
    """
    # rounded: 1 - 0.99 is not quite a hundredth
    return float(np.quantile(x, level)) if round(len(x) * (1 - level), 9) >= 1 else None


def tail_mean(x: Array, level: float) -> float | None:
    """Mean of the worst share ``1 - level`` of values, largest first; the last of them counts in part.

    >>> tail_mean(np.array([4.0, 2.0, 1.0, 1.0]), 0.625)
    3.3333333333333335
    """
    count = round(len(x) * (1 - level), 9)
    if count < 1:
        return None
    whole = math.floor(count)
    part = (count - whole) * x[whole] if whole < len(x) else 0.0
    return float((x[:whole].sum() + part) / count)


def _of_data(x: Array, level: float) -> dict[str, Any]:
    """Quantile of the data with the interval that order statistics give, mean beyond it, and how many are beyond."""
    n, var = len(x), value_at_risk(x, level)
    # between which ranks, counted from the largest, the quantile lies with this confidence, whatever the law
    few, many = (int(stats.binom.ppf(p, n, 1 - level)) for p in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return {
        "var": var,
        "low": float(x[many]) if var is not None and many < n else None,
        "high": float(x[few - 1]) if var is not None and few >= 1 else None,
        "cvar": tail_mean(x, level),
        "n_beyond": 0 if var is None else int((x > var).sum()),
    }


def _of_tail(subject: Subject, position: int, level: float) -> dict[str, Any] | None:
    """Peaks over threshold: quantile with its likelihood interval and mean beyond; None below the threshold."""
    tail, record = subject.tails[position], subject.record.columns[position]
    if tail is None:
        return None
    threshold, fit = tail
    share = float((record.top > threshold).sum()) / record.n
    # rounded: 1 - 0.9 is a little less than the tenth of the rows beyond the threshold
    if round(1 - level, 12) >= share:
        return None
    probability = (1 - level) / share
    excess = fit.quantile(probability)
    low, high = fit.quantile_interval(probability)
    # the mean beyond a quantile of a generalised Pareto law is linear in it
    beyond = (fit.scale + fit.shape * excess) / (1 - fit.shape) if fit.shape < 1 else math.inf
    return {
        "var": threshold + excess,
        "low": threshold + low,
        "high": threshold + high,
        "cvar": threshold + excess + beyond,
    }
