"""Sums, mixtures, minima and maxima: exact, for batches and both classes, at any depth."""

import math

import numpy as np
import pytest
import torch
from distribution_cases import CYCLE
from hypothesis import given, settings
from hypothesis import strategies as st

from phvae.distributions import PhaseType, SeriesPhaseType, mixture
from phvae.distributions.closure import add, maximum, minimum

X = torch.tensor([1e-6, 0.01, 0.3, 1.0, 4.0, 20.0, 300.0], dtype=torch.float64)
# two kernels of 1e-10 each
TWICE = 2e-10


def law_from(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 4))
    if rng.random() < 0.5:
        return SeriesPhaseType(rng.dirichlet(np.ones(m)), np.sort(10.0 ** rng.uniform(-1.5, 1.5, m)))
    jumps = rng.random((m, m)) * 10.0 ** rng.uniform(-1, 1, (m, 1))
    np.fill_diagonal(jumps, 0)
    return PhaseType(rng.dirichlet(np.ones(m)), jumps - np.diag(jumps.sum(1) + rng.random(m) + 0.1))


pairs = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)).map(lambda seeds: [*map(law_from, seeds)])


@settings(max_examples=20, deadline=None)
@given(pairs)
def test_the_transform_and_the_moments_of_a_sum_are_those_of_independent_times(laws):
    first, second = laws
    total = first + second
    assert isinstance(total, PhaseType)
    for s in (0.01, 1.0, 30.0):
        torch.testing.assert_close(total.laplace(s), first.laplace(s) * second.laplace(s), rtol=1e-13, atol=0)
    torch.testing.assert_close(total.mean, first.mean + second.mean, rtol=1e-13, atol=0)
    torch.testing.assert_close(total.variance, first.variance + second.variance, rtol=1e-12, atol=0)
    torch.testing.assert_close((second + first).log_sf(X), total.log_sf(X), rtol=TWICE, atol=TWICE)


@settings(max_examples=10, deadline=None)
@given(pairs)
def test_the_density_of_a_sum_is_the_convolution(laws):
    first, second = laws
    node, weight = (torch.as_tensor(v) for v in np.polynomial.legendre.leggauss(64))
    # panels that halve towards both ends resolve fast phases on either side
    cuts = torch.tensor([0, *(2.0 ** -torch.arange(14, 0, -1)), *(1 - 2.0 ** -torch.arange(2, 15)), 1]).double()
    half = cuts.diff() / 2
    t = (cuts[:-1] + half * (1 + node[:, None])).reshape(-1)
    share = (half * weight[:, None]).reshape(-1)
    for x in (0.3, 5.0):
        density = x * (share * (first.log_prob(x * t) + second.log_prob(x * (1 - t))).exp()).sum()
        torch.testing.assert_close((first + second).log_prob(x), density.log(), rtol=0, atol=1e-8)


@settings(max_examples=20, deadline=None)
@given(pairs)
def test_the_survival_of_the_minimum_is_the_product(laws):
    first, second = laws
    least = first.minimum(second)
    expected = first.log_sf(X) + second.log_sf(X)
    torch.testing.assert_close(least.log_sf(X), expected, rtol=TWICE, atol=TWICE)
    hazard = first.hazard(X) + second.hazard(X)
    torch.testing.assert_close(least.hazard(X), hazard, rtol=1e-8, atol=0)


@settings(max_examples=20, deadline=None)
@given(pairs)
def test_the_distribution_of_the_maximum_is_the_product(laws):
    first, second = laws
    most = first.maximum(second)
    torch.testing.assert_close(most.log_cdf(X), first.log_cdf(X) + second.log_cdf(X), rtol=TWICE, atol=TWICE)
    least = first.minimum(second)
    torch.testing.assert_close(most.mean + least.mean, first.mean + second.mean, rtol=1e-13, atol=0)


@settings(max_examples=20, deadline=None)
@given(pairs, st.floats(1e-6, 1 - 1e-6))
def test_a_mixture_weighs_densities_tails_and_moments(laws, p):
    first, second = laws
    both = mixture([p, 1 - p], laws)
    for name in ("log_prob", "log_sf", "log_cdf"):
        parts = torch.stack([getattr(first, name)(X) + math.log(p), getattr(second, name)(X) + math.log1p(-p)])
        torch.testing.assert_close(getattr(both, name)(X), parts.logsumexp(0), rtol=TWICE, atol=TWICE)
    for order in (1, 2, 3):
        expected = p * first.moment(order) + (1 - p) * second.moment(order)
        torch.testing.assert_close(both.moment(order), expected, rtol=1e-13, atol=0)


def test_the_operations_are_exact_far_beyond_the_doubles():
    first, second = PhaseType(*CYCLE), SeriesPhaseType([0.3, 0.7], [0.5, 4.0])
    x = 1e5
    least = float(first.minimum(second).log_sf(x))
    assert least == pytest.approx(float(first.log_sf(x) + second.log_sf(x)), rel=TWICE)
    # the slower law decides the far tail of a maximum; the faster one adds exp(-14122)
    assert float(first.maximum(second).log_sf(x)) == pytest.approx(float(second.log_sf(x)), rel=TWICE)
    assert float((first + second).tail_rate) == pytest.approx(0.5, rel=1e-14)
    assert float((first + second).log_sf(x)) < -0.499 * x


def test_batches_broadcast_in_every_operation():
    first = SeriesPhaseType(torch.tensor([[0.5, 0.5], [0.1, 0.9]]), torch.tensor([[1.0, 2.0], [0.3, 3.0]]))
    second = PhaseType(*CYCLE).expand((3, 1))
    for combine in (add, minimum, maximum, lambda a, b: mixture([0.25, 0.75], [a, b])):
        law = combine(first, second)
        assert law.batch_shape == (3, 2)
        for column in range(2):
            alone = combine(first[column], PhaseType(*CYCLE))
            torch.testing.assert_close(law.log_sf(1.5)[:, column], alone.log_sf(1.5).expand(3), rtol=1e-12, atol=1e-14)


def test_a_mixture_takes_weights_per_batch_row():
    laws = [SeriesPhaseType([1.0], [1.0]), SeriesPhaseType([1.0], [2.0]), SeriesPhaseType([1.0], [4.0])]
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]], dtype=torch.float64)
    both = mixture(weights, laws)
    torch.testing.assert_close(both.mean, torch.tensor([1.0, 0.5 + 0.125 + 0.0625], dtype=torch.float64))
    assert torch.equal(PhaseType.mixture(weights, laws).mean, both.mean)


def test_operations_are_differentiable_in_both_laws():
    def answers(first_rates, second_rates, p):
        first = SeriesPhaseType([0.4, 0.6], first_rates)
        second = SeriesPhaseType([1.0], second_rates)
        both = mixture(torch.stack([p, 1 - p]), [first, second])
        x = torch.tensor(0.7, dtype=torch.float64)
        combined = (first + second, first.minimum(second), first.maximum(second), both)
        return tuple(value for law in combined for value in (law.log_prob(x), law.mean))

    inputs = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([0.5, 2.0], [1.3], 0.3)]
    assert torch.autograd.gradcheck(answers, inputs)


def test_sums_of_exponentials_are_erlang_and_go_back_to_series_form():
    part = SeriesPhaseType([1.0], [3.0])
    total = (part + part + part).to_series()
    assert torch.equal(total.rates, torch.full((3,), 3.0, dtype=torch.float64))
    torch.testing.assert_close(total.initial, torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))


def test_anything_that_is_no_law_is_refused():
    law = SeriesPhaseType([1.0], [1.0])
    with pytest.raises(TypeError):
        law + 1.0
    with pytest.raises(ValueError, match="other is a float; give a PhaseType"):
        law.minimum(1.0)
    with pytest.raises(ValueError, match=r"laws\[1\] is a int; give a PhaseType"):
        mixture([0.5, 0.5], [law, 3])
    with pytest.raises(ValueError, match=r"weights has shape \(2,\) for 1 laws; give one weight per law"):
        mixture([0.5, 0.5], [law])
    with pytest.raises(ValueError, match=r"weights\[1\] = -0.5 is not a probability"):
        mixture([1.5, -0.5], [law, law])
    with pytest.raises(ValueError, match=r"sum of weights = 1.5 is not one"):
        mixture([1.0, 0.5], [law, law])
    with pytest.raises(ValueError, match=r"batch shapes \(2,\) and \(3,\), which do not broadcast"):
        law.expand((2,)) + law.expand((3,))
    with pytest.raises(ValueError, match=r"batch shapes \(2,\), \(3,\), which do not broadcast"):
        mixture([0.5, 0.5], [law.expand((2,)), law.expand((3,))])
