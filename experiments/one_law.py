"""One series phase-type law per data set: what the penalty across phases and its choice are worth in the tail.

Rows are redrawn for every seed, fitted, and scored against the law they came from: the distance of the conditional
laws above its 95% quantile, the relative error of its 99% quantile, and the tail mass there, which the first two do
not see. Scores come in two kinds: of 100,000 generated rows, and of the fitted law itself. References: the law itself,
maximum likelihood in its own family, an empirical body with a generalised Pareto tail, and the rows resampled.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from phvae.datasets import PAPER_LAWS, Law
from phvae.kernels import series
from phvae.metrics import quantile_error, tail_distance, tail_mass
from phvae.start import climb, fit_marginals, geometric, natural, sketch

# The families whose maximum likelihood is a reference, from the shapes of the law that was drawn from.
FAMILIES: dict[str, Any] = {
    "Weibull": stats.weibull_min(0.8),
    "Pareto": stats.pareto(2.4),
    "Lognormal": stats.lognorm(1.5),
    "Burr XII": stats.burr12(1.5, 0.8),
    "Burr III": stats.burr(1.5, 0.8),
}
ROWS, GENERATED = 10_000, 100_000
LEVEL, QUANTILE = 0.05, 0.01
SCORES = ("tail_distance", "quantile_error", "tail_mass")
TAIL = np.geomspace(LEVEL, 1e-6, 400)


@dataclass(frozen=True)
class Column:
    """Scaled rows of one draw, and what brings them back."""

    law: str
    seed: int
    rows: np.ndarray
    origin: float
    scale: float

    @property
    def scaled(self) -> np.ndarray:
        return (self.rows - self.origin) / self.scale


def draw(law: str, seed: int) -> Column:
    """Rows of the law, with an origin just below the smallest and a power of two near the median as scale."""
    rows = PAPER_LAWS[law].sample(ROWS, seed)
    origin = max(0.0, rows.min() - (rows.mean() - rows.min()) / ROWS)
    return Column(law, seed, rows, origin, float(2.0 ** np.round(np.log2(np.median(rows) - origin))))


Fit = Callable[[list[Column]], tuple[Tensor, Tensor]]


def chosen(columns: list[Column], n_phases: int = 10, **options: Any) -> tuple[Tensor, Tensor]:
    """The package's fit: strength by evidence, unless strengths are given."""
    x = torch.tensor(np.array([column.scaled for column in columns])).T
    law = fit_marginals(x, n_phases=n_phases, **options)
    return law.initial, law.rates


def fixed(strength: float) -> Fit:
    """Third differences at one strength, reached down the path of stronger ones."""
    return lambda columns: by_differences(
        columns, 3, [s for s in (1e3, 1e2, 1e1, 1e0, 1e-1) if s > strength] + [strength]
    )


def by_differences(columns: list[Column], order: int, strengths: list[float], m: int = 10) -> tuple[Tensor, Tensor]:
    """Penalty on differences of this order, fits following one another down the strengths."""
    sketches = [sketch(column.scaled, np.ones(ROWS)) for column in columns]
    cells = max(len(s.x) for s in sketches)
    x = torch.tensor(np.array([np.pad(s.x, (0, cells - len(s.x)), mode="edge") for s in sketches]))
    weights = torch.tensor(np.array([np.pad(s.weights, (0, cells - len(s.x))) for s in sketches]))
    point = torch.stack([geometric(s, m) for s in sketches])
    difference = torch.eye(m, dtype=torch.float64).diff(n=order, dim=0)
    square = difference.T @ difference
    for strength in strengths:
        point, _, _ = climb(x, weights, point, strength * torch.block_diag(square, square))
    return natural(point)


VARIANTS: dict[str, Fit] = {
    "chosen by evidence": chosen,
    "third differences 1000": fixed(1e3),
    "third differences 100": fixed(1e2),
    "third differences 10": fixed(1e1),
    "third differences 1": fixed(1.0),
    "no penalty": lambda columns: by_differences(columns, 2, [1e-6]),
    "second differences 10": lambda columns: by_differences(columns, 2, [10.0]),
    "chosen by evidence 14 phases": lambda columns: chosen(columns, 14),
    "chosen by evidence 20 phases": lambda columns: chosen(columns, 20),
}


def maximum_likelihood(column: Column) -> Any:
    """The law's own family, shapes and scale free, from the true shapes."""
    start = FAMILIES[column.law]
    return start.dist(*start.dist.fit(column.rows, *start.args, floc=0))


def spliced(column: Column, rng: np.random.Generator) -> np.ndarray:
    """Rows of an empirical body with a generalised Pareto tail above the 90% quantile."""
    threshold = np.quantile(column.rows, 0.9)
    beyond = column.rows[column.rows > threshold] - threshold
    shape, _, scale = stats.genpareto.fit(beyond, floc=0)
    body = column.rows[column.rows <= threshold]
    tail = threshold + stats.genpareto(shape, scale=scale).rvs(size=GENERATED, random_state=rng)
    return np.where(rng.random(GENERATED) < len(beyond) / ROWS, tail, rng.choice(body, GENERATED))


def generate(initial: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows of a series law: an entry phase, then the sum of the stays from there on."""
    entry = np.minimum(np.searchsorted(initial.cumsum(), rng.random(GENERATED), side="right"), len(initial) - 1)
    stays = rng.standard_exponential((GENERATED, len(rates))) / rates
    return np.where(np.arange(len(rates)) >= entry[:, None], stays, 0.0).sum(1)


def score_rows(rows: np.ndarray, law: Law) -> tuple[float, float, float]:
    """Tail distance, error of the 99% quantile and tail mass of generated rows."""
    return tail_distance(law, rows), quantile_error(law, rows), tail_mass(law, rows)


def score_law(initial: Tensor, rates: Tensor, column: Column) -> tuple[float, float, float]:
    """The same of a fitted law, without generating."""
    law = PAPER_LAWS[column.law]

    def survival(x: np.ndarray) -> np.ndarray:
        return series.log_survival(torch.as_tensor((x - column.origin) / column.scale), initial, rates).exp().numpy()

    fitted = survival(law.isf(TAIL))
    distance = np.abs(fitted / fitted[0] - TAIL / LEVEL).max()
    low, high = float(law.isf(0.2)), float(law.isf(1e-5))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if survival(np.array([middle]))[0] > QUANTILE else (low, middle)
    return float(distance), abs(float(high / law.isf(QUANTILE)) - 1), float(fitted[0])


def run(folder: Path, *, quick: bool) -> list[Path]:
    """Score every variant and reference; one tidy table, one row per data set and fit."""
    seeds = range(2) if quick else range(20)
    columns = [draw(law, seed) for law in PAPER_LAWS for seed in seeds]
    table = []

    def note(fit: str, column: Column, kind: str, scores: tuple[float, float, float]) -> None:
        values = {name: f"{value:.6g}" for name, value in zip(SCORES, scores, strict=True)}
        table.append({"law": column.law, "seed": column.seed, "fit": fit, "scored": kind} | values)

    for name, fit in VARIANTS.items():
        initial, rates = fit(columns)
        for column, start, rate in zip(columns, initial, rates, strict=True):
            # The same noise for every fit of a data set, so that fits compare in pairs; other noise for every data set.
            rng = np.random.default_rng([column.seed, list(PAPER_LAWS).index(column.law), 1])
            rows = column.origin + column.scale * generate(start.numpy(), rate.numpy(), rng)
            note(name, column, "rows", score_rows(rows, PAPER_LAWS[column.law]))
            note(name, column, "law", score_law(start, rate, column))
    for column in columns:
        law, rng = PAPER_LAWS[column.law], np.random.default_rng([column.seed, list(PAPER_LAWS).index(column.law), 2])
        note("the law itself", column, "rows", score_rows(law.sample(GENERATED, rng), law))
        likely = maximum_likelihood(column).rvs(size=GENERATED, random_state=rng)
        note("maximum likelihood in its family", column, "rows", score_rows(likely, law))
        note("empirical body Pareto tail", column, "rows", score_rows(spliced(column, rng), law))
        note("rows resampled", column, "rows", score_rows(rng.choice(column.rows, GENERATED), law))

    path = folder / "one-law.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    summary = folder / "one-law-summary.csv"
    with summary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        headings = [f"{name}{part}" for name in SCORES[:2] for part in ("", "_standard_error")]
        writer.writerow(["fit", "scored", "law", *headings, SCORES[2]])
        for fit, kind in dict.fromkeys((row["fit"], row["scored"]) for row in table):
            for law in PAPER_LAWS:
                same = [row for row in table if (row["fit"], row["scored"], row["law"]) == (fit, kind, law)]
                values = np.array([[float(row[name]) for name in SCORES] for row in same])
                mean, error = values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))
                pairs = [f"{v:.4f}" for v in (mean[0], error[0], mean[1], error[1], mean[2])]
                writer.writerow([fit, kind, law, *pairs])
    return [path, summary]
