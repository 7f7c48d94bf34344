"""Probabilities of intervals: against Arb, against each other, and their gradients against differences."""

import math

import numpy as np
import pytest
import torch
from arb_reference import log_interval_reference

from phvae.distributions import SeriesPhaseType
from phvae.distributions.classical import Gamma, Gaussian, LogNormal, StudentT
from phvae.distributions.located import Located
from phvae.distributions.matrix_pareto import MatrixPareto
from phvae.distributions.matrix_weibull import MatrixWeibull
from phvae.distributions.two_sided import TwoSided
from phvae.distributions.zero_atom import ZeroAtom

INF = math.inf
# The kernels are right to 1e-10 of max(1, |log|), and a difference of tails loses at most a factor of 1 / FLAT = 10.
TOLERANCE = 1e-9

CHAINS = {
    "exponential": ([1.0], [0.5]),
    "erlang": ([1.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]),
    "wide": ([0.3, 0.2, 0.2, 0.2, 0.1], [0.01, 0.1, 1.0, 10.0, 100.0]),
}
INTERVALS = [
    (0.001, 0.0011), (0.5, 1.5), (1.5, 2.5), (16.5, 17.5), (99.5, 100.5), (999.5, 1000.5), (0.0, 0.5), (1e-6, 3.0),
    (2.0, 2.0 + 1e-9), (5.0, 400.0), (37.0, 37.001),
]  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS)
def test_intervals_agree_with_arb_near_zero_far_out_and_however_narrow(chain):
    initial, rates = CHAINS[chain]
    lower, upper = (torch.tensor(ends, dtype=torch.float64) for ends in zip(*INTERVALS, strict=True))
    computed = SeriesPhaseType(initial, rates).log_interval(lower, upper).numpy()
    exact = np.array([log_interval_reference(a, b, initial, rates) for a, b in INTERVALS])
    np.testing.assert_array_less(np.abs(computed - exact) / np.maximum(1, np.abs(exact)), TOLERANCE)


def test_an_exponential_law_has_the_closed_form_far_beyond_the_underflow_of_its_tail():
    lower = torch.tensor([10.0, 1e3, 1e5, 1e6], dtype=torch.float64)
    for width in (1.0, 1e-3):
        computed = SeriesPhaseType([1.0], [0.7]).log_interval(lower, lower + width)
        width_as_it_is = lower + width - lower
        exact = -0.7 * lower + torch.log(-torch.expm1(-0.7 * width_as_it_is))
        torch.testing.assert_close(computed, exact, rtol=1e-12, atol=1e-11)


def _laws():
    chain = SeriesPhaseType([0.4, 0.6], [0.5, 3.0])
    return {
        "series": chain,
        "general": chain.to_phase_type(),
        "located": Located(chain, 0.25),
        "atom": ZeroAtom(-0.3, Located(chain, 0.25)),
        "weibull": MatrixWeibull(chain, 0.7),
        "pareto": MatrixPareto(chain, 1.5),
        "two sides": TwoSided(0.2, SeriesPhaseType([1.0], [2.0]), chain),
        "gaussian": Gaussian(1.0, 2.0),
        "lognormal": LogNormal(0.3, 1.1),
        "gamma": Gamma(1.7, 0.6),
        "student": StudentT(0.5, 1.0, 3.0),
    }


@pytest.mark.parametrize("name", _laws())
def test_an_interval_has_the_difference_of_the_distribution_function_and_open_ones_a_tail(name):
    law = _laws()[name]
    ends = [-INF, -2.0, -0.5, 0.1, 0.3, 0.9, 4.0, INF]
    if name in ("weibull", "pareto", "lognormal", "gamma", "series", "general"):
        ends = [-INF, *(end for end in ends if end > 0)]

    def below(end):
        return 0.0 if end == -INF else 1.0 if end == INF else float(law.cdf(end))

    for i, lower in enumerate(ends):
        for upper in ends[i + 1 :]:
            log_mass = float(law.log_interval(lower, upper))
            assert math.exp(log_mass) == pytest.approx(below(upper) - below(lower), rel=1e-9, abs=1e-14)
            if lower == -INF and upper == INF:
                assert log_mass == 0.0
            elif upper == INF:
                assert log_mass == pytest.approx(float(law.log_sf(lower)), abs=1e-13)


def test_gradients_of_intervals_are_those_of_differences():
    initial, rates = (torch.tensor(part, dtype=torch.float64) for part in CHAINS["wide"])
    logits, steps = initial.log(), rates.diff(prepend=torch.zeros(1, dtype=torch.float64)).log()
    lower = torch.tensor([0.001, 0.5, 16.5, 99.5, -INF, 5.0, 3.0, -INF], dtype=torch.float64)
    upper = torch.tensor([0.0011, 1.5, 17.5, 100.5, 0.5, 400.0, INF, INF], dtype=torch.float64)

    def masses(point, increments):
        return SeriesPhaseType(point.softmax(-1), increments.exp().cumsum(-1)).log_interval(lower, upper)

    inputs = (logits.requires_grad_(), steps.requires_grad_())
    # a central difference with step 1e-5 has an error of 1e-10 · third derivative + 1e-13 / 1e-5
    assert torch.autograd.gradcheck(masses, inputs, eps=1e-5, atol=1e-6, rtol=1e-6)


def test_an_interval_without_length_or_below_the_law_is_impossible():
    law = Located(SeriesPhaseType([1.0], [2.0]), 3.0)
    lower, upper = torch.tensor([4.0, 1.0, -INF]), torch.tensor([4.0, 2.0, 3.0])
    assert law.log_interval(lower, upper).tolist() == [-INF] * 3


def test_an_atom_is_in_an_interval_that_begins_below_zero_and_in_no_other():
    law = ZeroAtom(0.0, Located(SeriesPhaseType([1.0], [1.0]), 1.0))
    lower = torch.tensor([-INF, 0.0, -INF, 0.0], dtype=torch.float64)
    upper = torch.tensor([0.5, 2.0, 2.0, INF], dtype=torch.float64)
    body = -math.expm1(-1.0) / 2
    torch.testing.assert_close(
        law.log_interval(lower, upper).exp(), torch.tensor([0.5, body, 0.5 + body, 0.5], dtype=torch.float64)
    )
