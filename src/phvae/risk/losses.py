"""Losses and what can be asked of each: every answer a frame with value, error of the integration and a flag."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.risk import questions
from phvae.risk.distortions import Distortion, distorted_mean, expectile, proportional_hazard, wang
from phvae.risk.estimate import Estimate, to_tolerance
from phvae.risk.frames import frame
from phvae.risk.law import IntegratedLaw
from phvae.risk.layers import layer_moments
from phvae.risk.sources import Build, Source, tensor

__all__ = ["Losses"]

Array = NDArray[np.float64]
# From a law to values (R, k) and the furthest points they rest on, (R, k) or None.
Measure = Callable[[IntegratedLaw], tuple[Tensor, Tensor | None]]


class Block(NamedTuple):
    """Rows of an answer: what was asked, the estimate and the flag."""

    labels: Mapping[str, Sequence[Any] | Array]
    estimate: Estimate
    extrapolated: NDArray[np.bool_]


class Losses:
    """One or several losses; every method asks the same question of each and gives one frame with a row per answer.

    The frame has the columns ``column`` (name of the loss), the argument of the question, ``value``,
    ``standard_error`` (of the integration over latent space), ``low`` and ``high`` (its 95% interval) and
    ``extrapolated``: whether the answer rests on points beyond the largest observation (of a sum or another loss
    that was not observed itself: beyond what is expected once in the rows of the fit, or beyond the sum of the largest
    values of its columns).

    Args:
        sources: The losses.
        kind: Kind of table that answers are.
        rtol: Relative standard error to integrate to.
    """

    def __init__(self, sources: Sequence[Source], kind: Any, rtol: float) -> None:
        self.sources, self.kind, self.rtol = sources, kind, questions.checked_rtol(rtol)

    def pdf(self, x: Any) -> Any:
        """Density at points ``x``; an atom at zero is no part of it."""
        return self._at_points(x, lambda law, at: law.log_pdf(at))

    def log_pdf(self, x: Any) -> Any:
        """Log density at points ``x``."""
        return self._at_points(x, lambda law, at: law.log_pdf(at), keep_logs=True)

    def cdf(self, x: Any) -> Any:
        """``P(X <= x)``."""
        return self._at_points(x, lambda law, at: law.log_cdf(at))

    def log_cdf(self, x: Any) -> Any:
        """Log of ``P(X <= x)``."""
        return self._at_points(x, lambda law, at: law.log_cdf(at), keep_logs=True)

    def sf(self, x: Any) -> Any:
        """``P(X > x)``, with the same relative error however small it is."""
        return self._at_points(x, lambda law, at: law.log_sf(at))

    def log_sf(self, x: Any) -> Any:
        """Log of ``P(X > x)``."""
        return self._at_points(x, lambda law, at: law.log_sf(at), keep_logs=True)

    def hazard(self, x: Any) -> Any:
        """Hazard rate ``f(x) / S(x)``."""
        return self._at_points(x, lambda law, at: law.log_pdf(at) - law.log_sf(at))

    def mean_excess(self, x: Any) -> Any:
        """Mean excess ``E[X - x | X > x]`` over thresholds ``x``."""
        return self._at_points(x, lambda law, at: law.log_excess(at) - law.log_sf(at))

    def quantile(self, level: Any) -> Any:
        """Smallest points with ``P(X <= point) >= level``; for levels beyond 0.999999 use `isf`."""
        return self._at_levels("level", level, IntegratedLaw.icdf, lambda p: 1 - p)

    def var(self, level: Any) -> Any:
        """Value at risk: the quantile at ``level``."""
        return self.quantile(level)

    def isf(self, probability: Any) -> Any:
        """Smallest points with ``P(X > point) <= probability``."""
        return self._at_levels("probability", probability, IntegratedLaw.isf, lambda p: p)

    def cvar(self, level: Any) -> Any:
        """Expected shortfall: the mean of the quantiles above ``level``, never below the quantile itself."""
        return self._at_levels("level", level, lambda law, p: law.tail_mean(1 - p), lambda p: 1 - p)

    def expectile(self, level: Any) -> Any:
        """Expectiles: ``level · E[(X - e)_+] = (1 - level) · E[(e - X)_+]``; that at 1/2 is the mean."""
        return self._at_levels("level", level, expectile, lambda p: 1 - p)

    def wang(self, shift: Any) -> Any:
        """Wang's distortion measure, the mean under ``Φ(Φ^-1(S(x)) + shift)``; a shift of 0 gives that of the law."""
        asked = questions.real("shift", shift)
        return self._distorted({"shift": asked}, [wang(float(by)) for by in asked])

    def proportional_hazard(self, index: Any) -> Any:
        """The proportional hazard measure ``∫ S(x)^(1 / index) dx``, index at least 1; an index of 1 gives the mean."""
        asked = questions.at_least("index", index, 1.0)
        return self._distorted({"index": asked}, [proportional_hazard(float(by)) for by in asked])

    def distortion(self, function: Callable[[Array], Array]) -> Any:
        """A distortion measure of one's own: ``∫ g(S(x)) dx`` over gains, less ``∫ (1 - g(S(x))) dx`` below zero.

        Args:
            function: ``g``, from an array of survival probabilities to one of such, increasing from ``g(0) = 0`` to
                ``g(1) = 1``.
        """
        return self._distorted({}, [Distortion.of(questions.distortion("function", function))])

    def mean(self) -> Any:
        """Expected value."""
        return self._whole(lambda law: law.mean)

    def std(self) -> Any:
        """Standard deviation."""
        return self._whole(lambda law: law.variance.sqrt())

    def return_level(self, periods: Any, events_per_period: float) -> Any:
        """Level that is exceeded once in so many periods on average: ``isf(1 / (periods · events_per_period))``.

        Args:
            periods: Return periods, each with more than one event on average.
            events_per_period: Rows per period, on average.
        """
        rate = questions.one_positive("events_per_period", events_per_period)
        asked = questions.positive("periods", periods)
        for period in asked:
            if period * rate <= 1:
                raise ValueError(
                    f"periods = {period:g} with events_per_period = {rate:g}: less than two events, so every level is "
                    f"too high; give periods above {1 / rate:g}"
                )
        return self._at_levels(
            "periods", asked, lambda law, p: law.isf(1 / (p * rate)), lambda p: 1 / (p * rate), check=False
        )

    def prob_exceed(self, x: Any, within: float, events_per_period: float) -> Any:
        """Probability of at least one event above ``x`` within a time, events being Poisson: ``1 - exp(-rate t S)``.

        Args:
            x: Thresholds.
            within: Number of periods.
            events_per_period: Rows per period, on average.
        """
        count = questions.one_positive("within", within) * questions.one_positive(
            "events_per_period", events_per_period
        )
        return self._at_points(x, lambda law, at: (-torch.expm1(-count * law.log_sf(at).exp())).log())

    def layer(self, limit: Any, attachment: Any = 0.0, events_per_period: float | None = None) -> Any:
        """A layer that pays ``min((X - attachment)_+, limit)``: four rows for each, named in ``measure``.

        ``expected_loss``, ``standard_deviation``, ``frequency`` (chance that a loss reaches the layer) and
        ``return_period`` (one over it) are per event; with ``events_per_period`` they are per period and those of a
        Poisson number of events.

        Args:
            limit: Most that is paid per event, ``inf`` for no limit; one number or one per layer.
            attachment: Where the layer begins; one number or one per layer.
            events_per_period: Rows per period, on average.
        """
        rate = None if events_per_period is None else questions.one_positive("events_per_period", events_per_period)
        limits, starts = questions.positive("limit", limit, infinite=True), self._thresholds("attachment", attachment)
        try:
            limits, starts = np.broadcast_arrays(limits, starts)
        except ValueError:
            raise ValueError(
                f"limit has {len(limits)} and attachment {len(starts)} numbers; give one, or the same number of each"
            ) from None
        names = ("expected_loss", "standard_deviation", "frequency", "return_period")

        def measure(law: IntegratedLaw) -> tuple[Tensor, Tensor]:
            low = tensor(starts)
            first, second = layer_moments(law, low, tensor(starts + limits))
            reached = law.log_sf(low).exp()
            if rate is None:
                parts = [first, (second - first.square()).sqrt(), reached, 1 / reached]
            else:
                parts = [rate * first, (rate * second).sqrt(), rate * reached, 1 / (rate * reached)]
            at = tensor(np.where(limits < math.inf, starts + limits, starts)).expand(law.replicates, -1)
            return torch.cat(parts, 1), at.repeat(1, 4)

        labels = {
            "measure": np.repeat(np.array(names, dtype=object), len(starts)),
            "attachment": np.tile(starts, 4),
            "limit": np.tile(limits, 4),
        }
        points = np.unique(np.concatenate([starts, (starts + limits)[limits < math.inf]]))
        return self._ask(labels, lambda s: s.at(points=points.tolist()), measure)

    def limited_expected_value(self, limit: Any) -> Any:
        """``E[min(X, limit)]``."""
        limits = questions.positive("limit", limit)

        def measure(law: IntegratedLaw) -> tuple[Tensor, Tensor]:
            at = tensor(limits).expand(law.replicates, -1)
            return law.limited(at), at

        return self._ask({"limit": limits}, lambda s: s.at(points=limits.tolist()), measure)

    def increased_limit_factor(self, limit: Any, basic: float) -> Any:
        """``E[min(X, limit)] / E[min(X, basic)]``.

        Args:
            limit: Limits.
            basic: The basic limit, whose factor is 1.
        """
        limits, base = questions.positive("limit", limit), questions.one_positive("basic", basic)

        def measure(law: IntegratedLaw) -> tuple[Tensor, Tensor]:
            at = tensor(limits).expand(law.replicates, -1)
            return law.limited(at) / law.limited(tensor([base])), at

        return self._ask({"limit": limits}, lambda s: s.at(points=[*limits.tolist(), base]), measure)

    def _thresholds(self, name: str, x: Any) -> Array:
        return questions.thresholds(name, x, min(source.lower for source in self.sources))

    def _at_points(
        self, x: Any, log_function: Callable[[IntegratedLaw, Tensor], Tensor], *, keep_logs: bool = False
    ) -> Any:
        points = self._thresholds("x", x)

        def measure(law: IntegratedLaw) -> tuple[Tensor, Tensor]:
            at = tensor(points).expand(law.replicates, -1)
            return log_function(law, at), at

        answer = None if keep_logs else Estimate.exp
        return self._ask({"x": points}, lambda s: s.at(points=points.tolist()), measure, logs=True, answer=answer)

    def _at_levels(
        self,
        name: str,
        level: Any,
        function: Callable[[IntegratedLaw, Tensor], Tensor],
        survival: Callable[[Array], Array],
        *,
        check: bool = True,
    ) -> Any:
        asked = questions.levels(name, level) if check else level

        def measure(law: IntegratedLaw) -> tuple[Tensor, Tensor]:
            values = function(law, tensor(asked))
            return values, values

        return self._ask({name: asked}, lambda s: s.between(survival(asked)), measure)

    def _distorted(self, labels: Mapping[str, Array], distortions: Sequence[Distortion]) -> Any:
        # where a distorted tail has a thousandth of its mass left, it must still be known
        grid = torch.logspace(-14, 0, 141, dtype=torch.float64)
        rarest, below = (
            min(float(grid[side(grid) >= 1e-3].min()) for side in sides)
            for sides in ([d.function for d in distortions], [d.dual for d in distortions])
        )

        def measure(law: IntegratedLaw) -> tuple[Tensor, Tensor]:
            values = torch.stack([distorted_mean(law, distortion) for distortion in distortions], 1)
            return values, values

        return self._ask(labels, lambda source: source.between(np.array([rarest, max(1 - below, rarest)])), measure)

    def _whole(self, function: Callable[[IntegratedLaw], Tensor]) -> Any:
        return self._ask({}, lambda source: source.at(), lambda law: (function(law)[:, None], None))

    def _ask(
        self,
        labels: Mapping[str, Array],
        prepare: Callable[[Source], Build],
        measure: Measure,
        *,
        logs: bool = False,
        answer: Callable[[Estimate], Estimate] | None = None,
    ) -> Any:
        """One frame with the answers of every loss.

        Args:
            labels: What was asked, one entry per value.
            prepare: From a loss to its laws.
            measure: From a law to values and the points they rest on.
            logs: Values are logs.
            answer: From estimates of logs to what is shown.
        """
        blocks = []
        for source in self.sources:
            build = prepare(source)

            def evaluate(n: int, source: Source = source, build: Build = build) -> tuple[Estimate, NDArray[np.bool_]]:
                law = build(n)
                values, at = measure(law)
                estimate = Estimate.of_logs(values) if logs else Estimate.of(values)
                beyond = np.zeros(values.shape[1], dtype=bool) if at is None else source.extrapolated(law, at)
                return estimate, beyond

            estimate, beyond = to_tolerance(evaluate, self.rtol, logs=logs, most=source.most)
            shown = estimate if answer is None else answer(estimate)
            blocks.append(Block({"column": [source.name] * len(estimate.value), **labels}, shown, beyond))
        return answer_frame(blocks, self.kind)


def answer_frame(blocks: Sequence[Block], kind: Any) -> Any:
    """Blocks of answers as one frame."""
    columns: dict[str, Any] = {
        name: np.concatenate([_column(block.labels[name]) for block in blocks]) for name in blocks[0].labels
    }
    ends = [block.estimate.interval() for block in blocks]
    columns["value"] = np.concatenate([block.estimate.value for block in blocks])
    columns["standard_error"] = np.concatenate([block.estimate.standard_error for block in blocks])
    columns["low"], columns["high"] = (np.concatenate([pair[i] for pair in ends]) for i in (0, 1))
    columns["extrapolated"] = np.concatenate([block.extrapolated for block in blocks])
    return frame(columns, kind)


def _column(values: Sequence[Any] | Array) -> NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    return np.array([*values, None], dtype=object)[:-1]
