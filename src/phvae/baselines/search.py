"""Settings chosen by rows held out of the training data, in the same small search for every model."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from phvae.training import TrainingError

__all__ = ["Choice", "Trial", "compare", "objective", "search"]

Array = NDArray[np.float64]

LEARNING_RATES = (5e-4, 2e-3, 8e-3)
# Epochs as shares of those that a model takes by itself; the whole is the budget, and no model gets more.
BUDGETS = (1 / 3, 1.0)
HELD_OUT = 0.2


class Searchable(Protocol):
    """A model whose settings can be compared by held-out rows."""

    def resolved(self, n_rows: int, n_columns: int) -> dict[str, Any]:
        """The values of all settings for a table of this size."""

    def fit(self, x: Array, seed: int = 0) -> Self:
        """Learn from rows."""

    def objective(self, x: Array, seed: int = 0) -> float:
        """What training maximises, as a mean over rows not seen."""


@dataclass(frozen=True)
class Trial:
    """One setting and how it did.

    `objective` is the score on the held-out rows, in nats per row where it is what training maximises; None if the run
    diverged. It compares settings of one model; between models it may be a bound of another quantity.
    """

    settings: dict[str, Any]
    objective: float | None
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The setting with the best held-out objective, and all that were tried."""

    settings: dict[str, Any]
    trials: tuple[Trial, ...]

    @property
    def n_diverged(self) -> int:
        """How many of the runs diverged."""
        return sum(trial.objective is None for trial in self.trials)


def objective(model: Searchable, out: Array, seed: int) -> float:
    """What training maximises, on rows not seen."""
    return model.objective(out, seed=seed)


def search(
    make: Callable[..., Searchable],
    x: Array,
    *,
    seed: int = 0,
    learning_rates: Sequence[float] = LEARNING_RATES,
    budgets: Sequence[float] = BUDGETS,
    held_out: float = HELD_OUT,
) -> Choice:
    """Choose step size and epochs of a model by rows held out of the training data. Test rows are never seen.

    Every pair of a step size and a share of the epochs is one fit. A model that takes no epochs by itself has nothing
    to choose and keeps its own values.

    Args:
        make: Makes an unfitted model from ``learning_rate`` and ``epochs``; a class, or a partial of one.
        x: All training rows, shape ``(n, D)``.
        seed: Seed of the rows held out, of all fits and of the noise of the objective.
        learning_rates: Step sizes to try.
        budgets: Shares of the model's own number of epochs to try.
        held_out: Share of the rows to hold out.

    Returns:
        The best setting, to fit all rows with and to be written beside the result.

    Raises:
        TrainingError: Every run diverged.
    """
    epochs = make().resolved(len(x) - round(held_out * len(x)), x.shape[1])["epochs"]
    candidates: list[dict[str, Any]] = [{}]
    if epochs:
        lengths = sorted({max(1, round(share * epochs)) for share in budgets})
        candidates = [{"learning_rate": rate, "epochs": length} for rate in learning_rates for length in lengths]
    return compare(make, x, candidates, seed=seed, held_out=held_out)


def compare(
    make: Callable[..., Searchable],
    x: Array,
    candidates: Sequence[dict[str, Any]],
    *,
    score: Callable[[Any, Array, int], float] = objective,
    seed: int = 0,
    held_out: float = HELD_OUT,
) -> Choice:
    """Fit a model with each of several settings, and score each on the same rows held out of the training data.

    The smallest value of every column is never held out: where a model estimates the lower end of its support, a
    held-out row below it would have probability zero whatever the setting.

    Args:
        make: Makes an unfitted model from any of the settings.
        x: All training rows, shape ``(n, D)``.
        candidates: Settings to try.
        score: Of a fitted model, held-out rows and a seed, the larger the better: `objective` says nothing where a
            setting changes what it measures.
        seed: Seed of the rows held out, of all fits and of the score.
        held_out: Share of the rows to hold out.

    Raises:
        TrainingError: Every run diverged.
    """
    kept, out = _hold_out(x, held_out, seed)
    trials = []
    for settings in candidates:
        began = time.perf_counter()
        try:
            value = score(make(**settings).fit(kept, seed=seed), out, seed)
        except TrainingError:
            value = -np.inf
        finite = bool(np.isfinite(value))
        trials.append(Trial(settings, value if finite else None, time.perf_counter() - began))
    scores = [-np.inf if trial.objective is None else trial.objective for trial in trials]
    best = int(np.argmax(scores))
    if scores[best] == -np.inf:
        raise TrainingError(f"all {len(trials)} runs of the search diverged, with {list(candidates)}")
    return Choice(trials[best].settings, tuple(trials))


def _hold_out(x: Array, share: float, seed: int) -> tuple[Array, Array]:
    """Rows to fit and rows to compare settings by."""
    movable = np.setdiff1d(np.arange(len(x)), x.argmin(0))
    out = np.random.default_rng([seed, len(x)]).permutation(movable)[: round(share * len(x))]
    kept = np.setdiff1d(np.arange(len(x)), out)
    return x[kept], x[out]
