"""An atom at zero: mass and density add up to one, quantiles stop at the atom, gradients stay clean."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate

from phvae.distributions import SeriesPhaseType
from phvae.distributions.classical import Gaussian, LogNormal, StudentT
from phvae.distributions.located import Located
from phvae.distributions.zero_atom import ZeroAtom

SERIES = SeriesPhaseType([0.1, 0.3, 0.6], [0.2, 1.0, 5.0])
CONTINUOUS = {
    "series": SERIES,
    "deductible": Located(SERIES, 1.5),
    "lognormal": LogNormal(0.3, 0.8),
    "gaussian": Gaussian(1.0, 2.0),
}
SHARE = 0.35
LOGIT = math.log(SHARE / (1 - SHARE))


@pytest.fixture(params=CONTINUOUS.values(), ids=CONTINUOUS.keys())
def continuous(request):
    return request.param


def at(values):
    return torch.as_tensor(values, dtype=torch.float64)


def test_the_mass_at_zero_and_the_density_elsewhere(continuous):
    law = ZeroAtom(LOGIT, continuous)
    assert float(law.log_prob(0.0).exp()) == pytest.approx(SHARE, rel=1e-12)
    x = at([1.75, 2.0, 30.0])
    assert torch.allclose(law.log_prob(x), math.log(1 - SHARE) + continuous.log_prob(x), rtol=1e-12)


def test_the_cdf_is_the_integral_of_the_density_and_jumps_by_the_mass(continuous):
    law = ZeroAtom(LOGIT, continuous)
    for low, high in ((0.1, 1.4), (1.6, 9.0)):
        area, _ = integrate.quad(lambda x: float(law.log_prob(x).exp()), low, high, epsabs=1e-11)
        assert float(law.cdf(high) - law.cdf(low)) == pytest.approx(area, abs=1e-9)
    # next to zero the continuous part changes by less than its density times the distance
    assert float(law.cdf(1e-9) - law.cdf(0.0)) < 1e-8
    before = 0.0 if continuous.support.check(at(-1.0)).logical_not() else float(continuous.cdf(-1e-12)) * (1 - SHARE)
    assert float(law.cdf(0.0)) == pytest.approx(before + SHARE, abs=1e-9)


def test_survival_and_cdf_are_complements(continuous):
    law, x = ZeroAtom(LOGIT, continuous), at([0.0, 1e-3, 1.0, 2.0, 20.0])
    assert torch.allclose(law.sf(x) + law.cdf(x), torch.ones(5, dtype=torch.float64), rtol=1e-12)
    assert torch.allclose(law.log_sf(x).exp(), law.sf(x))


def test_quantiles_are_the_generalised_inverse(continuous):
    law = ZeroAtom(LOGIT, continuous)
    levels = torch.linspace(0.001, 0.999, 201, dtype=torch.float64)
    points = law.icdf(levels)
    assert bool((points.diff() >= 0).all())
    assert bool((points == 0).any())
    # the smallest point with cdf >= level: reached there (to the accuracy of inversion), not reached just before
    assert bool((law.cdf(points) >= levels - 1e-8).all())
    before = points - 1e-5 * (1 + points.abs())
    below_support = ~continuous.support.check(before)
    reached = torch.where(below_support, 0.0, (1 - SHARE) * continuous.cdf(torch.where(below_support, points, before)))
    assert bool((reached + SHARE * (before >= 0) < levels + 1e-8).all())
    assert torch.allclose(law.isf(1 - levels), points, rtol=1e-7, atol=1e-9)


def test_the_ends_of_the_quantile_function():
    law = ZeroAtom(LOGIT, Located(SERIES, 1.5))
    assert law.icdf(at([0.0, SHARE - 1e-9])).tolist() == [0.0, 0.0]
    assert law.isf(at([1.0, 1 - SHARE + 1e-9])).tolist() == [0.0, 0.0]
    assert float(law.icdf(1.0)) == float(law.isf(0.0)) == float(law.cvar(1.0)) == math.inf
    # far in the tail only the survival function still tells levels apart
    assert float(law.sf(law.isf(1e-30))) == pytest.approx(1e-30, rel=1e-6)


def test_moments_are_those_of_the_mixture(continuous):
    law = ZeroAtom(LOGIT, continuous)
    mean, variance = float(continuous.mean), float(continuous.variance)
    assert float(law.mean) == pytest.approx((1 - SHARE) * mean)
    assert float(law.variance) == pytest.approx((1 - SHARE) * (variance + mean**2) - ((1 - SHARE) * mean) ** 2)


@pytest.mark.parametrize("level", [0.05, 0.3, 0.9])
def test_expected_shortfall_is_the_mean_of_the_quantiles_above(continuous, level):
    law = ZeroAtom(LOGIT, continuous)
    # with s = (1 - level) exp(-t) the integrand is smooth apart from the kinks at the atom
    kinks = [math.log((1 - level) / s) for s in (float(law.sf(0.0)), float(law.sf(0.0)) + SHARE) if s < 1 - level]
    nodes, weights = (at(values) for values in np.polynomial.legendre.leggauss(200))
    u = (nodes + 1) / 2
    total = 0.0
    for low, high in pairwise([0.0, *sorted(kinks), 40.0]):
        # 3u^2 - 2u^3 puts the nodes close to the kinks, where a lognormal quantile has infinite slope
        t = low + (high - low) * (3 - 2 * u) * u**2
        tail = (-t).exp()
        total += float((law.isf((1 - level) * tail) * tail * 6 * u * (1 - u) * weights).sum()) * (high - low) / 2
    # twice the nodes change the total by less than 1e-7
    assert float(law.cvar(level)) == pytest.approx(total, rel=1e-6)


def test_mean_excess_is_the_integral_of_the_survival_function(continuous):
    law = ZeroAtom(LOGIT, continuous)
    for threshold in (0.0, 2.0) if continuous is SERIES else (-1.0, 0.0, 2.0):
        area, _ = integrate.quad(lambda x: float(law.sf(x)), threshold, 200, points=[0.0, 1.5, 5.0], limit=300)
        assert float(law.mean_excess(threshold)) == pytest.approx(area / float(law.sf(threshold)), rel=1e-6)


def test_a_column_without_atom_is_the_continuous_law():
    logit = at([-math.inf, LOGIT])
    columns = Located(SeriesPhaseType([[0.4, 0.6]] * 2, [1.0, 2.0]), [0.0, 1.0])
    law, x = ZeroAtom(logit, columns), at([[0.0, 0.0], [0.5, 2.0], [-1.0, -1.0]])
    for name in ("log_prob", "log_sf", "log_cdf", "sf", "cdf"):
        assert torch.equal(getattr(law, name)(x)[:, 0], getattr(columns, name)(x)[:, 0]), name
    for name in ("icdf", "isf", "cvar"):
        # the search for a quantile goes on until all columns have arrived
        assert float(getattr(law, name)(0.7)[0]) == pytest.approx(float(getattr(columns, name)(0.7)[0]), rel=1e-9), name
    assert float(law.mean[0]) == float(columns.mean[0])
    assert float(law.variance[0]) == float(columns.variance[0])
    assert float(law.log_sf(x)[2, 1]) == pytest.approx(0.0, abs=1e-15)
    assert law.support.check(x).tolist() == [[True, True], [True, True], [False, False]]


def test_gradients_are_right_and_never_nan_beside_columns_without_atom():
    initial = at([[0.3, 0.7], [0.3, 0.7], [0.5, 0.5]])
    rates = at([[0.5, 2.0], [0.5, 2.0], [1.0, 1.5]])
    x = at([[0.0, 0.0, 0.0], [1.0, 3.0, 2.0], [0.0, 3.0, 0.0]])
    has_atom = torch.tensor([False, True, True])

    def total(raw, start, speed):
        logit = torch.where(has_atom, raw, -math.inf)
        law = ZeroAtom(logit, SeriesPhaseType._build(start, speed, validate_args=False), validate_args=False)
        return law.log_prob(x).sum() + law.log_sf(x).sum() + law.log_cdf(x)[1].sum()

    arguments = [value.clone().requires_grad_() for value in (at([5.0, -0.4, 1.2]), initial, rates)]
    assert torch.autograd.gradcheck(total, arguments, eps=1e-6, atol=1e-5)
    gradient = torch.autograd.grad(total(*arguments), arguments)
    assert all(part.isfinite().all() for part in gradient)
    assert float(gradient[0][0]) == 0.0


def test_an_infinite_density_at_zero_does_not_reach_the_gradient_of_the_atom():
    concentration = at(0.5).requires_grad_()
    logit = at(LOGIT).requires_grad_()
    law = ZeroAtom(logit, LogNormal(concentration, 1.0))
    law.log_prob(at([0.0, 0.0])).sum().backward()
    assert float(concentration.grad) == 0.0
    assert float(logit.grad) == pytest.approx(2 * (1 - SHARE))


def test_a_law_without_mean_keeps_the_gradient_of_the_atom_clean():
    degrees = at(0.5).requires_grad_()
    logit = at(LOGIT).requires_grad_()
    ZeroAtom(logit, StudentT(0.0, 1.0, degrees)).log_prob(at([0.0, 3.0])).sum().backward()
    assert bool(degrees.grad.isfinite())
    assert float(logit.grad) == pytest.approx((1 - SHARE) - SHARE)


def test_draws_have_the_share_of_zeros_and_the_law_of_the_rest(continuous):
    law, n = ZeroAtom(LOGIT, continuous), 20_000
    draws = law.sample((n,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws, law.sample((n,), generator=torch.Generator().manual_seed(0)))
    # a binomial share leaves mean +- 5 standard deviations less than once in a million
    assert abs(float((draws == 0).double().mean()) - SHARE) < 5 * math.sqrt(SHARE * (1 - SHARE) / n)
    rest = draws[draws != 0].sort().values
    steps = torch.arange(len(rest), dtype=torch.float64) / len(rest)
    distance = (continuous.cdf(rest) - steps).abs().max() + 1 / len(rest)
    # Dvoretzky-Kiefer-Wolfowitz: exceeded once in a million
    assert float(distance) < math.sqrt(math.log(2 / 1e-6) / (2 * len(rest))) + 1 / len(rest)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="give log odds < inf"):
        ZeroAtom(math.inf, SERIES)
    with pytest.raises(ValueError, match=r"value\[0\] is missing"):
        ZeroAtom(0.0, SERIES).log_prob(at([math.nan]))
    with pytest.raises(NotImplementedError, match="draws of ZeroAtom carry no gradients"):
        ZeroAtom(0.0, SERIES).rsample()
