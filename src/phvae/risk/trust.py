"""Where the tail of a model turns from what the data show into exponential extrapolation."""

import math
from typing import NamedTuple

import numpy as np
import torch

from phvae.distributions.generalised_pareto import ParetoTailFit, fit_generalised_pareto
from phvae.risk.law import IntegratedLaw
from phvae.risk.record import ColumnRecord

__all__ = ["TOLERANCE", "Trust", "data_tail", "trust_point"]

# How much steeper than the data's the tail of a model may be; the waves of a mixture of exponentials stay below.
TOLERANCE = 1.25
# Fewest exceedances that a tail is fitted to.
FEWEST = 10
# Points at which the slopes are compared, and how much rarer than one in the number of rows the last one is.
NODES, RARER = 64, 10.0


class Trust(NamedTuple):
    """How far a tail can be trusted.

    threshold: Where the data's tail begins, the lowest of the largest values.
    fit: Generalised Pareto law of the excesses over it.
    turn: Where the model's slope leaves the data's for good; ``inf`` where it never does.
    point: The trust point, the smaller of `turn` and the largest observation.
    """

    threshold: float
    fit: ParetoTailFit
    turn: float
    point: float


def data_tail(record: ColumnRecord) -> tuple[float, ParetoTailFit]:
    """Threshold of the largest values of a column, and the generalised Pareto law of what exceeds it."""
    threshold = float(record.top[-1])
    excess = record.top[record.top > threshold] - threshold
    if len(excess) < FEWEST or len(np.unique(excess)) < FEWEST:
        raise ValueError(
            f"{len(np.unique(excess))} different values exceed {threshold:g}, too few to fit a tail to; "
            f"a tail is fitted to at least {FEWEST}"
        )
    return threshold, fit_generalised_pareto(excess)


def trust_point(law: IntegratedLaw, record: ColumnRecord) -> Trust:
    """The trust point of a column.

    With the local log-log slopes ``a_model(x) = x f(x) / S(x)`` and ``a_data(x) = x / (scale + shape (x - t))``, that
    of the generalised Pareto law fitted to the excesses over ``t``,

        turn = max { x >= t : a_model(x) <= 1.25 a_data(x) },   trust point = min(turn, largest observation).

    A finite mixture of exponentials has ``a_model ~ x`` in the end, so over a power tail (``a_data`` constant) the turn
    is finite; over an exponential tail (``a_data ~ x``) there is none.

    Args:
        law: Law of the column, accurate down to a tenth of an exceedance among the rows of the record.
        record: Largest values of the rows.
    """
    threshold, fit = data_tail(record)
    rarest = law.isf(torch.tensor([1 / (RARER * record.n)], dtype=torch.float64)).mean()
    end = max(float(rarest), 2 * record.largest)
    x = torch.logspace(math.log10(threshold), math.log10(end), NODES, dtype=torch.float64)
    density, survival = (torch.logsumexp(part, 0) for part in (law.log_pdf(x), law.log_sf(x)))
    # a law that has ended has no slope left: steeper than any
    hazard = torch.where(survival > -math.inf, (density - survival).exp(), math.inf)
    ratio = (hazard * (fit.scale + fit.shape * (x - threshold))).numpy()
    kept = np.flatnonzero(ratio <= TOLERANCE)
    if not len(kept):
        turn = threshold
    elif kept[-1] == NODES - 1:
        turn = math.inf
    else:
        i = kept[-1]
        share = (TOLERANCE - ratio[i]) / (ratio[i + 1] - ratio[i]) if ratio[i + 1] < math.inf else 0.0
        turn = float(x[i] * (x[i + 1] / x[i]) ** share)
    return Trust(threshold, fit, turn, min(turn, record.largest))
