"""The tail-transform flow: an exact inverse, a density of mass one, and the tails it was made for."""

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from phvae.baselines.tail_flow import FlowModel, LogTailTransformFlow, TailTransform, TailTransformFlow, _spline_flow

pytestmark = pytest.mark.skipif(find_spec("zuko") is None, reason="zuko is not installed")

WEIGHTS = [[0.05, 0.6], [1.5, 0.3]]


def transform():
    return TailTransform(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]), torch.tensor(WEIGHTS))


def flow(n_columns=1, *, logarithm=False):
    generator = torch.Generator().manual_seed(1)
    # the exponential of a power tail would leave the floating point numbers
    weight = 0.02 if logarithm else 0.4
    tails = TailTransform(torch.ones(n_columns), torch.full((n_columns,), 0.7), torch.full((n_columns, 2), weight))
    made = FlowModel(
        _spline_flow(n_columns, (8,), 3),
        tails,
        torch.zeros(n_columns).double(),
        torch.full((n_columns,), 2.0).double(),
        logarithm=logarithm,
    )
    with torch.no_grad():
        # splines that bend
        for parameter in made.flow.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator).double())
    return made


def test_the_formula_is_that_of_the_error_function():
    z = torch.tensor([-3.0, -0.4, 0.0, 0.7, 4.0], dtype=torch.float64)
    x = transform()(z[:, None].expand(-1, 2)).detach().numpy()
    for j, (location, scale) in enumerate([(1.0, 0.5), (-2.0, 3.0)]):
        weight = np.where(z.numpy() >= 0, WEIGHTS[j][1], WEIGHTS[j][0])
        bracket = special.erfc(np.abs(z.numpy()) / math.sqrt(2)) ** -weight - 1
        assert x[:, j] == pytest.approx(location + scale * np.sign(z.numpy()) * bracket / weight, rel=1e-6)


def test_the_inverse_is_exact_far_into_both_tails():
    z = torch.linspace(-30, 30, 1001, dtype=torch.float64)[:, None].expand(-1, 2)
    tails = transform()
    back, _ = tails.inverse(tails(z))
    # near the location x is a difference of rounded numbers of size one
    assert torch.allclose(back, z, rtol=1e-11, atol=1e-13)


def test_the_slope_and_all_gradients_of_the_inverse_are_right():
    x = torch.tensor([[-4.0, -9.0], [0.9, -1.7], [2.0, 30.0], [500.0, 1e4]], dtype=torch.float64, requires_grad=True)
    tails = transform()
    z, log_slope = tails.inverse(x)
    (slope,) = torch.autograd.grad(z.sum(), x)
    assert torch.allclose(slope.log(), log_slope, rtol=1e-10, atol=1e-12)

    def values(points, *parameters):
        names = (f"tails.{name}" for name, _ in tails.named_parameters())
        return torch.func.functional_call(Inverse(tails), dict(zip(names, parameters, strict=True)), (points,))

    inputs = [x, *(parameter.detach().clone().requires_grad_() for parameter in tails.parameters())]
    assert torch.autograd.gradcheck(values, inputs, rtol=1e-5)


class Inverse(torch.nn.Module):
    def __init__(self, tails):
        super().__init__()
        self.tails = tails

    def forward(self, x):
        return self.tails.inverse(x)


def distribution(made):
    """Points over the whole support and the distribution function there, by the trapezium rule of the density."""
    with torch.no_grad():
        u = made.tails(torch.linspace(-9, 9, 200_001, dtype=torch.float64)[:, None])
        x = made.scale * (u.exp() if made.logarithm else u)
        density = made.log_prob(x).exp().numpy()
    return x[:, 0].numpy(), integrate.cumulative_trapezoid(density, x[:, 0].numpy(), initial=0)


@pytest.mark.parametrize("logarithm", [False, True])
def test_the_density_has_mass_one(logarithm):
    made = flow(logarithm=logarithm)
    # the points are 9e-5 apart in z, the splines bend over tenths: an error of some 1e-7 of the second derivative
    assert distribution(made)[1][-1] == pytest.approx(1, abs=1e-5)
    if logarithm:
        assert made.log_prob(torch.tensor([[-1.0], [0.0]])).tolist() == [-math.inf, -math.inf]


@pytest.mark.parametrize("logarithm", [False, True])
def test_draws_follow_the_density(logarithm):
    made = flow(logarithm=logarithm)
    rows = made.generate(20_000, generator=torch.Generator().manual_seed(5))[:, 0].numpy()
    x, total = distribution(made)
    assert stats.kstest(rows, lambda values: np.interp(values, x, total)).pvalue > 1e-6


def test_several_columns_have_the_density_of_their_jacobian():
    made = flow(3)
    x = made.generate(4, generator=torch.Generator().manual_seed(6))
    for row in x:
        jacobian = torch.autograd.functional.jacobian(
            lambda u: made.flow().transform(made.tails.inverse(u[None] / 2)[0])[0], row
        )
        with torch.no_grad():
            noise = made.flow().transform(made.tails.inverse(row[None] / 2)[0])[0]
            normal = torch.distributions.Normal(0, 1).log_prob(noise).sum()
            expected = normal + torch.linalg.slogdet(jacobian).logabsdet
            assert float(made.log_prob(row[None])[0]) == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize("make", [TailTransformFlow, LogTailTransformFlow])
def test_it_finds_the_tail_of_a_pareto_law(make):
    truth = stats.pareto(2.0)
    n = 2000
    x = truth.ppf((np.random.default_rng(0).permutation(n) + 0.5) / n)[:, None]
    made = make(epochs=12, learning_rate=0.01).fit(x)
    drawn = made.sample(20_000, seed=0)[:, 0]
    assert made.history_[-1].elbo > made.history_[0].elbo
    # the normal law with this median and 90% quantile has its 99.9% quantile at 5.6, the Pareto law at 31.6
    assert np.quantile(drawn, 0.99) == pytest.approx(truth.isf(0.01), rel=0.25)
    assert np.quantile(drawn, 0.999) > 15


def test_rows_without_logarithm_are_refused():
    with pytest.raises(ValueError, match="1 values have no logarithm"):
        LogTailTransformFlow().fit(np.array([[1.0], [0.0], [2.0]]))


def test_making_a_flow_leaves_the_checks_of_other_laws_on():
    _spline_flow(1, (4,), seed=0)
    with pytest.raises(ValueError, match="rate"):
        torch.distributions.Exponential(torch.tensor(-1.0))
