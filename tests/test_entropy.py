"""Entropy: closed forms, an independent quadrature, gradients, and an error instead of a wrong number."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from distribution_cases import CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from phvae.distributions import SeriesPhaseType, mixture
from phvae.distributions import entropy as module

# the quadrature promises 1e-10 of 1 + |value|, the kernel 1e-10 per logarithm
CLOSE = 3e-10


@given(st.floats(-12, 12))
@settings(max_examples=15, deadline=None)
def test_the_exponential_law_has_one_minus_log_rate(exponent):
    expected = 1 - exponent * math.log(10)
    assert float(SeriesPhaseType([1.0], [10.0**exponent]).entropy()) == pytest.approx(
        expected, abs=CLOSE * (1 + abs(expected))
    )


@pytest.mark.parametrize("phases", [2, 7, 30])
def test_the_erlang_law_has_its_closed_form(phases):
    rate = 3.0
    law = SeriesPhaseType(torch.eye(phases, dtype=torch.float64)[0], torch.full((phases,), rate, dtype=torch.float64))
    expected = phases - math.log(rate) + special.gammaln(phases) + (1 - phases) * special.digamma(phases)
    assert float(law.entropy()) == pytest.approx(expected, abs=CLOSE * 10)


def test_distant_scales_add_the_entropy_of_the_choice():
    """Two exponentials 1e10 apart hardly overlap: H = -Σ p log p + Σ p H_k, to the overlap of about 1e-9."""
    p = 0.3
    law = mixture([p, 1 - p], [SeriesPhaseType([1.0], [1e10]), SeriesPhaseType([1.0], [1.0])])
    choice = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert float(law.entropy()) == pytest.approx(choice + p * (1 - math.log(1e10)) + (1 - p), abs=1e-7)


@pytest.mark.parametrize("name", ["three phases in a row", "cycle", "acyclic in parallel"])
def test_it_is_the_integral_that_other_quadrature_finds(name):
    law = CASES[name]()

    def integrand(x):
        log_f = law.log_prob(x).numpy()
        return -np.exp(log_f) * log_f

    edges = [0.0, *law.icdf([0.01, 0.3, 0.5]).tolist(), *law.isf([0.3, 0.25, 0.2, 1e-2, 1e-6, 1e-18]).tolist()]
    parts = [integrate.fixed_quad(integrand, a, b, n=30)[0] for a, b in pairwise(edges)]
    assert float(law.entropy()) == pytest.approx(sum(parts), abs=1e-8)


def test_scaling_shifts_it_by_the_logarithm():
    law = CASES["stiff series"]()
    shifted = law.scaled(100.0).entropy() - math.log(100)
    assert float(shifted) == pytest.approx(float(law.entropy()), abs=10 * CLOSE)


def test_gradients_are_those_of_the_closed_form():
    rate = torch.tensor([2.5], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(SeriesPhaseType([1.0], rate).entropy(), rate)
    assert float(slope) == pytest.approx(-1 / 2.5, abs=1e-8)


def test_gradients_are_those_of_differences():
    def value(rates):
        return SeriesPhaseType([0.3, 0.7], rates).entropy()

    rates = torch.tensor([0.5, 4.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(value, (rates,), eps=1e-4, atol=1e-6)


def test_a_row_that_is_no_law_is_nan_alone():
    law = SeriesPhaseType([[1.0], [1.0]], [[1.0], [-1.0]], validate_args=False)
    found = law.entropy()
    assert float(found[0]) == pytest.approx(1, abs=CLOSE)
    assert bool(found[1].isnan())


def test_an_integral_that_does_not_settle_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "_TOLERANCE", 0.0)
    monkeypatch.setattr(module, "_DOUBLINGS", 2)
    with pytest.raises(ArithmeticError, match=r"entropy: quadrature error .* after 256 points"):
        CASES["stiff series"]().entropy()


def test_the_perplexity_is_its_exponential():
    law = SeriesPhaseType([1.0], [1.0])
    assert float(law.perplexity()) == pytest.approx(math.e, rel=1e-9)
