"""Canonical form: the law stays, the number of phases stays, and nothing is ever subtracted."""

import numpy as np
import pytest
import torch
from flint import arb, arb_mat, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from phvae.distributions.canonical import insert_rate, to_series

EPS = torch.finfo(torch.float64).eps


@pytest.fixture(autouse=True)
def wide_arithmetic():
    before, ctx.prec = ctx.prec, 400
    yield
    ctx.prec = before


@st.composite
def acyclic(draw, max_phases=7, decades=4):
    """A random acyclic chain under a random numbering of its phases, rates over 2*decades decades."""
    m = draw(st.integers(1, max_phases))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    moves = np.triu(rng.random((m, m)) * (rng.random((m, m)) < draw(st.floats(0.1, 1))), 1)
    exits = rng.random(m) * (rng.random(m) < 0.5)
    exits[moves.sum(1) + exits == 0] = 1
    scale = 10.0 ** rng.uniform(-decades, decades, m)
    rates = scale[:, None] * moves
    if draw(st.booleans()):  # equal total rates: the other extreme
        rates, exits = rates / (moves.sum(1) + exits)[:, None] / scale[:, None], exits / (moves.sum(1) + exits)
    else:
        exits = exits * scale
    generator = rates - np.diag(rates.sum(1) + exits)
    order = rng.permutation(m)
    return rng.dirichlet(np.ones(m)), generator[np.ix_(order, order)]


def transform(initial, generator, s):
    """Laplace transform with the exit rates read from the rows, in 400-bit arithmetic."""
    m = len(initial)
    matrix = arb_mat(m, m, [arb(float(v)) for v in generator.reshape(-1)])
    shifted = arb_mat(m, m, [arb(float(s)) if i == j else arb(0) for i in range(m) for j in range(m)]) - matrix
    exits = arb_mat(m, 1, [_exit(generator[i]) for i in range(m)])
    solved = shifted.solve(exits)
    return sum((arb(float(initial[i])) * solved[i, 0] for i in range(m)), arb(0))


def _exit(row):
    total = -sum((arb(float(v)) for v in row), arb(0))
    # The same reading of a row as the code's: a sum below the rounding of its terms is zero.
    return arb(0) if abs(float(total)) <= len(row) * EPS * np.abs(row).max() else total


def series_transform(initial, rates, s):
    total, chain = arb(0), arb(1)
    for weight, rate in zip(reversed(initial.tolist()), reversed(rates.tolist()), strict=True):
        chain *= arb(rate) / (arb(rate) + arb(float(s)))
        total += arb(weight) * chain
    return total


@settings(max_examples=60, deadline=None)
@given(acyclic())
def test_series_form_keeps_the_laplace_transform(law):
    initial, generator = law
    m = len(initial)
    series, rates = to_series(torch.as_tensor(initial), torch.as_tensor(generator))
    assert bool((series >= 0).all())
    assert rates.tolist() == sorted(-generator.diagonal())
    # Exit probabilities inherit the rounding of the row sum they are read from: relative error eps / p_exit.
    rate = -generator.diagonal()
    share = -generator.sum(1) / rate
    blur = max((1 / p for p in share if p > m * EPS), default=1)
    for s in np.geomspace(1e-5, 1e5, 11):
        ratio = float(series_transform(series, rates, s) / transform(initial, generator, s))
        assert ratio == pytest.approx(1, abs=(10 * m**2 + m * blur) * EPS)


@settings(max_examples=30, deadline=None)
@given(acyclic())
def test_series_form_keeps_the_moments(law):
    initial, generator = law
    m = len(initial)
    series, rates = to_series(torch.as_tensor(initial), torch.as_tensor(generator))
    means = np.linalg.inv(-generator)
    general = chain = np.ones(m)
    bidiagonal = np.linalg.inv(np.diag(rates.numpy()) - np.diag(rates.numpy()[:-1], 1))
    share = -generator.sum(1) / -generator.diagonal()
    blur = max((1 / p for p in share if p > m * EPS), default=1)
    for _ in range(4):
        general, chain = means @ general, bidiagonal @ chain
        assert series.numpy() @ chain == pytest.approx(initial @ general, rel=(100 * m**2 + 10 * m * blur) * EPS)


@pytest.mark.parametrize("spread", [1e-12, 1e-3, 1e8])
def test_stiff_and_nearly_equal_rates_keep_every_weight_positive_and_the_law_exact(spread):
    """An almost-Erlang chain entered from both ends, where partial fractions would lose all digits."""
    m = 12
    rates = 1 + spread * np.arange(m)[::-1] / m
    generator = np.diag(-rates) + np.diag(rates[:-1], 1)
    initial = np.full(m, 1 / m)
    series, ascending = to_series(torch.as_tensor(initial), torch.as_tensor(generator))
    assert bool((series >= 0).all())
    for s in (1e-6, 1e-2, 1, 1e4):
        ratio = float(series_transform(series, ascending, s) / transform(initial, generator, s))
        assert ratio == pytest.approx(1, abs=20 * m**2 * EPS)


@settings(max_examples=30, deadline=None)
@given(acyclic())
def test_a_series_chain_is_its_own_canonical_form(law):
    initial, rates = to_series(*map(torch.as_tensor, law))
    generator = torch.diag(-rates) + torch.diag(rates[:-1], 1)
    again, same = to_series(initial, generator)
    assert torch.equal(same, rates)
    torch.testing.assert_close(again, initial, rtol=8 * len(rates) * EPS, atol=0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**32 - 1), st.floats(-3, 3))
def test_inserting_a_rate_keeps_the_law_and_the_mass(m, seed, exponent):
    rng = np.random.default_rng(seed)
    initial, rates = rng.dirichlet(np.ones(m)), np.sort(10.0 ** rng.uniform(-3, 3, m))
    wider, more = insert_rate(torch.as_tensor(initial), torch.as_tensor(rates), 10.0**exponent)
    assert bool((wider >= 0).all())
    assert more.tolist() == sorted([*rates, 10.0**exponent])
    assert float(wider.sum()) == pytest.approx(initial.sum(), rel=4 * m * EPS)
    for s in np.geomspace(1e-4, 1e4, 9):
        ratio = float(series_transform(wider, more, s) / series_transform(initial, rates, s))
        assert ratio == pytest.approx(1, abs=16 * EPS)


def test_a_rate_above_the_slowest_keeps_positive_weights_positive():
    wider, _ = insert_rate(torch.tensor([0.2, 0.3, 0.5]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.5, 2.5, 9.0]))
    assert wider.shape == (3, 4)
    assert bool((wider > 0).all())


def test_a_batch_with_different_structures_is_each_law_alone():
    rng = np.random.default_rng(3)
    generators = []
    for _ in range(5):
        moves = np.triu(rng.random((4, 4)) * (rng.random((4, 4)) < 0.6), 1)
        order = rng.permutation(4)
        generators.append((moves - np.diag(moves.sum(1) + rng.random(4)))[np.ix_(order, order)])
    generator = torch.as_tensor(np.stack(generators))
    initial = torch.as_tensor(rng.dirichlet(np.ones(4), 5))
    together = to_series(initial, generator)
    for i in range(5):
        alone = to_series(initial[i], generator[i])
        assert torch.equal(together[0][i], alone[0])
        assert torch.equal(together[1][i], alone[1])


def test_gradients_pass_through_the_change_of_form():
    def form(initial, moves, exits):
        upper = torch.zeros(3, 3, dtype=torch.float64).index_put(
            (torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2])), moves
        )
        return to_series(initial, upper - torch.diag(upper.sum(1) + exits))

    values = ([0.5, 0.2, 0.3], [1.0, 2.0, 0.5], [1.0, 1.0, 2.5])
    inputs = tuple(torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values)
    # a step that keeps the entry probabilities within the tolerance of their sum
    assert torch.autograd.gradcheck(form, inputs, eps=2e-7)


def test_a_cycle_is_spelled_out():
    generator = torch.tensor([[-2.0, 1.0, 0.0], [0.5, -1.0, 0.5], [0.0, 0.0, -1.0]])
    with pytest.raises(ValueError, match=r"phases 0 -> 1 -> 0; .*PhaseType"):
        to_series(torch.tensor([1.0, 0.0, 0.0]), generator)
    batch = torch.stack([torch.diag(generator.diagonal()), generator])
    with pytest.raises(ValueError, match=r"generator\[1\] has a cycle"):
        to_series(torch.tensor([1.0, 0.0, 0.0]), batch)


def test_entry_probabilities_are_checked():
    with pytest.raises(ValueError, match=r"sum of initial\[1\] = 0.5 is not one"):
        to_series([[1.0], [0.5]], [[-1.0]])


def test_known_exit_rates_replace_the_row_sums():
    initial, rates = to_series([1.0], [[-1.0]], torch.tensor([1.0], dtype=torch.float64))
    assert (float(initial), float(rates)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("generator", "message"),
    [
        ([[-1.0, 2.0], [0.0, -1.0]], r"row sum of generator\[0\] = 1.0 is positive"),
        ([[-1.0, 0.5], [0.0, 0.0]], r"generator\[1, 1\] = 0.0 is a phase that is never left"),
        ([[-1.0, -0.5], [0.0, -1.0]], r"generator\[0, 1\] = -0.5 is a negative jump rate"),
        ([[-1.0, 1.0], [1.0, -1.0]], r"generator\[0, 0\] = -1.0 belongs to a phase that is never absorbed"),
        ([[-1.0]], r"shape \(2,\) and generator has shape \(1, 1\)"),
    ],
)
def test_a_matrix_that_is_no_generator_is_refused(generator, message):
    with pytest.raises(ValueError, match=message):
        to_series(torch.tensor([1.0, 0.0]), torch.tensor(generator))
