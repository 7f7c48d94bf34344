"""Dask collections of a model: complete and the same whatever becomes of the workers."""

import os
import signal
import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

from phvae import PHVAE
from phvae.blocks import BLOCK

dask = pytest.importorskip("dask")
import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402

# Dask warns of its own affairs: of garbage collection on a busy machine, of a port that is taken.
pytestmark = pytest.mark.filterwarnings("default:::distributed", "default:::dask", "ignore::ResourceWarning")

N = 5 * BLOCK + 100


def frame(n=400, seed=0):
    uniform = np.random.default_rng(seed).random((n, 2))
    return pd.DataFrame({"loss": uniform[:, 0] ** -0.4, "cost": 5 * uniform[:, 1] ** -0.3})


OPTIONS = {"n_phases": 3, "latent_dim": 1, "hidden": (8,), "epochs": 2, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def model():
    return PHVAE(**OPTIONS).fit(frame())


def test_shards_one_after_the_other_are_the_sample(model):
    whole = model.sample(N, random_state=3)
    for n_shards in (1, 2, 3, 6):
        parts = [rows for i in range(n_shards) for rows in model.sample_blocks(N, 3, shard=(i + 1, n_shards))]
        pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)
    with pytest.raises(ValueError, match="shard = 4/3; give i/n with i from 1 to n"):
        model.sample_blocks(N, 3, shard=(4, 3))
    with pytest.raises(ValueError, match="shard = 1/7: 20,580 rows are 6 blocks of 4,096"):
        model.sample_blocks(N, 3, shard=(1, 7))


def test_lazy_samples_and_scores_are_those_of_the_model(model):
    lazy = model.sample_dask(N, 3, part_rows=2 * BLOCK)
    assert isinstance(lazy, dd.DataFrame)
    assert lazy.npartitions == 3
    whole = model.sample(N, random_state=3)
    with dask.config.set(scheduler="sync"):
        pd.testing.assert_frame_equal(lazy.compute().reset_index(drop=True), whole)
        rows = whole[:1000]
        scores = model.score_dask(dd.from_pandas(rows, npartitions=3)).compute()
        np.testing.assert_allclose(scores.to_numpy(), model.score_samples(rows), rtol=1e-12)
        assert scores.index.equals(rows.index)
        array = PHVAE(**OPTIONS).fit(frame().to_numpy())
        drawn = array.sample_dask(N, 3, part_rows=BLOCK)
        assert isinstance(drawn, da.Array)
        assert drawn.shape == (N, 2)
        np.testing.assert_array_equal(drawn.compute(), array.sample(N, random_state=3))
        x = rows.to_numpy()
        lazy_scores = array.score_dask(da.from_array(x, chunks=(300, 1)))
        np.testing.assert_allclose(lazy_scores.compute(), array.score_samples(x), rtol=1e-12)


def grouped(n=360):
    """Three groups whose rows lie between each other."""
    return frame(n).assign(line=np.array(["motor", "fire", "home"])[np.arange(n) % 3])


def same_model(one, other):
    return all((value == other.vae_.state_dict()[name]).all() for name, value in one.vae_.state_dict().items())


def test_each_group_has_the_model_of_its_own_rows():
    rows = grouped()
    expected = {
        line: PHVAE(**OPTIONS).fit(rows[rows.line == line][["loss", "cost"]]) for line in ("fire", "home", "motor")
    }
    unfitted = PHVAE(**OPTIONS)
    with dask.config.set(scheduler="sync"):
        for table in (rows, pl.from_pandas(rows), dd.from_pandas(rows, npartitions=4)):
            models = dict(unfitted.fit_groups(table, by="line").compute())
            assert sorted(models) == sorted(expected)
            assert all(same_model(models[line], expected[line]) for line in expected)
        pairs = unfitted.fit_groups(rows.assign(year=2024), by=["line", "year"]).compute()
        assert [key for key, _ in pairs] == [("fire", 2024), ("home", 2024), ("motor", 2024)]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: model.fit_groups(grouped(), by="lines"), r"by = 'lines'; give one of the columns \['loss'"),
        (lambda model: model.fit_groups(frame(), by=["loss", "cost"]), "leaves no column to fit"),
        (lambda model: model.fit_groups(grouped().assign(line=[None, *"ab"] * 120), by="line"), "'line', row 0 is mis"),
        (lambda model: model.score_dask(frame()), "X is a DataFrame; give a Dask frame or array, or use "),
        (lambda model: model.sample_dask(0), "n_samples = 0 and part_rows = 262144; give whole"),
    ],
)  # fmt: skip
def test_mistakes_are_said_in_one_line(model, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(model)


def test_a_group_that_cannot_be_fitted_is_named():
    rows = grouped()
    rows.loc[rows.line == "home", "cost"] = 1.0
    with pytest.raises(ValueError, match="group 'home': column 'cost' is 1 in every row"):
        PHVAE(**OPTIONS).fit_groups(rows, by="line").compute(scheduler="sync")


@pytest.fixture(scope="module")
def client():
    """A cluster of two workers, each a process of one thread, that come back when they die."""
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        )
        with distributed.Client(cluster) as client:
            yield client
        cluster.close()


def kill_one(client):
    """Kill a worker as soon as it has done something, as the system does when memory runs out."""
    victim, process = next(iter(client.run(os.getpid).items()))
    while not client.has_what().get(victim):
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)


def test_a_killed_worker_changes_neither_sample_nor_scores_nor_models(model, client):
    n = 10 * BLOCK
    sample = model.sample_dask(n, 3, part_rows=BLOCK).persist()
    scores = model.score_dask(dd.from_pandas(frame(400, 1), npartitions=8)).persist()
    models = PHVAE(**OPTIONS).fit_groups(grouped(), by="line").persist()
    kill_one(client)
    pd.testing.assert_frame_equal(sample.compute().reset_index(drop=True), model.sample(n, random_state=3))
    np.testing.assert_allclose(scores.compute().to_numpy(), model.score_samples(frame(400, 1)), rtol=1e-12)
    rows = grouped()
    for line, fitted in models.compute():
        assert same_model(fitted, PHVAE(**OPTIONS).fit(rows[rows.line == line][["loss", "cost"]]))
