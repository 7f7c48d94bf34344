"""Markdown tables from result rows: mean and standard deviation over seeds, beside the paper's numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.frame import SETTINGS, TUNING, Job
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
    lines = [f"| model | seeds | {' | '.join(columns)} |", "| --- |" + " --- |" * (1 + len(columns))]
    diverged, shown = [], []
    for name in models:
        found = [summarise(rows, name, cell) for cell in columns.values()]
        if any(found):
            label = f"*{name}*" if name in floors else name
            behind = sorted({summary.seeds for summary in found if summary is not None})
            lines.append(f"| {label} | {_range(behind)} | {' | '.join(map(show, found))} |")
            shown += [summary for summary in found if summary is not None]
        lost = {row.job for row in rows if row.model == name and row.metric == "diverged" and row.value > 0}
        lost = {job for job in lost if any((job.data, job.protocol) == cell[:2] for cell in columns.values())}
        if lost:
            diverged.append(f"{name} {len(lost)}")
    for name, numbers in (printed or {}).items():
        lines.append(f"| {name}, as printed | | {' | '.join(map(show_printed, numbers))} |")
    seeds = {found.seeds for name in models for cell in columns.values() if (found := summarise(rows, name, cell))}
    note = _over(seeds) if seeds else "Nothing was run."
    note += f" Runs that diverged: {', '.join(diverged)}." if diverged else " No run diverged." if seeds else ""
    return "\n".join([*lines, "", note + _explained(shown)])


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


def searched(rows: Sequence[Row], models: Sequence[str], data: Sequence[str]) -> str:
    """What the search chose for each model: step size, share of the epochs of the budget, settings of its own."""
    lines = ["### What the search chose", "", f"| model | {' | '.join(data)} |", "| --- |" + " --- |" * len(data)]
    chosen: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        if row.protocol == TUNING and row.metric in SETTINGS:
            chosen.setdefault((row.model, row.data), {})[row.metric] = row.value
    for name in models:
        if any((name, which) in chosen for which in data):
            cells = [", ".join(f"{k} {v:g}" for k, v in chosen.get((name, which), {}).items()) for which in data]
            lines.append(f"| {name} | {' | '.join(cell.replace('_', ' ') or NOT_RUN for cell in cells)} |")
    return "\n".join(lines) if len(lines) > 4 else "Nothing was searched."


class Verdict(NamedTuple):
    """What became of one target: ``met``, ``level`` (within one standard error), ``missed``, or ``open``: no number."""

    heading: str
    outcome: str
    text: str


def standing(
    rows: Sequence[Row],
    ours: str,
    rivals: Sequence[str],
    columns: dict[str, Cell],
    *,
    told: Mapping[str, str] | None = None,
) -> list[Verdict]:
    """Whether ours is ahead of every rival in every cell; within one standard error of the difference it is a tie.

    Args:
        rows: Of one experiment.
        ours: Model that has to be ahead.
        rivals: Models it has to be ahead of.
        columns: Cell under each heading.
        told: The data set of each rival whose decoder is the true family there: shown, and no rival.
    """
    found = []
    for heading, cell in columns.items():
        mine = summarise(rows, ours, cell)
        if mine is None or mine.available == 0:
            found.append(Verdict(heading, "open", f"{ours} has no number"))
            continue
        outcome, notes = "met", []
        for rival in rivals:
            theirs = summarise(rows, rival, cell)
            if theirs is None or theirs.available == 0 or theirs.mean >= mine.mean:
                continue
            shown = f"{rival} ({number(theirs.mean)})"
            if (told or {}).get(rival) == cell.data:
                notes.append(f"behind {shown}, whose decoder is the true family")
            elif mine.mean - theirs.mean <= _error_of_difference(mine, theirs):
                notes.append(f"level with {shown}")
                outcome = "level" if outcome == "met" else outcome
            else:
                notes.append(f"behind {shown}")
                outcome = "missed"
        text = f"{number(mine.mean)}, " + (", ".join(notes) or "ahead of all of them")
        found.append(Verdict(heading, outcome, text))
    return found


def against_paper(rows: Sequence[Row], ours: str, columns: dict[str, tuple[Cell, Printed]]) -> list[Verdict]:
    """Whether ours is at or below the paper's printed number in every cell, by its own standard error at most above."""
    found = []
    for heading, (cell, paper) in columns.items():
        mine = summarise(rows, ours, cell)
        if mine is None or mine.available == 0:
            found.append(Verdict(heading, "open", f"{ours} has no number"))
            continue
        error = 0.0 if math.isnan(mine.error) else mine.error
        outcome = "met" if mine.mean <= paper.mean else "level" if mine.mean - paper.mean <= error else "missed"
        found.append(Verdict(heading, outcome, f"{number(mine.mean)} against {number(paper.mean)} printed"))
    return found


WORDS = {"met": "met", "level": "within one standard error", "missed": "missed", "open": "open"}


def listed(verdicts: Sequence[Verdict]) -> str:
    """One line per target."""
    return "\n".join(f"- {v.heading}: {v.text}: {WORDS[v.outcome]}." for v in verdicts)


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many targets were met, and those that were not, by name."""
    if all(v.outcome == "open" for v in verdicts):
        return "nothing was run."
    counts = {outcome: [v for v in verdicts if v.outcome == outcome] for outcome in WORDS}
    text = f"{len(counts['met'])} of {len(verdicts)} met"
    if counts["level"]:
        text += f", {len(counts['level'])} more within one standard error"
    lost = [f"{v.heading} ({v.text})" for v in counts["missed"]]
    text += f". Missed: {'; '.join(lost)}." if lost else ". None missed."
    if counts["open"]:
        text += f" Without a number: {', '.join(v.heading for v in counts['open'])}."
    return text


def _error_of_difference(one: Summary, other: Summary) -> float:
    """Standard error of the difference of two means; one seed has none."""
    return math.hypot(*(0.0 if math.isnan(found.error) else found.error for found in (one, other)))


def _over(seeds: set[int]) -> str:
    """What the numbers of a table are, from how many seeds."""
    if seeds == {1}:
        return "Every number is that of one seed, which proves little."
    alone = " A row of one seed has no ±, and proves little." if 1 in seeds else ""
    return f"Mean ± standard deviation over {_range(sorted(seeds))} seeds.{alone}"


def _explained(shown: Sequence[Summary]) -> str:
    """What stands in the cells beside numbers, where it does."""
    why = "the fit diverged, too few generated rows lie beyond the level, or the model has no such number"
    texts = []
    if part := next((found for found in shown if 0 < found.available < found.seeds), None):
        texts.append(f"({part.available} of {part.seeds}): {part.available} of {part.seeds} seeds gave a number")
    if any(not found.available for found in shown):
        texts.append(f"{NOT_AVAILABLE}: no seed gave a number")
    return f" {'; '.join(texts)}, where {why}." if texts else ""


def _range(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
