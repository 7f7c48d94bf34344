"""How often the bootstrap's 95% interval for a 99% quantile holds the true one, on three known laws.

    python -m experiments.coverage --output docs/results/coverage.csv

One replication: 1,000 new rows of one column, `PHVAE` with five phases, 400 resamples each fitted again from that fit
as `phvae.risk.bootstrap` does, and the intervals of every method. Rows are drawn from (law, replication). One line per
replication is appended when it is done, and a run that was stopped goes on where it stopped. The error of a coverage is
binomial.
"""

import argparse
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from experiments.resumed import appending, read
from phvae import PHVAE
from phvae.distributions import SeriesPhaseType
from phvae.risk.intervals import METHODS, interval
from phvae.risk.refit import refit_column, resampled

LAWS = {"Lognormal": stats.lognorm(1.0), "Pareto": stats.pareto(2.4), "Weibull": stats.weibull_min(0.8)}
ROWS, PHASES, RESAMPLES, PROBABILITY = 1000, 5, 400, 0.01
FIELDS = ("law", "replication", "estimate", *(f"{method} {end}" for method in METHODS for end in ("low", "high")))


def replicate(task: tuple[str, int]) -> dict[str, object]:
    """The intervals of one replication."""
    name, number = task
    torch.set_num_threads(1)
    x = LAWS[name].isf(np.random.default_rng([sorted(LAWS).index(name), number]).random(ROWS))
    model = PHVAE(n_phases=PHASES, random_state=number).fit(x[:, None])
    origin, scale = float(model.scaler_.origin_[0]), float(model.scaler_.scale_[0])
    fitted = model.phase_type(0)
    counts = np.stack([np.bincount(resampled(ROWS, number, b), minlength=ROWS) for b in range(RESAMPLES)])
    initial, rates = refit_column(
        (x - origin) / scale, counts, fitted.initial, fitted.rates * scale, model.settings_["smoothness"][0]
    )
    estimate = origin + float(fitted.isf(PROBABILITY))
    replicates = origin + scale * SeriesPhaseType(initial, rates).isf(PROBABILITY).numpy()
    row: dict[str, object] = {"law": name, "replication": number, "estimate": f"{estimate:.6g}"}
    for method in METHODS:
        found = interval(np.array(estimate), replicates, method=method, counts=counts)
        row |= {f"{method} low": f"{found.low:.6g}", f"{method} high": f"{found.high:.6g}"}
    return row


def missing(output: Path, replications: int) -> Iterator[tuple[str, int]]:
    """Replications that are not in the file, law after law."""
    known = {(row["law"], int(row["replication"])) for row in read(output)}
    for name in LAWS:
        for number in range(replications):
            if (name, number) not in known:
                yield name, number


def run(output: Path, *, replications: int, processes: int) -> None:
    """Append what is missing."""
    with get_context("spawn").Pool(processes) as pool, appending(output, FIELDS) as write:
        for row in pool.imap(replicate, list(missing(output, replications))):
            write([row])


def summary(rows: Iterable[dict[str, str]]) -> str:
    """Coverage of each method on each law with its binomial error, and how the misses fall."""
    groups = defaultdict(list)
    for row in rows:
        for method in METHODS:
            ends = [float(row[key]) for key in ("estimate", f"{method} low", f"{method} high")]
            groups[row["law"], method].append(ends)
    lines = ["law        method          replications  coverage  error  too low  too high  mean width  bias"]
    for (law, method), values in groups.items():
        true, (estimate, low, high) = float(LAWS[law].isf(PROBABILITY)), np.array(values).T
        share = float(((low <= true) & (true <= high)).mean())
        error = math.sqrt(share * (1 - share) / len(low))
        lines.append(
            f"{law:<10} {method:<15} {len(low):>12}  {share:>7.1%}  {error:>5.1%}  {(high < true).mean():>6.1%}  "
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
