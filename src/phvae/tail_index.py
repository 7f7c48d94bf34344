"""The index of a power tail: its estimate, an interval, and which moments it leaves."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from phvae.distributions.zero_atom import ZeroAtom
from phvae.preprocessing import column_names

__all__ = ["TailIndex", "tail_index"]

# Latent points whose tails say how much the index moves with the latent vector.
POINTS = 4096


class TailIndex(NamedTuple):
    """Index ``ξ`` of a tail ``P(X > x) ~ x^(-1/ξ)``: moments of order below ``1/ξ`` exist.

    column: Name of the column.
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


def tail_index(model: Any, column: str | int, confidence: float = 0.95) -> TailIndex:
    """Index of the power tail of a column, with an interval, for a model with ``tail="pareto"``.

    Args:
        model: Fitted estimator.
        column: Name or position.
        confidence: Of the interval, in (0, 1).
    """
    check_is_fitted(model)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence!r}; give a number in (0, 1), such as 0.95")
    found = model.settings_.get("tail_index")
    if "given" in model.settings_:
        raise ValueError("the tail index is estimated without covariates; ask a model fitted without them")
    if found is None:
        tail = model.settings_.get("tail", "exponential")
        raise ValueError(f"tail = {tail!r} leaves no tail index to estimate; fit with tail='pareto' and start='fitted'")
    names = column_names(model.n_features_in_, model._columns)
    if column not in names and not (isinstance(column, int) and 0 <= column < len(names)):
        raise ValueError(f"there is no column {column!r}; give one of {names} or its position")
    position = column if isinstance(column, int) else names.index(column)
    estimate, error = found[position]
    low, high = 0.0, math.inf
    if error is not None:
        reach = float(stats.norm.isf((1 - confidence) / 2)) * error
        low, high = estimate * math.exp(-reach), estimate * math.exp(min(reach, 700.0))
    return TailIndex(names[position], estimate, low, high, confidence, _given_latent(model, position))


def _given_latent(model: Any, position: int) -> tuple[float, float]:
    vae = model._exact("cpu")
    with torch.no_grad():
        z = vae.prior.sample(POINTS, torch.Generator().manual_seed(0))
        law: Any = vae.decoder.column(z, position)
    excess: Any = law.law if isinstance(law, ZeroAtom) else law
    low, high = np.quantile(excess.base.tail_index.numpy(), [0.05, 0.95])
    return float(low), float(high)
