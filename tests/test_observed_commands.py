"""Censoring, truncation, gaps and counts on the command line: the same as in Python, and one line for a mistake."""

import numpy as np
import pandas as pd
import pytest

from phvae import PHVAE
from phvae.cli import run
from phvae.tables.read import read_table

QUICK = ["--epochs", "2", "--hidden", "8,8", "--n-phases", "3", "--seed", "4"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    loss, deductible = rng.exponential(2.0, 400), rng.choice([0.0, 0.5], 400)
    table = pd.DataFrame(
        {
            "loss": np.minimum(loss, 5.0),
            "open": (loss > 5.0) * 1.0,
            "deductible": deductible,
            "days": rng.exponential(3.0, 400),
            "claims": rng.poisson(2.0, 400).astype(float),
        }
    )
    table.loc[table.index[::9], "days"] = np.nan
    return table[loss > deductible].reset_index(drop=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory, frame):
    folder = tmp_path_factory.mktemp("observed")
    frame.to_csv(folder / "claims.csv", index=False)
    return folder


TOLD = ["--censored", "loss=open", "--entry", "loss=deductible"]


def test_commands_fit_evaluate_and_impute_as_the_estimator_does(place, frame, capsys):
    claims, model = str(place / "claims.csv"), str(place / "model")
    assert run(["fit", claims, *TOLD, "--missing", "model", "-o", model, *QUICK]) == 0
    names = ["loss", "days", "claims"]
    told = {"censored": {"loss": frame["open"]}, "entry": {"loss": frame["deductible"]}}
    same = PHVAE(epochs=2, hidden=(8, 8), n_phases=3, random_state=4, missing="model").fit(frame[names], **told)
    loaded = PHVAE.load(model)
    assert loaded.settings_["counts"] == same.settings_["counts"] == [2]
    np.testing.assert_array_equal(np.asarray(loaded.sample(50, 0)), np.asarray(same.sample(50, 0)))
    capsys.readouterr()
    assert run(["evaluate", model, claims, *TOLD]) == 0
    assert f"{same.score(frame[names], **told):.4f}" in capsys.readouterr().out
    assert run(["impute", model, claims, "--censored", "loss=open", "--seed", "3", "-o", str(place / "full.csv")]) == 0
    assert f"{frame['days'].isna().sum()} missing cells and" in capsys.readouterr().out
    within = (
        f"{frame['days'].isna().sum()} missing cells and {int(frame['open'].sum())} censored or in an interval drawn"
    )
    assert run(["impute", model, claims, *TOLD, "--seed", "3", "-o", str(place / "bounded.csv")]) == 0
    assert within in capsys.readouterr().out
    expected = same.impute(frame[names], random_state=3, **told)
    np.testing.assert_array_equal(read_table(place / "bounded.csv").table.to_pandas().to_numpy(), expected.to_numpy())
    filled = read_table(place / "full.csv").table.to_pandas()
    expected = same.impute(frame[names], random_state=3, censored=told["censored"])
    np.testing.assert_array_equal(filled.to_numpy(), expected.to_numpy())


def test_gaps_are_filled_given_covariates(place, frame, capsys):
    claims, model = str(place / "claims.csv"), str(place / "conditional")
    words = ["--columns", "loss,days", "--covariates", "claims,deductible", "--missing", "model"]
    assert run(["fit", claims, *words, "-o", model, *QUICK]) == 0
    assert run(["impute", model, claims, "--seed", "3", "-o", str(place / "given.csv")]) == 0
    told = {"covariates": frame[["claims", "deductible"]]}
    expected = PHVAE.load(model).impute(frame[["loss", "days"]], random_state=3, **told)
    np.testing.assert_array_equal(read_table(place / "given.csv").table.to_pandas().to_numpy(), expected.to_numpy())


def test_a_sample_of_rows_comes_with_all_that_is_known_of_them(place, frame, capsys):
    words = ["evaluate", str(place / "model"), str(place / "claims.csv"), *TOLD, "--rows", "50", "--seed", "2"]
    assert run(words) == 0
    names = ["loss", "days", "claims"]
    told = {"censored": {"loss": frame["open"]}, "entry": {"loss": frame["deductible"]}}
    scores = PHVAE.load(place / "model").score_samples(frame[names], **told)
    own = scores[np.sort(np.random.default_rng(2).choice(len(frame), 50, replace=False))]
    assert f"mean log-likelihood {own.mean():.4f} nats" in capsys.readouterr().out
    # what is wrong with a row is said of its line in the file
    wrong = place / "wrong.csv"
    frame.assign(deductible=np.where(np.arange(len(frame)) == len(frame) - 1, 9.0, 0.0)).to_csv(wrong, index=False)
    assert run([*words[:2], str(wrong), *TOLD, "--rows", str(len(frame) - 1), "--seed", "2"]) == 2
    assert f"line {len(frame) + 1} is 9, above the value" in capsys.readouterr().err


MISTAKES = {
    "an entry above the value": (["--entry", "loss=9"], "entry of column 'loss', line 2 is 9, above the value"),
    "a bound below zero": (["--lower", "loss=-1"], "lower of column 'loss', line 2 is -1; "),
    "no such column": (["--upper", "loss=limit"], "there is no column 'limit'; "),
    "no such column of the model": (["--entry", "days=1"], "there is no column 'days' to model"),
    "half an option": (["--entry", "loss"], "--entry 'loss'; write COLUMN=SOURCE"),
    "dropped gaps": (["--exit", "loss=9", "--missing", "drop"], "leave one of them out"),
    "a stream": (["--exit", "loss=9", "--stream"], "--stream reads values alone"),
    "an unknown way with gaps": (["--missing", "guess"], "give error"),
    "broken counts": (["--counts", "loss"], "no whole number"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_status_two(place, name, capsys):
    words, message = MISTAKES[name]
    claims = str(place / "claims.csv")
    assert run(["fit", claims, "--columns", "loss", *words, "-o", str(place / "none"), *QUICK]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


@pytest.fixture(scope="module")
def fills(tmp_path_factory):
    """Returns of orders: some are still open, some were stopped at a loss, and one is not known."""
    rng = np.random.default_rng(5)
    x = 0.01 * rng.laplace(size=300)
    stopped = x < -0.02
    table = pd.DataFrame(
        {
            "fill": np.where(stopped, -0.02 - 0.001 * rng.random(300), x),
            "open": (np.arange(300) % 5 == 0) * 1.0,
            "least": np.where(stopped, -np.inf, np.nan),
            "volume": rng.poisson(3.0, 300).astype(float),
        }
    )
    table.loc[stopped, "open"] = 0.0
    table.loc[7, ["fill", "open", "least"]] = np.nan, 0.0, np.nan
    folder = tmp_path_factory.mktemp("fills")
    table.to_csv(folder / "fills.csv", index=False)
    return folder, table


def test_signed_columns_are_told_of_their_cells_as_others_are(fills, capsys):
    folder, table = fills
    rows, model = str(folder / "fills.csv"), str(folder / "model")
    words = ["--support", "fill=real", "--missing", "model", "--censored", "fill=open", "--lower", "fill=least"]
    assert run(["fit", rows, *words, "-o", model, *QUICK]) == 0
    told = {"censored": {"fill": table["open"]}, "lower": {"fill": table["least"]}}
    names = ["fill", "volume"]
    same = PHVAE(epochs=2, hidden=(8, 8), n_phases=3, random_state=4, missing="model", support={"fill": "real"}).fit(
        table[names], **told
    )
    loaded = PHVAE.load(model)
    assert loaded.settings_["counts"] == same.settings_["counts"] == [1]
    np.testing.assert_array_equal(np.asarray(loaded.sample(50, 0)), np.asarray(same.sample(50, 0)))
    capsys.readouterr()
    assert run(["evaluate", model, rows, "--censored", "fill=open", "--lower", "fill=least"]) == 0
    assert f"{same.score(table[names], **told):.4f}" in capsys.readouterr().out
    assert run(["impute", model, rows, *words[4:], "--seed", "3", "-o", str(folder / "full.csv")]) == 0
    filled = read_table(folder / "full.csv").table.to_pandas()
    np.testing.assert_array_equal(filled.to_numpy(), same.impute(table[names], random_state=3, **told).to_numpy())
    stopped = table["least"] == -np.inf
    assert (filled["fill"][stopped] <= table["fill"][stopped]).all()
    assert (filled["fill"][table["open"] == 1] > table["fill"][table["open"] == 1]).all()
    power = ["--support", "fill=real", "--tail", "pareto", "--missing", "model", "--entry", "fill=-9"]
    assert run(["fit", rows, "--columns", "fill", *power, "-o", model, *QUICK]) == 0
    assert PHVAE.load(model).tail_index("fill", tail="lower").estimate > 0
