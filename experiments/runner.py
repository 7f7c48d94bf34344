"""Run the jobs of experiments in parallel processes, each of one thread; go on where an earlier run stopped.

Jobs are independent and named, and what they draw depends on their names alone: neither the order nor the number of
processes changes a number.
"""

import multiprocessing
import os
import time
import warnings
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments import rows
from experiments.frame import SETTINGS, TUNING, Budget, Job, Settings
from experiments.rows import Row
from phvae.metrics import MetricWarning
from phvae.training import TrainingError

# Without a terminal, a line for every so many fits.
EVERY = 10


def run(
    experiments: Sequence[str],
    budget: Budget,
    path: Path,
    *,
    processes: int | None = None,
    own: Sequence[Path] = (),
    again: Collection[str] = (),
) -> list[Row]:
    """Do what the file does not hold yet, the first seed of everything first; returns all of its rows of this budget.

    A job that fails for another reason than divergence is named, and everything else is still done.

    Args:
        experiments: Names of modules.
        budget: How much each fit may cost.
        path: File of rows.
        processes: One per core when omitted.
        own: Files whose models are in the tables, too; they are included in this process already.
        again: Models whose rows in these experiments are thrown away and done anew.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the libraries of a worker when they are imported

    def stale(row: Row) -> bool:
        return row.budget == budget.name and row.experiment in experiments and row.model in again

    known = [row for row in rows.mend(path, without=stale) if row.budget == budget.name]
    jobs = [job for name in experiments for job in import_module(f"experiments.{name}").jobs(budget)]
    return known + _work(jobs, known, budget, path, processes, own)


def tuned_in(job: Job) -> Job | None:
    """The job that searches the settings of another, where there are any to search."""
    found: Job | None = import_module(f"experiments.{job.experiment}").tuned_in(job)
    return found


def round_of(job: Job) -> float:
    """Jobs of earlier rounds come first: the first seed of all, then the second."""
    found: float = import_module(f"experiments.{job.experiment}").round_of(job)
    return found


def in_order(jobs: Sequence[Job], done: set[Job], budget: Budget) -> dict[Job, Job | None]:
    """What is to be done, round by round, with the search that each fit waits for; searches come before their fits."""
    ordered: dict[Job, Job | None] = {}
    for job in sorted(jobs, key=round_of):
        source = tuned_in(job) if budget.searched else None
        if job not in done:
            if source is not None and source not in done:
                ordered.setdefault(source, None)
            ordered[job] = source
    return ordered


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


def _work(
    jobs: Sequence[Job], known: list[Row], budget: Budget, path: Path, processes: int | None, own: Sequence[Path]
) -> list[Row]:
    done = {row.job for row in known}
    waiting = in_order(jobs, done, budget)
    found: list[Row] = []
    if jobs:
        print(f"{len(done.intersection(jobs))} fits found in {path}, {len(waiting)} to do", flush=True)
    if not waiting:
        return found
    chosen: dict[Job, Settings] = {job: {} for job in done}
    for row in known:
        if row.protocol == TUNING and row.metric in SETTINGS:
            chosen[row.job][row.metric] = row.value
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    diverged, finished, total, workers = 0, 0, len(waiting), processes or os.cpu_count() or 1
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
        ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare,
            initargs=(tuple(own),),
            max_tasks_per_child=200,
        ) as pool,
    ):
        task = bar.add_task("searching, fitting, scoring", total=total, note="")
        running: dict[Future[Any], Job] = {}
        while waiting or running:
            ready = (job for job, source in waiting.items() if source is None or source in chosen)
            for job in islice(ready, workers - len(running)):
                running[pool.submit(execute, job, budget, chosen.get(waiting[job] or job, {}))] = job
            waiting = {job: source for job, source in waiting.items() if job not in running.values()}
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                # fits go on with the values of the model itself where the search of its settings has failed
                chosen[job] = {}
                bar.advance(task)
                finished += 1
                if not console.is_terminal and (finished % EVERY == 0 or finished == total):
                    console.print(f"{finished} of {total} done", highlight=False)
                try:
                    scores = future.result()
                except BrokenProcessPool:
                    raise SystemExit(f"a worker was killed; {path} holds what was done, run again to go on") from None
                except Exception as error:  # one job must not take the others with it
                    message = f"{'/'.join(map(str, job))}: {type(error).__name__}: {error}"
                    console.print(message, style="red", markup=False, highlight=False, soft_wrap=True)
                    continue
                fresh = [Row(budget.name, *job, metric, value) for metric, value in scores.items()]
                rows.append(path, fresh)
                found += fresh
                chosen[job] = {name: value for name, value in scores.items() if name in SETTINGS}
                diverged += scores["diverged"] > 0
                bar.update(task, note=f"{diverged} diverged" if diverged else "")
    return found


def _prepare(own: Sequence[Path]) -> None:
    """Make this process a worker: of one thread, and with the models of files of others."""
    import torch

    from experiments.models import include

    torch.set_num_threads(1)
    for path in own:
        include(path)
