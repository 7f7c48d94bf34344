"""A live bar of a training run on standard error; nothing at all where that is no terminal."""

import sys
import time
from types import TracebackType
from typing import Self


class TrainingBar:
    """Context manager that shows loss, divergence, validation, rows per second and time left.

    Args:
        n_steps: Steps of the whole run.
        batch_size: Rows per step.
        done: Steps that an earlier run has done.
        shown: Show the bar; ``None`` shows it when standard error is a terminal.
    """

    SECONDS_BETWEEN_UPDATES = 0.2

    def __init__(self, n_steps: int, *, batch_size: int, done: int = 0, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._due = 0.0
        self._began, self._done, self._batch_size = time.monotonic(), done, batch_size
        if self._shown:
            # a run that shows nothing, on a compute node say, does without
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            text = "epoch {task.fields[epoch]}  loss {task.fields[loss]:.4f}  KL {task.fields[kl]:.3f} nats"
            columns = (
                TextColumn(text + "{task.fields[validation]}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:,.0f} rows/s"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False)
            unknown = float("nan")
            self._task = self._bar.add_task(
                "", total=n_steps, completed=done, epoch=0, loss=unknown, kl=unknown, validation="", rate=0.0
            )

    def __enter__(self) -> Self:
        if self._shown:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._bar.refresh()
            self._bar.stop()

    @property
    def due(self) -> bool:
        """Whether the eye is ready for new numbers: keeps the cost of the bar out of the training step."""
        return self._shown and time.monotonic() >= self._due

    def update(self, step: int, *, epoch: int, loss: float, kl: float) -> None:
        """Show the state after ``step``."""
        if self._shown:
            now = time.monotonic()
            self._due = now + self.SECONDS_BETWEEN_UPDATES
            rate = (step - self._done) * self._batch_size / (now - self._began)
            self._bar.update(self._task, completed=step, epoch=epoch, loss=loss, kl=kl, rate=rate, refresh=True)

    def validated(self, elbo: float | None) -> None:
        """Show a held-out ELBO from now on."""
        if self._shown and elbo is not None:
            self._bar.update(self._task, validation=f"  held-out ELBO {elbo:.4f}")
