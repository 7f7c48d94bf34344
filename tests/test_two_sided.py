"""A law on the whole line: two tails, each exact, that share one unit of probability."""

import math

import numpy as np
import pytest
import torch
from distribution_cases import LOSS_SHARE, SIGNED_CASES
from scipy import integrate, stats

from phvae.distributions import SeriesPhaseType, TwoSided
from phvae.distributions.located import Located
from phvae.distributions.zero_atom import ZeroAtom
from phvae.signed_decoders import SignedDecoder

LAW, SHARE = SIGNED_CASES["gains and losses"](), LOSS_SHARE
LOSS, GAIN, LOGIT = LAW.loss, LAW.gain, float(LAW.loss_logit)


def at(values):
    return torch.as_tensor(values, dtype=torch.float64)


def integral(function, low, high):
    value, _ = integrate.quad(function, low, high, epsabs=1e-12, epsrel=1e-11, limit=200)
    return value


def density(x):
    return float(LAW.log_prob(x).exp())


def test_the_density_of_either_side_and_one_in_all():
    assert integral(density, -math.inf, 0) == pytest.approx(SHARE, rel=1e-9)
    assert integral(density, 0, math.inf) == pytest.approx(1 - SHARE, rel=1e-9)
    x = at([0.3, 2.0])
    assert torch.allclose(LAW.log_prob(-x), math.log(SHARE) + LOSS.log_prob(x), rtol=1e-13)
    assert torch.allclose(LAW.log_prob(x), math.log(1 - SHARE) + GAIN.log_prob(x), rtol=1e-13)


@pytest.mark.parametrize("x", [-30.0, -1.0, -1e-3, 0.0, 0.7, 25.0])
def test_cdf_and_survival_are_integrals_of_the_density(x):
    below = integral(density, -math.inf, min(x, 0)) + (integral(density, 0, x) if x > 0 else 0.0)
    assert float(LAW.cdf(x)) == pytest.approx(below, rel=1e-9)
    assert float(LAW.sf(x)) == pytest.approx(1 - below, rel=1e-8)


def test_both_tails_are_exact_at_any_depth():
    assert float(LAW.log_sf(1e5)) == pytest.approx(math.log(1 - SHARE) + float(GAIN.log_sf(1e5)), rel=1e-13)
    assert float(LAW.log_cdf(-1e5)) == pytest.approx(math.log(SHARE) + float(LOSS.log_sf(1e5)), rel=1e-13)
    tiny = at([1e-300, 1e-100, 1e-9])
    assert torch.allclose(LAW.log_sf(LAW.isf(tiny)), tiny.log(), rtol=1e-12)
    assert torch.allclose(LAW.log_cdf(LAW.icdf(tiny)), tiny.log(), rtol=1e-12)


def test_quantiles_invert_the_cdf_and_rise():
    levels = torch.linspace(0, 1, 203, dtype=torch.float64)[1:-1]
    points = LAW.icdf(levels)
    assert bool((points.diff() > 0).all())
    assert torch.allclose(LAW.cdf(points), levels, rtol=1e-9)
    assert torch.allclose(LAW.isf(1 - levels), points, rtol=1e-7, atol=1e-9)
    assert LAW.icdf(at([0.0, 1.0])).tolist() == LAW.isf(at([1.0, 0.0])).tolist() == [-math.inf, math.inf]


def test_moments_are_integrals():
    moments = [
        integral(lambda x, k=k: x**k * density(x), -math.inf, 0)
        + integral(lambda x, k=k: x**k * density(x), 0, math.inf)
        for k in (1, 2)
    ]
    assert float(LAW.mean) == pytest.approx(moments[0], rel=1e-8)
    assert float(LAW.variance) == pytest.approx(moments[1] - moments[0] ** 2, rel=1e-8)


@pytest.mark.parametrize("u", [-12.0, -0.5, 0.0, 3.0])
def test_stop_loss_moments_and_mean_excess_are_integrals_of_the_survival(u):
    def beyond(function):
        return (integral(function, u, 0) if u < 0 else 0.0) + integral(function, max(u, 0), math.inf)

    first = beyond(lambda x: float(LAW.sf(x)))
    second = beyond(lambda x: 2 * (x - u) * float(LAW.sf(x)))
    assert float(LAW.log_excess(u)) == pytest.approx(math.log(first), abs=1e-8)
    assert float(LAW.log_excess(u, 2)) == pytest.approx(math.log(second), abs=1e-8)
    assert float(LAW.mean_excess(u)) == pytest.approx(first / float(LAW.sf(u)), rel=1e-8)
    with pytest.raises(ValueError, match=r"^order = 3; give 1 or 2$"):
        LAW.log_excess(u, 3)


@pytest.mark.parametrize("level", [0.1, SHARE, 0.6, 0.99])
def test_shortfall_is_the_mean_of_the_worst_quantiles(level):
    worst = integral(lambda p: float(LAW.isf(p)), 0, 1 - level) / (1 - level)
    assert float(LAW.cvar(level)) == pytest.approx(worst, rel=1e-6)


def test_without_losses_it_is_the_law_of_the_gains():
    law, x = TwoSided(-math.inf, LOSS, Located(GAIN, 2.0)), at([-1.0, 2.5, 40.0])
    for name in ("log_prob", "log_sf", "log_cdf"):
        assert getattr(law, name)(x).tolist() == getattr(Located(GAIN, 2.0), name)(x).tolist()
    assert float(law.mean) == float(GAIN.mean) + 2
    assert float(law.variance) == pytest.approx(float(GAIN.variance))
    assert law.icdf(at([0.1, 0.9])).tolist() == Located(GAIN, 2.0).icdf(at([0.1, 0.9])).tolist()
    assert bool((law.sample((1000,), generator=torch.Generator().manual_seed(0)) > 2).all())


def test_an_atom_at_zero_stands_between_the_sides():
    law = ZeroAtom(0.0, LAW)
    assert float(law.cdf(0.0)) == pytest.approx(0.5 + 0.5 * SHARE)
    assert float(law.cdf(-1e-12)) == pytest.approx(0.5 * SHARE)
    assert law.icdf(at([0.5 * SHARE + 1e-9, 0.5 + 0.5 * SHARE - 1e-9])).tolist() == [0.0, 0.0]
    assert float(law.icdf(0.01)) == pytest.approx(float(LAW.icdf(0.02)))


def test_gradients_reach_the_side_that_was_seen_and_only_that():
    logit = at(LOGIT).requires_grad_()
    loss_rates, gain_rates = at([0.2, 1.0, 5.0]).requires_grad_(), at([0.5, 3.0]).requires_grad_()
    law = TwoSided(logit, SeriesPhaseType([0.1, 0.3, 0.6], loss_rates), SeriesPhaseType([0.5, 0.5], gain_rates))
    law.log_prob(at([0.0, 2.0])).sum().backward()
    assert float(logit.grad) == pytest.approx(-2 * SHARE)
    assert bool((loss_rates.grad == 0).all())
    assert bool((gain_rates.grad != 0).all())
    for name in ("log_prob", "log_sf", "log_cdf"):
        x = at([-3.0, -0.2, 0.4, 6.0]).requires_grad_()
        assert torch.autograd.gradcheck(getattr(LAW, name), (x,))


def test_draws_follow_the_law():
    n = 20_000
    draws = LAW.sample((n,), generator=torch.Generator().manual_seed(3)).numpy()
    # fails once in 1e7 runs of other seeds
    assert stats.kstest(draws, lambda x: LAW.cdf(at(x)).numpy()).pvalue > 1e-7


def test_a_batch_is_its_laws_one_by_one():
    law = TwoSided(at([0.0, -math.inf, 1.0]), LOSS, GAIN).expand((2, 3))
    assert law.batch_shape == (2, 3)
    x = at([[-1.0, 1.0, -2.0], [3.0, 0.5, 0.0]])
    alone = [[TwoSided(logit, LOSS, GAIN) for logit in (0.0, -math.inf, 1.0)]] * 2
    expected = [[float(alone[i][j].log_prob(x[i, j])) for j in range(3)] for i in range(2)]
    assert np.allclose(law.log_prob(x).numpy(), expected, rtol=1e-14)


def test_impossible_odds_and_missing_points_are_named():
    with pytest.raises(ValueError, match="loss_logit has an entry that is NaN or inf"):
        TwoSided(math.inf, LOSS, GAIN)
    with pytest.raises(ValueError, match=r"^value\[1\] is missing"):
        LAW.log_prob(at([1.0, math.nan]))
    unchecked = SeriesPhaseType([1.0], [2.0], validate_args=False)
    law = TwoSided(0.0, unchecked, unchecked, validate_args=False)
    assert law.log_prob(at([1.0, math.nan])).isnan().tolist() == [False, True]


UNITS = {"origin": [0.0, 1.0], "scale": [0.01, 100.0], "loss_share": [0.4, 0.0], "n_phases": 3}


def test_a_decoder_starts_at_the_laws_of_its_sides():
    decoder = SignedDecoder(0, **UNITS, zero_share=[0.2, 0.0])
    gains, losses = (
        (at([[0.2, 0.3, 0.5]] * 2), at([[0.5, 1.0, 4.0]] * 2)),
        (at([[0.6, 0.3, 0.1]] * 2), at([[1.0, 2.0, 9.0]] * 2)),
    )
    decoder.set_start(*gains)
    decoder.set_losses(*losses)
    with torch.no_grad():
        law = decoder(torch.zeros(1, 0)).base_dist
    assert float(law.cdf(-1e-12)[0, 0]) == pytest.approx(0.8 * 0.4, rel=1e-6)
    for x in (0.005, 0.1):
        loss = SeriesPhaseType(losses[0][0], losses[1][0] / 0.01).log_sf(x)
        assert float(law.log_cdf(-x)[0, 0] - math.log(0.8 * 0.4)) == pytest.approx(float(loss), abs=1e-4)
    # a column without losses is that of a decoder of positive columns
    excess = SeriesPhaseType(gains[0][1], gains[1][1] / 100)
    assert float(law.log_sf(at([0.0, 301.0]))[0, 1]) == pytest.approx(float(excess.log_sf(300.0)), rel=1e-4)
    assert decoder.lower.tolist() == [-math.inf, 1.0]


def test_one_column_of_a_decoder_is_that_column_and_every_weight_has_its_gradient():
    decoder = SignedDecoder(2, **UNITS, zero_share=[0.2, 0.0], generator=torch.Generator().manual_seed(0))
    z = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    whole, x = decoder(z).base_dist, at([-0.02, 3.0])
    for j in range(2):
        assert torch.allclose(decoder.column(z, j).log_prob(x[j])[:, 0], whole.log_prob(x)[:, j], rtol=1e-9)
    decoder(z).log_prob(at([[-0.02, 3.0], [0.0, 2.0], [0.03, 9.0], [0.01, 1.5], [-0.1, 4.0]])).sum().backward()
    bias = decoder.network.head.bias.grad.view(2, decoder.width)
    assert bool(bias.isfinite().all())
    assert bool((bias[0] != 0).all())
    # a column without losses and zeros learns its gains alone
    assert bool((bias[1, :6] != 0).all())
    assert bool((bias[1, 6:] == 0).all())


def test_columns_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"^loss_share = \[1.0, 0.0\]; give one share of at least 0 and below 1"):
        SignedDecoder(2, **{**UNITS, "loss_share": [1.0, 0.0]})
    with pytest.raises(ValueError, match=r"^origin\[0\] = 3; a column with losses has its origin at 0$"):
        SignedDecoder(2, **{**UNITS, "origin": [3.0, 0.0]})
