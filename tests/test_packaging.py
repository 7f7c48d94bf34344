"""The wheel: pure, complete, typed, and a command that works in an environment of its own."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from phvae import PHVAE, __version__

ROOT = Path(__file__).parents[1]


def name_of(requirement):
    """The name of a requirement, as indexes compare it."""
    return re.sub("[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*words, "--wheel-dir", folder, ROOT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def command(wheel, tmp_path_factory):
    """The console script of an empty environment, which sees the libraries of this one and not its `phvae`."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    words = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(words, check=True, capture_output=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words):
        script = python.with_name("phvae")
        return subprocess.run(
            [script, *words], capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=120
        )

    where = subprocess.run(
        [python, "-c", "import phvae; print(phvae.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert Path(where.stdout.strip()) == site / "phvae" / "__init__.py"
    return run


def test_the_wheel_is_pure_and_holds_every_file_of_the_package(wheel):
    assert wheel.name == f"phvae-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = archive.read(f"phvae-{__version__}.dist-info/WHEEL").decode()
        metadata = archive.read(f"phvae-{__version__}.dist-info/METADATA").decode()
    assert "Root-Is-Purelib: true" in about
    source = ROOT / "src"
    kept = {str(p.relative_to(source)) for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert kept <= names
    assert {"phvae/py.typed", "phvae/alongside/benchmarks/likelihood.py"} <= names
    assert {name.partition("/")[0] for name in names} == {"phvae", f"phvae-{__version__}.dist-info"}
    assert "Classifier: Typing :: Typed" in metadata
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    needed = {name_of(line.partition(": ")[2]) for line in metadata.splitlines() if line.startswith("Requires-Dist: ")}
    assert {name_of(requirement) for requirement in project["dependencies"]} <= needed


def test_every_requirement_is_pinned():
    pinned = {name_of(line) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    with (ROOT / "pyproject.toml").open("rb") as file:
        content = tomllib.load(file)
    project = content["project"]
    wanted = [*project["dependencies"], *content["build-system"]["requires"]]
    for name, requirements in project["optional-dependencies"].items():
        # torch brings the triton that suits it
        wanted += [] if name == "gpu" else requirements
    assert {name_of(requirement) for requirement in wanted} - {"phvae"} <= pinned


def test_the_installed_command_draws_from_a_model_and_brings_its_benchmarks(command, tmp_path):
    assert command("--version").stdout == f"phvae {__version__}\n"
    x = np.random.default_rng(0).exponential(size=(60, 2)) + 1
    PHVAE(epochs=1, hidden=(4,), n_phases=2, random_state=0).fit(x).save(tmp_path / "model")
    drawn = command(
        "sample", str(tmp_path / "model"), "-n", "5", "--seed", "1", "-o", str(tmp_path / "rows.csv"), "--json"
    )
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert json.loads(drawn.stdout)["n_rows"] == 5
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 6
    for name in ("bench", "reproduce"):
        told = command(name, "--", "--help")
        assert (told.returncode, told.stderr) == (0, "")
        assert told.stdout.startswith("usage: ")


def test_the_citation_names_this_version():
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {__version__}" in lines
    assert "license: MIT" in lines
