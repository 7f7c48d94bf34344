"""Losses of a whole period: a random number of events with fitted severities, by event and in total."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from phvae.risk import questions
from phvae.risk.compound import CompoundLaw
from phvae.risk.estimate import CONFIDENCE, Estimate, to_tolerance
from phvae.risk.frames import frame
from phvae.risk.frequency import Frequency
from phvae.risk.law import IntegratedLaw
from phvae.risk.severity import Severity, grid_step
from phvae.risk.sources import Build, tensor

__all__ = ["AggregateLoss"]

Array = NDArray[np.float64]

# Cells of the grid.
CELLS = 2**16


class AggregateLoss:
    """Total ``A = Y_1 + ... + Y_N`` and largest ``max Y_i`` of the events of a period.

    Every method gives a frame with ``value``, ``standard_error`` (of the integration over latent space),
    ``discretisation_error`` (of the grid: what halving the number of cells changes, four times the error of a rule of
    second order), ``low`` and ``high`` (the 95% interval of the integration, widened by the discretisation error)
    and ``extrapolated`` (whether less than one such period is expected in the rows of the fit).

    Args:
        severity: Cost of an event.
        frequency: Number of events in a period.
        rarest: Smallest exceedance probability of the total that can be asked about.
        kind: Kind of table that answers are.
        n_rows: Rows of the fit.
        rtol: Relative standard error to integrate to.

    >>> from phvae import PHVAE
    >>> x = np.random.default_rng(0).exponential([1.0, 2.0], (200, 2))
    >>> model = PHVAE(n_phases=1, origin=0, latent_dim=0, epochs=0, random_state=0).fit(x)
    >>> total = model.aggregate(0, frequency=2)
    >>> once_in_ten, largest = total.aep_curve(10)["value"], total.oep_curve(10)["value"]
    >>> np.allclose(total.aep(once_in_ten)["value"], 0.1), np.allclose(total.oep(largest)["value"], 0.1)
    (True, True)
    """

    def __init__(
        self, severity: Severity, frequency: Frequency, rarest: float, kind: Any, n_rows: int, rtol: float
    ) -> None:
        self.severity, self.frequency, self.rarest = severity, frequency, rarest
        self.kind, self.n_rows, self.rtol = kind, n_rows, questions.checked_rtol(rtol)
        self._share = min(0.5, rarest / (20 * max(frequency.mean, 1.0)))
        self._build: Build | None = None
        self._laws: dict[int, IntegratedLaw] = {}
        self._compound: dict[tuple[int, int], CompoundLaw] = {}
        self._step: float | None = None

    def aep(self, x: Any) -> Any:
        """Aggregate exceedance probability ``P(A > x)`` at points ``x``."""
        points = questions.thresholds("x", x)
        return self._answer({"x": points}, lambda law: law.sf(self._within(law, points)))

    def oep(self, x: Any) -> Any:
        """Occurrence exceedance probability: that some event of the period costs more than ``x``. Without a grid."""
        points = questions.thresholds("x", x)

        def measure(law: IntegratedLaw) -> Array:
            chance = np.where(points < self.severity.limit, np.exp(self.severity.log_sf(law, points)), 0.0)
            return self.frequency.some(chance)

        return self._exact({"x": points}, measure, at_points=True)

    def quantile(self, level: Any) -> Any:
        """Quantiles of the total."""
        asked = questions.levels("level", level)
        return self._answer({"level": asked}, lambda law: self._isf(law, 1 - asked, "level"), 1 - asked)

    def var(self, level: Any) -> Any:
        """Value at risk of the total: the quantile at ``level``."""
        return self.quantile(level)

    def cvar(self, level: Any) -> Any:
        """Expected shortfall of the total: the mean of its quantiles above ``level``."""
        asked = questions.levels("level", level)

        def measure(law: CompoundLaw) -> Array:
            quantile = self._isf(law, 1 - asked, "level")
            return quantile + law.excess(quantile) / (1 - asked)

        return self._answer({"level": asked}, measure, 1 - asked)

    def aep_curve(self, periods: Any) -> Any:
        """Totals that are exceeded in one of so many periods: the aggregate exceedance curve, by return period."""
        asked = self._periods(periods)
        return self._answer({"periods": asked}, lambda law: self._isf(law, 1 / asked, "periods"), 1 / asked)

    def oep_curve(self, periods: Any) -> Any:
        """Losses that some event exceeds in one of so many periods: the occurrence exceedance curve. Without a grid."""
        asked = self._periods(periods)
        # the chance per event with which some event of a period is of this kind with chance 1 / periods
        log_none, more = np.log1p(-1 / asked), self.frequency.dispersion - 1
        events = self.frequency.mean
        chance = np.expm1(-log_none * more / events) / more if more else -log_none / events

        def measure(law: IntegratedLaw) -> Array:
            values = np.zeros((law.replicates, len(asked)))
            severity, certain = self.severity, chance >= 1
            if not certain.all():
                points = law.isf(tensor(chance[~certain])).numpy()
                gross = severity.factor * points - severity.attachment
                values[:, ~certain] = np.minimum(np.maximum(gross, 0.0), severity.limit)
            return values

        return self._exact({"periods": asked}, measure, 1 / asked)

    def mean(self) -> Any:
        """Expected total. Without a grid."""
        return self._exact({}, lambda law: self.frequency.mean * self.severity.moments(law)[0][:, None])

    def std(self) -> Any:
        """Standard deviation of the total. Without a grid."""

        def measure(law: IntegratedLaw) -> Array:
            first, second = self.severity.moments(law)
            spread = second + (self.frequency.dispersion - 1) * first**2
            return np.asarray(np.sqrt(self.frequency.mean * spread)[:, None])

        return self._exact({}, measure)

    def layer(self, limit: float, attachment: float = 0.0) -> Any:
        """A layer on the total, which pays ``min((A - attachment)_+, limit)`` per period: rows as for one event.

        ``expected_loss``, ``frequency`` (chance that the total reaches the layer), ``return_period`` and, of a limited
        layer, ``standard_deviation``.

        Args:
            limit: Most that is paid in a period, ``inf`` for no limit.
            attachment: Where the layer begins.
        """
        most = float(questions.positive("limit", limit, infinite=True)[0])
        start = float(questions.thresholds("attachment", attachment)[0])
        names = np.array(["expected_loss", "frequency", "return_period", "standard_deviation"], dtype=object)

        def measure(law: CompoundLaw) -> Array:
            low = self._within(law, np.array([start]))
            reached = law.sf(low)[:, 0]
            if most == math.inf:
                # of what lies beyond the grid only the first moment is known
                return np.stack([law.excess(low)[:, 0], reached, 1 / reached], 1)
            self._within(law, np.array([start + most]))
            first, second = law.layer(start, start + most)
            return np.stack([first, reached, 1 / reached, np.sqrt(second - first**2)], 1)

        count = 4 if most < math.inf else 3
        labels = {"measure": names[:count], "attachment": np.full(count, start), "limit": np.full(count, most)}
        return self._answer(labels, measure)

    def _periods(self, periods: Any) -> Array:
        asked = questions.positive("periods", periods)
        for period in asked:
            if period <= 1:
                raise ValueError(f"periods = {period:g}; give return periods above 1")
        return asked

    def _within(self, law: CompoundLaw, x: Array) -> Array:
        """Points in every replicate, none beyond the grid."""
        if x.max() > law.end:
            raise ValueError(
                f"x = {x.max():g} lies beyond {law.end:g}, where the grid ends; give a smaller one, or aggregate with "
                f"a rarest below {self.rarest:g}"
            )
        return np.broadcast_to(x, (len(law.mean), len(x)))

    def _isf(self, law: CompoundLaw, probability: Array, name: str) -> Array:
        if probability.min() < self.rarest:
            raise ValueError(
                f"{name}: an exceedance probability of {probability.min():g} is less than rarest = {self.rarest:g}, "
                "for which the grid was made; aggregate with a smaller rarest"
            )
        return law.isf(probability)

    def _law(self, n: int) -> IntegratedLaw:
        severity = self.severity
        if self._build is None:
            starts = [severity.attachment / severity.factor] if severity.attachment else []
            self._build = severity.source.at(probability=self._share, points=starts)
        if n not in self._laws:
            self._laws[n] = self._build(n)
        return self._laws[n]

    def _compounds(self, n: int) -> tuple[CompoundLaw, CompoundLaw]:
        """The law of the total on the grid and on one with half as many cells."""
        if (n, 1) not in self._compound:
            law = self._law(n)
            severity = self.severity
            if self._step is None:
                self._step = grid_step(severity, law, self.frequency, self._share, self.rarest, CELLS)
            step = self._step
            survival = severity.tabulated(law, CELLS * step)
            mean = severity.moments(law)[0]
            for wide in (1, 2):
                self._compound[n, wide] = CompoundLaw(
                    self.frequency, survival, mean, step * wide, CELLS // wide, severity.limit
                )
        return self._compound[n, 1], self._compound[n, 2]

    def _answer(
        self, labels: Mapping[str, Any], measure: Callable[[CompoundLaw], Array], rare: Array | None = None
    ) -> Any:
        """A frame from a measure of the law on the grid; ``rare`` is the exceedance probability of each value."""

        def evaluate(n: int) -> tuple[Estimate, Array]:
            fine, coarse = self._compounds(n)
            values, wide = measure(fine), measure(coarse)
            return Estimate.of(torch.from_numpy(values)), np.abs(values.mean(0) - wide.mean(0))

        estimate, gap = to_tolerance(evaluate, self.rtol, most=self.severity.source.most)
        if rare is None and "measure" in labels:
            rare = np.full(len(gap), estimate.value[list(labels["measure"]).index("frequency")])
        return self._frame(labels, estimate, gap, estimate.value if rare is None else rare)

    def _exact(
        self,
        labels: Mapping[str, Any],
        measure: Callable[[IntegratedLaw], Array],
        rare: Array | None = None,
        *,
        at_points: bool = False,
    ) -> Any:
        """A frame from a measure of one event's law, for which no grid is needed."""

        def evaluate(n: int) -> tuple[Estimate, None]:
            return Estimate.of(torch.from_numpy(measure(self._law(n)))), None

        estimate, _ = to_tolerance(evaluate, self.rtol, most=self.severity.source.most)
        none = np.zeros(len(estimate.value))
        if rare is None:
            rare = estimate.value if at_points else none + 1
        return self._frame(labels, estimate, none, rare)

    def _frame(self, labels: Mapping[str, Any], estimate: Estimate, gap: Array, reached: Array) -> Any:
        reach = special.stdtrit(estimate.replicates - 1, (1 + CONFIDENCE) / 2) if estimate.replicates > 1 else 0.0
        wide = reach * estimate.standard_error + gap
        columns: dict[str, Any] = {
            "column": [self.severity.source.name] * len(gap),
            **labels,
            "value": estimate.value,
            "standard_error": estimate.standard_error,
            "discretisation_error": gap,
            "low": estimate.value - wide,
            "high": estimate.value + wide,
            "extrapolated": reached < self.frequency.mean / self.n_rows,
        }
        return frame(columns, self.kind)
