"""Uncertainty of a fit: the same model fitted again to resampled rows, and the interval of any measure from these."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from phvae.assembly import build
from phvae.checkpoint import fingerprint
from phvae.observed import Cells
from phvae.observing import observed_rows
from phvae.preprocessing import PositiveScaler, column_names
from phvae.risk import questions
from phvae.risk.intervals import METHOD, interval
from phvae.risk.processes import in_processes
from phvae.risk.record import TailRecord
from phvae.risk.refit import BY_COLUMN, TRAINED, Refit, resampled, way_of
from phvae.settings import seed_of
from phvae.tables import Table
from phvae.weights import sample_weights

__all__ = ["Bootstrap", "bootstrap"]

Array = NDArray[np.float64]

# Resamples, where the user names no number: enough for the ends of a 95% interval; and where every one is a training.
RESAMPLES, TRAININGS = 400, 100
# Rows that a column needs beside those with its most frequent value: a resample that misses them all, which leaves
# nothing to fit, then comes once in 5e8.
FEWEST_ROWS = 20
# Share of the epochs of a fit that its refits get, for they begin where it ended.
SHARE_OF_EPOCHS = 0.25
# Groups of rows whose counts are kept; more would add noise to the acceleration and no more than that.
MOST_GROUPS = 5000
# What `Bootstrap.interval` puts in place of the same columns of an answer.
ENDS = ("standard_error", "low", "high")


@dataclass(frozen=True)
class Bootstrap:
    """A fitted model and its fits to resamples of the same table; made by `bootstrap`.

    model: The fitted model.
    models: One estimator per resample, each of which answers any question that the model does.
    counts: How often each resample holds each group of rows, shape ``(n, G)``; a group is a row of a small table.
    """

    model: Any
    models: Sequence[Any]
    counts: NDArray[np.int64]

    def interval(self, measure: Callable[[Any], Any], *, level: float = 0.95, method: str = METHOD) -> Any:
        """A measure of the model with its interval over the resamples.

        Args:
            measure: From a model to a frame of tail answers, to a number or to an array.
            level: Confidence, in (0, 1).
            method: One of `phvae.risk.intervals.METHODS`.

        Returns:
            For a frame the same frame, in which ``standard_error``, ``low`` and ``high`` are those of the fit: standard
            deviation over the resamples and ends of the interval. Otherwise a `phvae.risk.intervals.Interval`.
        """
        if not callable(measure):
            raise ValueError(
                f"measure = {measure!r:.60}; give a function of a model, such as lambda m: m.quantile(0, 0.99)"
            )
        answer = measure(self.model)
        again = np.stack([_values(measure(model)) for model in self.models])
        found = interval(_values(answer), again, level=level, method=method, counts=self.counts)
        if not _is_frame(answer):
            return found
        ends = {name: getattr(found, name) for name in ENDS}
        if isinstance(answer, np.ndarray):
            shown = answer.copy()
            for name, values in ends.items():
                shown[name] = values
            return shown
        frame = nw.from_native(answer, eager_only=True)
        series = [nw.new_series(name, values, backend=frame.implementation) for name, values in ends.items()]
        return frame.with_columns(*series).to_native()


def bootstrap(
    model: Any,
    X: Any,
    n: int | None = None,
    *,
    sample_weight: Any = None,
    covariates: Any = None,
    lower: Any = None,
    upper: Any = None,
    censored: Any = None,
    entry: Any = None,
    exit: Any = None,
    block_length: int = 1,
    epochs: int | None = None,
    random_state: Any = None,
    processes: int | None = None,
) -> Bootstrap:
    """Fit a model again to resamples of its rows, so that any measure gets an interval that the fit is uncertain by.

    The rows of a resample are drawn with replacement, as many as there are; what is known of the cells of a row, and
    its covariates, come with it. Of a model with covariates ask the model of a row, such as
    ``lambda model: model.at(row).quantile(0, 0.99)``. Lower ends of columns and numbers of phases
    stay; shares of exact zeros, records of the largest values and laws are those of the resample. Columns without a
    latent vector are fitted again by maximum likelihood from where they stand, all resamples together; networks are
    trained on from their weights, and models with signed columns, with chains in a bent time (``tail``) or that were
    never trained are fitted anew. The result follows from the seed, whatever the number of processes.

    Args:
        model: Fitted `phvae.PHVAE`.
        X: The table it was fitted to.
        n: Number of resamples; None takes 400, or 100 where each is fitted on its own.
        sample_weight: The weights it was fitted with, shape ``(n_rows,)``.
        covariates: The covariates it was fitted with.
        lower: What it was told of its cells, as in `phvae.PHVAE.fit`, like all that follow.
        upper: Upper ends.
        censored: Which values are only known to be exceeded.
        entry: Value from which on a cell is seen.
        exit: Value up to which a cell is seen.
        block_length: Neighbouring rows that are drawn together, for rows that depend on those before them: several
            times as many as a run of large values has.
        epochs: Passes over the rows for networks; None takes a quarter of those of the fit.
        random_state: Seed, or a numpy generator to draw one from; None takes that of the fit.
        processes: Processes that share the work; None takes one per core for networks and one otherwise.

    >>> from phvae import PHVAE
    >>> x = np.random.default_rng(0).exponential(5.0, (200, 1))
    >>> again = bootstrap(PHVAE(n_phases=2, random_state=0).fit(x), x, n=50)
    >>> answer = again.interval(lambda model: model.quantile(0, 0.9))
    >>> [round(float(answer[name][0]), 1) for name in ("low", "value", "high")]
    [11.9, 13.0, 15.2]
    """
    check_is_fitted(model)
    n = (RESAMPLES if way_of(model) == BY_COLUMN else TRAININGS) if n is None else questions.whole("n", n, 2)
    beside = {"lower": lower, "upper": upper, "censored": censored, "entry": entry, "exit": exit}
    values, weights = _rows_of_fit(model, X, sample_weight, covariates, beside)
    block_length = questions.whole("block_length", block_length)
    if block_length > len(values):
        raise ValueError(f"block_length = {block_length} and X has {len(values)} rows; give fewer than so many")
    passes = _epochs(model) if epochs is None else questions.whole("epochs", epochs)
    seed = model.settings_["seed"] if random_state is None else seed_of(random_state)
    drawn = [resampled(len(values), seed, b, block_length, weights) for b in range(n)]
    found = in_processes(model, values, drawn, weights=weights, seed=seed, epochs=passes, processes=processes)
    models = [_fitted(model, values[rows], part) for rows, part in zip(drawn, found, strict=True)]
    return Bootstrap(model, models, _counts(drawn, len(values), block_length, seed))


def _counts(drawn: Sequence[NDArray[np.int64]], n_rows: int, block_length: int, seed: int) -> NDArray[np.int64]:
    """How often each resample holds each group of rows: random groups, or neighbours where rows are drawn in blocks."""
    size = max(-(-n_rows // MOST_GROUPS), 1 if block_length == 1 else 2 * block_length)
    groups = np.arange(n_rows) // size
    if block_length == 1:
        # a table may be sorted, and groups of its largest values would be no sums of independent rows
        groups = np.random.default_rng([seed, n_rows, size]).permutation(groups)
    return np.stack([np.bincount(groups[rows], minlength=int(groups.max()) + 1) for rows in drawn])


def _rows_of_fit(
    model: Any, X: Any, sample_weight: Any, covariates: Any, beside: Mapping[str, Any]
) -> tuple[Array, Array | None]:
    """The rows and weights, which must be those of the fit: what is known of the cells, then the covariates."""
    rows, layout = observed_rows(model, X, beside)
    weights = sample_weights(sample_weight, len(rows))
    # the estimator's own module stands above this one in the house
    from phvae.in_memory import read_covariates

    given_beside = read_covariates(covariates, Table(rows, model.columns_, "numpy"), weights).numbers
    rows = np.concatenate((rows, given_beside), 1)
    parts = [np.require(part, requirements=["C", "W"]) for part in (rows, weights) if part is not None]
    if fingerprint(*map(torch.from_numpy, parts)) != model.fingerprint_:
        given = "X" if weights is None else "X with these weights"
        raise ValueError(
            f"{given} is not what the model was fitted to ({len(rows):,} rows given, {model.settings_['n_rows']:,} "
            "in the fit): a bootstrap draws from the rows of the fit, so give these, in their order, and what the fit "
            "had beside them: sample_weight, covariates, lower, upper, censored, entry, exit"
        )
    seen = Cells.of_rows(rows, layout)
    for j, name in enumerate(column_names(layout.n_columns, model.columns_)):
        lower, upper = seen.lower[:, j], seen.upper[:, j]
        sides = {"another value": (lower, upper)}
        if model.scaler_.loss_share_[j]:
            sides = {"another positive value": (lower, upper), "another negative value": (-upper, -lower)}
        for said, (low, high) in sides.items():
            others = _beside_the_commonest(low, high, weights)
            if others < FEWEST_ROWS:
                raise ValueError(
                    f"column {name!r} has {others:g} rows with {said} than 0 and its most frequent one, too few to "
                    f"draw from: a bootstrap takes at least {FEWEST_ROWS}"
                )
    return rows, weights


def _beside_the_commonest(lower: Array, upper: Array, weights: Array | None) -> float:
    """How many rows say of a column where it ends, and neither 0 nor what most of them say."""
    bounded = (upper < np.inf) & (upper > 0)
    mass = np.ones(len(lower)) if weights is None else weights
    if not bounded.any():
        return 0.0
    _, place = np.unique(np.stack((lower, upper), 1)[bounded], axis=0, return_inverse=True)
    total = np.bincount(place.reshape(-1), weights=mass[bounded])
    return float(total.sum() - total.max())


def _epochs(model: Any) -> int:
    """Passes of a refit: a share of those that the fit kept."""
    if way_of(model) != TRAINED:
        return 0
    history = model.history_
    return max(1, round(SHARE_OF_EPOCHS * (history.best_epoch or len(history))))


def _fitted(model: Any, rows: Array, refit: Refit) -> Any:
    """The estimator that a refit to these rows makes of a model."""
    origin, scale, has_atom = (refit.tensors[f"decoder.{name}"].numpy() for name in ("origin", "scale", "has_atom"))
    again = copy.copy(model)
    again.settings_ = model.settings_ | refit.settings
    losses = np.array(again.settings_.get("loss_share", np.zeros(len(scale))))
    again.vae_ = build(again.settings_, PositiveScaler.of(origin, scale, np.where(has_atom, 0.5, 0.0), losses))
    again.vae_.load_state_dict(refit.tensors)
    again.vae_.eval()
    again.scaler_ = PositiveScaler.of(origin, scale, refit.zero_share, losses)
    seen = Cells.of_rows(rows, model.vae_.layout).seen(again.settings_.get("counts", ()), losses > 0)
    again.tail_record_ = TailRecord.of(seen, None, losses > 0)
    return again


def _is_frame(answer: Any) -> bool:
    if isinstance(answer, np.ndarray):
        return answer.dtype.names is not None and "value" in answer.dtype.names
    return isinstance(answer, object) and nw.dependencies.is_into_dataframe(answer)


def _values(answer: Any) -> Array:
    """The numbers of an answer."""
    if _is_frame(answer):
        values = answer["value"] if isinstance(answer, np.ndarray) else nw.from_native(answer)["value"].to_numpy()
        return np.asarray(values, dtype=np.float64)
    try:
        return np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"measure gives a {type(answer).__name__}; let it give a frame of tail answers, a number or an array"
        ) from None
