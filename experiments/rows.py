"""Result rows on disk: one CSV line per number, appended as a run finishes, whole jobs or nothing."""

import csv
import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from experiments.frame import Job

# The last line of every job: a job without it was cut off, and is done again.
LAST = "seconds"


class Row(NamedTuple):
    """One number: which budget, experiment, data, protocol, seed and model, what was measured, and its value."""

    budget: str
    experiment: str
    data: str
    protocol: str
    seed: int
    model: str
    metric: str
    value: float

    @property
    def job(self) -> Job:
        return Job(self.experiment, self.data, self.protocol, self.seed, self.model)


def load(path: Path) -> list[Row]:
    """All rows of complete jobs."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        found = [_row(record) for record in csv.DictReader(file)]
    rows = [row for row in found if row is not None]
    complete = {(row.budget, row.job) for row in rows if row.metric == LAST}
    return [row for row in rows if (row.budget, row.job) in complete]


def mend(path: Path, *, without: Callable[[Row], bool] = lambda row: False) -> list[Row]:
    """The rows of a file; what a killed run left half written is taken out of it, and rows that are to be done anew."""
    rows = [row for row in load(path) if not without(row)]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(",".join(Row._fields) + "\n" + text(rows), encoding="utf-8")
    os.replace(beside, path)
    return rows


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add the rows of one job, and see them on the disk."""
    with path.open("a", newline="", encoding="utf-8") as file:
        file.write(text(rows))
        file.flush()
        os.fsync(file.fileno())


def text(rows: Iterable[Row]) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerows((*row[:-1], f"{row.value:.8g}") for row in rows)
    return lines.getvalue()


def _row(record: dict[str, str]) -> Row | None:
    try:
        return Row(**{**record, "seed": int(record["seed"]), "value": float(record["value"])})  # type: ignore[arg-type]
    except (TypeError, ValueError, KeyError):
        return None
