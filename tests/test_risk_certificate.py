"""The tail certificate: its trust point is the stated formula, its tests are exact, its verdicts can be acted on."""

import copy
import json
import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from risk_models import inside, model, table
from scipy import stats

from phvae import PHVAE
from phvae.distributions import SeriesPhaseType
from phvae.risk.certificate import LEVELS
from phvae.risk.exceedances import clustering, kupiec
from phvae.risk.law import IntegratedLaw
from phvae.risk.record import ColumnRecord
from phvae.risk.trust import TOLERANCE, trust_point

N = 5000
MIDDLES = (np.arange(N) + 0.5) / N
SAMPLES = {"pareto": stats.pareto(2.4), "exponential": stats.expon(scale=3.0)}


class Exponential(IntegratedLaw):
    """A law whose hazard rate is constant: the end of every phase-type tail."""

    replicates = 1

    def __init__(self, rate, lower=0.0):
        self.inner, self.lower = SeriesPhaseType([1.0], [rate]), lower

    @property
    def mean(self):
        return self.inner.mean[None] + self.lower

    @property
    def variance(self):
        return self.inner.variance[None]

    def log_pdf(self, x):
        return self.inner.log_prob(x.reshape(1, -1) - self.lower)

    def log_sf(self, x):
        return self.inner.log_sf(x.reshape(1, -1) - self.lower)

    def log_cdf(self, x):
        return self.inner.log_cdf(x.reshape(1, -1) - self.lower)

    def log_excess(self, x, order=1):
        return self.inner.log_excess(x.reshape(1, -1) - self.lower, order)


@pytest.fixture(scope="module")
def fits():
    """A model of each sample, and its certificate on as many new rows."""
    found = {}
    for seed, (name, law) in enumerate(SAMPLES.items()):
        rng = np.random.default_rng(seed)
        x, new = law.rvs((N, 1), random_state=rng), law.rvs((N, 1), random_state=rng)
        fitted = PHVAE(random_state=0).fit(x)
        found[name] = (fitted, x, new, fitted.tail_certificate(new))
    return found


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2])
def test_over_a_power_tail_an_exponential_law_turns_where_the_slopes_say(rate):
    record = ColumnRecord.of(SAMPLES["pareto"].ppf(MIDDLES))
    trust = trust_point(Exponential(rate), record)
    # x rate = 1.25 x / (scale + shape (x - t)), solved for x
    turn = trust.threshold + (TOLERANCE / rate - trust.fit.scale) / trust.fit.shape
    assert trust.turn == pytest.approx(turn, rel=1e-3)
    assert trust.point == min(trust.turn, record.largest)
    assert trust.fit.shape == pytest.approx(1 / 2.4, abs=0.02)


def test_over_its_own_exponential_tail_a_law_never_turns():
    record = ColumnRecord.of(SAMPLES["exponential"].ppf(MIDDLES))
    trust = trust_point(Exponential(1 / 3), record)
    assert trust.turn == math.inf
    assert trust.point == record.largest


def test_a_law_that_is_steeper_from_the_start_is_trusted_nowhere_in_the_tail():
    record = ColumnRecord.of(SAMPLES["exponential"].ppf(MIDDLES))
    trust = trust_point(Exponential(1.0), record)
    assert trust.turn == trust.point == trust.threshold


@given(st.floats(1e-3, 1e3))
def test_the_trust_point_has_the_unit_of_the_data(unit):
    x = SAMPLES["pareto"].ppf(MIDDLES)
    one, other = (trust_point(Exponential(0.1 / c), ColumnRecord.of(c * x)) for c in (1.0, unit))
    assert other.turn == pytest.approx(unit * one.turn, rel=1e-6)
    assert other.threshold == pytest.approx(unit * one.threshold, rel=1e-9)


def test_a_fit_to_power_data_turns_and_says_what_to_do(fits):
    fitted, x, _, certificate = fits["pareto"]
    (column,) = certificate.columns
    assert column.verdict == "caution"
    assert column.largest == x.max()
    assert column.threshold < column.trust_point == column.turn < column.largest
    assert column.trust_probability == pytest.approx(fitted.sf(0, column.trust_point)["value"][0], rel=1e-3)
    assert f"beyond {column.trust_point:.4g}" in column.words
    assert 'splice="gpd"' in column.words
    assert abs(column.gpd.shape - 1 / 2.4) < 5 * column.gpd.shape_error


def test_a_fit_to_exponential_data_is_supported_up_to_the_largest_value(fits):
    _, x, _, certificate = fits["exponential"]
    (column,) = certificate.columns
    assert column.verdict == "supported"
    assert column.turn == math.inf
    assert column.trust_point == column.largest == x.max()
    assert column.supported_level >= 0.995
    assert "every answer is extrapolated" in column.words


@pytest.mark.parametrize("name", SAMPLES)
def test_support_counts_the_values_beyond_each_quantile_of_the_model(fits, name):
    fitted, x, _, certificate = fits[name]
    quantiles = fitted.quantile(0, list(LEVELS))["value"]
    counts = [min(int((x > q).sum()), 501) for q in quantiles]
    assert [count for _, count in certificate.columns[0].support] == pytest.approx(counts, abs=1)
    supported = certificate.columns[0].supported_level
    assert dict(certificate.columns[0].support)[supported] >= 10


@pytest.mark.parametrize("name", SAMPLES)
def test_exceedances_are_counted_in_the_rows_given(fits, name):
    fitted, _, new, certificate = fits[name]
    assert (certificate.tested, certificate.n_tested) == ("given rows", N)
    for test, row in zip(certificate.columns[0].tests, fitted.quantile(0, list(LEVELS)), strict=True):
        assert test.observed == pytest.approx(int((new > row["value"]).sum()), abs=1)
        assert test.expected == pytest.approx(N * (1 - test.level), rel=1e-6)
        assert test.p_value == kupiec(test.observed, N, test.expected / N)


def test_rows_of_another_law_are_unsupported(fits):
    fitted, _, new, _ = fits["exponential"]
    (column,) = fitted.tail_certificate(3 * new).columns
    assert column.verdict == "unsupported"
    assert "the model underestimates this tail" in column.words
    (column,) = fitted.tail_certificate(1.1 * new).columns
    assert column.verdict == "caution"
    assert "the model overestimates" in fitted.tail_certificate(new / 3).columns[0].words


def test_without_rows_or_with_those_of_the_fit_the_certificate_says_so(fits):
    fitted, x, _, certificate = fits["pareto"]
    alone = fitted.tail_certificate()
    assert alone.tested == "none"
    assert alone.columns[0].tests == ()
    assert alone.columns[0].turn == certificate.columns[0].turn
    assert "no rows given" in str(alone)
    assert "not held out" in str(fitted.tail_certificate(x))


def test_rows_in_clusters_are_warned_about(fits):
    fitted, _, new, certificate = fits["exponential"]
    assert certificate.columns[0].clusters.p_value > 1e-6
    assert not any("block_length" in note for note in certificate.columns[0].notes)
    (column,) = fitted.tail_certificate(np.repeat(new[::4], 4, axis=0)).columns
    assert column.clusters.size > 4
    assert any("block_length" in note for note in column.notes)


def test_few_rows_call_for_caution_and_fewer_are_unsupported():
    x = np.random.default_rng(1).exponential(1.0, (100, 1))
    (column,) = PHVAE(n_phases=2, random_state=0).fit(x).tail_certificate().columns
    assert column.verdict == "caution"
    assert "With 100 rows no level of 0.95 rests on 10 values" in column.words
    (column,) = PHVAE(n_phases=2, random_state=0).fit(np.ceil(4 * x[:60])).tail_certificate().columns
    assert column.verdict in ("caution", "unsupported")
    (column,) = (
        PHVAE(n_phases=2, random_state=0).fit(np.tile([[1.0], [2.0], [3.0]], (20, 1))).tail_certificate().columns
    )
    assert column.verdict == "unsupported"
    assert column.gpd is None
    assert column.supported_level == 0.0
    assert "too few to judge the tail by" in column.words


def test_columns_with_zeros_and_latent_variables_have_certificates_too():
    many = model()
    certificate = many.tail_certificate(table())
    assert [column.name for column in certificate.columns] == ["x0", "x1", "x2"]
    for j, column in enumerate(certificate.columns):
        trust = inside(many).trust(j)
        assert column.turn == pytest.approx(trust.turn, rel=1e-3)
        assert column.trust_probability == pytest.approx(many.sf(j, column.trust_point)["value"][0], rel=0.02)


def test_a_power_tail_of_the_model_comes_with_its_index():
    x = SAMPLES["pareto"].rvs((1000, 1), random_state=3)
    fitted = PHVAE(tail="pareto", random_state=0).fit(x)
    (column,) = fitted.tail_certificate().columns
    assert column.tail_index == fitted.tail_index(0)
    assert any("tail index" in note.lower() for note in column.notes)


def test_the_certificate_is_a_frame_and_json(fits):
    fitted, _, new, certificate = fits["pareto"]
    assert certificate.frame["trust_point"].tolist() == [certificate.columns[0].trust_point]
    named = copy.copy(fitted)
    named.table_kind_, named.columns_ = "pandas", ["loss"]
    frame = named.tail_certificate(new).frame
    assert isinstance(frame, pd.DataFrame)
    assert frame.loc[0, ["column", "verdict"]].tolist() == ["loss", "caution"]
    for each in (*[found[3] for found in fits.values()], fitted.tail_certificate()):
        again = json.loads(json.dumps(each.to_dict(), allow_nan=False))
        assert again["columns"][0]["words"] == each.columns[0].words
        assert again["columns"][0]["turn"] == (None if each.columns[0].turn == math.inf else each.columns[0].turn)


def test_a_model_without_a_record_needs_rows(fits):
    fitted, x, _, certificate = fits["pareto"]
    old = copy.copy(fitted)
    old.tail_record_ = None
    with pytest.raises(ValueError, match="give the rows of the fit as X"):
        old.tail_certificate()
    assert old.tail_certificate(x).columns[0].turn == certificate.columns[0].turn


@given(st.integers(1, 400), st.floats(0.001, 0.999), st.data())
def test_kupiecs_p_value_is_the_probability_of_counts_at_least_as_extreme(n, probability, data):
    observed = data.draw(st.integers(0, n))
    counts = np.arange(n + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = stats.binom.logpmf(counts, n, np.where(counts > 0, counts / n, 0.0)) - stats.binom.logpmf(
            counts, n, probability
        )
    extreme = logs >= logs[observed] - 1e-7
    wanted = stats.binom.pmf(counts, n, probability)[extreme].sum()
    # a count whose ratio is the same to seven digits may fall on either side
    strict = stats.binom.pmf(counts, n, probability)[logs > logs[observed] + 1e-7].sum()
    assert strict - 1e-9 <= kupiec(observed, n, probability) <= wanted + 1e-9


def test_runs_of_large_values_have_their_exact_law():
    n, k = 9, 3
    orders = []
    for places in combinations(range(n), k):
        x = np.zeros(n)
        x[list(places)] = 1.0 + np.arange(k)
        orders.append(clustering(x, 1 - k / n))
    runs = np.array([k / found.size for found in orders])
    for found in orders:
        assert found.p_value == pytest.approx((runs <= k / found.size + 1e-9).mean())
    assert clustering(np.ones(10)) is None
    assert clustering(np.zeros(0)) is None


def test_the_certificate_does_not_change_with_the_threads(fits):
    fitted, _, new, certificate = fits["pareto"]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert fitted.tail_certificate(new).to_dict() == certificate.to_dict()
    finally:
        torch.set_num_threads(before)
