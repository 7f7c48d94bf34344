"""Fits to signed columns: from a table to a file, with the sides, zeros, scales and errors that they promise."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from signed_models import fit, returns
from sklearn.base import clone

from phvae import PHVAE, datasets, modelfile
from phvae.cli import run
from phvae.persistence import pack
from phvae.preprocessing import PositiveScaler

TRAINED = {"latent_dim": 2, "epochs": 3, "batch_size": 128}


def values(answer):
    return np.array(answer["value"])


def test_the_scale_is_the_median_size_and_the_sides_have_their_shares():
    x = returns()
    scaler = PositiveScaler(support="real").fit(x)
    assert scaler.origin_.tolist() == [0, 0]
    assert scaler.lower_.tolist() == [-np.inf, -np.inf]
    for j in range(2):
        size = np.abs(x[x[:, j] != 0, j])
        assert scaler.scale_[j] == np.median(size)
        assert scaler.zero_share_[j] == pytest.approx((x[:, j] == 0).mean())
        assert scaler.loss_share_[j] == pytest.approx((x[:, j] < 0).sum() / len(size))
    doubled = PositiveScaler(support="real").fit(x, sample_weight=np.full(len(x), 2.0))
    assert doubled.loss_share_.tolist() == scaler.loss_share_.tolist()
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(x)), x, rtol=1e-15)


def test_few_zeros_are_values_and_many_an_atom():
    x = returns()[:, :1].copy()
    x[:4] = 0.0
    few = fit(x)
    assert few.scaler_.zero_share_.tolist() == [0]
    assert np.isfinite(few.score_samples(x)).all()
    x[:6] = 0.0
    many = fit(x)
    assert many.scaler_.zero_share_.tolist() == [pytest.approx(6 / len(x))]
    below = values(many.sf(0, 0.0, tail="lower"))[0]
    assert values(many.cdf(0, 0.0))[0] - below == pytest.approx(6 / len(x), rel=1e-5)
    # training sees values at zero too, and its gradients are numbers
    trained = fit(np.hstack([x, returns()[:, 1:]]), **{**TRAINED, "epochs": 1})
    assert np.isfinite(trained.score(np.hstack([x, returns()[:, 1:]])))


def test_each_side_of_a_single_column_starts_at_its_own_maximum_likelihood_law():
    x = returns()[:, :1]
    whole = fit(x)
    for tail, sizes in (("upper", x[x > 0]), ("lower", -x[x < 0])):
        side = fit(sizes[:, None], support="non-negative", origin=0)
        excess = np.array([0.01, 0.1, 0.5])
        share = values(whole.sf(0, [0.0], tail=tail))[0]
        assert values(whole.sf(0, excess, tail=tail)) == pytest.approx(share * values(side.sf(0, excess)), rel=1e-4)


def test_another_unit_changes_nothing_but_the_unit():
    x = returns()
    one, other = fit(x, **TRAINED), fit(1024 * x, **TRAINED)
    assert values(other.var([0.01, 0.99], rtol=0.1)) == pytest.approx(1024 * values(one.var([0.01, 0.99], rtol=0.1)))
    n_values = (x != 0).sum(1)
    np.testing.assert_allclose(other.score_samples(1024 * x), one.score_samples(x) - n_values * np.log(1024), rtol=1e-9)
    np.testing.assert_allclose(other.sample(50, 1), 1024 * one.sample(50, 1), rtol=1e-9)
    np.testing.assert_allclose(other.transform(1024 * x), one.transform(x), rtol=1e-6)


@pytest.mark.parametrize("law", ["asymmetric Laplace", "Student"])
def test_quantiles_of_a_known_law_are_recovered_in_both_tails(law):
    n = 4000
    truth = stats.laplace_asymmetric(1.5, scale=0.01) if law == "asymmetric Laplace" else stats.t(4, scale=0.01)
    x = truth.rvs(size=(n, 1), random_state=np.random.default_rng(7))
    model = fit(x, n_phases=8)
    for level in (0.01, 0.05, 0.25, 0.75, 0.95, 0.99):
        q = truth.ppf(level)
        # a law fitted to all rows knows a quantile at least as well as the rows beyond it alone: 5.5 of their standard
        # deviations; and a phase-type law with 8 phases bends by no more than two percent of it
        spread = 5.5 * np.sqrt(level * (1 - level) / n) / truth.pdf(q) + 0.02 * abs(q)
        assert values(model.quantile(0, level))[0] == pytest.approx(q, abs=spread)
    # the share of losses is that of the rows
    assert values(model.sf(0, [0.0], tail="lower"))[0] == pytest.approx((x < 0).mean(), rel=1e-5)


def test_weights_count_rows():
    x, w = returns()[:150], np.arange(150) % 3
    untrained = fit(x).get_params()
    weighted = PHVAE(**untrained).fit(x, sample_weight=w)
    repeated = PHVAE(**untrained).fit(np.repeat(x, w, axis=0))
    for tail in ("upper", "lower"):
        assert values(weighted.var(0.95, tail=tail, rtol=0.1)) == pytest.approx(
            values(repeated.var(0.95, tail=tail, rtol=0.1)), rel=1e-4
        )
        records = [m.tail_record_.columns if tail == "upper" else m.tail_record_.losses for m in (weighted, repeated)]
        for ours, theirs in zip(*records, strict=True):
            assert (ours.n, ours.zeros, ours.top.tolist()) == (theirs.n, theirs.zeros, theirs.top.tolist())


def test_a_file_keeps_both_tails(tmp_path):
    x = pd.DataFrame(returns(), columns=["bond", "stock"])
    model = fit(x, **TRAINED)
    model.save(tmp_path / "returns.phvae")
    again = PHVAE.load(tmp_path / "returns.phvae")
    assert again.get_params()["support"] == "real"
    assert again.scaler_.loss_share_.tolist() == model.scaler_.loss_share_.tolist()
    pd.testing.assert_frame_equal(again.sample(20, 0), model.sample(20, 0))
    for tail in ("upper", "lower"):
        pd.testing.assert_frame_equal(again.var(0.99, tail=tail), model.var(0.99, tail=tail))
        assert again.tail_certificate(tail=tail).to_dict() == model.tail_certificate(tail=tail).to_dict()
    assert PHVAE.verify(tmp_path / "returns.phvae").largest_difference == 0
    # a file in which only the settings say that there are losses is refused, not guessed at
    tensors, header = pack(model)
    modelfile.write(tmp_path / "torn.phvae", {k: v for k, v in tensors.items() if "losses" not in k}, header)
    with pytest.raises(modelfile.ModelFileError, match="losses"):
        PHVAE.load(tmp_path / "torn.phvae")


def test_files_of_other_models_are_as_before_and_older_ones_load(tmp_path):
    model = PHVAE(n_phases=3, latent_dim=0, random_state=0).fit(np.abs(returns()[:, :1]))
    tensors, header = pack(model)
    assert "loss_share" not in header["settings"]
    assert not [name for name in tensors if "loss" in name]
    header["parameters"].pop("support")
    modelfile.write(tmp_path / "older.phvae", tensors, header)
    older = PHVAE.load(tmp_path / "older.phvae")
    assert older.support == "non-negative"
    assert older.sample(5, 0).tolist() == model.sample(5, 0).tolist()


def test_signed_columns_stand_beside_non_negative_ones():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"return": returns()[:, 0], "volume": 1 + rng.pareto(3.0, len(returns()))})
    mixed = fit(frame, support={"return": "real"})
    plain = fit(frame[["volume"]], support="non-negative")
    assert mixed.scaler_.lower_.tolist() == [-np.inf, plain.scaler_.origin_[0]]
    x = [0.5, 1.5, 20.0]
    assert values(mixed.sf("volume", x)) == pytest.approx(values(plain.sf("volume", x)), rel=1e-5)
    sample = fit(frame, support=["real", "non-negative"], **TRAINED).sample(500, 0)
    assert (sample["return"] < 0).any()
    assert (sample["volume"] > 0.9).all()
    with pytest.raises(ValueError, match=r"^Negative values in data: column 'volume', row 1"):
        mixed.score(frame.assign(volume=[1.0, *-frame["volume"][1:]]))


def test_whole_numbers_of_both_signs_are_values_unless_said_otherwise():
    x = np.rint(300 * returns()[:, :1])
    assert fit(x).settings_.get("counts", []) == []
    assert fit(x, counts=[0]).settings_["counts"] == [0]


def test_what_knows_no_signs_says_so():
    with pytest.raises(ValueError, match=r"'x0' has negative values; give columns of losses only"):
        fit(returns()).aggregate(0, frequency=10)


def test_covariates_move_both_tails():
    rng = np.random.default_rng(5)
    size = rng.choice([1.0, 4.0], 600)
    x = (size * rng.laplace(size=600))[:, None]
    model = fit(x, epochs=8, batch_size=64, learning_rate=0.01)
    given = PHVAE(**model.get_params()).fit(x, covariates={"size": size})
    calm, rough = given.at({"size": 1.0}), given.at({"size": 4.0})
    for tail in ("upper", "lower"):
        # four times as much; a short training finds at least a factor of two
        assert values(rough.var(0.95, tail=tail))[0] > 2 * values(calm.var(0.95, tail=tail))[0]
    assert given.score(x, covariates={"size": size}) > model.score(x) + 0.05


def test_the_estimator_clones_and_says_what_it_takes():
    model = PHVAE(support={"a": "real"})
    assert clone(model).support == {"a": "real"}
    assert not model.__sklearn_tags__().input_tags.positive_only
    assert PHVAE().__sklearn_tags__().input_tags.positive_only


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"support": "non-negative"}, r"^Negative values in data: column 'x0', row \d+ is -.* support='real' "),
        ({"support": "signed"}, r"^support of column 'x0' is 'signed'; give 'non-negative' or 'real'$"),
        ({"support": None}, r"^support of column 'x0' is None; give 'non-negative' or 'real'$"),
        (
            {"support": {"z": "real"}},
            r"^support names column 'z', which the data do not have; they have \['x0', 'x1'\]$",
        ),
        ({"support": ["real"]}, r"^support has 1 entries and the data 2 columns; give one per column$"),
        ({"origin": [1.0, 0]}, r"^origin of column 'x0' is 1, and its support is the whole line"),
        ({"gap": True}, r"^column 'x1', row 3 is missing \(NaN\); .*set missing to 'model'$"),
    ],
)
def test_what_cannot_be_is_one_line(changes, message):
    x, changes = returns().copy(), dict(changes)
    if changes.pop("gap", False):
        x[3, 1] = np.nan
    with pytest.raises(ValueError, match=message) as error:
        fit(x, **changes)
    assert "\n" not in str(error.value)


def test_a_side_without_values_is_named():
    x = returns().copy()
    with pytest.raises(ValueError, match=r"^column 'x1' has 0 different negative values .*leave its support non-neg"):
        fit(np.column_stack([x[:, 0], np.abs(x[:, 1])]))
    with pytest.raises(ValueError, match=r"^column 'x0' has 0 different positive values .*give it with the other sign"):
        fit(np.column_stack([-np.abs(x[:, 0]), x[:, 1]]))


def test_the_command_line_takes_both_signs(tmp_path, capsys):
    table, model, sample = (str(tmp_path / name) for name in ("returns.csv", "model", "sample.csv"))
    pd.DataFrame(returns(), columns=["bond", "stock"]).to_csv(table, index=False)
    quick = ["--n-phases", "3", "--epochs", "1", "--hidden", "8", "--seed", "0"]
    assert run(["fit", table, "-o", model, *quick]) == 2
    assert "support='real'" in capsys.readouterr().err
    assert run(["fit", table, "-o", model, *quick, "--support", "real"]) == 0
    assert run(["sample", model, "-n", "200", "--seed", "1", "-o", sample]) == 0
    assert (pd.read_csv(sample) < 0).any().all()
    capsys.readouterr()
    assert run(["evaluate", model, table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_impossible"] == 0
    assert run(["risk", model, "-c", "bond", "--level", "0.99", "--tail", "lower", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert [row["column"] for row in answers] == ["-bond", "-bond"]
    assert answers[0]["value"] == pytest.approx(values(PHVAE.load(model).var(0.99, "bond", tail="lower"))[0], rel=0.05)
    loss = ["--sum", "--tail", "lower", "--exceeds", "0.02", "--rtol", "0.02", "--json"]
    assert run(["risk", model, *loss]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    own = PHVAE.load(model)
    own.table_kind_ = "numpy"
    assert answer["value"] == own.sum(tail="lower", rtol=0.02).sf(0.02)["value"][0]
    assert run(["risk", model, "--tail", "left"]) == 2
    assert "--tail 'left'; give 'upper' or 'lower'" in capsys.readouterr().err
    assert run(["fit", table, "-o", model, *quick, "--columns", "bond", "--support", "bond=real"]) == 0
    assert run(["info", model]) == 0


def test_equity_returns_have_two_tails():
    try:
        data = datasets.equity_returns(tickers=("AAPL",), signed=True)
    except datasets.DataNotFound as reason:
        pytest.skip(f"daily prices are not there: {reason}")
    x = data.values[:1500]
    model = fit(pd.DataFrame(x, columns=["AAPL"]), n_phases=6)
    for tail, sizes in (("upper", x[:, 0]), ("lower", -x[:, 0])):
        for level in (0.9, 0.99):
            # exceedances of a fitted quantile are binomial to 5.5 standard deviations, and 20% for the fit
            expected = len(x) * (1 - level)
            beyond = (sizes > values(model.var(level, tail=tail))[0]).sum()
            assert abs(beyond - expected) < 5.5 * np.sqrt(expected) + 0.2 * expected
