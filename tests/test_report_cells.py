"""The report on cells that are cut, missing, counted, weighted or seen within bounds, and on both tails."""

import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import risk_models
import signed_models
from scipy import stats
from test_report import Cells

from phvae import PHVAE
from phvae.cli import run
from phvae.report import tail_report
from phvae.report.page import KINDS, look_up
from phvae.risk.decided import exceedance_tests
from phvae.risk.exceedances import kupiec
from phvae.risk.seen import SeenColumn

LEVELS = [0.9, 0.99]
QUICK = {"n_phases": 3, "latent_dim": 0, "random_state": 0}


def shown(report):
    """Every cell of the page is its number, whatever is left open."""
    for at, kind, text in Cells(report.html).cells:
        assert text == KINDS[kind](look_up(report.numbers, at)), at
    return report


class Exponential:
    """The law of a test: `log_sf` of one replicate."""

    def log_sf(self, x):
        return -x[None]


def decided(column, levels):
    beyond = 1 - np.array(levels)
    return exceedance_tests(column, Exponential(), levels, -np.log(beyond), beyond)


def test_exceedances_of_cut_cells_are_those_that_any_way_of_completing_them_allows():
    rng = np.random.default_rng(0)
    x, limit = rng.exponential(size=300), rng.exponential(2.0, 300)
    lower, upper = np.minimum(x, limit), np.where(x > limit, np.inf, x)
    for test in decided(SeenColumn(lower, upper), (0.5, 0.9)):
        quantile = -math.log1p(-test.level)
        least = sum(low >= quantile if low != high else low > quantile for low, high in zip(lower, upper, strict=True))
        most = sum(high > quantile for high in upper)
        assert (test.observed, test.undecided) == (least, most - least)
        chances = [kupiec(k, 300, 1 - test.level) for k in range(least, most + 1)]
        if least <= test.expected <= most:
            assert math.isnan(test.p_value)
        else:
            assert test.p_value == pytest.approx(max(chances))
        # the truth is among them
        assert least <= (x > quantile).sum() <= most
    assert any(test.undecided for test in decided(SeenColumn(lower, upper), (0.5, 0.9)))
    # all limits beyond the quantiles: nothing is left open
    high = SeenColumn(np.minimum(x, 2.5), np.where(x > 2.5, np.inf, x))
    assert decided(high, (0.5, 0.9)) == decided(SeenColumn(x, x), (0.5, 0.9))


def test_the_test_of_rows_within_bounds_has_the_law_of_a_test_of_all_rows():
    rng = np.random.default_rng(1)
    n = 20_000
    entry, last = rng.choice([-np.inf, 0.3, 1.7], n), rng.choice([2.0, 5.0, np.inf], n)
    low, high = np.exp(-np.maximum(entry, 0)), np.exp(-last)
    x = -np.log(low - rng.random(n) * (low - high))
    for test in decided(SeenColumn(x, x, entry, last), (0.5, 0.9, 0.99)):
        assert test.undecided == 0
        # binomial: five standard deviations, failing in 6e-7 each
        spread = (n * test.level * (1 - test.level)) ** 0.5
        assert abs(test.observed - test.expected) < 5 * spread
        assert test.expected == pytest.approx(n * (1 - test.level))
    # without the bounds the same rows are at odds with the law
    assert decided(SeenColumn(x, x), (0.5,))[0].p_value < 1e-6


def test_a_weight_counts_rows_in_every_figure():
    x, rng = risk_models.table()[:150], np.random.default_rng(2)
    weights = rng.integers(0, 4, len(x))
    model = risk_models.model(latent_dim=0)
    weighted = tail_report(model, x, sample_weight=weights, levels=LEVELS, periods=[20], layers=[(1, 1)], rtol=0.1)
    again = tail_report(model, np.repeat(x, weights, axis=0), levels=LEVELS, periods=[20], layers=[(1, 1)], rtol=0.1)
    for part in ("columns", "risk", "returns", "layers", "dependence", "curves"):
        assert same(weighted.numbers[part], again.numbers[part]), part
    tests = [report.numbers["backtest"]["tests"] for report in (weighted, again)]
    assert same(*tests)
    assert weighted.numbers["data"]["n_rows"] == weights.sum()
    assert "weights" in shown(weighted).numbers["notes"][0]


def same(one, other):
    """Whether JSON values are equal, numbers to nine digits."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


@pytest.fixture(scope="module")
def claims():
    """Losses cut at a limit and seen from a deductible on, days with gaps, counts; and what is known of their cells."""
    rng = np.random.default_rng(3)
    n = 1500
    loss, deductible, limit = rng.exponential(2.0, n), rng.choice([0.0, 0.5, 1.0], n), rng.choice([4.0, 9.0], n)
    frame = pd.DataFrame(
        {"loss": np.minimum(loss, limit), "days": rng.exponential(30.0, n), "claims": rng.negative_binomial(1, 0.3, n)}
    )
    frame.loc[::5, "days"] = np.nan
    seen = loss > deductible
    told = {"censored": {"loss": (loss > limit)[seen]}, "entry": {"loss": deductible[seen]}}
    return frame[seen].reset_index(drop=True), told


@pytest.fixture(scope="module")
def report(claims):
    frame, told = claims
    model = PHVAE(**QUICK, missing="model").fit(frame, **told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return shown(model.report(frame, **told, levels=LEVELS, periods=[20], layers=[(2, 1), (50, 10)], rtol=0.05))


def test_the_figures_of_cut_data_are_those_of_all_rows(report):
    numbers = report.numbers
    assert numbers["data"]["of_the_fit"]
    # the true law of all rows: exponential with mean 2, seen or not, cut or not
    row = next(row for row in numbers["risk"] if (row["column"], row["level"]) == ("loss", 0.9))
    assert row["data"]["low"] < -2 * math.log(0.1) < row["data"]["high"]
    assert row["data"]["cvar"] is None
    assert row["gpd"] is None
    # a sum of shares: five standard errors of a mean of at most 2
    layers = {(row["column"], row["limit"]): row["data"] for row in numbers["layers"]}
    assert layers["loss", 2] == pytest.approx(2 * (math.exp(-0.5) - math.exp(-1.5)), abs=5 * 2 / 1000**0.5)
    assert layers["loss", 50] is None
    known = {row["column"]: row for row in numbers["cells"]}
    assert known["loss"]["cut"] > 100
    assert known["loss"]["bounded"] > 500
    assert known["days"]["missing"] > 200
    assert known["claims"]["values"] == numbers["data"]["n_rows"]
    assert "Kaplan" in " ".join(numbers["notes"])


def test_the_back_test_of_a_model_that_is_right_does_not_reject(report):
    found = report.numbers["backtest"]
    assert found["rows"] == "training rows"
    # eighteen tests and three histograms, each on the rows of the fit
    assert min(test["p_value"] for test in found["tests"] if test["p_value"] is not None) > 1e-6
    assert {test["column"] for test in found["tests"]} == {"loss", "days", "claims"}
    for histogram in found["pit"]:
        assert sum(histogram["counts"]) == pytest.approx(histogram["n"])
        assert histogram["p_value"] > 1e-6
    # a count stands for what is rounded to it: its quantile is decided, and every count is
    assert all(test["undecided"] == 0 for test in found["tests"] if test["column"] == "claims")
    assert any(test["undecided"] for test in found["tests"] if test["column"] == "loss")


def test_dependence_is_that_of_complete_rows_and_says_so(report, claims):
    frame, told = claims
    complete = frame[frame["days"].notna() & ~told["censored"]["loss"]]
    found = report.numbers["dependence"]
    assert found["n"] == len(complete)
    taus = {(row["column"], row["other"]): row["data"] for row in found["kendall"]}
    assert taus["loss", "days"] == pytest.approx(stats.kendalltau(complete["loss"], complete["days"]).statistic)
    assert "cells are all values" in report.html


def test_without_a_complete_row_the_page_shows_the_dependence_of_the_model_alone():
    x = np.random.default_rng(7).exponential(size=(300, 2))
    x[::2, 0], x[1::2, 1] = np.nan, np.nan
    model = PHVAE(**QUICK, missing="model").fit(x)
    report = shown(model.report(x, levels=[0.9], periods=[20], rtol=0.1))
    found = report.numbers["dependence"]
    assert found["n"] == 0
    assert found["kendall"][0]["data"] is None
    assert {(row["observed"], row["data"], row["low"]) for row in found["chi"]} == {(None, None, None)}
    assert [row["chi"] for row in found["chi"]] == pytest.approx([1 - row["level"] for row in found["chi"]])
    assert "No row has a value in every cell" in report.html


def test_cells_that_are_cut_and_not_said_to_be_are_warned_about(claims):
    frame, told = claims
    model = PHVAE(**QUICK, missing="model").fit(frame, **told)
    with pytest.warns(UserWarning, match="fitted to cells that are cut"):
        model.tail_certificate(frame)
    with pytest.warns(UserWarning, match="fitted to cells that are cut"):
        model.report(frame, **told, held_out=frame[::2], levels=[0.9], periods=[20], rtol=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certificate = model.tail_certificate(frame, **told)
        # gaps show themselves, and so do rows that are said to be values
        gaps = PHVAE(**QUICK, missing="model").fit(frame[["days"]])
        gaps.report(frame[["days"]], levels=[0.9], periods=[20], rtol=0.1)
        gaps.tail_certificate(frame[["days"]].dropna())
        model.tail_certificate(frame, censored=False)
    assert certificate.tested == "training rows"
    assert "seen values of this column cut" in str(certificate)


def test_held_out_rows_have_cells_of_their_own(claims):
    frame, told = claims
    model = PHVAE(**QUICK, missing="model").fit(frame, **told)
    half = {name: {"loss": np.asarray(part["loss"])[::2]} for name, part in told.items()}
    held_out = {"X": frame[::2], **half, "sample_weight": np.full(len(frame[::2]), 2)}
    found = model.report(frame, **told, held_out=held_out, levels=[0.9], periods=[20], rtol=0.1).numbers
    assert found["held_out"]["n_rows"] == found["backtest"]["n"] == 2 * len(frame[::2])
    certificate = model.tail_certificate(**held_out)
    assert [test["observed"] for test in found["backtest"]["tests"][:6]] == [
        test.observed for test in certificate.columns[0].tests
    ]
    for wrong, words in (({"censored": True}, "has no 'X'"), ({"X": frame, "cut": 1}, "has 'cut'")):
        with pytest.raises(ValueError, match=words):
            model.report(frame, **told, held_out=wrong)


def test_where_bounds_of_another_column_select_the_rows_nothing_is_said_of_it():
    rng = np.random.default_rng(4)
    common = rng.gamma(2.0, size=(800, 1))
    x = rng.exponential(size=(800, 2)) / common
    seen = x[:, 0] > 0.3
    frame = pd.DataFrame(x[seen], columns=["loss", "days"])
    model = PHVAE(n_phases=3, latent_dim=1, hidden=(8,), epochs=0, random_state=0).fit(frame, entry={"loss": 0.3})
    report = shown(model.report(frame, entry={"loss": 0.3}, levels=[0.9], periods=[20], rtol=0.1))
    assert report.numbers["backtest"]["untested"] == ["days"]
    assert {test["column"] for test in report.numbers["backtest"]["tests"]} == {"loss"}
    assert [row["data"]["var"] is None for row in report.numbers["risk"]] == [False, True]
    assert all(row["gpd"] is None for row in report.numbers["risk"])
    assert "were not tested" in report.html


def test_both_tails_of_signed_columns_are_on_the_page():
    model, x = signed_models.model(), signed_models.returns()
    report = shown(
        model.report(x, levels=LEVELS, periods=[20], layers=[(0.1, 0.05)], rtol=0.1, truth={"-x0": stats_law()})
    )
    numbers = report.numbers
    names = ["x0", "-x0", "x1", "-x1"]
    assert [row["name"] for row in numbers["columns"]] == names
    assert [column["name"] for column in numbers["verdicts"]] == names
    for tail, sign in (("upper", ""), ("lower", "-")):
        for measure in ("var", "cvar"):
            answer = getattr(model, measure)(LEVELS, tail=tail, rtol=0.1)["value"].tolist()
            own = [row[measure]["value"] for row in numbers["risk"] if row["column"].startswith("-") == bool(sign)]
            assert own == answer
        certificate = model.tail_certificate(x, tail=tail)
        tests = [test for test in numbers["backtest"]["tests"] if test["column"].startswith("-") == bool(sign)]
        assert [test["observed"] for test in tests] == [t.observed for c in certificate.columns for t in c.tests]
        chi = [row for row in numbers["dependence"]["chi"] if row["column"].startswith("-") == bool(sign)]
        levels = [row["level"] for row in chi]
        assert [row["chi"] for row in chi] == pytest.approx(model.chi(levels, tail=tail, rtol=0.1)["value"].tolist())
        y = -x if sign else x
        for row in chi:
            u = np.quantile(y, row["level"], axis=0)
            assert row["observed"] == (y > u).all(1).sum()
    # the data of the lower tail are those of the upper tail of minus the rows
    lower = next(row for row in numbers["risk"] if (row["column"], row["level"]) == ("-x0", 0.9))
    assert lower["data"]["var"] == np.quantile(-x[:, 0], 0.9)
    assert lower["truth"] == {"var": 9.0, "cvar": 10.0}
    assert len(numbers["curves"]) == 4
    # a histogram of probabilities is the same from either side: one for each column
    assert [histogram["column"] for histogram in numbers["backtest"]["pit"]] == ["x0", "x1"]


def stats_law():
    class Known:
        def isf(self, probability):
            return 9.0

        def cvar(self, level):
            return 10.0

        def cdf(self, x):
            return 0.5

        def sf(self, x):
            return np.full(np.shape(x), 0.5)

    return Known()


@pytest.mark.parametrize(
    ("tail", "names"),
    [("upper", ["x0", "x1"]), ("lower", ["-x0", "-x1"]), ({"x0": "lower", "x1": "upper"}, ["-x0", "x1"])],
)
def test_one_tail_can_be_asked_for(tail, names):
    model = signed_models.model(latent_dim=0)
    found = model.report(signed_models.returns(), tail=tail, levels=[0.9], periods=[20], rtol=0.1).numbers
    assert [row["column"] for row in found["risk"]] == names
    assert {test["column"] for test in found["backtest"]["tests"]} == set(names)


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ("both sides", "tail = 'both sides'; give 'both'"),
        ({"x0": 1}, r"tail\['x0'\] = 1"),
        ({"z": "upper"}, "tail = 'z'"),
    ],
)
def test_a_tail_that_is_none_is_one_sentence(tail, words):
    with pytest.raises(ValueError, match=words):
        signed_models.model(latent_dim=0).report(signed_models.returns(), tail=tail)
    with pytest.raises(ValueError, match="never below"):
        risk_models.model(latent_dim=0).report(risk_models.table(), tail="lower")


def test_probabilities_of_exact_zeros_are_spread_between_losses_and_gains():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4000, 1))
    x[rng.random(4000) < 0.3] = 0.0
    model = signed_models.fit(x, n_phases=6)
    found = model.report(x, levels=[0.9], periods=[20], rtol=0.05).numbers
    (histogram,) = found["backtest"]["pit"]
    assert sum(histogram["counts"]) == pytest.approx(4000)
    # zeros fill the middle of the histogram: bins within their mass hold their exact share of it
    share = (x == 0).mean()
    assert [row["zero_share"] for row in found["columns"]] == [share, share]
    assert [row["model_zero_share"] for row in found["columns"]] == pytest.approx([share, share], rel=1e-5)
    middle = histogram["counts"][4]
    assert middle == pytest.approx(400, rel=1e-3)


def test_a_column_with_zeros_has_the_tail_of_its_positive_values():
    x = risk_models.table()
    found = tail_report(risk_models.model(latent_dim=0), x, levels=[0.9], periods=[20], rtol=0.05).numbers
    zeros = next(row for row in found["columns"] if row["name"] == "x2")
    assert zeros["zero_share"] == (x[:, 2] == 0).mean()
    atom = risk_models.model(latent_dim=0).cdf("x2", 0.0)["value"][0]
    assert zeros["model_zero_share"] == pytest.approx(atom)
    drawn = next(curves for curves in found["curves"] if curves["column"] == "x2")["survival"]["data"]
    # probabilities are those of a row, zeros included, and points those of positive values
    np.testing.assert_allclose(drawn["share"], [(x[:, 2] >= u).mean() for u in drawn["x"]])
    assert min(drawn["x"]) > 0


def test_the_model_of_a_row_of_covariates_has_a_report():
    rng = np.random.default_rng(6)
    size = rng.choice([1.0, 2.0], 400)
    frame = pd.DataFrame({"loss": np.minimum(size * rng.exponential(size=400), 3.0)})
    cut = {"loss": frame["loss"] == 3.0}
    model = PHVAE(n_phases=2, epochs=2, random_state=0).fit(frame, covariates={"size": size}, censored=cut)
    at, rows = model.at({"size": 2.0}), size == 2.0
    found = at.report(frame[rows], censored={"loss": cut["loss"][rows]}, levels=[0.9], periods=[20], rtol=0.1)
    assert found.numbers["cells"][0]["cut"] == cut["loss"][rows].sum()
    with pytest.raises(ValueError, match="has the covariates 'size'"):
        model.report(frame, censored=cut)


def test_the_command_reads_what_is_known_of_cells_from_both_tables(claims, tmp_path, capsys):
    frame, told = claims
    table = frame.assign(open=told["censored"]["loss"] * 1, deductible=told["entry"]["loss"], policies=2)
    table.to_csv(tmp_path / "t.csv", index=False)
    table[::2].to_csv(tmp_path / "fresh.csv", index=False)
    data, fresh, model, page = (str(tmp_path / name) for name in ("t.csv", "fresh.csv", "t.phvae", "page.html"))
    options = ["--censored", "loss=open", "--entry", "loss=deductible", "--weights", "policies"]
    fit = [
        "fit",
        data,
        "-c",
        "loss,days,claims",
        *options,
        "--missing",
        "model",
        "-o",
        model,
        "--quiet",
    ]
    assert run([*fit, "--latent-dim", "0", "--n-phases", "3", "--seed", "0"]) == 0
    capsys.readouterr()
    words = ["report", model, "--data", data, "--held-out", fresh, "-o", page, "--rtol", "0.1", "--level", "0.9"]
    assert run([*words, *options, "--periods", "20", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "cut" not in err
    numbers = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    assert json.loads(out)["risk"] == numbers["risk"]
    assert numbers["data"]["of_the_fit"]
    assert numbers["held_out"]["n_rows"] == 2 * len(table[::2])
    loaded = PHVAE.load(model)
    same_rows = {**told, "sample_weight": np.full(len(frame), 2.0)}
    own = loaded.report(frame, **same_rows, levels=[0.9], periods=[20], rtol=0.1).numbers
    assert own["risk"] == numbers["risk"]
    # without the options the command says what it takes the cells for
    assert run([*words, "--periods", "20"]) == 0
    assert "fitted to cells that are cut" in capsys.readouterr().err
    assert run([*words, *options, "--tail", "lower"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "never below" in err
    frame.assign(deductible=9.0, open=0, policies=1).to_csv(fresh, index=False)
    assert run([*words, *options]) == 2
    assert "fresh.csv: entry of column 'loss', line 2 is 9, above the value" in capsys.readouterr().err
