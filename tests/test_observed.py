"""Tables with gaps, censored cells, counts and bounds: laws that are recovered, and mistakes that are named."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize

from phvae import PHVAE
from phvae.cell_units import fit_scaler, log_volume, unit_free
from phvae.distributions import MatrixPareto, SeriesPhaseType
from phvae.layout import Layout
from phvae.observed import Cells, count_columns, read_cells
from phvae.observed_start import fit_cells
from phvae.transformed_start import fit_transformed

INF, NAN = math.inf, math.nan
LABELS = ["a", "b"]
# Below one in a million on both sides, for a normal estimate.
SIGMAS = 4.9


def exponential_fit(data):
    """One phase: the maximum likelihood rate of an exponential law."""
    return float(fit_cells(data, n_phases=1).rates)


def cells_of(x, **beside):
    return read_cells(x[:, None], ["x"], **beside)


def test_one_phase_under_censoring_is_events_over_exposure():
    rng = np.random.default_rng(0)
    time, until = rng.exponential(2.0, 500), rng.exponential(2.0, 500)
    seen = np.minimum(time, until)
    exact = (time <= until).sum() / seen.sum()
    # the climb stops where a step gains less than 0.01 nats: within sqrt(2 · 0.01) standard errors, 1 / sqrt(events)
    tolerance = math.sqrt(0.02 / (time <= until).sum())
    assert exponential_fit(cells_of(seen, censored=time > until)) == pytest.approx(exact, rel=tolerance)


def test_one_phase_under_left_truncation_is_one_over_the_mean_excess():
    rng = np.random.default_rng(1)
    loss, deductible = rng.exponential(2.0, 1000), rng.choice([0.0, 0.5, 3.0], 1000)
    seen = loss > deductible
    exact = 1 / (loss - deductible)[seen].mean()
    found = exponential_fit(cells_of(loss[seen], entry=deductible[seen]))
    assert found == pytest.approx(exact, rel=math.sqrt(0.02 / seen.sum()))


@pytest.mark.parametrize("kind", ["interval", "left", "right truncated", "counts"])
def test_the_rate_of_a_known_law_is_recovered_without_bias(kind):
    rng = np.random.default_rng(2)
    n, rate = 3000, 0.5
    x = rng.exponential(1 / rate, n)
    if kind == "interval":
        data = cells_of(x, lower=np.floor(x), upper=np.floor(x) + 1)
        information = 1 / (2 * (math.cosh(rate) - 1))
    elif kind == "left":
        limit = 1.0
        data = cells_of(np.maximum(x, limit), lower=np.where(x < limit, 0.0, NAN))
        tail = math.exp(-rate * limit)
        information = tail / rate**2 + limit**2 * tail**2 / (1 - tail)
    elif kind == "right truncated":
        limit = 6.0
        x = x[x <= limit]
        n = len(x)
        data = cells_of(x, exit=np.full(n, limit))
        information = 1 / rate**2 - limit**2 / (4 * math.sinh(rate * limit / 2) ** 2)
    else:
        data = cells_of(np.round(x), counts=[0])
        # not less than half of what the exact values tell
        information = 0.5 / rate**2
    error = 1 / math.sqrt(n * information)
    assert abs(exponential_fit(data) - rate) < SIGMAS * error + math.sqrt(0.02) * error


def test_the_start_law_of_values_is_the_one_of_intervals_around_them():
    rng = np.random.default_rng(3)
    x = np.sort(rng.gamma(2.0, 1.0, 300))
    narrow = fit_cells(Cells(x[:, None] - 1e-7, x[:, None] + 1e-7), n_phases=3)
    exact = fit_cells(Cells(x[:, None], x[:, None]), n_phases=3)
    levels = torch.tensor([0.1, 0.5, 0.9, 0.99], dtype=torch.float64)
    quantiles = [SeriesPhaseType(law.initial[0], law.rates[0]).icdf(levels) for law in (narrow, exact)]
    torch.testing.assert_close(*quantiles, rtol=1e-4, atol=0)


def test_many_intervals_of_many_widths_say_all_that_they_say():
    rng = np.random.default_rng(31)
    x = rng.exponential(2.0, 4000)
    low, high = np.maximum(x - rng.exponential(2.0, 4000), 0), x + rng.exponential(2.0, 4000)
    found = exponential_fit(cells_of(x, lower=low, upper=high))

    def log_likelihood(rate):
        return np.log(np.exp(-rate * low) - np.exp(-rate * high)).sum()

    best = optimize.minimize_scalar(lambda rate: -log_likelihood(rate), bounds=(0.1, 2.0), method="bounded")
    # more different cells than are kept one by one; the climb stops where a step gains less than 0.01 nats
    assert -best.fun - log_likelihood(found) < 0.02


@pytest.mark.parametrize("kind", ["censored", "truncated"])
def test_a_power_tail_is_recovered_from_what_is_seen_of_it(kind):
    rng = np.random.default_rng(13)
    x = rng.pareto(2.0, 4000)
    if kind == "censored":
        limit = rng.pareto(1.0, 4000)
        data, index_events = cells_of(np.minimum(x, limit), censored=x > limit), (x <= limit).sum()
    else:
        entry = rng.choice([0.0, 0.3, 1.0], 4000)
        data, index_events = cells_of(x[x > entry], entry=entry[x > entry]), (x > entry).sum()
    (fit,) = fit_transformed(data, MatrixPareto, 1)
    assert fit.tail_index_error > 0.9 / math.sqrt(index_events), "no less than with the scale known"
    assert abs(math.log(fit.tail_index / 0.5)) < SIGMAS * fit.tail_index_error


def test_quantiles_beyond_the_censoring_point_are_right_and_flagged():
    rng = np.random.default_rng(4)
    x = rng.exponential(1.0, 4000)
    limit = -math.log(0.6)  # 60 % of the values exceed it
    model = PHVAE(n_phases=1, origin=0, random_state=0).fit(
        np.minimum(x, limit)[:, None], censored=(x > limit)[:, None]
    )
    rows = model.quantile(0, [0.2, 0.9, 0.99])
    truth = -np.log([0.8, 0.1, 0.01])
    # one parameter, of which 40 % of the rows are events
    assert np.abs(rows["value"] / truth - 1).max() < (SIGMAS + math.sqrt(0.02)) / math.sqrt(1600)
    assert rows["extrapolated"].tolist() == [False, True, True]


def test_a_model_of_two_columns_scores_censored_and_truncated_rows_as_their_probability():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.exponential(1.0, (300, 2)) + 0.1, columns=LABELS)
    flags = pd.DataFrame({"b": frame["b"] > 1.0})
    model = PHVAE(n_phases=3, latent_dim=0, random_state=0, epochs=0, origin=0).fit(
        frame, censored=flags, entry={"a": 0.1}
    )
    laws = [model.phase_type(name) for name in LABELS]
    row = pd.DataFrame({"a": [0.5], "b": [2.0]})
    a, b = laws[0].log_prob(0.5), laws[1].log_sf(2.0)
    assert model.score_samples(row, censored={"b": True})[0] == pytest.approx(float(a + b), abs=1e-9)
    seen = laws[0].log_sf(0.2) + laws[1].log_sf(0.3)
    assert model.score_samples(row, entry=[[0.2, 0.3]])[0] == pytest.approx(
        float(a + laws[1].log_prob(2.0) - seen), abs=1e-9
    )
    both = laws[0].log_interval(0.4, 0.7) + laws[1].log_prob(2.0)
    assert model.score(row, lower={"a": 0.4}, upper={"a": 0.7}) == pytest.approx(float(both), abs=1e-9)


def test_a_plain_model_scores_what_it_has_not_seen_in_training():
    x = np.random.default_rng(6).exponential(1.0, (200, 2))
    model = PHVAE(n_phases=2, latent_dim=1, epochs=2, random_state=0, missing="model").fit(x)
    alone = model.score_samples([[NAN, NAN], [1.0, NAN]])
    assert alone[0] == pytest.approx(0.0, abs=0.2), "an importance weighted estimate of log 1"
    assert np.isfinite(alone).all()


def test_truncation_divides_by_the_probability_under_the_prior_not_given_z():
    rng = np.random.default_rng(7)
    x = rng.gamma(0.5, 1.0, (200, 1)) + rng.exponential(1.0, (200, 2)) + 0.2
    model = PHVAE(n_phases=3, latent_dim=2, epochs=3, random_state=0, origin=0).fit(x, entry=np.full((200, 2), 0.2))
    draws = model.sample(40_000, random_state=1)
    inside = (draws > 0.8).all(1)
    log_chance = math.log(inside.mean())
    difference = model.score_samples(x[:5]) - model.score_samples(np.maximum(x[:5], 0.8), entry=np.full((5, 2), 0.8))
    same = (x[:5] >= 0.8).all(1)
    error = math.sqrt((1 / inside.mean() - 1) / len(draws)) + math.sqrt((1 / inside.mean() - 1) / 2**13)
    assert same.any()
    assert np.abs(difference[same] - log_chance).max() < SIGMAS * error


def test_truncation_given_covariates_divides_by_the_probability_given_them():
    rng = np.random.default_rng(12)
    size = rng.choice([1.0, 3.0], 300)
    x = size[:, None] * rng.exponential(1.0, (300, 1)) + 0.2
    model = PHVAE(n_phases=2, latent_dim=0, epochs=3, random_state=0, origin=0)
    model = model.fit(x, covariates={"size": size}, entry=np.full((300, 1), 0.2))
    for given in (1.0, 3.0):
        held = {"covariates": {"size": [given]}}
        seen = model.score([[2.0]], entry=[[0.7]], **held)
        assert model.score([[2.0]], **held) - seen == pytest.approx(
            float(model.at({"size": given}).phase_type(0).log_sf(0.7)), abs=1e-5
        )


def test_counts_come_out_whole_and_with_the_right_shares():
    rng = np.random.default_rng(8)
    k = rng.geometric(0.4, 3000) - 1.0
    model = PHVAE(n_phases=4, random_state=0).fit(k[:, None])
    assert model.settings_["counts"] == [0]
    draws = model.sample(20_000, random_state=1)
    assert (draws == np.round(draws)).all()
    assert (draws >= 0).all()
    scores = model.score_samples(np.arange(60.0)[:, None])
    assert np.exp(scores).sum() == pytest.approx(1.0, abs=1e-6), "probabilities of the whole numbers"
    for value in range(3):
        share, chance = (draws == value).mean(), math.exp(scores[value])
        assert abs(share - chance) < SIGMAS * math.sqrt(chance / len(draws))


def test_conditions_on_counts_are_met_by_whole_numbers():
    rng = np.random.default_rng(14)
    table = np.column_stack((rng.geometric(0.3, 500) - 1.0, rng.exponential(1.0, 500)))
    model = PHVAE(n_phases=3, latent_dim=1, epochs=1, random_state=0).fit(table)
    for given, least, most in (((">", 2), 3, INF), (("<", 2), 0, 1)):
        found = model.conditional_sample(500, {"x0": given}, random_state=0)
        k = found.rows[:, 0]
        assert (k % 1 == 0).all()
        assert (k.min(), min(k.max(), most)) == (least, most if most < INF else k.max())
        free = model.sample(40_000, random_state=1)[:, 0]
        share = ((free >= least) & (free <= most)).mean()
        assert abs(found.probability - share) < SIGMAS * (math.sqrt(share / 40_000) + found.standard_error)


def test_cells_missing_at_random_are_recovered_where_complete_rows_mislead():
    rng = np.random.default_rng(15)
    x = (rng.gamma(1.0, 1.0, 2000)[:, None] + 0.1) * rng.gamma(3.0, 1 / 3, (2000, 2))
    gone = x.copy()
    # where the first is large, the second is seldom known
    gone[rng.random(2000) < np.where(x[:, 0] > 1.0, 0.7, 0.1), 1] = NAN
    short = {"n_phases": 6, "latent_dim": 1, "hidden": (16,), "prior": "normal", "epochs": 15, "batch_size": 64}
    model = PHVAE(**short, learning_rate=1e-2, validation_fraction=0, random_state=0, missing="model").fit(gone)
    truth, known = x[:, 1].mean(), np.nanmean(gone[:, 1])
    # the error of a mean of so many rows is below two thirds of what complete rows are wrong by
    error = SIGMAS * x[:, 1].std() / math.sqrt(2000)
    assert truth - known > 1.5 * error
    assert abs(model.impute(gone, random_state=0)[:, 1].mean() - truth) < error
    assert abs(model.sample(20_000, random_state=0)[:, 1].mean() - truth) < error


def test_whole_numbers_are_counts_by_themselves_only_where_they_are_small():
    rng = np.random.default_rng(9)
    small, large = rng.poisson(3, 200).astype(float), rng.integers(200, 900, 200).astype(float)
    values = np.column_stack((small, large, rng.exponential(1.0, 200)))
    names = ["small", "large", "real"]
    assert count_columns("auto", values, names) == [0]
    assert count_columns(["large"], values, names) == [1]
    assert count_columns(None, values, names) == []
    with pytest.raises(ValueError, match="counts names column 'other'"):
        count_columns(["other"], values, names)


def test_gaps_are_trained_on_and_sampling_has_none():
    rng = np.random.default_rng(10)
    x = rng.exponential(1.0, (300, 2))
    x[:, 1] += x[:, 0]
    gone = x.copy()
    gone[rng.random((300, 2)) < 0.2] = NAN
    model = PHVAE(n_phases=3, latent_dim=2, epochs=2, random_state=0, missing="model").fit(gone)
    assert np.isfinite(model.sample(100, random_state=0)).all()
    assert np.isfinite(model.score_samples(gone)).all()
    assert model.transform(gone).shape == (300, 2)
    with pytest.raises(ValueError, match=r"is missing \(NaN\) and .*'model'"):
        PHVAE().fit(gone)


def test_the_model_file_keeps_what_rows_are(tmp_path):
    rng = np.random.default_rng(11)
    x = rng.exponential(1.0, (60, 2)).round(1) + 0.1
    x[3, 1] = NAN
    k = np.column_stack((x, rng.poisson(2, 60)))
    model = PHVAE(n_phases=2, latent_dim=1, epochs=1, random_state=0, missing="model").fit(
        k, censored={"x0": rng.random(60) < 0.3}, entry={"x0": 0.05}
    )
    path = tmp_path / "gaps.phvae"
    model.save(path)
    loaded = PHVAE.load(path)
    assert loaded.vae_.layout == model.vae_.layout == Layout(3, intervals=True, entry=True, flagged=True)
    assert np.array_equal(loaded.score_samples(k), model.score_samples(k))
    assert np.array_equal(loaded.sample(5, random_state=1), model.sample(5, random_state=1))
    PHVAE.verify(path)


def test_units_move_ends_with_values_and_an_atom_stays_at_zero():
    cells = read_cells(
        np.array([[2.0, 0.0], [4.0, 6.0], [6.0, 8.0], [3.0, 9.0]]),
        LABELS,
        lower=[[NAN, NAN], [3.0, NAN], [NAN, 0.5], [NAN, NAN]],
        upper=[[INF, NAN], [5.0, NAN], [NAN, NAN], [NAN, NAN]],
    )
    scaler = fit_scaler(cells, origin=[1.0, 2.0])
    free = unit_free(cells, scaler)
    assert scaler.zero_share_.tolist() == [0.0, 0.25]
    scale = scaler.scale_
    np.testing.assert_allclose(free.lower[:, 0], (np.array([2.0, 3.0, 6.0, 3.0]) - 1) / scale[0], rtol=1e-7)
    np.testing.assert_allclose(free.upper[:, 1], (np.array([2.0, 6.0, 8.0, 9.0]) - 2) / scale[1], rtol=1e-7)
    assert free.lower[2, 1] == 0.0, "above the atom, below the origin"
    np.testing.assert_allclose(log_volume(cells, scaler)[[0, 3]], [0.0, np.log(scale).sum()])


MISTAKES = {
    "a bound below zero": ({"lower": {"a": -1.0}}, "lower of column 'a', row 0 is -1; "),
    "ends in the wrong order": ({"lower": {"b": [1, 9]}}, "lower of column 'b', row 1 is 9 and upper is 3; "),
    "an entry above the value": ({"entry": {"b": 4}}, "entry of column 'b', row 0 is 4, above the value 2 "),
    "an exit below the value": ({"exit": {"a": 4}}, "exit of column 'a', row 0 is 4, below the value 5 "),
    "an exit of zero": ({"exit": 0.0}, "exit of column 'a', row 0 is 0; "),
    "bounds in the wrong order": ({"entry": 2.0, "exit": 1.0}, "entry of column 'a', row 0 is 2 and exit is 1; "),
    "flags that are none": ({"censored": [[2, 0], [0, 0]]}, "censored of column 'a', row 0 is 2; give True"),
    "a column that is not there": ({"upper": {"z": 1}}, "upper names column 'z'"),
    "another shape": ({"entry": np.zeros(3)}, r"entry has shape \(3,\); "),
    "text": ({"upper": "high"}, "upper = 'high' are no numbers; "),
    "a broken count": ({"counts": [1]}, None),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_column_and_row(name):
    beside, message = MISTAKES[name]
    values = np.array([[5.0, 2.0], [4.0, 3.0]])
    if message is None:
        values[1, 1], message = 2.5, "column 'b', row 1 is 2.5, no whole number; "
    with pytest.raises(ValueError, match=message) as caught:
        read_cells(values, LABELS, **beside)
    assert "\n" not in str(caught.value)


def test_what_comes_beside_a_stream_is_refused(tmp_path):
    path = tmp_path / "x.parquet"
    pd.DataFrame({"a": [1.0, 2.0]}).to_parquet(path)
    from phvae.streaming import ParquetStream

    with pytest.raises(ValueError, match="entry is for a table in memory"):
        PHVAE().fit(ParquetStream(path), entry=1.0)
