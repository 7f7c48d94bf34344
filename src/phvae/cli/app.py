"""The application: what all commands share, and how it is run."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from phvae import __version__
from phvae.cli.talk import say

__all__ = ["app", "main", "run"]

app = typer.Typer(
    help="Phase-type models of heavy-tailed data, with exact tails.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"phvae {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Phase-type models of heavy-tailed data, with exact tails."""


def run(arguments: Sequence[str]) -> int:
    """Run a command and give its exit status: 0, 2 for a mistake (one line on stderr), 130 after Ctrl-C.

    >>> run(["--version"])
    phvae 0.1.0
    0
    """
    command = typer.main.get_command(app)
    # the parent of every mistake in the arguments; its module has another name in other versions of typer
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        status = command.main(list(arguments), prog_name="phvae", standalone_mode=False, obj=list(arguments))
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            return 2  # help was printed
        say(f"{_one_line(error)}; see phvae {_command(error)}--help")
        return 2
    except typer.Abort:
        return 130
    return int(status or 0)


def main() -> None:
    """Run the command line."""
    # read when torch is loaded: on a busy machine threads that wait in a loop take three times the processor time
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(run(sys.argv[1:]))


def _one_line(error: Exception) -> str:
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    text = " ".join(str(message).split()).rstrip(".")
    return text[:1].lower() + text[1:]


def _command(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    name = context.info_name if context is not None else None
    return f"{name} " if name and name != "phvae" else ""
