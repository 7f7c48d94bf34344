"""A CSV file of results that is written as fits finish: a run that was stopped goes on where it stopped."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

Job = TypeVar("Job")
Rows = list[dict[str, str]]


def read(path: Path) -> Rows:
    """The rows of a file, none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@contextmanager
def appending(path: Path, fields: Sequence[str]) -> Iterator[Callable[[Iterable[Mapping[str, Any]]], None]]:
    """What writes rows with these fields to the end of a file, each lot of them at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fields, lineterminator="\n")
        if not file.tell():
            table.writeheader()

        def write(rows: Iterable[Mapping[str, Any]]) -> None:
            table.writerows(rows)
            file.flush()

        yield write


def run(
    path: Path,
    fields: Sequence[str],
    jobs: Iterable[Job],
    *,
    job_of: Callable[[dict[str, str]], Job],
    score: Callable[[Job], Iterable[Mapping[str, Any]]],
) -> Rows:
    """Do the jobs of which the file holds no row, one after the other; returns all of its rows."""
    done = {job_of(row) for row in read(path)}
    with appending(path, fields) as write:
        for job in jobs:
            if job not in done:
                write(score(job))
    return read(path)
