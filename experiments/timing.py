"""Time per epoch, total time and likelihood by number of phases, and what each way to the likelihood costs.

10,000 rows of four laws. The paper's configuration is trained for its thirteen epochs; the defaults, which need no
epochs for one column, stand beside it. The likelihood is that of training rows, as in the paper, and of as many fresh
rows; the entropy of the law is what nothing can be below on fresh rows. Times are wall clock of one thread, with as
many jobs beside it as processes were asked for: run with ``--processes 1`` on a quiet machine to compare machines.
"""

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from experiments import tables
from experiments.frame import Budget, Job, Settings, Synthetic, key
from experiments.paper_numbers import PHASES, TIMING, Printed
from experiments.rows import Row
from experiments.tables import Cell
from phvae import PHVAE
from phvae.datasets import PAPER_LAWS, Law
from phvae.kernels import series

NAME = "timing"
TASKS = {name: Synthetic(name, PAPER_LAWS[name], 10_000) for name in ("Weibull", "Lognormal", "Burr III", "Pareto")}
PRINTED = {"Burr III": "Burr"}
CONFIGURATIONS = {"paper's configuration": PHVAE.paper, "defaults": PHVAE}
# Expected jumps of a row beyond which uniformization is not timed.
LARGEST_JUMPS = 5000
METHODS: tuple[series.Method, ...] = ("auto", "squaring", "uniformization")


def jobs(budget: Budget) -> Iterator[Job]:
    for seed in range(budget.few_seeds):
        for data in TASKS:
            for phases in PHASES:
                for configuration in CONFIGURATIONS:
                    yield Job(NAME, data, "redrawn", seed, name(configuration, phases))


def name(configuration: str, phases: int) -> str:
    return f"{configuration}, m = {phases}"


def tuned_in(job: Job) -> Job | None:
    """Nothing is searched: what a configuration costs is the question."""
    return None


def round_of(job: Job) -> float:
    """A job waits for those of its seed, and for no others."""
    return job.seed


def run(job: Job, budget: Budget, settings: Settings) -> dict[str, float]:
    task = TASKS[job.data]
    assert isinstance(task.law, Law)
    train = task.train(job.protocol, job.seed, budget)
    fresh = task.law.sample(len(train), key(*job[:4], "fresh"))[:, None]
    configuration, phases = job.model.split(", m = ")
    extra = {"epochs": 2} if budget.quick and configuration != "defaults" else {}
    model = CONFIGURATIONS[configuration](n_phases=int(phases), random_state=job.seed, **extra)
    # the kernels are compiled on first use, which is no time of training
    PHVAE.paper(n_phases=int(phases), epochs=1, random_state=0).fit(train[:200])
    began = time.perf_counter()
    model.fit(train)
    scores = {"total time [s]": time.perf_counter() - began}
    if epochs := [record.seconds for record in model.history_]:
        scores["time per epoch [s]"] = float(np.mean(epochs))
    # a fresh row below the origin the model has put has density zero: such rows are counted, not averaged
    inside = fresh[fresh[:, 0] > model.scaler_.origin_[0]]
    scores |= {
        "NLL, training rows": -model.score(train),
        "NLL, fresh rows": -model.score(inside),
        "below the origin": 1 - len(inside) / len(fresh),
        "NLL of the law, fresh rows": -float(task.law.log_pdf(inside).mean()),
    }
    law, excess = model.phase_type(0), train[:, 0] - model.scaler_.origin_[0]
    return scores | {f"likelihood by {m} [us per row]": cost(law, excess, m) for m in METHODS}


def cost(law: object, x: np.ndarray, method: series.Method) -> float:
    """Microseconds per row of one evaluation with both gradients; nan where a method would need too many terms."""
    repeats = 3
    if method == "uniformization":
        # its terms are as many as the chain jumps: a few rows tell what one costs
        x, repeats = x[:100], 1
        if float(law.rates[-1]) * x.max() > LARGEST_JUMPS:  # type: ignore[attr-defined]
            return math.nan
    rows = torch.as_tensor(x)
    initial = law.initial.detach().expand(len(x), -1).clone().requires_grad_()  # type: ignore[attr-defined]
    rates = law.rates.detach().expand(len(x), -1).clone().requires_grad_()  # type: ignore[attr-defined]
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        series.log_density(rows, initial, rates, method=method).sum().backward()  # type: ignore[no-untyped-call]
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / len(x)


def report(rows: Sequence[Row]) -> str:
    measures = ("time per epoch [s]", "total time [s]", "NLL, training rows", "NLL, fresh rows")
    parts = ["## Time and likelihood by number of phases"]
    for data in TASKS:
        columns = {measure: Cell(data, "redrawn", measure) for measure in measures}
        printed: dict[str, list[Printed | None]] = {
            f"m = {m} (paper)": [*values, None, None, None] for m, values in TIMING[PRINTED.get(data, data)].items()
        }
        order = [name(configuration, m) for configuration in CONFIGURATIONS for m in PHASES]
        columns |= {"NLL of the law": Cell(data, "redrawn", "NLL of the law, fresh rows")}
        columns |= {"below the origin": Cell(data, "redrawn", "below the origin")}
        parts += [f"### {data}", tables.table(rows, order, columns, printed=printed)]
    ways = {f"{data}, {m}": Cell(data, "redrawn", f"likelihood by {m} [us per row]") for data in TASKS for m in METHODS}
    order = [name("defaults", m) for m in PHASES]
    parts += [
        "### Microseconds per row of the likelihood with both gradients, by method",
        tables.table(rows, order, ways),
    ]
    return "\n\n".join(parts)
