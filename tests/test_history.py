"""Whether a run was long enough: said where the held-out bound still rose, or where few steps were asked for."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

from phvae import PHVAE
from phvae.cli import run
from phvae.history import EpochRecord, History, TrainingWarning, training_note, warn_of_short_training

QUICK = {"n_phases": 2, "latent_dim": 1, "hidden": (4,), "prior": "normal", "random_state": 0}


def history(bound, n=45, *, noise=0.0, **ending):
    """Epochs whose held-out bound is a function of the epoch, and noise."""
    rng = np.random.default_rng(0)
    values = [bound(epoch) for epoch in range(1, n + 1)] + noise * rng.standard_normal(n)
    records = [EpochRecord(e + 1, -1.0, -1.0, 0.0, float(v), 1e-3, 0.1) for e, v in enumerate(values)]
    return History(tuple(records), **ending)


def test_a_rise_is_that_of_the_line_through_the_last_third_of_the_epochs():
    # what was before does not matter
    assert history(lambda e: -5 + 0.01 * e - 3 * (e <= 30)).late_rise() == pytest.approx(0.15, rel=1e-9)
    values = history(lambda e: -5 + 0.01 * e, noise=0.01)
    slope = np.polyfit(np.arange(15), [record.validation_elbo for record in values][-15:], 1)[0]
    assert values.late_rise() == pytest.approx(15 * slope, rel=1e-9)


def test_a_bound_that_hardly_rises_or_falls_does_not_rise():
    # below 0.02 nats per row
    assert history(lambda e: -5 + 0.001 * e).late_rise() == 0
    assert history(lambda e: -5 - 0.01 * e).late_rise() == 0


def test_noise_is_no_rise():
    rises = 0
    for seed in range(500):
        noise = np.random.default_rng(seed).standard_normal(45)
        records = [replace(r, validation_elbo=-5 + 0.1 * z) for r, z in zip(history(float), noise, strict=True)]
        rises += History(tuple(records)).late_rise() > 0
    # a t statistic of 13 degrees of freedom is above 4 with chance 0.0008: more than 6 of 500 with 1e-6
    assert rises <= 6


def test_runs_that_were_stopped_or_had_nothing_held_out_or_are_too_few_say_nothing():
    rising = history(lambda e: -5 + 0.1 * e)
    assert rising.late_rise() > 0
    assert replace(rising, stopped_early=True).late_rise() == 0
    assert History(tuple(replace(record, validation_elbo=None) for record in rising)).late_rise() == 0
    assert history(lambda e: -5 + 0.1 * e, n=14).late_rise() == 0
    assert History(()).late_rise() == 0


@pytest.fixture(scope="module")
def fitted():
    x = np.random.default_rng(0).exponential(size=(1000, 2)) + 0.1
    return PHVAE(epochs=6, **QUICK).fit(x), x


def test_few_epochs_that_were_asked_for_are_said_in_the_certificate_and_by_info(fitted, tmp_path, capsys):
    model, _ = fitted
    note = training_note(model)
    # 6,063 steps by default, 32 to an epoch, are 189 epochs
    assert note.startswith("Training was short: 6 epochs, 3.2% of what a table of this size gets by default")
    # steps of ten times the size: as long as 60 epochs
    model.settings_ = {**model.settings_, "learning_rate": 0.02}
    assert training_note(model) is None
    model.settings_["learning_rate"] = 0.002
    certificate = model.tail_certificate()
    assert certificate.training == note == certificate.to_dict()["training"]
    assert str(certificate).endswith(note)
    model.save(tmp_path / "model")
    assert run(["info", str(tmp_path / "model")]) == 0
    assert note in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_a_run_of_default_length_that_still_rose_is_a_warning(fitted):
    model = PHVAE().set_params(random_state=0)
    for name in ("settings_", "vae_", "n_features_in_"):
        setattr(model, name, getattr(fitted[0], name))
    model.history_ = history(lambda e: -5 + 0.01 * e)
    with pytest.warns(TrainingWarning, match="The held-out bound was still rising when training ended, by 0.15 nats"):
        warn_of_short_training(model)
    # who said how long it was to be reads it in the certificate
    model.epochs = 40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_short_training(model)
    assert training_note(model).startswith("The held-out bound was still rising")


def test_default_settings_and_columns_without_networks_say_nothing():
    x = np.random.default_rng(0).exponential(size=(40, 2)) + 0.1
    model = PHVAE(n_phases=2, hidden=(4,), random_state=0).fit(x)
    assert len(model.history_) > 0
    assert training_note(model) is None
    assert training_note(PHVAE(n_phases=2, random_state=0).fit(x[:, :1])) is None
    # a quarter of the steps is enough to say nothing
    epochs = len(model.history_)
    for share, said in ((0.3, False), (0.2, True)):
        model.epochs, model.history_ = 1, History(tuple(model.history_)[: round(share * epochs)])
        assert (training_note(model) is not None) == said
        model.history_ = history(lambda e: -5.0, n=epochs)
