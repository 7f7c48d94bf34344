"""Steps launched ahead, as a GPU takes them: on any device the same run as steps that are waited for."""

import os
import signal

import pytest
import torch
from training_run import model, rows, same, stop_at_checkpoint, weights_of

import phvae.training
from phvae import modelfile
from phvae.adam import FusedAdam
from phvae.batches import stream
from phvae.decoders import PhaseTypeDecoder
from phvae.priors import StandardNormal
from phvae.training import TrainingError, train
from phvae.vae import VAE, GaussianEncoder

X, HELD_OUT = rows(300, 1), rows(100, 2)
OPTIONS = {
    "epochs": 3, "batch_size": 64, "kl_warmup": 2.0, "smoothness": 1e-3, "seed": 1, "rate_factors": {"prior": 3.0},
    "weights": torch.rand(300, generator=torch.Generator().manual_seed(0)), "validation": HELD_OUT, "patience": 3,
}  # fmt: skip


@pytest.fixture
def ahead(monkeypatch):
    monkeypatch.setattr(phvae.training, "_launches_ahead", lambda device: True)


@pytest.fixture
def waited():
    trained = model()
    return trained, train(trained, X, **OPTIONS)


def assert_same_run(trained, history, waited):
    assert same(weights_of(trained), weights_of(waited[0]))
    for column in ("epoch", "elbo", "log_likelihood", "kl", "validation_elbo", "learning_rate"):
        assert history.to_dict()[column] == waited[1].to_dict()[column]


def test_launched_steps_are_the_steps(waited, ahead, tmp_path):
    trained, often = model(), model()
    history = train(trained, X, **OPTIONS)
    assert_same_run(trained, history, waited)
    assert all(record.seconds > 0 for record in history)
    assert_same_run(often, train(often, X, checkpoint=tmp_path / "run", checkpoint_seconds=0.0, **OPTIONS), waited)


@pytest.mark.parametrize("step", [1, 4, 5, 6, 11])
def test_launched_steps_resume(waited, ahead, tmp_path, monkeypatch, step):
    resumed = model()
    stop_at_checkpoint(monkeypatch, step, X, checkpoint=tmp_path / "run", **OPTIONS)
    assert modelfile.read(tmp_path / "run")[0]["checkpoint"]["step"] == step
    assert_same_run(resumed, train(resumed, X, resume=tmp_path / "run", **OPTIONS), waited)


def test_an_interrupt_keeps_every_step_that_was_launched(waited, ahead, tmp_path, monkeypatch):
    steps = 0

    class Pressed(FusedAdam):
        def step(self, closure=None):
            nonlocal steps
            steps += 1
            if steps == 8:
                os.kill(os.getpid(), signal.SIGINT)
            return super().step(closure)

    with monkeypatch.context() as patch:
        patch.setattr("phvae.training.FusedAdam", Pressed)
        with pytest.raises(KeyboardInterrupt):
            train(model(), X, checkpoint=tmp_path / "run", **OPTIONS)
    assert modelfile.read(tmp_path / "run")[0]["checkpoint"]["step"] == 8
    resumed = model()
    assert_same_run(resumed, train(resumed, X, resume=tmp_path / "run", **OPTIONS), waited)


def test_a_loss_that_is_not_finite_names_its_rows_and_undoes_what_was_launched_after_it(ahead, monkeypatch):
    x = X.clone()
    x[[17, 203], 1] = 0.5  # below the origin: probability zero
    left = []

    class Watched(FusedAdam):
        def step(self, closure=None):
            result = super().step(closure)
            left.append([value.detach().clone() for group in self.param_groups for value in group["params"]])
            return result

    monkeypatch.setattr("phvae.training.FusedAdam", Watched)
    order = torch.randperm(300, generator=stream("cpu", 4, "order", 0)).tolist()
    first = min((17, 203), key=order.index)
    batch = order.index(first) // 32
    trained = model()
    with pytest.raises(TrainingError, match=rf"epoch 1, batch {batch + 1}: the loss is not finite .* {first} of x"):
        train(trained, x, epochs=2, batch_size=32, seed=4)
    assert len(left) == 10 > batch + 1 > 1
    kept = sorted(float(value.detach().sum()) for value in trained.parameters())
    assert kept == sorted(float(value.sum()) for value in left[batch - 1])


def test_many_phases_or_a_device_without_triton_are_not_captured(monkeypatch):
    units = {"origin": [0.0], "scale": [1.0]}

    def captures(phases):
        decoder = PhaseTypeDecoder(1, n_phases=phases, **units)
        return VAE(GaussianEncoder(1, 1, **units), decoder, StandardNormal(1)).capturable

    monkeypatch.setattr("phvae.kernels.backends.fused_phases", lambda: 64)
    assert captures(64)
    assert not captures(65)
    monkeypatch.setattr("phvae.kernels.backends.fused_phases", lambda: 0)
    assert not captures(2)
