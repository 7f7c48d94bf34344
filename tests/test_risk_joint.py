"""Joint tails are integrals of products over the latent vector: exact in one dimension, and those of many rows."""

import math

import numpy as np
import pytest
from risk_models import exact, inside, model
from scipy import stats

from phvae import PHVAE


def both_exceed(one, thresholds):
    decoder = inside(one).vae.decoder
    return float(exact(lambda z: sum(decoder.column(z, j).log_sf(u)[:, 0] for j, u in thresholds.items()).exp()))


@pytest.mark.parametrize("thresholds", [{0: 3.0, 2: 2.0}, {0: 50.0, 1: 50.0}, {0: 200.0, 1: 5.0, 2: 100.0}])
def test_joint_probabilities_are_those_of_an_exact_integral(thresholds):
    one = model(latent_dim=1)
    answer = one.joint_sf(thresholds)[0]
    truth = both_exceed(one, thresholds)
    assert answer["value"] == pytest.approx(truth, rel=5e-3)
    assert abs(answer["value"] - truth) < 20 * answer["standard_error"]


def test_joint_probabilities_are_those_of_many_rows_and_one_column_is_its_own_tail():
    many = model()
    x = many.sample(300_000, random_state=1)
    answers = many.joint_sf({0: [2.0, 5.0], "x2": [1.0, 4.0]})
    assert answers.dtype.names[:3] == ("x0", "x2", "value")
    for answer in answers:
        share = ((x[:, 0] > answer["x0"]) & (x[:, 2] > answer["x2"])).mean()
        assert abs(answer["value"] - share) < 6 * math.sqrt(share / len(x))
    alone = many.joint_sf({1: [2.0, 30.0]})["value"]
    assert alone == pytest.approx(many.sf(1, [2.0, 30.0])["value"], rel=5e-3)


def test_a_joint_quantile_is_where_the_joint_tail_takes_the_probability():
    many, direction = model(), {0: 1.0, 2: 0.5}
    for answer in many.joint_quantile(direction, [0.3, 1e-3, 1e-8]):
        t = answer["value"]
        assert many.joint_sf({0: t, 2: 0.5 * t})["value"][0] == pytest.approx(answer["probability"], rel=0.01)
    double = many.joint_quantile({0: 2.0, 2: 1.0}, 1e-3)["value"][0]
    assert double == pytest.approx(many.joint_quantile(direction, 1e-3)["value"][0] / 2, rel=5e-3)


def test_co_exceedance_and_chi_are_those_of_many_rows():
    many = model()
    x = many.sample(300_000, random_state=2)
    quantiles = np.quantile(x, 0.95, axis=0)
    pairs = many.coexceedance(0.95)
    chi = many.chi([0.95, 0.999])
    assert [tuple(row) for row in zip(pairs["column"], pairs["other"], strict=True)] == [
        ("x0", "x1"), ("x0", "x2"), ("x1", "x2"),
    ]  # fmt: skip
    for row, (i, j) in zip(pairs, [(0, 1), (0, 2), (1, 2)], strict=True):
        share = ((x[:, i] > quantiles[i]) & (x[:, j] > quantiles[j])).mean()
        # the quantiles of the rows have errors of their own, of the same order
        assert abs(row["value"] - share) < 8 * math.sqrt(share / len(x))
    assert chi["value"][::2] == pytest.approx(pairs["value"] / 0.05, rel=2e-3)
    assert bool(((chi["value"] > 0) & (chi["value"] <= 1)).all())


def test_kendalls_tau_is_that_of_many_rows_with_ties_as_neither():
    many = model()
    x = many.sample(60_000, random_state=3)
    tau = many.kendall_tau()
    for row, (i, j) in zip(tau, [(0, 1), (0, 2), (1, 2)], strict=True):
        # tau-a from tau-b: ties only at the exact zeros of the last column
        ties = [np.unique(x[:, k], return_counts=True)[1] for k in (i, j)]
        free = [1 - (c * (c - 1)).sum() / (len(x) * (len(x) - 1)) for c in ties]
        wanted = stats.kendalltau(x[:, i], x[:, j]).statistic * math.sqrt(free[0] * free[1])
        # the deviation of tau is below that of independent rows times two
        assert row["value"] == pytest.approx(wanted, abs=6 * 2 * (2 / 3) / math.sqrt(len(x)))
    assert bool((tau["standard_error"] <= 1e-3).all())
    assert tau["value"][0] > 0.1
    # without latent variables there is no dependence
    assert model(latent_dim=0).kendall_tau([0, 1])["value"] == pytest.approx([0.0], abs=5e-3)


def test_joint_answers_beyond_an_observation_say_so():
    many = model()
    flags = many.joint_sf({0: [2.0, 2.0], 1: [3.0, 1e4]})["extrapolated"]
    assert flags.tolist() == [False, True]


def test_joint_tails_with_splices_are_heavier_and_agree_for_one_column():
    many = model()
    far = 5 * inside(many).trust(0).point
    assert many.joint_sf({0: far}, splice="gpd")["value"] == pytest.approx(
        many.sf(0, far, splice="gpd")["value"], rel=0.01
    )
    assert many.joint_sf({0: far, 1: 3.0}, splice="gpd")["value"][0] > many.joint_sf({0: far, 1: 3.0})["value"][0]


def test_a_ray_is_climbed_from_where_the_last_column_begins():
    # the second column ends, so to speak, before the first begins: its mean, in its unit, lies below that origin
    rng = np.random.default_rng(0)
    x = np.stack([5 + rng.exponential(size=300), rng.exponential(size=300)], 1)
    plain = PHVAE(latent_dim=0, n_phases=3, epochs=0, random_state=0).fit(x)
    t = plain.joint_quantile({0: 1.0, 1: 1.0}, [1e-3, 1e-8])["value"]
    assert plain.joint_sf({0: t, 1: t})["value"] == pytest.approx([1e-3, 1e-8], rel=1e-8)
