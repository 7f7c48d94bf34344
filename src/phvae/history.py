"""What a training run reports: one record per epoch."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

__all__ = ["EpochRecord", "History"]


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
