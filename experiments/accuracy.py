"""How close the default `PHVAE` comes to laws that are known: five single columns, and five dependent ones.

    python -m experiments.accuracy --output docs/results/accuracy.csv

Rows are redrawn for every seed and the model has the seed of its rows; nothing is chosen by the scores. One column:
the distance of the conditional laws above the 95% quantile and the relative error of the 99% quantile, both of 100,000
generated rows. Five columns, from a Student copula with four degrees of freedom: the Frobenius error of the
correlations of log(1 + x), the mean error of Kendall's tau and of the probability that two columns exceed their 99%
quantiles together, of 300,000 generated rows against the training rows; beside it the same for a fresh sample of the
law. Results are appended row by row, and a run that was stopped goes on where it stopped.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from experiments import resumed
from experiments.resumed import Rows
from phvae import PHVAE
from phvae.datasets import PAPER_COPULA, PAPER_LAWS, Law
from phvae.metrics import (
    coexceedance_error,
    correlation_error,
    kendall_error,
    kendall_tau,
    quantile_error,
    tail_distance,
    tail_mass,
)

GENERATED, JOINT_GENERATED = 100_000, 300_000
FIELDS = ("case", "rows", "seed", "measure", "value")

# The laws of `PAPER_LAWS` as scipy has them: the targets are for the rows that scipy draws with these seeds.
DRAWN_BY = {
    "Weibull": stats.weibull_min(0.8),
    "Pareto": stats.pareto(2.4),
    "Lognormal": stats.lognorm(1.5),
    "Burr XII": stats.burr12(1.5, 0.8),
    "Burr III": stats.burr(1.5, 0.8),
}


class Score(NamedTuple):
    measure: str
    value: float


def tail_scores(law: Law, generated: np.ndarray) -> tuple[float, float]:
    return tail_distance(law, generated), quantile_error(law, generated)


def dependence(real: np.ndarray, generated: np.ndarray) -> list[Score]:
    return [
        Score("correlation error", correlation_error(real, generated)),
        Score("Kendall error", kendall_error(real, generated)),
        Score("co-exceedance error", coexceedance_error(real, generated)),
    ]


def one_column(law: str, rows: int, seed: int) -> list[Score]:
    truth = PAPER_LAWS[law]
    x = DRAWN_BY[law].rvs(size=rows, random_state=seed)[:, None]
    began = time.process_time()
    model = PHVAE(random_state=seed).fit(x)
    spent = time.process_time() - began
    generated = model.sample(GENERATED, random_state=seed)[:, 0]
    distance, error = tail_scores(truth, generated)
    mass = Score("P(X > x_.95)", tail_mass(truth, generated))
    return [Score("KS_tail", distance), Score("Q99 error", error), mass, Score("fit [s]", spent)]


def five_columns(rows: int, seed: int) -> list[Score]:
    x = PAPER_COPULA.sample(rows, seed)
    began = time.process_time()
    model = PHVAE(random_state=seed).fit(x)
    spent = time.process_time() - began
    generated = model.sample(JOINT_GENERATED, random_state=seed)
    scores = dependence(x, generated)
    fresh = dependence(x, PAPER_COPULA.sample(JOINT_GENERATED, seed + 1000))
    scores += [Score(f"{measure}, fresh sample", value) for measure, value in fresh]
    scores.append(Score("Kendall's tau of columns 0 and 1", float(kendall_tau(generated[:, :2])[0, 1])))
    for k, law in enumerate(PAPER_COPULA.margins):
        distance, error = tail_scores(law, generated[:, k])
        scores += [Score(f"column {k}, KS_tail", distance), Score(f"column {k}, Q99 error", error)]
    return [*scores, Score("fit [s]", spent)]


def jobs(quick: bool) -> Iterator[tuple[str, int, int]]:
    """Case, rows and seed of every fit."""
    for seed in range(2 if quick else 20):
        for law in PAPER_LAWS:
            yield law, 1000 if quick else 10_000, seed
    for seed in range(1 if quick else 5):
        yield "copula", 2000 if quick else 20_000, seed
    for seed in range(0 if quick else 5):
        yield "copula", 80_000, seed


def run(path: Path, *, quick: bool) -> Rows:
    """Fit what the file does not hold yet; returns all of its rows."""
    return resumed.run(path, FIELDS, jobs(quick), job_of=job_of, score=scores)


def job_of(row: dict[str, str]) -> tuple[str, int, int]:
    return row["case"], int(row["rows"]), int(row["seed"])


def scores(job: tuple[str, int, int]) -> list[dict[str, Any]]:
    case, rows, seed = job
    found = five_columns(rows, seed) if case == "copula" else one_column(case, rows, seed)
    return [
        {"case": case, "rows": rows, "seed": seed, "measure": measure, "value": f"{value:.6g}"}
        for measure, value in found
    ]


def summary(rows: Rows) -> str:
    """Mean and standard error over seeds of every case and measure, as a Markdown table."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["case"], str(row["rows"]), row["measure"]), []).append(float(row["value"]))
    lines = ["| law | rows | measure | mean | standard error | seeds |", "| --- | --- | --- | --- | --- | --- |"]
    for (case, size, measure), values in groups.items():
        error = f"{np.std(values, ddof=1) / len(values) ** 0.5:.2g}" if len(values) > 1 else ""
        lines.append(f"| {case} | {int(size):,} | {measure} | {np.mean(values):.3g} | {error} | {len(values)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.accuracy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows and seeds: a check that it runs")
    parser.add_argument("--output", type=Path, default=Path("build/reproduce/accuracy.csv"))
    arguments = parser.parse_args()
    print(summary(run(arguments.output, quick=arguments.quick)))


if __name__ == "__main__":
    main()
