"""Markdown tables from result rows: mean and standard deviation over seeds, beside the paper's numbers."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.frame import Job
from experiments.paper_numbers import Printed
from experiments.rows import Row

NOT_RUN, NOT_AVAILABLE = "-", "N/A"


class Cell(NamedTuple):
    """Where the numbers of one column of a table are."""

    data: str
    protocol: str
    metric: str


class Summary(NamedTuple):
    """Mean and standard deviation over the seeds that gave a number, and how many of the seeds those are."""

    mean: float
    deviation: float
    available: int
    seeds: int

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.deviation / math.sqrt(self.available) if self.available > 1 else math.nan


def summarise(rows: Iterable[Row], model: str, cell: Cell) -> Summary | None:
    """All seeds of a model in a cell; a run that diverged has no number, and counts as one seed without."""
    inside = [r for r in rows if (r.model, r.data, r.protocol) == (model, cell.data, cell.protocol)]
    jobs: set[Job] = {row.job for row in inside}
    values = np.array([row.value for row in inside if row.metric == cell.metric])
    finite = values[np.isfinite(values)]
    if not jobs:
        return None
    deviation = float(finite.std(ddof=1)) if len(finite) > 1 else math.nan
    return Summary(float(finite.mean()) if len(finite) else math.nan, deviation, len(finite), len(jobs))


def table(
    rows: Sequence[Row],
    models: Sequence[str],
    columns: dict[str, Cell],
    *,
    printed: dict[str, Sequence[Printed | None]] | None = None,
    floors: Sequence[str] = (),
) -> str:
    """One row per model and one column per cell, then what the paper printed.

    Args:
        rows: Of one experiment.
        models: In order; those without a single run are left out.
        columns: Cell under each heading.
        printed: Numbers of the paper per model, one per column.
        floors: Models set in italics: no fit, or one that is told the family.
    """
    lines = [f"| model | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    diverged = []
    for name in models:
        found = [summarise(rows, name, cell) for cell in columns.values()]
        if any(found):
            label = f"*{name}*" if name in floors else name
            lines.append(f"| {label} | {' | '.join(map(show, found))} |")
        lost = {row.job for row in rows if row.model == name and row.metric == "diverged" and row.value > 0}
        lost = {job for job in lost if any((job.data, job.protocol) == cell[:2] for cell in columns.values())}
        if lost:
            diverged.append(f"{name} {len(lost)}")
    for name, numbers in (printed or {}).items():
        lines.append(f"| {name}, as printed | {' | '.join(map(show_printed, numbers))} |")
    seeds = {found.seeds for name in models for cell in columns.values() if (found := summarise(rows, name, cell))}
    note = f"Mean ± standard deviation over {_span(seeds)}." if seeds else "Nothing was run."
    note += f" Runs that diverged: {', '.join(diverged)}." if diverged else " No run diverged." if seeds else ""
    return "\n".join([*lines, "", note])


def show(found: Summary | None) -> str:
    if found is None:
        return NOT_RUN
    if found.available == 0:
        return NOT_AVAILABLE
    text = number(found.mean)
    if not math.isnan(found.deviation):
        text += f" ± {number(found.deviation, like=found.mean)}"
    return text if found.available == found.seeds else f"{text} ({found.available} of {found.seeds})"


def show_printed(value: Printed | None) -> str:
    if value is None:
        return NOT_RUN
    if math.isnan(value.mean):
        return NOT_AVAILABLE
    return number(value.mean) + ("" if value.deviation is None else f" ± {number(value.deviation, like=value.mean)}")


def number(value: float, *, like: float | None = None) -> str:
    """Three digits or so, in the notation of the number it belongs to."""
    size = abs(value if like is None else like)
    if value == 0:
        return "0"
    if 5e-4 <= size < 1000:
        return f"{value:.{4 if size < 0.01 else 3 if size < 10 else 1}f}"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")


def standing(rows: Sequence[Row], ours: str, rivals: Sequence[str], columns: dict[str, Cell]) -> str:
    """Whether ours is ahead of every rival in every cell; within one standard error of the difference it is a tie."""
    lines = []
    for heading, cell in columns.items():
        mine = summarise(rows, ours, cell)
        if mine is None or mine.available == 0:
            lines.append(f"- {heading}: {ours} has no number.")
            continue
        behind = []
        for rival in rivals:
            theirs = summarise(rows, rival, cell)
            if theirs is None or theirs.available == 0 or theirs.mean >= mine.mean:
                continue
            error = math.hypot(np.nan_to_num(mine.error), np.nan_to_num(theirs.error))
            tie = mine.mean - theirs.mean <= error
            behind.append(f"{'level with' if tie else 'behind'} {rival} ({number(theirs.mean)})")
        verdict = "ahead of every neural baseline" if not behind else ", ".join(behind)
        lines.append(f"- {heading}: {number(mine.mean)}, {verdict}.")
    return "\n".join(lines)


def against_paper(rows: Sequence[Row], ours: str, columns: dict[str, tuple[Cell, Printed]]) -> str:
    """Whether ours is at or below the paper's printed number in every cell."""
    lines = []
    for heading, (cell, paper) in columns.items():
        mine = summarise(rows, ours, cell)
        if mine is None or mine.available == 0:
            lines.append(f"- {heading}: {ours} has no number.")
            continue
        error = np.nan_to_num(mine.error)
        word = (
            "met"
            if mine.mean <= paper.mean
            else "within one standard error"
            if mine.mean - paper.mean <= error
            else "missed"
        )
        lines.append(f"- {heading}: {number(mine.mean)} against {number(paper.mean)} printed: {word}.")
    return "\n".join(lines)


def _span(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    if low == high:
        return "1 seed" if low == 1 else f"{low} seeds"
    return f"{low} to {high} seeds"
