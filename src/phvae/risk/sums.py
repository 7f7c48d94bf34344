"""Sums of columns: every question about a loss, and what the columns have to do with the answer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phvae.risk import questions
from phvae.risk.estimate import SUM_RTOL, Estimate, to_tolerance
from phvae.risk.losses import Block, Losses, answer_frame
from phvae.risk.sources import Fitted, Splice, tensor
from phvae.risk.sum_source import Sum, SumLaw
from phvae.risk.turned import Tail

__all__ = ["SumAnswers", "SumOfColumns"]

Array = NDArray[np.float64]

MEASURES = ("cvar", "var")


class SumOfColumns(Losses):
    """The law of ``Σ_j weight_j X_j``: every method of `Losses`, the columns' shares in a tail, and diversification.

    Args:
        source: The sum.
        kind: Kind of table that answers are.
        rtol: Relative standard error to integrate to.
    """

    def __init__(self, source: Sum, kind: Any, rtol: float) -> None:
        super().__init__([source], kind, rtol)
        self.source = source

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source.name})"

    def allocation(self, level: Any) -> Any:
        """Euler's allocation of the expected shortfall: ``E[weight_j X_j | X in its worst share 1 - level]`` by column.

        The rows of a level add up to the shortfall of the sum at that level, to the last digits. A row per column and
        level, named in ``column`` and ``level``.
        """
        asked = questions.levels("level", level)
        names = [column.name for column in self.source.columns]
        build = self.source.at(probability=float((1 - asked).min()))

        def evaluate(n: int) -> tuple[Estimate, NDArray[np.bool_]]:
            law, share = build(n), tensor(1 - asked)
            assert isinstance(law, SumLaw)
            quantile = law.isf(share)
            parts = law.tail_parts(quantile)
            # where the level falls into an atom at zero the rest of the worst share is zero in every column
            whole = quantile * share + law.log_excess(quantile).exp()
            sizes = parts.abs()
            parts = parts + (whole - parts.sum(-1))[..., None] * sizes / sizes.sum(-1, keepdim=True)
            values = (parts / share[:, None]).transpose(1, 2).flatten(1)
            return Estimate.of(values), self.source.extrapolated(law, quantile)

        estimate, beyond = self._integrated(evaluate, len(asked), len(names))
        labels: dict[str, Any] = {
            "column": [name for name in names for _ in asked],
            "level": np.tile(asked, len(names)),
        }
        return answer_frame([Block(labels, estimate, np.tile(beyond, len(names)))], self.kind)

    def diversification(self, level: Any, measure: str = "cvar") -> Any:
        """What summing saves: rows ``standalone`` (the columns' measures added up), ``sum``, ``benefit``, ``ratio``.

        ``benefit = standalone - sum``, never negative for the expected shortfall, and ``ratio = benefit / standalone``.

        Args:
            level: Levels.
            measure: ``"cvar"`` or ``"var"``.
        """
        asked = questions.levels("level", level)
        if measure not in MEASURES:
            raise ValueError(f"measure = {measure!r}; give one of {list(MEASURES)}")
        rarest = float((1 - asked).min())
        sources, weights = [self.source, *self.source.columns], [1.0, *self.source.weights]
        builds = [source.at(probability=rarest) for source in sources]

        def evaluate(n: int) -> tuple[Estimate, NDArray[np.bool_]]:
            laws = [build(n) for build in builds]
            share = tensor(1 - asked)
            own = [law.tail_mean(share) if measure == "cvar" else law.isf(share) for law in laws]
            total, alone = own[0], torch.zeros_like(own[0])
            for w, value in zip(weights[1:], own[1:], strict=True):
                alone = alone + w * value
            benefit = alone - total
            beyond = self.source.extrapolated(laws[0], total)
            return Estimate.of(torch.cat((alone, total, benefit, benefit / alone), 1)), beyond

        estimate, beyond = self._integrated(evaluate, len(asked), 4)
        names = ("standalone", "sum", "benefit", "ratio")
        labels: dict[str, Any] = {
            "column": [self.source.name] * 4 * len(asked),
            "measure": np.repeat(np.array(names, dtype=object), len(asked)),
            "level": np.tile(asked, 4),
        }
        return answer_frame([Block(labels, estimate, np.tile(beyond, 4))], self.kind)

    def _integrated(
        self, evaluate: Callable[[int], tuple[Estimate, Any]], n_asked: int, n_parts: int
    ) -> tuple[Estimate, Any]:
        """To the tolerance, beside the largest part of the same question: a part may be next to nothing."""

        def relative(n: int) -> tuple[Estimate, tuple[Estimate, Any]]:
            estimate, extra = evaluate(n)
            size = np.tile(np.abs(estimate.value.reshape(n_parts, n_asked)).max(0), n_parts)
            return estimate._replace(standard_error=estimate.standard_error / size), (estimate, extra)

        found: tuple[Estimate, Any] = to_tolerance(relative, self.rtol, logs=True, most=self.source.most)[1]
        return found


class SumAnswers:
    """Sums of columns of a fitted model."""

    def sum(
        self,
        columns: Any = None,
        weights: Any = None,
        *,
        splice: Splice = None,
        tail: Tail = "upper",
        rtol: float = SUM_RTOL,
    ) -> Any:
        """The law of a weighted sum of columns, as a loss of which everything can be asked that can be of a column.

        Given the latent vector the columns are independent. Where they are chains, the product of their transforms is
        inverted on a path through its saddle, exactly to about eight digits, and integrated over the latent vector as
        a column is. For ``tail`` other than ``"exponential"`` and for spliced tails all columns but the largest are
        drawn as well; such sums cost more, and rarely meet a tolerance below 1e-3. The law of a sum costs far more than
        that of a column, so its tolerance is a hundredth unless another is given.

        Args:
            columns: Name or position; a list of them; None for all.
            weights: One positive number per column, or a dict from column to number; None for 1 each.
            splice: ``"gpd"`` for power tails beyond the trust points.
            tail: ``"lower"`` for the losses of signed columns: the sum of minus the columns. In a dict from column to
                tail those with ``"lower"`` are subtracted, as columns are that were sold.
            rtol: Relative standard error to integrate to.

        Returns:
            A `phvae.risk.sums.SumOfColumns`: ``sum().cvar(0.99)``, ``.quantile``, ``.sf``, ``.layer`` and all other
            methods of `phvae.risk.losses.Losses`, with ``.allocation(level)`` and ``.diversification(level)``.
        """
        fitted = Fitted.of(self)
        positions = questions.places(columns, fitted.names, "columns")
        fitted = fitted.asked(tail, positions)
        return SumOfColumns(
            Sum(fitted, positions, questions.weights(weights, positions, fitted.names), splice), fitted.kind, rtol
        )
