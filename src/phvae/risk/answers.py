"""What a fitted model answers about its tails: the methods that `phvae.PHVAE` has from this module."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from phvae.observing import whole_counts
from phvae.risk import questions
from phvae.risk.certificate import TailCertificate, certify
from phvae.risk.conditional import ConditionalSample, Event, draw_given, summary
from phvae.risk.conditions import Range, read_conditions
from phvae.risk.estimate import RTOL
from phvae.risk.joint import JointAnswers
from phvae.risk.losses import Losses
from phvae.risk.seen import SeenRows
from phvae.risk.sources import Column, Fitted, Splice
from phvae.risk.splice import Spliced
from phvae.risk.sums import SumAnswers
from phvae.risk.totals import AggregateAnswers
from phvae.risk.turned import Tail
from phvae.risk.two_tails import TwoTails
from phvae.settings import seed_of
from phvae.tables import from_matrix

if TYPE_CHECKING:
    from phvae.report import Report

__all__ = ["TailAnswers"]

Columns = str | int | Sequence[str | int] | None


class TailAnswers(AggregateAnswers, SumAnswers, JointAnswers):
    """Tail answers of a fitted model: exact given the latent vector, and integrated over it with a known error.

    Every method gives a frame of the kind seen in `fit` (a structured array for a model of arrays) with a row per
    column and question: ``value``, the ``standard_error`` of the integration, its 95% interval ``low``, ``high``, and
    ``extrapolated`` for answers beyond the largest observation, or rarer than one row of the fit. The number of latent
    points grows until the standard error is below ``rtol`` times the value. ``splice="gpd"`` replaces the tail beyond
    the trust point by a generalised Pareto tail fitted to the largest values, with the same mass and slope there. A
    signed column ``X`` has two tails, and every question is one about its upper tail. ``tail="lower"`` asks the same
    question of ``-X``, the losses: thresholds and answers are then sizes of losses, and rows are named ``-X``. So
    ``var(0.99, "X", tail="lower")`` is the loss that one row in a hundred exceeds, a positive number. A dict from
    column to tail asks about different tails at once.

    >>> from phvae import PHVAE
    >>> x = np.random.default_rng(0).exponential([1.0, 2.0], (200, 2))
    >>> model = PHVAE(n_phases=1, origin=0, latent_dim=0, epochs=0, random_state=0).fit(x)
    >>> mean = model.mean(0)["value"]
    >>> law_at_one = model.log_pdf(0, 1.0)["value"]  # of an exponential law, as one phase has
    >>> np.allclose(law_at_one, -1 / mean - np.log(mean)), np.allclose(model.distortion(np.sqrt, 0)["value"], 2 * mean)
    (True, True)
    """

    columns_: list[Any] | None
    settings_: dict[str, Any]

    def pdf(self, column: Columns, x: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL) -> Any:
        """Density of columns at points ``x``; an atom at zero is no part of it."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).pdf(x)

    def log_pdf(
        self, column: Columns, x: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Log density of columns at points ``x``; ``rtol`` is that of the density."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).log_pdf(x)

    def cdf(self, column: Columns, x: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL) -> Any:
        """``P(X <= x)``."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).cdf(x)

    def log_cdf(
        self, column: Columns, x: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Log of ``P(X <= x)``."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).log_cdf(x)

    def sf(self, column: Columns, x: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL) -> Any:
        """``P(X > x)``, with the same relative error however small it is.

        Args:
            column: Name or position; a list of them; None for all.
            x: Thresholds.
            splice: ``"gpd"`` for a power tail beyond the trust point.
            tail: ``"lower"`` for the losses of signed columns.
            rtol: Relative standard error to integrate to.
        """
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).sf(x)

    def log_sf(
        self, column: Columns, x: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Log of ``P(X > x)``."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).log_sf(x)

    def hazard(
        self, column: Columns, x: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Hazard rate ``f(x) / S(x)``."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).hazard(x)

    def quantile(
        self, column: Columns, level: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Smallest points with ``P(X <= point) >= level``; for levels beyond 0.999999 use `isf`."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).quantile(level)

    def isf(
        self, column: Columns, probability: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Smallest points with ``P(X > point) <= probability``, down to 1e-12 and beyond."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).isf(probability)

    def var(
        self, level: Any, column: Columns = None, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Value at risk: the quantile at ``level``, of all columns unless some are named."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).var(level)

    def cvar(
        self, level: Any, column: Columns = None, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Expected shortfall: the mean of the quantiles above ``level``, of all columns unless some are named."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).cvar(level)

    def expectile(
        self, level: Any, column: Columns = None, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Expectiles at ``level``; that at 1/2 is the mean."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).expectile(level)

    def wang(
        self, shift: Any, column: Columns = None, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Wang's distortion measure, the mean under ``Φ(Φ^-1(S(x)) + shift)``; a shift of 0 gives that of the law."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).wang(shift)

    def proportional_hazard(
        self, index: Any, column: Columns = None, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """The proportional hazard measure ``∫ S(x)^(1 / index) dx``, index at least 1; an index of 1 gives the mean."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).proportional_hazard(index)

    def distortion(
        self,
        function: Callable[[Any], Any],
        column: Columns = None,
        *,
        splice: Splice = None,
        tail: Tail = "upper",
        rtol: float = RTOL,
    ) -> Any:
        """A distortion measure ``∫ g(S(x)) dx`` of one's own, ``function = g`` increasing from 0 to 1 on [0, 1]."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).distortion(function)

    def mean(self, column: Columns = None, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL) -> Any:
        """Expected value of columns."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).mean()

    def std(self, column: Columns = None, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL) -> Any:
        """Standard deviation of columns."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).std()

    def mean_excess(
        self, column: Columns, x: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """Mean excess ``E[X - x | X > x]`` over thresholds ``x``."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).mean_excess(x)

    def return_level(
        self,
        periods: Any,
        events_per_period: float,
        column: Columns = None,
        *,
        splice: Splice = None,
        tail: Tail = "upper",
        rtol: float = RTOL,
    ) -> Any:
        """Level that is exceeded once in so many periods on average.

        Args:
            periods: Return periods.
            events_per_period: Rows per period, on average.
            column: Name or position; a list of them; None for all.
            splice: ``"gpd"`` for a power tail beyond the trust point.
            tail: ``"lower"`` for the losses of signed columns.
            rtol: Relative standard error to integrate to.
        """
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).return_level(periods, events_per_period)

    def prob_exceed(
        self,
        column: Columns,
        x: Any,
        within: float,
        events_per_period: float,
        *,
        splice: Splice = None,
        tail: Tail = "upper",
        rtol: float = RTOL,
    ) -> Any:
        """Probability of at least one event above ``x`` within so many periods, the number of events being Poisson.

        Args:
            column: Name or position; a list of them; None for all.
            x: Thresholds.
            within: Number of periods.
            events_per_period: Rows per period, on average.
            splice: ``"gpd"`` for a power tail beyond the trust point.
            tail: ``"lower"`` for the losses of signed columns.
            rtol: Relative standard error to integrate to.
        """
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).prob_exceed(x, within, events_per_period)

    def layer(
        self,
        column: Columns,
        limit: Any,
        attachment: Any = 0.0,
        events_per_period: float | None = None,
        *,
        splice: Splice = None,
        tail: Tail = "upper",
        rtol: float = RTOL,
    ) -> Any:
        """Expected loss, standard deviation, frequency and return period of the layer ``limit`` over ``attachment``.

        Args:
            column: Name or position; a list of them; None for all.
            limit: Most that is paid per event; ``inf`` for no limit.
            attachment: Where the layer begins.
            events_per_period: Rows per period, on average; None for figures per event.
            splice: ``"gpd"`` for a power tail beyond the trust point.
            tail: ``"lower"`` for the losses of signed columns.
            rtol: Relative standard error to integrate to.
        """
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).layer(limit, attachment, events_per_period)

    def limited_expected_value(
        self, column: Columns, limit: Any, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """``E[min(X, limit)]``."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).limited_expected_value(limit)

    def increased_limit_factor(
        self,
        column: Columns,
        limit: Any,
        basic: float,
        *,
        splice: Splice = None,
        tail: Tail = "upper",
        rtol: float = RTOL,
    ) -> Any:
        """``E[min(X, limit)] / E[min(X, basic)]`` for a basic limit."""
        return self.losses(column, splice=splice, tail=tail, rtol=rtol).increased_limit_factor(limit, basic)

    def losses(
        self, column: Columns = None, *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Losses:
        """Columns as losses: many questions about the same ones, without naming them each time.

        Args:
            column: Name or position; a list of them; None for all.
            splice: ``"gpd"`` for a power tail beyond the trust point.
            tail: ``"lower"`` for the losses of signed columns.
            rtol: Relative standard error to integrate to.
        """
        fitted = Fitted.of(self)
        positions = questions.places(column, fitted.names)
        fitted = fitted.asked(tail, positions)
        return Losses([Column(fitted, position, splice) for position in positions], fitted.kind, rtol)

    def conditional_sample(
        self, n_samples: int, given: Mapping[Any, Any], random_state: Any = None, *, splice: Splice = None
    ) -> ConditionalSample:
        """Rows given conditions on columns, drawn without rejection, with the probability of the conditions.

        Latent vectors are drawn in proportion to the probability that they give the conditions, from many more weighted
        points than rows, and each column from its law given latent vector and condition: events of any rarity cost
        the same.

        Args:
            n_samples: Number of rows.
            given: A dict from column to ``(">", a)``, ``("<", b)`` or ``("between", a, b)``, all of which hold.
            random_state: Seed, or a numpy generator to draw one from; None gives other rows at every call.
            splice: ``"gpd"`` for power tails beyond the trust points.
        """
        fitted = Fitted.of(self, seed_of(random_state))
        n = questions.whole("n_samples", n_samples)
        decoder = fitted.vae.decoder
        lower = torch.where(decoder.lower > -math.inf, decoder.origin, -math.inf).tolist()
        conditions = read_conditions(given, fitted.names, lower, decoder.has_atom.tolist())
        counts = self.settings_.get("counts", [])
        conditions = [found.of_count() if found.column in counts else found for found in conditions]
        spliced, move = self._steady(splice), self._mover(splice)
        ranges = [_before_splice(condition, spliced) for condition in conditions]
        event = Event(fitted.vae, fitted.prior, ranges, fitted.seed)
        rows, parts = [], []
        for block, chance, effective, n_points in draw_given(event, n):
            moved = move(block)
            for condition in conditions:
                # the two inversions of a spliced tail agree to their last digits only
                moved[:, condition.column] = condition.within(moved[:, condition.column])
            rows.append(whole_counts(self, moved.numpy()))
            parts.append((chance, effective, n_points))
        table = from_matrix(np.concatenate(rows), self.columns_, fitted.kind)
        found = summary(parts)
        beyond = [fitted.beyond(c.column, np.array([c.low]), np.array(found[:1])) for c in conditions]
        return ConditionalSample(table, *found, bool(np.any(beyond)))

    def tail_certificate(
        self,
        X: Any = None,
        *,
        tail: Tail = "upper",
        sample_weight: Any = None,
        lower: Any = None,
        upper: Any = None,
        censored: Any = None,
        entry: Any = None,
        exit: Any = None,
    ) -> TailCertificate:
        """How far the tail of each column can be trusted: support, trust point, exceedance tests, verdict in words.

        Args:
            X: Rows the fit has not seen, in their order, to count exceedances in; None leaves these tests out.
            tail: ``"lower"`` for the losses of signed columns.
            sample_weight: How many rows each of them stands for, as in `fit`, like all that follow.
            lower: Lower ends of cells that are intervals.
            upper: Upper ends.
            censored: Which values are only known to be exceeded.
            entry: Value from which on a cell is seen.
            exit: Value up to which a cell is seen.
        """
        beside = {"lower": lower, "upper": upper, "censored": censored, "entry": entry, "exit": exit}
        return certify(self, None if X is None else SeenRows.of(self, X, sample_weight, beside), tail)

    def report(self, X: Any, path: str | os.PathLike[str] | None = None, **options: Any) -> "Report":
        """A tail-risk report: one printable page, with all its numbers as JSON beside it.

        Args:
            X: The table of the fit, or other rows of the same columns.
            path: Where to write the page, such as ``page.html``; the numbers are then in ``page.json``. None writes
                nothing: the result has both, and `write`.
            options: Those of `phvae.report.tail_report`, such as ``held_out=``, ``censored=`` and ``layers=``.
        """
        from phvae.report import tail_report

        found = tail_report(self, X, **options)
        if path is not None:
            found.write(path)
        return found

    def _mover(self, splice: Splice) -> Callable[[Tensor], Tensor]:
        """What moves rows ``(n, D)`` of the model to its spliced tails."""
        spliced = self._steady(splice)

        def move(rows: Tensor) -> Tensor:
            return torch.stack([law.move(rows[:, j]) for j, law in enumerate(spliced)], 1) if spliced else rows

        return move

    def _steady(self, splice: Splice) -> list[Spliced | TwoTails]:
        """The spliced law of every column; none without a splice."""
        fitted = Fitted.of(self)
        return [law for j in range(len(fitted.names)) if (law := Column(fitted, j, splice).spliced()) is not None]


def _before_splice(condition: Range, spliced: Sequence[Spliced | TwoTails]) -> Range:
    """The condition on the model's own draws that stands for one on spliced draws."""
    if not spliced:
        return condition
    law = spliced[condition.column]
    low, high = (
        float(law.origin_of(torch.tensor([end], dtype=torch.float64))) if math.isfinite(end) else end
        for end in (condition.low, condition.high)
    )
    return Range(condition.column, low, high)
