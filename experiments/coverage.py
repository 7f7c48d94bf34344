"""How often the bootstrap's 95% interval for a 99% quantile holds the true one, on three known laws.

    python -m experiments.coverage --output docs/results/coverage.csv

One replication: 1,000 new rows of one column, `PHVAE` with five phases, 200 resamples each fitted again from that fit,
and the intervals of every method. Rows are drawn from (law, replication) and nothing is chosen by the outcome.
Results are appended replication by replication, and a run that was stopped goes on where it stopped. The error of a
coverage is binomial.
"""

import argparse
import csv
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from phvae import PHVAE
from phvae.distributions import SeriesPhaseType
from phvae.risk.intervals import METHODS, interval
from phvae.risk.refit import refit_column, resampled

LAWS = {"Weibull": stats.weibull_min(0.8), "Pareto": stats.pareto(2.4), "Lognormal": stats.lognorm(1.0)}
ROWS, PHASES, RESAMPLES, PROBABILITY = 1000, 5, 200, 0.01
FIELDS = ("law", "replication", "true", "estimate", "method", "low", "high")


def replicate(task: tuple[str, int]) -> list[dict[str, object]]:
    """The intervals of one replication."""
    name, number = task
    torch.set_num_threads(1)
    truth = LAWS[name]
    x = truth.isf(np.random.default_rng([sorted(LAWS).index(name), number]).random(ROWS))
    model = PHVAE(n_phases=PHASES, random_state=number).fit(x[:, None])
    origin, scale = float(model.scaler_.origin_[0]), float(model.scaler_.scale_[0])
    fitted = model.phase_type(0)
    counts = np.stack([np.bincount(resampled(ROWS, number, b), minlength=ROWS) for b in range(RESAMPLES)])
    initial, rates = refit_column(
        (x - origin) / scale, counts, fitted.initial, fitted.rates * scale, model.settings_["smoothness"][0]
    )
    estimate = origin + float(fitted.isf(PROBABILITY))
    replicates = origin + scale * SeriesPhaseType(initial, rates).isf(PROBABILITY).numpy()
    rows: list[dict[str, object]] = []
    for method in METHODS:
        found = interval(np.array(estimate), replicates, method=method)
        ends = {"low": float(found.low), "high": float(found.high)}
        true = float(truth.isf(PROBABILITY))
        rows.append({"law": name, "replication": number, "true": true, "estimate": estimate, "method": method, **ends})
    return rows


def missing(output: Path, replications: int) -> Iterator[tuple[str, int]]:
    """Replications that are not in the file, the laws in turn."""
    known = {(row["law"], int(row["replication"])) for row in read(output)}
    for number in range(replications):
        for name in LAWS:
            if (name, number) not in known:
                yield name, number


def read(output: Path) -> list[dict[str, str]]:
    """The rows of a file, none if it does not exist."""
    if not output.exists():
        return []
    with output.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run(output: Path, *, replications: int, processes: int) -> None:
    """Append what is missing."""
    output.parent.mkdir(parents=True, exist_ok=True)
    fresh = not output.exists()
    with get_context("spawn").Pool(processes) as pool, output.open("a", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, FIELDS)
        if fresh:
            table.writeheader()
        for rows in pool.imap(replicate, list(missing(output, replications))):
            table.writerows(rows)
            file.flush()


def summary(rows: Iterable[dict[str, str]]) -> str:
    """Coverage of each method on each law with its binomial error, and how the misses fall."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["law"], row["method"]].append([float(row[key]) for key in ("true", "estimate", "low", "high")])
    lines = ["law        method          replications  coverage  error  too low  too high  mean width  bias"]
    for (law, method), values in groups.items():
        true, estimate, low, high = np.array(values).T
        share = float(((low <= true) & (true <= high)).mean())
        error = math.sqrt(share * (1 - share) / len(true))
        lines.append(
            f"{law:<10} {method:<15} {len(true):>12}  {share:>7.1%}  {error:>5.1%}  {(high < true).mean():>6.1%}  "
            f"{(low > true).mean():>7.1%}  {((high - low) / true).mean():>9.1%}  {(estimate / true - 1).mean():>+5.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.coverage", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/reproduce/coverage.csv"))
    parser.add_argument("--replications", type=int, default=500)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    run(arguments.output, replications=arguments.replications, processes=arguments.processes)
    print(summary(read(arguments.output)))


if __name__ == "__main__":
    main()
