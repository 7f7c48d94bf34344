"""The frame of the experiments: rows that survive a crash, jobs named once, tables that say what is missing."""

import math
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from experiments import dependence, rows, runner, table1, table2, tables
from experiments.__main__ import main
from experiments.frame import FULL, QUICK, SHARE, TUNING, Job, Model, Real, Synthetic, key
from experiments.paper_numbers import ABLATION, DEPENDENCE, TABLE_1, TABLE_2, TIMING, Printed
from experiments.results import TABLES
from experiments.rows import Row
from experiments.tables import Cell
from phvae.baselines.baseline import Baseline
from phvae.datasets import PAPER_COPULA, PAPER_LAWS, Dataset
from phvae.metrics import tail_mass
from phvae.training import TrainingError

JOB = Job("table1", "Pareto", "redrawn", 0, "true law")


def job_rows(job=JOB, seed=0, **scores):
    return [
        Row("quick", *job._replace(seed=seed), metric, value) for metric, value in {**scores, "seconds": 1.0}.items()
    ]


# rows


def test_rows_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "rows.csv"
    assert rows.mend(path) == []
    written = job_rows(KS_tail=0.1234, **{"Q99 error": math.inf})
    rows.append(path, written)
    rows.append(path, job_rows(seed=1, KS_tail=0.5))
    assert rows.load(path) == written + job_rows(seed=1, KS_tail=0.5)


@pytest.mark.parametrize("cut", range(1, 90))
def test_a_run_killed_while_it_writes_loses_that_job_alone(tmp_path, cut):
    path = tmp_path / "rows.csv"
    rows.mend(path)
    rows.append(path, job_rows(KS_tail=0.1))
    whole = path.read_bytes()
    rows.append(path, job_rows(seed=1, KS_tail=0.2))
    path.write_bytes(path.read_bytes()[:-cut])
    kept = rows.mend(path)
    assert kept[: len(job_rows(KS_tail=0.1))] == job_rows(KS_tail=0.1)
    # what is left of the second job is all of it, up to the end of its last line, or nothing
    assert kept[2:] in ([], job_rows(seed=1, KS_tail=0.2))
    if cut > 1:
        assert path.read_bytes() == whole
    rows.append(path, job_rows(seed=1, KS_tail=0.3))
    assert rows.load(path)[-2].value in (0.2, 0.3)


# jobs


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("budget", [QUICK, FULL], ids=["quick", "full"])
def test_jobs_are_named_once_and_searched_where_nothing_is_scored(name, budget):
    module = import_module(f"experiments.{name}")
    jobs = list(module.jobs(budget))
    assert len(jobs) == len(set(jobs)) > 10
    assert {job.experiment for job in jobs} == {name}
    for job in jobs:
        source = module.tuned_in(job)
        assert source is None or (source not in jobs and source.protocol == TUNING)


@pytest.mark.parametrize("name", TABLES)
def test_a_page_without_rows_says_so(name):
    page = import_module(f"experiments.{name}").report([])
    assert "Nothing was run." in page


def test_a_seed_is_the_same_everywhere_and_differs_by_name():
    assert key("Pareto", "train", 0) == 549802387
    assert len({key("a", i) for i in range(1000)}) == 1000


def test_synthetic_tables_are_fixed_or_redrawn_and_never_the_tuned_one():
    task = Synthetic("Pareto", PAPER_LAWS["Pareto"], 50)
    assert (task.train("fixed", 0, FULL) == task.train("fixed", 1, FULL)).all()
    assert (task.train("redrawn", 0, FULL) != task.train("redrawn", 1, FULL)).all()
    assert not np.isin(task.train("tuning", 0, FULL), task.train("fixed", 0, FULL)).any()
    assert not np.isin(task.train("tuning", 0, FULL), task.train("redrawn", 0, FULL)).any()
    assert Synthetic("copula", PAPER_COPULA, 50).train("fixed", 0, FULL).shape == (50, 5)


def test_halves_share_no_row_and_are_drawn_anew_for_every_seed():
    task = Real("numbers", load_numbers)
    everything, none = task.split("all rows", 3, FULL)
    assert none is None
    assert len(everything) == 101
    train, held_out = task.split("half", 0, FULL)
    assert sorted([*train[:, 0], *held_out[:, 0]]) == list(range(101))
    assert set(train[:, 0]) != set(task.split("half", 1, FULL)[0][:, 0])
    # the search sees rows that are held out for no seed
    searched = task.tuned_in(Job("table2", "numbers", "half", 1, "any"))
    assert (searched.protocol, searched.seed) == ("tuning", 0)
    tuning, none = task.split(searched.protocol, searched.seed, FULL)
    assert none is None
    assert len(tuning) == 25
    for seed in range(3):
        assert set(tuning[:, 0]) <= set(task.split("half", seed, FULL)[0][:, 0])


def load_numbers():
    return Dataset(np.arange(101.0)[:, None], ("x",), "numbers")


def test_a_job_scores_the_model_it_names():
    scores = runner.execute(JOB, QUICK, {})
    assert scores["diverged"] == 0
    assert list(scores)[-1] == "seconds"
    fitted = table1.MODELS["true law"].fit(table1.TASKS["Pareto"], np.ones((5, 1)), 0, QUICK, {})
    expected = tail_mass(PAPER_LAWS["Pareto"], fitted.sample(QUICK.generated[0], key(*JOB))[:, 0])
    assert scores["P(X > x_.95)"] == expected
    assert {k: v for k, v in runner.execute(JOB, QUICK, {}).items() if k != "seconds"} == {
        k: v for k, v in scores.items() if k != "seconds"
    }


def test_a_run_that_diverges_is_a_row(monkeypatch):
    def diverge(*_):
        raise TrainingError("the loss is not finite")

    monkeypatch.setattr(table1, "run", diverge)
    assert runner.execute(JOB, QUICK, {})["diverged"] == 1


def test_a_run_goes_on_where_it_stopped_and_searched_settings_reach_the_fits(tmp_path, monkeypatch):
    ours = JOB._replace(model="PH-VAE")
    monkeypatch.setattr(table1, "jobs", lambda budget: [JOB, JOB._replace(seed=1), ours])
    path = tmp_path / "rows.csv"
    done = [Row("quick", *JOB, "KS_tail", 0.5), Row("quick", *JOB, "seconds", 1.0)]
    search = table1.tuned_in(ours)
    rows.mend(path)
    rows.append(path, done)
    started = []

    class Pool:
        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def submit(self, function, job, budget, settings):
            started.append((job, settings))
            future = Future()
            future.set_result({"learning_rate": 0.25, SHARE: 0.5, "KS_tail": 1.0, "diverged": 0.0, "seconds": 1.0})
            return future

    monkeypatch.setattr(runner, "ProcessPoolExecutor", Pool)
    budget = replace(QUICK, searched=True)
    found = runner.run(["table1"], budget, path, processes=1)
    assert found[:2] == done
    # the second seed waits for the first one of every model, and a fit for its search
    assert started == [
        (search, {}),
        (ours, {"learning_rate": 0.25, SHARE: 0.5}),
        (JOB._replace(seed=1), {}),
    ]
    started.clear()
    assert runner.run(["table1"], budget, path) == found
    assert started == []


def test_a_search_that_fails_leaves_the_fits_their_own_settings(tmp_path, monkeypatch):
    ours = JOB._replace(model="PH-VAE")
    source = table1.tuned_in(ours)
    lost = [Row("quick", *source, "diverged", 1.0), Row("quick", *source, "seconds", 1.0)]
    order = runner.in_order([ours], {row.job for row in lost}, replace(QUICK, searched=True))
    assert order == {ours: source}


class Trained(Baseline):
    """Its best step size is 2e-3, its best number of epochs 10, its best spread 0.1; its objective knows of two."""

    name = "trained"

    def __init__(self, *, epochs=40, learning_rate=1e-3, spread=1.0):
        self.epochs, self.learning_rate, self.spread = epochs, learning_rate, spread

    def resolved(self, n_rows, n_columns):
        return {"epochs": self.epochs}

    def _fit(self, x, seed):
        if self.learning_rate == 8e-3:
            raise TrainingError("diverged")

    def _draw(self, n, seed):
        return np.random.default_rng(seed).exponential(10 * self.spread, (n, 1))

    def objective(self, x, seed=0):
        return -abs(math.log(self.learning_rate / 2e-3)) - abs(self.epochs - 10)


def test_a_search_compares_own_settings_by_their_rows_and_step_sizes_and_epochs_by_the_objective():
    task = Synthetic("Weibull", PAPER_LAWS["Weibull"], 200)
    trained = Model("trained", Trained, choices=({"spread": 1.0}, {"spread": 0.1}))
    found = trained.tune(task, task.train("tuning", 0, FULL), replace(FULL, effort=0.5))
    assert found == {
        "spread": 0.1,
        "learning_rate": 2e-3,
        SHARE: 0.5,
        "fits in search": 5,
        "diverged in search": 1,
    }
    fitted = trained.fit(task, task.train("fixed", 0, FULL), 0, replace(FULL, effort=0.5), {SHARE: 0.5, "spread": 0.1})
    assert (fitted.epochs, fitted.spread) == (10, 0.1)
    # a model that names its epochs keeps them in a full run, and a model without any has nothing to search
    own = Model("own", partial(Trained, epochs=13), own_epochs=True)
    assert own.fit(task, task.train("fixed", 0, FULL), 0, FULL, {}).epochs == 13
    assert own.fit(task, task.train("fixed", 0, FULL), 0, QUICK, {}).epochs == 1
    still = Model("still", partial(Trained, epochs=0))
    assert still.tune(task, task.train("tuning", 0, FULL), FULL)["fits in search"] == 0


def test_every_trained_model_of_a_table_is_searched():
    """The two Gaussian VAEs are one model that is searched once; models of ours per column share the joint search."""
    for module in (table1, table2, dependence):
        for name, model in module.MODELS.items():
            job = next(job for job in module.jobs(FULL) if job.model == name)
            trained = hasattr(model.make, "func") and hasattr(model.make.func, "resolved")
            source = module.tuned_in(job)
            assert (source is not None) == (trained and not model.own_epochs)
            assert source is None or source.model in module.MODELS
            assert len(model.choices) == (6 if name == "t3-VAE" else 0)


# tables


def test_cells_say_how_many_seeds_gave_a_number():
    found = [
        *job_rows(seed=0, KS_tail=0.1),
        *job_rows(seed=1, KS_tail=0.3),
        *job_rows(seed=2, KS_tail=math.nan),
        *job_rows(seed=3, diverged=1.0),
    ]
    cell = Cell("Pareto", "redrawn", "KS_tail")
    summary = tables.summarise(found, "true law", cell)
    assert (summary.available, summary.seeds) == (2, 4)
    assert summary.mean == pytest.approx(0.2)
    assert summary.error == pytest.approx(0.1)
    page = tables.table(found, ["true law", "never run"], {"KS": cell}, printed={"PH-VAE": [Printed(math.nan)]})
    assert "| true law | 4 | 0.200 ± 0.141 (2 of 4) |" in page
    assert "| PH-VAE, as printed | | N/A |" in page
    assert "never run" not in page
    assert "Runs that diverged: true law 1." in page
    assert "over 4 seeds" in page


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0224, "0.022"),
        (0.0028, "0.0028"),
        (1.234e-4, "1.2e-4"),
        (19.13, "19.1"),
        (1.2e5, "1.2e5"),
        (-0.5, "-0.500"),
    ],
)
def test_numbers_are_short(value, text):
    assert tables.number(value) == text


def test_a_missed_target_is_said():
    cell = Cell("Pareto", "redrawn", "KS_tail")
    found = [row for seed in range(4) for row in job_rows(seed=seed, KS_tail=0.1 + 0.001 * seed)]
    found += [
        row
        for seed in range(4)
        for row in job_rows(JOB._replace(model="rival"), seed=seed, KS_tail=0.05 + 0.001 * seed)
    ]
    [behind] = tables.standing(found, "true law", ["rival"], {"KS": cell})
    assert (behind.outcome, behind.text) == ("missed", "0.102, behind rival (0.052)")
    [ahead] = tables.standing(found, "rival", ["true law"], {"KS": cell})
    assert (ahead.outcome, ahead.text) == ("met", "0.052, ahead of all of them")
    [excused] = tables.standing(found, "true law", ["rival"], {"KS": cell}, told={"Pareto": "rival"})
    assert (excused.outcome, excused.text) == ("met", "0.102, behind rival (0.052), whose decoder is the true family")
    [missed] = tables.against_paper(found, "true law", {"KS": (cell, Printed(0.05))})
    assert (missed.outcome, missed.text) == ("missed", "0.102 against 0.050 printed")
    # the standard error of these four seeds is 0.0006
    outcomes = {p: tables.against_paper(found, "true law", {"KS": (cell, Printed(p))})[0].outcome for p in (0.2, 0.101)}
    assert outcomes == {0.2: "met", 0.101: "level"}
    [unknown] = tables.standing(found, "PH-VAE", [], {"KS": cell})
    assert unknown.outcome == "open"
    counts = tables.counted([behind, ahead, missed, unknown])
    assert counts.startswith("1 of 4 met. Missed: KS (0.102, behind rival (0.052)); KS (0.102 against 0.050 printed).")
    assert counts.endswith("Without a number: KS.")
    assert tables.counted([unknown]) == "nothing was run."
    assert tables.listed([missed]) == "- KS: 0.102 against 0.050 printed: missed."


# the page


def test_the_page_is_made_from_rows_alone_and_says_what_was_missed(tmp_path):
    ours = JOB._replace(model="PH-VAE")
    found = job_rows(ours, KS_tail=0.02) + job_rows(JOB._replace(model="Gamma-VAE"), KS_tail=0.01)
    found += [*job_rows(JOB._replace(model="xVAE, raw"), diverged=1.0), *job_rows(ours, seed=1, KS_tail=0.02)]
    path = tmp_path / "rows-quick.csv"
    rows.mend(path)
    rows.append(path, found)
    page = tmp_path / "docs" / "results.md"
    (tmp_path / "chain.svg").write_text("<svg/>")
    main(["--report", str(path), "--output", str(tmp_path), "--page", str(page)])
    text = page.read_text()
    assert "Missed: Pareto KS_tail (0.020, behind Gamma-VAE (0.010))" in text
    assert "seed 0: 3, seed 1: 1" in text
    assert "| table1 | `make reproduce ARGS=table1` | 4 | 0.00 | 1 (xVAE, raw 1) | 0 of 0 |" in text
    assert "](../chain.svg)" in text
    assert "| PH-VAE | 2 | - | 0.020 ± 0 |" in text
    assert (tmp_path / "table1-quick.md").exists()
    assert not (tmp_path / "table2-quick.md").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table3"], "no experiment 'table3'; there are all, tables, figures, table1"),
        (["--seeds", "0"], "--seeds 0; give at least 1"),
        (["--report", "nowhere.csv"], "--report nowhere.csv: there is no such file"),
    ],
)
def test_mistakes_on_the_command_line_are_one_sentence(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--output", str(tmp_path)])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_figure_can_be_asked_for_by_its_name(tmp_path, capsys):
    main(["figure-chain", "figure-architecture", "--quick", "--output", str(tmp_path)])
    assert {path.name for path in tmp_path.glob("*.svg")} == {"chain.svg", "architecture.svg"}


def test_the_papers_numbers_fill_their_tables():
    assert {len(cells) for cells in TABLE_1.values()} == {4}
    assert math.isnan(TABLE_1["xVAE"]["Burr"][0].mean)
    assert TABLE_2["VAE"]["word counts"]["CVaRErr"][2] == (0.757, 0.049)
    assert len(ABLATION) == 5
    assert DEPENDENCE["equities"]["PH-VAE"][2].mean == 9.79e-4
    assert {len(cells) for cells in TIMING.values()} == {5}
    assert TIMING["Pareto"][32][2].mean == 0.6182


def test_coverage_is_measured_on_the_intervals_that_users_get(monkeypatch):
    from experiments import coverage
    from phvae import PHVAE
    from phvae.risk import bootstrap

    monkeypatch.setattr(coverage, "RESAMPLES", 40)
    row = coverage.replicate(("Pareto", 3))
    x = coverage.LAWS["Pareto"].isf(np.random.default_rng([1, 3]).random(coverage.ROWS))[:, None]
    model = PHVAE(n_phases=coverage.PHASES, random_state=3).fit(x)
    again = bootstrap(model, x, 40)
    for method in coverage.METHODS:
        found = again.interval(lambda m: m.isf(0, coverage.PROBABILITY), method=method)[0]
        assert float(row[f"{method} low"]) == pytest.approx(found["low"], rel=1e-4)
        assert float(row[f"{method} high"]) == pytest.approx(found["high"], rel=1e-4)


def test_the_committed_coverage_is_what_is_promised():
    from experiments import coverage, resumed
    from phvae.risk.intervals import METHOD

    rows = resumed.read(Path(__file__).parents[1] / "docs" / "results" / "coverage.csv")
    for law in {row["law"] for row in rows}:
        true = float(coverage.LAWS[law].isf(coverage.PROBABILITY))
        own = [row for row in rows if row["law"] == law]
        hits = [float(row[f"{METHOD} low"]) <= true <= float(row[f"{METHOD} high"]) for row in own]
        # a run that was stopped has few replications of its last law: two binomial errors are given to these
        error = 0.0 if len(own) >= 500 else 2 * math.sqrt(0.05 * 0.95 / len(own))
        assert 0.91 - error <= np.mean(hits) <= 0.98 + error
        assert len(own) == len({row["replication"] for row in own})
    assert coverage.summary(rows).count("\n") == 4 * len({row["law"] for row in rows})


def test_the_committed_zeros_are_what_is_promised():
    from experiments import resumed, zero_atoms

    rows = resumed.read(Path(__file__).parents[1] / "docs" / "results" / "zero-atoms.csv")
    seeds = {(row["protocol"], row["seed"]) for row in rows}
    assert len(seeds) == 2 * zero_atoms.SEEDS
    ours = [row for row in rows if row["measure"] == zero_atoms.ZEROS and row["model"] == "joint"]
    assert len(ours) == 6 * len(seeds)
    assert all(abs(float(row["value"])) < 0.02 for row in ours if row["protocol"] == "all rows")
    page = zero_atoms.summary(rows)
    assert "| half | building | KS_tail |" in page
    assert page.count("\n") == 2 + 12 + 1 + 2 + 24 - 1


def test_halves_of_a_real_table_share_no_row():
    from experiments import zero_atoms

    values = np.arange(21.0)[:, None]
    train, scored = zero_atoms.split(values, "half", 3)
    assert sorted([*train[:, 0], *scored[:, 0]]) == values[:, 0].tolist()
    assert [part.tolist() for part in zero_atoms.split(values, "all rows", 3)] == [values.tolist()] * 2


def test_a_file_that_was_written_in_part_is_completed(tmp_path):
    from experiments import resumed

    place, asked = tmp_path / "made" / "scores.csv", []

    def score(job):
        asked.append(job)
        return [{"law": job[0], "seed": job[1], "value": value} for value in (1.5, 2.5)]

    def run(jobs):
        return resumed.run(
            place, ("law", "seed", "value"), jobs, job_of=lambda row: (row["law"], int(row["seed"])), score=score
        )

    jobs = [("Pareto", 0), ("Burr, III", 0), ("Pareto", 1)]
    assert resumed.read(place) == []
    assert len(run(jobs[:2])) == 4
    rows = run(jobs)
    assert asked == jobs
    assert [(row["law"], row["seed"], row["value"]) for row in rows] == [
        (law, str(seed), value) for law, seed in jobs for value in ("1.5", "2.5")
    ]
    assert place.read_text().count("law") == 1
