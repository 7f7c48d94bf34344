"""The figures: histograms, log-log tails, correlation matrices, chains and the architecture, as SVG without a date."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from experiments import approximation
from experiments.dependence import SYNTHETIC
from experiments.frame import SETTINGS, Budget, Job, Model, Task, key
from experiments.models import OURS, model
from experiments.rows import Row
from experiments.table1 import TASKS
from experiments.table2 import TASKS as FILES
from phvae import PhaseType
from phvae.baselines.decoder_families import GaussianVAE, MeanDecodedGaussianVAE
from phvae.baselines.phase_type import IndependentPhaseTypeVAEs, PhaseTypeVAE
from phvae.datasets import DataNotFound, Law
from phvae.metrics import log_correlation, survival_curve
from phvae.plots import phase_diagram

NAME = "figures"
GAUSSIAN, MEAN = model(GaussianVAE), model(MeanDecodedGaussianVAE, tuned_as=GaussianVAE.name)
INDEPENDENT = model(IndependentPhaseTypeVAEs, tuned_as=OURS.name)
COLOURS = {OURS.name: "#2f6fb3", GAUSSIAN.name: "#b3452f", MEAN.name: "#d9a022"}
REAL, INK = "#4a4f58", "#4a4f58"


def run(folder: Path, budget: Budget, known: Sequence[Row] = (), names: Iterable[str] | None = None) -> list[Path]:
    """Draw what can be drawn; a figure of a file that is not at hand is left out, and said so.

    Args:
        folder: Where the files go.
        budget: What fits may cost.
        known: Result rows, whose searched settings the fits take.
        names: Any of `FIGURES`; all when omitted.
    """
    paths = []
    for name in FIGURES if names is None else names:
        if name == "approximation":
            paths += approximation.run(folder, quick=budget.quick)
            continue
        try:
            figure = DRAWN[name](budget, known)
        except DataNotFound as error:
            print(f"{name}: left out, {error}")
            continue
        paths.append(folder / f"{name}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
    return paths


def generate(
    which: Model, task: Task, train: np.ndarray, budget: Budget, n: int, known: Sequence[Row], experiment: str
) -> np.ndarray:
    """Rows of a fit with the settings that were searched for its table."""
    source = which.tuned_in(task, Job(experiment, task.name, "fixed", 0, which.name))
    settings = {row.metric: row.value for row in known if row.job == source and row.metric in SETTINGS}
    return which.fit(task, train, 0, budget, settings).sample(n, key(NAME, task.name, which.name))


def weibull(budget: Budget, known: Sequence[Row]) -> Figure:
    """Rows of the law, of a Gaussian VAE and of PH-VAE on the same bins, counts on a log scale."""
    task = TASKS["Weibull"]
    assert isinstance(task.law, Law)
    train = task.train("fixed", 0, budget)
    shown = {"training rows": train[:, 0]}
    shown |= {
        m.name: generate(m, task, train, budget, len(train), known, "table1")[:, 0] for m in (GAUSSIAN, MEAN, OURS)
    }
    figure = Figure(figsize=(11, 2.8), layout="constrained")
    axes = figure.subplots(1, len(shown), sharex=True, sharey=True)
    low, high = min(float(x.min()) for x in shown.values()), max(float(x.max()) for x in shown.values())
    bins = np.linspace(low, high, 60)
    middle = (bins[1:] + bins[:-1]) / 2
    expected = len(train) * (task.law.sf(bins[:-1]) - task.law.sf(bins[1:]))
    for ax, (name, x) in zip(axes, shown.items(), strict=True):
        ax.hist(x, bins, color=COLOURS.get(name, REAL), alpha=0.8)
        ax.plot(middle, expected, color="black", lw=1, label="law")
        ax.set(yscale="log", ylim=(0.5, None), title=name, xlabel="x")
        _bare(ax)
    axes[0].set_ylabel("rows")
    axes[0].legend(frameon=False)
    return figure


def tail(name: str, unit: str, budget: Budget, known: Sequence[Row]) -> Figure:
    """Log-log tail of the rows of a file and of as many generated ones as are enough to go beyond them."""
    task = FILES[name]
    train, _ = task.split("all rows", 0, budget)
    n = max(100_000, len(train))
    figure, ax = _tail_axes(name, unit)
    ax.plot(*_thin(*survival_curve(train[:, 0])), ".", ms=4, color=REAL, label=f"data ({len(train):,} rows)")
    for m in (OURS, GAUSSIAN, MEAN):
        x, p = survival_curve(generate(m, task, train, budget, n, known, "table2")[:, 0])
        ax.plot(*_thin(x[x > 0], p[x > 0]), color=COLOURS[m.name], lw=1.6, label=m.name)
    ax.axvline(train.max(), color=REAL, lw=0.8, ls=":")
    ax.set_xlim(train.min() * 0.8, train.max() * 20)
    ax.set_ylim(1 / (5 * n), 1.3)
    ax.legend(frameon=False, loc="lower left")
    return figure


def correlations(budget: Budget, known: Sequence[Row]) -> Figure:
    """Correlation of log(1 + x): a fresh sample of the law, PH-VAE, one PH-VAE per column."""
    task = SYNTHETIC["5-D synthetic"]
    train = task.train("fixed", 0, budget)
    n = budget.generated[1]
    shown = {"law": task.law.sample(n, key(NAME, "fresh"))}
    shown |= {m.name: generate(m, task, train, budget, n, known, "dependence") for m in (OURS, INDEPENDENT)}
    figure = Figure(figsize=(9, 3.1), layout="constrained")
    axes = figure.subplots(1, len(shown))
    for ax, (name, x) in zip(axes, shown.items(), strict=True):
        matrix = log_correlation(x)
        image = ax.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
        for (i, j), value in np.ndenumerate(matrix):
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color="white" if value > 0.6 else INK)
        ax.set(title=name, xticks=range(5), yticks=range(5))
    figure.colorbar(image, ax=list(axes), shrink=0.8, label="correlation of log(1 + x)")
    return figure


def chain(budget: Budget, known: Sequence[Row]) -> Figure:
    """The three-phase example of the paper's background section."""
    law = PhaseType([0.4, 0.0, 0.6], [[-5.2, 3.0, 2.2], [1.2, -2.5, 0.5], [4.0, 2.3, -7.55]])
    return phase_diagram(law).figure  # type: ignore[return-value]


def fitted_chain(budget: Budget, known: Sequence[Row]) -> Figure:
    """The chain of a fit to Burr XII rows."""
    train = TASKS["Burr XII"].train("fixed", 0, budget)
    fitted = PhaseTypeVAE(n_phases=6).fit(train, 0)
    return phase_diagram(fitted.model_.phase_type(0)).figure  # type: ignore[return-value]


def architecture(budget: Budget, known: Sequence[Row]) -> Figure:
    """From a row to its latent vector, from there to a chain per column, and from the chains to a new row."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    ax = figure.add_subplot()
    boxes = {
        (0.0, 1.0): "row x\nD columns $\\geq$ 0",
        (2.3, 1.0): "encoder\nq(z | x) = N($\\mu(x), \\sigma^2(x)$)",
        (4.9, 1.0): "z\nshared by all columns",
        (7.2, 1.0): "decoder",
        (9.5, 2.0): "chain of column 1\n$\\alpha_1(z), \\lambda_1(z)$",
        (9.5, 1.0): "⋮",
        (9.5, 0.0): "chain of column D\n$\\alpha_D(z), \\lambda_D(z)$",
        (12.1, 1.0): "p(x | z) = Π p(x_j | z)\ntimes to absorption",
    }
    for (x, y), text in boxes.items():
        if text != "⋮":
            ax.add_patch(
                FancyBboxPatch((x - 0.9, y - 0.33), 1.8, 0.66, boxstyle="round,pad=0.08", fc="#eef3f9", ec=INK, lw=1)
            )
        ax.text(x, y, text, ha="center", va="center", fontsize=8, color=INK)
    ends: Sequence[tuple[tuple[float, float], tuple[float, float]]] = [
        ((1.0, 1), (1.3, 1)), ((3.3, 1), (3.9, 1)), ((5.9, 1), (6.2, 1)), ((8.2, 1.1), (8.5, 1.9)),
        ((8.2, 0.9), (8.5, 0.1)), ((10.5, 1.9), (11.1, 1.1)), ((10.5, 0.1), (11.1, 0.9)),
    ]  # fmt: skip
    for start, end in ends:
        ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=INK, lw=1))
    ax.text(4.9, -0.1, "prior p(z): new rows begin here", ha="center", fontsize=8, color=INK)
    ax.add_patch(FancyArrowPatch((4.9, 0.1), (4.9, 0.55), arrowstyle="-|>", mutation_scale=11, color=INK, lw=1))
    ax.set(xlim=(-1.2, 13.3), ylim=(-0.6, 2.6), aspect="equal")
    ax.axis("off")
    return figure


def danish(budget: Budget, known: Sequence[Row]) -> Figure:
    return tail("Danish fire", "loss [million kroner]", budget, known)


def words(budget: Budget, known: Sequence[Row]) -> Figure:
    return tail("word counts", "count", budget, known)


DRAWN: dict[str, Callable[[Budget, Sequence[Row]], Figure]] = {
    "weibull": weibull,
    "danish": danish,
    "words": words,
    "correlations": correlations,
    "chain": chain,
    "fitted-chain": fitted_chain,
    "architecture": architecture,
}
# The approximation is two figures and a table, of a module of its own.
FIGURES = [*DRAWN, "approximation"]


def _tail_axes(title: str, unit: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.add_subplot()
    ax.set(xscale="log", yscale="log", xlabel=unit, ylabel="P(X ≥ x)", title=title)
    _bare(ax)
    return figure, ax


def _bare(ax: Axes) -> None:
    ax.grid(True, alpha=0.25, lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)


def _thin(x: np.ndarray, p: np.ndarray, points: int = 800) -> tuple[np.ndarray, np.ndarray]:
    """Points evenly spread in log p: all of the far tail, few of the body."""
    wanted = np.geomspace(p[0], p[-1], points)
    keep = np.unique(
        np.concatenate([np.searchsorted(-p, -wanted).clip(0, len(p) - 1), np.arange(max(0, len(p) - 50), len(p))])
    )
    return x[keep], p[keep]
