"""The general law: a three-phase cycle in rational and ball arithmetic, conversions, stiff and sticky chains."""

from fractions import Fraction

import chain_oracle as oracle
import numpy as np
import pytest
import torch
from distribution_cases import CYCLE
from flint import fmpq, fmpq_mat

from phvae.distributions import PhaseType, SeriesPhaseType

KERNEL = 1e-10


def rational(value):
    # the decimals as they are printed
    fraction = Fraction(repr(value))
    return fmpq(fraction.numerator, fraction.denominator)


def exact_moment(initial, generator, order):
    """``k! · initial · (-generator)^-k · 1`` without any rounding."""
    size = len(initial)
    minus = fmpq_mat(size, size, [-rational(v) for row in generator for v in row])
    vector = fmpq_mat(size, 1, [1] * size)
    for k in range(1, order + 1):
        vector = k * (minus.inv() * vector)
    total = (fmpq_mat(1, size, [rational(v) for v in initial]) * vector)[0, 0]
    return float(Fraction(int(total.p), int(total.q)))


def test_the_cyclic_example_has_its_exact_moments():
    law = PhaseType(*CYCLE)
    for order in range(1, 6):
        assert float(law.moment(order)) == pytest.approx(exact_moment(*CYCLE, order), rel=1e-13)
    assert float(law.mean) == pytest.approx(24323 / 15459, rel=1e-14)
    assert float(law.variance) == pytest.approx(exact_moment(*CYCLE, 2) - exact_moment(*CYCLE, 1) ** 2, rel=1e-13)


@pytest.mark.parametrize("x", [1e-300, 1e-9, 0.02, 1.5, 40.0, 1e4, 1.5e6])
def test_the_cyclic_example_is_right_at_every_depth(x):
    law = PhaseType(*CYCLE)
    chain = oracle.arrays(law)
    for method, truth in (
        (law.log_prob, oracle.log_density),
        (law.log_sf, oracle.log_survival),
        (law.log_cdf, oracle.log_cdf),
    ):
        expected = truth(*chain, x)
        assert float(method(x)) == pytest.approx(expected, abs=KERNEL * max(1, abs(expected)))


def test_the_cyclic_example_does_everything_else():
    law = PhaseType(*CYCLE)
    assert float(law.isf(law.sf(12.0))) == pytest.approx(12.0, rel=1e-9)
    # -0.64121840561970619548 is the eigenvalue nearest zero, from ball arithmetic
    assert float(law.tail_rate) == pytest.approx(0.64121840561970619548, rel=1e-14)
    assert float(law.hazard(200.0)) == pytest.approx(0.64121840561970619548, rel=1e-11)
    assert law.sample((5,)).shape == (5,)
    with pytest.raises(ValueError, match="cycle: phases 0 -> 1 -> 0"):
        law.to_series()


def test_a_row_that_sums_to_zero_in_decimals_has_no_exit():
    """-5.2 + 3.0 + 2.2 is 4e-16 in doubles, and 1e-7 in single precision: rounding, not an exit."""
    for dtype in (torch.float64, torch.float32):
        law = PhaseType(torch.tensor(CYCLE[0], dtype=dtype), torch.tensor(CYCLE[1], dtype=dtype))
        assert float(law.exit_rates[0]) == 0
        assert law.generator.dtype is torch.float64
        assert float(law.generator[0].sum()) == 0
    assert float(law.mean) == pytest.approx(24323 / 15459, rel=1e-6)


def test_a_nearly_closed_cycle_keeps_every_digit_of_its_exit():
    """Two phases in a loop that leaves with rate 1e-12: mean and tail rate by hand, where 1 - p has no digits left."""
    leave, speed = 1e-12, 1e4
    law = PhaseType._build(
        torch.tensor([1.0, 0.0], dtype=torch.float64),
        torch.tensor([[-speed, speed], [speed, -speed - leave]], dtype=torch.float64),
        torch.tensor([0.0, leave], dtype=torch.float64),
        None,
    )
    assert float(law.mean) == pytest.approx(2 / leave + 1 / speed, rel=1e-14)
    assert float(law.tail_rate) == pytest.approx(leave / 2, rel=1e-12)
    chain = oracle.arrays(law)
    for x in (1.0, 1e4):
        expected = oracle.log_cdf(*chain, x)
        assert float(law.log_cdf(x)) == pytest.approx(expected, rel=1e-12)


def test_an_acyclic_law_goes_to_series_form_and_back():
    rng = np.random.default_rng(4)
    moves = np.triu(rng.random((5, 5)), 1)
    generator = moves - np.diag(moves.sum(1) + rng.random(5))
    law = PhaseType(rng.dirichlet(np.ones(5)), generator)
    series = law.to_series()
    assert isinstance(series, SeriesPhaseType)
    assert series.rates.shape == (5,)
    x = torch.logspace(-4, 3, 15, dtype=torch.float64)
    torch.testing.assert_close(series.log_prob(x), law.log_prob(x), rtol=2 * KERNEL, atol=2 * KERNEL)
    torch.testing.assert_close(series.log_sf(x), law.log_sf(x), rtol=2 * KERNEL, atol=2 * KERNEL)
    torch.testing.assert_close(series.tail_rate, law.tail_rate, rtol=1e-14, atol=0)
    torch.testing.assert_close(series.variance, law.variance, rtol=1e-12, atol=0)


def test_series_form_keeps_an_exit_the_rows_cannot_show():
    """The exit rate 1e-20 vanishes in the row sum; the law of a sum knows it."""
    slow = SeriesPhaseType([1.0], [1e-20])
    fast = SeriesPhaseType([1.0], [1.0])
    law = slow.minimum(fast).to_phase_type() + slow
    assert float(law.to_series().mean) == pytest.approx(1e20, rel=1e-12)


def test_gradients_by_the_generator_include_the_exits():
    """By the matrix entry itself: the exit rate of a row falls as any of its entries grows."""
    initial = torch.tensor(CYCLE[0], dtype=torch.float64)
    generator = torch.tensor(CYCLE[1], dtype=torch.float64, requires_grad=True)
    law = PhaseType(initial, generator)
    weights, jumps, exits = oracle.arrays(law)
    for x in (0.3, 25.0):
        (found,) = torch.autograd.grad(law.log_prob(x), generator, retain_graph=True)
        _, by_flow = oracle.log_form_gradients(weights, jumps, exits, x, exits)
        occupied = torch.matrix_exp(law.generator.detach() * x).T @ initial
        by_exit = occupied / law.log_prob(x).detach().exp()
        torch.testing.assert_close(found, by_flow - by_exit[:, None], rtol=1e-10, atol=1e-10)
        (found,) = torch.autograd.grad(law.log_sf(x), generator, retain_graph=True)
        _, by_flow = oracle.log_form_gradients(weights, jumps, exits, x, [1.0] * 3)
        torch.testing.assert_close(found, by_flow, rtol=1e-10, atol=1e-10)


def test_laplace_variance_and_quantiles_are_differentiable():
    def answers(initial, generator, s, p):
        law = PhaseType(initial / initial.sum(), generator, validate_args=False)
        return law.laplace(s), law.variance, law.moment(3), law.icdf(p), law.mean_excess(p), law.cvar(p)

    inputs = (CYCLE[0], [[-5.25, 3.0, 2.2], [1.2, -2.5, 0.5], [4.0, 2.3, -7.55]], 0.7, 0.35)
    inputs = tuple(torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in inputs)
    inputs[0].data += 0.1
    assert torch.autograd.gradcheck(answers, inputs, rtol=1e-5)


def test_sticky_chains_are_drawn_by_inversion_and_not_by_a_million_jumps():
    generator = torch.tensor([[-1e6, 1e6 - 1.0], [1e6, -1e6]], dtype=torch.float64)
    law = PhaseType(torch.tensor([1.0, 0.0], dtype=torch.float64), generator)
    x = law.sample((200,), torch.Generator().manual_seed(0))
    uniform = law.cdf(x).sort().values
    place = torch.arange(200, dtype=torch.float64) / 200
    distance = torch.maximum(uniform - place, place + 1 / 200 - uniform).max()
    # Dvoretzky-Kiefer-Wolfowitz: exceeded with probability 2 exp(-2 n d^2) = 1e-7
    assert float(distance) < np.sqrt(np.log(2e7) / 400)


def test_a_general_law_answers_with_gradients_as_often_as_it_is_asked():
    initial = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    generator = torch.tensor([[-3.0, 1.0], [0.5, -2.0]], dtype=torch.float64, requires_grad=True)
    law = PhaseType(initial, generator)
    for answer in (lambda d: d.log_prob(1.0), lambda d: d.log_sf(2.0), lambda d: d.mean):
        again = torch.autograd.grad(answer(law), (initial, generator))
        alone = torch.autograd.grad(answer(PhaseType(initial, generator)), (initial, generator))
        assert all(torch.equal(one, other) for one, other in zip(again, alone, strict=True))
