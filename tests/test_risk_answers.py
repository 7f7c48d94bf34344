"""Tail answers are the closed forms integrated over the latent vector: identities, exact integrals, brute force."""

import copy
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from risk_models import exact, inside, model, table

from phvae import PHVAE
from phvae.distributions import SeriesPhaseType
from phvae.risk.estimate import IntegrationWarning
from phvae.risk.sources import Column

LEVELS = [0.5, 0.9, 0.99, 0.9999]


def test_without_latent_variables_every_answer_is_the_closed_form():
    plain = model(latent_dim=0)
    origin = plain.scaler_.origin_[0]
    law = plain.phase_type(0)
    x = np.array([2.0, 10.0, 300.0])
    excess = torch.from_numpy(x - origin)
    for answer, wanted in [
        (plain.sf(0, x), law.sf(excess)),
        (plain.cdf(0, x), law.cdf(excess)),
        (plain.pdf(0, x), law.log_prob(excess).exp()),
        (plain.log_sf(0, x), law.log_sf(excess)),
        (plain.log_cdf(0, x), law.log_cdf(excess)),
        (plain.log_pdf(0, x), law.log_prob(excess)),
        (plain.hazard(0, x), law.hazard(excess)),
        (plain.mean_excess(0, x), law.mean_excess(excess)),
        (plain.quantile(0, LEVELS), origin + law.icdf(LEVELS)),
        (plain.isf(0, [0.1, 1e-9, 1e-15]), origin + law.isf([0.1, 1e-9, 1e-15])),
        (plain.cvar(LEVELS, 0), origin + law.cvar(LEVELS)),
        (plain.mean(0), origin + law.mean),
        (plain.std(0), law.stddev),
        (plain.return_level([10, 1000], 2.5, 0), origin + law.isf([1 / 25, 1 / 2500])),
        (plain.prob_exceed(0, x, 10, 2.5), 1 - (-25 * law.sf(excess)).exp()),
        (plain.limited_expected_value(0, x), origin + law.mean - law.log_excess(excess).exp()),
    ]:
        assert answer["value"] == pytest.approx(np.atleast_1d(wanted.numpy()), rel=1e-8)
        assert answer["standard_error"].tolist() == [0.0] * len(answer["value"])
        assert answer["low"].tolist() == answer["value"].tolist()


@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize("power", [2, 5, 8, 12])
def test_probabilities_down_to_1e_12_are_those_of_an_exact_integral(position, power):
    one = model(latent_dim=1)
    probability = 10.0**-power
    x = float(one.isf(position, probability)["value"][0])
    truth = exact(lambda z: inside(one).vae.decoder.column(z, position).log_sf(x)[:, 0].exp())
    answer = one.sf(position, x)[0]
    assert answer["value"] == pytest.approx(float(truth), rel=0.01)
    assert abs(answer["value"] - truth) < 8 * answer["standard_error"] + 1e-9 * truth
    assert float(truth) == pytest.approx(probability, rel=0.01)
    assert answer["standard_error"] <= 1e-3 * answer["value"]


def test_with_several_latent_dimensions_independent_integrations_agree_at_1e_12():
    many, other = model(latent_dim=4), copy.copy(model(latent_dim=4))
    other.settings_ = {**many.settings_, "seed": 5}
    x = float(many.isf(0, 1e-12)["value"][0])
    first, second = many.sf(0, x)[0], other.sf(0, x)[0]
    assert first["value"] == pytest.approx(1e-12, rel=0.01)
    assert second["value"] == pytest.approx(first["value"], rel=0.01)
    assert max(first["standard_error"], second["standard_error"]) <= 1e-3 * first["value"]


def test_spliced_quantiles_and_probabilities_are_inverse_and_shortfalls_are_means_beyond_them():
    many = model()
    levels = [0.9, 0.999, 0.999999]
    quantiles = many.quantile(0, levels, splice="gpd")["value"]
    assert many.sf(0, quantiles, splice="gpd")["value"] == pytest.approx(1 - np.array(levels), rel=5e-3)
    excess = many.mean_excess(0, quantiles, splice="gpd")["value"]
    assert many.cvar(levels, 0, splice="gpd")["value"] == pytest.approx(quantiles + excess, rel=5e-3)
    assert many.return_level(1000, 1, 0, splice="gpd")["value"] == pytest.approx(quantiles[1:2], rel=1e-6)


def test_means_deviations_and_layers_are_those_of_an_exact_integral():
    one = model(latent_dim=1)
    decoder = inside(one).vae.decoder
    for position in (0, 2):
        first = float(exact(lambda z, j=position: decoder.column(z, j).mean[:, 0]))
        second = float(
            exact(lambda z, j=position: (lambda law: law.variance + law.mean.square())(decoder.column(z, j))[:, 0])
        )
        assert one.mean(position)["value"][0] == pytest.approx(first, rel=3e-3)
        assert one.std(position)["value"][0] == pytest.approx(math.sqrt(second - first**2), rel=3e-3)


def test_layers_are_means_of_what_sampled_losses_pay():
    many = model()
    x = many.sample(400_000, random_state=3)[:, 2]
    paid = np.minimum(np.maximum(x - 5, 0), 20)
    answer = {row["measure"]: row for row in many.layer(2, limit=20, attachment=5)}
    error = paid.std() / math.sqrt(len(x))
    assert answer["expected_loss"]["value"] == pytest.approx(paid.mean(), abs=6 * error)
    assert answer["frequency"]["value"] == pytest.approx((x > 5).mean(), abs=6 * (x > 5).std() / math.sqrt(len(x)))
    assert answer["standard_deviation"]["value"] == pytest.approx(paid.std(), rel=0.02)
    assert answer["return_period"]["value"] == pytest.approx(1 / answer["frequency"]["value"], rel=1e-6)
    yearly = {row["measure"]: row["value"] for row in many.layer(2, 20, 5, events_per_period=3.5)}
    assert yearly["expected_loss"] == pytest.approx(3.5 * answer["expected_loss"]["value"], rel=1e-9)
    second = answer["standard_deviation"]["value"] ** 2 + answer["expected_loss"]["value"] ** 2
    assert yearly["standard_deviation"] == pytest.approx(math.sqrt(3.5 * second), rel=1e-6)


def test_layers_add_up_and_an_unlimited_one_is_the_stop_loss_premium():
    many = model()
    parts = many.layer(0, limit=[5, 20, math.inf], attachment=[0, 5, 25])
    expected = parts["value"][parts["measure"] == "expected_loss"]
    assert expected.sum() == pytest.approx(many.mean(0)["value"][0], rel=2e-3)
    limited = many.limited_expected_value(0, [5, 25])["value"]
    assert limited == pytest.approx([expected[0], expected[:2].sum()], rel=2e-3)
    assert many.increased_limit_factor(0, [5, 25], 5)["value"] == pytest.approx([1, limited[1] / limited[0]], rel=2e-3)


def test_the_shortfall_is_never_below_the_quantile():
    many = model()
    levels = [0.01, 0.3, 0.9, 0.999, 0.999999]
    for splice in (None, "gpd"):
        assert bool((many.cvar(levels, splice=splice)["value"] >= many.var(levels, splice=splice)["value"]).all())


@pytest.mark.parametrize(("position", "level"), [(0, 0.9), (0, 0.9999), (2, 0.3)])
def test_the_shortfall_is_the_integral_of_the_quantile_function(position, level):
    law = Column(inside(model()), position).at(probability=1 - level)(32)
    # the quantile function at p = (1 - level) exp(-t) against exp(-t) dt, from where it is not zero any more
    positive = law.log_sf(torch.zeros(1, dtype=torch.float64)).exp()
    most = positive.clip(max=1 - level)
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(20))
    total = torch.zeros(law.replicates, dtype=torch.float64)
    for first in range(0, 36, 3):
        t, step = first + 1.5 * (1 + nodes), 1.5 * weights
        if first == 0:
            # beyond an atom the quantile function begins with a root: a sixth power makes it smooth
            t, step = 3 * ((1 + nodes) / 2) ** 6, 9 * ((1 + nodes) / 2) ** 5 * weights
        share = (-t).exp()
        total += (law.isf(most * share) * share * step).sum(-1) * most[:, 0] / (1 - level)
    wanted = law.tail_mean(torch.tensor([1 - level], dtype=torch.float64))[:, 0]
    torch.testing.assert_close(total, wanted, rtol=1e-6, atol=0)


def test_all_measures_scale_with_the_unit():
    many, scaled = model(), copy.deepcopy(model())
    scaled.vae_.decoder.scale *= 8
    scaled.vae_.decoder.origin *= 8
    for ask in (
        lambda m, c: m.cvar([0.5, 0.999]),
        lambda m, c: m.mean(),
        lambda m, c: m.std(),
        lambda m, c: m.mean_excess(None, [2 * c, 30 * c]),
        lambda m, c: m.limited_expected_value(None, 30 * c),
        lambda m, c: m.return_level(100, 5, 0),
    ):
        assert ask(scaled, 8)["value"] == pytest.approx(8 * ask(many, 1)["value"], rel=1e-9)
    assert scaled.sf(None, [80, 800])["value"] == pytest.approx(many.sf(None, [10, 100])["value"], rel=1e-9)


def test_answers_are_those_of_many_rows():
    many = model()
    x = many.sample(200_000, random_state=0)
    for position in range(3):
        for answer in many.sf(position, [0, 3, 10, 40]):
            share = (x[:, position] > answer["x"]).mean()
            error = math.sqrt(answer["value"] * (1 - answer["value"]) / len(x))
            assert abs(share - answer["value"]) < 6 * error + 1e-6
        for answer in many.quantile(position, [0.5, 0.9, 0.99]):
            below = (x[:, position] <= answer["value"]).mean()
            assert abs(below - answer["level"]) < 6 * math.sqrt(answer["level"] * (1 - answer["level"]) / len(x)) + 1e-6


def test_answers_beyond_the_largest_observation_say_so():
    many, largest = model(), table().max(0)
    for position in range(3):
        x = largest[position] * np.array([0.3, 0.5, 0.9, 1.0, 1.01, 3.0])
        at = many.sf(position, x)
        # beyond all rows, or where the model expects less than one of them
        assert at["extrapolated"].tolist() == ((x > largest[position]) | (at["value"] < 1 / len(table()))).tolist()
        assert at["extrapolated"].tolist()[::5] == [False, True]
    quantiles = many.quantile(0, [0.5, 0.999999])
    assert quantiles["extrapolated"].tolist() == [False, True]
    assert (quantiles["value"] > largest[0]).tolist() == [False, True]
    layer = many.layer(0, limit=[1, 2 * largest[0]], attachment=1)
    assert layer["extrapolated"].reshape(4, 2).tolist() == [[False, True]] * 4


@pytest.mark.parametrize(("kind", "type_"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", None)])
def test_answers_are_tables_of_the_kind_of_the_data(kind, type_):
    framed = copy.copy(model())
    framed.table_kind_, framed.columns_ = kind, ["fire", "water", "theft"]
    answer = framed.quantile(["theft", "fire"], [0.9, 0.99])
    names = ["column", "level", "value", "standard_error", "low", "high", "extrapolated"]
    if type_ is None:
        assert answer.column_names == names
        answer = answer.to_pandas()
    assert list(answer.columns) == names
    assert list(answer["column"]) == ["theft", "theft", "fire", "fire"]
    assert list(answer["value"]) == model().quantile([2, 0], [0.9, 0.99])["value"].tolist()


def test_thresholds_may_be_lists_reversed_arrays_or_the_values_of_an_answer():
    many, levels = model(), np.array([0.9, 0.5])
    answer = many.quantile(0, levels)
    assert many.quantile(0, levels[::-1])["value"].tolist() == answer["value"][::-1].tolist()
    assert many.sf(0, answer["value"]).tolist() == many.sf(0, answer["value"].tolist()).tolist()


def test_answers_are_the_same_every_time_and_another_seed_differs_within_the_error():
    many, other = model(), copy.copy(model())
    first, again = many.cvar(0.999), many.cvar(0.999)
    assert first.tolist() == again.tolist()
    other.settings_ = {**many.settings_, "seed": 99}
    second = other.cvar(0.999)
    gap = np.abs(first["value"] - second["value"])
    assert bool((gap > 0).all())
    # 7 degrees of freedom each: beyond 20 with a probability of about 1e-7
    assert bool((gap < 20 * np.hypot(first["standard_error"], second["standard_error"])).all())


def test_a_spliced_tail_is_heavier_beyond_the_trust_point_and_the_same_below():
    many = model()
    trust = inside(many).trust(0)
    x = [0.5 * trust.point, trust.point]
    assert many.sf(0, x, splice="gpd")["value"] == pytest.approx(many.sf(0, x)["value"], rel=3e-3)
    far = [20 * trust.point, 100 * trust.point]
    assert trust.fit.shape > 0
    assert bool((many.log_sf(0, far, splice="gpd")["value"] > many.log_sf(0, far)["value"]).all())
    rows = many.sample(20_000, random_state=1, splice="gpd")
    own = many.sample(20_000, random_state=1)
    below = own[:, 0] <= trust.point
    assert np.array_equal(rows[below, 0], own[below, 0])
    for answer in many.sf(0, [2 * trust.point, 4 * trust.point], splice="gpd"):
        share = (rows[:, 0] > answer["x"]).mean()
        assert abs(share - answer["value"]) < 6 * math.sqrt(answer["value"] / len(rows))


def test_a_layer_of_a_spliced_tail_without_variance_is_finite():
    heavy = Column(inside(model()), 0, "gpd")
    heavy.trust = heavy.trust._replace(fit=copy.copy(heavy.trust.fit))
    object.__setattr__(heavy.trust.fit, "shape", 1.2)
    law = heavy.at()(256)
    low = torch.tensor([0.0, 3.0, heavy.trust.point * 2], dtype=torch.float64)
    high = low + torch.tensor([5.0, 500.0, 1e4], dtype=torch.float64)
    from phvae.risk.layers import layer_moments

    first, second = layer_moments(law, low, high)
    torch.testing.assert_close(first, law.limited(high) - law.limited(low), rtol=1e-6, atol=0)
    assert bool((second.isfinite() & (second > first.square())).all())
    assert law.mean.tolist() == [math.inf] * law.replicates


def test_an_integral_that_misses_its_tolerance_warns():
    with pytest.warns(IntegrationWarning, match="reached a relative error of"):
        model(seed=1).sf(0, 10, rtol=1e-12)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.quantile(0, 1.0), r"level = 1; give probabilities strictly between 0 and 1"),
        (lambda m: m.cvar([0.5, -0.1]), r"level\[1\] = -0\.1; give probabilities"),
        (lambda m: m.isf(0, 0.0), "probability = 0; give probabilities"),
        (lambda m: m.sf("fire", 1.0), r"column = 'fire': there is no such column; give one of \['x0', 'x1', 'x2'\]"),
        (lambda m: m.sf([0, 7], 1.0), r"column\[1\] = 7: there is no such column"),
        (lambda m: m.sf([0, 0], 1.0), r"column\[1\] = 0 is named twice"),
        (lambda m: m.sf([], 1.0), "column is empty"),
        (lambda m: m.sf(0, -1.0), "x = -1; give finite thresholds >= 0"),
        (lambda m: m.sf(0, [1.0, math.nan]), r"x\[1\] = nan; give finite thresholds"),
        (lambda m: m.sf(0, "ten"), "x = 'ten'; give finite"),
        (lambda m: m.mean_excess(0, -2), "x = -2; give finite thresholds >= 0"),
        (lambda m: m.layer(0, limit=-1), "limit = -1; give numbers > 0"),
        (lambda m: m.layer(0, limit=1, attachment=-1), "attachment = -1; give finite thresholds >= 0"),
        (lambda m: m.layer(0, limit=[1, 2], attachment=[1, 2, 3]), "limit has 2 and attachment 3 numbers"),
        (lambda m: m.return_level(0.5, 1.0), r"periods = 0\.5 with events_per_period = 1: .* give periods above 1"),
        (lambda m: m.return_level(10, [3.0, 4.0]), r"events_per_period has shape \(2,\); give one number"),
        (lambda m: m.prob_exceed(0, 1.0, [1, 2], 3.0), r"within has shape \(2,\); give one number"),
        (lambda m: m.increased_limit_factor(0, 5, [1, 2]), r"basic has shape \(2,\); give one number"),
        (lambda m: m.layer(0, 5, 1, events_per_period=[1]), r"events_per_period has shape \(1,\); give one number"),
        (lambda m: m.return_level(10, 0), "events_per_period = 0; give finite numbers > 0"),
        (lambda m: m.sf(0, 1.0, rtol=0), "rtol = 0; give a relative tolerance"),
        (lambda m: m.sf(0, 1.0, splice="pareto"), "splice = 'pareto'; give 'gpd'"),
        (lambda m: m.joint_sf({}), "thresholds = {}; give a dict"),
        (lambda m: m.joint_sf({0: [1, 2], 1: 3}), r"thresholds has lists of \[2, 1\] numbers"),
        (lambda m: m.joint_quantile({0: 1, 2: -1}, 0.1), r"direction\[2\] = -1; give finite numbers > 0"),
        (lambda m: m.joint_quantile({0: 1, 2: [1, 2]}, 0.1), r"direction\[2\] has shape \(2,\); give one number"),
        (lambda m: m.joint_quantile({0: 1, 2: 1}, 0.9), r"probability = 0\.9: all columns are positive together only"),
        (lambda m: m.chi(0.9, [0]), "dependence takes at least two columns"),
    ],
)
def test_a_bad_question_is_one_clear_sentence(ask, message):
    with pytest.raises(ValueError, match=message) as error:
        ask(model())
    assert "\n" not in str(error.value)


def test_a_model_that_is_not_fitted_has_no_answers():
    with pytest.raises(ValueError, match="not fitted"):
        PHVAE().quantile(0, 0.9)


def test_a_closed_form_of_one_chain_survives_the_way_through_the_model():
    plain = model(latent_dim=0)
    law = plain.phase_type(1)
    assert isinstance(law, SeriesPhaseType)
    assert plain.sf(1, plain.scaler_.origin_[1])["value"][0] == 1.0


def test_quantiles_of_mostly_zeros_are_found_where_the_mean_lies_below_the_origin():
    rng = np.random.default_rng(0)
    x = (rng.pareto(2.5, (300, 1)) + 1) * (rng.random((300, 1)) < 0.1)
    zeros = PHVAE(latent_dim=0, n_phases=4, epochs=0, random_state=0).fit(x)
    share = zeros.scaler_.zero_share_[0]
    law, origin = zeros.phase_type(0), zeros.scaler_.origin_[0]
    assert zeros.mean(0)["value"][0] < origin
    found = zeros.quantile(0, [0.5, 0.95, 0.99])["value"]
    wanted = origin + law.isf([0.05 / (1 - share), 0.01 / (1 - share)]).numpy()
    assert found == pytest.approx([0.0, *wanted], rel=1e-6)  # the share is kept in single precision
    assert zeros.tail_certificate().columns[0].verdict in ("supported", "caution", "unsupported")


def test_a_level_rarer_than_a_row_is_extrapolated_wherever_it_lies():
    fitted = model(latent_dim=0)
    rarest = fitted.isf(0, [1.01 / len(table()), 0.99 / len(table()), 1e-9])
    assert rarest["extrapolated"].tolist()[1:] == [True, True]
    largest = table()[:, 0].max()
    assert fitted.sf(0, [largest / 2, largest * 1.001])["extrapolated"].tolist()[1]
