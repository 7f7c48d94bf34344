"""Rows given a condition follow the conditional law: against brute force, exact integrals and the condition itself."""

import math

import numpy as np
import pytest
import torch
from risk_models import exact, inside, model, table
from scipy import stats

from phvae.risk import conditional
from phvae.risk.estimate import IntegrationWarning


@pytest.mark.parametrize(
    "given",
    [
        {0: (">", 6.0)},
        {1: ("<", 1.5)},
        {0: ("between", 2.0, 4.0), 2: (">", 0.0)},
        {0: (">", 2.0), 1: (">", 2.0), 2: ("<", 3.0)},
    ],
)
def test_rows_given_conditions_are_those_of_a_large_sample_that_meet_them(given):
    many = model()
    brute = many.sample(300_000, random_state=5)
    keep = np.ones(len(brute), dtype=bool)
    for column, (sign, *ends) in given.items():
        x = brute[:, column]
        keep &= {">": x > ends[0], "<": x < ends[0], "between": (x > ends[0]) & (x < ends[-1])}[sign]
    brute = brute[keep]
    drawn = many.conditional_sample(4_000, given, random_state=1)
    assert len(brute) > 1_000
    assert len(drawn.rows) == 4_000
    share = keep.mean()
    assert drawn.probability == pytest.approx(share, abs=6 * math.sqrt(share / len(keep)))
    for column in range(3):
        assert stats.ks_2samp(drawn.rows[:, column], brute[:, column]).pvalue > 1e-7
    # how the columns go together: the law of their ranks' product
    logs = [np.log1p(rows).prod(1) for rows in (drawn.rows, brute)]
    assert stats.ks_2samp(*logs).pvalue > 1e-7


def test_every_row_meets_its_conditions_and_there_are_as_many_as_asked():
    for given in ({0: (">", 50.0), 2: ("between", 1.0, 1.5)}, {2: (">", 0.0)}, {2: ("<", 0.5)}):
        rows = model().sample(3_000, random_state=2, given=given)
        assert rows.shape == (3_000, 3)
        for column, (sign, *ends) in given.items():
            x = rows[:, column]
            assert bool({">": x > ends[0], "<": x < ends[0], "between": (x > ends[0]) & (x <= ends[-1])}[sign].all())
    # an exact zero is a value below a half, and no value above zero
    assert 0 < (model().sample(3_000, random_state=2, given={2: ("<", 0.5)})[:, 2] == 0).mean() <= 1


@pytest.mark.parametrize("power", [4, 8])
def test_rare_events_are_drawn_from_with_the_right_probability_and_law(power):
    one = model(latent_dim=1)
    threshold = float(one.isf(0, 10.0**-power)["value"][0])
    drawn = one.conditional_sample(5_000, {0: (">", threshold)}, random_state=0)
    decoder = inside(one).vae.decoder
    chance = exact(lambda z: decoder.column(z, 0).log_sf(threshold)[:, 0].exp())
    assert drawn.probability == pytest.approx(float(chance), rel=5e-3)
    assert abs(drawn.probability - float(chance)) < 20 * drawn.standard_error
    # the other column given the event, by an exact integral
    for x in (1.5, 4.0):
        both = exact(
            lambda z, x=x: (decoder.column(z, 0).log_sf(threshold) + decoder.column(z, 1).log_sf(x))[:, 0].exp()
        )
        truth = float(both / chance)
        share = (drawn.rows[:, 1] > x).mean()
        assert abs(share - truth) < 6 * math.sqrt(truth * (1 - truth) / 5_000) + 1e-9
    # and how far the column itself goes beyond
    farther = exact(lambda z: decoder.column(z, 0).log_sf(1.5 * threshold)[:, 0].exp())
    truth = float(farther / chance)
    share = (drawn.rows[:, 0] > 1.5 * threshold).mean()
    assert abs(share - truth) < 6 * math.sqrt(truth * (1 - truth) / 5_000)


@pytest.mark.parametrize(
    "given", [{0: (">", 500.0)}, {0: (">", 30.0), 1: (">", 30.0)}, {0: ("<", 1.2), 1: (">", 30.0)}]
)
@pytest.mark.parametrize("n", [10, 20_000])
def test_the_effective_size_is_at_least_a_tenth_of_the_rows(given, n):
    drawn = model().conditional_sample(n, given, random_state=4)
    assert drawn.probability < 1e-3
    assert drawn.effective_size >= n / 10
    assert drawn.n_points >= 8 * n


def test_too_few_latent_points_are_said(monkeypatch):
    monkeypatch.setattr(conditional, "MOST_POINTS", 2**14)
    monkeypatch.setattr(conditional, "ENOUGH", 100.0)
    with pytest.warns(IntegrationWarning, match="1,000 rows stem from latent points whose effective number is"):
        model().conditional_sample(1_000, {0: (">", 30.0)}, random_state=0)


def test_rows_beyond_every_observation_say_so():
    many, largest = model(), table().max(0)
    for given, beyond in [
        ({0: (">", many.isf(0, 2 / len(table()))["value"][0])}, False),
        ({0: (">", 1.1 * largest[0])}, True),
        ({0: ("<", 1.1 * largest[0]), 1: ("between", 1.1 * largest[1], 2 * largest[1])}, True),
        ({2: ("<", 10 * largest[2])}, False),
    ]:
        assert many.conditional_sample(3, given, random_state=0).extrapolated is beyond


def test_several_conditions_that_hold_once_in_1e8_rows_are_drawn_from():
    many = model()
    t = many.joint_quantile({0: 1.0, 1: 1.0}, 1e-8)["value"][0]
    given = {0: (">", t), 1: (">", t)}
    drawn = many.conditional_sample(2_000, given, random_state=0)
    assert drawn.probability == pytest.approx(1e-8, rel=0.02)
    assert drawn.effective_size >= 200
    # the chance to go on by a tenth, exact from the joint tail
    farther = float(many.joint_sf({0: 1.1 * t, 1: 1.1 * t})["value"][0]) / drawn.probability
    share = (drawn.rows[:, :2] > 1.1 * t).all(1).mean()
    assert share == pytest.approx(farther, abs=6 * math.sqrt(farther * (1 - farther) / 2_000))


def test_conditions_are_numbers_of_any_kind():
    plain = model().sample(5, random_state=0, given={0: (">", 3), 1: ("<", 4.0)})
    others = model().sample(5, random_state=0, given={0: (">", np.int64(3)), 1: ("<", np.float32(4))})
    assert np.array_equal(plain, others)


def test_a_seed_fixes_the_rows_and_none_gives_others():
    many, given = model(), {1: (">", 9.0)}
    first = many.sample(50, random_state=3, given=given)
    assert np.array_equal(first, many.sample(50, random_state=3, given=given))
    assert not np.array_equal(first, many.sample(50, random_state=4, given=given))
    assert not np.array_equal(many.sample(50, given=given), many.sample(50, given=given))


def test_without_latent_variables_the_chain_alone_is_conditioned():
    plain = model(latent_dim=0)
    drawn = plain.conditional_sample(4_000, {0: (">", 20.0)}, random_state=0)
    assert drawn.probability == pytest.approx(plain.sf(0, 20.0)["value"][0], rel=1e-9)
    assert drawn.standard_error == 0

    def beyond(x):
        at = torch.as_tensor(np.asarray(x) - plain.scaler_.origin_[0])
        return 1 - (plain.phase_type(0).sf(at) / drawn.probability).numpy()

    assert stats.kstest(drawn.rows[:, 0], beyond).pvalue > 1e-7


def test_a_condition_on_a_spliced_tail_means_its_own_values():
    many = model()
    u = 3 * inside(many).trust(0).point
    drawn = many.conditional_sample(4_000, {0: (">", u)}, random_state=0, splice="gpd")
    assert bool((drawn.rows[:, 0] > u).all())
    assert drawn.probability == pytest.approx(many.sf(0, u, splice="gpd")["value"][0], rel=0.01)
    truth = many.sf(0, 2 * u, splice="gpd")["value"][0] / many.sf(0, u, splice="gpd")["value"][0]
    assert (drawn.rows[:, 0] > 2 * u).mean() == pytest.approx(truth, abs=6 * math.sqrt(truth / 4_000))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "given = {}; give a dict of conditions"),
        ({"fire": (">", 1)}, "given = 'fire': there is no such column"),
        ({0: 5}, r'given\[0\] = 5; give \(">", a\), \("<", b\) or \("between", a, b\)'),
        ({0: ("=", 5)}, r"given\[0\] = \('=', 5\); give"),
        ({0: (">", 5, 6)}, r"given\[0\] = \('>', 5, 6\); give"),
        ({0: (">", math.nan)}, "nan is no finite number"),
        ({0: (">", "high")}, "'high' is no finite number"),
        ({0: (">", True)}, "True is no finite number"),
        ({0: ("between", 3, 2)}, "impossible: give the smaller end first"),
        ({0: ("<", 0.01)}, r"given\[0\] = \('<', 0.01\) is impossible: the column is never below 0"),
        ({2: ("<", 0.0)}, "impossible: the column is never below 0"),
        ({0: (">", 1), "x0": ("<", 9)}, "given has two conditions on column 'x0'"),
        ({0: (">", 1e9)}, "the probability of the conditions is below 1e-300"),
    ],
)
def test_an_impossible_or_unreadable_condition_is_one_clear_sentence(given, message):
    with pytest.raises(ValueError, match=message) as error:
        model().sample(10, given=given)
    assert "\n" not in str(error.value)


def test_the_number_of_rows_is_checked():
    with pytest.raises(ValueError, match="n_samples = 0; give a whole number of at least 1"):
        model().sample(0, given={0: (">", 1)})
