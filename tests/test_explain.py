"""Where an observation spent its time: the posterior of the chain against integrals, closed forms and simulation."""

import chain_oracle as oracle
import numpy as np
import pytest
import torch
from distribution_cases import CASES, CYCLE

from phvae.distributions import PhasePosterior, PhaseType, SeriesPhaseType


@pytest.fixture(params=CASES, name="law")
def _law(request):
    return CASES[request.param]()


def levels(law):
    p = torch.tensor([0.999, 0.5, 0.01, 1e-12], dtype=torch.float64)
    return law.isf(p.reshape(-1, *(1,) * len(law.batch_shape)))


def test_entry_probabilities_add_up_and_times_fill_the_observation(law):
    x = levels(law)
    found = law.phase_posterior(x)
    assert isinstance(found, PhasePosterior)
    assert found.entry.shape == found.time.shape == (*x.shape, law.initial.shape[-1])
    assert bool((found.entry >= 0).all() & (found.time >= 0).all())
    torch.testing.assert_close(found.entry.sum(-1), torch.ones_like(x), rtol=1e-9, atol=0)
    torch.testing.assert_close(found.time.sum(-1), x, rtol=1e-9, atol=0)


def test_times_given_an_exceedance_fill_what_is_still_expected(law):
    x = levels(law)
    found = law.phase_posterior(x, "exceeds")
    torch.testing.assert_close(found.entry.sum(-1), torch.ones_like(x), rtol=1e-9, atol=0)
    torch.testing.assert_close(found.time.sum(-1), x + law.mean_excess(x), rtol=1e-9, atol=0)


def test_exceeding_nothing_is_no_news(law):
    found = law.phase_posterior(0.0, "exceeds")
    torch.testing.assert_close(found.entry, law.initial.expand_as(found.entry), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(found.time.sum(-1), law.mean, rtol=1e-12, atol=0)


@pytest.mark.parametrize("make", [lambda: SeriesPhaseType([0.3, 0.2, 0.5], [0.5, 2.0, 2.5]), lambda: PhaseType(*CYCLE)])
@pytest.mark.parametrize("given", ["equal", "exceeds"])
def test_the_posterior_is_the_integral_of_occupancy_times_what_follows(make, given):
    """``P(phase k at u | X) = (initial exp(A u))_k (exp(A (x - u)) target)_k / known``, by Gauss-Legendre."""
    law, x = make(), 2.3
    chain = law.to_phase_type()
    target = chain.exit_rates if given == "equal" else torch.ones(3, dtype=torch.float64)
    node, weight = np.polynomial.legendre.leggauss(40)
    time = torch.zeros(3, dtype=torch.float64)
    for u, w in zip(x * (node + 1) / 2, x * weight / 2, strict=True):
        past = chain.initial @ torch.matrix_exp(chain.generator * u)
        time += w * past * (torch.matrix_exp(chain.generator * (x - u)) @ target)
    whole = torch.matrix_exp(chain.generator * x)
    known = chain.initial @ whole @ target
    if given == "exceeds":
        time += chain.initial @ whole @ torch.linalg.inv(-chain.generator)
    found = law.phase_posterior(x, given)
    torch.testing.assert_close(found.time, time / known, rtol=1e-8, atol=0)
    torch.testing.assert_close(found.entry, chain.initial * (whole @ target) / known, rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize("x", [1e-9, 3.0, 1e5])
def test_the_cyclic_posterior_is_right_at_any_depth(x):
    law = PhaseType(*CYCLE)
    initial, jumps, exits = oracle.arrays(law)
    entry, flow = oracle.log_form_gradients(initial, jumps, exits, x, exits)
    found = law.phase_posterior(x)
    torch.testing.assert_close(found.entry, law.initial * entry, rtol=1e-11, atol=0)
    torch.testing.assert_close(found.time, flow.diagonal(), rtol=1e-11, atol=0)


def test_series_and_general_form_tell_the_same_story():
    law = SeriesPhaseType([0.2, 0.3, 0.1, 0.4], [0.1, 1.0, 1.0, 20.0])
    x = torch.tensor([1e-3, 0.5, 7.0, 400.0], dtype=torch.float64)
    for given in ("equal", "exceeds"):
        ours, theirs = law.phase_posterior(x, given), law.to_phase_type().phase_posterior(x, given)
        torch.testing.assert_close(ours.entry, theirs.entry, rtol=1e-9, atol=0)
        torch.testing.assert_close(ours.time, theirs.time, rtol=1e-9, atol=0)


def test_equal_phases_in_a_row_share_the_time_equally():
    law = SeriesPhaseType([1.0, 0.0, 0.0, 0.0], [2.0] * 4)
    x = torch.tensor([0.1, 5.0, 1e4], dtype=torch.float64)
    found = law.phase_posterior(x)
    torch.testing.assert_close(found.time, x[:, None].expand(3, 4) / 4, rtol=1e-11, atol=0)
    torch.testing.assert_close(found.entry, law.initial.expand(3, 4), rtol=1e-14, atol=0)


def test_a_far_observation_points_to_the_slowest_phase():
    law = SeriesPhaseType([0.01, 0.99], [0.1, 5.0])
    near, far = law.phase_posterior(0.05), law.phase_posterior(100.0)
    assert float(near.entry[1]) > 0.99
    assert float(far.entry[0]) == pytest.approx(1, abs=1e-12)
    # the fast phase, once reached, is left at rate 5 - 0.1
    assert float(far.time[1]) == pytest.approx(1 / 4.9, rel=1e-7)


def test_an_observation_of_zero_came_from_the_last_door():
    last = SeriesPhaseType([0.3, 0.7], [0.5, 4.0]).phase_posterior(0.0)
    assert last.entry.tolist() == [0.0, 1.0]
    assert last.time.tolist() == [0.0, 0.0]
    early = SeriesPhaseType([0.3, 0.7, 0.0], [0.5, 4.0, 5.0])
    for law in (early, early.to_phase_type()):
        found = law.phase_posterior(0.0)
        torch.testing.assert_close(found.entry, torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64), rtol=0, atol=1e-15)
        torch.testing.assert_close(found.time, torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-15)
    cycle = PhaseType(*CYCLE).phase_posterior(0.0)
    # weights times exit rates: 0.4 * 0 against 0.6 * 1.25
    torch.testing.assert_close(cycle.entry, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64), rtol=0, atol=1e-15)


def test_simulated_chains_spend_their_time_as_told():
    """Simulated survivors of x = 2: the share that entered in phase 0 is a ratio of two binomials."""
    law, x, n = PhaseType(*CYCLE), 2.0, 60_000
    rng = torch.Generator().manual_seed(0)
    first, second = (PhaseType(start, CYCLE[1]).sample((n,), rng) for start in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]))
    mine, other = (float((draws > x).double().mean()) for draws in (first, second))
    share = 0.4 * mine / (0.4 * mine + 0.6 * other)
    told = float(law.phase_posterior(x, "exceeds").entry[0])
    # delta method, each survival a binomial share; 5.5 standard deviations are exceeded with probability 4e-8
    spread = share * (1 - share) * np.sqrt((1 - mine) / (n * mine) + (1 - other) / (n * other))
    assert abs(share - told) < 5.5 * spread


def test_the_posterior_is_detached():
    rates = torch.tensor([0.5, 4.0], dtype=torch.float64, requires_grad=True)
    found = SeriesPhaseType([0.3, 0.7], rates).phase_posterior(1.0)
    assert not found.entry.requires_grad
    assert not found.time.requires_grad
    with torch.no_grad():
        again = SeriesPhaseType([0.3, 0.7], rates).phase_posterior(1.0)
    assert torch.equal(again.time, found.time)


def test_what_is_known_is_one_of_two_things():
    law = SeriesPhaseType([1.0], [1.0])
    with pytest.raises(ValueError, match="given = 'above' is unknown; use 'equal' or 'exceeds'"):
        law.phase_posterior(1.0, "above")
    with pytest.raises(ValueError, match=r"value\[1\] = inf is not finite"):
        law.phase_posterior([1.0, torch.inf])
