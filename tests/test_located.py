"""A law moved to its origin: density and tails belong together, and nothing breaks below the origin."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate

from phvae.distributions import SeriesPhaseType
from phvae.distributions.classical import Gamma, LogNormal
from phvae.distributions.located import Located

ORIGIN = 12.5
EXCESSES = {
    "series": SeriesPhaseType([0.1, 0.3, 0.6], [0.2, 1.0, 5.0]),
    "lognormal": LogNormal(0.3, 0.8),
    "gamma": Gamma(2.5, 0.7),
}


@pytest.fixture(params=EXCESSES.values(), ids=EXCESSES.keys())
def excess(request):
    return request.param


def at(values):
    return torch.as_tensor(values, dtype=torch.float64)


def dkw(n):
    """Deviation of an empirical cdf that is exceeded once in a million (Dvoretzky-Kiefer-Wolfowitz, Massart)."""
    return math.sqrt(math.log(2 / 1e-6) / (2 * n))


def test_the_density_is_the_derivative_of_the_cdf(excess):
    law = Located(excess, ORIGIN)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    for low, high in ((0.2, 0.5), (0.5, 2.0), (2.0, 6.0)):
        points = at(ORIGIN + (high + low) / 2 + (high - low) / 2 * nodes)
        area = float((law.log_prob(points).exp() * at(weights)).sum()) * (high - low) / 2
        # Gauss-Legendre with 60 nodes is exact to rounding for functions this smooth; the laws are good to 1e-10
        assert float(law.cdf(ORIGIN + high) - law.cdf(ORIGIN + low)) == pytest.approx(area, abs=1e-9)


def test_moving_changes_the_argument_and_nothing_else(excess):
    law, x = Located(excess, ORIGIN), at([0.25, 1.0, 3.5, 40.0])
    for name in ("log_prob", "log_sf", "log_cdf", "sf", "cdf", "hazard", "mean_excess"):
        base = excess.log_prob(x).exp() / excess.sf(x) if name == "hazard" else getattr(excess, name)(x)
        assert torch.allclose(getattr(law, name)(ORIGIN + x), base, rtol=1e-12, atol=0), name
    assert torch.equal(law.icdf(0.3), ORIGIN + excess.icdf(0.3))
    assert torch.equal(law.isf(1e-8), ORIGIN + excess.isf(1e-8))
    assert torch.equal(law.cvar(0.9), ORIGIN + excess.cvar(0.9))
    assert float(law.mean) == ORIGIN + float(excess.mean)
    assert float(law.variance) == float(excess.variance)
    assert float(law.stddev) == pytest.approx(float(excess.variance) ** 0.5)


def test_expected_shortfall_is_the_mean_beyond_the_quantile(excess):
    law = Located(excess, ORIGIN)
    quantile = float(law.icdf(0.9))
    excess_area, error = integrate.quad(lambda x: float(law.sf(x)), quantile, quantile + 400, limit=200)
    assert float(law.cvar(0.9)) == pytest.approx(quantile + excess_area / 0.1, rel=1e-6)
    assert error < 1e-6


def test_below_the_origin_the_density_is_zero_and_exceeding_is_certain(excess):
    law, x = Located(excess, ORIGIN), at([-math.inf, -3.0, 0.0, 12.4])
    assert law.log_prob(x).eq(-math.inf).all()
    assert law.log_cdf(x).eq(-math.inf).all()
    assert law.log_sf(x).eq(0).all()
    assert law.sf(x).eq(1).all()
    assert law.hazard(x).eq(0).all()
    assert torch.allclose(law.mean_excess(x[1:]), law.mean - x[1:])
    assert not law.support.check(x).any()
    assert law.support.check(at([12.6, 1e9])).all()


def test_values_below_the_origin_leave_the_gradients_of_the_others_alone():
    x = at([3.0, 13.0, 20.0])
    gradients = []
    for values in (x, x[1:]):
        initial = at([[0.2, 0.8]]).requires_grad_()
        rates = at([[0.5, 2.0]]).requires_grad_()
        origin = at([ORIGIN]).requires_grad_()
        law = Located(SeriesPhaseType(initial, rates), origin)
        terms = law.log_prob(values), law.log_sf(values), law.log_cdf(values)
        sum(term[term > -math.inf].sum() for term in terms).backward()
        gradients.append([parameter.grad for parameter in (initial, rates, origin)])
    for with_low, without in zip(*gradients, strict=True):
        assert with_low.isfinite().all()
        assert torch.allclose(with_low, without, rtol=1e-12)


def test_draws_follow_the_law_and_the_generator(excess):
    law, n = Located(excess, ORIGIN), 20_000
    draws = law.sample((n,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws, law.sample((n,), generator=torch.Generator().manual_seed(0)))
    levels = law.cdf(draws.sort().values)
    steps = torch.arange(n, dtype=torch.float64) / n
    assert float(torch.maximum((levels - steps).abs(), (levels - steps - 1 / n).abs()).max()) < dkw(n)


def test_reparameterised_draws_move_with_the_origin():
    origin = at([1.0, 5.0]).requires_grad_()
    law = Located(SeriesPhaseType([[0.4, 0.6], [1.0, 0.0]], [1.0, 2.0]), origin)
    assert law.has_rsample
    law.rsample((3,)).sum().backward()
    assert origin.grad.tolist() == [3.0, 3.0]
    assert not Located(Gamma(1.0, 1.0), 0.0).has_rsample
    with pytest.raises(NotImplementedError, match="draws of Gamma carry no gradients"):
        Located(Gamma(1.0, 1.0), 0.0).rsample()


def test_origins_and_laws_broadcast_and_expand():
    law = Located(SeriesPhaseType([0.4, 0.6], [1.0, 2.0]), [0.0, 1.0, 2.0])
    assert law.batch_shape == (3,)
    assert law.mean.shape == law.sample().shape == (3,)
    assert law.log_prob(torch.full((4, 1), 2.5)).shape == (4, 3)
    wide = law.expand((2, 3))
    assert wide.batch_shape == (2, 3)
    assert torch.equal(wide.sf(2.5), law.sf(2.5).expand(2, 3))
    assert Located(SeriesPhaseType([[0.4, 0.6]] * 2, [1.0, 2.0]), 3.0).batch_shape == (2,)


def test_mistakes_are_named():
    base = SeriesPhaseType([1.0], [1.0])
    with pytest.raises(ValueError, match="origin = inf is not finite"):
        Located(base, math.inf)
    with pytest.raises(ValueError, match=r"value\[1\] is missing"):
        Located(base, 0.0).log_prob(at([1.0, math.nan]))
    with pytest.raises(ValueError, match=r"value = 1.5 is not a probability"):
        Located(base, 0.0).icdf(1.5)
    unchecked = SeriesPhaseType([1.0], [1.0], validate_args=False)
    assert Located(unchecked, 0.0, validate_args=False).log_prob(at([1.0, math.nan])).isnan().tolist() == [False, True]
