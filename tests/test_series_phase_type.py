"""The series law against ball arithmetic and closed forms: values, derivatives, deep tails, either precision."""

import math

import chain_oracle as oracle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from phvae.distributions import SeriesPhaseType

KERNEL = 1e-10  # promised for one logarithm, relative to max(1, |log|)


def drawn(seed, most=10):
    """A series law with rates over up to six decades, some of them equal, and a point of it at any depth."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, most + 1))
    rates = np.sort(10.0 ** rng.uniform(-3, 3, m)) if rng.random() < 0.5 else np.sort(1 + rng.integers(0, 3, m) * 1.0)
    if rng.random() < 0.3:
        rates = rates[0] * (1 + 1e-9 * np.arange(m))
    initial = rng.dirichlet(np.full(m, 0.5))
    return initial / initial.sum(), rates, rng


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_three_logarithms_are_right_at_any_depth(seed):
    initial, rates, rng = drawn(seed)
    law = SeriesPhaseType(initial, rates)
    weights, jumps, exits = oracle.arrays(law)
    for x in (10.0 ** rng.uniform(-12, 0) / rates[-1], float(law.mean) * 10.0 ** rng.uniform(-1, 1), 3e5 / rates[0]):
        if rates[-1] * x > 1e8:
            continue
        for method, truth in (
            (law.log_prob, oracle.log_density),
            (law.log_sf, oracle.log_survival),
            (law.log_cdf, oracle.log_cdf),
        ):
            expected = truth(weights, jumps, exits, x)
            assert float(method(x)) == pytest.approx(expected, abs=KERNEL * max(1, abs(expected)))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_gradients_by_initial_and_rates_are_right_to_seven_digits(seed):
    initial, rates, _ = drawn(seed, most=6)
    initial = 0.9 * initial + 0.1 / len(initial)
    start, speed = (torch.as_tensor(v).requires_grad_() for v in (initial, rates))
    law = SeriesPhaseType(start, speed)
    weights, jumps, exits = oracle.arrays(law)
    size = len(weights)
    for x in (0.1 * float(law.mean.detach()), 3 * float(law.mean.detach()), 1e3 / rates[0]):
        for method, target in ((law.log_prob, exits), (law.log_sf, [1.0] * size)):
            by_initial, by_rates = torch.autograd.grad(method(x), (start, speed), retain_graph=True)
            entry, flow = oracle.log_form_gradients(weights, jumps, exits, x, target)
            # the law divides by the sum of the weights
            entry = entry - (entry * law.initial.detach()).sum()
            chain = -flow.diagonal()
            chain[:-1] += flow.diagonal(1)
            if method == law.log_prob:
                # the last rate is also the exit rate of the density
                chain[-1] += 1 / rates[-1]
            torch.testing.assert_close(by_initial, entry, rtol=0, atol=1e-7 * float(entry.norm()) + 1e-12)
            torch.testing.assert_close(by_rates, chain, rtol=0, atol=1e-7 * float(chain.norm()))


def test_one_phase_is_the_exponential_law():
    law, x = SeriesPhaseType([1.0], [2.5]), torch.logspace(-8, 5, 30, dtype=torch.float64)
    torch.testing.assert_close(law.log_prob(x), math.log(2.5) - 2.5 * x, rtol=KERNEL, atol=KERNEL)
    torch.testing.assert_close(law.log_sf(x), -2.5 * x, rtol=KERNEL, atol=KERNEL)
    torch.testing.assert_close(law.log_cdf(x), torch.log(-torch.expm1(-2.5 * x)), rtol=KERNEL, atol=KERNEL)


@pytest.mark.parametrize("phases", [2, 5, 20, 64])
def test_equal_rates_entered_at_the_first_are_the_erlang_law(phases):
    rate = 3.0
    initial = torch.zeros(phases, dtype=torch.float64)
    initial[0] = 1
    law = SeriesPhaseType(initial, torch.full((phases,), rate, dtype=torch.float64))
    known = stats.gamma(phases, scale=1 / rate)
    x = known.isf([0.999, 0.5, 1e-3, 1e-12, 1e-100])
    for ours, theirs in ((law.log_prob, known.logpdf), (law.log_sf, known.logsf)):
        torch.testing.assert_close(ours(x), torch.as_tensor(theirs(x)), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(law.mean, torch.tensor(phases / rate, dtype=torch.float64))
    torch.testing.assert_close(law.variance, torch.tensor(phases / rate**2, dtype=torch.float64))
    order = 4
    expected = math.exp(math.lgamma(phases + order) - math.lgamma(phases)) / rate**order
    assert float(law.moment(order)) == pytest.approx(expected, rel=1e-12)


def test_two_rates_match_the_sum_of_exponentials():
    p, slow, fast = 0.3, 0.5, 4.0
    law = SeriesPhaseType([p, 1 - p], [slow, fast])
    x = torch.linspace(0.01, 30, 50, dtype=torch.float64)
    both = slow * fast / (fast - slow) * (torch.exp(-slow * x) - torch.exp(-fast * x))
    density = p * both + (1 - p) * fast * torch.exp(-fast * x)
    torch.testing.assert_close(law.log_prob(x), density.log(), rtol=KERNEL, atol=KERNEL)


def test_the_tail_is_exact_where_doubles_end():
    initial, rates = [0.5, 0.25, 0.25], [1e-3, 1.0, 1e3]
    law = SeriesPhaseType(initial, rates)
    jumps, exits = oracle.bidiagonal(rates)
    for x in (1e6, 1e8, 1e9):
        expected = oracle.log_survival(initial, jumps, exits, x)
        assert expected < -999
        assert float(law.log_sf(x)) == pytest.approx(expected, rel=KERNEL)
        assert float(law.log_prob(x)) == pytest.approx(oracle.log_density(initial, jumps, exits, x), rel=KERNEL)


def test_a_phase_that_is_never_entered_changes_nothing():
    with_it = SeriesPhaseType([0.0, 0.3, 0.7], [1e-6, 0.5, 4.0])
    without = SeriesPhaseType([0.3, 0.7], [0.5, 4.0])
    x = torch.logspace(-6, 5, 20, dtype=torch.float64)
    torch.testing.assert_close(with_it.log_prob(x), without.log_prob(x), rtol=2 * KERNEL, atol=2 * KERNEL)
    torch.testing.assert_close(with_it.log_sf(x), without.log_sf(x), rtol=2 * KERNEL, atol=2 * KERNEL)
    assert with_it.tail_rate == without.tail_rate
    assert with_it.mean_excess(torch.inf) == without.mean_excess(torch.inf)


def test_parameters_in_single_precision_are_computed_in_double():
    initial, rates = torch.softmax(torch.linspace(-1, 1, 6), 0), torch.cumsum(torch.linspace(0.1, 2, 6), 0)
    assert initial.dtype is torch.float32
    law = SeriesPhaseType(initial, rates)
    exact = initial.double() / initial.double().sum()
    same = SeriesPhaseType(exact, rates.double())
    x = torch.logspace(-3, 3, 9)
    assert law.log_prob(x).dtype is torch.float64
    assert torch.equal(law.log_prob(x), same.log_prob(x))
    assert float(law.initial.sum()) == pytest.approx(1, abs=1e-15)
    weights = initial.clone().requires_grad_()
    SeriesPhaseType(weights, rates).log_prob(x).sum().backward()
    assert weights.grad.dtype is torch.float32


def test_the_variance_keeps_its_digits_where_moments_cancel():
    """A thousand and one equal fast phases have variance n / rate^2, a thousandth of the squared mean."""
    n = 1001
    initial = torch.zeros(n, dtype=torch.float64)
    initial[0] = 1
    law = SeriesPhaseType(initial, torch.full((n,), 7.0, dtype=torch.float64))
    assert float(law.variance) == pytest.approx(n / 49, rel=n * 2.3e-16)


def test_hazard_and_mean_excess_stay_exact_in_the_far_tail():
    """In a two-phase law the limits are reached like exp(-(fast - slow) x): beyond x = 20 to the last digit."""
    law = SeriesPhaseType([0.3, 0.7], [0.5, 4.0])
    x = torch.tensor([30.0, 1e3, 2e6], dtype=torch.float64)
    # a ratio of two numbers whose logarithms carry the rounding of |log S| up to 1e6
    torch.testing.assert_close(law.hazard(x), torch.full_like(x, 0.5), rtol=1e-9, atol=0)
    torch.testing.assert_close(law.mean_excess(x), torch.full_like(x, 2.0), rtol=1e-9, atol=0)


def test_a_batch_of_different_laws_and_points_is_each_alone():
    rng = np.random.default_rng(5)
    initial, rates = rng.dirichlet(np.ones(4), 7), np.sort(rng.lognormal(0, 2, (7, 4)), -1)
    x = rng.lognormal(0, 2, (3, 7))
    together = SeriesPhaseType(initial, rates).log_prob(x)
    assert together.shape == (3, 7)
    for row in range(3):
        for place in range(7):
            assert torch.equal(
                together[row, place], SeriesPhaseType(initial[place], rates[place]).log_prob(x[row, place])
            )


def test_a_series_law_is_its_own_canonical_form():
    law = SeriesPhaseType([0.2, 0.3, 0.5], [0.5, 2.0, 2.0])
    again = law.to_phase_type().to_series()
    torch.testing.assert_close(again.initial, law.initial, rtol=1e-14, atol=0)
    assert torch.equal(again.rates, law.rates)


def test_the_fit_hangs_on_the_class():
    x = np.random.default_rng(1).exponential(2.0, 50)
    fit = SeriesPhaseType.fit(x, 1, np.ones(50), starts="geometric", tolerance=1e-5, max_iterations=500)
    assert float(fit.law.mean) == pytest.approx(x.mean())


def test_a_gradient_in_closed_form_says_that_it_cannot_be_differentiated_again():
    rates = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    value = SeriesPhaseType([0.3, 0.7], rates).log_prob(1.0)
    (slope,) = torch.autograd.grad(value, rates, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.sum().backward()


@pytest.mark.parametrize("answer", ["log_prob", "log_sf", "log_cdf"])
def test_a_second_derivative_through_a_transform_is_an_error_however_it_is_asked_for(answer):
    logits = torch.tensor([0.1, -0.3], dtype=torch.float64, requires_grad=True)
    steps = torch.tensor([0.2, 0.4], dtype=torch.float64, requires_grad=True)
    x = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    law = SeriesPhaseType(logits.softmax(-1), steps.exp().cumsum(-1))
    value = getattr(law, answer)(x)
    for first in (logits, steps, x):
        (slope,) = torch.autograd.grad(value, first, create_graph=True)
        for second in (logits, steps, x):
            with pytest.raises(RuntimeError, match="differentiate twice"):
                torch.autograd.grad(slope.sum(), second, retain_graph=True)


@pytest.mark.parametrize("validate", [True, False])
def test_a_law_answers_with_gradients_as_often_as_it_is_asked(validate):
    initial = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    rates = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    law = SeriesPhaseType(initial, rates, validate_args=validate)
    fresh = SeriesPhaseType(initial, rates, validate_args=validate)
    for answer in (lambda d: d.log_prob(1.0), lambda d: d.log_sf(2.0), lambda d: d.mean, lambda d: d.variance):
        again = torch.autograd.grad(answer(law), (initial, rates))
        alone = torch.autograd.grad(answer(SeriesPhaseType(initial, rates)), (initial, rates))
        assert all(torch.equal(one, other) for one, other in zip(again, alone, strict=True))
    assert torch.equal(law.initial, fresh.initial)


def test_parameters_have_second_derivatives_of_their_own():
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    torch.autograd.gradgradcheck(lambda w: SeriesPhaseType(w / w.sum(), [1.0, 2.0]).mean, (weights,))
