"""Ablations: the paper's, over phases and the weight of the divergence, and one of every part that is ours.

The paper's runs on Pareto data, where our default has no latent variable and the weight means nothing; it is run with
the paper's configuration, and with our defaults and a latent variable of size two. Ours changes one part of the
defaults at a time, on one column of every law and on the 5-D copula with 20,000 rows.
"""

from collections.abc import Iterator, Sequence

from experiments import table1, tables
from experiments.dependence import METRICS, errors
from experiments.frame import Budget, Job, Model, Settings, Synthetic, key
from experiments.models import model
from experiments.paper_numbers import ABLATION, Printed
from experiments.rows import Row
from experiments.tables import Cell
from phvae.baselines.phase_type import PaperPhaseTypeVAE, PhaseTypeVAE
from phvae.datasets import PAPER_COPULA, Law
from phvae.metrics import quantile_error, tail_distance, tail_mass

NAME = "ablation"
COPULA = Synthetic("5-D synthetic", PAPER_COPULA, 20_000)


def variant(name: str, **settings: object) -> Model:
    return model(PhaseTypeVAE, "ours", name=name, searched=False, **settings)


PAPERS = [
    model(PaperPhaseTypeVAE, "ours", name=f"paper's configuration, m = {m}, beta = {beta:g}", searched=False,
          n_phases=m, beta=beta)
    for m, beta in ABLATION
]  # fmt: skip
PAPERS_WITH_DEFAULTS = [
    variant(f"defaults, two latent numbers, m = {m}, beta = {beta:g}", latent_dim=2, n_phases=m, beta=beta)
    for m, beta in ABLATION
]
ONE_COLUMN = [
    variant("defaults"),
    variant("origin at 0", origin=0.0),
    variant("no penalty across phases", smoothness=0.0),
    variant("two latent numbers", latent_dim=2),
    variant("two latent numbers, geometric start", latent_dim=2, start="geometric"),
    variant("5 phases", n_phases=5),
    variant("10 phases", n_phases=10),
    variant("20 phases", n_phases=20),
    variant("32 phases", n_phases=32),
]
COLUMNS = [
    variant("defaults"),
    variant("origin at 0", origin=0.0),
    variant("geometric start", start="geometric"),
    variant("no penalty across phases", smoothness=0.0),
    variant("standard normal prior", prior="normal"),
    variant("step schedule", schedule="step"),
    variant("no warm-up of the divergence", kl_warmup=0.0),
    variant("beta = 0.5", beta=0.5),
    variant("beta = 2", beta=2.0),
    variant("latent size 4", latent_dim=4),
    variant("5 phases", n_phases=5),
    variant("10 phases", n_phases=10),
    variant("32 phases", n_phases=32),
]
PAPER_MODELS = {m.name: m for m in [*PAPERS, *PAPERS_WITH_DEFAULTS]}
COLUMN_MODELS = {m.name: m for m in ONE_COLUMN}
COPULA_MODELS = {m.name: m for m in COLUMNS}
EVERY = PAPER_MODELS | COLUMN_MODELS | COPULA_MODELS


def jobs(budget: Budget) -> Iterator[Job]:
    for seed in range(budget.seeds):
        for name in PAPER_MODELS:
            yield Job(NAME, "Pareto", "redrawn", seed, name)
        for law in table1.TASKS:
            for name in COLUMN_MODELS:
                yield Job(NAME, law, "redrawn", seed, name)
        for name in COPULA_MODELS if seed < budget.few_seeds else ():
            yield Job(NAME, COPULA.name, "redrawn", seed, name)


def tuned_in(job: Job) -> Job | None:
    """Nothing is searched: a variant differs from the defaults in one thing."""
    return None


def round_of(job: Job) -> float:
    """Several columns take long."""
    return job.seed + (1 if job.data == COPULA.name else 0)


def run(job: Job, budget: Budget, settings: Settings) -> dict[str, float]:
    several = job.data == COPULA.name
    task = COPULA if several else table1.TASKS[job.data]
    chosen = (COPULA_MODELS if several else EVERY)[job.model]
    train = task.train(job.protocol, job.seed, budget)
    # the same noise for every variant of a table, so that variants compare in pairs
    generated = chosen.fit(task, train, job.seed, budget, settings).sample(
        budget.generated[several], key(NAME, job.data, job.seed)
    )
    if several:
        return errors(train, generated, "training rows")
    assert isinstance(task.law, Law)
    column = generated[:, 0]
    return {
        "KS_tail": tail_distance(task.law, column),
        "Q99 error": quantile_error(task.law, column),
        "P(X > x_.95)": tail_mass(task.law, column),
    }


def report(rows: Sequence[Row]) -> str:
    pareto = {metric: Cell("Pareto", "redrawn", metric) for metric in ("KS_tail", "Q99 error", "P(X > x_.95)")}
    printed: dict[str, list[Printed | None]] = {
        f"m = {m}, beta = {beta:g} (paper)": [*values, None] for (m, beta), values in ABLATION.items()
    }
    columns = {f"{law} {m}": Cell(law, "redrawn", m) for law in table1.TASKS for m in ("KS_tail", "Q99 error")}
    dependence = {name: Cell(COPULA.name, "redrawn", f"{name}, training rows") for name in METRICS}
    return "\n\n".join([
        "## Ablation",
        "### Phases and the weight of the divergence, Pareto",
        tables.table(rows, list(PAPER_MODELS), pareto, printed=printed),
        "### Parts of the defaults, one column",
        tables.table(rows, list(COLUMN_MODELS), columns),
        "### Parts of the defaults, 5-D copula with 20,000 rows",
        tables.table(rows, list(COPULA_MODELS), dependence),
    ])  # fmt: skip
