"""The index of a power tail: its estimate, an interval, and which moments it leaves."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from phvae.fitted import unconditional
from phvae.preprocessing import column_names
from phvae.signed_decoders import chain_of

__all__ = ["TailIndex", "tail_index"]

# Latent points whose tails say how much the index moves with the latent vector.
POINTS = 4096


class TailIndex(NamedTuple):
    """Index ``ξ`` of a tail ``P(X > x) ~ x^(-1/ξ)``: moments of order below ``1/ξ`` exist.

    column: Name of the column, with a minus before it where that is its lower tail.
    estimate: Of the column on its own, by maximum likelihood.
    low, high: Ends of the interval, from the observed information on the scale of ``log ξ``; 0 and inf where the rows
        do not tell the index from its neighbours.
    confidence: Of the interval.
    given_latent: The 5% and 95% quantiles of the index over the latent vector; the estimate twice without one. The
        higher one outlasts the lower far enough out.
    """

    column: str
    estimate: float
    low: float
    high: float
    confidence: float
    given_latent: tuple[float, float]

    @property
    def moments(self) -> str:
        """Which of mean and variance exist, as far as the interval says."""
        if self.low >= 1:
            return "mean and variance are infinite"
        mean = "the mean is finite" if self.high < 1 else "the mean may be infinite"
        spread = "is infinite" if self.low >= 0.5 else "is finite" if self.high < 0.5 else "may be infinite"
        return f"{mean}, the variance {spread}"

    def __str__(self) -> str:
        return (
            f"tail index of {self.column!r}: {self.estimate:.3g} ({self.confidence:.0%} interval {self.low:.3g} to "
            f"{self.high:.3g}, asymptotic); {self.moments}"
        )


def tail_index(
    model: Any, column: str | int, confidence: float = 0.95, *, tail: Literal["upper", "lower"] = "upper"
) -> TailIndex:
    """Index of the power tail of a column, with an interval, for a model with ``tail="pareto"``.

    Args:
        model: Fitted estimator.
        column: Name or position.
        confidence: Of the interval, in (0, 1).
        tail: ``"lower"`` for the losses of a signed column.
    """
    check_is_fitted(model)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence!r}; give a number in (0, 1), such as 0.95")
    if tail not in ("upper", "lower"):
        raise ValueError(f"tail = {tail!r}; give 'upper' or 'lower'")
    losses = tail == "lower"
    found = model.settings_.get("tail_index")
    if "given" in model.settings_:
        raise ValueError("the tail index is estimated without covariates; ask a model fitted without them")
    if found is None:
        kind = model.settings_.get("tail", "exponential")
        raise ValueError(f"tail = {kind!r} leaves no tail index to estimate; fit with tail='pareto' and start='fitted'")
    names = column_names(model.n_features_in_, model.columns_)
    if column not in names and not (isinstance(column, int) and 0 <= column < len(names)):
        raise ValueError(f"there is no column {column!r}; give one of {names} or its position")
    position = column if isinstance(column, int) else names.index(column)
    if losses:
        found = model.settings_.get("tail_index_losses", [None] * len(names))
        if found[position] is None:
            raise ValueError(f"tail = 'lower': column {names[position]!r} has no losses and one tail, the upper")
    estimate, error = found[position]
    low, high = 0.0, math.inf
    if error is not None:
        reach = float(stats.norm.isf((1 - confidence) / 2)) * error
        low, high = estimate * math.exp(-reach), estimate * math.exp(min(reach, 700.0))
    name = f"-{names[position]}" if losses else names[position]
    return TailIndex(name, estimate, low, high, confidence, _given_latent(model, position, losses))


def _given_latent(model: Any, position: int, losses: bool) -> tuple[float, float]:
    vae = unconditional(model)
    with torch.no_grad():
        z = vae.prior.sample(POINTS, torch.Generator().manual_seed(0))
        excess = chain_of(vae.decoder.column(z, position), losses=losses)
    low, high = np.quantile(excess.tail_index.numpy(), [0.05, 0.95])
    return float(low), float(high)
