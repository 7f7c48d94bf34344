"""Totals of a period as a method of the estimator."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phvae.risk import questions
from phvae.risk.aggregate import AggregateLoss
from phvae.risk.estimate import SUM_RTOL
from phvae.risk.frequency import Frequency
from phvae.risk.severity import Severity
from phvae.risk.sources import Column, Fitted, Source, Splice
from phvae.risk.sum_source import Sum

__all__ = ["AggregateAnswers"]

Array = NDArray[np.float64]


class AggregateAnswers:
    """Totals of a period of a fitted model."""

    def aggregate(
        self,
        columns: Any = None,
        *,
        frequency: float,
        dispersion: float = 1.0,
        inflation: Any = None,
        weights: Any = None,
        limit: float = math.inf,
        attachment: float = 0.0,
        rarest: float = 1e-4,
        splice: Splice = None,
        rtol: float = SUM_RTOL,
    ) -> AggregateLoss:
        """The total of a period of a random number of events, each of which costs a column or a sum of columns.

        The total's law is computed on a grid by fast Fourier transforms with an exponential tilt; every answer states
        the error of the grid beside that of the integration.

        Args:
            columns: Name or position of what an event costs; a list, or None for all, for their sum.
            frequency: Expected number of events per period.
            dispersion: Variance over mean of that number: 1 for Poisson, more for a negative binomial law.
            inflation: Factors by which columns have grown since the fit: one number, one per column, a dict by column.
            weights: Weights of the columns in the sum, as in `sum`.
            limit: Most that counts of an event, beyond its attachment.
            attachment: What is left out of every event.
            rarest: Smallest exceedance probability of the total that will be asked about; it decides the grid.
            splice: ``"gpd"`` for power tails beyond the trust points.
            rtol: Relative standard error to integrate to.

        Returns:
            A `phvae.risk.aggregate.AggregateLoss`, with ``aep``, ``oep``, ``aep_curve``, ``oep_curve``, ``quantile``,
            ``var``, ``cvar``, ``mean``, ``std`` and ``layer``.
        """
        fitted = Fitted.of(self)
        positions = questions.places(columns, fitted.names, "columns")
        count = _single("frequency", questions.positive("frequency", frequency))
        over = _single("dispersion", questions.at_least("dispersion", dispersion, 1.0))
        cover = _single("limit", questions.positive("limit", limit, infinite=True))
        start = _single("attachment", questions.thresholds("attachment", attachment))
        chance = _single("rarest", questions.levels("rarest", rarest))
        if inflation is not None and not isinstance(inflation, Mapping) and np.ndim(inflation) == 0:
            inflation = [inflation] * len(positions)
        growth = questions.weights(inflation, positions, fitted.names, "inflation")
        shares = questions.weights(weights, positions, fitted.names)
        source, factor = _event(fitted, positions, [a * b for a, b in zip(growth, shares, strict=True)], splice)
        if source.lower < 0:
            raise ValueError(f"columns = {source.name!r} has negative values; give columns of losses only")
        return AggregateLoss(
            Severity(source, factor, start, cover), Frequency(count, over), chance, fitted.kind, fitted.n_rows, rtol
        )


def _event(fitted: Fitted, positions: Sequence[int], weights: Sequence[float], splice: Splice) -> tuple[Source, float]:
    """What an event costs, but for a factor."""
    if len(positions) == 1:
        return Column(fitted, positions[0], splice), weights[0]
    return Sum(fitted, positions, weights, splice), 1.0


def _single(name: str, values: Array) -> float:
    if len(values) != 1:
        raise ValueError(f"{name} has {len(values)} numbers; give one")
    return float(values[0])
