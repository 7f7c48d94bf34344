"""The page of all results, made from result rows alone: what was asked for and what came out, tables, figures, cost."""

import os
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from experiments import rows, tables
from experiments.frame import FULL, LARGE, LEARNING_RATES, Budget
from experiments.rows import Row

# In the order of the page; each module has `report`, and some have `targets`.
TABLES = ("table1", "table2", "dependence", "ablation", "timing", "limitations")
WITH_TARGETS = ("table1", "table2", "dependence")
FIGURES = {
    "weibull": "Rows of a Weibull law, of a Gaussian VAE (sampled, and decoded by its mean) and of PH-VAE",
    "danish": "Danish fire losses: log-log tail of the data, PH-VAE and Gaussian VAE",
    "words": "Word counts: log-log tail of the data, PH-VAE and Gaussian VAE",
    "correlations": "Correlations of log(1 + x) in the 5-D synthetic data: the law, PH-VAE, one PH-VAE per column",
    "approximation-weibull": "Phase-type approximation of a Weibull density with a growing number of phases",
    "approximation-burr": "Phase-type approximation of a Burr tail with a growing number of phases",
    "chain": "A phase-type law with three phases: the example of the paper's background section",
    "fitted-chain": "The chain of a fit to Burr XII rows, in series canonical form",
    "architecture": "The model: one latent vector, one chain per column",
}


def write(found: Sequence[Row], budget: Budget, page: Path, figures: Path) -> Path:
    """The page of these rows; figures are linked where they exist."""
    own = [row for row in found if row.budget == budget.name]
    parts = [head(own, budget), reading(own), cost(own)]
    for name in TABLES:
        mine = [row for row in own if row.experiment == name]
        if mine:
            parts.append(section(name, mine, budget))
    parts.append(gallery(figures, page.parent))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return page


def section(name: str, found: Sequence[Row], budget: Budget) -> str:
    """The report of one experiment; below its heading, models without rows, and those of rows that it does not know."""
    module = import_module(f"experiments.{name}")
    planned, there = dict.fromkeys(job.model for job in module.jobs(budget)), {row.model for row in found}
    heading, rest = module.report(found).split("\n\n", 1)
    absent = "; ".join(model for model in planned if model not in there)
    unknown = "; ".join(sorted(there - set(planned)))
    notes = [f"Not run yet: {absent}."] if absent else []
    notes += [f"Rows of models that are not shown, for want of `--with`: {unknown}."] if unknown else []
    return "\n\n".join([heading, *notes, rest])


def head(found: Sequence[Row], budget: Budget) -> str:
    seeds = Counter(row.seed for row in found if row.metric == rows.LAST and row.protocol != "tuning")
    spread = ", ".join(f"seed {seed}: {seeds[seed]:,}" for seed in sorted(seeds)) or "none"
    text = f"""\
# Results

This page is made by `python -m experiments` from its result rows and from nothing else; the rows of the full run are
`docs/results/rows-{FULL.name}.csv`. Seeds of an experiment are run in order; a run goes on where it was stopped,
and chooses no seed: fits finished so far, by seed, are {spread}. The column `seeds` says how many stand behind a row
of a table, and `±` is the standard deviation over them. Tables of real data are run from the files in the folder that
`PHVAE_DATA` names. A `-` stands where nothing was run or printed, and N/A in a printed row is the paper's own."""
    if budget.quick:
        return text + "\n\nModels are hardly trained in a quick run: it says that everything runs, and nothing else."
    rates = " and ".join(f"{rate:g}" for rate in LEARNING_RATES)
    return f"""{text}

All trained models have the same widths, optimiser, batches and steps: at most {budget.effort:.0%} of the epochs that
the package takes by itself, and half of that beyond {LARGE:,} rows. For each model and data set, step size ({rates})
and epochs (all or half) are chosen once, by held-out rows of a table that is not scored, or of rows that are held out
for no seed; the t3-VAE chooses its degrees of freedom and spread there, too. PH-VAE is searched likewise where it has
a latent vector; in one column it is a single phase-type law, whose maximum likelihood takes no steps. Italic rows are
floors: the law itself drawn again, and maximum likelihood in its family. xVAE with GPD margins, the tail-transform
flow and the classical fits are references that PH-VAE is not required to beat."""


def reading(found: Sequence[Row]) -> str:
    """Every target with the number of cells that meet it, and the cells that do not."""
    parts = ["## What was asked for, and what came out"]
    for name in WITH_TARGETS:
        mine = [row for row in found if row.experiment == name]
        verdicts = import_module(f"experiments.{name}").targets(mine)
        parts += [f"- {target}: {tables.counted(cells)}" for target, cells in verdicts.items()]
    return parts[0] + "\n\n" + "\n".join(parts[1:])


def cost(found: Sequence[Row]) -> str:
    """Fits, processor time and diverged runs of every experiment."""
    lines = [
        "## Cost and diverged runs",
        "",
        "| experiment | command | fits and searches | processor hours | runs that diverged | diverged in searches |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in TABLES:
        mine = [row for row in found if row.experiment == name]
        if not mine:
            continue
        total = {m: sum(row.value for row in mine if row.metric == m) for m in (rows.LAST, "diverged in search")}
        lost = Counter(row.model for row in mine if row.metric == "diverged" and row.value > 0)
        named = ", ".join(f"{model} {n}" for model, n in sorted(lost.items()))
        searches = sum(row.value for row in mine if row.metric == "fits in search")
        jobs = sum(row.metric == rows.LAST for row in mine)
        lines.append(
            f"| {name} | `make reproduce ARGS={name}` | {jobs:,} | {total[rows.LAST] / 3600:.2f} "
            f"| {f'{sum(lost.values())} ({named})' if lost else 0} "
            f"| {total['diverged in search']:.0f} of {searches:.0f} |"
        )
    absent = [name for name in TABLES if not any(row.experiment == name for row in found)]
    if len(lines) > 4:
        return "\n".join([*lines, *(["", f"Not run yet: {', '.join(absent)}."] if absent else [])])
    return "Nothing was run."


def gallery(figures: Path, beside: Path) -> str:
    shown = [
        f"### {title}\n\n![{title}]({Path(os.path.relpath(figures / f'{name}.svg', beside)).as_posix()})"
        for name, title in FIGURES.items()
        if (figures / f"{name}.svg").exists()
    ]
    return "\n\n".join(["## Figures", *shown]) if shown else ""
