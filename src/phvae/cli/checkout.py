"""`phvae bench` and `phvae reproduce`: the benchmarks and experiments of a source checkout."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import phvae
from phvae.cli.talk import Talk, command

__all__ = ["bench", "register", "reproduce"]

BENCHMARKS = ("likelihood", "training", "fitting")
Rest = Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="What it is to be told, after --.")]


def bench(
    talk: Talk,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHMARKS)}.")] = BENCHMARKS[0],
    arguments: Rest = None,
) -> None:
    """Measure speed and memory beside the textbook methods (in a source checkout)."""
    if name not in BENCHMARKS:
        raise ValueError(f"name = {name!r}; give {' or '.join(BENCHMARKS)}")
    _run(talk, f"benchmarks.{name}", arguments or [])


def reproduce(talk: Talk, arguments: Rest = None) -> None:
    """Run the experiments and leave their tables and figures in build/reproduce (in a source checkout)."""
    _run(talk, "experiments", arguments or [])


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(command(bench))
    app.command()(command(reproduce))


def _run(talk: Talk, module: str, arguments: list[str]) -> None:
    root = Path(phvae.__file__).parents[2]
    package = root / module.partition(".")[0]
    if not ((package / "__init__.py").is_file() and (root / "pyproject.toml").is_file()):
        raise ValueError(
            f"{package.name} are part of the source code, and this phvae is installed without it; "
            "clone the repository and run the command in its environment"
        )
    words = [sys.executable, "-m", module, *arguments]
    # with --json standard output is for the result alone
    done = subprocess.run(words, cwd=root, check=False, stdout=sys.stderr if talk.as_json else None)
    talk.result({"command": words, "status": done.returncode})
    if done.returncode:
        raise typer.Exit(1 if done.returncode < 0 else done.returncode)
