"""Draws follow their law, depend on the generator alone, and carry the gradients of the moments.

Every statistical bound is met with a failure probability of at most 1e-7, from an inequality or six standard errors.
"""

import numpy as np
import pytest
import torch
from distribution_cases import CASES, CYCLE

from phvae.distributions import PhaseType, SeriesPhaseType

N = 20_000


@pytest.fixture(params=CASES, name="law")
def _law(request):
    return CASES[request.param]()


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def kolmogorov(law, draws):
    """Largest distance between the empirical and the true distribution function, per law of the batch."""
    uniform = law.cdf(draws).sort(0).values
    n = len(uniform)
    place = (torch.arange(n, dtype=torch.float64) / n).reshape(-1, *(1,) * (uniform.ndim - 1))
    return torch.maximum(uniform - place, place + 1 / n - uniform).amax(0)


def test_draws_follow_the_law(law):
    """Dvoretzky, Kiefer and Wolfowitz: P(D > d) <= 2 exp(-2 n d^2), which is 1e-8 here for each law of a batch."""
    draws = law.sample((N,), seeded(0))
    assert draws.dtype is torch.float64
    assert draws.shape == (N, *law.batch_shape)
    assert bool((draws > 0).all() & draws.isfinite().all())
    assert float(kolmogorov(law, draws).max()) < np.sqrt(np.log(2e8) / (2 * N))


def test_far_tails_are_drawn_as_often_as_they_happen(law):
    """Exceedances of the 1e-3 quantile are binomial; the bound is Bernstein's at 1e-8 on either side."""
    draws = law.sample((N,), seeded(1))
    count = (draws > law.isf(1e-3)).double().sum(0)
    expected, log_odds = N * 1e-3, np.log(2e8)
    slack = log_odds / 3 + np.sqrt(log_odds**2 / 9 + 2 * expected * log_odds)
    assert bool(((count - expected).abs() < slack).all())


def test_mean_and_variance_of_draws_are_those_of_the_law(law):
    draws = law.sample((N,), seeded(2)) / law.mean
    fourth = (law.moment(4) - 4 * law.moment(3) * law.mean + 6 * law.moment(2) * law.mean**2 - 3 * law.mean**4) / (
        law.mean**4
    )
    spread = law.variance / law.mean**2
    error = (draws.mean(0) - 1).abs() / (spread / N).sqrt()
    # the central limit bound needs moments that are not dominated by a few draws
    tame = fourth / spread**2 < 30
    assert bool((error[tame] < 6).all())
    drift = (draws.var(0) - spread).abs() / ((fourth - spread**2) / N).sqrt()
    assert bool((drift[tame] < 6).all())


def test_draws_of_a_batch_are_independent():
    law = CASES["grid of series"]()
    uniform = law.cdf(law.sample((N,), seeded(3))).reshape(N, -1)
    correlation = np.corrcoef(uniform.numpy(), rowvar=False)
    off = correlation[~np.eye(len(correlation), dtype=bool)]
    assert np.abs(off).max() < 6 / np.sqrt(N)
    neighbours = np.corrcoef(uniform[1:, 0].numpy(), uniform[:-1, 0].numpy())[0, 1]
    assert abs(neighbours) < 6 / np.sqrt(N)


def test_the_generator_decides_the_draws_and_no_other_state_is_touched(law):
    before = torch.get_rng_state()
    first, again, other = (law.sample((50,), seeded(seed)) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        unseeded = law.sample((5,))
        torch.manual_seed(1)
        assert torch.equal(law.sample((5,)), unseeded)


def test_entry_phases_of_probability_zero_are_never_used():
    """The middle phase alone is ever entered: its two exponentials, never three or one."""
    law = SeriesPhaseType([0.0, 1.0, 0.0], [1e-9, 2.0, 2.0])
    draws = law.sample((N,), seeded(4))
    assert float(draws.max()) < 50
    assert float(kolmogorov(law, draws)) < np.sqrt(np.log(2e8) / (2 * N))


def test_draws_for_an_empty_shape_are_empty(law):
    assert law.sample((0,)).shape == (0, *law.batch_shape)
    assert law.rsample((0, 2)).shape == (0, 2, *law.batch_shape)


def test_draws_without_a_request_for_gradients_carry_none(law):
    assert not law.sample((2,)).requires_grad
    assert not law.rsample((2,)).requires_grad


MAKERS = {
    "series": lambda initial, speed: SeriesPhaseType(initial / initial.sum(-1, keepdim=True), speed.cumsum(-1)),
    "cycle": lambda initial, speed: PhaseType(
        initial / initial.sum(-1, keepdim=True),
        torch.tensor(CYCLE[1], dtype=torch.float64) - torch.diag_embed(speed),
    ),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_pathwise_gradients_average_to_the_gradients_of_the_moments(make):
    """``E[dx/dθ] = d E[x] / dθ`` and ``E[2 x dx/dθ] = d E[x^2] / dθ``, within seven standard errors from 100 blocks."""
    parameters = [torch.tensor([0.3, 0.2, 0.5]).double(), torch.tensor([0.5, 1.0, 2.0]).double()]
    leaves = [p.expand(100, 1, 3).clone().requires_grad_() for p in parameters]
    law = make(*leaves)
    draws = law.expand((100, 200)).rsample((), seeded(5))
    single = [p.clone().requires_grad_() for p in parameters]
    alone = make(*single)
    for power in (1, 2):
        blocks = torch.autograd.grad((draws**power).mean(-1).sum(), leaves, retain_graph=True)
        expected = torch.autograd.grad(alone.moment(power), single, retain_graph=True)
        for block, truth in zip(blocks, expected, strict=True):
            block = block[:, 0]
            error = (block.mean(0) - truth).abs() / (block.std(0) / 10)
            assert bool((error < 7).all())


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_each_draw_keeps_its_place_in_the_law(make):
    """Along its gradient ``F(x(θ); θ)`` stays put: the point follows the quantile of its own level."""
    leaves = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([0.3, 0.2, 0.5], [0.5, 1.0, 2.0])]
    law = make(*leaves)
    x = law.rsample((40,), seeded(6))
    level = law.cdf(x.detach()).detach()
    lower = level < 0.5
    quantile = torch.where(lower, law.icdf(level), law.isf(law.sf(x.detach()).detach()))
    for weights in (torch.ones_like(x), torch.linspace(-1, 1, 40, dtype=torch.float64)):
        for ours, theirs in zip(
            torch.autograd.grad((weights * x).sum(), leaves, retain_graph=True),
            torch.autograd.grad((weights * quantile).sum(), leaves, retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7 * float(theirs.abs().max()))


def test_a_scale_moves_every_draw_in_proportion():
    scale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    x = SeriesPhaseType([0.3, 0.7], [0.5, 4.0]).scaled(scale).rsample((100,), seeded(8))
    (slope,) = torch.autograd.grad(x.sum(), scale)
    assert float(slope) == pytest.approx(float(x.detach().sum()) / 3, rel=1e-9)


def test_jumps_of_a_long_general_chain_add_up_to_the_series_sum():
    """An Erlang chain of 20 phases, jump by jump, against the vectorised sum."""
    law = SeriesPhaseType(torch.eye(20, dtype=torch.float64)[0], torch.full((20,), 4.0, dtype=torch.float64))
    draws = law.to_phase_type().sample((N,), seeded(9))
    assert float(kolmogorov(law, draws)) < np.sqrt(np.log(2e8) / (2 * N))
