"""The figures of a report: risk measures, return levels and layers beside data, generalised Pareto law and truth."""

import math
from collections.abc import Sequence
from typing import Any

from phvae.report.subject import Rows, Subject, estimate

__all__ = ["layer_rows", "return_rows", "risk_rows"]


def risk_rows(subject: Subject, levels: Sequence[float]) -> Rows:
    """VaR and CVaR of every column and level: of the model, the data, a generalised Pareto law, and the truth."""
    var, cvar = subject.ask(lambda losses: losses.var(levels)), subject.ask(lambda losses: losses.cvar(levels))
    rows = []
    for i, (at, beyond) in enumerate(zip(var, cvar, strict=True)):
        place, level = i // len(levels), float(at["level"])
        law = subject.truth[place]
        rows.append(
            {
                "column": subject.sides[place].name,
                "level": level,
                "var": estimate(at),
                "cvar": estimate(beyond),
                "data": subject.data[place].at_risk(level),
                "gpd": _of_tail(subject, place, level),
                "truth": None if law is None else {"var": float(law.isf(1 - level)), "cvar": float(law.cvar(level))},
            }
        )
    return rows


def return_rows(subject: Subject, periods: Sequence[float], events_per_period: float) -> Rows:
    """Levels exceeded once in so many periods on average, by model, data and truth."""
    rows = []
    for i, row in enumerate(subject.ask(lambda losses: losses.return_level(periods, events_per_period))):
        place, period = i // len(periods), float(row["periods"])
        level = 1 - 1 / (period * events_per_period)
        law = subject.truth[place]
        rows.append(
            {
                "column": subject.sides[place].name,
                "period": period,
                "level": level,
                **estimate(row),
                "data": subject.data[place].quantile(level),
                "truth": None if law is None else float(law.isf(1 - level)),
            }
        )
    return rows


def layer_rows(subject: Subject, layers: Sequence[tuple[float, float]], events_per_period: float | None) -> Rows:
    """Expected loss, standard deviation, frequency and return period of layers ``(limit, attachment)``."""
    limits, attachments = [layer[0] for layer in layers], [layer[1] for layer in layers]
    answer = subject.ask(lambda losses: losses.layer(limits, attachments, events_per_period))
    rows: Rows = []
    times = 1.0 if events_per_period is None else events_per_period
    for place, side in enumerate(subject.sides):
        own = answer[4 * len(layers) * place : 4 * len(layers) * (place + 1)]
        for i, (limit, attachment) in enumerate(layers):
            paid = subject.data[place].layer(limit, attachment)
            measures = {str(row["measure"]): estimate(row) for row in own[i :: len(layers)]}
            loss = None if paid is None else paid * times
            rows.append({"column": side.name, "limit": limit, "attachment": attachment, **measures, "data": loss})
    return rows


def _of_tail(subject: Subject, place: int, level: float) -> dict[str, Any] | None:
    """Peaks over threshold: quantile with its likelihood interval and mean beyond; None below the threshold."""
    tail, record = subject.tails[place], subject.record(subject.sides[place])
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
