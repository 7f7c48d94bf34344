"""Empirical figures of rows that are cut, in intervals or seen within bounds, beside references computed otherwise."""

import numpy as np
import pytest
from scipy import stats

from phvae.report.empirical import Values
from phvae.report.product_limit import ProductLimit
from phvae.risk.seen import SeenColumn

LEVELS = [0.5, 0.8, 0.9, 0.955, 0.99]


def column(lower, upper=None, **parts):
    lower = np.asarray(lower, dtype=float)
    return SeenColumn(lower, lower if upper is None else np.asarray(upper, dtype=float), **parts)


def curve(*args, **parts):
    return ProductLimit(column(*args, **parts), lambda x: 1.0)


def cut_rows(n, seed=0):
    """Values with ties, some of them cut at limits of their own."""
    rng = np.random.default_rng(seed)
    x, limit = np.ceil(20 * rng.exponential(2.0, n)) / 20, np.ceil(20 * rng.exponential(5.0, n)) / 20
    cut = x > limit
    return np.minimum(x, limit), np.where(cut, np.inf, np.minimum(x, limit)), x


def test_the_curve_under_censoring_is_that_of_scipy():
    lower, upper, _ = cut_rows(400)
    own = curve(lower, upper)
    cut = np.isinf(upper)
    theirs = stats.ecdf(stats.CensoredData(uncensored=lower[~cut], right=lower[cut])).sf
    np.testing.assert_allclose(own.sf(theirs.quantiles), theirs.probabilities, rtol=1e-12)
    # its variance by Greenwood's formula, row by row, is that of a share of so many values
    for point, share in zip(own.x[1:60], own.before[1:60], strict=True):
        terms = 0.0
        for x in own.x[own.x < point]:
            died, reached = int((lower[~cut] == x).sum()), int((lower >= x).sum())
            terms += died / (reached * (reached - died))
        assert share * (1 - share) / own.size(np.array([share]))[0] == pytest.approx(share**2 * terms, rel=1e-9)


def self_consistent(lower, upper, entry, weights, steps=200_000):
    """The nonparametric maximum likelihood estimate by Turnbull's iteration: no product, no order of time."""
    points = np.unique(lower[lower == upper])
    beyond = points.max() + 1.0
    support = np.append(points, beyond)
    inside = (support >= lower[:, None]) & (support <= np.where(np.isinf(upper), beyond, upper)[:, None])
    inside &= (lower == upper)[:, None] | (support > lower[:, None])
    seen = support > entry[:, None]
    mass = np.full(len(support), 1 / len(support))
    for _ in range(steps):
        within = inside * mass / (inside @ mass)[:, None]
        outside = ~seen * mass / (seen @ mass)[:, None]
        new = (weights[:, None] * (within + outside)).sum(0)
        new /= new.sum()
        if np.abs(new - mass).max() < 1e-13:
            break
        mass = new
    return support, mass


def test_the_curve_with_delayed_entry_and_weights_maximises_the_likelihood():
    rng = np.random.default_rng(1)
    x, limit = rng.exponential(2.0, 80), rng.exponential(4.0, 80)
    entry = rng.choice([-np.inf, 0.5, 1.0], 80)
    seen = np.minimum(x, limit) > entry
    x, limit, entry = x[seen], limit[seen], entry[seen]
    lower, upper = np.minimum(x, limit), np.where(x > limit, np.inf, x)
    weights = rng.integers(1, 4, len(x)).astype(float)
    own = curve(lower, upper, entry=entry, weights=weights)
    support, mass = self_consistent(lower, upper, entry, weights)
    wanted = 1 - np.cumsum(mass)[:-1]
    np.testing.assert_allclose(own.sf(support[:-1]), wanted, atol=1e-9)
    copies = np.repeat(np.arange(len(x)), weights.astype(int))
    again = curve(lower[copies], upper[copies], entry=entry[copies])
    for level in LEVELS:
        one, other = own.at_risk(level), again.at_risk(level)
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert value == (None if other[name] is None else pytest.approx(other[name], rel=1e-12))


def test_of_values_alone_every_figure_is_that_of_the_values():
    rng = np.random.default_rng(2)
    x = np.where(rng.random(500) < 0.2, 0.0, rng.pareto(2.0, 500))
    own, plain = curve(x), Values(x)
    assert own.complete
    assert own.zero_share == pytest.approx(plain.zero_share)
    assert own.mean == pytest.approx(plain.mean)
    for level in LEVELS:
        one, other = own.at_risk(level), plain.at_risk(level)
        # a step, where values have a line between two of them
        rank = np.ceil(round(500 * level, 9)) - 1
        assert one["var"] == np.sort(x)[int(rank)]
        assert [one["low"], one["high"]] == [other["low"], other["high"]]
        assert one["cvar"] == pytest.approx(other["cvar"])
    for layer in ((1.0, 0.5), (np.inf, 2.0), (0.1, 100.0)):
        assert own.layer(*layer) == pytest.approx(plain.layer(*layer))
    at = np.array([0.1, 1.0, 3.0])
    np.testing.assert_allclose(own.mean_excess(at), plain.mean_excess(at), rtol=1e-9)
    for one, other in zip(own.hill(), plain.hill(), strict=True):
        np.testing.assert_allclose(one[:-1], other[:-1], rtol=1e-9)
    for one, other in zip(own.points(), plain.points(), strict=True):
        np.testing.assert_allclose(one, other)
    share = own.points()[1]
    np.testing.assert_allclose(own.size(share[share < 0.7]), 500.0)


def test_cut_values_and_rows_below_a_deductible_leave_the_law_of_all_rows():
    rng = np.random.default_rng(3)
    n = 20_000
    x, deductible, limit = rng.exponential(1.0, n), rng.choice([0.0, 0.5, 1.0], n), rng.choice([1.5, 3.0, 9.0], n)
    seen = x > deductible
    x, deductible, limit = x[seen], deductible[seen], limit[seen]
    lower, upper = np.minimum(x, limit), np.where(x > limit, np.inf, x)
    own = curve(lower, upper, entry=np.where(deductible > 0, deductible, -np.inf))
    at = np.array([0.2, 0.7, 1.4, 2.0, 2.9])
    shares = own.sf(at)
    error = np.sqrt(shares * (1 - shares) / own.size(shares))
    # five standard errors at each of five points: failing in 3e-6 over all seeds, and the seed is fixed
    assert np.all(np.abs(shares - np.exp(-at)) < 5 * error)
    # the plain share of values beyond is far off
    assert abs((lower > 0.7).mean() - np.exp(-0.7)) > 20 * error[1]
    # E[X - 0.5 | X > 0.5] to 1.5 more is 1 - exp(-1.5); what lies beyond the largest limit is open
    assert own.layer(1.5, 0.5) == pytest.approx(np.exp(-0.5) * (1 - np.exp(-1.5)), abs=5 * 1.5 * error.max())
    assert own.layer(10.0, 0.5) is None
    assert own.mean is None


def test_hills_estimate_of_cut_values_is_the_maximum_likelihood_of_the_power():
    rng = np.random.default_rng(4)
    n = 20_000
    x, limit, entry = rng.pareto(2.0, n) + 1, 2 * (rng.pareto(1.0, n) + 1), rng.choice([-np.inf, 1.2], n)
    seen = np.minimum(x, limit) > entry
    x, limit, entry = x[seen], limit[seen], entry[seen]
    own = curve(np.minimum(x, limit), np.where(x > limit, np.inf, x), entry=entry)
    k, estimate, share = own.hill()
    # each rests on k values, with standard error 1/2 over the root of k: five of them
    assert np.all(np.abs(estimate - 0.5) < 5 * 0.5 / np.sqrt(k))
    values = -np.sort(-np.minimum(x, limit))
    # taking cut values for values gives a lighter tail
    naive = np.mean(np.log(values[:4000] / values[4000]))
    assert naive < 0.4
    assert np.all(np.diff(share) >= 0)


def test_intervals_that_do_not_overlap_are_right_at_their_ends():
    x = np.random.default_rng(5).exponential(30.0, 2000)
    week = np.floor(x / 7)
    own = curve(7 * week, 7 * week + 7)
    ends = 7 * np.arange(1.0, 20.0)
    np.testing.assert_allclose(own.sf(ends), [(x > end).mean() for end in ends], rtol=1e-9)
    # a mean of middles is off by no more than half a week, and here by much less
    assert own.mean == pytest.approx(x.mean(), abs=5 * 7 / (12 * 2000) ** 0.5 + 0.2)


def test_what_no_row_says_is_said_by_nobody():
    lower = np.array([2.0, 3.0, 4.0, 5.0])
    # nobody was looked at below 1: what lies there is taken from elsewhere
    own = ProductLimit(column(lower, entry=np.ones(4)), lambda x: 0.5 if x == 1.0 else np.nan)
    assert own.share == 0.5
    assert own.sf([0.5, 1.0, 2.0, 5.0]).tolist()[1:] == [0.5, 0.375, 0.0]
    assert np.isnan(own.sf(0.5))
    assert own.mean is None
    # half of all rows lie above 1, and none is seen below 2
    assert own.median == 2.0
    for parts in ({"exit": np.full(4, 9.0)}, {"selected": True}):
        nothing = curve(lower, **parts)
        assert nothing.at_risk(0.5) == {"var": None, "low": None, "high": None, "cvar": None, "n_beyond": 0}
        assert nothing.layer(1.0, 1.0) is nothing.mean is nothing.zero_share is None
        assert not len(nothing.points()[0])
    # a cell below a limit of detection may be zero or not; beyond the limit the curve is right
    below = curve([-np.inf, 0.0, 2.0, 3.0], [1.0, 0.0, 2.0, 3.0])
    assert below.zero_share is None
    assert below.sf([1.0, 2.5]).tolist() == [0.5, 0.25]
    # a first row alone in sight would end the curve: it begins anew behind it
    lonely = curve([0.5, 2.0, 3.0], entry=np.array([-np.inf, 1.0, 1.0]))
    assert lonely.begin == 0.5
    assert lonely.sf([2.0, 3.0]).tolist() == [0.5, 0.0]
