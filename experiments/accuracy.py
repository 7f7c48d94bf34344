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
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from experiments.one_law import LAWS, score_rows
from phvae import PHVAE

GENERATED, JOINT_GENERATED = 100_000, 300_000
LEVEL = 0.99
MARGINS = (stats.pareto(2.2), stats.weibull_min(0.7), stats.lognorm(1.0), stats.burr12(1.4, 2.2), stats.pareto(2.2))
DEGREES, AUTOREGRESSION = 4, 0.7
FIELDS = ("case", "rows", "seed", "measure", "value")


class Score(NamedTuple):
    measure: str
    value: float


def copula(rows: int, seed: int) -> np.ndarray:
    """Columns 0 and 1 uncorrelated, 2 to 4 autoregressive; one chi-square shared by all of a row."""
    rng = np.random.default_rng(seed)
    correlation = np.eye(5)
    for i in range(2, 5):
        for j in range(2, 5):
            correlation[i, j] = AUTOREGRESSION ** abs(i - j)
    normal = rng.multivariate_normal(np.zeros(5), correlation, rows)
    levels = stats.t(DEGREES).cdf(normal / np.sqrt(rng.chisquare(DEGREES, (rows, 1)) / DEGREES))
    return np.stack([law.ppf(levels[:, k]) for k, law in enumerate(MARGINS)], 1)


def correlations(x: np.ndarray) -> np.ndarray:
    return np.corrcoef(np.log1p(x).T)


def pairs(x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for i in range(x.shape[1]):
        for j in range(i):
            yield x[:, i], x[:, j]


def taus(x: np.ndarray) -> np.ndarray:
    return np.array([stats.kendalltau(a, b).statistic for a, b in pairs(x)])


def together(x: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    return np.array([(a & b).mean() for a, b in pairs(x > thresholds)])


def dependence(real: np.ndarray, generated: np.ndarray) -> list[Score]:
    thresholds = np.quantile(real, LEVEL, axis=0)
    return [
        Score("correlation error", float(np.linalg.norm(correlations(generated) - correlations(real)))),
        Score("Kendall error", float(np.abs(taus(generated) - taus(real)).mean())),
        Score(
            "co-exceedance error", float(np.abs(together(generated, thresholds) - together(real, thresholds)).mean())
        ),
    ]


def one_column(law: str, rows: int, seed: int) -> list[Score]:
    x = LAWS[law].rvs(size=rows, random_state=seed)[:, None]
    began = time.process_time()
    model = PHVAE(random_state=seed).fit(x)
    spent = time.process_time() - began
    distance, error, mass = score_rows(model.sample(GENERATED, random_state=seed)[:, 0], LAWS[law])
    return [Score("KS_tail", distance), Score("Q99 error", error), Score("P(X > x_.95)", mass), Score("fit [s]", spent)]


def five_columns(rows: int, seed: int) -> list[Score]:
    x = copula(rows, seed)
    began = time.process_time()
    model = PHVAE(random_state=seed).fit(x)
    spent = time.process_time() - began
    generated = model.sample(JOINT_GENERATED, random_state=seed)
    scores = dependence(x, generated)
    fresh = dependence(x, copula(JOINT_GENERATED, seed + 1000))
    scores += [Score(f"{measure}, fresh sample", value) for measure, value in fresh]
    scores.append(Score("Kendall's tau of columns 0 and 1", float(taus(generated[:, :2])[0])))
    for k, law in enumerate(MARGINS):
        distance, error, _ = score_rows(generated[:, k], law)
        scores += [Score(f"column {k}, KS_tail", distance), Score(f"column {k}, Q99 error", error)]
    return [*scores, Score("fit [s]", spent)]


def jobs(quick: bool) -> Iterator[tuple[str, int, int]]:
    """Case, rows and seed of every fit."""
    for seed in range(2 if quick else 20):
        for law in LAWS:
            yield law, 1000 if quick else 10_000, seed
    for seed in range(1 if quick else 3):
        yield "copula", 2000 if quick else 20_000, seed
    for seed in range(0 if quick else 2):
        yield "copula", 80_000, seed


def run(path: Path, *, quick: bool) -> list[dict[str, str]]:
    """Fit what the file does not hold yet; returns all of its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str]] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    done = {(row["case"], int(row["rows"]), int(row["seed"])) for row in rows}
    with path.open("a", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=FIELDS)
        if not rows:
            table.writeheader()
        for case, size, seed in jobs(quick):
            if (case, size, seed) in done:
                continue
            scores = five_columns(size, seed) if case == "copula" else one_column(case, size, seed)
            fresh: list[dict[str, Any]] = [
                {"case": case, "rows": size, "seed": seed, "measure": measure, "value": f"{value:.6g}"}
                for measure, value in scores
            ]
            table.writerows(fresh)
            file.flush()
            rows += fresh
    return rows


def summary(rows: list[dict[str, str]]) -> str:
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
