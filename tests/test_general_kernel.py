"""Any chain at any depth: log forms, their gradients and the linear systems, against ball arithmetic."""

import math

import chain_oracle as oracle
import numpy as np
import pytest
import torch
from flint import arb, arb_mat, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from phvae.kernels import elimination, general

EPS = torch.finfo(torch.float64).eps
# The promise is 1e-10 of max(1, |log|); these chains stay far below it.
VALUE, GRADIENT = 1e-12, 1e-11


@st.composite
def chains(draw, most=7):
    """Entry weights, jump rates, exit rates: full, sparse, to and fro, or a ring; rates over up to eight decades."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, decades = draw(st.integers(1, most)), draw(st.sampled_from([0, 1, 4]))
    shape = draw(st.sampled_from(["full", "sparse", "to and fro", "ring"]))
    jumps = {
        "full": rng.random((m, m)),
        "sparse": rng.random((m, m)) * (rng.random((m, m)) < 0.4) + np.eye(m, k=1) * 0.1,
        "to and fro": np.eye(m, k=1) + rng.random() * np.eye(m, k=-1),
        "ring": np.roll(np.eye(m), 1, axis=1),
    }[shape]
    np.fill_diagonal(jumps, 0)
    speed = 10.0 ** rng.uniform(-decades, decades, m)
    jumps = jumps * speed[:, None]
    exits = rng.random(m) * speed * (rng.random(m) < 0.3)
    exits[-1] = speed[-1] * 10.0 ** rng.uniform(-4, 0)
    initial = rng.dirichlet(np.ones(m))
    return initial, jumps, exits, rng


def tensors(initial, jumps, exits):
    generator = jumps - np.diag(jumps.sum(1) + exits)
    return tuple(torch.as_tensor(v, dtype=torch.float64) for v in (initial, generator, exits))


def depths(chain, rng):
    """Points at the start, in the body and far out."""
    initial, generator, exits = tensors(*chain)
    speed = -float(generator.diagonal().min())
    mean = float(initial @ elimination.sojourns(generator, exits).sum(-1))
    slow = float(elimination.tail_rate(initial, generator, exits))
    yield 10.0 ** rng.uniform(-12, 0) / speed
    yield min(mean * 10.0 ** rng.uniform(-1, 1), 1e8 / speed)
    yield min(10.0 ** rng.uniform(1, 5.5) / slow, 1e8 / speed)


@settings(max_examples=40, deadline=None)
@given(chains())
def test_the_three_logarithms_are_right_for_any_chain_at_any_depth(drawn):
    *chain, rng = drawn
    initial, generator, exits = tensors(*chain)
    arguments = [part.tolist() for part in chain]
    for x in depths(chain, rng):
        point = torch.tensor(x, dtype=torch.float64)
        for ours, truth in (
            (general.log_density, oracle.log_density),
            (general.log_survival, oracle.log_survival),
            (general.log_cdf, oracle.log_cdf),
        ):
            expected = truth(*arguments, x)
            assert float(ours(point, initial, generator, exits)) == pytest.approx(
                expected, abs=VALUE * max(1, abs(expected))
            )


@settings(max_examples=25, deadline=None)
@given(chains(most=5))
def test_gradients_are_right_for_any_chain_at_any_depth(drawn):
    *chain, rng = drawn
    initial, generator, exits = (part.requires_grad_() for part in tensors(*chain))
    arguments = [part.tolist() for part in chain]
    for x in depths(chain, rng):
        for target in (exits.detach(), torch.ones_like(exits)):
            entry, flow = oracle.log_form_gradients(*arguments, x, target.tolist())
            if not bool(entry.isfinite().all() & flow.isfinite().all()):
                continue  # a slower phase entered with weight zero: its odds exceed the doubles
            point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
            final = target.clone().requires_grad_()
            value = general.log_form(point, initial, generator, final, exits)
            by_x, by_initial, by_flow, by_target = torch.autograd.grad(value, (point, initial, generator, final))
            assert float((by_initial - entry).norm()) <= GRADIENT * float(entry.norm())
            assert float((by_flow - flow).norm()) <= GRADIENT * float(flow.norm())
            # a log form is homogeneous of degree one in its target
            assert float(by_target @ target.detach()) == pytest.approx(1, abs=1e-12)
            slope = oracle.log_form_slope(*arguments, x, target.tolist())
            # the slope of a survival is the mean exit rate, with nothing to cancel; a density has inflow and outflow
            flows = float(by_target @ (generator.detach().abs() @ target))
            blur = 0 if bool((target == 1).all()) else 10 * len(exits) * EPS * flows
            assert float(by_x) == pytest.approx(slope, rel=GRADIENT, abs=blur)


@pytest.mark.parametrize("m", [24, pytest.param(64, marks=pytest.mark.soak)])
def test_many_phases_to_and_fro(m):
    rng = np.random.default_rng(0)
    jumps = np.diag(rng.uniform(1, 100, m - 1), 1) + np.diag(rng.uniform(1, 100, m - 1), -1)
    exits = np.zeros(m)
    exits[-1] = 5.0
    initial = np.eye(m)[0]
    arguments = [part.tolist() for part in (initial, jumps, exits)]
    x = torch.tensor([1e-9, 1.0, 1e4], dtype=torch.float64)
    found = general.log_density(x, *tensors(initial, jumps, exits))
    for point, ours in zip(x.tolist(), found.tolist(), strict=True):
        expected = oracle.log_density(*arguments, point)
        assert ours == pytest.approx(expected, abs=VALUE * max(1, abs(expected)))


@pytest.mark.parametrize("x", [1e-300, 1e-100, 1e-12])
def test_a_long_chain_does_not_underflow_at_tiny_points(x):
    """Thirty phases in a row: f(x) = x^29 / 29! · Π rates, far below the smallest double."""
    m = 30
    rates = torch.linspace(1, 5, m, dtype=torch.float64)
    generator = torch.diag(-rates) + torch.diag(rates[:-1], 1)
    initial, exits = torch.eye(m, dtype=torch.float64)[0], torch.eye(m, dtype=torch.float64)[-1] * rates[-1]
    leading = float(rates.log().sum()) + (m - 1) * math.log(x) - math.lgamma(m)
    # the next term of the series is about x times the mean rate
    point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    found = general.log_density(point, initial, generator, exits)
    assert float(found.detach()) == pytest.approx(leading, abs=6 * x + 1e-12 * abs(leading))
    (slope,) = torch.autograd.grad(found, point)
    assert float(slope) * x == pytest.approx(m - 1, rel=6 * x + 1e-12)


def test_a_nearly_closed_chain_loses_no_mass_over_a_hundred_million_jumps():
    """A to-and-fro of rate 1e4 with exit 1e-6: rounding that grew with each squaring would show here."""
    initial, jumps, exits = np.array([1.0, 0.0]), np.array([[0.0, 1e4], [1e4, 0.0]]), np.array([0.0, 1e-6])
    arguments = [part.tolist() for part in (initial, jumps, exits)]
    for x in (1e2, 1e4, 1e6):
        point = torch.tensor(x, dtype=torch.float64)
        for ours, truth in ((general.log_survival, oracle.log_survival), (general.log_cdf, oracle.log_cdf)):
            expected = truth(*arguments, x)
            assert float(ours(point, *tensors(initial, jumps, exits))) == pytest.approx(expected, rel=1e-10)


def test_the_logarithm_is_differentiable_through_exit_rates_read_from_the_rows():
    generator = torch.tensor([[-3.0, 1.0], [0.5, -2.0]], dtype=torch.float64, requires_grad=True)
    initial = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([0.2, 5.0], dtype=torch.float64, requires_grad=True)
    for function in (general.log_density, general.log_survival, general.log_cdf):
        assert torch.autograd.gradcheck(function, (x, initial, generator))


def test_weights_need_not_sum_to_one():
    initial, generator, exits = tensors(np.array([0.3, 0.7]), np.array([[0.0, 1.0], [0.5, 0.0]]), np.array([2.0, 1.5]))
    x = torch.tensor([0.0, 1.0, 30.0, torch.inf], dtype=torch.float64)
    for function in (general.log_density, general.log_survival, general.log_cdf):
        scaled = function(x, 5 * initial, generator, exits)
        torch.testing.assert_close(scaled, function(x, initial, generator, exits) + math.log(5), rtol=1e-14, atol=1e-14)


def test_zero_and_infinity_are_the_limits():
    initial, generator, exits = tensors(np.array([0.3, 0.7]), np.array([[0.0, 1.0], [0.5, 0.0]]), np.array([2.0, 1.5]))
    ends = torch.tensor([0.0, torch.inf], dtype=torch.float64)
    arguments = (ends, initial, generator, exits)
    assert general.log_density(*arguments).tolist() == pytest.approx([math.log(0.6 + 1.05), -math.inf])
    assert general.log_survival(*arguments).tolist() == pytest.approx([0.0, -math.inf], abs=2 * EPS)
    assert general.log_cdf(*arguments).tolist() == [-math.inf, 0.0]


def test_only_the_row_at_fault_is_nan():
    good = [[-3.0, 1.0], [0.5, -2.0]]
    faults = [[[-3.0, -1.0], [0.5, -2.0]], [[math.nan, 1.0], [0.5, -2.0]], [[3.0, 1.0], [0.5, -2.0]]]
    generator = torch.tensor([good, *faults, good], dtype=torch.float64, requires_grad=True)
    initial = torch.tensor([0.3, 0.7], dtype=torch.float64)
    x = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0], dtype=torch.float64)
    for function in (general.log_density, general.log_survival, general.log_cdf):
        value = function(x, initial, generator)
        assert value.isnan().tolist() == [False, True, True, True, True]
        (slope,) = torch.autograd.grad(value.sum(), generator, retain_graph=True)
        assert slope.isnan().all(-1).all(-1).tolist() == [False, True, True, True, True]
        alone = generator.detach()[0].clone().requires_grad_()
        single = function(x[0], initial, alone)
        torch.testing.assert_close(value[0], single, rtol=1e-14, atol=1e-15)
        (expected,) = torch.autograd.grad(single, alone)
        torch.testing.assert_close(slope[0], expected, rtol=1e-13, atol=1e-15)


def test_a_point_masked_out_downstream_leaves_no_trace_in_the_gradient():
    generator = torch.tensor([[-3.0, 1.0], [0.5, -2.0]], dtype=torch.float64, requires_grad=True)
    initial = torch.tensor([0.3, 0.7], dtype=torch.float64)
    x = torch.tensor([1.0, -1.0, torch.inf], dtype=torch.float64)
    value = general.log_survival(x, initial, generator)
    (slope,) = torch.autograd.grad(torch.where(x == 1, value, 0.0).sum(), generator)
    (expected,) = torch.autograd.grad(general.log_survival(x[:1], initial, generator).sum(), generator)
    torch.testing.assert_close(slope, expected, rtol=1e-14, atol=1e-15)


def test_many_points_are_worked_through_in_pieces():
    """More elements than one piece holds, in any order: each is what it is alone."""
    initial, generator, exits = tensors(np.array([0.3, 0.7]), np.array([[0.0, 1.0], [0.5, 0.0]]), np.array([2.0, 1.5]))
    x = torch.linspace(0, 3, 2**16 + 3, dtype=torch.float64)
    x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]
    found = general.log_survival(x, initial, generator, exits)
    some = torch.arange(0, len(x), 4001)
    torch.testing.assert_close(
        found[some], general.log_survival(x[some], initial, generator, exits), rtol=1e-14, atol=1e-15
    )
    order = x.argsort()
    assert bool((found[order].diff() < 1e-15).all())


@settings(max_examples=40, deadline=None)
@given(chains())
def test_linear_systems_are_right_in_every_entry(drawn):
    """Against ball arithmetic with the diagonal that the jumps and exits mean, however near to singular."""
    *chain, _ = drawn
    _, generator, exits = tensors(*chain)
    size = len(exits)
    before, ctx.prec = ctx.prec, 600
    try:
        exact = oracle._generator(chain[1].tolist(), chain[2].tolist())
        inverse = (exact * arb(-1)).inv()
        rows = [[float(inverse[i, j].mid()) for j in range(size)] for i in range(size)]
    finally:
        ctx.prec = before
    # each entry is a sum of products of non-negative numbers: a few roundings per phase eliminated
    torch.testing.assert_close(
        elimination.sojourns(generator, exits), torch.tensor(rows, dtype=torch.float64), rtol=20 * size * EPS, atol=0
    )


def test_linear_systems_are_differentiable():
    def solution(generator, right):
        return elimination.solve(generator, -generator.sum(-1), right)

    generator = torch.tensor([[-3.0, 1.0, 0.5], [0.5, -2.0, 1.0], [0.2, 0.3, -1.0]], dtype=torch.float64)
    right = torch.tensor([[1.0], [2.0], [0.5]], dtype=torch.float64)
    assert torch.autograd.gradcheck(solution, (generator.requires_grad_(), right.requires_grad_()))


@settings(max_examples=30, deadline=None)
@given(chains())
def test_the_tail_rate_is_the_eigenvalue_nearest_zero(drawn):
    *chain, _ = drawn
    initial, generator, exits = tensors(*chain)
    before, ctx.prec = ctx.prec, 600
    try:
        exact = oracle._generator(chain[1].tolist(), chain[2].tolist())
        # every entry weight is positive, so every phase is reached
        largest = max(float(value.real.mid()) for value in arb_mat.eig(exact, multiple=True))
    finally:
        ctx.prec = before
    assert float(elimination.tail_rate(initial, generator, exits)) == pytest.approx(-largest, rel=1e-11)


def test_the_tail_rate_sees_only_phases_that_are_reached():
    generator = torch.tensor([[-1e-3, 0.0, 0.0], [0.0, -2.0, 1.0], [0.0, 1.0, -2.0]], dtype=torch.float64)
    exits = -generator.sum(-1)
    first, last = torch.eye(3, dtype=torch.float64)[0], torch.eye(3, dtype=torch.float64)[2]
    assert float(elimination.tail_rate(first, generator, exits)) == pytest.approx(1e-3, rel=1e-14)
    assert float(elimination.tail_rate(last, generator, exits)) == pytest.approx(1.0, rel=1e-14)
    broken = torch.stack([generator, torch.full_like(generator, torch.nan)])
    assert elimination.tail_rate(last, broken, exits).isnan().tolist() == [False, True]
