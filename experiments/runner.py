"""Run the jobs of experiments in parallel processes, each of one thread; go on where an earlier run stopped.

Jobs are independent and named, and what they draw depends on their names alone: neither the order nor the number of
processes changes a number.
"""

import multiprocessing
import os
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments import rows
from experiments.frame import Budget, Job, Settings
from experiments.rows import Row
from phvae.metrics import MetricWarning
from phvae.training import TrainingError

TUNING = "tuning"


def run(experiments: Sequence[str], budget: Budget, path: Path, *, processes: int | None = None) -> list[Row]:
    """Do what the file does not hold yet; returns all of its rows of this budget.

    A job that fails for another reason than divergence is named at the end, and everything else is still done.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the libraries of a worker when they are imported
    known = [row for row in rows.mend(path) if row.budget == budget.name]
    jobs = [job for name in experiments for job in import_module(f"experiments.{name}").jobs(budget)]
    failures: list[str] = []
    tuning = list(dict.fromkeys(job for job in map(tuned_in, jobs) if job is not None)) if budget.searched else []
    for stage in (tuning, jobs):
        known += _stage(stage, known, budget, path, processes, failures)
    for failure in failures:
        Console(stderr=True).print(failure, style="red", markup=False, highlight=False)
    return known


def tuned_in(job: Job) -> Job | None:
    """The job that searches the settings of another, where there are any to search."""
    found: Job | None = import_module(f"experiments.{job.experiment}").tuned_in(job)
    return found


def execute(job: Job, budget: Budget, settings: Settings) -> dict[str, float]:
    """Run one job in this process; a fit that diverges is a result, too."""
    module = import_module(f"experiments.{job.experiment}")
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetricWarning)  # N/A is a nan in the row
        try:
            scores: dict[str, float] = module.run(job, budget, settings)
            scores["diverged"] = 0.0
        except TrainingError:
            scores = {"diverged": 1.0}
    return {**scores, rows.LAST: time.process_time() - began}


def _stage(
    jobs: Iterable[Job], known: list[Row], budget: Budget, path: Path, processes: int | None, failures: list[str]
) -> list[Row]:
    done = {row.job for row in known}
    todo = [job for job in jobs if job not in done]
    found: list[Row] = []
    if not todo:
        return found
    chosen: dict[Job, Settings] = {}
    for row in known:
        if row.protocol.startswith(TUNING) and row.metric in ("learning_rate", "epochs"):
            chosen.setdefault(row.job, {})[row.metric] = row.value
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    diverged = 0
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
        ProcessPoolExecutor(
            processes or os.cpu_count(),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_one_thread,
            max_tasks_per_child=200,
        ) as pool,
    ):
        label = "searching settings" if todo[0].protocol.startswith(TUNING) else "fitting and scoring"
        task = bar.add_task(label, total=len(todo), note="")
        running: dict[Future[Any], Job] = {}
        for job in todo:
            source = tuned_in(job) if budget.searched and not job.protocol.startswith(TUNING) else None
            running[pool.submit(execute, job, budget, chosen.get(source, {}) if source else {})] = job
        for future in as_completed(running):
            job = running[future]
            try:
                scores = future.result()
            except BrokenProcessPool:
                raise SystemExit(f"a worker was killed; {path} holds what was done, run again to go on") from None
            except Exception as error:  # one job must not take the others with it
                failures.append(f"{'/'.join(map(str, job))}: {type(error).__name__}: {error}")
                bar.advance(task)
                continue
            fresh = [Row(budget.name, *job, metric, value) for metric, value in scores.items()]
            rows.append(path, fresh)
            found += fresh
            diverged += scores["diverged"] > 0
            bar.update(task, advance=1, note=f"{diverged} diverged" if diverged else "")
    return found


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
