"""What every law promises, whatever its family; `distribution_cases.CASES` lists the laws."""

import copy
import math
from functools import cache

import numpy as np
import pytest
import torch
from distribution_cases import CASES, SIGNED_CASES, TAILED_CASES, assert_density_is_the_derivative
from torch.distributions import Distribution, Independent

import phvae.distributions
from phvae.distributions import PhaseType, SeriesPhaseType

LEVELS = (1e-9, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-6)
# The promise of the kernels for one logarithm: 1e-10 of max(1, |log|).
KERNEL = 1e-10


@pytest.fixture(params=CASES, name="law", scope="module")
def _law(request):
    return CASES[request.param]()


@cache
def points(law):
    """Points over the whole law, shape (6, *batch)."""
    return law.icdf(torch.tensor(LEVELS, dtype=torch.float64).reshape(-1, *(1,) * len(law.batch_shape)))


def integral(law, function, low, high, count=2000):
    """Trapezoidal rule in log x: analytic integrands that die off at both ends, so it converges geometrically."""
    low, high = low.log(), high.log()
    grid = (torch.arange(count, dtype=torch.float64) / count).reshape(-1, *(1,) * len(law.batch_shape))
    x = (low + (high - low) * grid).exp()
    return (function(x) * x).sum(0) * (high - low) / count


def whole(law, function):
    """Over all but 1e-18 of the probability at either end."""
    return integral(law, function, law.icdf(1e-18), law.isf(1e-18))


def test_every_public_law_has_a_case():
    public = {getattr(phvae.distributions, name) for name in phvae.distributions.__all__}
    laws = {item for item in public if isinstance(item, type) and issubclass(item, Distribution)}
    assert laws
    assert laws <= {type(make()) for make in (CASES | TAILED_CASES | SIGNED_CASES).values()}


def test_the_package_offers_the_laws_at_the_top():
    import phvae

    assert phvae.SeriesPhaseType is SeriesPhaseType
    assert phvae.PhaseType is PhaseType


def test_the_density_is_the_derivative_of_cdf_and_survival(law):
    assert_density_is_the_derivative(law, points(law))


def test_the_density_integrates_to_differences_of_the_cdf(law):
    """Gauss-Legendre between neighbouring quantiles: the two sides come from different formulas."""
    node, weight = (torch.as_tensor(v) for v in np.polynomial.legendre.leggauss(80))
    x = points(law)[1:].log()
    middle, half = (x[1:] + x[:-1]) / 2, (x[1:] - x[:-1]) / 2
    shape = (-1, *(1,) * middle.ndim)
    position = middle + half * node.reshape(shape)
    mass = (weight.reshape(shape) * half * (law.log_prob(position.exp()) + position).exp()).sum(0)
    torch.testing.assert_close(mass, law.cdf(x[1:].exp()) - law.cdf(x[:-1].exp()), rtol=0, atol=1e-9)


def test_the_density_slopes_as_its_differences_say(law):
    x = points(law)
    step = 1e-4  # error: step^4 from the rule, KERNEL / step from rounding
    log_f = {k: law.log_prob(x * (1 + k * step)) for k in (-2, -1, 1, 2)}
    numeric = (8 * (log_f[1] - log_f[-1]) - (log_f[2] - log_f[-2])) / (12 * step * x)
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(law.log_prob(x).sum(), x)
    blur = (1 + log_f[1].abs()) * KERNEL / (step * x.detach())
    assert bool(((slope - numeric).abs() <= blur + 1e-9 * slope.abs()).all())


def test_cdf_and_survival_add_up_to_one(law):
    x = points(law)
    torch.testing.assert_close(law.cdf(x) + law.sf(x), torch.ones_like(x), rtol=0, atol=2 * KERNEL)


def test_probabilities_are_the_exponentials_of_their_logs(law):
    x = points(law)
    assert torch.equal(law.cdf(x), law.log_cdf(x).exp())
    assert torch.equal(law.sf(x), law.log_sf(x).exp())


def test_moments_are_the_integrals_of_powers(law):
    for order in (0, 1, 2, 3, 4):
        numeric = integral(
            law, lambda x, k=order: (law.log_prob(x) + k * x.log()).exp(), law.icdf(1e-18), 2 * law.isf(1e-18)
        )
        torch.testing.assert_close(law.moment(order), numeric, rtol=1e-9, atol=0)


def test_mean_variance_and_deviation_are_those_of_the_moments(law):
    torch.testing.assert_close(law.mean, law.moment(1), rtol=1e-15, atol=0)
    torch.testing.assert_close(law.variance, law.moment(2) - law.moment(1) ** 2, rtol=1e-9, atol=0)
    torch.testing.assert_close(law.stddev**2, law.variance, rtol=1e-14, atol=0)


def test_the_laplace_transform_is_its_integral(law):
    for factor in (0.0, 1e-3, 1.0, 50.0):
        s = factor / law.mean
        numeric = whole(law, lambda x, s=s: (law.log_prob(x) - s * x).exp())
        torch.testing.assert_close(law.laplace(s), numeric, rtol=1e-9, atol=0)


def test_the_laplace_transform_generates_the_moments(law):
    s = torch.zeros(law.batch_shape, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(law.laplace(s).sum(), s)
    torch.testing.assert_close(-slope, law.mean, rtol=1e-12, atol=0)


def test_the_laplace_transform_tends_to_zero_and_one(law):
    assert torch.equal(law.laplace(torch.inf), torch.zeros(law.batch_shape, dtype=torch.float64))
    torch.testing.assert_close(law.laplace(0.0), torch.ones(law.batch_shape, dtype=torch.float64), rtol=1e-14, atol=0)


def test_the_mean_excess_is_the_integral_of_the_survival(law):
    for threshold in points(law)[1:]:
        start = law.log_sf(threshold)
        # x = threshold + y; in log y the integrand is analytic and dies off at both ends
        ends = law.isf(1e-18 * start.exp())
        numeric = integral(
            law,
            lambda y, u=threshold, s=start: (law.log_sf(u + y) - s).exp(),
            1e-18 * law.mean,
            ends - threshold,
            2000,
        )
        torch.testing.assert_close(law.mean_excess(threshold), numeric, rtol=1e-8, atol=0)


def test_the_shortfall_is_the_mean_of_the_quantiles_beyond_the_level(law):
    """``∫ isf(v) dv`` over v < 1 - level is ``∫ x f(x) dx`` beyond the quantile: Gauss panels in log x."""
    node, weight = (torch.as_tensor(v) for v in np.polynomial.legendre.leggauss(10))
    node, weight = (v.reshape(-1, *(1,) * (1 + len(law.batch_shape))) for v in (node, weight))
    panels = (torch.arange(41, dtype=torch.float64) / 40).reshape(-1, *(1,) * len(law.batch_shape))
    level = 0.9
    start, end = law.icdf(level).log(), law.isf(1e-20).log()
    edges = start + (end - start) * panels
    half = edges.diff(dim=0) / 2
    position = edges[:-1] + half * (1 + node)
    beyond = (weight * half * (law.log_prob(position.exp()) + 2 * position).exp()).sum((0, 1))
    torch.testing.assert_close(law.cvar(level), beyond / (1 - level), rtol=1e-8, atol=0)


def test_the_shortfall_is_quantile_plus_mean_excess(law):
    level = 0.999
    quantile = law.icdf(level)
    torch.testing.assert_close(law.cvar(level), quantile + law.mean_excess(quantile), rtol=1e-12, atol=0)
    torch.testing.assert_close(law.cvar(0.0), law.mean, rtol=1e-9, atol=0)


def test_the_hazard_is_density_over_survival(law):
    x = points(law)
    torch.testing.assert_close(law.hazard(x), law.log_prob(x).exp() / law.sf(x), rtol=1e-9, atol=0)


def test_scaling_moves_mass_without_changing_it(law):
    x, factor = points(law), 8.0
    wide = law.scaled(factor)
    assert type(wide) is type(law)
    torch.testing.assert_close(wide.log_prob(factor * x), law.log_prob(x) - math.log(factor), rtol=KERNEL, atol=KERNEL)
    torch.testing.assert_close(wide.log_sf(factor * x), law.log_sf(x), rtol=KERNEL, atol=KERNEL)
    torch.testing.assert_close(wide.mean, factor * law.mean, rtol=1e-14, atol=0)
    torch.testing.assert_close(wide.variance, factor**2 * law.variance, rtol=1e-14, atol=0)


def test_single_precision_points_are_taken_exactly(law):
    x = points(law).float()
    for name in ("log_prob", "log_sf", "log_cdf", "hazard", "mean_excess"):
        answer = getattr(law, name)(x)
        assert answer.dtype is torch.float64
        assert torch.equal(answer, getattr(law, name)(x.double()))


def test_lists_and_arrays_are_taken_as_tensors_are(law):
    x = points(law)
    assert torch.equal(law.log_prob(x.numpy()), law.log_prob(x))
    assert torch.equal(law.log_prob(x.tolist()), law.log_prob(x))
    assert torch.equal(law.log_prob(1), law.log_prob(torch.tensor(1.0)))


def test_values_at_zero_and_infinity_are_the_limits(law):
    ones, zeros = (torch.full(law.batch_shape, v, dtype=torch.float64) for v in (1.0, 0.0))
    never = zeros.log()
    for answer, limit in (
        (law.sf(0.0), ones),
        (law.cdf(0.0), zeros),
        (law.log_cdf(0.0), never),
        (law.sf(torch.inf), zeros),
        (law.log_sf(torch.inf), never),
        (law.cdf(torch.inf), ones),
        (law.log_prob(torch.inf), never),
        (law.hazard(torch.inf), law.tail_rate.expand(law.batch_shape)),
        (law.mean_excess(torch.inf), (1 / law.tail_rate).expand(law.batch_shape)),
        (law.icdf(0.0), zeros),
        (law.icdf(1.0), ones * torch.inf),
        (law.isf(0.0), ones * torch.inf),
        (law.isf(1.0), zeros),
        (law.cvar(1.0), ones * torch.inf),
    ):
        torch.testing.assert_close(answer, limit, rtol=2e-15, atol=0)
    chain = law.to_phase_type()
    torch.testing.assert_close(law.log_prob(0.0), (chain.initial * chain.exit_rates).sum(-1).log(), rtol=1e-12, atol=0)
    torch.testing.assert_close(law.mean_excess(0.0), law.mean, rtol=1e-12, atol=0)


def test_the_log_survival_reaches_minus_a_million(law):
    x = 1e6 / law.tail_rate
    log_sf = law.log_sf(x)
    # log S(x) + rate x grows no faster than log(x^m) and the chains here enter their slowest class with odds > 1e-7
    assert bool(((log_sf + 1e6).abs() < 20 + 30 * math.log(1e6)).all())
    torch.testing.assert_close(law.hazard(x), law.tail_rate.expand(law.batch_shape), rtol=1e-4, atol=0)
    torch.testing.assert_close(law.mean_excess(x), (1 / law.tail_rate).expand(law.batch_shape), rtol=1e-4, atol=0)
    assert bool((law.log_prob(x) < -9e5).all())


def test_the_tail_rate_is_the_limit_of_the_hazard(law):
    x = torch.tensor([1e9, 4e9], dtype=torch.float64).reshape(-1, *(1,) * len(law.batch_shape)) / law.tail_rate
    fall = (law.log_sf(x[0]) - law.log_sf(x[1])) / (x[1] - x[0])
    torch.testing.assert_close(fall, law.tail_rate.expand(law.batch_shape), rtol=1e-7, atol=0)


def test_expanding_repeats_the_law(law):
    shape = torch.Size([2, *law.batch_shape])
    wide = law.expand(shape)
    x = points(law)[2]
    assert type(wide) is type(law)
    assert wide.batch_shape == shape
    assert wide.event_shape == torch.Size()
    assert wide._validate_args == law._validate_args
    torch.testing.assert_close(wide.log_prob(x), law.log_prob(x).expand(shape), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(wide.mean, law.mean.expand(shape), rtol=1e-14, atol=0)
    assert wide.sample((3,)).shape == (3, *shape)


def test_shapes_broadcast(law):
    x = points(law).unsqueeze(1)
    for name in ("log_prob", "sf", "cdf", "hazard", "mean_excess"):
        assert getattr(law, name)(x).shape == (len(LEVELS), 1, *law.batch_shape)
    assert law.isf(0.5).shape == law.batch_shape
    assert law.laplace(torch.ones(4, 1, *law.batch_shape)).shape == (4, 1, *law.batch_shape)
    assert law.sample((4, 2)).shape == (4, 2, *law.batch_shape)
    assert law.rsample((4,)).shape == (4, *law.batch_shape)
    assert law.mean.shape == law.variance.shape == law.stddev.shape == law.moment(3).shape == law.batch_shape
    assert law.entropy().shape == law.batch_shape


def test_each_law_of_a_batch_is_that_law_alone(law):
    if not law.batch_shape:
        with pytest.raises(TypeError, match="no axis to index"):
            law[0]
        return
    x = points(law)
    for place in np.ndindex(*law.batch_shape):
        alone = law[place]
        assert alone.batch_shape == torch.Size()
        here = (slice(None), *place)
        torch.testing.assert_close(alone.log_prob(x[here]), law.log_prob(x)[here], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(alone.log_sf(x[here]), law.log_sf(x)[here], rtol=1e-13, atol=0)
        torch.testing.assert_close(alone.isf(0.01), law.isf(0.01)[place], rtol=1e-9, atol=0)
        torch.testing.assert_close(alone.entropy(), law.entropy()[place], rtol=1e-9, atol=1e-9)
    assert law[..., :1].batch_shape == (*law.batch_shape[:-1], 1)


def test_the_wrappers_of_torch_take_the_law(law):
    assert type(law).__name__ in repr(law)
    assert law.support.check(torch.tensor([0.0, 3.0])).all()
    assert not law.support.check(torch.tensor(-1.0))
    assert law.has_rsample
    wide = law.expand((3, *law.batch_shape))
    joint = Independent(wide, 1 if not law.batch_shape else len(law.batch_shape) + 1)
    x = joint.sample((2,))
    reduced = tuple(range(-len(joint.event_shape), 0))
    torch.testing.assert_close(joint.log_prob(x), wide.log_prob(x).sum(reduced))
    twin = copy.deepcopy(law)
    assert torch.equal(twin.mean, law.mean)


def test_parameters_meet_their_declared_constraints(law):
    for name, constraint in law.arg_constraints.items():
        assert bool(constraint.check(getattr(law, name)).all())


def test_the_law_as_a_general_chain_is_the_same_law(law):
    chain, x = law.to_phase_type(), points(law)
    assert isinstance(chain, PhaseType)
    torch.testing.assert_close(chain.log_prob(x), law.log_prob(x), rtol=2 * KERNEL, atol=2 * KERNEL)
    torch.testing.assert_close(chain.log_cdf(x), law.log_cdf(x), rtol=2 * KERNEL, atol=2 * KERNEL)
    torch.testing.assert_close(chain.variance, law.variance, rtol=1e-12, atol=0)
    torch.testing.assert_close(chain.tail_rate, law.tail_rate, rtol=1e-12, atol=0)


def test_gradients_are_finite_and_respect_the_sum_of_the_entry_probabilities(law):
    names = list(law.arg_constraints)
    values = [getattr(law, name).detach().clone().requires_grad_() for name in names]
    again = type(law)(*values)
    for quantity in (again.mean, again.log_sf(law.mean), again.icdf(0.7), again.entropy(), again.rsample()):
        # the kernels give gradients by the weights alone; the law divides by their sum, which makes them blind to it
        by_initial, by_speed = torch.autograd.grad(quantity.sum(), values, retain_graph=True)
        assert bool(by_initial.isfinite().all())
        torch.testing.assert_close(
            (by_initial * values[0]).sum(-1), torch.zeros(law.batch_shape, dtype=torch.float64), rtol=0, atol=1e-8
        )
        assert bool(by_speed.isfinite().all())
        assert bool((by_speed != 0).any())
