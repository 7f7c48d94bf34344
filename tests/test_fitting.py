"""Maximum likelihood: it reaches the optimum, says so, and respects weights, units and nesting."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from phvae.distributions.ascent import Objective, release
from phvae.distributions.fitting import fit_series
from phvae.distributions.phase_type import SeriesPhaseType

LOGNORMAL = np.random.default_rng(0).lognormal(0, 0.8, 1000)
PARETO = np.random.default_rng(1).pareto(2.4, 300)
TWO_MODES = np.concatenate([np.random.default_rng(2).gamma(8, 0.2, 150), np.random.default_rng(3).gamma(30, 0.3, 150)])


def test_one_phase_is_the_exponential_law_with_the_sample_mean():
    fit = fit_series(PARETO, 1)
    assert float(fit.law.rates[0]) == pytest.approx(1 / PARETO.mean(), rel=1e-12)
    assert fit.log_likelihood == pytest.approx(-len(PARETO) * (1 + np.log(PARETO.mean())), rel=1e-12)


def test_a_known_law_is_beaten_on_its_own_sample_and_recovered():
    truth = SeriesPhaseType([0.3, 0.7], [0.5, 4.0])
    rng = np.random.default_rng(0)
    x = rng.exponential(1 / 4.0, 20_000) + (rng.random(20_000) < 0.3) * rng.exponential(2.0, 20_000)
    fit = fit_series(x, 2, starts="geometric")
    assert fit.converged
    at_truth = float(truth.log_prob(torch.as_tensor(x)).sum())
    # Twice the gain over the truth is chi-squared with 3 degrees of freedom: below 16.3 but once in a thousand.
    assert 0 <= 2 * (fit.log_likelihood - at_truth) < 16.3


def test_the_reported_likelihood_is_that_of_the_law_in_the_units_of_the_data():
    fit = fit_series(1000 * PARETO, 3, starts="geometric")
    assert fit.log_likelihood == pytest.approx(float(fit.law.log_prob(torch.as_tensor(1000 * PARETO)).sum()), rel=1e-9)
    assert fit.n_parameters == 5
    assert fit.aic == pytest.approx(10 - 2 * fit.log_likelihood)
    assert fit.bic == pytest.approx(5 * np.log(300) - 2 * fit.log_likelihood)


@pytest.mark.parametrize("x", [LOGNORMAL[:300], TWO_MODES], ids=["lognormal", "two modes"])
def test_more_phases_never_fit_worse(x):
    fits = [fit_series(x, m) for m in range(1, 7)]
    reached = [fit.mean_log_likelihood for fit in fits]
    # Inserting a phase keeps the law up to rounding.
    assert all(b >= a - 1e-11 for a, b in pairwise(reached))
    assert all(fit.converged and fit.gradient_norm <= 1e-6 for fit in fits)


def test_no_other_start_probabilities_do_better():
    """The likelihood is concave in the start probabilities, so the reported gap bounds every alternative."""
    fit = fit_series(LOGNORMAL, 4)
    x = torch.as_tensor(LOGNORMAL)
    rng = np.random.default_rng(0)
    assert fit.optimality_gap < 1e-4
    for other in rng.dirichlet(np.full(4, 0.5), 50):
        moved = 0.9 * fit.law.initial + 0.1 * torch.as_tensor(other)
        gain = float(SeriesPhaseType(moved, fit.law.rates).log_prob(x).mean()) - fit.mean_log_likelihood
        assert gain <= fit.optimality_gap + 1e-9


def test_a_weight_of_k_is_k_rows():
    counts = np.random.default_rng(0).integers(0, 4, len(PARETO))
    weighted = fit_series(PARETO, 3, counts)
    repeated = fit_series(np.repeat(PARETO, counts), 3)
    assert weighted.log_likelihood == pytest.approx(repeated.log_likelihood, rel=1e-12)
    assert weighted.bic == pytest.approx(repeated.bic, rel=1e-12)
    torch.testing.assert_close(weighted.law.rates, repeated.law.rates, rtol=1e-9, atol=0)
    assert weighted.n_observations == int((counts > 0).sum())


def test_changing_the_unit_divides_the_rates_and_shifts_the_likelihood():
    fit, scaled = fit_series(PARETO, 3), fit_series(1024 * PARETO, 3)
    torch.testing.assert_close(1024 * scaled.law.rates, fit.law.rates, rtol=1e-9, atol=0)
    torch.testing.assert_close(scaled.law.initial, fit.law.initial, rtol=1e-9, atol=1e-12)
    assert scaled.mean_log_likelihood == pytest.approx(fit.mean_log_likelihood - np.log(1024), rel=1e-12)


def test_an_earlier_fit_is_a_start():
    fit = fit_series(PARETO, 3, starts="geometric")
    again = fit_series(PARETO, 3, starts=fit.law)
    assert again.mean_log_likelihood == pytest.approx(fit.mean_log_likelihood, abs=1e-8)


@pytest.mark.parametrize("starts", ["nested", "geometric"])
def test_five_phases_reach_the_lognormal_target(starts):
    fit = fit_series(LOGNORMAL, 5, starts=starts)
    assert fit.mean_log_likelihood >= -1.1315
    assert fit.converged
    assert fit.gradient_norm <= 1e-6


@pytest.mark.parametrize("starts", ["geometric", pytest.param("nested", marks=pytest.mark.soak)])
def test_ten_phases_reach_the_lognormal_target(starts):
    fit = fit_series(LOGNORMAL, 10, starts=starts)
    assert fit.mean_log_likelihood >= -1.1292
    assert fit.converged
    assert fit.gradient_norm <= 1e-6


def test_a_vanished_weight_that_pays_is_brought_back():
    """A start whose second weight is exp(-60) sits on a stationary edge: only the slack sees that it should not."""
    objective = Objective(PARETO, np.ones(len(PARETO)))
    rate = 1 / PARETO.mean()
    edge = np.array([0.0, -60.0, np.log(rate / 2), np.log(4 * rate)])
    assert abs(objective(edge)[1][1]) < 1e-20
    freed, gain = release(objective, edge, tolerance=1e-8)
    assert gain > 1e-3
    assert objective(freed)[0] == pytest.approx(objective(edge)[0] + gain)


def test_a_search_cut_short_says_so():
    assert not fit_series(TWO_MODES[::5], 4, starts="geometric", max_iterations=1, tolerance=1e-14).converged


def test_the_report_reads_as_text():
    text = str(fit_series(PARETO, 2, np.full(len(PARETO), 0.5)))
    assert "2 phases, 300 observations of total weight 150, converged" in text
    assert "per observation" in text


@pytest.mark.parametrize(
    ("x", "n_phases", "weights", "message"),
    [
        ([1.0, 0.0, 2.0], 1, None, r"x\[1\] is 0; .*zero"),
        ([1.0, 2.0, -3.0, -4.0], 1, None, r"x\[2\] is -3 \(2 such entries\); .*lower endpoint"),
        ([1.0, float("nan")], 1, None, r"x\[1\] is nan; remove"),
        ([float("inf"), 1.0], 1, None, r"x\[0\] is inf; remove"),
        ([], 1, None, "x is empty; give"),
        ([2.0, 2.0, 2.0], 1, None, "x is 2 in every row; .*vary"),
        ([1.0, 2.0, 2.0], 3, None, "2 distinct values, too few for n_phases=3; .*at most 2"),
        ([1.0, 2.0], 0, None, "n_phases is 0; give"),
        ([1.0, 2.0], 1.5, None, "n_phases is 1.5; give"),
        ([1.0, 2.0], True, None, "n_phases is True; give"),
        (["a", "b"], 1, None, "x is not an array of numbers"),
        ([1.0, 2.0], 1, [1.0], "weights has 1 entries and x has 2; give"),
        ([1.0, 2.0], 1, [1.0, -1.0], r"weights\[1\] is -1; "),
        ([1.0, 2.0], 1, [0.0, 0.0], "weights are all zero; give"),
    ],
)
def test_a_mistake_is_one_line_with_place_value_and_remedy(x, n_phases, weights, message):
    with pytest.raises(ValueError, match=message) as caught:
        fit_series(x, n_phases, weights)
    assert "\n" not in str(caught.value)


def test_an_unknown_start_is_refused():
    with pytest.raises(ValueError, match="starts is 'random'; give"):
        fit_series(PARETO, 2, starts="random")


class Flat:
    """An objective without a slope: it shows where it was asked."""

    def __init__(self, slack):
        self.asked, self._slack = [], np.array(slack)

    def __call__(self, point):
        self.asked.append(np.exp(point))
        return 0.0, None

    def slack(self, point):
        return self._slack


def test_a_coordinate_at_an_edge_is_opened_by_shares_of_all_mass_or_of_the_rate_there():
    parts, rates = np.array([0.2, 0.3, 0.5, 1.0, 1.0, 2.0]), np.array([1.0, 2.0, 4.0])
    # those with a slack beyond the tolerance, the largest first
    objective, order = Flat([3.0, 0.1, 2.0, 4.0, 5.0, 1.0]), [4, 3, 0, 2, 5]
    point, gain = release(objective, np.log(parts), tolerance=0.5)
    assert (np.exp(point).tolist(), gain) == (pytest.approx(parts.tolist()), 0.0)
    expected = [parts]
    for i in order:
        for share in 10.0 ** np.arange(-8, 0):
            opened = parts.copy()
            opened[i] += share * (1.0 if i < 3 else rates[i - 3])
            expected.append(opened)
    np.testing.assert_allclose(objective.asked, expected, rtol=1e-13)
