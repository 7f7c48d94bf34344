"""Quantiles: they undo the tails to nine digits at any depth, and carry the gradients of the implicit function."""

import math

import numpy as np
import pytest
import torch
from distribution_cases import CASES, CYCLE
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from phvae.distributions import PhaseType, SeriesPhaseType
from phvae.distributions.quantiles import invert

DEEP = torch.tensor([1e-300, 1e-200, 1e-100, 1e-30, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999], dtype=torch.float64)


@pytest.fixture(params=CASES, name="law")
def _law(request):
    return CASES[request.param]()


def leading(values, law):
    return values.reshape(-1, *(1,) * len(law.batch_shape))


def slack(law, x, tail):
    """1e-9, and what the promised error of one logarithm, 1e-10, moves the point by: 1e-10 · tail / (x f).

    The second part matters only where the tail probability is all but one and does not determine the point.
    """
    return 1e-9 + 1e-10 * (tail - x.log() - law.log_prob(x)).exp()


def test_the_upper_quantile_undoes_the_survival(law):
    spread = torch.logspace(-3, 1.5, 12, dtype=torch.float64)
    x = leading(spread, law) * law.mean
    x = torch.where(law.log_sf(x) > -690, x, law.mean)
    again = law.isf(law.sf(x))
    assert bool(((again / x - 1).abs() <= slack(law, x, law.log_sf(x))).all())


def test_the_quantile_undoes_the_cdf(law):
    spread = torch.logspace(-9, 0.3, 12, dtype=torch.float64)
    x = leading(spread, law) * law.mean
    x = torch.where(law.log_cdf(x) > -690, x, law.mean)
    again = law.icdf(law.cdf(x))
    assert bool(((again / x - 1).abs() <= slack(law, x, law.log_cdf(x))).all())


def test_tails_of_quantiles_are_the_levels_down_to_1e_300(law):
    p = leading(DEEP, law)
    for point, tail in ((law.isf(p), law.log_sf), (law.icdf(p), law.log_cdf)):
        assert bool((point > 0).all() & point.isfinite().all())
        # a log tail moves by d log x = 1e-9 times its own slope, at most |log p| times the phases here
        assert bool(((tail(point) - p.log()).abs() <= 1e-9 * (1 + p.log().abs())).all())


def test_both_quantiles_agree_where_both_levels_are_exact(law):
    p = leading(torch.tensor([0.125, 0.25, 0.5, 0.75], dtype=torch.float64), law)
    torch.testing.assert_close(law.isf(1 - p), law.icdf(p), rtol=1e-9, atol=0)


def test_quantiles_grow_with_the_level(law):
    p = leading(torch.linspace(1e-6, 1 - 1e-6, 31, dtype=torch.float64), law)
    assert bool((law.icdf(p).diff(dim=0) > 0).all())
    assert bool((law.isf(p).diff(dim=0) < 0).all())


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(-300, -1e-3))
def test_any_series_law_is_inverted_at_any_level(m, seed, exponent):
    rng = np.random.default_rng(seed)
    law = SeriesPhaseType(rng.dirichlet(np.full(m, 0.3)), np.sort(10.0 ** rng.uniform(-4, 4, m)))
    level = 10.0**exponent
    x = law.isf(level)
    assert float(law.log_sf(x)) == pytest.approx(math.log(level), abs=1e-9 * (1 - math.log(level)))
    x = law.icdf(level)
    assert float(law.log_cdf(x)) == pytest.approx(math.log(level), abs=1e-9 * (1 - math.log(level)))


def test_erlang_quantiles_match_the_gamma_law():
    phases, rate = 8, 2.0
    law = SeriesPhaseType(torch.eye(phases, dtype=torch.float64)[0], torch.full((phases,), rate, dtype=torch.float64))
    known = stats.gamma(phases, scale=1 / rate)
    p = DEEP[3:].numpy()
    torch.testing.assert_close(law.isf(p), torch.as_tensor(known.isf(p)), rtol=1e-9, atol=0)
    torch.testing.assert_close(law.icdf(p), torch.as_tensor(known.ppf(p)), rtol=1e-9, atol=0)


def test_exponential_quantiles_are_logarithms_to_the_last_digits():
    law = SeriesPhaseType([1.0], [0.5])
    torch.testing.assert_close(law.isf(DEEP), -2 * DEEP.log(), rtol=1e-12, atol=0)
    torch.testing.assert_close(law.icdf(DEEP), -2 * torch.log1p(-DEEP), rtol=1e-12, atol=0)


def test_the_far_scales_of_a_stiff_law_are_found():
    """Half of the mass within 1e-12, half beyond 1e12: the search crosses 24 decades of almost flat survival."""
    law = PhaseType([0.5, 0.5], [[-1e12, 0.0], [0.0, -1e-12]])
    p = torch.tensor([0.9, 0.6, 0.4, 0.1], dtype=torch.float64)
    expected = torch.where(p > 0.5, -torch.log(2 * p - 1) * 1e-12, -torch.log(2 * p) * 1e12)
    torch.testing.assert_close(law.isf(p), expected, rtol=1e-9, atol=0)
    assert 1e-11 < float(law.isf(0.5)) < 1e1


@pytest.mark.parametrize("method", ["icdf", "isf", "cvar"])
@pytest.mark.parametrize("level", [1e-8, 0.3, 0.7, 1 - 1e-5])
def test_gradients_of_series_quantiles_are_those_of_their_differences(method, level):
    parameters = [torch.tensor(v, dtype=torch.float64) for v in ([0.3, 0.5, 0.2], [0.5, 2.0, 4.0], level)]
    _check_gradients(lambda a, r, p: getattr(SeriesPhaseType(a / a.sum(), r), method)(p), parameters)


@pytest.mark.parametrize(("method", "level"), [("icdf", 1e-4), ("isf", 0.7)])
def test_gradients_of_general_quantiles_are_those_of_their_differences(method, level):
    matrix = torch.tensor(CYCLE[1], dtype=torch.float64) - 0.1 * torch.eye(3, dtype=torch.float64)
    parameters = [torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64), matrix, torch.tensor(level, dtype=torch.float64)]
    _check_gradients(lambda a, g, p: getattr(PhaseType(a / a.sum(), g), method)(p), parameters)


def _check_gradients(function, parameters):
    """Richardson differences: error h^4 relative from the rule and 1e-11 / h from the quantile itself."""
    leaves = [value.clone().requires_grad_() for value in parameters]
    slopes = torch.autograd.grad(function(*leaves), leaves)
    for place, (value, slope) in enumerate(zip(parameters, slopes, strict=True)):
        for index in np.ndindex(*value.shape):
            h = 1e-3 * min(abs(float(value[index])), 1 - float(value)) if value.ndim == 0 else 1e-3 * abs(value[index])
            difference = 0.0
            for count, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
                moved = [v.clone() for v in parameters]
                moved[place][index] += count * h
                difference += weight * float(function(*moved))
            numeric = difference / (12 * float(h))
            size = max(float(slope.abs().max()), float(function(*parameters)) / float(value.abs().max()))
            assert float(slope[index]) == pytest.approx(numeric, abs=1e-7 * size)


def test_the_gradient_by_the_level_is_one_over_the_density():
    law = SeriesPhaseType([0.3, 0.7], [0.5, 4.0])
    p = DEEP.clone().requires_grad_()
    for method, sign in ((law.isf, -1), (law.icdf, 1)):
        x = method(p)
        (slope,) = torch.autograd.grad(x.sum(), p)
        # compared as logarithms: at 1e-300 the slope itself is 1e300
        torch.testing.assert_close((sign * slope).log(), -law.log_prob(x.detach()), rtol=0, atol=1e-8)


def test_quantiles_of_a_batch_have_gradients_row_by_row():
    rates = torch.tensor([[1.0, 2.0], [0.1, 30.0]], dtype=torch.float64, requires_grad=True)
    law = SeriesPhaseType([0.5, 0.5], rates)
    (slope,) = torch.autograd.grad(law.isf([0.01, 0.5])[0], rates)
    assert bool((slope[0] < 0).all())
    assert torch.equal(slope[1], torch.zeros(2, dtype=torch.float64))


def test_the_ends_have_no_gradient_and_spoil_none():
    rates = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    law = SeriesPhaseType([0.5, 0.5], rates)
    x = law.isf([0.0, 0.3, 1.0])
    assert x[[0, 2]].tolist() == [math.inf, 0.0]
    (slope,) = torch.autograd.grad(x[1], rates, retain_graph=True)
    (alone,) = torch.autograd.grad(law.isf(0.3), rates)
    torch.testing.assert_close(slope, alone, rtol=1e-12, atol=0)


def test_a_row_without_an_answer_does_not_hold_up_the_others():
    law = SeriesPhaseType([[0.5, 0.5], [0.5, 0.6], [0.5, 0.5]], [1.0, 2.0], validate_args=False)
    found = law.isf([0.1, 0.1, 1.5])
    assert found.isnan().tolist() == [False, True, True]
    assert float(found[0]) == pytest.approx(float(SeriesPhaseType([0.5, 0.5], [1.0, 2.0]).isf(0.1)), rel=1e-12)


def test_levels_are_matched_on_the_side_that_has_digits():
    """The pair (log S, log F) names the point; only the smaller of the two is used."""
    law = SeriesPhaseType([1.0], [1.0])
    tiny = torch.tensor(-1e-30, dtype=torch.float64)
    low = invert(law, tiny, torch.tensor(math.log(1e-30), dtype=torch.float64))
    assert float(low) == pytest.approx(1e-30, rel=1e-12)
