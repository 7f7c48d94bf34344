"""A training run of several processes, for tests that start them: ``python distributed_run.py CASE FOLDER``.

Every process writes what it ends with to ``FOLDER/rank``; `launch` starts them as torchrun does.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from training_run import model, rows, weights_of

from phvae import distributed
from phvae.training import train

OPTIONS = {"epochs": 3, "batch_size": 50, "kl_warmup": 2.0, "smoothness": 1e-3, "patience": 3, "seed": 5}


def fit(x, folder=None, *, resume=False, **changes):
    """The run that all tests compare; with a folder it keeps a checkpoint there after every step."""
    torch.set_num_threads(1)
    trained = model()
    options = OPTIONS | {"validation": rows(100, 2), "weights": torch.linspace(0.5, 1.5, len(x)).double()} | changes
    place = None if folder is None else Path(folder, "run.checkpoint")
    go_on = place if resume and place.exists() else None
    history = train(trained, x, checkpoint=place, checkpoint_seconds=0.0, resume=go_on, **options)
    return trained, history


def main(case, folder):
    with distributed.joined() as world:
        x = rows(301, 1)
        changes = {}
        if case == "other data" and world.rank == 1:
            x[7, 0] += 1
        if case == "other settings" and world.rank == 1:
            changes["learning_rate"] = 0.01
        if case == "bad row":
            x[17, 1] = 0.5
        if case == "killed":
            # time for the test to kill one of the processes
            changes |= {"epochs": 10, "patience": 10}
        try:
            trained, history = fit(x, folder, resume=case == "killed", **changes)
        except ValueError as error:
            Path(folder, f"error{world.rank}").write_text(str(error))
            return
        save_file(weights_of(trained), Path(folder, f"weights{world.rank}"))
        Path(folder, f"elbo{world.rank}").write_text(repr(history[-1].elbo))


def launch(arguments, n_processes, folder, *, program=None, port=29511):
    """Start the processes of a run, with the variables that torchrun would set."""
    program = [sys.executable, __file__] if program is None else program
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(n_processes),
        "OMP_NUM_THREADS": "1",
    }
    return [
        subprocess.Popen(
            [*program, *arguments],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(n_processes)
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
