"""The pictures of these pages: ``python docs/figures.py`` makes all of them again, ``python docs/figures.py NAME`` one.

Every picture is a function of the package and of seeds; none is drawn by hand. It is written beside the page that shows
it. The lines of a picture may move by a pixel between versions of matplotlib, not by more.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phvae import PHVAE, SeriesPhaseType
from phvae.datasets import BurrXII, Law, Pareto, claims
from phvae.kernels import contour, series
from phvae.kernels.nodes import SHORT
from phvae.kernels.quantities import DENSITY
from phvae.plots import DATA, INK, MODEL, TRUTH, phase_diagram
from phvae.risk.latent import NormalMixture
from phvae.risk.quadrature import Proposal
from phvae.start import STRENGTHS, fit_marginals

SPLICED = "#3a8f5c"
HERE = Path(__file__).parent
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": DATA,
    "grid.alpha": 0.22,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "phvae",
}


def tail() -> Figure:
    """Ten thousand rows, the law they came from, the fitted one and how sure it is."""
    truth = BurrXII(1.5, 1.2)
    x = np.sort(truth.sample(10_000, seed=1))
    at = np.geomspace(np.quantile(x, 0.003), truth.isf(1e-6), 400)
    model = PHVAE(random_state=0).fit(x[:, None])
    rng = np.random.default_rng(0)
    refits = []
    for counts in rng.multinomial(len(x), np.full(len(x), 1 / len(x)), size=60):
        refits.append(PHVAE(random_state=0).fit(x[:, None], sample_weight=counts).sf(0, at)["value"])
    low, high = np.quantile(refits, [0.05, 0.95], axis=0)
    fitted = model.sf(0, at)["value"]

    figure = Figure(figsize=(7.6, 4.3), layout="constrained")
    ax = figure.add_subplot()
    exceeding = np.arange(len(x), 0, -1) / len(x)
    ax.fill_between(at, low, high, color=MODEL, alpha=0.18, lw=0, label="90% band, 60 refits")
    ax.plot(at, truth.sf(at), color=TRUTH, lw=2, label="truth, a Burr law")
    seen = at <= x[-1]
    ax.plot(at[seen], fitted[seen], color=MODEL, lw=2, label="phvae")
    ax.plot(at[~seen], fitted[~seen], color=MODEL, lw=2, ls=(0, (3, 1.5)), label="phvae, beyond the data")
    beyond = at >= model.tail_certificate().columns[0].trust_point
    spliced = model.sf(0, at[beyond], splice="gpd")["value"]
    ax.plot(at[beyond], spliced, color=SPLICED, lw=1.6, ls=(0, (3, 1.5)), label="phvae, splice = gpd")
    # every order statistic of the tail, and of the body as many as the eye can tell apart
    shown = np.unique(
        np.concatenate([len(x) - np.geomspace(1, len(x), 120).astype(int), np.arange(len(x) - 60, len(x))])
    )
    ax.plot(x[shown], exceeding[shown], "o", ms=3.6, mew=0.9, mfc="white", mec=INK, label="data, 10,000 rows")
    ax.axvline(x[-1], color=INK, lw=0.8, ls=":")
    ax.annotate("largest row", (x[-1], 0.93), (5, 0), ("data", "axes fraction"), "offset points", fontsize=8.5)
    ax.set(xscale="log", yscale="log", xlim=(at[0], at[-1]), ylim=(1e-6, 1.6), xlabel="x", ylabel="P(X > x)")
    handles, labels = ax.get_legend_handles_labels()
    order = [5, 1, 2, 3, 4, 0]
    ax.legend([handles[i] for i in order], [labels[i] for i in order], loc="lower left")
    return figure


def chain() -> Figure:
    """A chain in series form, drawn as such."""
    law = SeriesPhaseType([0.02, 0.08, 0.2, 0.3, 0.4], [0.03, 0.12, 0.5, 1.8, 6.0])
    figure = Figure(figsize=(7.6, 1.7), layout="constrained")
    phase_diagram(law, figure.add_subplot())
    return figure


def mixture() -> Figure:
    """How exponential pieces make a power tail: the survival function by phase of entry."""
    x = Pareto(1.8).sample(20_000, seed=1)[:, None] - 1
    fit = fit_marginals(torch.from_numpy(x), n_phases=8)
    initial, rates = fit.initial[0], fit.rates[0]
    at = np.geomspace(1e-2, 3e3, 400)
    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    ax = figure.add_subplot()
    for i in range(len(initial)):
        # entered at phase i, the chain passes i, ..., m
        start = torch.zeros_like(initial)
        start[i] = 1.0
        alone = SeriesPhaseType(start, rates)
        part = initial[i] * alone.log_sf(torch.from_numpy(at)).exp()
        ax.plot(at, part, color=MODEL, lw=0.9, alpha=0.55, label="by phase of entry" if not i else None)
    law = SeriesPhaseType(initial, rates)
    ax.plot(at, law.log_sf(torch.from_numpy(at)).exp(), color=MODEL, lw=2.2, label="their sum, the fitted law")
    ax.plot(at, (1 + at) ** -1.8, color=TRUTH, lw=1.6, ls=(0, (4, 2)), label="truth, power 1.8")
    ax.axvline(float(x.max()), color=INK, lw=0.8, ls=":")
    ax.annotate("largest row", (x.max(), 0.9), (4, 0), ("data", "axes fraction"), "offset points", fontsize=8.5)
    ax.set(xscale="log", yscale="log", xlim=(at[0], at[-1]), ylim=(1e-7, 2), xlabel="x", ylabel="P(X > x)")
    ax.legend(loc="lower left")
    return figure


def nodes() -> Figure:
    """Where the contour runs, where the poles are, and where the sum is right."""
    figure = Figure(figsize=(7.6, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    table = np.array(SHORT)
    z = np.concatenate([table[::-1, 0] - 1j * table[::-1, 1], table[:, 0] + 1j * table[:, 1]])
    left.plot(z.real, z.imag, "-", color=MODEL, lw=0.8, alpha=0.5)
    left.plot(z.real, z.imag, "o", ms=4.5, mew=0, color=MODEL, label="nodes (upper half is used)")
    poles = -np.array([0, 0.5, 1.7, 4.2, 9.0, 17.5])
    left.plot(poles, np.zeros_like(poles), "x", ms=6, mew=1.6, color=TRUTH, label="poles of L")
    left.axhline(0, color=INK, lw=0.6)
    left.set(xlim=(-22, 12), ylim=(-26, 40), xlabel="Re z", ylabel="Im z", title="z = (s + slowest rate) x")
    left.legend(loc="upper right", fontsize=8)

    x = torch.logspace(-3, 3.7, 400, dtype=torch.float64)
    chains = [
        ("every phase is entered", torch.ones(10), MODEL),
        ("the slowest phase never is", torch.ones(10) - torch.eye(10)[0], TRUTH),
    ]
    rates = torch.logspace(-2, 1, 10, dtype=torch.float64).expand(400, 10)
    for label, start, colour in chains:
        initial = (start.double() / start.sum()).expand(400, 10)
        kappa = contour.condition(DENSITY, x, initial, rates)
        exact = series.log_density(x, initial, rates, method="squaring")
        found = contour.log_value(DENSITY, x, initial, rates)
        error = (found - exact).abs() / torch.where(exact.abs() > 1, exact.abs(), 1.0)
        right.plot(x, error, ".", ms=3, mew=0, color=colour)
        right.plot(x, kappa * 2.2e-16, color=colour, lw=1.3, label=label)
    right.axhline(1e-10, color=INK, lw=0.8, ls=":")
    right.annotate("what is promised", (1.5e-3, 1.8e-10), fontsize=8)
    right.set(
        xscale="log", yscale="log", ylim=(1e-17, 10), xlabel="x", title="error of log f (dots), its estimate (lines)"
    )
    right.legend(loc="upper left", fontsize=8)
    return figure


def smoothness() -> Figure:
    """What the penalty across phases does to the slope of a tail, over a dozen samples of one law."""
    truth = BurrXII(1.5, 1.2)
    x = torch.from_numpy(truth.sample(12 * 2000, seed=0).reshape(2000, 12))
    at = np.geomspace(0.2, truth.isf(5e-4), 200)
    grid = torch.from_numpy(at)[:, None]
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    for ax, strengths, title in zip(
        figure.subplots(1, 2, sharey=True),
        ((1e-2,), STRENGTHS),
        ("hardly any penalty", "strength chosen by evidence"),
        strict=True,
    ):
        fit = fit_marginals(x, n_phases=14, strengths=strengths)
        law = SeriesPhaseType(fit.initial, fit.rates)
        slope = grid * (law.log_prob(grid) - law.log_sf(grid)).exp()
        lines = ax.plot(at, slope, color=MODEL, lw=1, alpha=0.6)
        lines[0].set_label("12 fits to 2,000 rows each")
        ax.plot(at, at * truth.pdf(at) / truth.sf(at), color=TRUTH, lw=2, ls=(0, (4, 2)), label="truth")
        ax.set(xscale="log", xlabel="x", ylim=(0, 4), title=title)
        ax.legend(loc="upper left", fontsize=8)
    figure.axes[0].set_ylabel("local slope x f(x) / S(x)")
    return figure


def tilting() -> Figure:
    """Latent points of the prior, and those fitted to a rare event."""
    frame = claims(2000, seed=0).table()
    model = PHVAE(latent_dim=2, n_phases=10, epochs=12, random_state=0).fit(frame)
    vae = model.vae_.double()
    levels = torch.linspace(-4.5, 4.5, 181, dtype=torch.float64)
    mesh = torch.cartesian_prod(levels, levels)

    def log_event(z: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return sum(vae.decoder.column(z, j).log_sf(at)[:, 0] for j, at in ((0, 60.0), (1, 30.0)))

    prior = NormalMixture.of_prior(vae.prior)
    proposal = Proposal(prior, seed=0)
    before = proposal.points(512, replicates=1).z[0]
    proposal.cover(log_event)
    after = proposal.points(512, replicates=1).z[0]
    share = (prior.log_density(mesh) + log_event(mesh)).exp().view(181, 181).T
    figure = Figure(figsize=(7.6, 3.5), layout="constrained")
    for ax, points, title in zip(
        figure.subplots(1, 2, sharey=True),
        (before, after),
        ("512 points of the prior", "512 points of prior and tilted law"),
        strict=True,
    ):
        ax.contourf(
            levels, levels, share / share.max(), levels=[0.05, 0.2, 0.4, 0.6, 0.8, 1], cmap="Oranges", alpha=0.8
        )
        ax.plot(points[:, 0], points[:, 1], ".", ms=3, mew=0, color=MODEL)
        ax.set(xlim=(-4.5, 4.5), ylim=(-4.5, 4.5), xlabel="first latent coordinate", title=title, aspect="equal")
    return figure


def splice() -> Figure:
    """Where a model's tail leaves that of the data, and what a spliced tail does instead."""
    law = Pareto(1.6)
    x = law.sample(4000, seed=5)
    model = PHVAE(n_phases=10, random_state=0).fit(x[:, None])
    column = model.tail_certificate().columns[0]
    at = np.geomspace(2, 3e4, 300)
    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    ax = figure.add_subplot()
    _survival(ax, at, law, x)
    ax.plot(at, model.sf(0, at)["value"], color=MODEL, lw=2, label="model")
    beyond = at[at >= column.trust_point]
    ax.plot(
        beyond, model.sf(0, beyond, splice="gpd")["value"], color="#3a8f5c", lw=2, ls=(0, (3, 1.5)), label="spliced"
    )
    for place, words, height in (
        (column.threshold, "threshold", 0.62),
        (column.trust_point, "trust point", 0.75),
        (x.max(), "largest row", 0.88),
    ):
        ax.axvline(place, color=INK, lw=0.8, ls=":")
        ax.annotate(words, (place, height), (4, 0), ("data", "axes fraction"), "offset points", fontsize=8.5)
    ax.set(xscale="log", yscale="log", xlim=(at[0], at[-1]), ylim=(1e-7, 1), xlabel="x", ylabel="P(X > x)")
    ax.legend(loc="lower left")
    return figure


def _survival(ax: Axes, at: np.ndarray[Any, Any], truth: Law, x: np.ndarray[Any, Any]) -> None:
    data = np.sort(x)
    exceeding = np.arange(len(data), 0, -1) / len(data)
    ax.plot(
        data, exceeding, ".", ms=4, mew=0, color=DATA, alpha=0.8, label=f"data, {len(data):,} rows", rasterized=True
    )
    ax.plot(at, truth.sf(at), color=TRUTH, lw=1.6, label="truth")


# Name of the file beside this one, and what makes it.
FIGURES: dict[str, Callable[[], Figure]] = {
    "tail.png": tail,
    "figures/chain.svg": chain,
    "figures/mixture.svg": mixture,
    "figures/nodes.svg": nodes,
    "figures/smoothness.svg": smoothness,
    "figures/tilting.svg": tilting,
    "figures/splice.svg": splice,
}


def write(name: str, folder: Path = HERE) -> Path:
    """Make one picture again and write it under its name."""
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        options = {"metadata": {"Date": None}} if place.suffix == ".svg" else {}
        FIGURES[name]().savefig(place, dpi=200, facecolor="white", **options)
    return place


def main() -> None:
    """Make the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    for name in parser.parse_args().names or FIGURES:
        print(write(name))


if __name__ == "__main__":
    main()
