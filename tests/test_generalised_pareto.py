"""The generalised Pareto law agrees with scipy, and its fit finds the parameters with honest errors."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from phvae.distributions.generalised_pareto import (
    GeneralisedPareto,
    _curvature,
    _log_likelihood,
    _slope,
    fit_generalised_pareto,
)

SHAPES = (-0.7, -0.2, -1e-9, 0.0, 1e-12, 0.1, 0.45, 0.9, 3.0)


def at(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_function_is_that_of_scipy(shape):
    law, truth = GeneralisedPareto(shape, 2.5), stats.genpareto(shape, scale=2.5)
    levels = at(1e-12, 1e-6, 0.01, 0.3, 0.9, 1 - 1e-9)
    x = law.isf(levels)
    # scipy's own quantiles lose digits at tiny shapes, where the law is the exponential one
    expected = truth.isf(levels.numpy()) if abs(shape) > 1e-6 or shape == 0 else -2.5 * levels.log().numpy()
    assert x.numpy() == pytest.approx(expected, rel=1e-6)
    # near a finite upper end, or far out, a rounding of x moves the log survival by its relative slope
    assert law.log_sf(x).numpy() == pytest.approx(levels.log().numpy(), rel=1e-5 if shape < -0.5 else 1e-9, abs=1e-15)
    assert law.log_prob(x[1:]).numpy() == pytest.approx(truth.logpdf(x[1:].numpy()), rel=1e-7)
    assert law.log_cdf(x).numpy() == pytest.approx(torch.log1p(-levels).numpy(), rel=1e-6)
    assert law.icdf(levels).numpy() == pytest.approx(law.isf(1 - levels).numpy(), rel=1e-6)


def test_tails_go_far_below_the_smallest_number():
    assert float(GeneralisedPareto(0.5, 1.0).log_sf(1e300)) == pytest.approx(-2 * math.log(5e299))
    assert float(GeneralisedPareto(0.0, 1.0).log_sf(1e6)) == -1e6


def test_outside_the_support_there_is_no_density_and_no_tail():
    law = GeneralisedPareto(-0.5, 2.0)
    assert law.upper == 4
    assert law.log_prob(at(-1.0, 4.5)).tolist() == [-math.inf, -math.inf]
    assert law.log_sf(at(-1.0, 4.0, 5.0)).tolist() == [0.0, -math.inf, -math.inf]
    assert law.log_excess(at(4.0, 9.0)).tolist() == [-math.inf, -math.inf]
    assert float(law.isf(0.0)) == 4


@pytest.mark.parametrize("shape", [-0.4, 0.0, 0.2, 0.45])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("threshold", [-3.0, 0.0, 2.0])
def test_stop_loss_moments_are_integrals(shape, order, threshold):
    law, truth = GeneralisedPareto(shape, 1.5), stats.genpareto(shape, scale=1.5)
    end = truth.support()[1]

    def integrand(x):
        return order * (x - threshold) ** (order - 1) * truth.sf(x)

    area = integrate.quad(integrand, threshold, min(end, 50.0), limit=200)[0]
    if end > 50:
        area += integrate.quad(integrand, 50.0, end, limit=200)[0]
    assert float(law.log_excess(threshold, order).exp()) == pytest.approx(area, rel=1e-6)


def test_moments_are_those_of_scipy_or_infinite():
    law = GeneralisedPareto(at(-0.3, 0.3, 0.5, 1.0), 2.0)
    assert law.mean.tolist() == pytest.approx([2 / 1.3, 2 / 0.7, 4.0, math.inf])
    assert law.variance.tolist() == pytest.approx([*stats.genpareto([-0.3, 0.3], scale=2).var(), math.inf, math.inf])
    assert float(law.expand((2, 4)).mean[1, 0]) == pytest.approx(2 / 1.3)


def test_an_infinite_moment_is_one_clear_error():
    with pytest.raises(ValueError, match=r"shape = 1\.2 gives no finite moment of order 1; .* ask for quantiles"):
        GeneralisedPareto(1.2, 1.0).mean_excess(1.0)
    with pytest.raises(ValueError, match="no finite moment of order 2"):
        GeneralisedPareto(0.5, 1.0).log_excess(1.0, 2)
    assert float(GeneralisedPareto(1.2, 1.0, validate_args=False).log_excess(1.0)) == math.inf
    with pytest.raises(ValueError, match="order = 3; give 1 or 2"):
        GeneralisedPareto(0.1, 1.0).log_excess(1.0, 3)
    with pytest.raises(ValueError, match="scale"):
        GeneralisedPareto(0.1, -1.0)


def test_draws_follow_the_law():
    draws = GeneralisedPareto(0.4, 3.0).sample((20_000,), generator=torch.Generator().manual_seed(0))
    # fixed seed; a p-value this small has probability 1e-6
    assert stats.kstest(draws.numpy(), stats.genpareto(0.4, scale=3.0).cdf).pvalue > 1e-6


@pytest.mark.parametrize("shape", [-0.3, 0.0, 1e-7, 0.02, 0.5, 2.0])
def test_derivatives_of_the_likelihood_agree_with_differences(shape):
    x = stats.genpareto(shape, scale=2.0).isf((np.arange(50) + 0.5) / 50)
    start, h = np.array([shape, math.log(2.2)]), 1e-5

    def value(point):
        return _log_likelihood(x, point[0], math.exp(point[1]))

    def slope(point):
        return _slope(x, point[0], math.exp(point[1]))

    by_value = [(value(start + e) - value(start - e)) / (2 * h) for e in h * np.eye(2)]
    by_slope = [(slope(start + e) - slope(start - e)) / (2 * h) for e in h * np.eye(2)]
    assert slope(start) == pytest.approx(by_value, abs=1e-4)
    np.testing.assert_allclose(_curvature(x, shape, 2.2), by_slope, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("shape", [-0.4, -0.1, 0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e12])
def test_the_fit_is_the_highest_point_and_free_of_units(shape, unit):
    x = unit * stats.genpareto(shape, scale=2.0).rvs(300, random_state=1)
    fit = fit_generalised_pareto(x)
    assert abs(fit.shape - shape) < 5 * fit.shape_error
    assert fit.shape == pytest.approx(fit_generalised_pareto(x / unit).shape, rel=1e-6, abs=1e-9)
    assert fit.log_likelihood == pytest.approx(float(fit.law.log_prob(x).sum()), rel=1e-9)
    assert np.abs(_slope(x, fit.shape, fit.scale)).max() < 1e-5
    for other, scale in ((fit.shape + 0.02, 1), (fit.shape - 0.02, 1), (fit.shape, 1.02), (fit.shape, 0.98)):
        assert _log_likelihood(x, other, fit.scale * scale) < fit.log_likelihood


def test_standard_errors_are_those_of_theory_and_intervals_cover():
    covered, errors = [], []
    for seed in range(60):
        fit = fit_generalised_pareto(stats.genpareto(0.3, scale=1.0).rvs(200, random_state=seed))
        low, high = fit.shape_interval()
        covered.append(low < 0.3 < high)
        errors.append(fit.shape_error)
    # asymptotically (1 + shape) / sqrt(n)
    assert np.mean(errors) == pytest.approx(1.3 / math.sqrt(200), rel=0.05)
    # 95% nominal: 45 of 60 or fewer have probability 2e-7
    assert sum(covered) > 45


def test_quantile_intervals_hold_the_estimate_and_widen_outward():
    fit = fit_generalised_pareto(stats.genpareto(0.3, scale=1.0).rvs(500, random_state=3))
    widths = []
    for probability in (0.1, 0.01, 1e-4):
        low, high = fit.quantile_interval(probability)
        truth = stats.genpareto(0.3).isf(probability)
        assert low < fit.quantile(probability) < high
        assert low < truth < high
        widths.append(math.log(high / low))
    assert widths == sorted(widths)


def test_a_uniform_sample_ends_at_its_largest_value():
    fit = fit_generalised_pareto((np.arange(20) + 1.0) ** 0.2)
    assert (fit.shape, fit.scale) == (-1.0, pytest.approx(20**0.2))
    assert math.isnan(fit.shape_error)


@pytest.mark.parametrize(
    ("excess", "message"),
    [([1.0, 0.0], r"excess\[1\] is 0"), ([1.0, math.nan], r"excess\[1\] is nan"), ([2.0, 2.0], "1 different values")],
)
def test_bad_excesses_are_one_clear_error(excess, message):
    with pytest.raises(ValueError, match=message):
        fit_generalised_pareto(excess)
