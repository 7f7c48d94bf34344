"""What an experiment is made of: budgets, jobs, models and data sets, each a small object listed in one line."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from phvae.baselines.baseline import Baseline
from phvae.baselines.search import Choice, Trial, compare
from phvae.datasets import Dataset, Law, StudentCopula
from phvae.metrics import energy_distance
from phvae.training import TrainingError

Array = np.ndarray
Settings = dict[str, float]
# The protocol of a job that searches settings.
TUNING = "tuning"
# The share of the epochs of the budget that a search has chosen.
SHARE = "share of epochs"
# What a search may say of a model: rows with these names reach its fits.
SETTINGS = ("learning_rate", SHARE, "degrees", "spread")


@dataclass(frozen=True)
class Budget:
    """How much a run costs.

    Args:
        name: Stands in every result row: rows of different budgets are never mixed.
        seeds: Seeds of every protocol.
        few_seeds: Seeds where a fit is costly, or where many settings are compared.
        rows: Most training rows of one column, and of several.
        generated: Rows generated to score one column, and several.
        effort: Share of the epochs of a model itself, the most that any model is given; in large tables half of it.
        searched: Step size and epochs of every trained model are searched on held-out rows first.
    """

    name: str
    seeds: int
    few_seeds: int
    rows: tuple[int, int]
    generated: tuple[int, int]
    effort: float
    searched: bool

    def most_epochs(self, own: int, n_rows: int) -> float:
        """Of the epochs a model takes by itself, those it is given."""
        return own * self.effort * (0.5 if n_rows > LARGE else 1.0)

    @property
    def quick(self) -> bool:
        """Whether the run only shows that everything works."""
        return not self.searched


QUICK = Budget("quick", 2, 1, rows=(2000, 2000), generated=(50_000, 50_000), effort=0.04, searched=False)
# A quarter of the epochs of `phvae.defaults.for_size` is 1,500 steps and more than the paper's thirteen epochs.
FULL = Budget("full", 5, 5, rows=(10**9, 10**9), generated=(100_000, 1_000_000), effort=1 / 4, searched=True)
BUDGETS = {budget.name: budget for budget in (QUICK, FULL)}

# The search, the same for every model: step sizes with all epochs of the budget, then half of the epochs with the best.
LEARNING_RATES = (2e-3, 8e-3)
SHORTER = 0.5
# Rows beyond which steps are long.
LARGE = 50_000
# Rows searched at most, and rows generated where settings are compared by those.
SEARCHED_ROWS, COMPARED_ROWS = 20_000, 20_000


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
    """Rows of a file; ``all rows`` trains on them all, ``half`` on a half drawn anew for every seed and keeps the rest.

    A quarter of the rows is in the training half of every seed: settings are searched there, so no held-out row of any
    seed has had a part in them.
    """

    name: str
    load: Callable[[], Dataset]

    def split(self, protocol: str, seed: int, budget: Budget) -> tuple[Array, Array | None]:
        """Training rows, and held-out ones where the protocol has them."""
        values = _values(self.load)
        n = min(len(values), budget.rows[values.shape[1] > 1])
        values = values[np.random.default_rng(key(self.name, "subset")).permutation(len(values))[:n]]
        common, rest = values[: n // 4], values[n // 4 :]
        if protocol == "tuning":
            return common, None
        if protocol == "all rows":
            return values, None
        order = np.random.default_rng(key(self.name, "half", seed)).permutation(len(rest))
        more = n // 2 - n // 4
        return np.concatenate([common, rest[order[:more]]]), rest[order[more:]]

    def tuned_in(self, job: Job) -> Job:
        """Settings are searched once, in rows that are never held out."""
        return job._replace(protocol="tuning", seed=0)


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
        choices: Settings of its own, compared first in the search, by rows generated with each.
        own_epochs: Its number of epochs belongs to what it is, whatever the budget.
        by_task: ``make`` takes the task first.
        tuned_as: The model whose search it shares, where nothing that is searched is different.
        true_family_of: The law that its decoder is the true family of: it is shown there, and no rival.
        later: Rounds by which its seeds wait for those of others, where fits are long: a run that is stopped then has
            fewer seeds of it, and says so.
    """

    name: str
    make: Callable[..., Baseline] = field(repr=False)
    kind: Kind = "neural"
    searched: bool = True
    choices: tuple[Settings, ...] = ()
    own_epochs: bool = False
    by_task: bool = False
    tuned_as: str | None = None
    true_family_of: str | None = None
    later: float = 0

    def tuned_in(self, task: Task, job: Job) -> Job | None:
        """The job that searches the settings of another, where there are any to search."""
        return task.tuned_in(job._replace(model=self.tuned_as or self.name)) if self.searched else None

    def of(self, task: Task) -> Callable[..., Baseline]:
        return partial(self.make, task) if self.by_task else self.make

    def fit(self, task: Task, train: Array, seed: int, budget: Budget, settings: Settings) -> Baseline:
        make = self.of(task)
        chosen: dict[str, Any] = {name: value for name, value in settings.items() if name != SHARE}
        if epochs := _epochs(make(**chosen), train):
            most = epochs if self.own_epochs and not budget.quick else budget.most_epochs(epochs, len(train))
            chosen["epochs"] = max(1, round(settings.get(SHARE, 1.0) * most))
        return make(**chosen).fit(train, seed)

    def tune(self, task: Task, train: Array, budget: Budget) -> Settings:
        """What does best on rows held out of these, and how many runs of the search there were and diverged."""
        rows, make = train[:SEARCHED_ROWS], self.of(task)
        seed = key(self.name, "search")
        epochs = budget.most_epochs(_epochs(make(), rows), len(rows))
        whole, half = max(1, round(epochs)), max(1, round(SHORTER * epochs))
        found: Settings = {}
        trials: list[Trial] = []
        if self.choices:
            choice = compare(partial(make, epochs=whole), rows, self.choices, score=closeness, seed=seed)
            found |= choice.settings
            trials += choice.trials
        if epochs:
            rates = [{"learning_rate": rate, "epochs": whole} for rate in LEARNING_RATES]
            choice = compare(partial(make, **found), rows, rates, seed=seed)
            found["learning_rate"] = choice.settings["learning_rate"]
            trials += choice.trials
            try:
                shorter = compare(partial(make, **found), rows, [{"epochs": half}], seed=seed)
            except TrainingError:
                found[SHARE] = 1.0
            else:
                found[SHARE] = SHORTER if _best(shorter) > _best(choice) else 1.0
                trials += shorter.trials
        return {
            **found,
            "fits in search": len(trials),
            "diverged in search": sum(trial.objective is None for trial in trials),
        }


def closeness(model: Baseline, out: Array, seed: int) -> float:
    """Minus the energy distance of generated rows from held-out ones, columns in units of their medians.

    It asks for rows alone, so it can compare settings that change what the objective of a model is. In one column it is
    the mean continuous ranked probability score, times two and but for a constant of the held-out rows.
    """
    unit = np.nanmedian(np.where(out > 0, out, np.nan), axis=0)
    return -energy_distance(out / unit, model.sample(COMPARED_ROWS, seed) / unit, random_state=seed)


def _best(choice: Choice) -> float:
    return max(trial.objective for trial in choice.trials if trial.objective is not None)


def _epochs(model: Baseline, train: Array) -> int:
    resolved = getattr(model, "resolved", None)
    return int(resolved(*train.shape)["epochs"]) if resolved is not None else 0
