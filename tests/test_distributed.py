"""A run of several processes gives what one process gives, and goes on after any of them was killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from distributed_run import fit, launch
from safetensors.torch import load_file
from training_run import rows, weights_of

from phvae import distributed
from phvae.objective import objective


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def run(case, folder, n_processes=2):
    """All processes to their end; what each said."""
    processes = launch([case, str(folder)], n_processes, folder, port=free_port())
    return [process.communicate(timeout=120)[1] for process in processes]


def require_close(weights, reference):
    """Weights that differ by what the order of sums in single precision can do in a few steps, and no more."""
    assert weights.keys() == reference.keys()
    for name, value in weights.items():
        assert torch.allclose(value, reference[name], rtol=1e-3, atol=1e-5), name


@pytest.mark.parametrize("n_processes", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_several_processes_train_the_model_of_one(tmp_path, n_processes):
    """301 rows in batches of 50: the last batch has one row, fewer than there are processes."""
    alone, history = fit(rows(301, 1))
    run("plain", tmp_path, n_processes)
    results = [load_file(tmp_path / f"weights{rank}") for rank in range(n_processes)]
    for other in results[1:]:
        assert all(torch.equal(other[name], value) for name, value in results[0].items())
    require_close(results[0], weights_of(alone))
    assert float((tmp_path / "elbo0").read_text()) == pytest.approx(history[-1].elbo, rel=1e-5)


@pytest.mark.parametrize(
    ("case", "message"),
    [("other data", "rank 1 of 2 differs from rank 0 in data;"),
     ("other settings", "rank 1 of 2 differs from rank 0 in learning_rate (here ")],
)  # fmt: skip
def test_processes_that_disagree_all_say_so(tmp_path, case, message):
    run(case, tmp_path)
    for rank in (0, 1):
        assert message in (tmp_path / f"error{rank}").read_text()
    assert not (tmp_path / "run.checkpoint").exists()


def test_a_row_without_probability_is_named_by_all(tmp_path):
    run("bad row", tmp_path)
    errors = [(tmp_path / f"error{rank}").read_text() for rank in (0, 1)]
    assert errors[0] == errors[1]
    assert "the loss is not finite for row 17 of x" in errors[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The end of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    run("killed", folder)
    return load_file(folder / "weights0")


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_run_goes_on_after_any_process_was_killed(tmp_path, whole, victim):
    checkpoint = tmp_path / "run.checkpoint"
    processes = launch(["killed", str(tmp_path)], 2, tmp_path, port=free_port())
    while not checkpoint.exists():
        assert all(process.poll() is None for process in processes)
        time.sleep(0.005)
    processes[victim].send_signal(signal.SIGKILL)
    # as torchrun does once a process has died
    for process in processes:
        process.kill()
        process.communicate(timeout=60)
    assert not (tmp_path / "weights0").exists()
    run("killed", tmp_path)
    resumed = load_file(tmp_path / "weights0")
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def test_one_process_is_not_joined_to_anything():
    with distributed.joined() as world:
        assert world is None
    assert distributed.current() is None


def test_only_the_model_itself_is_trained_by_several_processes():
    with pytest.raises(ValueError, match=r"a Linear is trained by one process; leave `phvae\.distributed\.joined`"):
        objective(torch.nn.Linear(1, 1), distributed.World(0, 2))


def torchrun(arguments, folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", f"--master-port={free_port()}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, "-m", "phvae", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_command_line_fits_one_model_and_writes_it_once(tmp_path):
    x = rows(400, 1).numpy()
    lines = ["loss,cost", *(f"{a},{b}" for a, b in x.tolist())]
    Path(tmp_path, "claims.csv").write_text("\n".join(lines) + "\n")
    given = "fit claims.csv --epochs 3 --n-phases 3 --latent-dim 1 --hidden 8 --device cpu --validation-fraction 0.2"
    done = torchrun([*given.split(), "-o", "both.phvae"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("both.phvae: 400 rows") == 1
    from phvae import PHVAE

    both = PHVAE.load(tmp_path / "both.phvae")
    seed = both.settings_["seed"]
    from phvae.cli import run as command

    assert command([*given.replace("claims", str(tmp_path / "claims")).split(), "--seed", str(seed), "--quiet",
                    "-o", str(tmp_path / "one.phvae")]) == 0  # fmt: skip
    one = PHVAE.load(tmp_path / "one.phvae")
    require_close(both.vae_.state_dict(), one.vae_.state_dict())
    assert both.fingerprint_ == one.fingerprint_
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both.phvae", "claims.csv", "one.phvae"]
