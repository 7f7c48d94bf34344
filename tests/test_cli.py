"""The command line: quick help, a demo that shows its tail against the truth, and mistakes in one line."""

import resource
import subprocess
import sys

import pytest
from installed_command import SCRIPT
from typer.testing import CliRunner

from phvae import __version__, demo, report
from phvae.cli import app

runner = CliRunner()


@pytest.fixture
def small_demo(monkeypatch):
    small = demo.run_demo(n_rows=400, n_phases=3, n_refits=4)
    monkeypatch.setattr(demo, "run_demo", lambda: small)
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


def test_the_demo_writes_one_page_that_loads_nothing_from_elsewhere(small_demo, tmp_path):
    result = runner.invoke(app, ["demo", "--output", str(tmp_path / "new" / "place")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "new" / "place" / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert "<link" not in page
    assert 'src="http' not in page
    assert "extrapolated" in page
    assert "[k€]" in result.output
    assert "extrapolated" in result.output


def test_rows_beyond_the_largest_observation_say_so_and_have_no_empirical_value(small_demo):
    laws = [refit.law for refit in small_demo.refits]
    for row in report.quantile_table(small_demo.fit.law, small_demo.x, small_demo.truth, laws):
        assert row.extrapolated == (row.fitted > small_demo.x.max())
        assert (row.empirical is None) == (row.level * len(small_demo.x) < 1)
        if row.empirical is not None:
            assert (small_demo.x > row.empirical).sum() == int(row.level * len(small_demo.x) + 1e-9)
    at = [0.5 * small_demo.x.max(), 1e4 * small_demo.x.max()]
    inside, far = report.tail_table(small_demo.fit.law, small_demo.x, small_demo.truth, laws, at)
    assert not inside.extrapolated
    assert inside.empirical is not None
    assert far.extrapolated
    assert far.empirical is None
    # Far below the smallest double: only the logarithm can say it.
    assert far.fitted < -400


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
