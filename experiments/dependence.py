"""Several columns: correlation of log(1 + x), Kendall's tau and extremes together, of generated against real rows.

The 5-D Student copula of the paper's authors with 80,000 rows, the same with columns 0 and 1 independent of all
others, and absolute daily returns of five equities. A million generated rows; thresholds are quantiles of the real
rows. Returns are fractions; what percent would give is a second number, since a correlation of log(1 + x) depends on
the unit. Margins are scored where the law is known. The row "true law" is a fresh sample: nothing scores below it.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from experiments import tables
from experiments.frame import Budget, Job, Real, Settings, Synthetic, key
from experiments.models import OURS, TABLE_MODELS, TRUE_LAW
from experiments.paper_numbers import DEPENDENCE, Printed
from experiments.rows import Row
from experiments.tables import Cell, Verdict
from phvae.datasets import INDEPENDENT_BLOCKS, PAPER_COPULA, Dataset, StudentCopula, equity_returns
from phvae.metrics import (
    below_zero,
    classifier_test,
    coexceedance_error,
    correlation_error,
    kendall_error,
    kendall_tau,
    memorisation,
    quantile_error,
    tail_distance,
)

NAME = "dependence"
ROWS = 80_000


def equities() -> Dataset:
    return equity_returns(first="2010-01-01", last="2024-12-31")


COPULA, BLOCKS = "5-D synthetic", "5-D independent blocks"
SYNTHETIC = {COPULA: Synthetic(COPULA, PAPER_COPULA, ROWS), BLOCKS: Synthetic(BLOCKS, INDEPENDENT_BLOCKS, ROWS)}
REAL = {"equities": Real("equities", equities)}
MODELS = {model.name: model for model in [*TABLE_MODELS, TRUE_LAW]}
RIVALS = ("Gaussian VAE, sampled", "Gaussian VAE, mean-decoded", "Independent PH-VAEs")
IN_BLOCKS = (OURS.name, *RIVALS, TRUE_LAW.name)
METRICS = {
    "correlation error": correlation_error,
    "Kendall error": kendall_error,
    "co-exceedance error": coexceedance_error,
}


def jobs(budget: Budget) -> Iterator[Job]:
    for seed in range(budget.few_seeds):
        for model in MODELS:
            if model != TRUE_LAW.name:
                for protocol in ("all rows", "half"):
                    yield Job(NAME, "equities", protocol, seed, model)
            for protocol in ("redrawn", "fixed"):
                yield Job(NAME, COPULA, protocol, seed, model)
        for model in IN_BLOCKS:
            yield Job(NAME, BLOCKS, "redrawn", seed, model)


def tuned_in(job: Job) -> Job | None:
    if job.data in REAL:
        return MODELS[job.model].tuned_in(REAL[job.data], job)
    # both copulas have the same margins and settings searched in the first one
    return MODELS[job.model].tuned_in(SYNTHETIC[COPULA], job._replace(data=COPULA))


def round_of(job: Job) -> float:
    """The long fits come after those of all other experiments."""
    wait = {"equities": 0.0, COPULA: 0.5, BLOCKS: 0.75}[job.data] + (0.125 if job.protocol == "fixed" else 0)
    return job.seed + MODELS[job.model].later + wait


def run(job: Job, budget: Budget, settings: Settings) -> dict[str, float]:
    model, held_out = MODELS[job.model], None
    task: Synthetic | Real
    if job.data in REAL:
        task = REAL[job.data]
        train, held_out = task.split(job.protocol, job.seed, budget)
    else:
        task = SYNTHETIC[job.data]
        train = task.train(job.protocol, job.seed, budget)
    if job.protocol == "tuning":
        return model.tune(task, train, budget)
    generated = model.fit(task, train, job.seed, budget, settings).sample(budget.generated[1], key(*job))
    scores = errors(train, generated, "training rows") | {"P(X < 0)": below_zero(generated)}
    if held_out is not None:
        scores |= errors(held_out, generated, "held-out rows")
        scores |= {"AUC of a classifier": classifier_test(held_out, generated).auc}
        scores |= {"nearer to a training row": memorisation(train, held_out, generated).nearer_to_training}
    if isinstance(task, Synthetic):
        assert isinstance(task.law, StudentCopula)
        tails = [tail_distance(law, column) for law, column in zip(task.law.margins, generated.T, strict=True)]
        quantiles = [quantile_error(law, column) for law, column in zip(task.law.margins, generated.T, strict=True)]
        scores |= {"largest KS_tail": max(tails), "largest Q99 error": max(quantiles)}
        scores |= {"tau of columns 0 and 1": float(kendall_tau(generated[:, :2])[0, 1])}
    return scores


def errors(real: np.ndarray, generated: np.ndarray, which: str) -> dict[str, float]:
    scores = {f"{name}, {which}": metric(real, generated) for name, metric in METRICS.items()}
    if real.max() < 1:  # returns as fractions
        scores[f"correlation error in percent, {which}"] = correlation_error(100 * real, 100 * generated)
    return scores


TITLES = {
    (COPULA, "redrawn", "training rows"): f"{COPULA}, data redrawn for every seed",
    (COPULA, "fixed", "training rows"): f"{COPULA}, one fixed table",
    (BLOCKS, "redrawn", "training rows"): f"{BLOCKS}, data redrawn for every seed",
    ("equities", "all rows", "training rows"): "equities, all rows, against the training rows",
    ("equities", "half", "held-out rows"): "equities, half of the rows, against the held-out rows",
}
IN_PERCENT = "correlation error in percent"
SYNTHETIC_MARGINS = ("largest KS_tail", "largest Q99 error", "P(X < 0)", "tau of columns 0 and 1")
HELD_OUT_SCORES = ("AUC of a classifier", "nearer to a training row")


def columns(data: str, protocol: str, which: str) -> dict[str, Cell]:
    return {name: Cell(data, protocol, f"{name}, {which}") for name in METRICS}


def targets(rows: Sequence[Row]) -> dict[str, list[Verdict]]:
    """Below the paper's PH-VAE, and below the Gaussian VAEs and Independent PH-VAEs of the same run."""
    found = {}
    for place, title in TITLES.items():
        if place[0] in DEPENDENCE:
            printed = DEPENDENCE[place[0]]["PH-VAE"]
            reached = {
                name: (cell, value) for (name, cell), value in zip(columns(*place).items(), printed, strict=True)
            }
            found[f"Dependence, {title}, the paper's PH-VAE"] = tables.against_paper(rows, OURS.name, reached)
        found[f"Dependence, {title}, ahead of Gaussian VAEs and Independent PH-VAEs"] = tables.standing(
            rows, OURS.name, RIVALS, columns(*place)
        )
    return found


def report(rows: Sequence[Row]) -> str:
    parts = ["## Dependence: several columns", __doc__.split("\n\n", 1)[1].strip()]
    reached = targets(rows)
    for place, title in TITLES.items():
        data, protocol, which = place
        beside = {name: Cell(data, protocol, name) for name in SYNTHETIC_MARGINS}
        if data in REAL:
            beside = {IN_PERCENT: Cell(data, protocol, f"{IN_PERCENT}, {which}")}
            beside |= {"P(X < 0)": Cell(data, protocol, "P(X < 0)")}
            beside |= {name: Cell(data, protocol, name) for name in HELD_OUT_SCORES if protocol == "half"}
        printed: dict[str, Sequence[Printed | None]] = {
            f"{model} (paper)": [*values, *[None] * len(beside)] for model, values in DEPENDENCE.get(data, {}).items()
        }
        every = tables.table(rows, list(MODELS), columns(*place) | beside, printed=printed, floors=(TRUE_LAW.name,))
        parts += [f"### {title}", every]
        verdicts = reached.get(f"Dependence, {title}, the paper's PH-VAE")
        if verdicts:
            parts += ["Against the paper's PH-VAE:", tables.listed(verdicts)]
        parts += [
            f"{OURS.name} against the Gaussian VAEs and Independent PH-VAEs of the same run:",
            tables.listed(reached[f"Dependence, {title}, ahead of Gaussian VAEs and Independent PH-VAEs"]),
        ]
    parts.append(tables.searched(rows, list(MODELS), [COPULA, "equities"]))
    return "\n\n".join(parts)
