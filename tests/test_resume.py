"""A run that is stopped, by whatever means, goes on to the same weights bit for bit."""

import math
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_run import UNITS, model, rows, run, same, stop_at_checkpoint, weights_of

from phvae import modelfile
from phvae.adam import FusedAdam
from phvae.decoders import PhaseTypeDecoder
from phvae.priors import StandardNormal
from phvae.training import step_schedule, train
from phvae.vae import VAE, GaussianEncoder

SCRIPT = Path(__file__).with_name("training_run.py")
X, HELD_OUT = rows(300, 1), rows(100, 2)
OPTIONS = {"epochs": 3, "batch_size": 64, "validation": HELD_OUT, "patience": 2, "seed": 1}


def half_written(checkpoint):
    """Files beside a checkpoint that are not yet in its place."""
    return {path.name for path in checkpoint.parent.iterdir() if path.name.startswith(f".{checkpoint.name}.")}


def kill_and_compare(tmp_path, *, kills, epochs, while_writing=False):
    """Kill a run again and again and compare its end with that of a run left alone; how often a write was hit."""
    whole = tmp_path / "whole"
    run(tmp_path / "plain", whole, epochs, resume=False)
    chance = random.Random(0)
    folder = tmp_path / "killed"
    folder.mkdir()
    checkpoint, result = folder / "run", folder / "weights"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    torn = 0
    for attempt in range(kills + 1):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        litter = half_written(checkpoint)
        process = subprocess.Popen([sys.executable, SCRIPT, checkpoint, result, str(epochs)], env=environment)
        if attempt == kills:
            break
        while not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before:
            assert process.poll() is None, "the process ended before its first checkpoint"
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.03))
        while while_writing and not half_written(checkpoint) - litter and process.poll() is None:
            pass
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL, "the process ended before it could be killed"
        torn += bool(half_written(checkpoint) - litter)
    assert process.wait(60) == 0
    assert same(load_file(result), load_file(whole))
    return torn


def test_a_run_killed_at_random_moments_ends_with_the_same_weights(tmp_path):
    kill_and_compare(tmp_path, kills=3, epochs=10)


@pytest.mark.soak
def test_a_run_killed_twenty_times_ends_with_the_same_weights(tmp_path):
    kill_and_compare(tmp_path, kills=20, epochs=60)


@pytest.mark.soak
def test_a_run_killed_while_it_writes_ends_with_the_same_weights(tmp_path):
    assert kill_and_compare(tmp_path, kills=20, epochs=60, while_writing=True) >= 10


@pytest.mark.parametrize("step", [1, 4, 5, 6, 10, 14])
def test_every_position_within_an_epoch_resumes(tmp_path, monkeypatch, step):
    whole, resumed = model(), model()
    expected = train(whole, X, **OPTIONS)
    stop_at_checkpoint(monkeypatch, step, X, checkpoint=tmp_path / "run", **OPTIONS)
    history = train(resumed, X, resume=tmp_path / "run", **OPTIONS)
    assert same(weights_of(resumed), weights_of(whole))
    for column in ("epoch", "elbo", "kl", "validation_elbo", "learning_rate"):
        assert history.to_dict()[column] == expected.to_dict()[column]


def test_a_finished_run_resumes_to_its_end(tmp_path):
    whole, resumed = model(), model()
    expected = train(whole, X, checkpoint=tmp_path / "run", **OPTIONS)
    assert train(resumed, X, resume=tmp_path / "run", **OPTIONS) == expected
    assert same(weights_of(resumed), weights_of(whole))


def product_law():
    return VAE(GaussianEncoder(2, 0, **UNITS), PhaseTypeDecoder(0, n_phases=2, **UNITS), StandardNormal(0))


def test_a_model_without_latent_variable_resumes(tmp_path):
    whole, resumed = product_law(), product_law()
    resumed.load_state_dict(whole.state_dict())
    train(whole, X, epochs=2, checkpoint=tmp_path / "run")
    train(resumed, X, epochs=2, resume=tmp_path / "run")
    assert same(weights_of(resumed), weights_of(whole))


def test_an_interrupt_between_steps_leaves_a_checkpoint_and_a_hint(tmp_path):
    whole, stopped, resumed = model(), model(), model()
    train(whole, X, **OPTIONS)

    def press(record):
        if record.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train(stopped, X, checkpoint=tmp_path / "run", callback=press, **OPTIONS)
    assert caught.value.__notes__ == [f"stopped in epoch 3; go on with resume={str(tmp_path / 'run')!r}"]
    train(resumed, X, resume=tmp_path / "run", **OPTIONS)
    assert same(weights_of(resumed), weights_of(whole))


def test_an_interrupt_within_a_step_waits_for_its_end(tmp_path, monkeypatch):
    whole, stopped, resumed = model(), model(), model()
    train(whole, X, **OPTIONS)
    steps = 0

    class Pressed(FusedAdam):
        def advance(self):
            nonlocal steps
            steps += 1
            if steps == 7:
                os.kill(os.getpid(), signal.SIGINT)
            return super().advance()

    with monkeypatch.context() as patch:
        patch.setattr("phvae.training.FusedAdam", Pressed)
        with pytest.raises(KeyboardInterrupt):
            train(stopped, X, checkpoint=tmp_path / "run", **OPTIONS)
    header, _ = modelfile.read(tmp_path / "run")
    assert header["checkpoint"]["step"] == 7
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    train(resumed, X, resume=tmp_path / "run", **OPTIONS)
    assert same(weights_of(resumed), weights_of(whole))


def test_a_step_that_was_torn_apart_leaves_no_checkpoint(tmp_path, monkeypatch):
    class Torn(FusedAdam):
        def advance(self):
            raise KeyboardInterrupt

    monkeypatch.setattr("phvae.training.FusedAdam", Torn)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(model(), X, checkpoint=tmp_path / "run", **OPTIONS)
    assert not (tmp_path / "run").exists()
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.1}, r"with learning_rate = 0\.002, this call has 0\.1; repeat that call, or start anew"),
        ({"epochs": 4}, "with epochs = 3, this call has 4"),
        ({"schedule": step_schedule}, "with schedule = "),
        ({"smoothness": 1.0}, r"with smoothness = \[0\.0, 0\.0\], this call has \[1\.0, 1\.0\]"),
        ({"seed": 2}, "with seed = 1, this call has 2"),
        ({"validation": HELD_OUT + 1}, "was made on other rows"),
        ({"weights": torch.ones(300)}, "was made on other rows"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, change, message):
    train(model(), X, checkpoint=tmp_path / "run", **OPTIONS)
    with pytest.raises(ValueError, match=message):
        train(model(), X, resume=tmp_path / "run", **(OPTIONS | change))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    train(model(), X, checkpoint=tmp_path / "run", **OPTIONS)
    with pytest.raises(ValueError, match="was made on other rows"):
        train(model(), X.flip(0), resume=tmp_path / "run", **OPTIONS)
    with pytest.raises(ValueError, match="was made for another model"):
        train(product_law(), X, resume=tmp_path / "run", **OPTIONS)
    with pytest.raises(ValueError, match="there is no such file; leave resume out"):
        train(model(), X, resume=tmp_path / "nothing", **OPTIONS)
    modelfile.write(tmp_path / "model", {}, {"settings": {}})
    with pytest.raises(ValueError, match="is a model, not a checkpoint"):
        train(model(), X, resume=tmp_path / "model", **OPTIONS)
    content = bytearray((tmp_path / "run").read_bytes())
    content[-10] ^= 1
    (tmp_path / "run").write_bytes(bytes(content))
    with pytest.raises(ValueError, match="changed or damaged"):
        train(model(), X, resume=tmp_path / "run", **OPTIONS)


def test_checkpoints_come_no_faster_than_asked_for(tmp_path, monkeypatch):
    times = []
    monkeypatch.setattr("phvae.training.checkpoints.save", lambda *arguments: times.append(time.monotonic()))
    train(model(), X, epochs=20, batch_size=64, checkpoint=tmp_path / "run", checkpoint_seconds=0.05)
    assert all(after - before >= 0.05 for before, after in pairwise(times[:-1]))
    train(model(), X, epochs=1, batch_size=64, checkpoint=tmp_path / "run", checkpoint_seconds=math.inf)
    assert len(times) >= 2
