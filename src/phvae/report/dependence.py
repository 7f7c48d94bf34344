"""How columns hang together, in the data and in the model: rank correlation, and extremes that come together."""

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
    """Kendall's tau of all pairs, and co-exceedance of the most dependent ones; None for a single column."""
    if len(subject.names) < 2:
        return None
    values = subject.values[~np.isnan(subject.values).any(1)]
    observed = _untied_tau(values)
    model = rows_of(subject.model.kendall_tau(rtol=subject.drawn_rtol))
    pairs = list(combinations(range(len(subject.names)), 2))
    kendall = [
        {**_names(subject, pair), "data": float(observed[pair]), "model": estimate(row)}
        for pair, row in zip(pairs, model, strict=True)
    ]
    drawn = sorted(sorted(pairs, key=lambda pair: -abs(observed[pair]))[:MOST_PAIRS])
    levels = sorted(level for level in CHI_LEVELS if len(values) * (1 - level) >= 10) or [CHI_LEVELS[0]]
    chi = [row for pair in drawn for row in _chi(subject, pair, values, levels)]
    return {
        "columns": subject.names,
        "kendall": kendall,
        "n_pairs": len(pairs),
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


def _chi(subject: Subject, pair: tuple[int, int], values: Array, levels: list[float]) -> Rows:
    """``P(both exceed their quantile) / (1 - level)`` in data and model."""
    answer = rows_of(subject.model.coexceedance(levels, list(pair), rtol=subject.drawn_rtol))
    rows, n = [], len(values)
    for row in answer:
        level = float(row["level"])
        together = int((values[:, pair] > np.quantile(values[:, pair], level, axis=0)).all(1).sum())
        # Clopper and Pearson: what shares of rows are not at odds with this count
        tail = (1 - CONFIDENCE) / 2
        low = float(stats.beta.ppf(tail, together, n - together + 1)) if together else 0.0
        high = float(stats.beta.ppf(1 - tail, together + 1, n - together)) if together < n else 1.0
        rows.append(
            {
                **_names(subject, pair),
                "level": level,
                "joint": estimate(row),
                "chi": float(row["value"]) / (1 - level),
                "expected": n * float(row["value"]),
                "observed": together,
                "data": together / n / (1 - level),
                "low": low / (1 - level),
                "high": min(high / (1 - level), 1.0),
                "in_table": level in TABLE_LEVELS or level == max(levels),
            }
        )
    return rows


def _names(subject: Subject, pair: tuple[int, int]) -> dict[str, str]:
    return {"column": subject.names[pair[0]], "other": subject.names[pair[1]]}
