"""Totals of a period: recursions and closed forms, identities of layers and curves, and simulated years."""

import copy
import math

import numpy as np
import pytest
from risk_models import model
from scipy import stats

from phvae.risk.compound import CompoundLaw, tabulated
from phvae.risk.frequency import Frequency

POISSON, SPREAD = Frequency(3.0), Frequency(3.0, 2.5)


def exponential(y):
    return np.exp(-y)[None, :]


def of_exponentials(x, frequency):
    """``P(A > x)`` of exponential losses: gamma laws mixed over the number of events (Bessel's form, term by term)."""
    n = np.arange(1, 200)
    more = frequency.dispersion - 1
    chance = (
        stats.nbinom(frequency.mean / more, 1 / frequency.dispersion).pmf(n)
        if more
        else stats.poisson(frequency.mean).pmf(n)
    )
    return (chance * stats.gamma(n).sf(np.asarray(x)[:, None])).sum(1)


def panjer(masses, frequency, n):
    """The recursion of Panjer for ``(a, b, 0)`` laws of the number of events."""
    more = frequency.dispersion - 1
    a, b = 0.0, frequency.mean
    if more:
        a = more / frequency.dispersion
        b = a * (frequency.mean / more - 1)
    found = np.zeros(n)
    found[0] = frequency.generating(masses[0])
    k = np.arange(1, n)
    for s in range(1, n):
        j = k[:s]
        found[s] = ((a + b * j / s) * masses[1 : s + 1] * found[s - j]).sum() / (1 - a * masses[0])
    return found


@pytest.mark.parametrize("frequency", [POISSON, SPREAD])
def test_the_grid_agrees_with_the_recursion_of_panjer(frequency):
    step, n = 0.1, 400
    law = CompoundLaw(frequency, exponential, np.ones(1), step, n)
    edges = np.exp(-(np.arange(n) + 0.5) * step)
    masses = np.concatenate([[1.0], edges[:-1]]) - edges
    wanted = 1 - np.cumsum(panjer(masses, frequency, n))
    ends = (np.arange(n) + 0.5)[None, :] * step
    # rounding errors grow with the tilt, to a few times exp(8) units of the last digit
    assert law.sf(ends)[0] == pytest.approx(wanted, abs=3e-12)


@pytest.mark.parametrize("frequency", [POISSON, SPREAD])
def test_sums_of_exponential_losses_are_known_and_the_stated_error_bounds_the_true_one(frequency):
    x = np.array([0.0, 0.005, 0.5, 3.0, 10.0, 25.0])
    wanted = of_exponentials(x, frequency)
    fine, coarse = (CompoundLaw(frequency, exponential, np.ones(1), 0.01 * w, 8192 // w) for w in (1, 2))
    stated = np.abs(fine.sf(x[None]) - coarse.sf(x[None]))[0]
    error = np.abs(fine.sf(x[None])[0] - wanted)
    # in the very first cell the wider one is no better than it
    assert bool((error <= stated + 1e-10)[[0, 2, 3, 4, 5]].all())
    assert bool((error < 2e-5).all())
    assert error[0] < 1e-14
    level = np.array([0.2, 0.1, 1e-3])
    points = fine.isf(level)
    assert of_exponentials(points[0], frequency) == pytest.approx(level, rel=1e-3)
    # E[(A - x)_+] is the area beyond
    far = np.linspace(3.0, 70.0, 20_001)
    area = np.trapezoid(of_exponentials(far, frequency), far)
    assert fine.excess(np.array([[3.0]]))[0, 0] == pytest.approx(area, rel=1e-4)
    first, second = fine.layer(3.0, 10.0)
    inside = np.linspace(3.0, 10.0, 4001)
    survival = of_exponentials(inside, frequency)
    assert first[0] == pytest.approx(np.trapezoid(survival, inside), rel=1e-4)
    assert second[0] == pytest.approx(np.trapezoid(2 * (inside - 3) * survival, inside), rel=1e-4)


@pytest.mark.parametrize("frequency", [POISSON, SPREAD])
def test_losses_at_their_limit_are_atoms_of_the_total(frequency):
    limit, step = 0.5, 0.5 / 64
    mean = 1 - math.exp(-limit)
    law = CompoundLaw(
        frequency, lambda y: np.where(y < limit, np.exp(-y), 0.0)[None], np.array([mean]), step, 4096, limit
    )
    # exactly one loss, at its limit, and no other: losses are never zero here
    more = frequency.dispersion - 1
    one = stats.nbinom(3.0 / more, 1 / 2.5).pmf(1) if more else stats.poisson(3.0).pmf(1)
    near = np.array([[limit * (1 - 1e-6), limit]])
    jump = law.sf(near)[0]
    assert jump[0] - jump[1] == pytest.approx(one * math.exp(-limit), abs=1e-5)
    rng = np.random.default_rng(0)
    n = 200_000
    counts = rng.negative_binomial(3.0 / more, 1 / 2.5, n) if more else rng.poisson(3.0, n)
    draws = np.minimum(rng.exponential(size=counts.sum()), limit)
    totals = np.bincount(np.repeat(np.arange(n), counts), draws, n)
    for x in (0.0, 0.3, 0.5, 1.0, 1.7, 3.0):
        share = (totals > x + 1e-12).mean()
        assert abs(float(law.sf(np.array([[x]]))[0, 0]) - share) < 6 * math.sqrt(share / n) + 1e-6
    # the whole area under the survival function is the mean
    assert law.excess(np.array([[25.0]]))[0, 0] == pytest.approx(0.0, abs=1e-5)


def test_numbers_of_events_have_their_mean_and_dispersion():
    for frequency in (POISSON, SPREAD):
        step = 1e-4
        logs = np.log(frequency.generating(np.array([1 - 2 * step, 1 - step, 1.0])))
        mean = (logs[2] - logs[1]) / step
        assert mean == pytest.approx(3.0, rel=1e-3)
        # the second factorial cumulant is variance less mean
        assert (logs[2] - 2 * logs[1] + logs[0]) / step**2 == pytest.approx(3.0 * (frequency.dispersion - 1), abs=1e-2)
        assert frequency.some(np.array([0.25])) == pytest.approx(1 - frequency.generating(0.75), rel=1e-12)


def test_a_table_of_a_survival_function_is_exact_at_its_knots_and_close_between():
    x = 0.5 + np.geomspace(1e-4, 40, 120)
    tail = -(x - 0.5)
    survival = tabulated(x, np.concatenate([[0.0], tail])[None], tail[None], 0.5)
    at = np.concatenate([[0.0, 0.3, 0.5], np.linspace(0.5, 30, 1000), x])
    assert survival(at)[0] == pytest.approx(np.exp(-np.maximum(at - 0.5, 0)), rel=2e-5)


def simulated_years(many, columns, weights, counts, seed):
    rows = many.sample(int(counts.sum()), random_state=seed)[:, columns] * weights
    return np.split(rows.sum(1), np.cumsum(counts)[:-1])


@pytest.mark.parametrize(("latent_dim", "columns", "dispersion"), [(2, [2], 1.0), (0, [0, 2], 3.0)])
def test_totals_are_those_of_simulated_years(latent_dim, columns, dispersion):
    many, n = model(latent_dim), 40_000
    rng = np.random.default_rng(1)
    counts = rng.poisson(2.0, n) if dispersion == 1 else rng.negative_binomial(2.0 / 2.0, 1 / 3.0, n)
    years = simulated_years(many, columns, 1.2, counts, 5)
    cut = [np.minimum(np.maximum(year - 1.0, 0), 30.0) for year in years]
    total, largest = np.array([y.sum() for y in cut]), np.array([y.max(initial=0.0) for y in cut])
    answers = many.aggregate(
        columns, frequency=2.0, dispersion=dispersion, inflation=1.2, attachment=1.0, limit=30.0, rarest=1e-3, rtol=0.02
    )
    for curve, drawn in ((answers.aep([0.0, 3.0, 12.0, 30.0]), total), (answers.oep([0.0, 3.0, 12.0]), largest)):
        for answer in curve:
            share = (drawn > answer["x"]).mean()
            error = math.hypot(math.sqrt(share / n), answer["standard_error"])
            assert abs(answer["value"] - share) < 6 * error + answer["discretisation_error"]
    mean, deviation = answers.mean()[0], answers.std()[0]
    assert abs(mean["value"] - total.mean()) < 6 * math.hypot(total.std() / math.sqrt(n), mean["standard_error"])
    assert deviation["value"] == pytest.approx(total.std(), rel=0.06)
    quantile, shortfall = answers.quantile([0.9, 0.99]), answers.cvar([0.9, 0.99])
    assert bool((shortfall["value"] >= quantile["value"]).all())
    for answer, level in zip(quantile, (0.9, 0.99), strict=True):
        below = (total <= answer["value"]).mean()
        assert abs(below - level) < 6 * math.sqrt(level * (1 - level) / n) + 0.02 * (1 - level)


def test_curves_invert_each_other_and_layers_add_up():
    plain = model(latent_dim=0)
    answers = plain.aggregate(0, frequency=1.5, rarest=1e-3)
    periods = np.array([2.0, 10.0, 250.0])
    assert answers.aep(answers.aep_curve(periods)["value"])["value"] == pytest.approx(1 / periods, rel=1e-9)
    assert answers.oep(answers.oep_curve(periods)["value"])["value"] == pytest.approx(1 / periods, rel=1e-7)
    # the largest event is part of the total
    assert bool((answers.aep([1.0, 10.0])["value"] >= answers.oep([1.0, 10.0])["value"]).all())
    mean = answers.mean()["value"][0]
    layers = [answers.layer(limit, start) for limit, start in ((5.0, 0.0), (20.0, 5.0), (math.inf, 25.0))]
    assert sum(layer["value"][0] for layer in layers) == pytest.approx(mean, rel=1e-6)
    assert [list(layer["measure"]) for layer in layers[1:]] == [
        ["expected_loss", "frequency", "return_period", "standard_deviation"],
        ["expected_loss", "frequency", "return_period"],
    ]
    assert layers[1]["value"][1] == pytest.approx(answers.aep(5.0)["value"][0], rel=1e-12)
    assert mean == pytest.approx(1.5 * plain.mean(0)["value"][0], rel=1e-9)
    # without events there is no loss
    assert answers.aep(0.0)["value"][0] == pytest.approx(-math.expm1(-1.5), rel=1e-12)
    cvar = answers.cvar([0.0 + 1e-9])["value"][0]
    assert cvar == pytest.approx(mean, rel=1e-6)


def test_inflation_of_a_column_scales_its_part():
    plain = model(latent_dim=0)
    small = plain.aggregate(1, frequency=2.0, rarest=1e-2)
    large = plain.aggregate(1, frequency=2.0, rarest=1e-2, inflation=1.5, weights=[2.0])
    for ask in (lambda a: a.quantile([0.5, 0.95]), lambda a: a.cvar(0.9), lambda a: a.oep_curve(20), lambda a: a.std()):
        assert ask(large)["value"] == pytest.approx(3 * ask(small)["value"], rel=1e-6)
    both = plain.aggregate([0, 1], frequency=2.0, rarest=1e-2, inflation={"x1": 3.0})
    assert both.mean()["value"][0] == pytest.approx(
        2 * (plain.mean(0)["value"][0] + 3 * plain.mean(1)["value"][0]), rel=1e-7
    )


def test_aggregates_are_frames_that_say_what_lies_beyond_the_rows():
    named = copy.copy(model(latent_dim=0))
    named.table_kind_, named.columns_ = "pandas", ["fire", "water", "theft"]
    # 400 rows at 40 a year are ten years
    answer = named.aggregate("fire", frequency=40.0, rarest=1e-2).aep_curve([5, 50])
    assert list(answer.columns) == [
        "column", "periods", "value", "standard_error", "discretisation_error", "low", "high", "extrapolated",
    ]  # fmt: skip
    assert answer["extrapolated"].tolist() == [False, True]
    assert bool((answer["high"] - answer["value"] >= answer["discretisation_error"]).all())


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.aggregate(0, frequency=0), "frequency = 0; give finite numbers > 0"),
        (lambda m: m.aggregate(0, frequency=[1, 2]), "frequency has 2 numbers; give one"),
        (
            lambda m: m.aggregate(0, frequency=1, dispersion=0.5),
            r"dispersion = 0\.5; give finite numbers of at least 1",
        ),
        (lambda m: m.aggregate(0, frequency=1, rarest=0), "rarest = 0; give probabilities"),
        (lambda m: m.aggregate("flood", frequency=1), "columns = 'flood': there is no such column"),
        (lambda m: m.aggregate([0, 1], frequency=1, inflation=[1.1]), "inflation has 1 numbers for 2 columns"),
        (lambda m: m.aggregate(0, frequency=1, attachment=-1), "attachment = -1; give finite thresholds >= 0"),
        (lambda m: m.aggregate(0, frequency=1, limit=0), "limit = 0; give numbers > 0"),
        (
            lambda m: m.aggregate(0, frequency=1, rarest=1e-2).quantile(0.999),
            "level: an exceedance probability of 0.001",
        ),
        (lambda m: m.aggregate(0, frequency=1, rarest=1e-2).aep(1e9), r"x = 1e\+09 lies beyond .* where the grid ends"),
        (lambda m: m.aggregate(0, frequency=1).aep_curve(1), "periods = 1; give return periods above 1"),
        (lambda m: m.aggregate(0, frequency=1, attachment=1e9).aep(1.0), r"attachment = 1e\+09 is reached with"),
    ],
)
def test_a_bad_question_about_a_total_is_one_clear_sentence(ask, message):
    with pytest.raises(ValueError, match=message) as error:
        ask(model(latent_dim=0))
    assert "\n" not in str(error.value)
