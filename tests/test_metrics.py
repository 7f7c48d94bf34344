"""Metrics on laws where the answer is known, against scipy, and under what must not change them."""

import math
import warnings

import numpy as np
import pytest
from scipy import special, stats

from phvae.datasets import INDEPENDENT_BLOCKS, PAPER_COPULA, PAPER_LAWS, BurrXII, Pareto
from phvae.metrics import (
    MetricWarning,
    below_zero,
    classifier_test,
    coexceedance,
    coexceedance_error,
    correlation_error,
    crps,
    cvar_error,
    energy_distance,
    kendall_error,
    kendall_tau,
    log_correlation,
    memorisation,
    pinball_loss,
    quantile_error,
    survival_curve,
    tail_anderson_darling,
    tail_distance,
    tail_mass,
    with_error,
)

LAW = PAPER_LAWS["Lognormal"]
laws = pytest.mark.parametrize("law", PAPER_LAWS.values(), ids=PAPER_LAWS)

# Mean and standard deviation of the Kolmogorov law, the limit of sqrt(n) times the distance under the truth.
KS_MEAN = math.sqrt(math.pi / 2) * math.log(2)
KS_DEVIATION = math.sqrt(math.pi**2 / 12 - KS_MEAN**2)


# tails


@laws
def test_the_truth_scores_the_kolmogorov_law_in_its_tail(law):
    n, repeats = 20_000, 40
    scores = [tail_distance(law, law.sample(n, seed=s)) for s in range(repeats)]
    beyond = n * 0.05
    scaled = np.array(scores) * (
        math.sqrt(beyond) + 0.12 + 0.11 / math.sqrt(beyond)
    )  # Stephens' correction of the limit
    assert abs(scaled.mean() - KS_MEAN) < 5.5 * KS_DEVIATION / math.sqrt(repeats)
    assert stats.kstest(scaled, stats.kstwobign.cdf).pvalue > 1e-6


@laws
def test_tail_distance_is_that_of_scipy_on_the_conditional_law(law):
    x = law.sample(10_000, seed=1)
    tail = x[x > law.isf(0.05)]
    expected = stats.kstest(tail, lambda t: 1 - law.sf(t) / 0.05).statistic
    assert tail_distance(law, x) == pytest.approx(expected, abs=1e-14)


def test_tail_distance_of_two_tables_is_that_of_scipy():
    x, y = LAW.sample(10_000, seed=0), BurrXII(1.5, 0.8).sample(8000, seed=1)
    threshold = np.quantile(x, 0.95)
    expected = stats.ks_2samp(x[x > threshold], y[y > threshold]).statistic
    assert tail_distance(x, y) == pytest.approx(expected, abs=1e-14)
    assert tail_distance(x, x) == 0


def test_tail_distance_of_a_known_difference():
    # beyond its threshold a Pareto tail of index a is x^-a: two indices differ by sup |u^a - u^b|
    a, b = 2.4, 3.0
    u = (b / a) ** (1 / (a - b))
    n = 2_000_000
    found = tail_distance(Pareto(a), Pareto(b, Pareto(a).isf(0.05)).sample(n, seed=0))
    assert abs(found - (u**a - u**b)) < 5.5 / math.sqrt(n)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_relative_metrics_do_not_depend_on_the_unit(scale):
    x, y = LAW.sample(20_000, seed=0), LAW.sample(20_000, seed=1) ** 1.1
    for metric in (tail_distance, quantile_error, cvar_error, tail_mass):
        assert metric(scale * x, scale * y) == pytest.approx(metric(x, y), rel=1e-9)


def test_rank_metrics_do_not_change_under_increasing_maps():
    x, y = PAPER_COPULA.sample(4000, seed=0), PAPER_COPULA.sample(3000, seed=1)
    assert kendall_error(np.log(x), np.log(y)) == pytest.approx(kendall_error(x, y), abs=1e-15)
    assert tail_distance(np.log(x[:, 0]), np.log(y[:, 0]), 0.9) == tail_distance(x[:, 0], y[:, 0], 0.9)
    # a quantile between two rows moves under a map, so the level is one where it is a row: 0.75 * 3999 is no integer
    x = x[:3001]
    assert coexceedance_error(np.log(x), np.log(y), 0.99) == coexceedance_error(x, y, 0.99)


def test_row_order_does_not_matter():
    x, y = PAPER_COPULA.sample(2000, seed=0), PAPER_COPULA.sample(2000, seed=1)
    shuffled = y[np.random.default_rng(0).permutation(2000)]
    for metric in (correlation_error, kendall_error, coexceedance_error):
        assert metric(x, shuffled) == pytest.approx(metric(x, y), abs=1e-13)
    for metric in (crps, pinball_loss, energy_distance, tail_anderson_darling):
        assert metric(x[:, 0], shuffled[:, 0]) == pytest.approx(metric(x[:, 0], y[:, 0]), rel=1e-10)


@laws
def test_quantile_and_cvar_errors_of_a_stretched_law_are_its_stretch(law):
    x = law.sample(1000, seed=0)
    assert quantile_error(x, 1.25 * x, 0.9, fewest=1) == pytest.approx(0.25)
    assert cvar_error(x, 0.5 * x, 0.9, fewest=1) == pytest.approx(0.5)
    quantile = float(law.isf(0.01))
    assert quantile_error(law, np.full(100_000, 1.1 * quantile)) == pytest.approx(0.1)


def test_cvar_error_against_a_law_shrinks_to_what_chance_leaves():
    law = PAPER_LAWS["Weibull"]
    n = 400_000
    # the mean of n/100 values beyond the quantile; the quantile's own error is of second order
    deviation = 2 * law.scale * law.isf(0.01) / math.sqrt(n / 100)
    assert cvar_error(law, law.sample(n, seed=0)) < 5.5 * deviation / law.cvar(0.99)


def test_tail_mass_of_a_law_is_its_exceedance_probability():
    n = 200_000
    found = tail_mass(Pareto(2.4), Pareto(2.0).sample(n, seed=0))
    assert abs(found - 0.05 ** (2.0 / 2.4)) < 5.5 * math.sqrt(0.05 / n) * 1.5
    assert below_zero(stats.norm.rvs(size=n, random_state=0)) == pytest.approx(0.5, abs=5.5 / (2 * math.sqrt(n)))


def test_survival_curve_counts_ties_once():
    x, p = survival_curve([5.0, 1.0, 5.0, 2.0])
    assert (x.tolist(), p.tolist()) == ([1.0, 2.0, 5.0], [1.0, 0.75, 0.5])


def test_the_truth_scores_one_half_in_the_weighted_anderson_darling_statistic():
    n, repeats = 2000, 400
    scores = np.array([tail_anderson_darling(LAW, LAW.sample(n, seed=s)) for s in range(repeats)])
    # mean 1/2 for every n; the variance of the limit is 2 pi^2 / 3 - 6
    assert abs(scores.mean() - 0.5) < 5.5 * math.sqrt((2 * math.pi**2 / 3 - 6) / repeats)


def test_weighted_anderson_darling_is_its_integral():
    n = 50
    x = np.sort(LAW.sample(n, seed=0))
    # F_n is constant between order statistics: the integral in closed form, piece by piece
    edges = np.concatenate([[0.0], LAW.cdf(x), [1.0]])
    steps = np.arange(n + 1) / n
    total = 0.0
    for step, low, high in zip(steps, edges[:-1], edges[1:], strict=True):
        grid = np.linspace(low, high, 20_001)[:-1] + (high - low) / 40_000
        total += ((step - grid) ** 2 / (1 - grid)).mean() * (high - low)
    assert tail_anderson_darling(LAW, x) == pytest.approx(n * total, rel=1e-4)


def test_weighted_anderson_darling_of_two_samples_of_one_law_is_near_one_half():
    repeats = 300
    scores = [tail_anderson_darling(LAW.sample(500, seed=[s, 0]), LAW.sample(700, seed=[s, 1])) for s in range(repeats)]
    assert abs(np.mean(scores) - 0.5) < 0.02 + 5.5 * math.sqrt((2 * math.pi**2 / 3 - 6) / repeats)
    assert tail_anderson_darling(LAW.sample(500, seed=0), 2 * LAW.sample(500, seed=1)) > 5


# what is not available, and what does not mean what it seems


def test_too_few_rows_beyond_the_threshold_are_not_available():
    few = np.concatenate([np.full(10_000, 0.5), np.linspace(20, 30, 199)])
    with pytest.warns(MetricWarning, match="tail distance is not available: 199 of 10,199 generated rows lie beyond"):
        assert math.isnan(tail_distance(LAW, few))
    assert tail_distance(LAW, np.append(few, 31.0)) > 0
    x = LAW.sample(19_999, seed=0)
    for metric, name in ((quantile_error, "quantile error"), (cvar_error, "CVaR error")):
        with pytest.warns(MetricWarning, match=f"{name} is not available: 200 of 19,999 generated rows"):
            assert math.isnan(metric(LAW, x))
        assert metric(LAW, np.append(x, 1.0)) >= 0


def test_a_mean_that_does_not_exist_is_not_available():
    with pytest.warns(MetricWarning, match="does not exist"):
        assert math.isnan(cvar_error(Pareto(0.9), Pareto(0.9).sample(100_000, seed=0)))


def test_a_constant_generator_has_no_rows_beyond_its_quantile():
    with pytest.warns(MetricWarning, match="no generated row lies above"):
        assert math.isnan(cvar_error(LAW, np.ones(50_000)))


def test_discrete_data_are_warned_of():
    counts = np.random.default_rng(0).geometric(0.01, size=50_000).astype(float)
    with pytest.warns(MetricWarning, match="real is discrete"):
        tail_distance(counts, stats.expon.rvs(scale=100, size=50_000, random_state=0))
    with pytest.warns(MetricWarning, match="generated is discrete"):
        tail_distance(stats.expon.rvs(scale=100, size=50_000, random_state=0), counts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tail_distance(LAW, np.ones((5, 2))), r"generated has shape \(5, 2\); give one column at a time"),
        (lambda: tail_mass(LAW, [1.0, np.nan]), "generated has 1 entries that are missing or infinite"),
        (lambda: quantile_error(LAW, [1.0], level=99), "level=99 must lie between 0 and 1; 95% is 0.95"),
        (lambda: tail_mass(LAW, []), "generated has no rows"),
        (lambda: correlation_error([[1.0, -2.0], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]]), "-1 or less"),
        (lambda: kendall_error(np.ones((3, 2)), np.ones((3, 3))), "real has 2 columns and generated 3"),
        (lambda: kendall_tau(np.ones(3)), "give a table of two columns or more"),
        (lambda: coexceedance_error(np.ones((3, 2)), np.ones((3, 2)), level=1.0), "level=1 must"),
        (lambda: pinball_loss([1.0], [1.0], level=0.0), "level=0 must"),
        (lambda: crps([1.0], [1.0]), "give two or more"),
        (lambda: classifier_test(np.ones((5, 2)), np.ones((50, 2))), "give 20 or more"),
        (lambda: energy_distance(np.ones((5, 2)), np.ones((5, 3))), "same columns"),
        (lambda: memorisation(np.ones((5, 2)), np.ones((5, 2)), np.ones((5, 3))), "2, 2 and 3 columns"),
        (lambda: with_error(tail_mass, LAW, [1.0], share=0.0), "share=0 must lie"),
        (lambda: with_error(tail_mass, LAW, [1.0], resamples=1), "resamples=1 give no standard error"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# dependence


@pytest.mark.parametrize("rho", [-0.8, 0.0, 0.3, 0.95])
def test_kendalls_tau_of_a_gaussian_copula(rho):
    n = 50_000
    x = np.random.default_rng(0).multivariate_normal([0, 0], [[1, rho], [rho, 1]], n)
    tau = 2 / math.pi * math.asin(rho)
    # variance of tau-hat for the normal law, to first order in 1/n
    variance = (1 / 9 - (2 / math.pi * math.asin(rho / 2)) ** 2) * 4 / n
    assert abs(kendall_tau(x)[0, 1] - tau) < 5.5 * math.sqrt(variance)


@pytest.mark.parametrize("values", [3, 40, 10**6])
@pytest.mark.parametrize("n", [2, 17, 1000])
def test_kendalls_tau_is_that_of_scipy_with_any_ties(n, values):
    rng = np.random.default_rng(n + values)
    x = rng.integers(0, values, (n, 4)).astype(float)
    x[:, 1] += x[:, 0]
    x[:, 2] -= 2 * x[:, 0]
    x[0], x[1] = 0.0, 1.0  # no column is constant
    expected = [[stats.kendalltau(x[:, i], x[:, j]).statistic for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(kendall_tau(x), expected, atol=1e-13)


def test_kendalls_tau_of_a_constant_column_is_not_a_number():
    x = np.column_stack([np.ones(5), np.arange(5.0)])
    assert np.isnan(kendall_tau(x)[0, 1])


def test_kendalls_tau_takes_a_million_rows():
    x = np.random.default_rng(0).standard_normal((1_000_000, 2))
    x[:, 1] += x[:, 0]
    assert abs(kendall_tau(x)[0, 1] - 2 / math.pi * math.asin(math.sqrt(0.5))) < 5.5 * 2 / math.sqrt(9e6)


def test_a_constant_column_has_no_dependence_errors():
    x = PAPER_COPULA.sample(500, seed=0)
    flat = x.copy()
    flat[:, 3] = -1.0
    with pytest.warns(MetricWarning, match="column 3 of the generated rows is constant"):
        assert math.isnan(correlation_error(x, flat))
    with pytest.warns(MetricWarning, match="Kendall error is not available"):
        assert math.isnan(kendall_error(x, flat))
    assert coexceedance_error(x, flat) > 0


def test_log_correlation_is_numpys():
    x = PAPER_COPULA.sample(1000, seed=0)
    np.testing.assert_allclose(log_correlation(x), np.corrcoef(np.log1p(x), rowvar=False), atol=1e-14)
    other = PAPER_COPULA.sample(1000, seed=1)
    expected = np.sqrt(((log_correlation(x) - log_correlation(other)) ** 2).sum())
    assert correlation_error(x, other) == pytest.approx(expected)
    assert math.isfinite(correlation_error(x, other - 5))


def test_coexceedance_thresholds_are_those_of_the_real_rows():
    real = np.column_stack([np.arange(100.0), np.arange(100.0)])
    generated = real + 50
    thresholds = np.quantile(real, 0.9, axis=0)
    assert coexceedance(real, thresholds)[0, 1] == 0.1
    assert coexceedance_error(real, generated, 0.9) == pytest.approx(0.6 - 0.1)


def test_independent_columns_exceed_together_as_the_product():
    x = INDEPENDENT_BLOCKS.sample(200_000, seed=0)
    thresholds = [law.isf(0.1) for law in INDEPENDENT_BLOCKS.margins]
    assert abs(coexceedance(x, thresholds)[0, 1] - 0.01) < 5.5 * math.sqrt(0.01 / 200_000)


# scores


@pytest.mark.parametrize("at", [-1.0, 0.0, 2.5])
def test_crps_of_a_normal_law(at):
    n = 400_000
    x = stats.norm.rvs(size=n, random_state=0)
    expected = at * (2 * stats.norm.cdf(at) - 1) + 2 * stats.norm.pdf(at) - 1 / math.sqrt(math.pi)
    assert abs(crps([at], x) - expected) < 5.5 * 2 / math.sqrt(n)


def test_threshold_weighted_crps_of_an_exponential_law():
    n, t = 400_000, 2.0
    x = stats.expon.rvs(size=n, random_state=0)
    # int_t^inf (F(x) - 1{y <= x})^2 dx
    expected = {
        0.5: math.exp(-2 * t) / 2,  # y below t: int exp(-2x)
        3.0: (3 - t) - 2 * (math.exp(-t) - math.exp(-3.0)) + math.exp(-2 * t) / 2,
    }
    for y, score in expected.items():
        assert abs(crps([y], x, threshold=t) - score) < 5.5 * 2 / math.sqrt(n)


def test_crps_is_its_double_sum():
    rng = np.random.default_rng(0)
    x, y = rng.exponential(size=40), rng.exponential(size=30)
    pairs = np.abs(x[:, None] - x[None]).sum() / (40 * 39)
    assert crps(y, x) == pytest.approx(np.abs(x[:, None] - y[None]).mean() - pairs / 2)


def test_the_true_law_has_the_smallest_scores():
    y = LAW.sample(50_000, seed=0)
    right, wrong = LAW.sample(50_000, seed=1), LAW.sample(50_000, seed=1) ** 0.8
    threshold = float(LAW.isf(0.05))
    assert crps(y, right) < crps(y, wrong)
    assert crps(y, right, threshold) < crps(y, wrong, threshold)
    assert pinball_loss(y, right) < pinball_loss(y, wrong)


def test_pinball_loss_is_scikit_learns():
    from sklearn.metrics import mean_pinball_loss

    y, x = LAW.sample(500, seed=0), LAW.sample(500, seed=1)
    expected = mean_pinball_loss(y, np.full(500, np.quantile(x, 0.9)), alpha=0.9)
    assert pinball_loss(y, x, 0.9) == pytest.approx(expected)


# whole tables


def test_energy_distance_in_one_dimension_is_that_of_scipy():
    x, y = LAW.sample(300, seed=0), LAW.sample(500, seed=1)
    assert energy_distance(x, y) == pytest.approx(stats.energy_distance(x, y) ** 2, rel=1e-10)
    pairs = [np.abs(a[:, None] - b[None]).mean() for a, b in ((x, y), (x, x), (y, y))]
    assert energy_distance(x, y) == pytest.approx(2 * pairs[0] - pairs[1] - pairs[2], rel=1e-9)


@pytest.mark.parametrize("d", [1, 3])
def test_energy_distance_of_two_normal_laws(d):
    # |X - Y| is sqrt(2) times a noncentral chi variable with d degrees and noncentrality |shift|^2 / 2
    shift, n = 2.0, 200_000 if d == 1 else 4000
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((n, d)), rng.standard_normal((n, d))
    y[:, 0] += shift
    mean = math.sqrt(2) * math.sqrt(math.pi / 2)
    between = mean * special.eval_genlaguerre(0.5, d / 2 - 1, -(shift**2) / 4)
    within = mean * special.eval_genlaguerre(0.5, d / 2 - 1, 0.0)
    assert abs(energy_distance(x, y) - 2 * (between - within)) < 5.5 * 4 / math.sqrt(n)


def test_the_classifier_test_is_uniform_for_equal_laws_and_sees_different_ones():
    p = [classifier_test(PAPER_COPULA.sample(400, [s, 0]), PAPER_COPULA.sample(400, [s, 1])).p_value for s in range(12)]
    # the smallest of 12 uniform numbers is below 1e-6 with probability 1.2e-5 at most; the seeds are fixed
    assert min(p) > 1e-6
    assert max(p) > 0.1
    apart = classifier_test(PAPER_COPULA.sample(4000, 0), INDEPENDENT_BLOCKS.sample(4000, 1)[:, [0, 1, 3, 2, 4]])
    assert apart.auc > 0.55
    assert apart.p_value < 1e-6
    assert apart.standard_error == pytest.approx(math.sqrt(4001 / (12 * 2000**2)))


def test_copies_are_told_from_new_rows():
    train, held_out, fresh = (PAPER_COPULA.sample(2000, s) for s in range(3))
    honest = memorisation(train, held_out, fresh)
    assert abs(honest.nearer_to_training - 0.5) < 5.5 * honest.standard_error
    assert honest.copies == 0
    half = memorisation(train, held_out, np.concatenate([train[:1000], fresh[:1000]]))
    assert abs(half.nearer_to_training - 0.75) < 5.5 * half.standard_error
    assert half.copies == pytest.approx(0.5)
    assert memorisation(train[:, 0], held_out[:, 0], held_out[:, 0]).nearer_to_training == 0


# standard errors


def test_the_bootstrap_error_of_a_share_is_binomial():
    x = LAW.sample(20_000, seed=0)
    for share in (1.0, 0.25):
        value, error = with_error(tail_mass, LAW, x, resamples=400, share=share)
        assert value == tail_mass(LAW, x)
        # the relative deviation of a standard error from 400 resamples is 1/sqrt(800)
        assert error == pytest.approx(math.sqrt(value * (1 - value) / 20_000), rel=5.5 / math.sqrt(800))


def test_the_bootstrap_resamples_every_table():
    x, y = PAPER_COPULA.sample(500, 0), PAPER_COPULA.sample(500, 1)
    value, error = with_error(kendall_error, x, y, resamples=50)
    assert value == kendall_error(x, y)
    assert 0.003 < error < 0.05
    assert with_error(kendall_error, x, y, resamples=50).standard_error == error
    assert with_error(kendall_error, x, y, resamples=50, random_state=1).standard_error != error


def test_the_bootstrap_passes_settings_on_and_is_quiet_about_its_own_ties():
    x = LAW.sample(10_000, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert with_error(tail_distance, LAW, x, resamples=5, level=0.9).value == tail_distance(LAW, x, 0.9)
    with pytest.warns(MetricWarning, match="not available") as caught:
        assert all(map(math.isnan, with_error(tail_distance, LAW, x[:100], resamples=5)))
    assert len(caught) == 1


# the floors that results are read against


@laws
def test_the_law_itself_scores_the_known_floor(law):
    # a fresh sample of 100,000: .011-.016 and .007-.021, means of 40 with the spread of such means
    scores = np.array(
        [[tail_distance(law, x), quantile_error(law, x)] for x in (law.sample(100_000, s) for s in range(40))]
    )
    distance, error = scores.mean(axis=0)
    assert abs(distance - KS_MEAN / math.sqrt(5000)) < 5.5 * KS_DEVIATION / math.sqrt(5000 * 40) + 2e-4
    # the 99% quantile is normal with standard deviation sqrt(p (1-p) / n) / f(q)
    quantile = law.isf(0.01)
    deviation = math.sqrt(0.01 * 0.99 / 1e5) / float(law.pdf(quantile)) / quantile
    expected = deviation * math.sqrt(2 / math.pi)
    assert abs(error - expected) < 5.5 * deviation * math.sqrt((1 - 2 / math.pi) / 40) + 0.02 * expected
    assert 0.004 < expected < 0.022


def test_a_fresh_sample_of_the_copula_scores_the_known_floor():
    real, fresh = PAPER_COPULA.sample(80_000, seed=0), PAPER_COPULA.sample(300_000, seed=1)
    independent = np.column_stack([rng.permutation(column) for rng, column in zip(
        np.random.default_rng(2).spawn(5), fresh.T, strict=True)])  # fmt: skip
    # a law of its own scores .024-.037 / .003-.005 / 1.1e-4-1.6e-4, independent columns 1.51 / .132 / 1.7e-3
    assert correlation_error(real, fresh) < 0.06
    assert kendall_error(real, fresh) < 0.008
    assert coexceedance_error(real, fresh) < 3e-4
    assert correlation_error(real, independent) == pytest.approx(1.51, abs=0.05)
    assert kendall_error(real, independent) == pytest.approx(0.132, abs=0.006)
    assert coexceedance_error(real, independent) == pytest.approx(1.7e-3, abs=2e-4)
