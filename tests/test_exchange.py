"""The way out: scipy's methods answer what the law answers, and arrays come back as the same law."""

import copy

import numpy as np
import pytest
import torch
from distribution_cases import CYCLE
from scipy import stats

from phvae.distributions import PhaseType, SeriesPhaseType

LAWS = {
    "series": lambda: SeriesPhaseType([0.3, 0.2, 0.5], [0.5, 2.0, 2.0]),
    "cycle": lambda: PhaseType(*CYCLE),
}


@pytest.fixture(params=LAWS, name="law")
def _law(request):
    return LAWS[request.param]()


def test_scipy_methods_answer_what_the_law_answers(law):
    frozen = law.to_scipy()
    x = np.array([[0.0, 0.01], [1.0, 37.0]])
    for theirs, ours in (
        (frozen.pdf, lambda v: law.log_prob(v).exp()),
        (frozen.logpdf, law.log_prob),
        (frozen.cdf, law.cdf),
        (frozen.sf, law.sf),
    ):
        np.testing.assert_allclose(theirs(x), ours(x).numpy(), rtol=1e-15)
    np.testing.assert_allclose(frozen.logsf(x[1]), law.log_sf(x[1]).numpy(), rtol=1e-15)
    np.testing.assert_allclose(frozen.logcdf(x[1]), law.log_cdf(x[1]).numpy(), rtol=1e-15)
    p = np.array([1e-6, 0.3, 0.999])
    np.testing.assert_allclose(frozen.ppf(p), law.icdf(p).numpy(), rtol=1e-15)
    np.testing.assert_allclose(frozen.isf(p), law.isf(p).numpy(), rtol=1e-15)
    assert frozen.isf(1e-300) == float(law.isf(1e-300))
    assert frozen.logsf(1e6) == float(law.log_sf(1e6))


def test_scipy_moments_are_exact(law):
    frozen = law.to_scipy()
    assert frozen.mean() == float(law.mean)
    assert frozen.var() == float(law.variance)
    assert frozen.std() == pytest.approx(float(law.stddev), rel=1e-15)
    assert frozen.moment(3) == pytest.approx(float(law.moment(3)), rel=1e-13)
    assert frozen.entropy() == pytest.approx(float(law.entropy()), rel=1e-15)
    assert frozen.median() == float(law.icdf(0.5))
    central = float(law.moment(3) - 3 * law.mean * law.moment(2) + 2 * law.mean**3)
    skew = frozen.stats(moments="s")
    assert float(skew) == pytest.approx(central / float(law.stddev) ** 3, rel=1e-10)


def test_scipy_knows_the_support(law):
    frozen = law.to_scipy()
    assert frozen.support() == (0.0, np.inf)
    assert frozen.pdf(-1.0) == 0
    assert frozen.cdf(-1.0) == 0
    assert frozen.sf(-1.0) == 1
    assert frozen.cdf(np.inf) == 1
    assert np.isnan(frozen.pdf(np.nan))
    assert frozen.ppf(0) == 0
    assert frozen.ppf(1) == np.inf
    assert np.isnan(frozen.ppf(1.5))


def test_scipy_draws_follow_the_law_and_the_seed(law):
    frozen = law.to_scipy()
    draws = frozen.rvs(size=(4000, 2), random_state=7)
    assert draws.shape == (4000, 2)
    assert np.array_equal(draws, frozen.rvs(size=(4000, 2), random_state=7))
    assert not np.array_equal(draws, frozen.rvs(size=(4000, 2), random_state=8))
    assert frozen.rvs(random_state=np.random.default_rng(0)) == frozen.rvs(random_state=np.random.default_rng(0))
    # Dvoretzky-Kiefer-Wolfowitz: exceeded with probability 2 exp(-2 n d^2) = 1e-7
    distance = stats.kstest(draws.reshape(-1), frozen.cdf).statistic
    assert distance < np.sqrt(np.log(2e7) / (2 * 8000))


def test_draws_leave_the_global_generators_alone(law):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    law.to_scipy().rvs(size=3, random_state=1)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_scipy_tools_take_the_frozen_law(law):
    frozen = law.to_scipy()
    assert frozen.expect(lambda x: x) == pytest.approx(float(law.mean), rel=1e-6)
    assert frozen.interval(0.5) == (frozen.ppf(0.25), frozen.ppf(0.75))
    assert copy.deepcopy(frozen).mean() == frozen.mean()


def test_a_law_that_is_being_trained_is_exported_by_value():
    rates = torch.tensor([0.5, 4.0], requires_grad=True)
    frozen = SeriesPhaseType([0.3, 0.7], rates).to_scipy()
    for value in (frozen.pdf(1.0), frozen.isf(0.1), frozen.mean(), frozen.rvs(random_state=0), frozen.entropy()):
        assert np.isfinite(value)


def test_a_batch_is_one_law_too_many_for_scipy():
    law = SeriesPhaseType([[0.3, 0.7], [0.5, 0.5]], [0.5, 4.0])
    with pytest.raises(ValueError, match=r"batch of shape \(2,\); scipy takes one law, index it first"):
        law.to_scipy()
    assert law[1].to_scipy().mean() == float(law.mean[1])


def test_arrays_come_back_as_the_same_law(law):
    initial, generator = law.to_arrays()
    assert initial.dtype == generator.dtype == np.float64
    m = len(initial)
    assert generator.shape == (m, m)
    again = PhaseType.from_arrays(initial, generator)
    x = torch.tensor([0.1, 2.0, 50.0], dtype=torch.float64)
    torch.testing.assert_close(again.log_prob(x), law.log_prob(x), rtol=2e-10, atol=2e-10)
    # the row vector that matrix languages keep
    assert torch.equal(PhaseType.from_arrays(initial[None], generator).mean, again.mean)


def test_arrays_are_copies(law):
    initial, generator = law.to_arrays()
    before = float(law.mean)
    initial[:], generator[:] = 0, 0
    assert float(law.mean) == before


def test_arrays_are_what_the_matrix_exponential_formula_expects(law):
    from scipy.linalg import expm

    initial, generator = law.to_arrays()
    x = 1.7
    density = initial @ expm(generator * x) @ -generator.sum(1)
    assert density == pytest.approx(float(law.log_prob(x).exp()), rel=1e-10)
