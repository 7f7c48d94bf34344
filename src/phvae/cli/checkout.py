"""`phvae bench` and `phvae reproduce`: the benchmarks and experiments, which come with the package."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import phvae
from phvae.cli.talk import Talk, command

__all__ = ["bench", "register", "reproduce"]

BENCHMARKS = ("likelihood", "training", "fitting", "generators", "risk")
Rest = Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="What it is to be told, after --.")]


def bench(
    talk: Talk,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHMARKS)}.")] = BENCHMARKS[0],
    arguments: Rest = None,
) -> None:
    """Measure speed and memory on this machine, beside the textbook methods."""
    if name.startswith("-"):
        name, arguments = BENCHMARKS[0], [name, *(arguments or [])]
    if name not in BENCHMARKS:
        raise ValueError(f"name = {name!r}; give {' or '.join(BENCHMARKS)}")
    _run(talk, f"benchmarks.{name}", arguments or [])


def reproduce(talk: Talk, arguments: Rest = None) -> None:
    """Run the experiments and leave their tables and figures in build/reproduce."""
    _run(talk, "experiments", arguments or [])


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(command(bench))
    app.command()(command(reproduce))


def _run(talk: Talk, module: str, arguments: list[str]) -> None:
    root = _place(module.partition(".")[0])
    # -P: a folder of the same name where the user stands is not taken for ours
    words = [sys.executable, "-P", "-m", module, *arguments]
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # with --json standard output is for the result alone, and with --quiet there is none
    output = sys.stderr if talk.as_json else subprocess.DEVNULL if talk.quiet else None
    done = subprocess.run(words, check=False, stdout=output, env=environment)
    talk.result({"command": words, "status": done.returncode})
    if done.returncode:
        raise typer.Exit(1 if done.returncode < 0 else done.returncode)


def _place(package: str) -> Path:
    """The folder that holds a package: the checkout, or the one a wheel brings along."""
    inside = Path(phvae.__file__).parent
    for place in (inside / "alongside", inside.parents[1]):
        if (place / package / "__init__.py").is_file():
            return place
    raise ValueError(f"{package} did not come with this copy of phvae; clone the repository, or install its wheel")
