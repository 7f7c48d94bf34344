"""Laws of the penalised fit of one column."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize

from phvae.kernels import series
from phvae.start import (
    ARRIVED,
    BOTTOM,
    STRENGTHS,
    TOP,
    climb,
    fit_marginals,
    geometric,
    natural,
    penalty,
    roughness,
    sketch,
)

M = 6


def rows(law, n=2000, seed=0):
    return torch.tensor(law.rvs(size=n, random_state=seed))[:, None]


PARETO = rows(stats.lomax(2.0))


def log_density(law, x):
    return series.log_density(x[:, None], law.initial, law.rates)


def objective(s, m, strength):
    """Penalised log-likelihood of a sketch and its gradient, by autograd through the shared law."""
    x, weights, prior = torch.tensor(s.x), torch.tensor(s.weights), penalty(m, strength)

    def value(point):
        theta = torch.tensor(point, requires_grad=True)
        total = (weights * series.log_density(x, *natural(theta))).sum() - theta @ prior @ theta
        (slope,) = torch.autograd.grad(total, theta)
        return -float(total.detach()), -slope.numpy()

    return value


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**30, 1e9])
def test_scaling_the_values_divides_the_rates(factor):
    one, other = fit_marginals(PARETO, n_phases=M), fit_marginals(factor * PARETO, n_phases=M)
    # The climb runs in logarithms, where a scale is a shift: only rounding, amplified by the curvature, differs.
    torch.testing.assert_close(other.rates * factor, one.rates, rtol=1e-6, atol=0)
    torch.testing.assert_close(other.initial, one.initial, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(other.smoothness, one.smoothness, rtol=0, atol=0)


def test_a_weight_of_two_is_a_row_twice_and_order_does_not_matter():
    x = PARETO[:500]
    weights = torch.tensor([1.0, 2.0, 0.0, 3.0, 1.0]).repeat(100)
    repeated = x.repeat_interleave(weights.long(), dim=0)
    shuffled = repeated[torch.randperm(len(repeated), generator=torch.Generator().manual_seed(1))]
    one, other = fit_marginals(x, n_phases=M, weights=weights), fit_marginals(shuffled, n_phases=M)
    for field in ("initial", "rates", "smoothness", "evidence"):
        torch.testing.assert_close(getattr(one, field), getattr(other, field), rtol=0, atol=0)


def test_a_column_does_not_depend_on_its_neighbours():
    x = torch.cat([PARETO, rows(stats.weibull_min(0.8)), rows(stats.gamma(3.0))], 1)
    x[5:1000, 1] = torch.nan
    together = fit_marginals(x, n_phases=M)
    for d in range(3):
        alone = fit_marginals(x[:, d : d + 1], n_phases=M)
        # Sums over a filled-up sketch may round differently.
        torch.testing.assert_close(together.initial[d], alone.initial[0], rtol=1e-6, atol=1e-12)
        torch.testing.assert_close(together.rates[d], alone.rates[0], rtol=1e-6, atol=0)
        assert together.smoothness[d] == alone.smoothness[0]


def test_what_is_masked_missing_or_zero_is_not_there():
    x = PARETO[:600].clone()
    x[0], x[1], x[2] = 0.0, torch.nan, -5.0
    mask = torch.ones_like(x, dtype=torch.bool)
    mask[2] = False
    one, other = fit_marginals(x, n_phases=3, mask=mask), fit_marginals(x[3:], n_phases=3)
    torch.testing.assert_close(one.rates, other.rates, rtol=0, atol=0)
    torch.testing.assert_close(one.initial, other.initial, rtol=0, atol=0)


@pytest.mark.parametrize("strength", [100.0, 1.0])
def test_no_other_optimiser_climbs_higher(strength):
    s = sketch(PARETO[:, 0].numpy(), np.ones(len(PARETO)))
    x, weights = torch.tensor(s.x)[None], torch.tensor(s.weights)[None]
    point, value, _ = climb(x, weights, geometric(s, M)[None], penalty(M, strength))
    function = objective(s, M, strength)
    assert -function(point[0].numpy())[0] == pytest.approx(float(value[0]), rel=1e-12)
    found = minimize(function, point[0].numpy(), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    # The last gain was below ARRIVED and gains shrink geometrically: ten of them bound the rest at a ratio up to 0.9.
    assert -found.fun - float(value[0]) < 10 * ARRIVED


def test_gradient_vanishes_when_asked_to_arrive_closer():
    s = sketch(PARETO[:, 0].numpy(), np.ones(len(PARETO)))
    x, weights = torch.tensor(s.x)[None], torch.tensor(s.weights)[None]
    point, _, curvature = climb(x, weights, geometric(s, M)[None], penalty(M, 10.0), arrived=1e-10, steps=300)
    slope = objective(s, M, 10.0)(point[0].numpy())[1]
    # Half of g' C^-1 g is the predicted gain: at most `arrived` before the last step, and the step lowered it.
    assert slope @ np.linalg.pinv(curvature[0].numpy()) @ slope / 2 < 1e-9


@pytest.mark.parametrize("truth", [stats.expon(), stats.gamma(2.0)], ids=["exponential", "Erlang"])
def test_a_law_of_the_family_is_recovered(truth):
    n = 2000
    law = fit_marginals(rows(truth, n), n_phases=M)
    levels = (np.arange(20_000) + 0.5) / 20_000
    x = truth.ppf(levels)
    divergence = float(np.mean(truth.logpdf(x) - log_density(law, torch.tensor(x)).numpy()))
    # Twice n times the divergence of a maximum-likelihood fit is at most chi-square with 2m - 1 degrees of freedom.
    assert 2 * n * divergence < stats.chi2(2 * M - 1).isf(1e-4)


def test_smooth_columns_are_given_more_smoothness_than_wavy_ones():
    wavy = torch.cat([rows(stats.lognorm(0.5), 1800), rows(stats.lognorm(0.8, scale=20), 200)])
    law = fit_marginals(torch.cat([PARETO, wavy], 1), n_phases=10)
    assert law.smoothness[0] >= 10 * law.smoothness[1]
    chosen = law.strengths[law.evidence.argmax(-1)]
    torch.testing.assert_close(law.smoothness, chosen / len(PARETO))


def test_more_strength_never_means_more_roughness():
    s = sketch(PARETO[:, 0].numpy(), np.ones(len(PARETO)))
    x, weights = torch.tensor(s.x)[None], torch.tensor(s.weights)[None]
    point, rough = geometric(s, 8)[None], []
    for strength in STRENGTHS[:4]:
        point, _, _ = climb(x, weights, point, penalty(8, strength), arrived=1e-6)
        rough.append(float(roughness(*point.chunk(2, -1))))
    assert rough == sorted(rough)


def test_evidence_compares_strengths_like_the_integral_it_approximates():
    m, draws = 4, 1000
    x = PARETO[:500]
    law = fit_marginals(x, n_phases=m, strengths=(100.0, 1.0))
    s = sketch(x[:, 0].numpy(), np.ones(len(x)))
    xs, weights = torch.tensor(s.x)[None], torch.tensor(s.weights)[None]
    # Coordinates without the shift of all logits, which changes nothing.
    together = torch.cat([torch.ones(m), torch.zeros(m)]).double()[:, None]
    basis = torch.linalg.svd(together).U[:, 1:]
    point = geometric(s, m)[None]
    gap = []
    for i, strength in enumerate(law.strengths):
        prior = penalty(m, float(strength))
        point, _, curvature = climb(xs, weights, point, prior)
        # Importance sampling from a Student law with 4 degrees of freedom around the optimum, in the fitted curvature.
        proposal = stats.multivariate_t(np.zeros(7), np.linalg.inv((basis.T @ curvature[0] @ basis).numpy()), df=4)
        shift = proposal.rvs(size=draws, random_state=1)
        at = point + torch.tensor(shift) @ basis.T
        initial, rates = natural(at)
        likelihood = (weights * series.log_density(xs, initial[:, None], rates[:, None])).sum(-1)
        log_ratio = likelihood - (at @ prior * at).sum(-1) - torch.tensor(proposal.logpdf(shift))
        integral = float(log_ratio.logsumexp(0)) - math.log(draws)
        precision = torch.linalg.eigvalsh(2 * prior)[4:].log().sum() / 2
        gap.append(float(law.evidence[0, i] - precision) + 3.5 * math.log(2 * math.pi) - integral)
    # Laplace's error, mostly common to all strengths, must not decide between two of them: half a nat is no evidence.
    assert abs(gap[0] - gap[1]) < 0.5


def test_a_sketch_keeps_weight_mean_and_the_largest_values():
    x = np.sort(PARETO[:, 0].numpy())
    s = sketch(x, np.ones(len(x)))
    assert s.weights.sum() == len(x)
    assert s.x @ s.weights == pytest.approx(x.sum(), rel=1e-12)
    np.testing.assert_array_equal(s.x[-TOP:], x[-TOP:])
    np.testing.assert_array_equal(s.x[:BOTTOM], x[:BOTTOM])
    assert (np.diff(s.x) > 0).all()
    # Ranks from either end up to n / 2, one cell per factor 1 + 1/singles.
    assert len(s.x) <= sum(k * (1 + math.log(len(x) / 2 / k)) + 2 for k in (TOP, BOTTOM))


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_few_phases_work(m):
    law = fit_marginals(PARETO[:300], n_phases=m)
    assert law.initial.shape == law.rates.shape == (1, m)
    assert bool((law.rates.diff() > 0).all())
    if m == 1:
        assert float(law.rates) == pytest.approx(1 / float(PARETO[:300].mean()), rel=math.sqrt(2 * ARRIVED / 300))


def test_two_rows_are_enough():
    law = fit_marginals(torch.tensor([[1.0], [2.0]], dtype=torch.float64))
    assert bool(log_density(law, torch.tensor([1.0, 2.0], dtype=torch.float64)).isfinite().all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": PARETO[:, 0]}, "rows and columns"),
        ({"n_phases": 0}, "n_phases is 0"),
        ({"x": -PARETO}, r"x\[0, 0\] is -"),
        ({"x": torch.full_like(PARETO, torch.inf)}, r"x\[0, 0\] is inf"),
        ({"x": torch.ones_like(PARETO)}, r"x\[:, 0\] has no two different"),
        ({"x": torch.zeros_like(PARETO)}, r"x\[:, 0\] has no two different"),
        ({"mask": torch.ones(3, 1, dtype=torch.bool)}, "mask has shape"),
        ({"weights": torch.ones(3)}, "weights has shape"),
        ({"weights": -torch.ones(len(PARETO))}, "weights has entries"),
        ({"strengths": (1.0, 10.0)}, "descending"),
        ({"strengths": ()}, "at least one"),
    ],
)
def test_a_mistake_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_marginals(**({"x": PARETO} | arguments))
