"""Refits in processes of their own: each is sent the model and the table as bytes, and sends back its fits.

Processes are started as commands, not copied from this one: nothing of the caller's script runs again in them, and no
thread of this one is half way through anything. A request and its answer are files of `phvae.modelfile`, sealed and
checked like one.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import phvae
from phvae.modelfile import as_bytes, from_bytes
from phvae.risk import questions
from phvae.risk.refit import BY_COLUMN, TOGETHER, TRAINED, Refit, refits, way_of
from phvae.threads import one_thread

__all__ = ["in_processes"]

Array = NDArray[np.float64]


def in_processes(
    model: Any,
    x: Array,
    rows: Sequence[NDArray[np.int64]],
    *,
    weights: Array | None,
    seed: int,
    epochs: int,
    processes: int | None,
) -> list[Refit]:
    """One fit for each resample, in their order.

    Args:
        model: Fitted estimator.
        x: Its table, shape ``(n, D)``.
        rows: Rows of each resample.
        weights: Weights of the rows of the table in the fit of the model.
        seed: Seed of the bootstrap.
        epochs: Passes over the rows where networks are trained on.
        processes: Number of processes; None takes one per core for networks and one otherwise.
    """
    way = way_of(model)
    size = TOGETHER if way == BY_COLUMN else 1
    jobs = [range(first, min(first + size, len(rows))) for first in range(0, len(rows), size)]
    if processes is None:
        wanted = (os.cpu_count() or 1) if way == TRAINED else 1
    else:
        wanted = questions.whole("processes", processes)
    wanted = min(wanted, len(jobs))
    if wanted == 1:
        with one_thread():
            found = refits(model, x, dict(enumerate(rows)), seed, weights, epochs)
        return [found[b] for b in range(len(rows))]
    from phvae.persistence import pack

    tensors, header = pack(model)

    def asked(jobs: Sequence[range]) -> dict[int, Refit]:
        arrays: dict[str, NDArray[Any]] = {f"rows.{b}": rows[b] for job in jobs for b in job}
        arrays |= {"x": x, **({} if weights is None else {"weights": weights})}
        sent = {f"table.{name}": torch.from_numpy(np.ascontiguousarray(part)) for name, part in arrays.items()}
        return _read(_run(as_bytes(tensors | sent, {"model": header, "seed": seed, "epochs": epochs})))

    with ThreadPoolExecutor(wanted) as pool:
        answers = list(pool.map(asked, [jobs[i::wanted] for i in range(wanted)]))
    joined = {b: refit for answer in answers for b, refit in answer.items()}
    return [joined[b] for b in range(len(rows))]


def _run(request: bytes) -> bytes:
    """What a process of its own answers to a request."""
    paths = [str(Path(phvae.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    # -P: a folder of the same name where the user stands is not taken for ours
    words = [sys.executable, "-P", "-m", __name__]
    done = subprocess.run(words, input=request, capture_output=True, env=environment, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        kind, _, what = last.partition(": ")
        if kind == "ValueError":
            raise ValueError(what)
        raise RuntimeError(f"a process of the bootstrap ended with status {done.returncode}: {last}")
    return done.stdout


def _read(answer: bytes) -> dict[int, Refit]:
    """The fits in an answer, by the number of the resample."""
    header, tensors = from_bytes("the answer of a process", answer)
    found: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        b, _, rest = name.partition(".")
        found.setdefault(int(b), {})[rest] = value
    return {b: Refit(part, part.pop("zero_share").numpy(), header["settings"][str(b)]) for b, part in found.items()}


def _answer(request: bytes) -> bytes:
    """What a process of its own gives back."""
    from phvae.estimator import PHVAE
    from phvae.persistence import unpack

    header, tensors = from_bytes("the request of a bootstrap", request)
    table = {name: tensors.pop(name).numpy() for name in list(tensors) if name.startswith("table.")}
    numbers = sorted(int(name.rpartition(".")[2]) for name in table if name.startswith("table.rows."))
    rows = {b: table[f"table.rows.{b}"] for b in numbers}
    model = PHVAE()
    unpack(model, "the request of a bootstrap", header["model"], tensors)
    torch.set_num_threads(1)
    found = refits(model, table["table.x"], rows, header["seed"], table.get("table.weights"), header["epochs"])
    sent = {f"{b}.{name}": value for b, refit in found.items() for name, value in refit.tensors.items()}
    sent |= {f"{b}.zero_share": torch.from_numpy(refit.zero_share) for b, refit in found.items()}
    return as_bytes(sent, {"settings": {str(b): refit.settings for b, refit in found.items()}})


if __name__ == "__main__":
    sys.stdout.buffer.write(_answer(sys.stdin.buffer.read()))
