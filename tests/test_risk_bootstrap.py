"""The bootstrap: resamples are those of their definition, refits are fits, and intervals come with their promises."""

import copy
import math
import subprocess

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from risk_models import model as latent_model
from scipy import stats
from signed_models import fit as signed_fit
from signed_models import returns

import phvae.risk
from phvae import PHVAE
from phvae.distributions import SeriesPhaseType
from phvae.observed import Cells
from phvae.observed_start import observed_columns
from phvae.risk import bootstrap, processes
from phvae.risk.intervals import METHODS, interval
from phvae.risk.refit import BY_COLUMN, FROM_START, TRAINED, refit_column, refits, resampled, way_of

N = 300


@pytest.fixture(scope="module")
def rows():
    """Two columns; the second is exactly zero in three of ten rows."""
    rng = np.random.default_rng(0)
    x = 1 + rng.pareto(2.4, (N, 2))
    x[rng.random(N) < 0.3, 1] = 0.0
    return x


@pytest.fixture(scope="module")
def one(rows):
    """A model of one column."""
    return PHVAE(n_phases=4, random_state=1).fit(rows[:, :1])


@pytest.fixture(scope="module")
def columns(rows):
    """Independent columns, one of them with an atom."""
    return PHVAE(n_phases=4, latent_dim=0, random_state=1).fit(rows)


@pytest.fixture(scope="module")
def networks(rows):
    """A model with a latent vector."""
    settings = {"n_phases": 3, "latent_dim": 2, "hidden": (8,), "epochs": 8, "batch_size": 50, "prior": "normal"}
    return PHVAE(**settings, random_state=1).fit(rows)


def same(first, second):
    """Whether two bootstraps hold the same numbers to the last bit."""
    pairs = zip(first.models, second.models, strict=True)
    return all(
        torch.equal(a, b)
        for one, other in pairs
        for a, b in zip(one.vae_.state_dict().values(), other.vae_.state_dict().values(), strict=True)
    )


def test_a_resample_draws_every_row_once_on_average_and_independently():
    counts = np.stack([np.bincount(resampled(20, 3, b), minlength=20) for b in range(4000)])
    assert bool((counts.sum(1) == 20).all())
    # counts are binomial: mean 1 and variance 0.95, six standard errors
    assert counts.mean(0) == pytest.approx(np.ones(20), abs=6 * math.sqrt(0.95 / 4000))
    # the fourth moment of such a count is 3.6: the deviation of a variance is below 1.6
    assert counts.var(0) == pytest.approx(0.95 * np.ones(20), abs=6 * 1.7 / math.sqrt(4000))


def test_a_resample_of_blocks_is_made_of_neighbours_on_a_circle():
    for b in range(50):
        drawn = resampled(30, 0, b, block_length=5)
        assert len(drawn) == 30
        assert bool((drawn.reshape(6, 5) == (drawn[::5, None] + np.arange(5)) % 30).all())


@pytest.mark.parametrize("block_length", [1, 4])
def test_a_row_of_weight_two_is_drawn_as_two_rows_would_be(block_length):
    weights = np.array([2.0, 1.0, 0.0, 3.0])
    twice = np.repeat(np.arange(4), weights.astype(int))
    for b in range(20):
        expected = twice[resampled(6, 5, b, block_length)]
        assert resampled(4, 5, b, block_length, weights).tolist() == expected.tolist()


def test_fractional_weights_are_drawn_in_proportion():
    weights = np.array([0.3, 1.9, 2.6, 5.2])
    drawn = np.concatenate([resampled(4, 1, b, weights=weights) for b in range(4000)])
    assert len(drawn) == 4000 * 10
    share = np.bincount(drawn, minlength=4) / len(drawn)
    p = weights / weights.sum()
    assert share == pytest.approx(p, abs=6 * math.sqrt(0.25 / len(drawn)))


def test_a_refit_to_the_rows_of_the_fit_is_the_fit(one, columns, rows):
    """What a fit has reached is where its refit to the same rows ends, to a small part of a standard error."""
    for model, x in ((one, rows[:, :1]), (columns, rows)):
        again = refits(model, x, {0: np.arange(N)}, 0, None, 0)[0]
        vae = copy.deepcopy(model.vae_)
        vae.load_state_dict(again.tensors)
        for j in range(x.shape[1]):
            level = x[:, j].max()
            z = torch.zeros(1, 0)
            was, now = (part.decoder.column(z, j).log_sf(level).item() for part in (model.vae_, vae))
            # the log survival at the largest value has a standard error of about 1
            assert now == pytest.approx(was, abs=0.1)


def test_a_refit_is_the_fit_of_the_resample(rows):
    """From where the fit of all rows stands a climb reaches the likelihood that one from the beginning does."""
    u = rows[:, 0] - 0.99
    law = PHVAE(n_phases=4, origin=0.99, random_state=0).fit(rows[:, :1])
    scale, smoothness = float(law.scaler_.scale_[0]), law.settings_["smoothness"][0]
    chain = law.phase_type(0)
    counts = np.bincount(resampled(N, 0, 7), minlength=N)
    initial, rates = refit_column(u / scale, counts[None], chain.initial, chain.rates * scale, smoothness)
    cold = PHVAE(n_phases=4, origin=0.99, smoothness=smoothness, random_state=0)
    cold.fit(rows[:, :1], sample_weight=counts.astype(float))
    ours = float((torch.from_numpy(counts) * SeriesPhaseType(initial[0], rates[0] / scale).log_prob(u)).sum())
    theirs = float((torch.from_numpy(counts) * cold.phase_type(0).log_prob(u)).sum())
    # each may stand on a hill of its own and with a smoothness of its own: half a unit is one standard error
    assert ours == pytest.approx(theirs, abs=0.5)


@pytest.mark.parametrize("which", ["one", "networks"])
def test_the_result_follows_from_the_seed(which, rows, request):
    model = request.getfixturevalue(which)
    x = rows[:, : model.n_features_in_]
    first = bootstrap(model, x, 2, processes=1)
    assert len(first.models) == 2
    assert same(first, bootstrap(model, x, 2, processes=1))
    assert not same(first, bootstrap(model, x, 2, random_state=9, processes=1))


@pytest.mark.parametrize(("which", "n"), [("one", 20), ("networks", 3)])
def test_the_number_of_processes_changes_nothing(which, n, rows, request, monkeypatch):
    """Two processes; one of those of the networks is real, and the others are their work done here."""
    model = request.getfixturevalue(which)
    x = rows[:, : model.n_features_in_]
    run, asked = processes._run, []

    def half(content):
        asked.append(content)
        return run(content) if which == "networks" and len(asked) == 1 else processes._answer(content)

    monkeypatch.setattr(processes, "_run", half)
    alone = bootstrap(model, x, n, processes=1)
    assert asked == []
    assert same(alone, bootstrap(model, x, n, processes=2))
    assert len(asked) == 2


def test_columns_are_fitted_in_groups_that_do_not_depend_on_who_fits_them(columns, rows):
    drawn = {b: resampled(N, 1, b) for b in range(20)}
    together = refits(columns, rows, drawn, 0, None, 0)
    first, last = ({b: drawn[b] for b in part} for part in (range(16), range(16, 20)))
    apart = refits(columns, rows, first, 0, None, 0) | refits(columns, rows, last, 0, None, 0)
    for b in range(20):
        for name, value in together[b].tensors.items():
            assert torch.equal(value, apart[b].tensors[name])


def test_ways_of_fitting_again(one, columns, networks, rows):
    assert [way_of(model) for model in (one, columns, networks, latent_model())] == [
        BY_COLUMN, BY_COLUMN, TRAINED, FROM_START,
    ]  # fmt: skip
    assert way_of(PHVAE(n_phases=2, tail="weibull", random_state=0).fit(rows[:, :1])) == FROM_START


def test_shares_of_zeros_and_largest_values_are_those_of_the_resample(columns, rows):
    found = bootstrap(columns, rows, 20)
    for b, again in enumerate(found.models):
        drawn = rows[resampled(N, columns.settings_["seed"], b)]
        assert again.sf(1, 0.0)["value"][0] == pytest.approx((drawn[:, 1] > 0).mean(), rel=1e-6)
        assert [record.largest for record in again.tail_record_.columns] == drawn.max(0).tolist()
        assert again.scaler_.zero_share_.tolist() == [0.0, (drawn[:, 1] == 0).mean()]
    # and the interval of the share is the binomial one, whose width 200 resamples know to a fifth at six deviations
    answer = bootstrap(columns, rows, 200).interval(lambda m: m.sf(1, 0.0))[0]
    share = (rows[:, 1] > 0).mean()
    assert answer["standard_error"] == pytest.approx(math.sqrt(share * (1 - share) / N), rel=6 / math.sqrt(400))
    assert answer["low"] < share < answer["high"]


def test_weights_are_those_of_the_fit_and_integers_are_copies(rows):
    weights = np.tile([1.0, 2.0, 0.0], N // 3)
    copies = np.repeat(np.arange(N), weights.astype(int))
    x = rows[:, :1]
    weighted = PHVAE(n_phases=3, random_state=0).fit(x, sample_weight=weights)
    repeated = PHVAE(n_phases=3, random_state=0).fit(x[copies])
    first = bootstrap(weighted, x, 40, sample_weight=weights).interval(lambda m: m.quantile(0, 0.99))
    second = bootstrap(repeated, x[copies], 40).interval(lambda m: m.quantile(0, 0.99))
    assert first["value"] == pytest.approx(second["value"], rel=1e-3)
    # the acceleration looks at rows: copies of one are groups of their own
    assert first["standard_error"] == pytest.approx(second["standard_error"], rel=1e-2)
    with pytest.raises(ValueError, match="X is not what the model was fitted to"):
        bootstrap(weighted, x, 8)


def test_blocks_widen_the_interval_of_dependent_rows():
    rng = np.random.default_rng(2)
    x = np.repeat(rng.exponential(1.0, (60, 1)), 10, axis=0) * rng.uniform(0.99, 1.01, (600, 1))
    model = PHVAE(n_phases=2, random_state=0).fit(x)
    errors = [
        bootstrap(model, x, 60, block_length=length).interval(lambda m: m.mean())["standard_error"][0]
        for length in (1, 60)
    ]
    # ten rows in a row are one: the error is larger by the root of ten, and 60 resamples know each to a tenth
    assert 2 < errors[1] / errors[0] < 5


def test_an_interval_is_the_frame_of_the_answer_with_the_error_of_the_fit(rows):
    frames = (pd.DataFrame(rows, columns=["a", "b"]), pl.DataFrame(rows, schema=["a", "b"]))
    found = []
    for frame in frames:
        model = PHVAE(n_phases=3, latent_dim=0, random_state=0).fit(frame)
        own = model.quantile(None, [0.9, 0.99])
        answer = bootstrap(model, frame, 40).interval(lambda m: m.quantile(None, [0.9, 0.99]))
        assert type(answer) is type(own)
        assert list(answer.columns) == list(own.columns)
        for name in ("column", "level", "value", "extrapolated"):
            assert list(answer[name]) == list(own[name])
        assert bool((answer["standard_error"].to_numpy() > 0).all())
        assert bool((answer["low"].to_numpy() < answer["high"].to_numpy()).all())
        found.append(answer["low"].to_numpy())
    assert found[0].tolist() == found[1].tolist()


def test_any_number_or_array_is_a_measure_and_a_spliced_tail_is_fitted_again(one, rows):
    found = bootstrap(one, rows[:, :1], 40)
    ratio = found.interval(lambda m: m.cvar(0.99)["value"][0] / m.var(0.99)["value"][0])
    assert ratio.low < ratio.value < ratio.high
    assert found.interval(lambda m: m.sample(10, random_state=0)).value.shape == (10, 1)
    far = found.interval(lambda m: m.quantile(0, [0.9, 0.9999], splice="gpd"))
    own = found.interval(lambda m: m.quantile(0, [0.9, 0.9999]))
    # the shape of the tail is uncertain as well
    assert far["standard_error"][1] > own["standard_error"][1]


def test_networks_that_are_trained_on_move_as_their_rows_do(networks, rows):
    """The mean of a column in a refit follows the mean of the resample: a fit follows its rows."""
    found = bootstrap(networks, rows, 10, processes=1)
    means = np.array([model.mean(0)["value"][0] for model in found.models])
    drawn = np.array([rows[resampled(N, networks.settings_["seed"], b), 0].mean() for b in range(10)])
    assert np.corrcoef(means, drawn)[0, 1] > 0.5
    assert networks.settings_ == found.models[0].settings_
    # parts are put back in the user's units
    assert found.models[0].scaler_.origin_.tolist() == networks.scaler_.origin_.tolist()


def test_other_tails_are_fitted_again_from_the_start(rows):
    x = rows[:100, :1]
    model = PHVAE(n_phases=1, tail="pareto", random_state=0).fit(x)
    found = bootstrap(model, x, 4, processes=1)
    index = [again.tail_index(0).estimate for again in found.models]
    assert len(set(index)) == 4
    assert bool(np.isfinite(index).all())


@pytest.mark.parametrize("method", METHODS)
def test_an_interval_of_a_normal_mean_covers_it_as_often_as_it_says(method):
    """1,000 samples of 50: coverage is 95% less about 1% for percentiles of so few rows, with an error of 0.7%."""
    rng = np.random.default_rng(4)
    hits = 0
    for _ in range(1000):
        x = rng.standard_normal(50)
        counts = rng.multinomial(50, np.full(50, 1 / 50), 200)
        found = interval(np.array(x.mean()), counts @ x / 50, method=method, counts=counts)
        hits += int(found.low <= 0 <= found.high)
    assert 0.89 < hits / 1000 < 0.975


def test_methods_are_those_of_their_definitions():
    again = np.random.default_rng(0).gamma(2.0, 1.0, 500)
    value = np.array(2.0)
    percentile = interval(value, again, method="percentile")
    low, high = np.quantile(again, [0.025, 0.975])
    assert (float(percentile.low), float(percentile.high)) == pytest.approx((low, high), rel=1e-12)
    basic = interval(value, again, method="basic")
    assert (float(basic.low), float(basic.high)) == pytest.approx((4 - high, 4 - low))
    assert percentile.standard_error == pytest.approx(again.std(ddof=1))
    # at the median of the resamples there is no bias to correct
    corrected = interval(np.array(np.median(again)), again, method="bias-corrected")
    ends = float(corrected.low), float(corrected.high)
    assert ends == pytest.approx((float(percentile.low), float(percentile.high)), rel=1e-2)


@pytest.mark.parametrize("method", METHODS)
def test_a_measure_that_is_infinite_in_some_resamples_has_an_interval_up_to_infinity(method):
    again = np.append(np.arange(1.0, 95.0), [np.inf] * 6)
    counts = np.random.default_rng(0).multinomial(50, np.full(50, 1 / 50), 100)
    found = interval(np.array(50.0), again, method=method, counts=counts)
    assert found.standard_error == np.inf
    ends = (-np.inf, 96.5) if method == "basic" else (3.5, np.inf)
    assert (float(found.low), float(found.high)) == pytest.approx(ends, rel=0.2)
    with pytest.raises(ValueError, match="the measure is no number in 6 of 100 resamples"):
        interval(np.array(50.0), np.where(np.isinf(again), np.nan, again), method="percentile")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m, x: bootstrap(m, x, 1), "n = 1; give a whole number of at least 2"),
        (lambda m, x: bootstrap(m, x, block_length=0), "block_length = 0; give a whole number"),
        (lambda m, x: bootstrap(m, x, block_length=301), "block_length = 301 and X has 300 rows"),
        (lambda m, x: bootstrap(m, x, processes=0), "processes = 0; give a whole number"),
        (lambda m, x: bootstrap(m, x, epochs=0), "epochs = 0; give a whole number"),
        (lambda m, x: bootstrap(m, x[1:]), r"X is not what the model was fitted to \(299 rows given, 300 in the fit\)"),
        (lambda m, x: bootstrap(m, x, sample_weight=[1.0]), "sample_weight has shape"),
        (lambda m, x: bootstrap(m, x, random_state=-1), "random_state = -1"),
        (lambda m, x: bootstrap(m, x, 4).interval("q99"), "measure = 'q99'; give a function of a model"),
        (lambda m, x: bootstrap(m, x, 4).interval(lambda m: "q99"), "measure gives a str"),
        (lambda m, x: bootstrap(m, x, 4).interval(lambda m: m.mean(), level=1.0), "level = 1.0; give a confidence"),
        (lambda m, x: bootstrap(m, x, 4).interval(lambda m: m.mean()), "4 resamples are too few for level = 0.95"),
        (
            lambda m, x: bootstrap(m, x, 40).interval(lambda m: m.mean(), method="student"),
            "method = 'student'; give one of",
        ),
    ],
)
def test_bad_questions_are_one_clear_sentence(ask, message, one, rows):
    with pytest.raises(ValueError, match=message) as error:
        ask(one, rows[:, :1])
    assert "\n" not in str(error.value)


def test_a_column_with_few_values_cannot_be_resampled():
    x = np.random.default_rng(0).exponential(1.0, (200, 1))
    x[:-15] = 0.0
    model = PHVAE(n_phases=2, random_state=0).fit(x)
    with pytest.raises(ValueError, match="column 'x0' has 14 rows with another value than 0 and its most frequent one"):
        bootstrap(model, x)


# rows of which not everything is known


def observed(kind):
    """Exponential rows of which this much is known, as `PHVAE.fit` is told: arguments, and settings."""
    rng = np.random.default_rng(8)
    x = rng.exponential(2.0, (N, 2))
    first = np.arange(N)[:, None] < N / 2
    if kind == "weights":
        return {"X": x, "sample_weight": rng.integers(0, 4, N).astype(float)}, {}
    if kind == "gaps":
        return {"X": np.where(rng.random(x.shape) < 0.3, np.nan, x)}, {"missing": "model"}
    if kind == "censored":
        limit = np.where(first, 1.0, 3.0)
        return {"X": np.minimum(x, limit), "censored": x > limit}, {}
    if kind == "intervals":
        return {"X": x, "lower": np.floor(x), "upper": np.floor(x) + 1}, {}
    if kind == "counts":
        return {"X": np.rint(2 * x)}, {}
    if kind == "entry":
        seen = x[(x > 0.5).all(1)]
        return {"X": seen, "entry": np.full_like(seen, 0.5)}, {}
    if kind == "exit":
        seen = x[(x < 4).all(1)]
        return {"X": seen, "exit": np.full_like(seen, 4.0)}, {}
    assert kind == "zeros"
    x[rng.random(x.shape) < 0.2] = 0.0
    cut = (x > 3).astype(float)
    return {"X": np.minimum(x, 3), "censored": cut}, {}


KINDS = ("weights", "gaps", "censored", "intervals", "counts", "entry", "exit", "zeros")


def rows_of(told, rows):
    """The same of some rows, without weights: a resample has none."""
    return {name: part[rows] for name, part in told.items() if name != "sample_weight"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_refit_is_the_fit_to_all_that_is_known_of_the_rows_of_the_resample(kind):
    """With one phase the likelihood has one maximum: a refit from where the fit stands and a fit anew agree."""
    told, settings = observed(kind)
    settings |= {"n_phases": 1, "latent_dim": 0, "origin": 0, "random_state": 1}
    model = PHVAE(**settings).fit(**told)
    x, beside = told["X"], {name: part for name, part in told.items() if name != "X"}
    found = bootstrap(model, x, 3, **beside)
    for b, again in enumerate(found.models):
        drawn = resampled(len(x), 1, b, weights=told.get("sample_weight"))
        anew = PHVAE(**settings).fit(**rows_of(told, drawn))
        # climbs arrive within 1e-2 of the highest log-likelihood, and a standard error (a twelfth) is worth 1/2
        assert again.mean()["value"] == pytest.approx(anew.mean()["value"], rel=0.02)
        assert again.scaler_.zero_share_ == pytest.approx(anew.scaler_.zero_share_, abs=1e-12)
        assert [r.top.tolist() for r in again.tail_record_.columns] == [
            r.top.tolist() for r in anew.tail_record_.columns
        ]
    assert found.models[0].mean()["value"].tolist() != found.models[1].mean()["value"].tolist()


def test_a_mean_under_censoring_has_the_error_that_theory_gives_it():
    """Total time over events: its error is the mean over the root of the events, whatever was censored."""
    told, _ = observed("censored")
    x, cut = told["X"][:, :1], told["censored"][:, :1]
    model = PHVAE(n_phases=1, origin=0, random_state=0).fit(x, censored=cut)
    answer = bootstrap(model, x, 200, censored=cut).interval(lambda m: m.mean())[0]
    assert answer["value"] == pytest.approx(x.sum() / (~cut).sum(), rel=1e-3)
    assert answer["standard_error"] == pytest.approx(answer["value"] / math.sqrt((~cut).sum()), rel=6 / math.sqrt(400))


def test_thinned_cells_say_what_stands_for_each_row():
    rng = np.random.default_rng(0)
    x = rng.exponential(size=(6000, 1))
    for width in (0.1, rng.uniform(0.1, 0.2, (6000, 1))):
        upper = np.where(rng.random(x.shape) < 0.3, np.inf, x + width)
        entry = np.minimum(0.9 * x, rng.choice(np.linspace(0.001, 0.4, 30), x.shape)) if np.ndim(width) else None
        [column] = observed_columns(Cells(x, upper, entry))
        assert len(column.ends) < len(x)
        assert column.place.min() == 0
        # what stands for a row is its neighbour, of the same kind
        assert bool((np.isinf(upper[:, 0]) == np.isinf(column.ends[column.place, 1])).all())
        assert np.abs(column.ends[column.place, 0] - x[:, 0]).max() < 0.05 * x.max()
        assert column.masses(np.ones((1, 6000), np.int64))[0] == pytest.approx(column.sketch.weights)


@pytest.fixture(scope="module")
def conditional():
    """A model of two columns with covariates and censored cells, and what it was told."""
    rng = np.random.default_rng(3)
    size = rng.uniform(1, 4, N)
    x = size[:, None] * rng.exponential(1.0, (N, 2))
    use = np.where(rng.random(N) < 0.5, "home", "plant")
    beside = {"covariates": {"size": size, "use": use}, "censored": x > 5}
    settings = {"n_phases": 3, "latent_dim": 1, "hidden": (8,), "epochs": 12, "batch_size": 50, "prior": "normal"}
    x = np.minimum(x, 5)
    return PHVAE(**settings, random_state=2).fit(x, **beside), x, beside


def test_rows_are_drawn_with_their_covariates_and_the_model_of_a_row_is_a_measure(conditional):
    model, x, beside = conditional
    found = bootstrap(model, x, 40, **beside, epochs=1, processes=1)
    answer = found.interval(lambda m: m.at({"size": 2.0, "use": "home"}).quantile(0, 0.5))[0]
    # a refit moves by what its rows say: roughly the error of the median of the hundred rows around this one
    assert 0.02 < answer["standard_error"] / answer["value"] < 0.5
    assert answer["low"] < answer["value"] < answer["high"]
    assert found.models[0].covariates_ is model.covariates_
    assert found.models[0].settings_ == model.settings_


def test_processes_are_told_all_that_is_known_of_rows(conditional, monkeypatch):
    model, x, beside = conditional
    alone = bootstrap(model, x, 2, **beside, epochs=1, processes=1)
    monkeypatch.setattr(processes, "_run", processes._answer)
    assert same(alone, bootstrap(model, x, 2, **beside, epochs=1, processes=2))


@pytest.mark.parametrize("name", ["covariates", "censored"])
def test_rows_without_all_that_the_fit_was_told_are_not_its_rows(name, conditional):
    model, x, beside = conditional
    with pytest.raises(ValueError, match="give these, in their order, and what the fit had beside them"):
        bootstrap(model, x, **{key: part for key, part in beside.items() if key != name})


def test_other_tails_are_fitted_again_to_all_that_is_known(conditional):
    _, x, beside = conditional
    model = PHVAE(n_phases=1, tail="weibull", latent_dim=0, epochs=3, random_state=2).fit(x, **beside)
    assert way_of(model) == FROM_START
    found = bootstrap(model, x, 2, **beside, processes=1)
    medians = [again.at({"size": 2.0, "use": "home"}).quantile(0, 0.5)["value"][0] for again in found.models]
    assert len(set(medians)) == 2
    assert 0.3 < min(medians) < max(medians) < 5


def test_a_column_without_latent_vector_but_with_covariates_is_trained_on(conditional):
    _, x, beside = conditional
    model = PHVAE(n_phases=2, latent_dim=0, hidden=(4,), epochs=4, random_state=2).fit(x, **beside)
    assert way_of(model) == TRAINED
    found = bootstrap(model, x, 2, **beside, processes=1)
    assert not same(found, bootstrap(model, x, 2, **beside, random_state=9, processes=1))


def test_counts_of_few_values_are_resampled():
    x = np.random.default_rng(0).poisson(0.8, (N, 1)).astype(float)
    model = PHVAE(n_phases=2, random_state=0).fit(x)
    assert model.settings_["counts"] == [0]
    answer = bootstrap(model, x, 100).interval(lambda m: m.sf(0, 0.5))[0]
    share = (x > 0).mean()
    # the model may smooth a little over what the share alone would say
    assert answer["standard_error"] == pytest.approx(math.sqrt(share * (1 - share) / N), rel=0.5)


def test_an_error_names_the_resample(networks, rows):
    broken = copy.copy(networks)
    broken.settings_ = {**networks.settings_, "learning_rate": 1e30}
    with pytest.raises(ValueError, match="resample 0: epoch 1"):
        bootstrap(broken, rows, 2, processes=1)


@pytest.mark.parametrize(
    ("last", "error", "message"),
    [(b"ValueError: resample 3: no", ValueError, "^resample 3: no$"), (b"Killed", RuntimeError, "status 1: Killed")],
)
def test_an_error_in_a_process_is_that_of_the_caller(last, error, message, monkeypatch):
    answer = subprocess.CompletedProcess([], 1, b"", b"Traceback:\n  somewhere\n" + last)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    with pytest.raises(error, match=message):
        processes._run(b"")


def test_the_package_exports_what_it_tells_users_to_call():
    assert phvae.risk.bootstrap is bootstrap
    assert dir(phvae.risk) == ["Bootstrap", "bootstrap"]
    with pytest.raises(AttributeError, match="no attribute 'bootstraps'"):
        _ = phvae.risk.bootstraps


def test_resamples_of_a_mean_have_its_error():
    x = stats.expon.ppf((np.arange(400) + 0.5) / 400)[:, None]
    model = PHVAE(n_phases=1, random_state=0).fit(x)
    answer = bootstrap(model, x, 200).interval(lambda m: m.mean())[0]
    # one phase from a fixed origin: the fit is the mean, whose error is the deviation over the root of the rows
    assert answer["standard_error"] == pytest.approx(x.std() / 20, rel=6 / math.sqrt(400))


def test_a_model_of_signed_columns_is_fitted_anew_to_each_resample():
    x = pd.DataFrame(returns(), columns=["bond", "stock"])
    fitted = signed_fit(x, support={"bond": "real", "stock": "real"}, n_phases=2)
    again = bootstrap(fitted, x, n=40, processes=1, random_state=3)
    rows = resampled(len(x), 3, 0)
    own = again.models[0]
    drawn = x.to_numpy()[rows]
    assert own.settings_["loss_share"] == pytest.approx((drawn < 0).sum(0) / (drawn != 0).sum(0))
    assert own.tail_record_.losses[1].largest == -drawn[:, 1].min()
    assert own.scaler_.loss_share_.tolist() == own.settings_["loss_share"]
    # the mean of the resamples' means is that of the rows, but for what 40 of them miss it by
    answer = again.interval(lambda m: m.mean(tail="lower"))
    for name, mean, error in zip(x, answer["value"], answer["standard_error"], strict=True):
        assert error == pytest.approx(x[name].std() / math.sqrt(len(x)), rel=0.7)
        assert mean == pytest.approx(-x[name].mean(), abs=error)
    ends = again.interval(lambda m: m.sum(tail="lower").cvar(0.9))
    assert ends["low"][0] < ends["value"][0] < ends["high"][0]
    few = x.copy()
    losses = np.full((few["bond"] < 0).sum(), -0.01)
    losses[:7] *= np.arange(2, 9)
    few.loc[few["bond"] < 0, "bond"] = losses
    with pytest.raises(ValueError, match=r"^column 'bond' has 7 rows with another negative value than 0 and its most"):
        bootstrap(signed_fit(few, n_phases=2), few, n=40)


def test_losses_that_are_all_intervals_have_a_largest_value_in_each_resample():
    x = np.random.default_rng(0).standard_t(4, size=(120, 1))
    ends = {name: np.where(x < 0, share * x, np.nan) for name, share in (("lower", 1.5), ("upper", 0.5))}
    model = PHVAE(support="real", n_phases=2, epochs=0, latent_dim=0, random_state=0).fit(x, **ends)
    nearest = np.sort(-ends["upper"][x < 0])
    assert model.tail_record_.losses[0].largest == nearest[-1]
    for again in bootstrap(model, x, 2, random_state=0, **ends).models:
        assert again.tail_record_.losses[0].largest in nearest
        assert np.isfinite(again.var(0.99, tail="lower")["value"]).all()
