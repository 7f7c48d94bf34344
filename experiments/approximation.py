"""Finite phase-type models of heavy-tailed laws: a Weibull density and a Burr tail with a growing number of phases.

The target is not sampled: it is cut into cells of known probability, fine in the tail, and each cell enters the
likelihood once with its probability as weight. The fit then minimises the Kullback-Leibler divergence from the
target over the cells, without sampling noise, and more phases cannot fit worse.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from phvae.datasets import PAPER_LAWS, Law
from phvae.distributions.fitting import SeriesFit, fit_series

TARGETS: dict[str, Law] = {
    "Weibull, shape 0.8": PAPER_LAWS["Weibull"],
    "Burr, c = 1.5, k = 0.8": PAPER_LAWS["Burr XII"],
}
LEVELS = (0.5, 0.1, 1e-2, 1e-3, 1e-4)
LOWEST = 1e-5  # tail probability down to which the target is represented


def run(folder: Path, *, quick: bool) -> list[Path]:
    """Fit every target, and write one figure each and one table; returns the paths written."""
    phases = (1, 2, 3) if quick else (1, 2, 3, 5, 10)
    points = 200 if quick else 1000
    rows: list[dict[str, Any]] = []
    paths = []
    for name, target in TARGETS.items():
        x, weights = cells(target, points)
        fits = {m: fit_series(x, m, weights) for m in phases}
        for m, fit in fits.items():
            rows += measures(name, target, m, fit, x, weights)
        figure = draw_density(name, target, fits) if name.startswith("Weibull") else draw_tail(name, target, fits)
        paths.append(folder / f"approximation-{name.split(',')[0].lower()}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
    paths.append(folder / "approximation.csv")
    with paths[-1].open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return paths


def cells(target: Law, points: int) -> tuple[np.ndarray, np.ndarray]:
    """One point per cell of the target and the cell's probability: even cells in the body, geometric in the tail."""
    body = np.linspace(1, 0.01, points + 1)
    tail = np.geomspace(0.01, LOWEST, points // 2 + 1)[1:]
    edges = np.concatenate([body, tail, [0.0]])
    middle = (edges[:-1] + edges[1:]) / 2
    return target.isf(middle), edges[:-1] - edges[1:]


def measures(
    name: str, target: Law, m: int, fit: SeriesFit, x: np.ndarray, weights: np.ndarray
) -> list[dict[str, Any]]:
    """Tidy rows: how far the fit is from the target, in divergence, in tail probability and in quantiles."""
    at = torch.as_tensor(x)
    density, survival = fit.law.log_prob(at).numpy(), fit.law.sf(at).numpy()
    found: list[tuple[str, float | str, float]] = [
        ("divergence over the cells [nats per observation]", "", float(weights @ (target.log_pdf(x) - density))),
        ("largest error of the tail probability [probability]", "", float(np.abs(survival - target.sf(x)).max())),
    ]
    for level in LEVELS:
        quantile = float(fit.law.isf(torch.tensor(level, dtype=torch.float64)))
        found.append(("relative error of the quantile [1]", level, quantile / float(target.isf(level)) - 1))
    return [
        {"target": name, "n_phases": m, "measure": measure, "exceedance_level": level, "value": f"{value:.6g}",
         "converged": fit.converged}
        for measure, level, value in found
    ]  # fmt: skip


def draw_density(name: str, target: Law, fits: dict[int, SeriesFit]) -> Figure:
    x = np.geomspace(target.isf(0.99), target.isf(1e-4), 400)
    figure, ax = _axes(name, "density")
    ax.plot(x, target.pdf(x), color="black", lw=2.4, label="target")
    for m, fit in fits.items():
        ax.plot(x, fit.law.log_prob(torch.as_tensor(x)).exp().numpy(), color=_colour(m, fits), lw=1.3, label=_label(m))
    ax.legend(frameon=False)
    return figure


def draw_tail(name: str, target: Law, fits: dict[int, SeriesFit]) -> Figure:
    x = np.geomspace(target.isf(0.99), target.isf(LOWEST), 400)
    figure, ax = _axes(name, "P(X > x)")
    ax.plot(x, target.sf(x), color="black", lw=2.4, label="target")
    for m, fit in fits.items():
        ax.plot(x, fit.law.sf(torch.as_tensor(x)).numpy(), color=_colour(m, fits), lw=1.3, label=_label(m))
    ax.set_ylim(LOWEST, 1.3)
    ax.legend(frameon=False)
    return figure


def _axes(title: str, quantity: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.add_subplot()
    ax.set(xscale="log", yscale="log", xlabel="x", ylabel=quantity, title=title)
    ax.grid(True, alpha=0.25, lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax


def _colour(m: int, fits: dict[int, SeriesFit]) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](0.9 - 0.8 * list(fits).index(m) / len(fits))


def _label(m: int) -> str:
    return f"{m} phase" + ("s" if m > 1 else "")
