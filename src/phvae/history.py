"""What a training run reports: one record per epoch, and whether it was long enough."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from phvae import defaults

__all__ = ["EpochRecord", "History", "TrainingWarning", "training_note", "warn_of_short_training"]

# A run is short below this share of the length that a table of its size gets by default.
SHORT = 0.25
# A bound rises where its slope exceeds so many of its standard errors, and the rise this much, in nats per row.
SURE, MATERIAL = 4.0, 0.02
# Epochs that a rise is judged from at least.
FEWEST = 5


class TrainingWarning(UserWarning):
    """Training ended while the held-out bound was still rising."""


@dataclass(frozen=True)
class EpochRecord:
    """Means over the rows of one epoch, in nats per row, and what the epoch cost.

    `log_likelihood` is the expected log-likelihood under the posterior, `kl` the divergence from the prior and `elbo`
    their difference, whatever the weight of the divergence in the loss. They were taken while the weights moved;
    `validation_elbo` is that of the held-out rows at the end of the epoch, or None without such rows.
    """

    epoch: int
    elbo: float
    log_likelihood: float
    kl: float
    validation_elbo: float | None
    learning_rate: float
    seconds: float


@dataclass(frozen=True)
class History:
    """The epochs of a run in order, and how it ended.

    `best_epoch` is the epoch with the highest held-out ELBO, or None without held-out rows; `stopped_early` says that
    patience ran out.

    >>> history = History((EpochRecord(1, -2.0, -1.5, 0.5, None, 1e-3, 0.1),))
    >>> history.to_dict()["elbo"]
    [-2.0]
    """

    records: tuple[EpochRecord, ...]
    best_epoch: int | None = None
    stopped_early: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[EpochRecord]:
        return iter(self.records)

    def __getitem__(self, index: int) -> EpochRecord:
        return self.records[index]

    def to_dict(self) -> dict[str, list[float | None]]:
        """Columns by name, as any frame library takes them."""
        rows = [asdict(record) for record in self.records]
        return {field.name: [row[field.name] for row in rows] for field in fields(EpochRecord)}

    def late_rise(self) -> float:
        """By how many nats per row the held-out bound rose over the last third of the epochs, if it did; else 0.

        The rise of the line of least squares through them. It counts where it is far beyond its error and worth a run:
        a schedule that ends in small steps leaves no such rise, and a run that was stopped early had none.

        >>> records = [EpochRecord(e, 0.0, 0.0, 0.0, -10 / e, 1e-3, 0.1) for e in range(1, 31)]
        >>> round(History(tuple(records)).late_rise(), 2), History(tuple(records[:9])).late_rise()
        (0.16, 0.0)
        """
        late = [record.validation_elbo for record in self.records[len(self) - len(self) // 3 :]]
        known = [value for value in late if value is not None]
        n = len(known)
        if self.stopped_early or n < max(FEWEST, len(late)):
            return 0.0
        places, level = [place - (n - 1) / 2 for place in range(n)], math.fsum(known) / n
        spread = math.fsum(place**2 for place in places)
        slope = math.fsum(place * value for place, value in zip(places, known, strict=True)) / spread
        rest = math.fsum((value - level - slope * place) ** 2 for place, value in zip(places, known, strict=True))
        error = math.sqrt(rest / (n - 2) / spread)
        return slope * n if slope > SURE * error and slope * n > MATERIAL else 0.0


def training_note(model: Any) -> str | None:
    """A sentence where a fitted `phvae.PHVAE` was trained too short for its answers to be taken at their word."""
    history, settings = model.history_, model.settings_
    if not len(history):
        return None
    advice = "train longer: the errors of answers are those of their integrals, and know nothing of this"
    if rise := history.late_rise():
        return (
            f"The held-out bound was still rising when training ended, by {rise:.2g} nats per row over the last third "
            f"of the epochs; {advice}."
        )
    if model.epochs == "auto" or history.stopped_early:
        return None
    usual = settings | _by_default(settings, model.n_features_in_)
    share = len(history) / settings["epochs"] * _length(settings) / _length(usual)
    if share >= SHORT:
        return None
    return (
        f"Training was short: {len(history)} epochs, {share:.1%} of what a table of this size gets by default, in "
        f"steps times their size; {advice}."
    )


def warn_of_short_training(model: Any) -> None:
    """Warn after a fit of which nobody said how long it was to be, where it was too short."""
    if model.epochs == "auto" and (note := training_note(model)):
        warnings.warn(note.rstrip("."), TrainingWarning, stacklevel=3)


def _by_default(settings: dict[str, Any], n_columns: int) -> dict[str, Any]:
    return defaults.for_size(
        settings["n_rows"],
        n_columns,
        latent_dim=settings["latent_dim"],
        start=settings["start"],
        n_covariates=settings.get("layout", {}).get("n_covariates", 0),
    )


def _length(settings: dict[str, Any]) -> float:
    """Length of a run: its steps times their size; above 0 also where there is nothing to train."""
    steps = int(settings["epochs"]) * -(-int(settings["n_rows"]) // int(settings["batch_size"]))
    return max(1, steps) * float(settings["learning_rate"])
