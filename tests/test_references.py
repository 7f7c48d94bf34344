"""The references of a comparison: maximum likelihood, the spliced law, the rows and the law itself."""

import math

import numpy as np
import pytest
from scipy import stats

from phvae.baselines import maximum_likelihood as ml
from phvae.baselines.references import Bootstrap, TrueLaw
from phvae.baselines.spliced import EmpiricalWithParetoTail, SplicedLaw
from phvae.distributions.generalised_pareto import fit_generalised_pareto
from phvae.training import TrainingError

N = 4000
FAMILIES = {
    ml.WeibullFit: stats.weibull_min(0.8, scale=3.0),
    ml.ParetoFit: stats.pareto(2.4, scale=2.0),
    ml.LognormalFit: stats.lognorm(1.5, scale=0.1),
    ml.GammaFit: stats.gamma(0.6, scale=50.0),
    ml.BurrXIIFit: stats.burr12(1.5, 0.8, scale=7.0),
    ml.BurrIIIFit: stats.burr(1.5, 0.8, scale=7.0),
}


@pytest.mark.parametrize("fit", FAMILIES, ids=lambda fit: fit.__name__)
def test_the_likelihood_ratio_of_the_fit_is_chi_squared(fit):
    truth = FAMILIES[fit]
    x = truth.rvs(size=N, random_state=1)
    fitted = fit().fit(x[:, None])
    ratio = 2 * (fitted.laws_[0].logpdf(x) - truth.logpdf(x)).sum()
    # Wilks, exceeded once in a million; a Pareto fits its smallest value exactly, which counts like two parameters
    assert 0 <= ratio < stats.chi2(fitted.n_parameters + (fit is ml.ParetoFit)).isf(1e-6)


@pytest.mark.parametrize("fit", [fit for fit in FAMILIES if fit is not ml.ParetoFit], ids=lambda fit: fit.__name__)
def test_no_neighbour_is_more_likely(fit):
    x = FAMILIES[fit].rvs(size=N, random_state=2)
    law = fit().fit(x[:, None]).laws_[0]
    best = law.logpdf(x).mean()
    for position in range(len(law.args)):
        for factor in (0.999, 1.001):
            shapes = list(law.args)
            shapes[position] *= factor
            assert law.dist.logpdf(x, *shapes, **law.kwds).mean() < best
    for factor in (0.999, 1.001):
        assert law.dist.logpdf(x, *law.args, scale=factor * law.kwds["scale"]).mean() < best


def test_draws_follow_the_fitted_laws_with_their_share_of_zeros():
    rng = np.random.default_rng(3)
    x = np.stack([np.where(rng.random(N) < 0.3, 0.0, rng.lognormal(size=N)), rng.lognormal(2.0, 0.5, size=N)], 1)
    fitted = ml.LognormalFit().fit(x)
    drawn = fitted.sample(20_000, seed=0)
    zeros = int((drawn[:, 0] == 0).sum())
    assert stats.binomtest(zeros, 20_000, float((x[:, 0] == 0).mean())).pvalue > 1e-6
    for j in range(2):
        positive = drawn[drawn[:, j] > 0, j]
        assert stats.kstest(positive, fitted.laws_[j].cdf).pvalue > 1e-6
    assert np.array_equal(drawn, fitted.sample(20_000, seed=0))
    assert not np.array_equal(drawn, fitted.sample(20_000, seed=1))


def test_a_family_of_positive_laws_refuses_negative_values():
    with pytest.raises(ValueError, match="gamma, maximum likelihood: x has 1 values below 0"):
        ml.GammaFit().fit(np.array([[1.0], [-1.0]]))


def test_a_likelihood_without_maximum_is_a_failed_run():
    with pytest.raises(TrainingError, match="no maximum"):
        ml.most_likely(lambda values: -np.inf, np.zeros(1), "nothing")


# The spliced law.


@pytest.mark.parametrize("shape", [-0.2, 0.4, 1.2])
def test_the_pareto_tail_recovers_its_parameters(shape):
    n = 20_000
    excess = stats.genpareto(shape, scale=3.0).rvs(size=n, random_state=4)
    fit = fit_generalised_pareto(excess)
    found_shape, found_scale = fit.shape, fit.scale
    # asymptotic variances (1 + ξ)² / n and 2 σ² (1 + ξ) / n; five deviations are exceeded less than once in a million
    assert abs(found_shape - shape) < 5 * (1 + shape) / math.sqrt(n)
    assert abs(found_scale - 3.0) < 5 * 3.0 * math.sqrt(2 * (1 + shape) / n)


COLUMNS = {
    "continuous": stats.pareto(2.0).rvs(size=1000, random_state=5),
    "with ties": np.ceil(stats.pareto(1.0).rvs(size=1000, random_state=6)),
    "with zeros": np.where(np.arange(1000) % 3 == 0, 0.0, stats.lognorm(1.0).rvs(size=1000, random_state=7)),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_the_spliced_quantiles_are_monotone_continuous_and_of_the_right_mass(column):
    law = SplicedLaw.fit(column)
    levels = np.linspace(0, 1, 20_001)[:-1]
    quantiles = law.quantile(levels)
    assert (np.diff(quantiles) >= 0).all()
    assert law.mass == (column > law.threshold).mean()
    assert float(law.isf(law.mass)) == law.threshold
    # one step beyond the threshold the tail has moved by that step over its density there, mass / scale
    step = law.mass * 1e-6
    assert float(law.isf(law.mass - step)) - law.threshold == pytest.approx(1e-6 * law.scale, rel=1e-5)
    assert float(law.cdf(law.threshold)) == pytest.approx(1 - law.mass)
    # there and back for every value, and the distribution function within a row of the empirical one
    assert law.quantile(law.cdf(column)) == pytest.approx(column, rel=1e-9)
    body = np.unique(column[column < law.threshold])
    below = [(column < value).mean() for value in body]
    upto = [(column <= value).mean() for value in body]
    assert (law.cdf(body) > below).all()
    assert (law.cdf(body) < upto).all()


def test_rows_of_the_spliced_baseline_follow_the_spliced_law():
    x = COLUMNS["continuous"][:, None]
    model = EmpiricalWithParetoTail().fit(x)
    drawn = model.sample(50_000, seed=0)[:, 0]
    law = model.laws_[0]
    beyond = drawn > law.threshold
    assert stats.binomtest(int(beyond.sum()), 50_000, law.mass).pvalue > 1e-6
    assert stats.kstest(drawn[beyond] - law.threshold, law.tail.cdf).pvalue > 1e-6
    assert set(drawn[~beyond]) <= set(x[:, 0])
    assert drawn.max() > x.max()


def test_rows_of_the_spliced_baseline_keep_the_dependence_of_the_rows():
    column = COLUMNS["continuous"]
    drawn = EmpiricalWithParetoTail().fit(np.stack([column, column**2, -column + 100], 1)).sample(2000, seed=0)
    beyond = drawn[:, 0] > np.quantile(column, 0.9)
    assert np.array_equal(beyond, drawn[:, 1] > np.quantile(column**2, 0.9))
    # within an interval of one rank the levels are independent; between the ranks the order is that of the rows
    assert stats.kendalltau(drawn[beyond, 0], drawn[beyond, 1]).statistic > 0.97
    assert stats.kendalltau(drawn[~beyond, 0], drawn[~beyond, 1]).statistic == pytest.approx(1)


def test_a_tail_needs_rows():
    with pytest.raises(ValueError, match="5 of 50 values lie beyond the threshold"):
        SplicedLaw.fit(np.arange(50.0))


# The rows and the law.


def test_bootstrap_draws_whole_rows():
    x = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    drawn = Bootstrap().fit(x).sample(30_000, seed=0)
    assert np.array_equal(drawn[:, 1], 10 * drawn[:, 0])
    counts = np.unique(drawn[:, 0], return_counts=True)[1]
    assert stats.chisquare(counts).pvalue > 1e-6


class Law:
    def sample(self, n, seed):
        return stats.expon.rvs(size=n, random_state=seed)


def test_the_true_law_draws_from_itself_and_learns_nothing():
    model = TrueLaw(Law()).fit(np.ones((2, 1)))
    assert np.array_equal(model.sample(5, seed=3)[:, 0], Law().sample(5, 3))
    assert model.n_parameters is None


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(3), r"x has shape \(3,\)"),
        (np.ones((1, 2)), r"x has shape \(1, 2\)"),
        (np.array([[1.0], [np.nan]]), r"x\[1, 0\] = nan is not finite"),
    ],
)
def test_rows_that_no_model_can_learn_from_are_named(x, message):
    with pytest.raises(ValueError, match=message):
        Bootstrap().fit(x)


def test_no_rows_asked_for_is_a_mistake():
    with pytest.raises(ValueError, match="n = 0; give a whole number"):
        Bootstrap().fit(np.ones((2, 1))).sample(0, seed=0)
