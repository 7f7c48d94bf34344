"""True power tails: what ``tail="pareto"`` brings where the default bends to an exponential, and its tail index.

    python -m experiments.power_tails --output docs/results/power-tails.csv

Protocol of `experiments.accuracy`: 10,000 rows redrawn for every seed, 100,000 generated rows scored. Beside the model:
maximum likelihood in the family that the rows were drawn from, on the same rows with the same number of generated
ones. Of the model also its tail index, and whether its 95% interval holds the true one. Results are appended law by
law, and a run that was stopped goes on where it stopped.
"""

import argparse
from pathlib import Path

import numpy as np

from experiments import resumed
from experiments.accuracy import FIELDS, GENERATED, summary, tail_scores
from experiments.models import FAMILIES
from experiments.resumed import Rows
from phvae import PHVAE
from phvae.datasets import PAPER_LAWS
from phvae.metrics import tail_mass

TAILS = ("pareto", "lognormal", "weibull")
# Of the laws with a power tail: 1 / 2.4, 1 / (1.5 · 0.8), 1 / 1.5.
TRUE_INDEX = {"Pareto": 1 / 2.4, "Burr XII": 1 / 1.2, "Burr III": 1 / 1.5}


def scores(law: str, seed: int, rows: int) -> list[dict[str, object]]:
    """Every model on the rows of one seed."""
    truth = PAPER_LAWS[law]
    x = truth.sample(rows, seed)[:, None]
    found: list[tuple[str, str, float]] = []

    def note(model: str, generated: np.ndarray) -> None:
        distance, error = tail_scores(truth, generated)
        found.append((model, "KS_tail", distance))
        found.append((model, "Q99 error", error))
        found.append((model, "P(X > x_.95)", tail_mass(truth, generated)))

    note("true family", FAMILIES[law]().fit(x, seed).sample(GENERATED, seed)[:, 0])
    for tail in TAILS:
        model = PHVAE(tail=tail, random_state=seed).fit(x)
        note(tail, model.sample(GENERATED, random_state=seed)[:, 0])
        found.append((tail, "phases", model.settings_["n_phases"]))
        if tail == "pareto":
            index = model.tail_index(0)
            found.append((tail, "tail index", index.estimate))
            if law in TRUE_INDEX:
                inside = index.low <= TRUE_INDEX[law] <= index.high
                found.append((tail, "true index inside the 95% interval", float(inside)))
    return [
        {"case": f"{law}, {model}", "rows": rows, "seed": seed, "measure": measure, "value": f"{value:.6g}"}
        for model, measure, value in found
    ]


def run(path: Path, *, quick: bool) -> Rows:
    """Score every law for every seed that the file does not hold yet; returns all of its rows."""
    rows = 1000 if quick else 10_000
    jobs = [
        (law, seed) for seed in range(2 if quick else 20) for law in (("Pareto", "Burr XII") if quick else PAPER_LAWS)
    ]
    return resumed.run(path, FIELDS, jobs, job_of=job_of, score=lambda job: scores(*job, rows))


def job_of(row: dict[str, str]) -> tuple[str, int]:
    return row["case"].partition(", ")[0], int(row["seed"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.power_tails", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows and seeds: a check that it runs")
    parser.add_argument("--output", type=Path, default=Path("build/reproduce/power-tails.csv"))
    arguments = parser.parse_args()
    print(summary(run(arguments.output, quick=arguments.quick)))


if __name__ == "__main__":
    main()
