"""A row of weight two is a row that is there twice: in every part of a fit, in scores and in what is remembered."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import phvae.vae
from phvae import PHVAE
from phvae.batches import Batch
from phvae.cli import run
from phvae.distributions import MatrixPareto
from phvae.objective import batch_means
from phvae.preprocessing import PositiveScaler
from phvae.risk.record import TailRecord
from phvae.start import fit_marginals
from phvae.tables import DataError
from phvae.transformed_start import fit_transformed
from phvae.weights import distinct_rows, median, sample_weights


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.pareto(2.5, (n, 2)) + 1.0
    x[:, 1] *= x[:, 0] * (rng.random(n) < 0.7)
    return x, rng.integers(0, 4, n).astype(float)


def twice(x, weights):
    return np.repeat(x, weights.astype(int), axis=0)


@given(arrays.arrays(float, st.integers(1, 30), elements=st.floats(0, 100)), st.data())
def test_the_weighted_median_is_that_of_repeated_values(x, data):
    weights = data.draw(arrays.arrays(float, len(x), elements=st.integers(1, 5)))
    assert median(x, weights) == pytest.approx(np.median(twice(x, weights)), rel=1e-15)


def test_origin_scale_and_zeros_are_those_of_repeated_rows():
    x, weights = table()
    used = weights > 0
    ours = PositiveScaler().fit(x[used], sample_weight=weights[used])
    theirs = PositiveScaler().fit(twice(x, weights))
    for name in ("origin_", "scale_", "zero_share_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12)


def test_start_laws_are_those_of_repeated_rows():
    x, weights = table()
    rows, mass = torch.from_numpy(x[:, :1]), torch.from_numpy(weights)
    ours, theirs = (
        fit_marginals(rows, n_phases=3, weights=mass),
        fit_marginals(torch.from_numpy(twice(x, weights)[:, :1]), n_phases=3),
    )
    torch.testing.assert_close(ours.rates, theirs.rates, rtol=1e-9, atol=0)
    bent, also = (
        fit_transformed(a, MatrixPareto, 1, w)[0]
        for a, w in ((rows, weights), (torch.from_numpy(twice(x, weights)[:, :1]), None))
    )
    assert bent.tail_index == pytest.approx(also.tail_index, rel=1e-9)


def same_noise(monkeypatch):
    """Every row gets the same offsets, so that copies of a row get those of the row."""

    def noise(like, shape, generator, part=None):
        return torch.linspace(-1, 1, shape[-1], dtype=like.dtype).expand(shape)

    monkeypatch.setattr(phvae.vae, "_noise", noise)


def test_the_weighted_loss_is_that_of_repeated_rows(monkeypatch):
    same_noise(monkeypatch)
    x, weights = table(200)
    vae = PHVAE(epochs=1, latent_dim=2, n_phases=3, random_state=0).fit(x).vae_.double()
    rows, counted = torch.from_numpy(x), torch.from_numpy(weights)
    repeated = torch.from_numpy(twice(x, weights))
    generator = torch.Generator()
    ours = batch_means(
        vae, Batch(rows, torch.arange(200), counted / counted.mean()), generator=generator, penalty=False
    )
    theirs = batch_means(vae, Batch(repeated, torch.arange(len(repeated))), generator=generator, penalty=False)
    for name in ("log_likelihood", "kl"):
        assert getattr(ours, name).item() == pytest.approx(getattr(theirs, name).item(), rel=1e-12, abs=1e-12)


def test_the_weighted_score_is_that_of_repeated_rows():
    x, weights = table(200)
    model = PHVAE(epochs=2, latent_dim=2, n_phases=3, random_state=0).fit(x)
    assert model.score(x, sample_weight=weights) == pytest.approx(model.score(twice(x, weights)), rel=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"latent_dim": 2, "epochs": 30},
        {"latent_dim": 0, "epochs": 0},
        {"latent_dim": 2, "epochs": 3, "tail": "pareto", "n_phases": 1},
        {"latent_dim": 1, "epochs": 10, "validation_fraction": 0.3, "n_phases": "auto"},
    ],
    ids=["trained", "start only", "power tail", "held out"],
)
def test_a_full_batch_fit_with_weights_is_that_to_repeated_rows(settings):
    x, weights = table()
    settings = {"n_phases": 3, "batch_size": 500, "random_state": 0, **settings}
    shuffled = np.random.default_rng(1).permutation(int(weights.sum()))
    ours = PHVAE(**settings).fit(x, sample_weight=weights)
    theirs = PHVAE(**settings).fit(twice(x, weights)[shuffled])
    for name, tensor in ours.vae_.state_dict().items():
        torch.testing.assert_close(tensor, theirs.vae_.state_dict()[name], rtol=1e-6, atol=1e-6)
    for mine, other in zip(ours.history_, theirs.history_, strict=True):
        assert mine.elbo == pytest.approx(other.elbo, rel=1e-6)
    for mine, other in zip(ours.tail_record_.columns, theirs.tail_record_.columns, strict=True):
        assert (mine.n, mine.zeros) == (other.n, other.zeros)
        np.testing.assert_array_equal(mine.top, other.top)
    assert ours.settings_["n_rows"] == theirs.settings_["n_rows"] == weights.sum()


def test_a_table_whose_rows_all_differ_is_taken_as_it_is():
    x = np.random.default_rng(0).random((20, 2))
    places, weights = distinct_rows(x, None, 32)
    assert places.tolist() == list(range(20))
    assert weights is None


def test_weights_that_are_no_counts_keep_the_total_and_the_largest_value():
    x = np.arange(1.0, 101.0)[:, None]
    record = TailRecord.of(x, np.full(100, 0.3)).columns[0]
    assert (record.n, record.largest) == (30, 100.0) or (record.n, record.largest) == (31, 100.0)


def test_proportional_weights_leave_the_likelihood_of_the_fit():
    x, _ = table(100)
    settings = {"latent_dim": 0, "n_phases": 1, "start": "geometric", "epochs": 0, "origin": 0.0}
    one, two = PHVAE(**settings).fit(x), PHVAE(**settings).fit(x, sample_weight=np.full(100, 2.0))
    assert one.score(x) == pytest.approx(two.score(x), rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -2, 1], "^sample_weight, row 1 is -2; weights count rows: give finite numbers >= 0$"),
        ([1, np.nan, 1], r"^sample_weight, row 1 is missing \(NaN\); weights count"),
        ([1, 1], r"^sample_weight has shape \(2,\); give one weight per row, shape \(3,\)$"),
        ([0, 0, 0], "^sample_weight is zero in every row"),
        ([0.2, 0.2, 0.2], "^sample_weight sums to 0.6, as if there were so many rows"),
        (["a", "b", "c"], "^sample_weight = .* are no numbers"),
    ],
)
def test_impossible_weights_are_refused_in_one_line(weights, message):
    with pytest.raises(ValueError, match=message):
        PHVAE().fit([[1.0], [2.0], [4.0]], sample_weight=weights)


def test_a_row_at_fault_keeps_its_number_beside_weights():
    with pytest.raises(DataError, match="row 3 is 1, below its origin 2"):
        PHVAE(origin=2.0).fit([[4.0], [4.0], [3.0], [1.0]], sample_weight=[0, 1, 1, 1])


def test_no_weights_are_no_weights():
    assert sample_weights(None, 3) is None


def test_the_command_line_takes_a_column_of_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, weights = table()
    pd.DataFrame({"a": x[:, 0], "w": weights}).to_csv("rows.csv", index=False)
    pd.DataFrame({"a": twice(x, weights)[:, 0]}).to_csv("twice.csv", index=False)
    settings = ["--n-phases", "3", "--seed", "0", "-q"]
    assert run(["fit", "rows.csv", "-c", "a", "--weights", "w", "-o", "one", *settings]) == 0
    assert run(["fit", "twice.csv", "-o", "two", *settings]) == 0
    scores = []
    for words in (["one", "rows.csv", "--weights", "w"], ["two", "twice.csv"]):
        capsys.readouterr()
        assert run(["evaluate", *words, "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out)["mean_log_likelihood"])
    assert scores[0] == pytest.approx(scores[1], rel=1e-9)
    assert run(["fit", "rows.csv", "-c", "a", "--weights", "w", "--stream", "-o", "one"]) == 2
    assert capsys.readouterr().err == "phvae: --stream reads values alone; leave it out, or --weights\n"
