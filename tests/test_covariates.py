"""Covariates: how they are read, the law given them, and that the model of one row is the model given that row."""

import copy
import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from phvae import PHVAE
from phvae.cli import run
from phvae.covariates import Categorical, Covariates, Numeric
from phvae.decoders import PhaseTypeDecoder
from phvae.encoders import GaussianEncoder
from phvae.layout import Layout
from phvae.modelfile import ModelFileError
from phvae.networks import MLP
from phvae.priors import ConditionalPrior, MixturePrior, StandardNormal
from phvae.tables import DataError
from phvae.vae import VAE

# Standard errors beyond which a normal figure lies with probability below one in a million.
SIGMAS = 5.0
REGIONS = ["north", "south", "west"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def table(n=30, seed=0):
    rng = np.random.default_rng(seed)
    return {"size": rng.pareto(1.5, n), "region": [REGIONS[k] for k in rng.integers(0, 3, n)]}


@given(
    st.floats(1e-6, 1e6),
    st.floats(-1e3, 1e3),
)
def test_a_number_is_read_the_same_in_any_unit(scale, shift):
    values = np.random.default_rng(1).pareto(1.2, 50) + 1
    ours, theirs = (Covariates.fit({"c": x}, 50).read({"c": x}) for x in (values, scale * (values + shift)))
    np.testing.assert_allclose(theirs, ours, atol=1e-9 * (1 + abs(shift)))


def test_numbers_have_mean_zero_and_deviation_one_also_with_weights():
    size, weights = np.random.default_rng(2).pareto(1.2, 60), np.arange(60) % 4.0
    numbers = Covariates.fit({"size": size}, 60).read({"size": size})
    assert numbers.mean() == pytest.approx(0, abs=1e-12)
    assert numbers.std() == pytest.approx(1)
    repeated = np.repeat(size, weights.astype(int))
    np.testing.assert_allclose(
        Covariates.fit({"size": size}, 60, weights).columns[0][1:],
        Covariates.fit({"size": repeated}, len(repeated)).columns[0][1:],
        rtol=1e-12,
    )


def test_a_value_far_beyond_the_fit_moves_the_networks_by_little():
    covariates = Covariates.fit({"size": np.arange(100.0)}, 100)
    assert float(covariates.read({"size": 1e9})[0, 0]) < 30


KINDS = {
    "pandas": pd.DataFrame,
    "categories": lambda columns: pd.DataFrame(columns).astype({"region": "category"}),
    "polars": pl.DataFrame,
    "enum": lambda columns: pl.DataFrame(columns).with_columns(pl.col("region").cast(pl.Enum(REGIONS))),
    "arrow": pa.table,
    "array": lambda columns: np.array([*zip(*columns.values(), strict=True)], dtype=object),
}


@pytest.mark.parametrize("kind", KINDS)
def test_covariates_are_the_same_from_every_kind_of_table(kind):
    ours, theirs = Covariates.fit(table(), 30), Covariates.fit(KINDS[kind](table()), 30)
    assert [type(column) for column in theirs.columns] == [Numeric, Categorical]
    assert [column[1:] for column in theirs.columns] == [column[1:] for column in ours.columns]
    np.testing.assert_array_equal(theirs.read(KINDS[kind](table(5, 1))), ours.read(table(5, 1)))


def test_categories_of_numbers_and_truth_values_are_levels_and_a_series_is_one_covariate():
    frame = pd.DataFrame({"tier": pd.Categorical([3, 1, 3, 2]), "open": [True, False, True, True]})
    covariates = Covariates.fit(frame, 4)
    assert [column.levels for column in covariates.columns] == [(1, 2, 3), (False, True)]
    np.testing.assert_array_equal(covariates.read({"open": True, "tier": 3.0}), [[0, 0, 1, 0, 1]])
    assert Covariates.fit(frame["tier"], 4).columns == covariates.columns[:1]


def test_columns_are_found_by_name_and_others_left_alone():
    covariates = Covariates.fit(pd.DataFrame(table()), 30)
    frame = pd.DataFrame({"day": 1, **table(4, 3)})[["region", "day", "size"]]
    np.testing.assert_array_equal(covariates.read(frame), covariates.read(table(4, 3)))


def test_what_a_header_keeps_is_all_of_it():
    covariates = Covariates.fit(table(), 30)
    back = Covariates.from_header(json.loads(json.dumps(covariates.header())))
    assert (back.columns, back.named) == (covariates.columns, covariates.named)


def read_again(change):
    return lambda: Covariates.fit(table(), 30).read({**table(4, 1), **change})


@pytest.mark.parametrize(
    ("ask", "message"),
    [(read_again({"region": ["north", "south", "nowhere", "west"]}),
      "covariate 'region', row 2 is 'nowhere', a level the fit has not seen; give one of 'north', 'south', 'west'"),
     (read_again({"region": ["north", None, None, "west"]}),
      "covariate 'region', row 1 is missing and 1 more; remove the row, or fill in a value (such as 'unknown')"),
     (read_again({"size": [1.0, 2.0, math.nan, 1.0]}),
      "covariate 'size', row 2 is missing; remove the row, or fill in a value (such as 'unknown')"),
     (read_again({"size": [1.0, 2.0, math.inf, 1.0]}), "covariate 'size', row 2 is inf; remove the row or give a"),
     (read_again({"size": [1.0, "two", 3.0, 4.0]}), "covariate 'size', row 1 is 'two', where the fit has seen numbers"),
     (read_again({"size": [1.0, 2.0, 3.0, 1e300]}), "covariate 'size', row 3 is 1e+300, where the fit has seen values"),
     (lambda: Covariates.fit(table(), 30).read({"size": [1.0]}), "covariates have no column 'region'; give those of"),
     (lambda: Covariates.fit(table(), 30).read(np.ones((2, 3))), "covariates has 3 columns; give those of the fit in"),
     (lambda: Covariates.fit(table(), 31), "covariates has 30 rows and X 31; give one row of covariates for each of X"),
     (lambda: Covariates.fit({"a": [1.0, 2.0], "b": [1.0]}, 2), "covariates has columns of 1 and of 2 rows; give one"),
     (lambda: Covariates.fit({"a": [1.0, 2.0], "b": 1.0}, 2), "covariates mixes values and columns; give one row of"),
     (lambda: Covariates.fit({}, 2), "covariates is empty; give at least one row of at least one column"),
     (lambda: Covariates.fit({"a": [2.0, 2.0]}, 2), "covariate 'a' is 2.0 in every row; it says nothing: leave it out"),
     (lambda: Covariates.fit({"a": ["x", "x"]}, 2), "covariate 'a' is 'x' in every row; it says nothing: leave it out"),
     (lambda: Covariates.fit(pl.LazyFrame(table()), 30), "covariates is a lazy frame; give covariates.collect()"),
     (lambda: Covariates.fit(np.ones((2, 2, 2)), 2), "covariates has shape (2, 2, 2); give a table"),
     (lambda: Covariates.fit(pd.DataFrame({"day": pd.date_range("2024-01-01", periods=3)}), 3), "covariate 'day' is"),
     (lambda: Covariates.fit(pd.DataFrame([[1, 2], [2, 3]], columns=["a", "a"]), 2), "covariates has two columns 'a'"),
     (lambda: Covariates.fit(table(), 30).one_row(table(2)), "covariates has 2 rows; give one, such as a dict from")],
)  # fmt: skip
def test_covariates_that_cannot_be_read_are_one_sentence(ask, message):
    with pytest.raises(ValueError, match="covariate") as caught:
        ask()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hidden", [(), (8,), (8, 5)])
@pytest.mark.parametrize("held", [1, 4])
def test_a_network_with_inputs_held_is_the_network_at_these_inputs(hidden, held):
    network = MLP(4, 3, hidden=hidden, generator=seeded()).double()
    x = torch.randn(7, 4, dtype=torch.float64, generator=seeded(1))
    x[:, 4 - held :] = x[0, 4 - held :]
    before = torch.get_rng_state()
    torch.testing.assert_close(network.given(x[0, 4 - held :])(x[:, : 4 - held]), network(x), rtol=1e-12, atol=1e-12)
    assert torch.equal(torch.get_rng_state(), before)


def conditional_prior(base):
    prior = ConditionalPrior(base, 2).double()
    torch.nn.init.normal_(prior.shift.weight, std=0.5, generator=seeded(3))
    return prior


BASES = {"normal": lambda: StandardNormal(3), "mixture": lambda: MixturePrior(3, 4, generator=seeded(2))}


@pytest.mark.parametrize("base", BASES)
def test_a_conditional_prior_at_one_row_is_the_one_given_that_row(base):
    prior, c = conditional_prior(BASES[base]()), torch.tensor([0.3, -1.2], dtype=torch.float64)
    z = torch.randn(6, 3, dtype=torch.float64, generator=seeded(4))
    law = prior.given(c.expand(6, 2))
    torch.testing.assert_close(prior.at(c).log_prob(z), law.log_prob(z), rtol=1e-12, atol=1e-12)
    mean, log_scale = prior.shift(c).chunk(2, -1)
    before = (z - mean) * (-log_scale).exp()
    torch.testing.assert_close(law.log_prob(z), prior.base.log_prob(before) - log_scale.sum(-1))


def test_the_divergence_from_a_moved_normal_prior_is_the_exact_one():
    prior, c = conditional_prior(StandardNormal(3)), torch.randn(5, 2, dtype=torch.float64, generator=seeded(5))
    mean, log_scale = prior.shift(c).chunk(2, -1)
    posterior = Normal(torch.randn(5, 3, dtype=torch.float64, generator=seeded(6)), torch.rand(5, 3).double() + 0.1)
    exact = kl_divergence(posterior, Normal(mean, log_scale.exp())).sum(-1)
    torch.testing.assert_close(prior.given(c).divergence(posterior, posterior.mean), exact)


def vae(latent_dim=2, base="mixture", hidden=(8,)):
    units = {"origin": [0.0, 1.0], "scale": [1.0, 10.0], "hidden": hidden, "generator": seeded(7)}
    encoder = GaussianEncoder(2, latent_dim, layout=Layout(2, n_covariates=3), **units)
    decoder = PhaseTypeDecoder(latent_dim + 3, n_phases=3, zero_share=[0.3, 0.0], **units)
    prior = {"normal": lambda: StandardNormal(latent_dim), "mixture": lambda: MixturePrior(latent_dim, 4)}[base]()
    if latent_dim:
        prior = ConditionalPrior(prior, 3)
        torch.nn.init.normal_(prior.shift.weight, std=0.3, generator=seeded(8))
    torch.nn.init.normal_(decoder.network.head.weight, std=0.5, generator=seeded(9))
    return VAE(encoder, decoder, prior).double()


def rows(n=6):
    rng = np.random.default_rng(10)
    c = np.tile(rng.normal(size=3), (n, 1))
    return torch.from_numpy(np.concatenate((rng.pareto(2.0, (n, 2)) * [1, 10] + [0, 1], c), 1))


@pytest.mark.parametrize(("latent_dim", "base"), [(2, "mixture"), (2, "normal"), (0, "normal")])
def test_the_model_given_a_row_of_covariates_has_the_likelihood_of_rows_with_them(latent_dim, base):
    model, x = vae(latent_dim, base), rows()
    x[0, 0] = 0.0
    held = model.given(x[0, 2:])
    assert held.layout.plain
    assert held.latent_dim == held.decoder.latent_dim == latent_dim
    ours, theirs = (
        each.log_likelihood(part, n_importance=5, generator=seeded(11)) for each, part in ((held, x[:, :2]), (model, x))
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    if base == "mixture" or not latent_dim:
        ours, theirs = (
            each.elbo(part, generator=seeded(12), n_samples=3) for each, part in ((held, x[:, :2]), (model, x))
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_another_covariate_is_another_law():
    model, x = vae(), rows()
    other = x.clone()
    other[:, 3] += 1.0
    here, there = (model.log_likelihood(part, n_importance=5, generator=seeded()) for part in (x, other))
    assert bool(((here - there).abs() > 1e-3).all())
    # through each of the three parts
    z = torch.zeros(6, 2).double()
    assert not torch.equal(model.posterior(x).mean, model.posterior(other).mean)
    assert not torch.equal(model.prior_given(x[:, 2:]).log_prob(z), model.prior_given(other[:, 2:]).log_prob(z))
    assert not torch.equal(
        model.decoder(model.beside(z, x[:, 2:])).mean, model.decoder(model.beside(z, other[:, 2:])).mean
    )


def test_the_parts_of_a_batch_on_several_processes_add_up_to_the_batch():
    model, x = vae(base="normal"), rows(10)
    x[:, 2:] = torch.randn(10, 3, generator=seeded(13)).double()
    whole = model.terms(x, generator=seeded(14), penalty=True)
    parts = [model.terms(x[a:b], generator=seeded(14), penalty=True, part=(a, 10)) for a, b in ((0, 5), (5, 10))]
    for name in ("log_likelihood", "kl"):
        together = torch.cat([getattr(part, name) for part in parts])
        torch.testing.assert_close(together, getattr(whole, name), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sum(part.roughness for part in parts), whole.roughness)


# One column: its law given the covariates is exponential, its mean a power of a number times that of its level.
MEANS = {"north": 1.0, "south": 3.0, "west": 0.4}


def claims(n, seed):
    rng = np.random.default_rng(seed)
    covariates = pd.DataFrame({"size": np.exp(rng.uniform(-1, 1, n)), "region": rng.choice(REGIONS, n)})
    mean = covariates["size"] ** 1.5 * covariates["region"].map(MEANS)
    return pd.DataFrame({"loss": mean * rng.exponential(size=n)}), covariates


@pytest.fixture(scope="module")
def conditional():
    """A model of one column with 450 rows of every level, in expectation."""
    x, c = claims(1350, 0)
    return PHVAE(n_phases=4, hidden=(16,), epochs=60, batch_size=64, origin=0, random_state=0).fit(x, covariates=c)


def test_a_known_conditional_law_is_recovered(conditional):
    """The log of a mean of m exponential values has deviation 1/sqrt(m).

    A curve as free as a quadratic in each level, with log size even on (-1, 1), has at s the variance
    ``Σ_k (2k + 1) P_k(s)² / m`` of a regression, with Legendre's ``P_k`` up to ``k = 2``: at 0 and at 0.6 at most
    2.25 / m, here with m = 450 less what is held out.
    """
    assert conditional.settings_["latent_dim"] == 0
    assert conditional.settings_["epochs"] == 60
    tolerance = SIGMAS * math.sqrt(2.25 / (0.9 * 450))
    for region in REGIONS:
        for log_size in (-0.6, 0.0, 0.6):
            given = conditional.at({"size": math.exp(log_size), "region": region})
            truth = math.exp(1.5 * log_size) * MEANS[region]
            found = given.mean("loss")["value"][0]
            assert abs(math.log(found / truth)) < tolerance, (region, log_size)
            median = given.quantile("loss", 0.5)["value"][0]
            # the deviation of a log median is 1/log 2 as large
            assert abs(math.log(median / (truth * math.log(2)))) < tolerance / math.log(2), (region, log_size)


def test_covariates_are_worth_what_they_tell(conditional):
    """Beside one law for all rows, the score rises by the share of the variance of log loss that they explain."""
    x, c = claims(4000, 1)
    alone = PHVAE(n_phases=4, random_state=0).fit(claims(1350, 0)[0])
    mean = c["size"] ** 1.5 * c["region"].map(MEANS)
    truth = -np.log(mean) - x["loss"] / mean
    ours, without = (truth - conditional.score_samples(x, covariates=c), truth - alone.score_samples(x))
    error = SIGMAS * ours.std() / math.sqrt(len(x))
    # the divergence of a fit with as many numbers as 3 levels of a quadratic is 9/2 over the rows, times 5 in the worst
    assert ours.mean() < error + 5 * 4.5 / 1215
    assert without.mean() - ours.mean() > 0.2


def test_automatic_epochs_train_a_single_column_with_covariates():
    x, c = claims(60, 2)
    model = PHVAE(n_phases=2, hidden=(4,), random_state=0, batch_size=64).fit(x, covariates=c)
    assert len(model.history_) == model.settings_["epochs"] > 0


# Two columns, one of them with zeros whose share is that of the level.
SHARES = {"north": 0.1, "south": 0.5, "west": 0.8}


def pairs(n, seed=0):
    rng = np.random.default_rng(seed)
    x, c = claims(n, seed)
    x["other"] = rng.pareto(3.0, n) * (rng.random(n) >= c["region"].map(SHARES))
    return x, c


@pytest.fixture(scope="module")
def joint():
    x, c = pairs(900)
    settings = {"n_phases": 3, "latent_dim": 2, "hidden": (16,), "epochs": 30, "batch_size": 32}
    return PHVAE(**settings, prior="mixture", origin=0, random_state=0).fit(x, covariates=c)


def test_the_share_of_zeros_is_that_of_the_level(joint):
    """A share of m rows has the deviation of a binomial one; the networks may be smoother than a share of its own."""
    c = pd.DataFrame({"size": 1.0, "region": np.repeat(REGIONS, 4000)})
    zeros = (joint.sample(covariates=c, random_state=1)["other"] == 0).groupby(c["region"]).mean()
    for region, share in SHARES.items():
        error = math.sqrt(share * (1 - share) * (1 / 270 + 1 / 4000))
        assert abs(zeros[region] - share) < SIGMAS * error, region


def test_scores_given_one_row_are_those_of_rows_that_all_have_it(joint):
    x, _ = pairs(40, 3)
    row = {"size": 2.0, "region": "south"}
    scores = joint.score_samples(x, covariates=pd.DataFrame([row] * len(x)))
    # the networks of the model of a row are in single precision
    np.testing.assert_allclose(joint.at(row).score_samples(x), scores, rtol=1e-4, atol=1e-4)
    assert joint.score(x, covariates=pd.DataFrame([row] * len(x))) == pytest.approx(scores.mean(), rel=1e-12)


def test_a_row_may_be_a_dict_a_table_or_a_row_of_a_table(joint):
    frame = pd.DataFrame({"size": [2.0], "region": ["south"]})
    values = [joint.at(row).sf("loss", 3.0)["value"][0] for row in (frame, frame.iloc[0], frame.to_dict("list"))]
    assert values == [joint.at({"region": "south", "size": 2.0}).sf("loss", 3.0)["value"][0]] * 3


@pytest.mark.parametrize("kind", ["pandas", "numpy", "polars"])
def test_answers_for_each_row_are_those_of_its_model(joint, kind):
    _, c = pairs(3, 12)
    model = copy.copy(joint)
    model.table_kind_ = kind
    answer = model.at_each(c).quantile(["loss", "other"], [0.9, 0.99])
    values = [model.at(row).quantile(["loss", "other"], [0.9, 0.99])["value"] for row in c.to_dict("records")]
    np.testing.assert_array_equal(np.asarray(answer["value"]), np.concatenate([np.asarray(part) for part in values]))
    assert list(answer["region"]) == list(np.repeat(c["region"], 4))
    assert isinstance(answer, type(model.at(c[:1]).mean("loss")))


def test_questions_that_have_no_frame_for_an_answer_say_so(joint):
    _, c = pairs(2, 12)
    each = joint.at_each(c)
    assert "sf" in dir(each)
    with pytest.raises(ValueError, match="losses gives no frame for a row; ask the model of one row at a time, at"):
        each.losses("loss")
    with pytest.raises(AttributeError, match="'fit' is no question about tails"):
        each.fit  # noqa: B018


def test_samples_given_covariates_have_the_tails_of_the_model_of_the_row(joint):
    row = {"size": 0.5, "region": "south"}
    given, n = joint.at(row), 20_000
    drawn = joint.sample(n // 2, random_state=4, covariates=pd.DataFrame([row] * 2))
    for column, level in (("loss", 0.9), ("other", 0.8)):
        point = given.quantile(column, level)["value"][0]
        chance = given.sf(column, point)["value"][0]
        seen = int((drawn[column] > point).sum())
        assert abs(seen - n * chance) < SIGMAS * math.sqrt(n * chance * (1 - chance)) + 1e-3 * n * chance
    both = given.joint_sf({"loss": 1.0, "other": 0.3})["value"][0]
    seen = int(((drawn["loss"] > 1.0) & (drawn["other"] > 0.3)).sum())
    assert abs(seen - n * both) < SIGMAS * math.sqrt(n * both) + 1e-3 * n * both


def test_a_sample_has_a_row_for_every_row_of_covariates_whatever_follows(joint):
    _, c = pairs(5000, 5)
    whole = joint.sample(covariates=c, random_state=6)
    assert len(whole) == 5000
    pd.testing.assert_frame_equal(joint.sample(covariates=c[:10], random_state=6), whole[:10])
    blocks = pd.concat(joint.sample_blocks(1, 6, covariates=c), ignore_index=True)
    pd.testing.assert_frame_equal(blocks, whole)
    parts = [pd.concat(joint.sample_blocks(1, 6, covariates=c, shard=(i, 2))) for i in (1, 2)]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)
    assert len(joint.sample(3, covariates=c[:2], random_state=6)) == 6
    one = c[:1].to_dict("records")[0]
    pd.testing.assert_frame_equal(joint.sample(5, 7, covariates=one), joint.at(one).sample(5, 7))


def test_conditions_on_columns_and_covariates_go_together(joint):
    row = {"size": 0.5, "region": "south"}
    drawn = joint.sample(50, random_state=0, given={"loss": (">", 20.0)}, covariates=row)
    assert (drawn["loss"] > 20).all()


def test_transform_and_its_inverse_take_covariates(joint):
    x, c = pairs(5, 6)
    z = joint.transform(x, covariates=c)
    assert z.shape == (5, 2)
    back = joint.inverse_transform(z, covariates=c)
    row = c.iloc[0].to_dict()
    np.testing.assert_allclose(joint.at(row).transform(x[:1]), z[:1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(joint.at(row).inverse_transform(z[:1])[0], back[0], rtol=1e-4)


def test_a_model_with_covariates_and_the_model_of_a_row_come_back_from_files(joint, tmp_path):
    x, c = pairs(20, 7)
    joint.save(tmp_path / "joint.phvae")
    back = PHVAE.load(tmp_path / "joint.phvae")
    assert back.covariates_.columns == joint.covariates_.columns
    np.testing.assert_array_equal(back.score_samples(x, covariates=c), joint.score_samples(x, covariates=c))
    PHVAE.verify(tmp_path / "joint.phvae")
    row = {"size": 2.0, "region": "west"}
    given = joint.at(row)
    given.save(tmp_path / "row.phvae")
    again = PHVAE.load(tmp_path / "row.phvae")
    PHVAE.verify(tmp_path / "row.phvae")
    assert again.settings_["given"] == row
    np.testing.assert_array_equal(again.score_samples(x), given.score_samples(x))
    pd.testing.assert_frame_equal(again.sample(5, 1), given.sample(5, 1))


def test_a_normal_prior_given_a_row_comes_back_from_a_file(tmp_path):
    x, c = pairs(60)
    model = PHVAE(n_phases=2, latent_dim=2, hidden=(4,), epochs=3, prior="normal", random_state=0).fit(x, covariates=c)
    given = model.at({"size": 2.0, "region": "west"})
    given.save(tmp_path / "row.phvae")
    again = PHVAE.load(tmp_path / "row.phvae")
    np.testing.assert_array_equal(again.score_samples(x), given.score_samples(x))
    rows = pd.DataFrame({"size": 2.0, "region": ["west"] * len(x)})
    np.testing.assert_allclose(given.score_samples(x), model.score_samples(x, covariates=rows), rtol=1e-4)


@pytest.mark.parametrize(
    "change", [{"columns": []}, {"columns": [{"kind": "categorical", "name": "region", "levels": []}]}]
)
def test_a_file_whose_covariates_are_not_those_of_its_networks_is_refused(joint, change):
    from phvae.persistence import pack, unpack

    tensors, header = pack(joint)
    header["covariates"] |= change
    with pytest.raises(ModelFileError, match="covariate"):
        unpack(PHVAE(), "model", header, tensors)


def test_a_run_that_was_stopped_goes_on_with_its_covariates(tmp_path):
    x, c = pairs(80)
    settings = {"n_phases": 2, "latent_dim": 2, "hidden": (4,), "epochs": 4, "random_state": 0}
    whole = PHVAE(**settings).fit(x, covariates=c)

    def stop(record):
        if record.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PHVAE(**settings).fit(x, covariates=c, checkpoint=tmp_path / "run", callback=stop)
    resumed = PHVAE(**settings).fit(x, covariates=c, resume=tmp_path / "run")
    for name, value in whole.vae_.state_dict().items():
        assert torch.equal(resumed.vae_.state_dict()[name], value), name
    other = c.assign(size=c["size"][::-1].to_numpy())
    with pytest.raises(ValueError, match="on other rows"):
        PHVAE(**settings).fit(x, covariates=other, resume=tmp_path / "run")


def test_a_row_of_weight_two_is_two_rows_with_the_same_covariates():
    """All rows in one batch; a level that only rows of weight zero have is none."""
    x, c = pairs(40)
    c.loc[3, "region"] = "nowhere"
    weights = np.arange(40) % 3.0
    copies = np.repeat(np.arange(40), weights.astype(int))
    settings = {"n_phases": 2, "latent_dim": 2, "hidden": (4,), "epochs": 3, "batch_size": 64, "random_state": 0}
    ours = PHVAE(**settings).fit(x, sample_weight=weights, covariates=c)
    theirs = PHVAE(**settings).fit(x.iloc[copies], covariates=c.iloc[copies])
    assert ours.covariates_.columns[1].levels == tuple(REGIONS)
    kept = c.assign(region=c["region"].replace("nowhere", "west"))
    assert ours.score(x, sample_weight=weights, covariates=kept) == pytest.approx(
        theirs.score(x.iloc[copies], covariates=kept.iloc[copies]), rel=1e-6
    )


@pytest.mark.parametrize("kind", ["polars", "arrow", "array"])
def test_every_kind_of_table_may_bring_covariates(kind):
    x, c = claims(60, 3)
    frame = KINDS[kind]({name: list(column) for name, column in c.items()})
    values = x.to_numpy() if kind == "array" else KINDS[kind](x.to_dict("list"))
    settings = {"n_phases": 2, "hidden": (4,), "epochs": 3, "random_state": 0}
    model = PHVAE(**settings).fit(values, covariates=frame)
    reference = PHVAE(**settings).fit(x, covariates=c)
    np.testing.assert_array_equal(
        model.score_samples(values, covariates=frame), reference.score_samples(x, covariates=c)
    )
    assert len(model.sample(covariates=frame, random_state=0)) == 60


def test_covariates_go_with_censored_truncated_and_missing_cells():
    x, c = pairs(60, 9)
    x.iloc[:5, 1] = np.nan
    beside = {"censored": {"loss": x["loss"] > 2}, "entry": {"loss": 0.001}}
    settings = {"n_phases": 2, "latent_dim": 2, "hidden": (4,), "epochs": 3, "random_state": 0, "missing": "model"}
    model = PHVAE(**settings).fit(x, covariates=c, **beside)
    row = {"size": 1.5, "region": "west"}
    same = pd.DataFrame([row] * len(x))
    np.testing.assert_allclose(
        model.at(row).score_samples(x, **beside),
        model.score_samples(x, covariates=same, **beside),
        rtol=1e-2,
        atol=1e-2,
    )
    assert len(model.sample(covariates=c, random_state=0).dropna()) == 60


def test_signed_columns_take_covariates():
    x, c = claims(120, 10)
    x["loss"] -= 1.0
    model = PHVAE(n_phases=2, support="real", hidden=(4,), epochs=3, random_state=0).fit(x, covariates=c)
    given = model.at({"size": 1.0, "region": "north"})
    same = pd.DataFrame({"size": 1.0, "region": ["north"] * len(x)})
    np.testing.assert_allclose(given.score_samples(x), model.score_samples(x, covariates=same), rtol=1e-4, atol=1e-4)
    low, high = given.quantile("loss", [0.05, 0.95])["value"]
    assert low < 0 < high


def test_tails_that_bend_take_covariates():
    x, c = claims(120, 4)
    model = PHVAE(n_phases=1, tail="pareto", hidden=(4,), epochs=3, random_state=0).fit(x, covariates=c)
    given = model.at({"size": 1.0, "region": "north"})
    assert given.quantile("loss", 0.9)["value"][0] > 0
    with pytest.raises(ValueError, match="tail index"):
        given.tail_index("loss")


def test_covariates_in_the_wrong_place_are_one_sentence(joint):
    x, c = pairs(5)
    plain = PHVAE(n_phases=2, epochs=0, random_state=0).fit(pairs(50)[0])
    for ask, message in (
        (lambda: joint.score(x), "covariates = None, and this model has 'size', 'region'; give a table of them with a"),
        (lambda: joint.transform(x), "covariates = None, and this model has 'size', 'region'; give a table"),
        (lambda: joint.sample(5), "this model has the covariates 'size', 'region'; give covariates=, or ask the model"),
        (lambda: joint.sf("loss", 1.0), "this model has the covariates 'size', 'region'; give covariates=, or ask"),
        (lambda: joint.phase_type("loss"), "this model has the covariates 'size', 'region'; give covariates=, or ask"),
        (lambda: joint.score(x, covariates=c[:3]), "covariates has 3 rows and X 5; give one row of covariates for"),
        (lambda: joint.at({"size": 1.0, "region": "east"}), "covariate 'region', row 0 is 'east', a level the fit has"),
        (lambda: joint.at({"size": 1.0}), "covariates have no column 'region'; give those of the fit"),
        (lambda: joint.at(c), "covariates has 5 rows; give one, such as a dict from name to value"),
        (lambda: joint.sample(covariates=c, splice="gpd"), "splice = 'gpd' is not for rows with covariates; leave it"),
        (lambda: plain.score(x, covariates=c), "covariates: this model was fitted without any; leave them out, or fit"),
        (lambda: plain.at({"size": 1.0}), "covariates: this model was fitted without any; leave them out, or fit with"),
        (
            lambda: PHVAE().fit(x, covariates=x),
            "column 'loss' is in X and in covariates: it is modelled or given; take",
        ),
        (lambda: PHVAE().fit(x, covariates=c[:3]), "covariates has 3 rows and X 5; give one row of covariates for"),
        (lambda: joint.at({"size": 1.0, "region": "west"}).sf("loss", 1.0, splice="gpd"), 'splice = "gpd": this model'),
    ):
        with pytest.raises(ValueError, match=r"covariate|splice") as caught:
            ask()
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)


def test_a_level_never_seen_names_the_row_of_the_table(joint):
    x, c = pairs(5)
    c.loc[2, "region"] = "east"
    with pytest.raises(DataError) as caught:
        joint.score(x, covariates=c)
    assert caught.value.row == 2
    assert "'east', a level the fit has not seen; give one of 'north', 'south', 'west'" in str(caught.value)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table as CSV and as Parquet, and a model of the one with covariates made by the command line."""
    folder = tmp_path_factory.mktemp("covariates")
    x, c = claims(120, 8)
    frame = pd.concat((x, c.assign(tier=np.arange(120) % 3, day="2024-05-01")), axis=1)
    frame.to_csv(folder / "claims.csv", index=False)
    frame.to_parquet(folder / "claims.parquet")
    options = ["--columns", "loss", "--n-phases", "2", "--hidden", "4", "--epochs", "3", "--seed", "0"]
    options += ["--covariates", "size,region,tier", "--levels", "tier"]
    for kind in ("csv", "parquet"):
        arguments = ["fit", f"{folder}/claims.{kind}", *options, "-q", "-o", f"{folder}/{kind}.phvae"]
        assert run(arguments) == 0
    return folder


def test_the_command_line_fits_and_evaluates_what_python_does(files, capsys):
    frame = pd.read_csv(files / "claims.csv")
    c = frame[["size", "region", "tier"]].astype({"tier": str})
    settings = {"n_phases": 2, "hidden": (4,), "epochs": 3, "random_state": 0}
    ours = PHVAE(**settings).fit(frame[["loss"]], covariates=c)
    for kind in ("csv", "parquet"):
        model = PHVAE.load(files / f"{kind}.phvae")
        assert model.covariates_.columns == ours.covariates_.columns
        assert run(["evaluate", f"{files}/{kind}.phvae", f"{files}/claims.parquet", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["mean_log_likelihood"]
        assert found == pytest.approx(ours.score(frame[["loss"]], covariates=c), rel=1e-9)


def test_the_command_line_samples_given_a_table_and_given_a_row(files, capsys):
    model = PHVAE.load(files / "csv.phvae")
    frame = pd.read_csv(files / "claims.csv").astype({"tier": str})
    out = f"{files}/sample.csv"
    assert (
        run(["sample", f"{files}/csv.phvae", "--covariates-from", f"{files}/claims.csv", "--seed", "3", "-o", out]) == 0
    )
    drawn = model.sample(random_state=3, covariates=frame).to_pandas()
    np.testing.assert_array_equal(pd.read_csv(out), drawn)
    row = {"size": 2.0, "region": "west", "tier": "1"}
    arguments = [f"{name}={value}" for name, value in row.items()]
    assert run(["at", f"{files}/csv.phvae", *arguments, "-o", f"{files}/west.phvae"]) == 0
    assert run(["sample", f"{files}/west.phvae", "-n", "20", "--seed", "3", "-o", out]) == 0
    np.testing.assert_array_equal(pd.read_csv(out), model.at(row).sample(20, 3).to_pandas())
    assert run(["info", f"{files}/csv.phvae"]) == 0
    assert "levels 'north', 'south', 'west'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["sample", "csv.phvae", "-n", "5"], "give --covariates-from, or put a row of them in with phvae at"),
     (["sample", "csv.phvae"], "--n-samples None; say how many rows to draw"),
     (["sample", "csv.phvae", "--covariates-from", "other.csv"],
      "other.csv: covariate 'region', line 3 is 'east', a level the fit has not seen; give one of 'north',"),
     (["evaluate", "csv.phvae", "gap.csv"], "gap.csv: covariate 'size', line 2 is missing; remove the row"),
     (["at", "csv.phvae", "region=north", "-o", "x"], "covariate 'size' is missing; give size=VALUE too"),
     (["at", "csv.phvae", "north", "-o", "x"], "'north' names no value; write name=value"),
     (["at", "csv.phvae", "colour=red", "-o", "x"], "colour=red: the model has no such covariate; give size, region"),
     (["fit", "claims.csv", "--covariates", "day", "-o", "x"], "covariate 'day' holds dates; turn it into numbers"),
     (["fit", "claims.csv", "--covariates", "loss", "--columns", "loss", "-o", "x"], "'loss' is a covariate and named"),
     (["fit", "claims.csv", "--levels", "tier", "-o", "x"], "--levels 'tier' is no covariate; name it in --covariates"),
     (["fit", "claims.parquet", "--covariates", "size", "--stream", "-o", "x"], "--stream reads values alone; leave")],
)  # fmt: skip
def test_a_mistake_with_covariates_is_one_line_and_status_2(files, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(files)
    frame = pd.read_csv("claims.csv")[:2]
    frame.assign(region=["north", "east"]).to_csv("other.csv", index=False)
    frame.assign(size=[None, 1.0]).to_csv("gap.csv", index=False)
    assert run(arguments) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in said if "note:" not in line]) == 1
    assert message in said[-1]
