"""The report says what the model answers: numbers, cells and pictures agree, and nothing comes from elsewhere."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import risk_models

from phvae import PHVAE
from phvae.cli import run
from phvae.datasets import Pareto
from phvae.report import tail_report
from phvae.report.backtest import counts_between
from phvae.report.curves import Survival
from phvae.report.empirical import Values, hill
from phvae.report.page import KINDS, look_up

LEVELS = [0.9, 0.99]
RTOL = 0.05


@pytest.fixture(scope="module")
def report():
    """About three dependent columns, one of them with zeros, and their truth made up."""
    return tail_report(
        risk_models.model(),
        risk_models.table(),
        held_out=risk_models.table()[::2],
        levels=LEVELS,
        periods=[20, 100],
        layers=[(2.0, 5.0)],
        truth={"x0": Pareto(2.5)},
        rtol=RTOL,
        unit="k€",
        title="A <title> & more",
    )


class Cells(HTMLParser):
    """Text of everything that names its place among the numbers."""

    def __init__(self, text):
        super().__init__()
        self.cells, self._open = [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if "data-at" in given:
            self._open = (given["data-at"], given["data-as"], "")

    def handle_data(self, data):
        if self._open:
            self._open = (*self._open[:2], self._open[2] + data)

    def handle_endtag(self, tag):
        if self._open:
            self.cells.append(self._open)
            self._open = None


def test_figures_are_the_answers_of_the_model(report):
    losses = risk_models.model().losses(None, rtol=RTOL)
    for measure, answer in (("var", losses.var(LEVELS)), ("cvar", losses.cvar(LEVELS))):
        for name in ("value", "standard_error", "low", "high", "extrapolated"):
            assert [row[measure][name] for row in report.numbers["risk"]] == answer[name].tolist()
    returns = losses.return_level([20, 100], 1.0)
    assert [row["value"] for row in report.numbers["returns"]["rows"]] == returns["value"].tolist()
    layer = losses.layer([2.0], [5.0])
    found = [row[name]["value"] for row in report.numbers["layers"] for name in layer["measure"][:4]]
    assert found == layer["value"].tolist()
    assert [row["model_mean"] for row in report.numbers["columns"]] == losses.mean()["value"].tolist()


def test_verdicts_and_tests_are_those_of_the_certificate_of_the_held_out_rows(report):
    certificate = risk_models.model().tail_certificate(risk_models.table()[::2])
    assert report.numbers["verdicts"] == json.loads(json.dumps(certificate.to_dict()["columns"]))
    tests = [test._asdict() for column in certificate.columns for test in column.tests]
    assert [{k: v for k, v in test.items() if k != "column"} for test in report.numbers["backtest"]["tests"]] == tests
    assert report.numbers["backtest"]["rows"] == "given rows"


def test_dependence_is_that_of_data_and_model(report):
    model, found = risk_models.model(), report.numbers["dependence"]
    assert [row["model"]["value"] for row in found["kendall"]] == model.kendall_tau(rtol=RTOL)["value"].tolist()
    x = risk_models.table()
    for row in found["kendall"]:
        i, j = (int(row[name][1:]) for name in ("column", "other"))
        signs = [np.sign(x[:, None, k] - x[None, :, k]) for k in (i, j)]
        assert row["data"] == pytest.approx((signs[0] * signs[1]).sum() / (len(x) * (len(x) - 1)))
    levels = sorted({row["level"] for row in found["chi"]})
    pair = [row for row in found["chi"] if (row["column"], row["other"]) == ("x0", "x1")]
    assert [row["chi"] for row in pair] == pytest.approx(model.chi(levels, [0, 1], rtol=RTOL)["value"].tolist())
    for row in pair:
        u = np.quantile(x[:, :2], row["level"], axis=0)
        assert row["observed"] == np.sum((x[:, 0] > u[0]) & (x[:, 1] > u[1]))
        assert row["low"] <= row["data"] <= row["high"]


@pytest.fixture(scope="module")
def html(report):
    return report.html


def test_what_adding_up_saves_is_the_answer_for_the_sum(report):
    total = risk_models.model().sum(rtol=RTOL)
    found = report.numbers["dependence"]["sum"]
    levels = [row["level"] for row in found]
    values = [row[name]["value"] for name in ("standalone", "sum", "benefit", "ratio") for row in found]
    assert values == total.diversification(levels)["value"].tolist()
    for row in found:
        assert sum(part["value"] for part in row["parts"]) == pytest.approx(row["sum"]["value"], rel=2 * RTOL)
        assert row["data"] == Values(risk_models.table().sum(1)).tail_mean(row["level"])


def test_every_cell_of_the_page_is_its_number(report, html):
    cells = Cells(html).cells
    assert len(cells) > 200
    for at, kind, text in cells:
        assert text == KINDS[kind](look_up(report.numbers, at)), at
    places = {at for at, _, _ in cells}
    for i, row in enumerate(report.numbers["risk"]):
        shown = {f"{measure}/{part}" for measure in ("var", "cvar") for part in ("value", "low", "high")}
        assert {f"risk/{i}/{name}" for name in shown} <= places
        assert (row["truth"] is not None) == (row["column"] == "x0")


def test_a_page_stands_alone_and_escapes_what_it_is_given(html):
    assert not re.search(r'<script|@import|(src|href)="(?!#|data:,)', html.replace('xlink:href="#', ""))
    assert not re.search(r"url\((?!#)", html)
    assert "A &lt;title&gt; &amp; more" in html
    assert "<title> &" not in html
    identifiers = re.findall(r'\bid="([^"]+)"', html)
    assert len(identifiers) == len(set(identifiers))
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', html)) <= set(identifiers)
    # five pictures of each column, three pairs, three histograms; this model was not trained
    assert html.count("<svg") == 5 * 3 + 3 + 3


def test_the_page_is_a_function_of_its_numbers(report, html, tmp_path):
    beside = report.write(tmp_path / "page.html")
    assert beside == tmp_path / "page.json"
    numbers = json.loads(beside.read_text(encoding="utf-8"))
    assert numbers == report.numbers
    assert type(report)(numbers).html == (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_single_column_of_an_independent_model_has_a_report_too():
    x = np.random.default_rng(0).exponential(size=(60, 1))
    model = PHVAE(n_phases=2, random_state=0).fit(x)
    found = model.report(x, levels=[0.9, 0.9999], periods=[10])
    assert found.numbers["dependence"] is None
    assert found.numbers["model"]["data_fingerprint"] == found.numbers["data"]["fingerprint"] == model.fingerprint_
    far = found.numbers["risk"][-1]
    assert far["data"] == {"var": None, "low": None, "high": None, "cvar": None, "n_beyond": 0}
    assert far["var"]["extrapolated"]
    assert "No rows were held out" in found.html


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"levels": [1.5]}, r"levels\[0\] = 1.5"),
        ({"layers": [(0, 5)]}, r"layers\[0\]"),
        ({"truth": {"y": None}}, "truth names"),
        ({"splice": "pareto"}, "splice = 'pareto'"),
        ({"events_per_period": -1}, "events_per_period = -1"),
    ],
)
def test_bad_questions_are_one_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        tail_report(risk_models.model(), risk_models.table(), **options)


def test_hill_and_survival_agree_on_a_power_tail():
    x = np.geomspace(1, 1e3, 30)
    curve = Survival(x, x**-2.5)
    np.testing.assert_allclose(curve.hill(x[:20]), 1 / 2.5, rtol=1e-12)
    np.testing.assert_allclose(curve.isf(curve.sf([1.5, 70.0])), [1.5, 70.0], rtol=1e-12)
    assert np.isnan(curve.isf(1e-12))
    # Hill's estimate of 20,000 Pareto values has standard error (1/2.5)/sqrt(1000): five of them, failing in 1e-6
    values = -np.sort(-Pareto(2.5).sample(20_000, seed=0))
    assert hill(values, np.array([1000]))[0] == pytest.approx(0.4, abs=5 * 0.4 / 1000**0.5)


def test_empirical_measures_are_those_of_the_rows():
    x = np.arange(100.0, 0.0, -1)
    assert Values(x).quantile(0.95) == np.quantile(x, 0.95)
    assert Values(x).tail_mean(0.95) == x[:5].mean()
    # CVaR is the mean of the quantiles beyond the level
    assert Values(x).tail_mean(0.955) == pytest.approx((x[:4].sum() + 0.5 * x[4]) / 4.5)


def test_probabilities_of_draws_of_the_law_are_even():
    rng = np.random.default_rng(0)
    x = np.where(rng.random(10_000) < 0.3, 0.0, rng.exponential(size=10_000))
    levels = np.arange(1, 10) / 10
    edges = np.where(levels <= 0.3, 0.0, -np.log1p(-np.maximum(levels - 0.3, 0) / 0.7))
    counts = counts_between(x, edges, atom=0.3)
    assert counts.sum() == pytest.approx(len(x))
    # every count is binomial with standard deviation 30 (or less within the atom): five of them
    assert np.abs(counts - 1000).max() < 150


def test_the_command_writes_page_and_numbers(tmp_path, capsys):
    lines = ["a,b", *(f"{a},{b}" for a, b in risk_models.table()[:200, :2])]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    data, model, page = (str(tmp_path / name) for name in ("t.csv", "t.phvae", "page.html"))
    assert run(["fit", data, "-o", model, "--epochs", "0", "--latent-dim", "0", "--n-phases", "3", "--quiet"]) == 0
    words = ["report", model, "--data", data, "-o", page, "--rtol", "0.1", "--level", "0.9", "--layer", "2xs5"]
    capsys.readouterr()
    assert run([*words, "--json", "--held-out", data, "--periods", "2", "--events-per-period", "12"]) == 0
    said = json.loads(capsys.readouterr().out)
    numbers = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    assert said["risk"] == numbers["risk"]
    assert (numbers["layers"][0]["limit"], numbers["layers"][0]["attachment"]) == (2.0, 5.0)
    assert numbers["returns"]["events_per_period"] == 12
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    nowhere = str(tmp_path / "no" / "page.html")
    for wrong in (["--layer", "ten"], ["--level", "high"], ["--level", "2"], ["-o", nowhere]):
        assert run([*words, *wrong]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert wrong[1].split("/")[-1] in err or wrong[1] in err


def test_data_that_the_model_knows_to_be_cut_are_not_taken_for_plain_values_in_silence():
    x = np.random.default_rng(0).exponential(size=(300, 1))
    cut = np.minimum(x, 1.5)
    fitted = PHVAE(n_phases=3, random_state=0).fit(cut, censored=cut == 1.5)
    with pytest.warns(UserWarning, match="fitted to cells that are cut"):
        tail_report(fitted, cut, levels=[0.9])
