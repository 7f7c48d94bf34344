"""The command line: quick help, a demo that shows its tail against the truth, and mistakes in one line."""

import json
import os
import resource
import subprocess
import sys

import pytest
from installed_command import SCRIPT
from typer.testing import CliRunner

from phvae import __version__, demo
from phvae.cli import app
from phvae.datasets import CLAIMS, claims
from phvae.report.wording import figure

runner = CliRunner()


@pytest.fixture
def small_demo(monkeypatch):
    small = demo.run_demo(n_rows=300, n_held_out=100, epochs=0, n_phases=3, latent_dim=0)
    monkeypatch.setattr(demo, "run_demo", lambda **_: small)
    return small


def test_version_is_the_package_version():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"phvae {__version__}\n"


def test_help_needs_no_torch():
    code = (
        "import sys\n"
        "from phvae.cli import main\n"
        "sys.argv = ['phvae', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n    assert stop.code == 0\n"
        "heavy = {'torch', 'numpy', 'scipy', 'numba', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


def test_help_answers_at_once():
    """In 0.3 s: of the processor, for what else runs on the machine is no matter of the command."""

    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([SCRIPT, "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    seconds()  # may write byte code
    assert min(seconds() for _ in range(5)) < 0.3


def test_the_demo_holds_tails_against_their_truth_and_writes_a_report(small_demo, tmp_path):
    folder = tmp_path / "new" / "place"
    result = runner.invoke(app, ["demo", "--output", str(folder), "--rtol", "0.1"])
    assert result.exit_code == 0, result.output
    assert sorted(os.listdir(folder)) == ["claims.phvae", "report.html", "report.json"]
    numbers = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    margins = dict(zip(claims(1).names, CLAIMS.margins, strict=True))
    for row in numbers["risk"]:
        law = margins[row["column"]]
        assert row["truth"] == {"var": float(law.isf(1 - row["level"])), "cvar": law.cvar(row["level"])}
        for value in (row["truth"]["var"], row["var"]["value"], row["cvar"]["value"]):
            assert figure(value) in result.output
    assert numbers["columns"][2]["zero_share"] > 0.6
    assert "extrapolated" in result.output


def test_an_unwritable_folder_is_one_line_and_status_2(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = subprocess.run(
        [sys.executable, "-m", "phvae", "demo", "--output", str(tmp_path / "file" / "inside")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("phvae: ")
    assert "Traceback" not in done.stderr
