"""The likelihood of series chains against rigorous values, at its limits, and by every method."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from arb_reference import log_reference
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from phvae.kernels import backends, series, squaring
from phvae.kernels.quantities import CDF, DENSITY, SURVIVAL, Evaluation
from phvae.kernels.uniformization import LARGEST_JUMPS

FUNCTIONS = {"density": series.log_density, "survival": series.log_survival, "cdf": series.log_cdf}
CODES = {"density": DENSITY, "survival": SURVIVAL, "cdf": CDF}
REFERENCE = dict(np.load(Path(__file__).with_name("series_reference.npz")))
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

# What the kernels promise for "auto" and "squaring".
VALUE_ERROR = 1e-10
GRADIENT_ERROR = 1e-7


@pytest.fixture(autouse=True)
def _needs_its_device(request):
    if request.node.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")


def close_enough(expected, value, d_x, d_initial, d_rates, x, rates):
    """Errors of value and gradients in units of the promise; an overflowing derivative must overflow here too."""
    yield "value", abs(value - expected.value) / max(1, abs(expected.value)) / VALUE_ERROR
    # a slope that crosses zero has no relative accuracy: there the natural size, a rate or 1/x, counts
    yield "d_x", abs(d_x - expected.d_x) / max(abs(expected.d_x), min(rates[-1], 1 / x)) / GRADIENT_ERROR
    for name, found, wanted, natural in (
        ("d_initial", d_initial, expected.d_initial, 0.0),
        ("d_rates", d_rates, expected.d_rates, 1e-6 / rates.max()),
    ):
        huge = np.abs(wanted) > 1e306
        assert (np.abs(found[huge]) > 1e306).all(), name
        if not huge.any():
            size = max(np.abs(wanted).max(), natural, 1e-300)
            yield name, np.linalg.norm((found - wanted) / size) / GRADIENT_ERROR


def check(quantity, x, initial, rates, expected, method, device="cpu"):
    inputs = [torch.tensor(v, dtype=torch.float64, device=device, requires_grad=True) for v in (x, initial, rates)]
    value = FUNCTIONS[quantity](*inputs, method=method)
    slopes = [slope.cpu().numpy() for slope in torch.autograd.grad(value, inputs)]
    for name, error in close_enough(expected, value.item(), *slopes, x, rates):
        assert error < 1, (quantity, method, name, error, x, initial, rates)


class Row:
    """One case of the reference file, read like the reference itself."""

    def __init__(self, index):
        phases = int(REFERENCE["phases"][index])
        self.quantity = list(CODES)[REFERENCE["quantity"][index]]
        self.x = float(REFERENCE["x"][index])
        self.initial, self.rates, self.d_initial, self.d_rates = (
            REFERENCE[name][index][:phases] for name in ("initial", "rates", "d_initial", "d_rates")
        )
        self.value, self.d_x = float(REFERENCE["value"][index]), float(REFERENCE["d_x"][index])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["auto", "squaring"])
@pytest.mark.parametrize("phases", np.unique(REFERENCE["phases"]).tolist())
def test_values_and_gradients_meet_the_promise_on_the_grid(phases, method, device):
    for index in np.flatnonzero(REFERENCE["phases"] == phases):
        row = Row(index)
        check(row.quantity, row.x, row.initial, row.rates, row, method, device)


@pytest.mark.parametrize("phases", np.unique(REFERENCE["phases"]).tolist())
def test_squaring_in_plain_torch_meets_the_promise_on_the_grid(phases):
    for index in np.flatnonzero(REFERENCE["phases"] == phases):
        row = Row(index)
        found = Evaluation(
            *(torch.empty(s, dtype=torch.float64) for s in (1, 1, (1, phases), (1, phases))), torch.zeros(1), True
        )
        inputs = [torch.tensor(v, dtype=torch.float64)[None] for v in (row.x, row.initial, row.rates)]
        zero = torch.zeros(1, dtype=torch.int64)
        squaring.fill(CODES[row.quantity], *inputs, zero, zero, found)
        if row.quantity == "cdf" and row.value > -0.5:
            continue  # above the median F is the complement of S, which is tested on its own
        slopes = found.d_x.item(), found.d_initial[0].numpy(), found.d_rates[0].numpy()
        for name, error in close_enough(row, found.value.item(), *slopes, row.x, row.rates):
            assert error < 1, (name, error, index)


@st.composite
def chains(draw, max_phases=14):
    """A start vector, rates of ratio up to 1e8 (also equal and nearly so) and a point with log S above -1e6."""
    m = draw(st.integers(1, max_phases))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    decades = draw(st.sampled_from([0.0, 1e-12, 1e-6, 0.3, 2.0, 8.0]))
    rates = np.sort(10 ** (decades * rng.random(m))) * 10.0 ** draw(st.integers(-4, 4))
    initial = rng.dirichlet(np.full(m, draw(st.sampled_from([0.1, 1.0]))))
    if draw(st.booleans()):
        initial[rng.integers(1, m + 1) :] = 0  # entered early only
    assume(initial.sum() > 0.1)
    x = 10.0 ** draw(st.floats(-12, 8)) / rates[-1]
    return min(x, 1e6 / rates[0]), initial / initial.sum(), rates


@settings(max_examples=60, deadline=None)
@given(chains(), st.sampled_from(list(FUNCTIONS)))
def test_drawn_chains_meet_the_promise(chain, quantity):
    x, initial, rates = chain
    expected = log_reference(quantity, x, initial, rates)
    for method in ("auto", "squaring"):
        check(quantity, x, initial, rates, expected, method)


@pytest.mark.soak
@settings(max_examples=2000, deadline=None)
@given(chains(max_phases=40), st.sampled_from(list(FUNCTIONS)))
def test_many_drawn_chains_meet_the_promise(chain, quantity):
    x, initial, rates = chain
    check(quantity, x, initial, rates, log_reference(quantity, x, initial, rates), "auto")


def rows(count, phases, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.as_tensor(rng.pareto(2.4, count) + 0.05)
    rates = torch.as_tensor(np.cumsum(rng.gamma(0.5, 1.0, (count, phases)) + 1e-2, axis=1))
    return x, torch.as_tensor(rng.dirichlet(np.ones(phases), count)), rates


@pytest.mark.parametrize("quantity", FUNCTIONS)
@pytest.mark.parametrize("phases", [1, 4, 10, 24])
def test_the_torch_contour_agrees_with_auto_where_its_condition_is_good(quantity, phases):
    from phvae.kernels import contour

    x, initial, rates = rows(300, phases)
    value = FUNCTIONS[quantity](x, initial, rates)
    plain = FUNCTIONS[quantity](x, initial, rates, method="contour")
    condition = contour.condition(CODES[quantity], x, initial, rates)
    # rounding is about 3e-16 per unit of the condition; 1e-8 is the truncation of 20 nodes for rates this close
    good = condition < 1e5
    assert good.double().mean() > 0.5
    truncation = 1e-12 if phases <= 10 else 1e-8
    assert bool(((plain - value).abs() <= 1e-15 * condition * phases + truncation)[good].all())


@pytest.mark.parametrize("quantity", FUNCTIONS)
def test_uniformization_agrees_to_its_truncation(quantity):
    x, initial, rates = rows(50, 6)
    initial[:10, 1:] = 0
    initial[:10, 0] = 1
    inputs = [tensor.clone().requires_grad_() for tensor in (x, initial, rates)]
    value = FUNCTIONS[quantity](*inputs, method="uniformization")
    expected = FUNCTIONS[quantity](*inputs)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-8 * 1.1)
    slopes, wanted = (torch.autograd.grad(v.sum(), inputs) for v in (value, expected))
    for slope, want in zip(slopes, wanted, strict=True):
        # a term dropped at 1e-8 of the sum has up to k ~ 100 times that in its slope
        torch.testing.assert_close(slope, want, rtol=1e-5, atol=1e-5 * float(want.abs().max()))


def test_uniformization_keeps_log_scale_where_poisson_weights_underflow():
    x, initial, rates = torch.tensor(40.0), torch.tensor([0.5, 0.5]), torch.tensor([1.0, 50.0])
    value = series.log_density(x, initial, rates, method="uniformization")
    assert float(value) == pytest.approx(float(series.log_density(x, initial, rates)), abs=1e-8)


def test_an_early_entry_is_never_exactly_zero_by_uniformization():
    rates = torch.linspace(1, 2, 12, dtype=torch.float64)
    initial = torch.eye(12, dtype=torch.float64)[0]
    value = series.log_density(torch.tensor(1e-6), initial, rates, method="uniformization")
    assert float(value) == pytest.approx(float(series.log_density(torch.tensor(1e-6), initial, rates)), abs=1e-8)


def test_uniformization_states_where_it_stops():
    x = torch.tensor([1.0, 2 * LARGEST_JUMPS])
    with pytest.raises(ValueError, match=r"x\[1\] = 200000 times the largest rate .* at most 100000 expected jumps"):
        series.log_density(x, torch.tensor([1.0]), torch.tensor([1.0]), method="uniformization")


@pytest.mark.parametrize("quantity", FUNCTIONS)
@pytest.mark.parametrize("phases", [1, 3, 10, 16])
def test_gradients_pass_autograd_checks(quantity, phases):
    inputs = tuple(tensor.requires_grad_() for tensor in rows(4, phases, seed=1))
    assert torch.autograd.gradcheck(FUNCTIONS[quantity], inputs, atol=1e-6, rtol=1e-6)


def test_rows_that_share_a_law_add_up_their_gradients():
    x, initial, rates = rows(5000, 8)
    shared = [initial[0].clone().requires_grad_(), rates[0].clone().requires_grad_()]
    own = [p.detach().expand(5000, 8).clone().requires_grad_() for p in shared]
    weight = torch.linspace(-1, 1, 5000, dtype=torch.float64)
    together = torch.autograd.grad((weight * series.log_density(x, *shared)).sum(), shared)
    apart = torch.autograd.grad((weight * series.log_density(x, *own)).sum(), own)
    for one, many in zip(together, apart, strict=True):
        torch.testing.assert_close(one, many.sum(0), rtol=1e-11, atol=1e-11 * float(many.abs().sum()))


def test_any_batch_shapes_broadcast_and_threads_change_nothing():
    x, initial, rates = rows(12, 5)
    value = series.log_density(x[:, None, None], initial[:3], rates[:4, None])
    assert value.shape == (12, 4, 3)
    assert float(value[7, 2, 1]) == float(series.log_density(x[7], initial[1], rates[2]))
    x, initial, rates = rows(30_000, 5)
    before = torch.get_num_threads()
    try:
        answers = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            answers.append(series.log_survival(x, initial, rates))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(answers[0], answer) for answer in answers[1:])


@pytest.mark.parametrize("phases", [3, 10, 24])
def test_a_row_does_not_depend_on_the_rows_beside_it(phases):
    x, initial, rates = rows(21, phases)
    x[4], rates[9, 0], initial[13, 0] = math.nan, -1.0, 0.0
    law = torch.arange(21)
    whole = backends.evaluate(DENSITY, x, initial, rates, law, "auto", gradients=True)
    for first, last in ((0, 1), (3, 10), (7, 21), (13, 14)):
        some = slice(first, last)
        part = backends.evaluate(
            DENSITY, x[some], initial[some], rates[some], law[: last - first], "auto", gradients=True
        )
        for name in ("value", "d_x", "d_initial", "d_rates", "status"):
            assert torch.equal(getattr(part, name).nan_to_num(), getattr(whole, name)[some].nan_to_num()), name


@pytest.mark.parametrize("power", [-900, 900])
def test_the_unit_of_time_may_be_extreme(power):
    x, initial, rates = rows(40, 10)
    expected = backends.evaluate(DENSITY, x, initial, rates, torch.arange(40), "auto", gradients=True)
    unit = 2.0**power
    found = backends.evaluate(DENSITY, x * unit, initial, rates / unit, torch.arange(40), "auto", gradients=True)
    torch.testing.assert_close(found.value, expected.value - power * math.log(2), rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(found.d_x * unit, expected.d_x, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found.d_initial, expected.d_initial, rtol=1e-11, atol=0)
    torch.testing.assert_close(found.d_rates / unit, expected.d_rates, rtol=1e-11, atol=1e-11)


def test_an_empty_batch_gives_an_empty_answer():
    for method in ("auto", "squaring", "contour", "uniformization"):
        value = series.log_density(torch.empty(0), torch.ones(1), torch.ones(1), method=method)
        assert value.shape == (0,)


def test_float32_input_is_computed_in_float64():
    x, initial, rates = (tensor.float() for tensor in rows(100, 7))
    value = series.log_density(x, initial, rates)
    assert value.dtype == torch.float64
    assert torch.equal(value, series.log_density(x.double(), initial.double(), rates.double()))


@pytest.mark.parametrize("method", ["auto", "squaring"])
def test_the_ends_of_the_half_line_are_limits(method):
    initial = torch.tensor([0.25, 0.75], dtype=torch.float64, requires_grad=True)
    rates = torch.tensor([1.0, 4.0], dtype=torch.float64, requires_grad=True)
    for x, density, survival, cdf in ((0.0, math.log(3.0), 0.0, -math.inf), (math.inf, -math.inf, -math.inf, 0.0)):
        for name, wanted in (("density", density), ("survival", survival), ("cdf", cdf)):
            point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
            value = FUNCTIONS[name](point, initial, rates, method=method)
            assert float(value.detach()) == pytest.approx(wanted, abs=1e-15)
            if x == 0:
                near = torch.tensor(1e-9, dtype=torch.float64, requires_grad=True)
                beside = torch.autograd.grad(FUNCTIONS[name](near, initial, rates), (near, initial, rates))
                at = torch.autograd.grad(value, (point, initial, rates))
                for limit, slope in zip(at, beside, strict=True):
                    finite = limit.isfinite()
                    torch.testing.assert_close(limit[finite], slope[finite], rtol=1e-6, atol=1e-6)
                    assert bool((slope[~finite] > 1e6).all())


@pytest.mark.parametrize("method", ["auto", "squaring"])
def test_a_row_that_is_no_law_is_nan_and_leaves_its_neighbours_alone(method):
    x, initial, rates = rows(8, 3)
    good = series.log_density(x, initial, rates, method=method)
    x[1] = -1.0
    x[2] = math.nan
    initial[3, 1] = -0.5
    initial[4] = 0.0
    rates[5, 0] = 0.0
    rates[6] = rates[6].flip(0)
    rates[7, 2] = math.inf
    x.requires_grad_()
    value = series.log_density(x, initial, rates, method=method)
    assert value.isnan().tolist() == [False] + [True] * 7
    assert value[0].item() == good[0].item()
    (slope,) = torch.autograd.grad(value[0], x)
    assert slope.isfinite().all(), "a row that is not asked for does not spoil the gradient"


@pytest.mark.parametrize("quantity", FUNCTIONS)
def test_the_way_of_a_device_without_triton_gives_the_same_answers(quantity, monkeypatch):
    x, initial, rates = rows(40, 6)
    x[:3] = torch.tensor([0.0, math.inf, -1.0])
    initial[3, 0] = -1.0
    law = torch.arange(40)
    expected = backends.evaluate(CODES[quantity], x, initial, rates, law, "auto", gradients=True)
    monkeypatch.setattr(backends, "_on_cpu", lambda q, x, a, r, law, method, g: backends._in_torch(q, x, a, r, law, g))
    found = backends.evaluate(CODES[quantity], x, initial, rates, law, "auto", gradients=True)
    for name in ("value", "d_x", "d_initial", "d_rates"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9, equal_nan=True)


def test_memory_stays_near_that_of_the_inputs():
    """The derivatives that are kept are as large as the parameters; squaring works in a few matrices per thread."""
    x, initial, rates = rows(4, 64)
    law = torch.arange(4)
    found = backends.evaluate(DENSITY, x, initial, rates, law, "squaring", gradients=True)
    kept = sum(t.numel() * t.element_size() for t in found[:5])
    assert kept <= 1.2 * sum(t.numel() * t.element_size() for t in (x, initial, rates))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "exact"}, "method is 'exact'; use"),
        ({"rates": torch.ones(3)}, r"initial has shape \(2,\) and rates \(3,\); both need"),
        ({"initial": torch.ones(0), "rates": torch.ones(0)}, "at least one"),
    ],
)
def test_a_wrong_call_is_one_line(arguments, message):
    call = {"x": torch.tensor(1.0), "initial": torch.tensor([0.5, 0.5]), "rates": torch.tensor([1.0, 2.0])} | arguments
    with pytest.raises(ValueError, match=message):
        series.log_density(**call)
