"""What the commands do, from a table to a model to a table, and that they say the same as the estimator."""

import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import phvae.assembly
import phvae.blocks
import phvae.estimator
import phvae.training
from phvae import PHVAE, defaults, settings
from phvae.cli import app, run
from phvae.files import PARTIAL
from phvae.tables import to_matrix
from phvae.tables.read import read_table

QUICK = ["--epochs", "2", "--hidden", "8,8", "--n-phases", "3", "--seed", "4"]


def table(path, n=300):
    rng = np.random.default_rng(0)
    common = rng.gamma(1.0, size=n)
    lines = [
        f"{1 + b},{c},2024-01-01,k{i % 3}" for i, (b, c) in enumerate(rng.exponential(size=(n, 2)) / common[:, None])
    ]
    path.write_text("\n".join(["building,contents,day,kind", *lines, ""]))
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    table(folder / "claims.csv")
    assert run(["fit", str(folder / "claims.csv"), "-o", str(folder / "model"), *QUICK]) == 0
    return folder


def said(capsys, *words):
    """What a command says in this process: its status, standard output and standard error."""
    capsys.readouterr()
    status = run([str(word) for word in words])
    return status, *capsys.readouterr()


def test_a_fit_is_that_of_the_estimator(place):
    model = PHVAE.load(place / "model")
    frame = read_table(place / "claims.csv").table
    same = PHVAE(epochs=2, hidden=(8, 8), n_phases=3, random_state=4).fit(frame)
    np.testing.assert_array_equal(np.asarray(model.sample(50, 0)), np.asarray(same.sample(50, 0)))
    assert model.get_params() == {**same.get_params(), "verbose": True}
    assert not (place / "model.checkpoint").exists()


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".arrow", "-"])
def test_streamed_rows_are_those_of_the_estimator(place, tmp_path, ending, capfdbinary):
    output = "-" if ending == "-" else tmp_path / f"rows{ending}"
    assert run(["sample", str(place / "model"), "-n", "1e4", "--seed", "5", "-o", str(output)]) == 0
    if ending == "-":
        output = tmp_path / "stdout.csv"
        output.write_bytes(capfdbinary.readouterr().out)
    expected = to_matrix(PHVAE.load(place / "model").sample(10_000, random_state=5))
    found = to_matrix(read_table(output).table)
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.names == expected.names


def test_blocks_are_the_sample_in_pieces(place):
    model = PHVAE.load(place / "model")
    blocks = list(model.sample_blocks(10_000, random_state=1))
    assert [len(block) for block in blocks] == [4096, 4096, 1808]
    whole = np.concatenate([np.asarray(block) for block in blocks])
    np.testing.assert_array_equal(whole, np.asarray(model.sample(10_000, random_state=1)))
    with pytest.raises(ValueError, match="n_samples = 0"):
        model.sample_blocks(0)


def test_standard_input_gives_the_same_model(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((place / "claims.csv").read_bytes())))
    status, out, _ = said(capsys, "fit", "-", "-o", tmp_path / "model", *QUICK, "--json")
    assert status == 0
    values = json.loads(out)
    assert (values["n_rows"], values["columns"]) == (300, ["building", "contents"])
    samples = [np.asarray(PHVAE.load(path).sample(50, 0)) for path in (place / "model", tmp_path / "model")]
    np.testing.assert_array_equal(*samples)


def test_every_command_speaks_json_and_can_be_quiet(place, tmp_path, capsys):
    model, claims = place / "model", place / "claims.csv"
    commands = {
        "fit": ("fit", claims, "-o", tmp_path / "model", *QUICK),
        "sample": ("sample", model, "-n", 10, "-o", tmp_path / "out.csv"),
        "evaluate": ("evaluate", model, claims),
        "report": ("report", model, "--data", claims, "-o", tmp_path / "page.html", "--rtol", "0.1", "--level", "0.9"),
        "risk": ("risk", model, "--rtol", "0.1", "--level", "0.9"),
        "info": ("info", model),
        "verify": ("verify", model),
    }
    for name, words in commands.items():
        status, out, err = said(capsys, *words, "--json", "--quiet")
        assert (status, err) == (0, ""), name
        assert out.count("\n") == 1
        assert json.loads(out)
        status, out, err = said(capsys, *words)
        assert status == 0
        assert "model" in out or "rows" in out or "cvar" in out, name
    offered = {command.name or command.callback.__name__ for command in app.registered_commands}
    for command in app.registered_commands:
        assert {"quiet", "as_json"} <= set(inspect.signature(command.callback).parameters)
    assert set(commands) < offered


def test_evaluation_is_the_score_of_the_estimator(place, capsys):
    status, out, _ = said(
        capsys, "evaluate", place / "model", place / "claims.csv", "--json", "--where", "building < 50"
    )
    assert status == 0
    values = json.loads(out)
    rows = read_table(place / "claims.csv", where="building < 50").table
    scores = PHVAE.load(place / "model").score_samples(rows)
    assert values["n_rows"] == len(scores)
    assert values["mean_log_likelihood"] == pytest.approx(scores.mean(), rel=1e-12)
    assert values["standard_error"] == pytest.approx(scores.std(ddof=1) / len(scores) ** 0.5, rel=1e-12)


def test_questions_about_risk_have_the_answers_of_the_estimator(place, capsys):
    words = ["--columns", "contents", "--level", "0.9", "--exceeds", "3,9", "--periods", "50", "--rtol", "0.1"]
    status, out, _ = said(capsys, "risk", place / "model", *words, "--events-per-period", "2", "--json")
    assert status == 0
    answers = json.loads(out)["answers"]
    assert [row["measure"] for row in answers] == ["var", "cvar", "sf", "sf", "return_level"]
    losses = PHVAE.load(place / "model").losses("contents", rtol=0.1)
    frames = [losses.var(0.9), losses.cvar(0.9), losses.sf([3, 9]), losses.return_level(50, 2)]
    expected = [value for frame in frames for value in to_matrix(frame.select(["value"])).values[:, 0]]
    assert [row["value"] for row in answers] == expected
    assert [row["at"] for row in answers] == [0.9, 0.9, 3, 9, 50]


def answers(capsys, *words):
    """Answers of `phvae risk`."""
    status, out, err = said(capsys, "risk", *words, "--rtol", "0.1", "--json")
    assert status == 0, err
    return json.loads(out)["answers"]


def values_of(*frames):
    return [value for frame in frames for value in to_matrix(frame.select(["value"])).values[:, 0]]


def test_layers_and_sums_have_the_answers_of_the_estimator(place, capsys):
    model = PHVAE.load(place / "model")
    found = answers(capsys, place / "model", "-c", "contents", "--layer", "4xs2", "--layer", "inf xs 9")
    assert [row["measure"] for row in found] == [
        "expected_loss",
        "standard_deviation",
        "frequency",
        "return_period",
    ] * 2
    assert [row["at"] for row in found] == ["4xs2"] * 4 + ["infxs9"] * 4
    losses = model.losses("contents", rtol=0.1)
    assert [row["value"] for row in found] == values_of(losses.layer(4, 2), losses.layer(np.inf, 9))
    found = answers(capsys, place / "model", "--sum", "--level", "0.9", "--layer", "4xs2", "--events-per-period", "3")
    total = model.sum(rtol=0.1)
    assert {row["column"] for row in found} == {"building + contents"}
    assert [row["value"] for row in found] == values_of(total.var(0.9), total.cvar(0.9), total.layer(4, 2, 3))


def test_figures_are_not_cut_short_on_a_narrow_screen(place, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    status, out, _ = said(capsys, "risk", place / "model", "-c", "contents", "--layer", "4xs2", "--rtol", "0.1")
    assert status == 0
    assert "…" not in out
    for name in ("standard_deviation", "interval of the integration", "4xs2"):
        assert name in out


def test_totals_of_a_period_have_the_answers_of_the_estimator(place, capsys):
    asked = ["--total", "-c", "contents", "--events-per-period", "5", "--dispersion", "1.5"]
    asked += ["--level", "0.9", "--exceeds", "20", "--periods", "10", "--layer", "9xs9"]
    found = answers(capsys, place / "model", *asked)
    total = PHVAE.load(place / "model").aggregate("contents", frequency=5, dispersion=1.5, rtol=0.1)
    frames = total.var(0.9), total.cvar(0.9), total.aep(20), total.oep(20), total.aep_curve(10), total.oep_curve(10)
    assert [row["value"] for row in found] == values_of(*frames, total.layer(9, 9))
    assert [row["measure"] for row in found[:6]] == ["var", "cvar", "aep", "oep", "aep_curve", "oep_curve"]
    # the grid reaches as far as is asked
    assert answers(capsys, place / "model", *asked[:5], "--periods", "1e5")[0]["value"] > found[0]["value"]


def test_rows_of_an_event_are_those_of_the_estimator(place, tmp_path, capsys):
    event = "contents > 3 and 2 < building <= 9"
    words = ["sample", place / "model", "-n", 50, "--seed", 5, "--given", event, "-o", tmp_path / "rows.csv"]
    status, out, _ = said(capsys, *words)
    assert status == 0
    asked = {"contents": (">", 3.0), "building": ("between", 2.0, 9.0)}
    drawn = PHVAE.load(place / "model").conditional_sample(50, asked, 5)
    np.testing.assert_array_equal(
        to_matrix(read_table(tmp_path / "rows.csv").table).values, to_matrix(drawn.rows).values
    )
    assert f"P({event}) = {drawn.probability:.4g}, standard error" in out
    _, out, _ = said(capsys, *words, "--json")
    assert json.loads(out)["probability"] == drawn.probability


@pytest.mark.parametrize("event", [None, "building > 20"])
def test_rows_of_spliced_tails_are_those_of_the_estimator(place, tmp_path, event, capsys):
    rows, given = tmp_path / "rows.csv", [] if event is None else ["--given", event]
    words = ["sample", place / "model", "-n", 200, "--seed", 5, "--splice", "gpd", *given, "-o", rows]
    assert said(capsys, *words)[0] == 0
    asked = None if event is None else {"building": (">", 20.0)}
    drawn = PHVAE.load(place / "model").sample(200, random_state=5, given=asked, splice="gpd")
    np.testing.assert_array_equal(to_matrix(read_table(rows).table).values, to_matrix(drawn).values)


def test_a_random_sample_of_rows_stands_for_all(place, capsys):
    words = ["evaluate", place / "model", place / "claims.csv", "--rows", "100", "--seed", "1"]
    status, out, _ = said(capsys, *words, "--json")
    assert status == 0
    values = json.loads(out)
    scores = PHVAE.load(place / "model").score_samples(read_table(place / "claims.csv").table)
    own = scores[np.sort(np.random.default_rng(1).choice(300, 100, replace=False))]
    assert values["mean_log_likelihood"] == pytest.approx(own.mean(), rel=1e-12)
    assert values["standard_error"] == pytest.approx(own.std(ddof=1) / 10, rel=1e-12)
    assert (values["n_rows"], values["drawn_from"], values["seed"]) == (100, 300, 1)
    assert "100 rows of 300, drawn with seed 1, of" in said(capsys, *words)[1]
    # as many rows as there are: nothing is drawn
    assert "drawn" not in said(capsys, *words[:3], "--rows", "1e6")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["risk", "--layer", "ten"], "layer = 'ten'; give limit and attachment, such as 10xs20"),
        (["risk", "--layer", "-1xs2"], "limit = -1"),
        (["risk", "--total"], "--total: it is that of a period; say of how many events"),
        (["risk", "--total", "--events-per-period", "-1"], "--events-per-period -1; give a positive number"),
        (["risk", "--dispersion", "2"], "--dispersion 2: it is about the number of events in a total; give --total"),
        (
            ["risk", "--total", "--events-per-period", "9", "--tail", "lower"],
            "--tail 'lower': a total is of the columns as they are",
        ),
        (["sample", "-n", "5", "--given", "building > -1e400"], "given"),
        (["sample", "-n", "5", "--given", "building < 0"], "is impossible: the column is never below"),
        (["sample", "-n", "5", "--given", "building >= 5"], "has >= of column 'building'; give building > a"),
        (["sample", "-n", "5", "--given", "building > 5 or contents > 1"], "where it needs 'and', 'or' or the end"),
        (["sample", "-n", "5", "--given", "rooms > 5"], "there is no column 'rooms'; there are building, contents"),
        (["sample", "-n", "5", "--given", "building > contents"], "compare a column with a number"),
        (["sample", "-n", "5", "--given", "5 < building > 6"], "says > of column 'building' twice"),
        (["sample", "-n", "5", "--given", "building = 5"], "equality is ==; write it like loss > 10 and 1 < days <= 7"),
        (
            ["sample", "-n", "5", "--given", "building > 5", "--seed", "1", "--shard", "1/2"],
            "cannot be used with --shard",
        ),
        (["evaluate", "CLAIMS", "--rows", "1"], "--rows 1; give at least 2"),
        (["evaluate", "CLAIMS", "--rows", "half"], "--rows 'half'; give a whole number"),
        (["evaluate", "CLAIMS", "--seed", "1"], "all rows are scored, and none drawn; give --rows too"),
    ],
)
def test_questions_that_have_no_answer_are_one_line(place, words, message, capsys):
    command, *rest = words
    rest = [place / "claims.csv" if word == "CLAIMS" else word for word in rest]
    status, out, err = said(capsys, command, place / "model", *rest)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_verify_and_info_say_what_the_file_holds(place, capsys):
    status, out, _ = said(capsys, "info", place / "model", "--json")
    values = json.loads(out)
    assert status == 0
    assert [column["name"] for column in values["columns"]] == ["building", "contents"]
    assert values["settings"]["n_phases"] == 3
    status, out, _ = said(capsys, "verify", place / "model", "--json")
    assert json.loads(out)["largest_difference"] <= 1e-9


def words_of(text):
    return " ".join(re.sub("[`'\"]", "", text).split())


def test_defaults_and_words_are_the_same_everywhere():
    """The table of settings, the estimator's signature and documentation, the rules and the options of the command."""
    parameters = dict(inspect.signature(PHVAE).parameters)
    del parameters["verbose"]
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        setting.name: setting.default for setting in defaults.SETTINGS
    }
    apart = ("origin", "support", "counts", "device", "random_state")
    assert [*settings._RULES] == [n for n in parameters if n not in apart]
    documented = words_of(PHVAE.__doc__)
    for setting in defaults.SETTINGS:
        assert f"{setting.name}: {words_of(setting.help)}" in documented
    (fit,) = [command for command in app.registered_commands if command.callback.__name__ == "fit"]
    offered = inspect.signature(fit.callback).parameters
    # the command's own option leaves out rows with missing cells as well
    assert offered["missing"].default == parameters.pop("missing").default
    assert [name for name in offered if name in parameters] == [
        setting.name for setting in defaults.SETTINGS if setting.name != "missing"
    ]
    for name in parameters:
        assert offered[name].default is None, "what is not given is left to the estimator"


def test_paper_settings_are_settings():
    assert set(defaults.PAPER) <= {setting.name for setting in defaults.SETTINGS}


def test_settings_are_read_from_text():
    from phvae.cli.fit import _as_setting

    assert _as_setting("n_phases", "7") == 7
    assert _as_setting("n_phases", "None") is None
    assert _as_setting("hidden", "64,32") == (64, 32)
    assert _as_setting("origin", "a=1,b=auto") == {"a": 1, "b": "auto"}
    assert _as_setting("origin", "1,2.5") == [1, 2.5]
    assert _as_setting("origin", "0") == 0
    assert _as_setting("random_state", "1e3") == 1000


def press_ctrl_c(monkeypatch, module, name, turn):
    """Send this process the signal of Ctrl-C after a function of a module has been called so many times."""
    function, count = getattr(module, name), 0

    def pressed(*arguments, **options):
        nonlocal count
        result = function(*arguments, **options)
        count += 1
        if count == turn:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(module, name, pressed)


def test_ctrl_c_leaves_a_checkpoint_and_the_command_to_go_on_with(place, tmp_path, capsys, monkeypatch):
    words = ["fit", place / "claims.csv", "-o", tmp_path / "model", *QUICK[:-2], "--epochs", "4"]
    with monkeypatch.context() as patch:
        press_ctrl_c(patch, phvae.training, "hold_back", 20)
        status, out, err = said(capsys, *words)
    assert (status, out) == (130, "")
    found = re.fullmatch(r"phvae: stopped in epoch 2; go on with: phvae (.*)", err.splitlines()[-1])
    assert found
    kept = tmp_path / "model.checkpoint"
    assert found[1].endswith(f"--epochs 4 --checkpoint {kept} --resume {kept}")
    assert os.listdir(tmp_path) == ["model.checkpoint"]
    status, out, _ = said(capsys, *found[1].split(), "--json")
    assert status == 0
    seed = json.loads(out)["settings"]["seed"]
    assert said(capsys, *words[:3], tmp_path / "whole", *words[4:], "--seed", seed)[0] == 0
    samples = [np.asarray(PHVAE.load(tmp_path / name).sample(100, 0)) for name in ("model", "whole")]
    np.testing.assert_array_equal(*samples)


def test_ctrl_c_before_training_says_that_nothing_was_written(place, tmp_path, capsys, monkeypatch):
    press_ctrl_c(monkeypatch, phvae.assembly, "fit_marginals", 1)
    status, out, err = said(capsys, "fit", place / "claims.csv", "-o", tmp_path / "model", *QUICK)
    assert (status, out) == (130, "")
    assert err.splitlines()[-1] == "phvae: interrupted before training began; nothing was written"
    assert os.listdir(tmp_path) == []


def test_a_closed_pipe_ends_quietly(place):
    command = f"{sys.executable} -m phvae sample {place / 'model'} -n 1e6 | head -n 2"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("building,contents\n")
    assert done.stderr == ""


def test_a_killed_sample_leaves_nothing_under_its_name(place, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "phvae", "sample", place / "model", "-n", "1e9", "-o", tmp_path / "out.parquet"]
    )
    try:
        while not any(entry.stat().st_size > 10**5 for entry in tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert all(entry.name.endswith(PARTIAL) for entry in tmp_path.iterdir())


def test_an_interrupted_sample_leaves_nothing_at_all(place, tmp_path, capsys, monkeypatch):
    press_ctrl_c(monkeypatch, phvae.blocks, "draw_block", 40)
    status, out, err = said(capsys, "sample", place / "model", "-n", "1e7", "-o", tmp_path / "out.csv")
    assert (status, out, err) == (130, "", "phvae: interrupted; nothing was written\n")
    assert os.listdir(tmp_path) == []


def test_bench_and_reproduce_run_what_came_with_the_package(capsys, monkeypatch, tmp_path):
    from phvae.cli import checkout

    started = []
    done = type("", (), {"returncode": 0})
    monkeypatch.setattr(checkout.subprocess, "run", lambda words, **_: started.append(words) or done)
    assert said(capsys, "bench", "training", "--", "--output", "x")[0] == 0
    assert said(capsys, "reproduce", "--", "--quick")[0] == 0
    assert [words[3:] for words in started] == [["benchmarks.training", "--output", "x"], ["experiments", "--quick"]]
    done.returncode = -9
    assert said(capsys, "bench", "--json")[0] == 1
    assert said(capsys, "bench", "speed")[0] == 2
    monkeypatch.setattr(checkout.phvae, "__file__", str(tmp_path / "lib" / "phvae" / "__init__.py"))
    for name in ("bench", "reproduce"):
        status, out, err = said(capsys, name)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "did not come with this copy" in err


def test_shards_of_a_sample_follow_each_other(place, tmp_path, capsys):
    command = ["sample", str(place / "model"), "-n", "13000", "--seed", "5", "--quiet", "-o"]
    assert run([*command, str(tmp_path / "whole.csv")]) == 0
    for i in (1, 2, 3):
        assert run([*command, str(tmp_path / f"{i}.csv"), "--shard", f"{i}/3"]) == 0
    parts = [(tmp_path / f"{i}.csv").read_text().splitlines() for i in (1, 2, 3)]
    rows = [row for part in parts for row in part[1:]]
    assert [parts[0][0], *rows] == (tmp_path / "whole.csv").read_text().splitlines()
    assert run([*command, str(tmp_path / "a.csv"), "--shard", "half"]) == 2
    assert "--shard 'half'; give i/n with i from 1 to n, such as 2/8" in capsys.readouterr().err
    assert run(["sample", str(place / "model"), "-n", "13000", "--shard", "1/3"]) == 2
    assert "parts of one sample have one seed; give --seed too" in capsys.readouterr().err
