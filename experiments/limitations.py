"""The limitations the paper names, as experiments: no tail events in training, few rows, many columns.

Tail events are removed by dropping all rows beyond a quantile of the law; what is asked for lies beyond it. Few rows
are 100 to 10,000. Many columns are 2 to 40 of a Student copula with autoregressive correlation, 10,000 rows.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import cycle, islice

import numpy as np

from experiments import tables
from experiments.frame import Budget, Job, Settings, Synthetic, key
from experiments.models import FAMILIES, OURS, TRUE_FAMILY, TRUE_LAW, model
from experiments.rows import Row
from experiments.tables import Cell
from phvae.baselines.decoder_families import GaussianVAE
from phvae.baselines.phase_type import IndependentPhaseTypeVAEs
from phvae.baselines.references import Bootstrap
from phvae.baselines.spliced import EmpiricalWithParetoTail
from phvae.datasets import PAPER_COPULA, PAPER_LAWS, Law, StudentCopula
from phvae.metrics import coexceedance_error, correlation_error, kendall_error, quantile_error, tail_distance

NAME = "limitations"
LAWS = ("Weibull", "Pareto", "Lognormal")
REMOVED = (0.0, 0.001, 0.01, 0.05)
SIZES = (100, 300, 1000, 3000, 10_000)
DIMENSIONS = (2, 5, 10, 20, 40)


def autoregressive(d: int) -> StudentCopula:
    correlation = tuple(tuple(0.7 ** abs(i - j) for j in range(d)) for i in range(d))
    return StudentCopula(tuple(islice(cycle(PAPER_COPULA.margins), d)), correlation, degrees=4.0)


def cut(law: str, share: float) -> str:
    return f"{law}, {'all rows' if share == 0 else f'without the top {100 * share:g}%'}"


def sized(law: str, n: int) -> str:
    return f"{law}, {n:,} rows"


def wide(d: int) -> str:
    return f"{d} columns"


# name of the case -> law of it, rows drawn, share of the tail removed
CUT = {cut(law, share): (Synthetic(law, PAPER_LAWS[law], 10_000), share) for law in LAWS for share in REMOVED}
SIZED = {sized(law, n): Synthetic(law, PAPER_LAWS[law], n) for law in LAWS for n in SIZES}
WIDE = {wide(d): Synthetic(wide(d), autoregressive(d), 10_000) for d in DIMENSIONS}

GAUSSIAN = model(GaussianVAE)
ONE = {m.name: m for m in (OURS, GAUSSIAN, model(EmpiricalWithParetoTail, "reference"), TRUE_FAMILY, TRUE_LAW)}
MANY = {m.name: m for m in (OURS, GAUSSIAN, model(IndependentPhaseTypeVAEs), model(Bootstrap, "reference"), TRUE_LAW)}
assert set(LAWS) <= set(FAMILIES)


def jobs(budget: Budget) -> Iterator[Job]:
    for seed in range(budget.few_seeds):
        for data in [*CUT, *SIZED]:
            for name in ONE:
                yield Job(NAME, data, "redrawn", seed, name)
        for data in WIDE if not budget.quick else list(WIDE)[:3]:
            for name in MANY:
                yield Job(NAME, data, "redrawn", seed, name)


def tuned_in(job: Job) -> Job | None:
    """Nothing is searched: every model has its own rule for the size of a table, and that rule is in question here."""
    return None


def round_of(job: Job) -> float:
    """Many columns take long."""
    return job.seed + (1 if job.data in WIDE else 0)


def run(job: Job, budget: Budget, settings: Settings) -> dict[str, float]:
    if job.data in WIDE:
        return joint(job, budget, settings)
    task, share = CUT[job.data] if job.data in CUT else (SIZED[job.data], 0.0)
    assert isinstance(task.law, Law)
    train = task.law.sample(task.n_rows, key(NAME, job.data, job.seed))[:, None]
    if share:
        train = train[train[:, 0] <= task.law.isf(share)]
    generated = ONE[job.model].fit(task, train, job.seed, budget, settings).sample(100_000, key(*job))[:, 0]
    return {
        "KS_tail": tail_distance(task.law, generated),
        "Q99 error": quantile_error(task.law, generated),
        "Q99.9 error": quantile_error(task.law, generated, 0.999, fewest=100),
    }


def joint(job: Job, budget: Budget, settings: Settings) -> dict[str, float]:
    task = WIDE[job.data]
    assert isinstance(task.law, StudentCopula)
    n = min(task.n_rows, budget.rows[1])
    train = task.law.sample(n, key(NAME, job.data, job.seed))
    generated = MANY[job.model].fit(task, train, job.seed, budget, settings).sample(100_000, key(*job))
    fresh = task.law.sample(100_000, key(NAME, job.data, "truth"))
    pairs = math.sqrt(task.n_columns * (task.n_columns - 1))
    margins = [tail_distance(law, column) for law, column in zip(task.law.margins, generated.T, strict=True)]
    return {
        # per pair, so that numbers of columns compare
        "correlation error per pair": correlation_error(fresh, generated) / pairs,
        "Kendall error": kendall_error(fresh, generated),
        "co-exceedance error": coexceedance_error(fresh, generated),
        "mean KS_tail": float(np.nanmean(margins)) if np.isfinite(margins).any() else math.nan,
    }


def report(rows: Sequence[Row]) -> str:
    parts = ["## Limitations", "### Tail events removed from training"]
    floors = (TRUE_FAMILY.name, TRUE_LAW.name)
    for metric in ("KS_tail", "Q99 error", "Q99.9 error"):
        columns = {data: Cell(data, "redrawn", metric) for data in CUT}
        parts += [f"{metric}:", tables.table(rows, list(ONE), columns, floors=floors)]
    parts.append("### Few rows")
    for metric in ("KS_tail", "Q99 error", "Q99.9 error"):
        columns = {data: Cell(data, "redrawn", metric) for data in SIZED}
        parts += [f"{metric}:", tables.table(rows, list(ONE), columns, floors=floors)]
    parts.append("### Many columns, against a fresh sample of the law")
    for metric in ("correlation error per pair", "Kendall error", "co-exceedance error", "mean KS_tail"):
        columns = {data: Cell(data, "redrawn", metric) for data in WIDE}
        parts += [f"{metric}:", tables.table(rows, list(MANY), columns, floors=floors)]
    return "\n\n".join(parts)
