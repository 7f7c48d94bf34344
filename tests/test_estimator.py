"""`PHVAE` as a user meets it: what goes in comes out, the same seed gives the same numbers, units are only units."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone

import phvae.blocks
import phvae.estimator
from phvae import PHVAE, defaults
from phvae.settings import resolve
from phvae.tables import from_matrix, to_matrix

NAMES = ["building", "contents", "profits"]
QUICK = {"epochs": 3, "hidden": (16, 16), "n_phases": 4, "random_state": 0}


def losses(n=400, seed=0):
    """Three heavy-tailed columns: two that go together, one with exact zeros."""
    rng = np.random.default_rng(seed)
    common = rng.gamma(1.0, size=n)
    building = 1 + rng.exponential(size=n) / common
    contents = rng.exponential(size=n) / common
    profits = np.where(rng.random(n) < 0.6, 0.0, rng.pareto(2.4, n))
    return np.stack([building, contents, profits], 1)


@pytest.fixture(scope="module")
def model():
    return PHVAE(**QUICK).fit(pd.DataFrame(losses(), columns=NAMES))


MAKERS = {
    "numpy": lambda x: x,
    "pandas": lambda x: pd.DataFrame(x, columns=NAMES),
    "polars": lambda x: pl.DataFrame(x, schema=NAMES),
    "pyarrow": lambda x: pa.table(dict(zip(NAMES, x.T, strict=True))),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_of_table_goes_in_and_comes_out(kind, model):
    table, frame = MAKERS[kind](losses()), pd.DataFrame(losses(), columns=NAMES)
    fitted = PHVAE(**QUICK).fit(table)
    sample = fitted.sample(7, random_state=1)
    assert type(sample) is type(table)
    np.testing.assert_array_equal(np.asarray(sample), model.sample(7, random_state=1))
    np.testing.assert_array_equal(fitted.score_samples(table), model.score_samples(frame))
    if kind != "numpy":
        assert list(fitted.feature_names_in_) == NAMES
        assert to_matrix(sample).names == NAMES
    latent = fitted.transform(table)
    assert latent.shape == (400, 6)
    z = from_matrix(latent, list(fitted.get_feature_names_out()), kind)
    assert type(fitted.inverse_transform(z)) is type(table)


def test_a_sample_does_not_depend_on_how_many_rows_are_asked_for(model, monkeypatch):
    monkeypatch.setattr(phvae.blocks, "BLOCK", 64)
    longest = model.sample(1000, random_state=3).to_numpy()
    for n in (1, 63, 64, 65, 500):
        np.testing.assert_array_equal(model.sample(n, random_state=3).to_numpy(), longest[:n])


def test_a_sample_does_not_depend_on_the_number_of_threads(model):
    threads = torch.get_num_threads()
    try:
        samples = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            samples.append(model.sample(10_000, random_state=3).to_numpy())
    finally:
        torch.set_num_threads(threads)
    for sample in samples[1:]:
        np.testing.assert_array_equal(sample, samples[0])


def test_samples_without_a_seed_differ_and_blocks_are_not_repeated(model):
    assert not model.sample(3).equals(model.sample(3))
    sample = model.sample(2 * phvae.estimator.BLOCK, random_state=0).to_numpy()
    assert len(np.unique(sample[:, 0])) == len(sample)


def test_sampled_columns_follow_the_law_that_scores_them():
    """Kolmogorov distance of 20,000 draws of one column from its own law stays below the 1e-6 quantile."""
    one = PHVAE(n_phases=5, random_state=0).fit(losses()[:, :1])
    draws = one.sample(20_000, random_state=0)[:, 0]
    levels = one.phase_type(0).cdf(torch.from_numpy(np.sort(draws) - one.scaler_.origin_[0])).numpy()
    distance = np.abs(levels - (np.arange(20_000) + 0.5) / 20_000).max()
    assert distance < np.sqrt(np.log(2 / 1e-6) / 2 / 20_000)


def test_the_share_of_sampled_zeros_is_that_of_the_data(model):
    share = (model.sample(20_000, random_state=0)["profits"] == 0).mean()
    observed = (losses()[:, 2] == 0).mean()
    assert model.scaler_.zero_share_.tolist() == [0, 0, observed]
    assert abs(share - observed) < 0.05  # the network is free to move it with z; three epochs move it little


def test_fit_is_deterministic_for_a_seed_and_leaves_global_generators_alone():
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, second = (PHVAE(**QUICK).fit(losses()) for _ in range(2))
    other = PHVAE(**{**QUICK, "random_state": 1}).fit(losses())
    for name, value in first.vae_.state_dict().items():
        assert torch.equal(value, second.vae_.state_dict()[name])
    assert first.score(losses()) == second.score(losses()) != other.score(losses())
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])


def test_a_seed_may_come_from_numpy_generators():
    for source in (np.random.RandomState, np.random.default_rng):
        first, second = (PHVAE(**{**QUICK, "random_state": source(5)}).fit(losses()) for _ in range(2))
        assert first.settings_["seed"] == second.settings_["seed"]
    fresh = {PHVAE(**{**QUICK, "random_state": None}).fit(losses()).settings_["seed"] for _ in range(3)}
    assert len(fresh) == 3


@pytest.mark.parametrize("columns", [[0], [0, 1, 2]])
@pytest.mark.parametrize("factor", [1e-6, 1e9, 1 / 3])
def test_the_unit_of_measurement_makes_no_difference(columns, factor):
    x = losses()[:, columns]
    reference, scaled = PHVAE(**QUICK).fit(x), PHVAE(**QUICK).fit(factor * x)
    z = np.linspace(-1, 1, reference.settings_["latent_dim"])
    levels = torch.tensor([0.5, 1e-3, 1e-9])
    for column in range(len(columns)):
        expected = reference.phase_type(column, z).isf(levels)
        found = scaled.phase_type(column, z).isf(levels) / factor
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(scaled.scaler_.origin_ / factor, reference.scaler_.origin_, rtol=1e-12)
    np.testing.assert_allclose(scaled.sample(100, 0) / factor, reference.sample(100, 0), rtol=1e-9)
    densities = len(columns) - (x == 0).sum(1)
    shift = -np.log(factor) * densities
    np.testing.assert_allclose(scaled.score_samples(factor * x) - shift, reference.score_samples(x), atol=1e-8)
    for ours, theirs in zip(scaled.history_, reference.history_, strict=True):
        assert ours.elbo - shift.mean() == pytest.approx(theirs.elbo, abs=1e-9)


def test_history_is_in_the_users_units():
    """Training moves nothing at a step size of almost zero, so the bound must be that of the finished model."""
    records = []
    options = {**QUICK, "learning_rate": 1e-12, "validation_fraction": 0.25}
    model = PHVAE(**options).fit(1000 * losses(), callback=records.append)
    assert records == list(model.history_)
    record = records[-1]
    with torch.no_grad():
        noise = torch.Generator().manual_seed(0)
        bound = model.vae_.elbo(torch.from_numpy(1000 * losses()), generator=noise, n_samples=50)
    recorded = record.elbo * 0.75 + record.validation_elbo * 0.25
    # 400 rows, one draw of z each, whose spread is below 1 nat: three standard errors
    assert recorded == pytest.approx(float(bound.mean()), abs=3 / np.sqrt(400))


def test_scores_are_log_densities(model):
    """The density of one column integrates to one, and an exact zero has the probability of its atom."""
    one = PHVAE(n_phases=5, random_state=0).fit(losses()[:, 2:])
    x = np.concatenate([[0.0], np.geomspace(1e-8, 1e6, 20_001)])
    density = np.exp(one.score_samples(x[:, None]))
    assert density[0] == pytest.approx(one.scaler_.zero_share_[0], rel=1e-6)
    above = x[1:] > one.scaler_.origin_[0]
    total = np.trapezoid((x[1:] * density[1:])[above], np.log(x[1:][above]))
    assert total == pytest.approx(1 - density[0], abs=1e-4)  # trapezoid on a grid of 1.6e-3 in log x
    frame = pd.DataFrame(losses(), columns=NAMES)
    assert model.score(frame) == pytest.approx(model.score_samples(frame).mean())


def test_the_importance_weighted_score_is_above_the_bound_and_settles(model):
    frame = pd.DataFrame(losses(), columns=NAMES)
    with torch.no_grad():
        noise = torch.Generator().manual_seed(0)
        bound = float(model.vae_.elbo(torch.from_numpy(losses()), generator=noise, n_samples=100).mean())
    few, many = (clone_with(model, n_importance=n).score(frame) for n in (64, 1024))
    assert bound - 0.01 < few
    assert few == pytest.approx(many, abs=0.05)


def clone_with(model, **changes):
    copy = clone(model).set_params(**changes)
    copy.__dict__ |= {name: value for name, value in vars(model).items() if name.endswith("_") or name[0] == "_"}
    return copy


def test_a_row_below_an_origin_has_probability_zero_and_says_so(model):
    frame = pd.DataFrame({"building": [0.5, 2.0], "contents": [1.0, 1.0], "profits": [0.0, 1.0]})
    with pytest.warns(UserWarning, match=r"^1 of 2 rows lie below the origin [\d.]+ of column 'building' .* origin=0"):
        scores = model.score_samples(frame)
    assert scores[0] == -np.inf
    assert np.isfinite(scores[1])


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"its folder does not exist; make it .*none/x\.phvae"):
        model.save(tmp_path / "none" / "x.phvae")
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file"):
        model.save(tmp_path)


def test_the_scaler_shows_its_numbers(model):
    assert repr(model.scaler_).startswith("PositiveScaler(origin_=[")


def test_scores_of_a_row_do_not_depend_on_its_neighbours(model):
    frame = pd.DataFrame(losses(), columns=NAMES)
    together = model.score_samples(frame)
    apart = np.concatenate([model.score_samples(frame[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(together[:20], apart, rtol=1e-12)


def test_inverse_transform_gives_the_expected_row(model):
    z = np.array([[0.3, -0.2, 0.1, 0.0, 0.5, -1.0]])
    means = [float(model.phase_type(name, z[0]).mean) for name in NAMES]
    row = model.inverse_transform(z)[0]
    np.testing.assert_allclose(row[:2], np.array(means[:2]) + model.scaler_.origin_[:2], rtol=1e-12)
    with torch.no_grad():
        zero = model.vae_.decoder(torch.from_numpy(z).float()).base_dist.log_zero[0, 2].exp()
    # the share of zeros is read from the float32 model, the row from the same in float64
    assert row[2] == pytest.approx(float(1 - zero) * (means[2] + model.scaler_.origin_[2]), rel=1e-5)


def test_phase_type_is_the_chain_of_a_column(model):
    law = model.phase_type("contents", np.zeros((5, 6)))
    assert law.batch_shape == (5,)
    assert law.rates.shape == (5, 4)
    # one row and five rows may take different ways through a matrix product
    np.testing.assert_allclose(model.phase_type("contents").rates, law.rates[0], rtol=1e-13)
    np.testing.assert_array_equal(model.phase_type(1).rates, model.phase_type("contents").rates)


def test_settings_adapt_to_the_data_and_are_reported():
    x = losses(1200)
    model = PHVAE(n_phases=3, epochs=1, random_state=0).fit(x)
    automatic = defaults.for_size(1200, 3, epochs=1)
    for name in ("latent_dim", "prior", "batch_size", "learning_rate", "kl_warmup", "validation_fraction", "patience"):
        assert model.settings_[name] == automatic[name]
    assert model.settings_["n_rows"] == 1200
    assert len(model.settings_["smoothness"]) == 3
    assert "auto" not in map(str, model.settings_.values())
    assert model.history_[0].validation_elbo is not None
    assert PHVAE(random_state=0).fit(x[:, :1]).settings_["latent_dim"] == 0


def test_the_papers_configuration_is_one_call_away():
    model = PHVAE.paper(random_state=0, hidden=(8,)).fit(losses(64))
    assert {name: model.settings_[name] for name in ("n_phases", "beta", "epochs", "schedule", "prior")} == {
        "n_phases": 10,
        "beta": 1.0,
        "epochs": 13,
        "schedule": "step",
        "prior": "normal",
    }
    assert model.settings_["smoothness"] == [0.0, 0.0, 0.0]
    assert model.scaler_.origin_.tolist() == [0, 0, 0]
    rates = [record.learning_rate for record in model.history_]
    assert rates == pytest.approx([1e-3] * 10 + [1e-4] * 3)


def test_the_number_of_phases_can_be_chosen_by_held_out_likelihood(monkeypatch):
    monkeypatch.setattr(defaults, "PHASE_CHOICES", (1, 6))
    rng = np.random.default_rng(0)
    bumps = np.concatenate([rng.gamma(30, 1 / 30, 500), rng.gamma(30, 1, 500)])[:, None]
    chosen = PHVAE(n_phases="auto", random_state=0).fit(bumps)
    assert [m for m, _ in chosen.settings_["held_out"]] == [1, 6]
    assert chosen.settings_["n_phases"] == 6
    bounds = dict(chosen.settings_["held_out"])
    assert bounds[6] == pytest.approx(chosen.score(bumps), abs=0.2)  # held-out rows against all rows, same units
    given = PHVAE(n_phases=6, random_state=0).fit(bumps)
    assert chosen.score(bumps) == given.score(bumps)


def test_an_interrupted_fit_goes_on_to_the_same_model(tmp_path, monkeypatch):
    def stop(record):
        if record.epoch == 2:
            raise RuntimeError("power cut")

    monkeypatch.setattr(defaults, "CHECKPOINT_SECONDS", 0.0)
    place, options = tmp_path / "fit.checkpoint", {**QUICK, "smoothness": 0.01}
    with pytest.raises(RuntimeError, match="power cut"):
        PHVAE(**options).fit(losses(), checkpoint=place, callback=stop)
    whole, resumed = PHVAE(**options).fit(losses()), PHVAE(**options).fit(losses(), resume=place)
    for name, value in whole.vae_.state_dict().items():
        assert torch.equal(value, resumed.vae_.state_dict()[name])
    with pytest.raises(ValueError, match="was made on other rows; repeat that call, or start anew"):
        PHVAE(**options).fit(losses(seed=1), resume=place)
    with pytest.raises(ValueError, match=r"was made with beta = 1\.0, this call has 0\.5"):
        PHVAE(**{**options, "beta": 0.5}).fit(losses(), resume=place)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_phases": 0}, r"^n_phases = 0; give a whole number from 1 to 64, None or 'auto'$"),
        ({"n_phases": 65}, r"^n_phases = 65; give a whole number from 1 to 64"),
        ({"n_phases": 2.5}, r"^n_phases = 2\.5; give"),
        ({"latent_dim": -1}, r"^latent_dim = -1; give"),
        ({"hidden": 64}, r"^hidden = 64; give the widths of the layers"),
        ({"hidden": (64, 0)}, r"^hidden = \(64, 0\); give"),
        ({"prior": "flow"}, r"^prior = 'flow'; give 'normal' or 'mixture' or 'auto'$"),
        ({"start": "auto"}, r"^start = 'auto'; give 'fitted' or 'geometric'$"),
        ({"origin": -1}, r"^origin of column 'x0' is -1; give"),
        ({"smoothness": -0.1}, r"^smoothness = -0\.1; give a number of at least 0"),
        ({"beta": float("nan")}, r"^beta = nan; give"),
        ({"epochs": True}, r"^epochs = True; give"),
        ({"batch_size": 0}, r"^batch_size = 0; give"),
        ({"learning_rate": 0}, r"^learning_rate = 0; give a number above 0 or 'auto'$"),
        ({"schedule": "linear"}, r"^schedule = 'linear'; give 'cosine' or 'step'$"),
        ({"validation_fraction": 0.9}, r"^validation_fraction = 0\.9; give a share from 0 to 0\.5"),
        ({"device": "abacus"}, r"^device = 'abacus' is not available here; give 'auto' or 'cpu'$"),
        ({"random_state": -1}, r"^random_state = -1; give"),
        ({"random_state": "today"}, r"^random_state = 'today'; give"),
    ],
)
def test_a_mistaken_parameter_is_said_in_one_line(changes, message):
    with pytest.raises(ValueError, match=message):
        PHVAE(**changes).fit(losses(20))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (losses(1), r"one sample \(n_samples = 1\)"),
        (-losses(5), "^Negative values in data: column 'x0', row 0 is "),
        (np.where(np.arange(12).reshape(4, 3) == 7, np.nan, 1.5), r"^column 'x1', row 2 is missing \(NaN\); remove"),
        (np.where(np.arange(12).reshape(4, 3) == 7, np.inf, 1.5), r"^column 'x1', row 2 is inf; remove"),
        (np.ones((4, 3)), r"^column 'x0' is 1 in every row; .* drop it$"),
    ],
)
def test_mistaken_data_are_said_in_one_line(x, message):
    with pytest.raises(ValueError, match=message):
        PHVAE(**QUICK).fit(x)


def test_mistakes_after_the_fit_are_said_in_one_line(model):
    frame = pd.DataFrame(losses(5), columns=NAMES)
    with pytest.raises(ValueError, match=r"^Negative values in data: column 'contents', row 0"):
        model.score_samples(frame.assign(contents=-1.0))
    with pytest.raises(ValueError, match=r"^column = 'cellar': there is no such column; give one of \['building'"):
        model.phase_type("cellar")
    with pytest.raises(ValueError, match=r"^z has shape \(2,\); give vectors of length 6$"):
        model.phase_type("building", [0.0, 1.0])
    with pytest.raises(ValueError, match=r"^Z has 2 columns and the model 6 latent dimensions$"):
        model.inverse_transform(np.zeros((3, 2)))
    for n in (0, 2.5):
        with pytest.raises(ValueError, match=rf"^n_samples = {n}; give a whole number"):
            model.sample(n)


def test_columns_of_one_latent_dimension_or_none_work():
    x = losses(100)
    for latent_dim in (0, 1):
        model = PHVAE(**{**QUICK, "latent_dim": latent_dim}).fit(x)
        z = model.transform(x)
        assert z.shape == (100, latent_dim)
        assert model.inverse_transform(z).shape == x.shape
        assert list(model.get_feature_names_out()) == [f"phvae{i}" for i in range(latent_dim)]


def test_reversed_and_read_only_arrays_are_read():
    x = losses(50)
    backwards = PHVAE(**QUICK).fit(x[::-1])
    locked = x[::-1].copy()
    locked.flags.writeable = False
    assert PHVAE(**QUICK).fit(locked).score(locked) == backwards.score(x[::-1])


def test_every_constructor_argument_takes_its_default_from_one_place():
    parameters = PHVAE().get_params()
    for name in set(parameters) - {"random_state", "verbose"}:
        assert parameters[name] == getattr(defaults, name.upper())
    assert set(defaults.PAPER) <= set(parameters)
    resolve({**parameters, **defaults.PAPER}, 100, 2)
