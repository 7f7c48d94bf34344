"""What an experiment is made of: budgets, jobs, models and data sets, each a small object listed in one line."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from phvae.baselines.baseline import Baseline
from phvae.baselines.search import search
from phvae.datasets import Dataset, Law, StudentCopula

Array = np.ndarray
Settings = dict[str, float]


@dataclass(frozen=True)
class Budget:
    """How much a run costs.

    Args:
        name: Stands in every result row: rows of different budgets are never mixed.
        seeds: Seeds of every protocol.
        rows: Most training rows of one column, and of several.
        generated: Rows generated to score one column, and several.
        effort: Share of the epochs that a model takes by itself.
        searched: Step size and epochs of every trained model are searched on held-out rows first.
    """

    name: str
    seeds: int
    rows: tuple[int, int]
    generated: tuple[int, int]
    effort: float
    searched: bool

    @property
    def few_seeds(self) -> int:
        """Seeds where a fit is costly, or where many settings are compared."""
        return min(self.seeds, 5) if self.effort == 1 else 1


QUICK = Budget("quick", seeds=2, rows=(2000, 2000), generated=(50_000, 50_000), effort=0.04, searched=False)
FULL = Budget("full", seeds=10, rows=(10**9, 10**9), generated=(100_000, 1_000_000), effort=1.0, searched=True)
BUDGETS = {budget.name: budget for budget in (QUICK, FULL)}


class Job(NamedTuple):
    """One fit and its scores; the names say which, the module of the experiment knows what they mean."""

    experiment: str
    data: str
    protocol: str
    seed: int
    model: str


def key(*parts: object) -> int:
    """A seed from a name, the same on every machine."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:4])


@dataclass(frozen=True)
class Synthetic:
    """Rows drawn from a known law; ``fixed`` draws one table for all seeds, ``redrawn`` one for each."""

    name: str
    law: Law | StudentCopula
    n_rows: int

    @property
    def n_columns(self) -> int:
        return len(self.law.margins) if isinstance(self.law, StudentCopula) else 1

    def train(self, protocol: str, seed: int, budget: Budget) -> Array:
        n = min(self.n_rows, budget.rows[self.n_columns > 1])
        table = {"fixed": "fixed", "redrawn": seed, "tuning": "tuning"}[protocol]
        return self.law.sample(n, key(self.name, "train", table)).reshape(n, -1)

    def tuned_in(self, job: Job) -> Job:
        """Settings are searched once, in a table that is never scored."""
        return job._replace(protocol="tuning", seed=0)


@dataclass(frozen=True)
class Real:
    """Rows of a file; ``all rows`` trains on them all, ``half`` on a random half for every seed and keeps the rest."""

    name: str
    load: Callable[[], Dataset]

    def split(self, protocol: str, seed: int, budget: Budget) -> tuple[Array, Array | None]:
        """Training rows, and held-out ones where the protocol has them."""
        values = _values(self.load)
        n = min(len(values), budget.rows[values.shape[1] > 1])
        if n < len(values):
            values = values[np.random.default_rng(key(self.name, "subset")).permutation(len(values))[:n]]
        if protocol.removeprefix("tuning ") == "all rows":
            return values, None
        order = np.random.default_rng(key(self.name, "half", seed)).permutation(len(values))
        return values[order[::2]], values[order[1::2]]

    def tuned_in(self, job: Job) -> Job:
        """Settings are searched in the training rows of the job, and so for every half anew."""
        return job._replace(protocol=f"tuning {job.protocol}", seed=job.seed if job.protocol == "half" else 0)


@cache
def _values(load: Callable[[], Dataset]) -> Array:
    return load().values


Task = Synthetic | Real
Kind = Literal["ours", "neural", "reference"]


@dataclass(frozen=True)
class Model:
    """A row of a table.

    Args:
        name: Its label.
        make: Makes an unfitted baseline from settings such as ``epochs``.
        kind: ``ours``; ``neural``, which ours has to beat; or a ``reference``.
        searched: Step size and epochs are searched where the budget says so.
        by_task: ``make`` takes the task first.
    """

    name: str
    make: Callable[..., Baseline] = field(repr=False)
    kind: Kind = "neural"
    searched: bool = True
    by_task: bool = False

    @property
    def tunable(self) -> bool:
        """Whether a search may choose its step size and epochs."""
        return self.searched and self.kind != "reference"

    def of(self, task: Task) -> Callable[..., Baseline]:
        return partial(self.make, task) if self.by_task else self.make

    def fit(self, task: Task, train: Array, seed: int, budget: Budget, settings: Settings) -> Baseline:
        make = self.of(task)
        chosen: dict[str, Any] = dict(settings)
        if "epochs" in chosen:
            chosen["epochs"] = int(chosen["epochs"])
        elif budget.effort < 1 and (epochs := _epochs(make(), train)):
            chosen["epochs"] = max(1, round(budget.effort * epochs))
        return make(**chosen).fit(train, seed)

    def tune(self, task: Task, train: Array) -> Settings:
        """Step size and epochs that do best on rows held out of these, and how many runs of the search diverged."""
        choice = search(self.of(task), train, seed=key(self.name, "search"))
        return {**choice.settings, "diverged in search": choice.n_diverged, "fits in search": len(choice.trials)}


def _epochs(model: Baseline, train: Array) -> int:
    resolved = getattr(model, "resolved", None)
    return int(resolved(*train.shape)["epochs"]) if resolved is not None else 0
