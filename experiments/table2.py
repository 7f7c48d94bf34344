"""Table 2: one column of a file, relative errors of quantiles and of the means above them at three levels.

Danish fire losses and word counts, in their own units: what a model does to bring six decades of counts into its range
is part of the model, and for every one here it is a shift and a factor alone. ``all rows`` trains on every row and is
scored against them, as in the paper; ``half`` trains on a random half and is scored against the other, which no model
has seen, and against its own. 100,000 generated rows; quantiles are those of the rows compared.
Settings are searched in a quarter of the rows that belongs to the training half of every seed.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from experiments import tables
from experiments.frame import Budget, Job, Real, Settings, key
from experiments.models import OURS, ROW_MODELS
from experiments.paper_numbers import LEVELS, TABLE_2, Printed
from experiments.rows import Row
from experiments.tables import Cell, Verdict
from phvae.datasets import danish_fire, word_counts
from phvae.metrics import below_zero, crps, cvar_error, memorisation, pinball_loss, quantile_error

NAME = "table2"
TASKS = {"Danish fire": Real("Danish fire", danish_fire), "word counts": Real("word counts", word_counts)}
MODELS = {model.name: model for model in ROW_MODELS}
PROPER = ("threshold-weighted CRPS above the 95% quantile", "pinball loss at 0.99")
MEMORISED = "nearer to a training row"
METRICS = {"QErr": quantile_error, "CVaRErr": cvar_error}


def jobs(budget: Budget) -> Iterator[Job]:
    for protocol in ("all rows", "half"):
        for seed in range(budget.seeds):
            for data in TASKS:
                for model in MODELS:
                    yield Job(NAME, data, protocol, seed, model)


def tuned_in(job: Job) -> Job | None:
    return MODELS[job.model].tuned_in(TASKS[job.data], job)


def round_of(job: Job) -> float:
    """All seeds of short fits before the second one of long ones."""
    seed = job.seed if job.data == "word counts" else (0.9 + job.seed / 100 if job.seed else 0.0)
    return seed + MODELS[job.model].later


def run(job: Job, budget: Budget, settings: Settings) -> dict[str, float]:
    task, model = TASKS[job.data], MODELS[job.model]
    train, held_out = task.split(job.protocol, job.seed, budget)
    if job.protocol == "tuning":
        return model.tune(task, train, budget)
    generated = model.fit(task, train, job.seed, budget, settings).sample(budget.generated[0], key(*job))[:, 0]
    scores = errors(train[:, 0], generated, "training rows") | {"P(X < 0)": below_zero(generated)}
    if held_out is not None:
        scores |= errors(held_out[:, 0], generated, "held-out rows") | proper(held_out[:, 0], generated)
        scores |= {MEMORISED: memorisation(train, held_out, generated).nearer_to_training}
    return scores


def errors(real: np.ndarray, generated: np.ndarray, which: str) -> dict[str, float]:
    return {
        heading(name, level, which): metric(real, generated, level)
        for name, metric in METRICS.items()
        for level in LEVELS
    }


def proper(real: np.ndarray, generated: np.ndarray) -> dict[str, float]:
    """Scores that no law can pass but the right one: of the tail beyond a threshold, and of one quantile."""
    threshold = float(np.quantile(real, LEVELS[0]))
    loss = pinball_loss(real, generated, LEVELS[1])
    return {PROPER[0]: crps(real, generated, threshold=threshold) / threshold, PROPER[1]: loss / threshold}


def heading(name: str, level: float, which: str) -> str:
    return f"{name} {level:g}, {which}"


def columns(data: str, protocol: str, which: str) -> dict[str, Cell]:
    return {
        f"{name} {level:g}": Cell(data, protocol, heading(name, level, which)) for name in METRICS for level in LEVELS
    }


def targets(rows: Sequence[Row]) -> dict[str, list[Verdict]]:
    """At or below every number of the paper's PH-VAE, by training rows as there; ahead of every neural baseline."""
    neural = [name for name, model in MODELS.items() if model.kind == "neural"]
    found = {}
    for data in TASKS:
        printed = [value for name in METRICS for value in TABLE_2["PH-VAE"][data][name]]
        cells = columns(data, "all rows", "training rows")
        reached = {label: (cell, value) for (label, cell), value in zip(cells.items(), printed, strict=True)}
        found[f"Table 2, {data}, the paper's PH-VAE"] = tables.against_paper(rows, OURS.name, reached)
    for data in TASKS:
        found[f"Table 2, {data}, ahead of every neural baseline on held-out rows"] = tables.standing(
            rows, OURS.name, neural, columns(data, "half", "held-out rows")
        )
    return found


def report(rows: Sequence[Row]) -> str:
    parts = ["## Table 2: one column of a file", __doc__.split("\n\n", 1)[1].strip()]
    reached = targets(rows)
    for data in TASKS:
        paper: dict[str, list[Printed | None]] = {
            f"{model} (paper)": [value for name in METRICS for value in by_data[data][name]]
            for model, by_data in TABLE_2.items()
        }
        parts += [
            f"### {data}: trained on all rows, scored against them",
            tables.table(rows, list(MODELS), columns(data, "all rows", "training rows"), printed=paper),
            "Against the paper's PH-VAE:",
            tables.listed(reached[f"Table 2, {data}, the paper's PH-VAE"]),
            f"### {data}: trained on half of the rows, scored against the held-out rows",
            tables.table(rows, list(MODELS), columns(data, "half", "held-out rows")),
            'The row "bootstrap of the rows" is what one half of the data says of the other: a model that repeats what '
            f"it saw has these errors.\n\nWhere {OURS.name} stands among the neural models:",
            tables.listed(reached[f"Table 2, {data}, ahead of every neural baseline on held-out rows"]),
            f"### {data}: trained on half of the rows, scored against them",
            tables.table(rows, list(MODELS), columns(data, "half", "training rows")),
        ]
        beside = {name: Cell(data, "half", name) for name in (*PROPER, MEMORISED, "P(X < 0)")}
        parts += [
            f"### {data}: proper scores of held-out rows, copies, and rows below zero",
            "Trained on half of the rows. Scores are in units of the 95% quantile of the held-out rows; a model that "
            "repeats no training row is nearer to one in half of the cases.",
            tables.table(rows, list(MODELS), beside),
        ]
    parts.append(tables.searched(rows, list(MODELS), list(TASKS)))
    return "\n\n".join(parts)
