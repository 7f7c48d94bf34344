"""Joint tails of several columns: chances that all are exceeded, quantiles on a ray, co-exceedance, Kendall's tau."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.risk import questions
from phvae.risk.conditional import Event
from phvae.risk.conditions import Range
from phvae.risk.estimate import RTOL, Estimate, to_tolerance
from phvae.risk.law import Pooled
from phvae.risk.losses import Block, Losses, answer_frame
from phvae.risk.quadrature import REPLICATES, uniform_points
from phvae.risk.ray import Ray
from phvae.risk.sources import Column, Fitted, Splice, tensor
from phvae.risk.turned import Tail

__all__ = ["JointAnswers", "all_exceeded"]

Array = NDArray[np.float64]

# Points per replicate of the quantiles that dependence is measured at: their error must not be seen beside its own.
QUANTILE_POINTS = 2**11
# Headings that a column named like one must not take.
HEADINGS = ("value", "standard_error", "low", "high", "extrapolated")


def all_exceeded(fitted: Fitted, thresholds: Mapping[int, float], rtol: float) -> Estimate:
    """Log of the probability that every column exceeds its threshold; columns by position."""
    ranges = [Range(position, x, torch.inf) for position, x in thresholds.items()]
    event = Event(fitted.vae, fitted.prior, ranges, fitted.seed)

    def evaluate(n: int) -> tuple[Estimate, None]:
        points = event.proposal.points(n)
        chance = event.log_chance(points.z.flatten(0, 1)).view_as(points.log_weight)
        return Estimate.of_logs(torch.logsumexp(points.log_weight + chance, 1, keepdim=True)), None

    estimate: Estimate = to_tolerance(evaluate, rtol, logs=True)[0]
    return estimate


class JointAnswers:
    """Joint tail answers of a fitted model, as frames like those of one column."""

    def joint_sf(
        self, thresholds: Mapping[Any, Any], *, splice: Splice = None, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """``P(X_a > u_a, X_b > u_b, ...)`` of the columns named: that all thresholds are exceeded.

        Args:
            thresholds: A dict from column to threshold, or to a list of thresholds, all of the same length: then there
                is a row for each place in the lists.
            splice: ``"gpd"`` for power tails beyond the trust points.
            tail: ``"lower"`` for losses of signed columns, or a dict from column to tail.
            rtol: Relative standard error to integrate to.
        """
        fitted = Fitted.of(self)
        if not isinstance(thresholds, Mapping) or not thresholds:
            raise ValueError(f"thresholds = {thresholds!r:.80}; give a dict, such as {{{fitted.names[0]!r}: 100}}")
        positions = questions.places(list(thresholds), fitted.names, "thresholds")
        fitted = fitted.asked(tail, positions)
        columns = [Column(fitted, position, splice) for position in positions]
        asked = [
            questions.thresholds(f"thresholds[{name!r}]", value, column.lower)
            for (name, value), column in zip(thresholds.items(), columns, strict=True)
        ]
        if len({len(values) for values in asked}) > 1:
            raise ValueError(
                f"thresholds has lists of {[len(values) for values in asked]} numbers; make them equally long"
            )
        rtol = questions.checked_rtol(rtol)
        own = np.stack([column.own_points(values) for column, values in zip(columns, asked, strict=True)], 1)
        logs = [all_exceeded(fitted, dict(zip(positions, row, strict=True)), rtol) for row in own]
        joint = joined(logs).exp()
        parts = [fitted.beyond(j, values, joint.value) for j, values in zip(positions, asked, strict=True)]
        beyond = np.any(parts, axis=0)
        labels = {label(column.name): values for column, values in zip(columns, asked, strict=True)}
        return answer_frame([Block(labels, joint, beyond)], fitted.kind)

    def joint_quantile(
        self, direction: Mapping[Any, float], probability: Any, *, tail: Tail = "upper", rtol: float = RTOL
    ) -> Any:
        """How far out on a ray all columns are exceeded with a probability: ``P(X_j > t · direction_j for all j) = p``.

        Args:
            direction: A dict from column to a positive number.
            probability: Joint exceedance probabilities.
            tail: ``"lower"`` for losses of signed columns, or a dict from column to tail.
            rtol: Relative standard error to integrate to.

        Returns:
            A frame with ``value = t``.

        >>> from phvae import PHVAE
        >>> x = np.random.default_rng(0).exponential([1.0, 2.0], (200, 2))
        >>> model = PHVAE(n_phases=1, origin=0, latent_dim=0, epochs=0, random_state=0).fit(x)
        >>> far = model.joint_quantile({0: 1.0, 1: 2.0}, 0.01)["value"][0]
        >>> np.allclose(model.joint_sf({0: far, 1: 2 * far})["value"], 0.01)
        True
        """
        fitted = Fitted.of(self)
        if not isinstance(direction, Mapping) or not direction:
            raise ValueError(f"direction = {direction!r:.80}; give a dict, such as {{{fitted.names[0]!r}: 1.0}}")
        positions = questions.places(list(direction), fitted.names, "direction")
        fitted = fitted.asked(tail, positions)
        units = np.array([questions.one_positive(f"direction[{name!r}]", w) for name, w in direction.items()])
        ray = Ray([Column(fitted, position) for position in positions], units)
        asked = questions.levels("probability", probability)
        most = float(all_exceeded(fitted, dict.fromkeys(positions, 0.0), questions.checked_rtol(rtol)).exp().value[0])
        for p in asked:
            if p >= most:
                raise ValueError(
                    f"probability = {p:g}: all columns are positive together only with {most:g}; give less"
                )
        return Losses([ray], fitted.kind, rtol).isf(asked)

    def coexceedance(self, level: Any, columns: Any = None, *, tail: Tail = "upper", rtol: float = RTOL) -> Any:
        """For every pair of columns the probability that both exceed their own quantile at ``level``."""
        return self._pairs(level, columns, tail, rtol, lambda joint, _: joint)

    def chi(self, level: Any, columns: Any = None, *, tail: Tail = "upper", rtol: float = RTOL) -> Any:
        """The tail dependence curve of every pair: ``chi(q) = P(both exceed their quantile at q) / (1 - q)``.

        Its limit for ``q -> 1`` is 0 where extremes of two columns come one at a time in the end.
        """

        def conditional(joint: Estimate, level: Array) -> Estimate:
            return joint._replace(value=joint.value / (1 - level), standard_error=joint.standard_error / (1 - level))

        return self._pairs(level, columns, tail, rtol, conditional)

    def _pairs(
        self, level: Any, columns: Any, tail: Tail, rtol: float, shown: Callable[[Estimate, Array], Estimate]
    ) -> Any:
        fitted, asked = Fitted.of(self), questions.levels("level", level)
        positions = questions.places(columns, fitted.names, "columns")
        if len(positions) < 2:
            raise ValueError(f"columns = {columns!r}: dependence takes at least two columns")
        fitted = fitted.asked(tail, positions)
        rtol = questions.checked_rtol(rtol)
        quantiles = {}
        for position in positions:
            column = Column(fitted, position)
            law = Pooled(column.between(1 - asked)(QUANTILE_POINTS))
            quantiles[position] = law.icdf(tensor(asked))[0].numpy()
        blocks = []
        for i, j in combinations(positions, 2):
            logs = [all_exceeded(fitted, {i: quantiles[i][k], j: quantiles[j][k]}, rtol) for k in range(len(asked))]
            joint = joined(logs).exp()
            labels: dict[str, Any] = {
                "column": [fitted.title(i)] * len(asked),
                "other": [fitted.title(j)] * len(asked),
                "level": asked,
            }
            beyond = fitted.beyond(i, quantiles[i], 1 - asked) | fitted.beyond(j, quantiles[j], 1 - asked)
            blocks.append(Block(labels, shown(joint, asked), beyond))
        return answer_frame(blocks, fitted.kind)

    def kendall_tau(self, columns: Any = None, *, rtol: float = RTOL) -> Any:
        """Kendall's rank correlation of every pair: concordant minus discordant chances of two independent rows.

        Ties, which only exact zeros make, count as neither. The tolerance is absolute: a correlation may be zero.
        """
        fitted = Fitted.of(self)
        positions = questions.places(columns, fitted.names, "columns")
        if len(positions) < 2:
            raise ValueError(f"columns = {columns!r}: dependence takes at least two columns")
        pairs = list(combinations(range(len(positions)), 2))

        def evaluate(n: int) -> tuple[Estimate, None]:
            signs = concordance(fitted, positions, n)
            products = torch.stack([(signs[..., i] * signs[..., j]).mean(-1) for i, j in pairs], 1)
            return Estimate.of(products), None

        estimate, _ = to_tolerance(evaluate, questions.checked_rtol(rtol), logs=True)
        names = [fitted.names[position] for position in positions]
        labels = {"column": [names[i] for i, _ in pairs], "other": [names[j] for _, j in pairs]}
        return answer_frame([Block(labels, estimate, np.zeros(len(pairs), dtype=bool))], fitted.kind)


def concordance(fitted: Fitted, positions: Sequence[int], n: int) -> Tensor:
    """``E[sign(X - X') | X', z]`` of columns of one row given another, ``(R, n, k)``: their products average to tau.

    Given both latent vectors the columns are independent, so the expected sign of a pair is the product of two expected
    signs, and the second row needs to be drawn only to compare with.
    """
    prior, d = fitted.prior, fitted.vae.latent_dim
    signs = []
    for replicate in range(REPLICATES):
        uniform = uniform_points(2 * (d + 1) + len(positions), n, (fitted.seed, 0, replicate))
        first, second = prior.place(uniform[:, : d + 1]), prior.place(uniform[:, d + 1 : 2 * d + 2])
        columns = []
        with torch.no_grad():
            for k, position in enumerate(positions):
                x = fitted.vae.decoder.column(second, position).icdf(uniform[:, 2 * d + 2 + k, None])
                law = fitted.vae.decoder.column(first, position)
                # ties at an exact zero count as neither: only losses are below it
                before = torch.where(x == 0, -torch.finfo(torch.float64).tiny, x)
                below = law.log_cdf(before).exp()
                columns.append((law.log_sf(x).exp() - below)[:, 0])
        signs.append(torch.stack(columns, -1))
    return torch.stack(signs)


def joined(parts: Sequence[Estimate]) -> Estimate:
    """Estimates one after the other."""
    values, errors = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return Estimate(values, errors, min(part.replicates for part in parts))


def label(name: Any) -> str:
    """A column's name as a heading beside those of an answer."""
    return f"column {name}" if str(name) in HEADINGS else str(name)
