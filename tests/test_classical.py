"""The classical families agree with scipy in every function, deep into the tails, and draw what they promise."""

import math

import pytest
import torch
from scipy import integrate, stats

from phvae.distributions.classical import Gamma, Gaussian, LogNormal, StudentT

CASES = {
    "gaussian": (Gaussian(1.5, 2.0), stats.norm(1.5, 2.0)),
    "lognormal": (LogNormal(0.4, 0.8), stats.lognorm(0.8, scale=math.exp(0.4))),
    "gamma": (Gamma(2.5, 0.7), stats.gamma(2.5, scale=1 / 0.7)),
    "student": (StudentT(1.5, 2.0, 4.5), stats.t(4.5, 1.5, 2.0)),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    return request.param


def at(values):
    return torch.as_tensor(values, dtype=torch.float64)


def test_every_function_is_that_of_scipy(case):
    law, truth = case
    x = at(truth.ppf([1e-9, 1e-3, 0.2, 0.5, 0.9, 0.999999]))
    for name, other in (
        ("log_prob", "logpdf"),
        ("log_sf", "logsf"),
        ("log_cdf", "logcdf"),
        ("sf", "sf"),
        ("cdf", "cdf"),
    ):
        expected = getattr(truth, other)(x.numpy())
        # x itself is rounded: a relative error of 1e-15 in x moves the log tails by some 1e-13
        assert getattr(law, name)(x).numpy() == pytest.approx(expected, rel=1e-10, abs=1e-14), name
    levels = at([1e-12, 1e-3, 0.3, 0.5, 0.99])
    assert law.icdf(levels).numpy() == pytest.approx(truth.ppf(levels.numpy()), rel=1e-8)
    assert law.isf(levels).numpy() == pytest.approx(truth.isf(levels.numpy()), rel=1e-8)
    assert float(law.mean) == pytest.approx(truth.mean())
    assert float(law.variance) == pytest.approx(truth.var())
    assert float(law.hazard(x[3])) == pytest.approx(truth.pdf(x[3]) / truth.sf(x[3]))


def test_gaussian_tails_do_not_underflow():
    # log S(100) = -100^2/2 - log(100 sqrt(2 pi)) + log(1 - 1e-4 + 3e-8 - ...)
    expected = -5000 - math.log(100 * math.sqrt(2 * math.pi)) + math.log1p(-1e-4 + 3e-8)
    assert float(Gaussian(0.0, 1.0).log_sf(100.0)) == pytest.approx(expected, rel=1e-12)
    assert float(LogNormal(0.0, 1.0).log_sf(math.exp(50.0))) == pytest.approx(float(Gaussian(0.0, 1.0).log_sf(50.0)))


def test_mean_excess_and_shortfall_are_integrals_of_the_survival_function(case):
    law, truth = case
    for level in (0.3, 0.95):
        threshold = truth.ppf(level)
        area, _ = integrate.quad(truth.sf, threshold, math.inf, epsabs=1e-12)
        assert float(law.mean_excess(threshold)) == pytest.approx(area / truth.sf(threshold), rel=1e-6)
        assert float(law.cvar(level)) == pytest.approx(threshold + area / (1 - level), rel=1e-6)


def test_parameter_gradients_of_the_density_are_right(case):
    law, truth = case
    x = at(truth.ppf([0.01, 0.4, 0.9]))
    parameters = [getattr(law, name).clone().requires_grad_() for name in law.arg_constraints]
    assert torch.autograd.gradcheck(lambda *values: type(law)(*values, validate_args=False).log_prob(x), parameters)


@pytest.mark.parametrize("family", [LogNormal, Gamma])
def test_positive_families_end_at_zero(family):
    law, x = family(2.0, 1.0), at([-1.0, 0.0])
    parameters = [getattr(law, name).clone().requires_grad_() for name in law.arg_constraints]
    law = family(*parameters)
    assert law.log_prob(x).tolist() == [-math.inf, -math.inf]
    assert law.sf(x).tolist() == [1.0, 1.0]
    assert law.cdf(x).tolist() == [0.0, 0.0]
    torch.where(x < 0, law.log_prob(x), 0.0).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in parameters)


def test_the_gamma_density_at_zero_is_its_limit():
    assert float(Gamma(1.0, 2.0).log_prob(0.0)) == pytest.approx(math.log(2.0))
    assert float(Gamma(0.5, 2.0).log_prob(0.0)) == math.inf


def test_heavy_student_moments_are_infinite_or_missing():
    law = StudentT(0.0, 1.0, [0.8, 1.5, 3.0])
    assert law.mean.isnan().tolist() == [True, False, False]
    assert law.variance.isinf().tolist() == [False, True, False]
    assert law.mean_excess(1.0).isinf().tolist() == [True, False, False]


def test_draws_follow_the_law_and_the_generator(case):
    law, truth = case
    n = 20_000
    draws = law.sample((n,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws, law.sample((n,), generator=torch.Generator().manual_seed(0)))
    # Dvoretzky-Kiefer-Wolfowitz: exceeded once in a million
    assert stats.kstest(draws.numpy(), truth.cdf).statistic < math.sqrt(math.log(2 / 1e-6) / (2 * n))


def test_batches_expand_and_draw(case):
    law, _ = case
    wide = law.expand((3, 2))
    assert wide.batch_shape == (3, 2)
    assert wide.sample((4,)).shape == (4, 3, 2)
    assert torch.equal(wide.log_prob(1.5), law.log_prob(1.5).expand(3, 2))


def test_gaussian_and_lognormal_draws_carry_gradients():
    for family in (Gaussian, LogNormal):
        scale = at(0.5).requires_grad_()
        draw = family(0.2, scale).rsample((), torch.Generator().manual_seed(1))
        draw.backward()
        noise = torch.randn((), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        assert float(scale.grad) == pytest.approx(float(noise * (draw.detach() if family is LogNormal else 1.0)))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"scale = -1\.0 is not a positive finite number"):
        Gaussian(0.0, -1.0)
    with pytest.raises(ValueError, match="loc = nan is not finite"):
        LogNormal(math.nan, 1.0)
