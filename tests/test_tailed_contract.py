"""What laws that bend the time of a chain promise, whatever the bend; `distribution_cases.TAILED_CASES` lists them."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from distribution_cases import TAILED_CASES, assert_density_is_the_derivative
from scipy import stats
from torch.distributions import Independent

from phvae.distributions import MatrixLogNormal, MatrixPareto, MatrixWeibull, SeriesPhaseType
from phvae.distributions.located import Located
from phvae.distributions.zero_atom import ZeroAtom

LEVELS = (1e-9, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-6)


@pytest.fixture(params=TAILED_CASES, name="law", scope="module")
def _law(request):
    return TAILED_CASES[request.param]()


@cache
def points(law):
    """Points over the whole law, shape (6, *batch)."""
    return law.icdf(torch.tensor(LEVELS, dtype=torch.float64).reshape(-1, *(1,) * len(law.batch_shape)))


def gauss(function, low, high, panels=60, order=20):
    """Gauss panels of equal width; shapes of the ends are those of the batch."""
    node, weight = (torch.as_tensor(v) for v in np.polynomial.legendre.leggauss(order))
    node, weight = (v.reshape(-1, *(1,) * (1 + low.ndim)) for v in (node, weight))
    edges = low + (high - low) * (torch.arange(panels + 1, dtype=torch.float64) / panels).reshape(-1, *(1,) * low.ndim)
    half = edges.diff(dim=0) / 2
    return (weight * half * function(edges[:-1] + half * (1 + node))).sum((0, 1))


def test_the_density_is_the_derivative_of_cdf_and_survival(law):
    assert_density_is_the_derivative(law, points(law))


def test_the_density_integrates_to_differences_of_the_cdf(law):
    x = points(law).log()
    for low, high in pairwise(x[1:]):
        mass = gauss(lambda t: (law.log_prob(t.exp()) + t).exp(), low, high)
        torch.testing.assert_close(mass, law.cdf(high.exp()) - law.cdf(low.exp()), rtol=0, atol=1e-9)


def test_cdf_and_survival_add_up_to_one(law):
    x = points(law)
    torch.testing.assert_close(law.cdf(x) + law.sf(x), torch.ones_like(x), rtol=0, atol=2e-10)


def test_quantiles_invert_the_tails_at_any_depth(law):
    for level in (0.5, 1e-3, 1e-15, 1e-80):
        torch.testing.assert_close(law.log_sf(law.isf(level)), law.log_sf(1.0) * 0 + math.log(level), rtol=1e-8, atol=0)
        torch.testing.assert_close(
            law.log_cdf(law.icdf(level)), law.log_sf(1.0) * 0 + math.log(level), rtol=1e-8, atol=0
        )


def test_stop_loss_moments_are_the_integrals_of_the_survival(law):
    """Panels in log(x - u) far wider than the integrand, where the power of the tail leaves a moment."""
    for order in (1, 2):
        exists = order * law.tail_index < 1
        for threshold in (torch.zeros(law.batch_shape, dtype=torch.float64), points(law)[3], points(law)[5]):
            answer = law.log_excess(threshold, order)
            assert bool((answer[~exists] == torch.inf).all())
            if not bool(exists.any()):
                continue
            middle = (law.isf(1e-3 * law.sf(threshold)) - threshold).log()
            # the integrand falls like exp((order - 1 / index) v) on the right, like exp(order v) on the left
            slowest = (
                1 / law.tail_index[exists].max() - order if bool((law.tail_index > 0).any()) else torch.tensor(1.0)
            )
            reach = 45 / min(1.0, float(slowest))

            def integrand(v, u=threshold, k=order):
                return (math.log(k) + k * v + law.log_sf(u + v.exp()) - law.log_sf(u)).exp()

            numeric = gauss(integrand, middle - 60, middle + 0 * reach, 200) + gauss(
                integrand, middle, middle + reach, 300
            )
            mine = (answer - law.log_sf(threshold)).exp()
            torch.testing.assert_close(mine[exists], numeric[exists], rtol=2e-9, atol=0)


def test_mean_variance_and_shortfall_follow_from_the_stop_loss_moments(law):
    zero = torch.zeros(law.batch_shape, dtype=torch.float64)
    torch.testing.assert_close(law.mean, law.log_excess(zero).exp(), rtol=1e-14, atol=0)
    second = law.log_excess(zero, 2).exp()
    expected = torch.where(second < torch.inf, second - law.mean**2, torch.inf)
    torch.testing.assert_close(law.variance, expected, rtol=1e-9, atol=0)
    quantile = law.icdf(0.99)
    torch.testing.assert_close(law.cvar(0.99), quantile + law.mean_excess(quantile), rtol=1e-12, atol=0)


def test_the_hazard_is_density_over_survival_and_reaches_its_limit(law):
    x = points(law)
    torch.testing.assert_close(law.hazard(x), law.log_prob(x).exp() / law.sf(x), rtol=1e-9, atol=0)
    limit = law.hazard(torch.inf)
    far, farther = law.hazard(law.isf(1e-30)), law.hazard(law.isf(1e-60))
    assert bool(torch.where(limit == 0, farther < far, torch.where(limit == torch.inf, farther > far, True)).all())
    settled = (limit > 0) & (limit < torch.inf)
    torch.testing.assert_close(farther[settled], limit[settled], rtol=1e-6, atol=0)


def test_the_tail_falls_with_the_power_of_its_index(law):
    """``d log S / d log x`` is ``-1 / index`` far out, and steeper than any power where every moment exists."""
    x = law.isf(torch.tensor([1e-40, 1e-60], dtype=torch.float64).reshape(-1, *(1,) * len(law.batch_shape)))
    slope = -(law.hazard(x) * x)
    power = law.tail_index > 0
    torch.testing.assert_close(slope[1][power], -1 / law.tail_index[power], rtol=1e-6, atol=0)
    assert bool((slope[1] < slope[0])[~power].all())


def test_values_at_the_ends_of_the_support_are_the_limits(law):
    zeros = torch.zeros(law.batch_shape, dtype=torch.float64)
    for answer, limit in (
        (law.log_sf(0.0), zeros),
        (law.log_sf(-1.0), zeros),
        (law.log_cdf(0.0), zeros - torch.inf),
        (law.log_prob(-1.0), zeros - torch.inf),
        (law.log_sf(torch.inf), zeros - torch.inf),
        (law.log_cdf(torch.inf), zeros),
        (law.log_prob(torch.inf), zeros - torch.inf),
        (law.icdf(0.0), zeros),
        (law.isf(0.0), zeros + torch.inf),
        (law.isf(1.0), zeros),
    ):
        torch.testing.assert_close(answer, limit, rtol=0, atol=0)
    at_zero = law.log_prob(0.0)
    assert torch.equal(at_zero == torch.inf, law.shape < 1)
    assert torch.equal(at_zero == -torch.inf, law.shape > 1)


def test_expanding_and_wrapping_keep_the_law(law):
    shape = torch.Size([2, *law.batch_shape])
    wide, x = law.expand(shape), points(law)[2]
    assert type(wide) is type(law)
    assert wide.batch_shape == shape
    torch.testing.assert_close(wide.log_prob(x), law.log_prob(x).expand(shape), rtol=1e-13, atol=1e-13)
    assert wide.sample((3,)).shape == (3, *shape)
    if law.batch_shape:
        joint = Independent(law, 1)
        torch.testing.assert_close(joint.log_prob(x), law.log_prob(x).sum(-1))
    # what is left of the point when the origin is taken off again
    x, moved = (x + 5) - 5, Located(law, 5.0)
    torch.testing.assert_close(moved.log_sf(x + 5), law.log_sf(x), rtol=1e-9, atol=1e-12)
    zeros = ZeroAtom(0.0, moved)
    torch.testing.assert_close(zeros.log_prob(x + 5), law.log_prob(x) - math.log(2), rtol=1e-9, atol=1e-9)
    assert bool((zeros.log_prob(0.0) == -math.log(2)).all())


def test_draws_follow_the_law(law):
    """Kolmogorov's distance of 20,000 draws: a right law fails once in 1e7 for each of the batch."""
    u = law.cdf(law.sample((20_000,), torch.Generator().manual_seed(7))).reshape(20_000, -1)
    for column in u.T:
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-7


def test_gradients_in_all_parameters_agree_with_differences(law):
    x = law.isf(torch.tensor(0.03, dtype=torch.float64))
    # next to a shape of 1 a lognormal tail has other moments
    steady = (law.tail_index < 0.9) & ~((law.shape == 1) & isinstance(law, MatrixLogNormal))
    parameters = {name: getattr(law, name).clone().requires_grad_() for name in ("shape", "scale")}

    def quantities(shape, scale):
        again = type(law)(law.base, shape, scale)
        yield again.log_prob(x)
        yield again.log_sf(x)
        yield again.isf(0.03).log()
        yield torch.where(steady, again.log_excess(x), 0.0)

    for position, value in enumerate(quantities(**parameters)):
        gradients = torch.autograd.grad(value.sum(), list(parameters.values()), allow_unused=True, retain_graph=True)
        for (name, at), gradient in zip(parameters.items(), gradients, strict=True):
            step = 1e-5 * at.detach()
            ends = []
            for sign in (1, -1):
                moved = {k: v.detach() for k, v in parameters.items()} | {name: at.detach() + sign * step}
                ends.append(list(quantities(**moved))[position])
            numeric = (ends[0] - ends[1]) / (2 * step)
            if gradient is None:
                gradient = torch.zeros_like(numeric)
            torch.testing.assert_close(gradient, numeric, rtol=1e-4, atol=1e-5)


def test_pathwise_draws_carry_the_gradient_of_the_quantile():
    shape = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    law = MatrixPareto(SeriesPhaseType([1.0], [3.0]), shape, 5.0)
    x = law.rsample(generator=torch.Generator().manual_seed(0))
    (slope,) = torch.autograd.grad(x, shape)
    level = float(law.sf(x.detach()).detach())
    nearby = torch.tensor([2 - 1e-6, 2 + 1e-6], dtype=torch.float64)
    quantile = MatrixPareto(SeriesPhaseType([1.0], [3.0]), nearby, 5.0).isf(level)
    assert float(slope) == pytest.approx(float(quantile.diff()) / 2e-6, rel=1e-5)


def test_one_phase_is_the_classical_law():
    x = np.array([0.01, 0.5, 3.0, 80.0])
    for law, classical in (
        (MatrixWeibull(SeriesPhaseType([1.0], [1.0]), 0.7, 4.0), stats.weibull_min(0.7, scale=4.0)),
        (MatrixPareto(SeriesPhaseType([1.0], [0.8]), 1.5, 2.0), stats.burr12(1.5, 0.8, scale=2.0)),
        (MatrixPareto(SeriesPhaseType([1.0], [2.4]), 1.0, 2.0), stats.lomax(2.4, scale=2.0)),
    ):
        np.testing.assert_allclose(law.log_prob(x), classical.logpdf(x), rtol=1e-11)
        np.testing.assert_allclose(law.log_sf(x), classical.logsf(x), rtol=1e-10)
        assert float(law.mean) == pytest.approx(classical.mean(), rel=1e-9) or not np.isfinite(classical.mean())


def test_a_wrong_shape_or_scale_is_named():
    with pytest.raises(ValueError, match="shape"):
        MatrixPareto(SeriesPhaseType([1.0], [1.0]), 0.0)
    with pytest.raises(ValueError, match="scale"):
        MatrixWeibull(SeriesPhaseType([1.0], [1.0]), 1.0, -2.0)
    with pytest.raises(ValueError, match="order = 0"):
        MatrixLogNormal(SeriesPhaseType([1.0], [1.0]), 2.0).log_excess(1.0, 0)
