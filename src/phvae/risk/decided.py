"""What rows decide about a model where cells are cut or seen within bounds: exceedances, and probabilities of rows."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from phvae.risk.exceedances import ExceedanceTest, kupiec
from phvae.risk.law import IntegratedLaw
from phvae.risk.seen import SeenColumn

__all__ = ["exceedance_tests", "survival_within"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Most points of a column at which its law is computed; it is read off between them, straight in logarithms.
NODES = 1000


def exceedance_tests(
    column: SeenColumn, law: IntegratedLaw, levels: Sequence[float], quantiles: Array, probabilities: Array
) -> tuple[ExceedanceTest, ...]:
    """Kupiec's tests of the exceedances of quantiles by the cells of a column.

    A cell exceeds for sure where its lower end does, and not where its upper end does not; of ``u`` cells between, any
    number may. The p-value is the largest that these numbers leave open, and NaN where the expected number is among
    them: leaving out such rows instead would favour small values. A cell that was seen within bounds is held against
    the quantile of what is within them. The quantile of a count is moved up to the next half, where it is decided.

    Args:
        column: The cells.
        law: Law of the column, of one replicate.
        levels: Levels of the quantiles.
        quantiles: The quantiles, shape ``(levels,)``.
        probabilities: Probabilities to exceed them, shape ``(levels,)``.
    """
    known = column.known
    if column.whole:
        quantiles = np.ceil(quantiles - 0.5) + 0.5
        probabilities = law.log_sf(torch.from_numpy(quantiles)).exp()[0].numpy()
    low, high = known.lower, known.upper
    if known.bounded:
        # minus the probability beyond an end, given the bounds, orders cells as their values would
        low, high = (-part for part in survival_within(known, law))
        quantiles = -probabilities
    n, tests = round(float(known.mass.sum())), []
    for level, quantile, probability in zip(levels, quantiles.tolist(), probabilities.tolist(), strict=True):
        sure = np.where(known.exact, high > quantile, low >= quantile)
        observed, possible = (round(float(known.mass[part].sum())) for part in (sure, high > quantile))
        expected, undecided = n * probability, possible - observed
        p_value = math.nan
        if not observed <= expected <= possible or not undecided:
            p_value = kupiec(observed if observed >= expected else possible, n, probability)
        tests.append(ExceedanceTest(level, expected, observed, p_value, undecided))
    return tuple(tests)


def survival_within(column: SeenColumn, law: IntegratedLaw) -> tuple[Array, Array]:
    """Probabilities under a law to exceed the ends of cells, given the bounds they were seen in, shape ``(n,)`` each.

    Args:
        column: The cells.
        law: Law of the column, of one replicate.
    """
    parts = [part for part in (column.lower, column.upper, column.entry, column.exit) if part is not None]
    points = np.unique(np.concatenate(parts))
    points = points[np.isfinite(points)]
    nodes = (
        points[np.unique(np.linspace(0, max(len(points) - 1, 0), NODES).astype(np.int64))] if len(points) else points
    )
    logs = law.log_sf(torch.from_numpy(nodes))[0].numpy() if len(nodes) else nodes

    def survival(x: Array) -> Array:
        inside = np.exp(np.interp(x, nodes, logs)) if len(nodes) else x
        return np.where(x == -np.inf, 1.0, np.where(x == np.inf, 0.0, inside))

    first = 1.0 if column.entry is None else survival(column.entry)
    last = 0.0 if column.exit is None else survival(column.exit)
    lower, upper = ((survival(end) - last) / (first - last) for end in (column.lower, column.upper))
    return lower, upper
