"""Exact zeros in a real table: the Danish fire losses by part, of which many are 0 for one kind of loss or two.

    python -m experiments.zero_atoms --output docs/results/zero-atoms.csv

Default settings throughout, and nothing is chosen by the scores. The shares of exact zeros of each column, and of both
in each pair, of 300,000 generated rows against those of the scored rows. And the law of the positive part of each
column: "joint" is the model of all columns with its atoms at zero, "alone" the same estimator fitted to the positive
values of that column and to nothing else, "rows" a bootstrap of the training rows, which is no model at all. The law
is scored by the distance beyond the 95% quantile of the scored rows, the relative errors of the 95% and the 99%
quantile, and that of the mean beyond the latter. "half": trained on half of the rows, drawn anew for every seed, and
scored on the other half. "all rows": trained and scored on all of them, seeds being those of the model. Results are
appended fit by fit, and a run that was stopped goes on where it stopped. Data are looked for in PHVAE_DATA.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments import resumed
from experiments.frame import key
from experiments.resumed import Rows
from phvae import PHVAE
from phvae.baselines.references import Bootstrap
from phvae.datasets import danish_fire_parts
from phvae.metrics import MetricWarning, cvar_error, quantile_error, tail_distance

GENERATED = 300_000
SEEDS = 12
PROTOCOLS = ("half", "all rows")
FIELDS = ("protocol", "seed", "model", "column", "measure", "value")
# What the law of a positive part is scored by: real and generated values, the smaller the better.
SCORES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "KS_tail": tail_distance,
    "Q95 error": lambda real, generated: quantile_error(real, generated, 0.95),
    "Q99 error": quantile_error,
    "CVaR99 error": cvar_error,
}
ZEROS = "share of zeros"


class Score(NamedTuple):
    model: str
    column: str
    measure: str
    value: float


def split(values: np.ndarray, protocol: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to score."""
    if protocol == "all rows":
        return values, values
    order = np.random.default_rng(key("zero atoms", "half", seed)).permutation(len(values))
    half = len(values) // 2
    return values[order[:half]], values[order[half:]]


def zeros(real: np.ndarray, generated: np.ndarray, names: tuple[str, ...], model: str) -> Iterator[Score]:
    """Shares of exact zeros of generated rows less those of real ones."""
    for places in (*combinations(range(len(names)), 1), *combinations(range(len(names)), 2)):
        both = [float((rows[:, places] == 0).all(1).mean()) for rows in (generated, real)]
        yield Score(model, " and ".join(names[j] for j in places), ZEROS, both[0] - both[1])


def positive_part(real: np.ndarray, generated: np.ndarray, name: str, model: str) -> Iterator[Score]:
    """Scores of the law of the values above zero."""
    with warnings.catch_warnings():
        # a bootstrap repeats values, and so does the table itself
        warnings.simplefilter("ignore", MetricWarning)
        for measure, score in SCORES.items():
            yield Score(model, name, measure, score(real[real > 0], generated[generated > 0]))


def scores(protocol: str, seed: int) -> list[Score]:
    """Everything that is measured with one seed."""
    data = danish_fire_parts()
    train, scored = split(data.values, protocol, seed)
    joint = PHVAE(random_state=seed).fit(train).sample(GENERATED, random_state=seed)
    rows = Bootstrap().fit(train, seed).sample(GENERATED, seed)
    found = [*zeros(scored, joint, data.names, "joint"), *zeros(scored, rows, data.names, "rows")]
    for j, name in enumerate(data.names):
        positive = train[train[:, j] > 0, j : j + 1]
        alone = PHVAE(random_state=seed).fit(positive).sample(GENERATED, random_state=seed)
        for model, generated in (("joint", joint[:, j]), ("alone", alone[:, 0]), ("rows", rows[:, j])):
            found += positive_part(scored[:, j], generated, name, model)
    return found


def run(path: Path, *, seeds: int = SEEDS) -> Rows:
    """Fit what the file does not hold yet; returns all of its rows."""
    jobs = [(protocol, seed) for seed in range(seeds) for protocol in PROTOCOLS]
    return resumed.run(path, FIELDS, jobs, job_of=job_of, score=rows_of)


def job_of(row: dict[str, str]) -> tuple[str, int]:
    return row["protocol"], int(row["seed"])


def rows_of(job: tuple[str, int]) -> list[dict[str, str]]:
    protocol, seed = job
    return [
        {"protocol": protocol, "seed": str(seed), **score._asdict(), "value": f"{score.value:.6g}"}
        for score in scores(protocol, seed)
    ]


def summary(rows: Rows) -> str:
    """Two Markdown tables: the errors of the shares of zeros, and the scores with their paired differences."""
    values = {
        (row["protocol"], row["column"], row["measure"], row["model"], int(row["seed"])): float(row["value"])
        for row in rows
    }
    cells = list(dict.fromkeys(place[:3] for place in values))

    def of(cell: tuple[str, str, str], model: str) -> np.ndarray:
        return np.array([value for place, value in values.items() if place[:4] == (*cell, model)])

    lines = [
        "| protocol | columns | share of zeros: error of the model, mean | largest of the seeds | of the rows, mean |",
        "| --- | --- | --- | --- | --- |",
    ]
    for cell in cells:
        if cell[2] == ZEROS:
            ours, floor = of(cell, "joint"), of(cell, "rows")
            lines.append(
                f"| {cell[0]} | {cell[1]} | {ours.mean():+.4f} | {np.abs(ours).max():.4f} | {floor.mean():+.4f} |"
            )
    lines += [
        "",
        "| protocol | column | measure | joint, with atoms | alone, without | rows | joint less alone | seeds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell in cells:
        if cell[2] != ZEROS:
            joint, alone, floor = (of(cell, model) for model in ("joint", "alone", "rows"))
            lines.append(
                f"| {cell[0]} | {cell[1]} | {cell[2]} | {joint.mean():.3f} | {alone.mean():.3f} | {floor.mean():.3f} | "
                f"{_with_error(joint - alone)} | {len(joint)} |"
            )
    return "\n".join(lines)


def _with_error(differences: np.ndarray) -> str:
    """Mean of paired differences and its standard error, where there are several."""
    if len(differences) < 2:
        return f"{differences.mean():+.3f}"
    return f"{differences.mean():+.3f} ± {differences.std(ddof=1) / len(differences) ** 0.5:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.zero_atoms", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/reproduce/zero-atoms.csv"))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    arguments = parser.parse_args()
    print(summary(run(arguments.output, seeds=arguments.seeds)))


if __name__ == "__main__":
    main()
