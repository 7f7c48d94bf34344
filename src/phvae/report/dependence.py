"""How columns hang together, in the data and in the model: rank correlation, and extremes that come together."""

import math
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from phvae.metrics.dependence import kendall_tau
from phvae.report.diversification import diversification
from phvae.report.subject import Rows, Subject, estimate, rows_of
from phvae.risk.estimate import CONFIDENCE

__all__ = ["dependence"]

Array = NDArray[np.float64]

# Levels of the chi curve, those of the table of co-exceedances, and the most pairs that are drawn.
CHI_LEVELS = (0.8, 0.9, 0.95, 0.98, 0.99)
TABLE_LEVELS = (0.95, 0.99)
MOST_PAIRS = 6


def dependence(subject: Subject) -> dict[str, Any] | None:
    """Kendall's tau of all pairs, and co-exceedance of the most dependent ones; None for a single column.

    Data are the rows of which every cell is a value.
    """
    if len(subject.names) < 2:
        return None
    values = subject.rows.complete()
    observed = _untied_tau(values) if len(values) > 1 else np.full((len(subject.names),) * 2, np.nan)
    model = rows_of(subject.model.kendall_tau(rtol=subject.drawn_rtol))
    pairs = list(combinations(range(len(subject.names)), 2))
    kendall: Rows = [
        {"column": subject.names[i], "other": subject.names[j], "data": float(observed[i, j]), "model": estimate(row)}
        for (i, j), row in zip(pairs, model, strict=True)
    ]
    # where the data have none the model says which pairs are the most dependent
    strength = {
        pair: abs(row["model"]["value"] if np.isnan(observed[pair]) else observed[pair])
        for pair, row in zip(pairs, kendall, strict=True)
    }
    drawn = sorted(sorted(pairs, key=lambda pair: -strength[pair])[:MOST_PAIRS])
    # without data all levels of the model
    fewest = 10 if len(values) else 0
    levels = sorted(level for level in CHI_LEVELS if len(values) * (1 - level) >= fewest) or [CHI_LEVELS[0]]
    places = {(side.position, side.minus) for side in subject.sides}
    chi = [
        row
        for pair in drawn
        for minus in (False, True)
        if {(j, minus) for j in pair} <= places
        for row in _chi(subject, pair, minus, values, levels)
    ]
    return {
        "columns": subject.names,
        "n": len(values),
        "n_rows": subject.rows.n_rows,
        "bounded": bool(subject.rows.bounded.any()),
        "kendall": kendall,
        "n_pairs": len(pairs),
        "n_drawn": len(drawn),
        "chi": chi,
        "sum": diversification(subject, values),
    }


def _untied_tau(values: Array) -> Array:
    """Kendall's tau with ties, such as two exact zeros, counted as neither: what the model's tau is of ties, too."""
    # tau-b divides by the pairs that are not tied, tau-a by all of them
    shares = []
    for column in values.T:
        counts = np.unique(column, return_counts=True)[1].astype(np.float64)
        shares.append(1 - (counts * (counts - 1)).sum() / (len(values) * (len(values) - 1.0)))
    return np.asarray(kendall_tau(values) * np.sqrt(np.outer(shares, shares)))


def _chi(subject: Subject, pair: tuple[int, int], minus: bool, values: Array, levels: list[float]) -> Rows:
    """``P(both exceed their quantile) / (1 - level)`` in data and model, of the columns or of minus them."""
    tail = "lower" if minus else "upper"
    answer = rows_of(subject.model.coexceedance(levels, list(pair), tail=tail, rtol=subject.drawn_rtol))
    x = -values[:, pair] if minus else values[:, pair]
    rows, n = [], len(x)
    for row in answer:
        level = float(row["level"])
        together = int((x > np.quantile(x, level, axis=0)).all(1).sum()) if n else 0
        # Clopper and Pearson: what shares of rows are not at odds with this count
        reach = (1 - CONFIDENCE) / 2
        low = float(stats.beta.ppf(reach, together, n - together + 1)) if together else 0.0
        high = float(stats.beta.ppf(1 - reach, together + 1, n - together)) if together < n else 1.0
        if not n:
            low = high = math.nan
        rows.append(
            {
                "column": str(row["column"]),
                "other": str(row["other"]),
                "level": level,
                "joint": estimate(row),
                "chi": float(row["value"]) / (1 - level),
                "expected": n * float(row["value"]) if n else None,
                "observed": together if n else None,
                "data": together / n / (1 - level) if n else math.nan,
                "low": low / (1 - level),
                "high": min(high / (1 - level), 1.0),
                "in_table": level in TABLE_LEVELS or level == max(levels),
            }
        )
    return rows
