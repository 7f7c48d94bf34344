"""The model held against rows: how often its quantiles are exceeded, and whether its probabilities are even."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from phvae.report.subject import Subject
from phvae.risk.certificate import TailCertificate
from phvae.risk.decided import survival_within
from phvae.risk.estimate import CONFIDENCE
from phvae.risk.seen import SeenRows
from phvae.weights import repeated

__all__ = ["backtest", "counts_between", "spread", "zero_shares"]

Array = NDArray[np.float64]

# Bins of a histogram of probabilities, and rows that a bin should hold on average.
BINS, PER_BIN = 10, 10


def backtest(subject: Subject, certificate: TailCertificate, rows: SeenRows) -> dict[str, Any]:
    """Exceedance counts and histograms of probability transforms.

    Args:
        subject: What the report is about.
        certificate: The certificate, with the tests of these rows.
        rows: The rows.
    """
    tests = [{"column": str(column.name), **test._asdict()} for column in certificate.columns for test in column.tests]
    # minus a column has the same histogram, from the other end
    firsts = [next(i for i, s in enumerate(subject.sides) if s.position == j) for j in range(len(subject.names))]
    columns = [_histogram(subject, place, rows) for place in firsts]
    return {
        "rows": certificate.tested,
        "n": certificate.n_tested,
        "undecided": any(test["undecided"] for test in tests),
        "bounded": bool(rows.bounded.any()),
        "spread": any(histogram is not None and histogram["spread"] for histogram in columns),
        "untested": [str(column.name) for column in certificate.columns if not column.tests],
        "tests": tests,
        "pit": [histogram for histogram in columns if histogram is not None],
    }


def counts_between(x: Array, edges: Array, atom: float, below: float = 0.0) -> Array:
    """How many values fall between quantiles of equal steps in probability; an exact zero is spread over its mass.

    Args:
        x: Values.
        edges: Quantiles at levels ``1/k, ..., (k-1)/k``; 0 for levels within the atom.
        atom: Probability of an exact zero.
        below: Probability of less than zero.

    >>> counts_between(np.array([0.0, 0.0, 1.0, 3.0]), np.array([0.0, 0.0, 2.0]), atom=0.5).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    bins = len(edges) + 1
    zero = (x == 0) & (atom > 0)
    # with positive values alone, the bins that end at zero are empty
    counts = np.histogram(x[~zero], np.concatenate([[-np.inf], edges, [np.inf]]))[0].astype(np.float64)
    if atom > 0:
        ends = np.arange(bins + 1) / bins
        counts += zero.sum() * np.diff(np.clip(ends, below, below + atom)) / atom
    return counts


def spread(low: Array, high: Array, mass: Array, bins: int) -> Array:
    """Mass of cells in bins of equal width, each spread evenly between two probabilities.

    >>> spread(np.array([0.0, 0.6]), np.array([0.5, 0.6]), np.ones(2), 4).tolist()
    [0.5, 0.5, 1.0, 0.0]
    """
    ends = np.arange(bins + 1) / bins
    width = high - low
    point = width == 0
    below = np.clip((ends - low[~point, None]) / width[~point, None], 0, 1)
    counts = np.histogram(low[point], ends, weights=mass[point])[0].astype(np.float64)
    return np.asarray(counts + (mass[~point, None] * np.diff(below, axis=1)).sum(0))


def _histogram(subject: Subject, place: int, rows: SeenRows) -> dict[str, Any] | None:
    """Where the cells of a column lie among the model's probabilities; None where bounds of others select its rows."""
    side = subject.sides[place]
    column = rows.column(side.position).known
    if column.selected or not len(column.lower):
        return None
    column = column.mirrored if side.minus else column
    n = float(column.mass.sum())
    bins = int(np.clip(n // PER_BIN, 2, BINS))
    below, atom = zero_shares(subject, place)
    if column.bounded or not column.exact.all():
        low, high = (1 - part for part in survival_within(column, subject.law(side)))
        if atom:
            zero = column.exact & (column.lower == 0)
            low = np.where(zero, high * below / (below + atom), low)
        counts = spread(low, high, column.mass, bins)
    else:
        levels = np.arange(1, bins) / bins
        edges = np.array([row["value"] for row in subject.ask_side(place, lambda losses: losses.quantile(levels))])
        x = column.lower if column.weights is None else repeated(column.lower, column.weights)
        counts = counts_between(x, edges, atom, below)
    expected = n / bins
    statistic = float(((counts - expected) ** 2 / expected).sum())
    tail = (1 - CONFIDENCE) / 2
    few, many = (float(stats.binom.ppf(p, round(n), 1 / bins)) for p in (tail, 1 - tail))
    return {
        "column": side.name,
        "n": round(n),
        "spread": round(float(column.mass[~column.exact].sum())),
        "counts": counts,
        "expected": expected,
        "low": few,
        "high": many,
        "p_value": float(stats.chi2.sf(statistic, bins - 1)),
    }


def zero_shares(subject: Subject, place: int) -> tuple[float, float]:
    """The model's probabilities of less than zero and of exactly zero."""
    side = subject.sides[place]
    if not subject.model.scaler_.zero_share_[side.position] > 0:
        return 0.0, 0.0
    up_to = float(subject.ask_side(place, lambda losses: losses.cdf(0.0))[0]["value"])
    below = 0.0
    if subject.is_signed(side.position):
        below = float(subject.ask_other(place, lambda losses: losses.sf(0.0))[0]["value"])
    return below, up_to - below
