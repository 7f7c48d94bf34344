"""The model held against rows: how often its quantiles are exceeded, and whether its probabilities are even."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from phvae.report.subject import Subject
from phvae.risk.certificate import TailCertificate
from phvae.risk.estimate import CONFIDENCE

__all__ = ["backtest", "counts_between"]

Array = NDArray[np.float64]

# Bins of a histogram of probabilities, and rows that a bin should hold on average.
BINS, PER_BIN = 10, 10


def backtest(subject: Subject, certificate: TailCertificate, values: Array) -> dict[str, Any]:
    """Exceedance counts and histograms of probability transforms.

    Args:
        subject: What the report is about.
        certificate: The certificate, with the tests of these rows.
        values: The rows, ``(n, D)``.
    """
    tests = [{"column": str(column.name), **test._asdict()} for column in certificate.columns for test in column.tests]
    columns = [_histogram(subject, position, values[:, position]) for position in range(len(subject.names))]
    return {"rows": certificate.tested, "n": certificate.n_tested, "tests": tests, "pit": columns}


def counts_between(x: Array, edges: Array, atom: float) -> Array:
    """How many values fall between quantiles of equal steps in probability; an exact zero is spread over its mass.

    Args:
        x: Values.
        edges: Quantiles at levels ``1/k, ..., (k-1)/k``; 0 for levels within the atom.
        atom: Probability of an exact zero.

    >>> counts_between(np.array([0.0, 0.0, 1.0, 3.0]), np.array([0.0, 0.0, 2.0]), atom=0.5).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    bins = len(edges) + 1
    zero = (x == 0) & (atom > 0)
    # with positive values alone, the bins that end at zero are empty
    counts = np.histogram(x[~zero], np.concatenate([[-np.inf], edges, [np.inf]]))[0].astype(np.float64)
    if atom > 0:
        ends = np.arange(bins + 1) / bins
        counts += zero.sum() * np.diff(np.minimum(ends, atom)) / atom
    return counts


def _histogram(subject: Subject, position: int, column: Array) -> dict[str, Any]:
    x = column[~np.isnan(column)]
    bins = int(np.clip(len(x) // PER_BIN, 2, BINS))
    levels = np.arange(1, bins) / bins
    edges = np.array([row["value"] for row in subject.ask_column(position, lambda losses: losses.quantile(levels))])
    atom = 0.0
    if subject.model.scaler_.zero_share_[position] > 0:
        atom = float(subject.ask_column(position, lambda losses: losses.cdf(0.0))[0]["value"])
    counts = counts_between(x, edges, atom)
    expected = len(x) / bins
    statistic = float(((counts - expected) ** 2 / expected).sum())
    tail = (1 - CONFIDENCE) / 2
    low, high = (float(stats.binom.ppf(p, len(x), 1 / bins)) for p in (tail, 1 - tail))
    return {
        "column": subject.names[position],
        "n": len(x),
        "counts": counts,
        "expected": expected,
        "low": low,
        "high": high,
        "p_value": float(stats.chi2.sf(statistic, bins - 1)),
    }
