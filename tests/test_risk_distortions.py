"""Distortion measures and expectiles: closed forms, other ways to the same number, order and scale."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from risk_models import inside, model
from scipy import integrate, stats
from signed_models import model as signed_model
from test_risk_splice import Chains

from phvae.risk.distortions import Distortion, distorted_mean, expectile, proportional_hazard, wang
from phvae.risk.sources import Column
from phvae.risk.splice import Spliced
from phvae.risk.two_tails import TwoTails


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("ours", "distortion"),
    [
        (proportional_hazard(3.0), lambda s: s ** (1 / 3)),
        (wang(1.0), lambda s: stats.norm.cdf(stats.norm.ppf(s) + 1)),
        (wang(-0.5), lambda s: stats.norm.cdf(stats.norm.ppf(s) - 0.5)),
    ],
)
def test_distorted_means_are_integrals_of_the_distorted_tail(ours, distortion):
    law = Chains(replicates=2)

    def tail(x, r):
        return distortion(float(law.log_sf(tensor(x))[r].exp()))

    for r in range(2):
        wanted = sum(integrate.quad(tail, a, b, args=(r,), epsrel=1e-8)[0] for a, b in [(0.5, 5), (5, 50), (50, 400)])
        assert float(distorted_mean(law, ours)[r]) == pytest.approx(0.5 + wanted, rel=1e-5)


def test_no_distortion_gives_the_mean_and_more_of_it_more():
    many = model()
    means = many.mean(rtol=5e-3)["value"]
    assert many.wang(0.0, rtol=5e-3)["value"] == pytest.approx(means, rel=0.02)
    assert many.proportional_hazard(1.0, rtol=5e-3)["value"] == pytest.approx(means, rel=0.02)
    loaded = many.wang([0.0, 0.5, 1.0], 2, rtol=5e-3)
    assert bool((np.diff(loaded["value"]) > 0).all())
    assert loaded["shift"].tolist() == [0.0, 0.5, 1.0]
    # the square root is the proportional hazard of index two, and the share beyond a level is the shortfall
    assert many.distortion(np.sqrt, 0, rtol=0.01)["value"] == pytest.approx(
        many.proportional_hazard(2.0, 0, rtol=0.01)["value"], rel=1e-12
    )
    shortfall = many.distortion(lambda s: np.minimum(s / 0.1, 1), 0, rtol=0.01)
    assert shortfall["value"] == pytest.approx(many.cvar(0.9, 0, rtol=0.01)["value"], rel=0.02)


def test_of_an_exponential_law_both_measures_are_known():
    law = Chains(replicates=1, lower=0.0)
    law.inner = type(law.inner)([1.0], [[[2.0]]])
    assert float(distorted_mean(law, proportional_hazard(2.5))) == pytest.approx(2.5 / 2, rel=1e-9)
    level, e = 0.9, float(expectile(law, tensor(0.9)))
    # E[(X - e)_+] = exp(-2 e) / 2
    excess = math.exp(-2 * e) / 2
    assert level * excess == pytest.approx((1 - level) * (e - 0.5 + excess), rel=1e-9)


def test_a_power_tail_that_is_distorted_too_far_has_no_mean():
    law = Spliced(Chains(), 4.0, 0.4)
    assert bool(distorted_mean(law, proportional_hazard(2.0)).isfinite().all())
    assert distorted_mean(law, proportional_hazard(3.0)).tolist() == [math.inf] * 3
    # S^(1/2) falls with power 1.25: beyond a point the integral is that of the power
    far = torch.logspace(0, 9, 20001, dtype=torch.float64) * 4.0
    inner = (0.5 * law.log_sf(far)).exp()
    body = torch.linspace(0.5, 4.0, 20001, dtype=torch.float64)
    wanted = 0.5 + torch.trapezoid((0.5 * law.log_sf(body)).exp(), body) + torch.trapezoid(inner, far)
    wanted = wanted + inner[:, -1] * far[-1] / (1 / 0.8 - 1)
    torch.testing.assert_close(distorted_mean(law, proportional_hazard(2.0)), wanted, rtol=1e-4, atol=0)


def test_expectiles_balance_what_is_above_and_below():
    law = Column(inside(model()), 2).at()(64)
    levels = tensor(0.01, 0.3, 0.5, 0.9, 0.9999)
    e = expectile(law, levels)
    above = law.log_excess(e).exp()
    torch.testing.assert_close(levels * above, (1 - levels) * (e - law.mean[:, None] + above), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(e[:, 2], law.mean, rtol=1e-12, atol=0)
    assert bool((e.diff() > 0).all())
    infinite = Spliced(Chains(), 4.0, 1.2)
    assert expectile(infinite, levels[3:]).tolist() == [[math.inf] * 2] * 3


def test_measures_of_sums_and_columns_scale():
    many, scaled = model(latent_dim=0), copy.deepcopy(model(latent_dim=0))
    scaled.vae_.decoder.scale *= 8
    scaled.vae_.decoder.origin *= 8
    for ask in (
        lambda m: m.expectile([0.3, 0.99]),
        lambda m: m.wang(0.7),
        lambda m: m.proportional_hazard([1.0, 2.0]),
        lambda m: m.sum([0, 1]).expectile(0.9),
        lambda m: m.sum([0, 1]).wang(0.7),
    ):
        assert ask(scaled)["value"] == pytest.approx(8 * ask(many)["value"], rel=1e-6)
    total = many.sum([0, 1])
    # both measures are subadditive
    assert total.wang(0.7)["value"][0] <= many.wang(0.7, [0, 1])["value"].sum()
    assert total.expectile(0.9)["value"][0] <= many.expectile(0.9, [0, 1])["value"].sum()
    assert total.proportional_hazard(1.0)["value"][0] == pytest.approx(total.mean()["value"][0], rel=1e-6)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.expectile(1.0), "level = 1; give probabilities"),
        (lambda m: m.wang(math.inf), "shift = inf; give finite numbers"),
        (lambda m: m.proportional_hazard([1.0, 0.5]), r"index\[1\] = 0\.5; give finite numbers of at least 1"),
        (lambda m: m.distortion("wang"), "function = 'wang'; give a function of survival probabilities"),
        (lambda m: m.distortion(lambda s: 1 - s), "function is no distortion: give one that"),
        (lambda m: m.sum().wang("much"), "shift = 'much'; give finite numbers"),
    ],
)
def test_a_bad_question_about_a_measure_is_one_clear_sentence(ask, message):
    with pytest.raises(ValueError, match=message) as error:
        ask(model(latent_dim=0))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("ours", "distortion"),
    [
        (proportional_hazard(3.0), lambda s: s ** (1 / 3)),
        (wang(1.0), lambda s: stats.norm.cdf(stats.norm.ppf(s) + 1)),
        (wang(-0.5), lambda s: stats.norm.cdf(stats.norm.ppf(s) - 0.5)),
        (Distortion.of(torch.square), lambda s: s**2),
    ],
)
@pytest.mark.parametrize("splice", [None, "gpd"])
def test_of_a_signed_column_it_is_the_integral_of_choquet(ours, distortion, splice):
    law = Column(inside(signed_model(0)), 1, splice).at()(16)

    def tail(x):
        return distortion(float(law.log_sf(tensor(x))[0].exp()))

    found = float(distorted_mean(law, ours)[0])
    if splice == "gpd" and tail(1e6) > 1e-3 / 1e6:
        # the tail's power times a third is no longer above one
        assert law.upper.shape * 3 > 1
        assert found == math.inf
        return
    ends = [0.0, 0.01, 0.1, 1.0, 10.0, 100.0, 1e4, 1e6]
    gained = sum(integrate.quad(tail, a, b, epsrel=1e-8)[0] for a, b in itertools.pairwise(ends))
    lost = sum(integrate.quad(lambda x: 1 - tail(-x), a, b, epsrel=1e-8)[0] for a, b in itertools.pairwise(ends[:5]))
    assert found == pytest.approx(gained - lost, rel=1e-4, abs=1e-6)


def test_measures_of_signed_columns_and_sums_turn_with_the_tail_and_scale():
    one = signed_model(0)
    for loss in (
        lambda tail: one.losses(0, tail=tail),
        lambda tail: one.losses(1, splice="gpd", tail=tail),
        lambda tail: one.sum(tail=tail),
    ):
        upper, lower = loss("upper"), loss("lower")
        size = float(upper.std()["value"][0])
        # the dual of Wang's transform is the one with the other sign
        assert lower.wang(0.7)["value"] == pytest.approx(-upper.wang(-0.7)["value"], abs=1e-5 * size)
        assert upper.wang([-1.0, 0.0, 1.0])["value"][1] == pytest.approx(upper.mean()["value"][0], abs=1e-4 * size)
        assert upper.expectile(0.9)["value"] == pytest.approx(-lower.expectile(0.1)["value"], abs=1e-6 * size)
        root = upper.distortion(np.sqrt)["value"]
        assert upper.proportional_hazard(2.0)["value"] == pytest.approx(root, rel=1e-9, abs=1e-9 * size)
        shortfall = upper.distortion(lambda s: np.minimum(s / 0.1, 1))["value"]
        assert shortfall == pytest.approx(upper.cvar(0.9)["value"], rel=0.01)
    total, tripled = one.sum(tail="lower"), one.sum(weights=[3.0, 3.0], tail="lower")
    for ask in (lambda s: s.wang(0.7), lambda s: s.proportional_hazard(2.0), lambda s: s.expectile([0.3, 0.99])):
        assert ask(tripled)["value"] == pytest.approx(3 * ask(total)["value"], rel=1e-6)
    # both are subadditive
    assert total.wang(0.7)["value"][0] < one.wang(0.7, tail="lower")["value"].sum()
    assert total.expectile(0.9)["value"][0] < one.expectile(0.9, tail="lower")["value"].sum()


def test_two_tails_without_a_mean_have_no_measure():
    law = Column(inside(signed_model(0)), 0, "gpd").at()(16)
    heavy = TwoTails(Spliced(law.upper.law, 0.05, 0.8), Spliced(law.losses.law, 0.06, 0.8))
    assert distorted_mean(heavy, proportional_hazard(2.0)).tolist() == [math.inf] * heavy.replicates
    steep = Distortion.of(lambda s: s.sqrt() / 2 + (1 - (1 - s).sqrt()) / 2)
    with pytest.raises(ValueError, match=r"^both distorted tails have an infinite mean"):
        distorted_mean(heavy, steep)
