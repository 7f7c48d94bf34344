"""How commands speak: results on standard output, everything else on standard error, a mistake in one line."""

import errno
import inspect
import json
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Talk", "command", "say"]

# What to do about a file that the system does not give.
REMEDIES = {
    errno.ENOENT: "check the name",
    errno.EACCES: "ask for permission, or choose another place",
    errno.EPERM: "ask for permission, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "make room, or choose another place",
    errno.EFBIG: "make room for larger files, or choose another place",
    errno.EDQUOT: "make room, or choose another place",
    errno.EISDIR: "give the name of a file in it",
    errno.ENOTDIR: "a part of the path is a file; choose another place",
    errno.ENAMETOOLONG: "give a shorter name",
}
INTERRUPTED = 130
PIPE_CLOSED = 141  # what a shell reports of a program that writes to a closed pipe


def say(text: str) -> None:
    """One line on standard error, where that can still be heard."""
    try:
        sys.stderr.write(f"phvae: {' '.join(text.split())}\n")
        sys.stderr.flush()
    except OSError:
        pass


class Talk:
    """The voice of one command.

    Args:
        quiet: Say nothing but results asked for and mistakes.
        as_json: Give the result as one JSON object.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json

    @property
    def animated(self) -> bool:
        """Whether bars are welcome."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Something to know that is no mistake."""
        if not self.quiet:
            say(f"note: {text}")

    def result(self, values: Mapping[str, Any], show: "Callable[[Console], None] | None" = None) -> None:
        """What the command found.

        Args:
            values: The result for programs.
            show: Prints it for people; None where it goes without saying.
        """
        if self.as_json:
            typer.echo(json.dumps(_plain(values), allow_nan=False))
        elif show is not None:
            from rich.console import Console

            show(Console(highlight=False, soft_wrap=True))

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show that something is going on."""
        if not self.animated:
            yield
            return
        from rich.console import Console

        with Console(stderr=True).status(text):
            yield

    @contextmanager
    def counting(self, text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A function that shows how many rows are done, once a second has passed."""
        if not self.animated:
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn(text + " {task.completed:,.0f} rows"),
            *((BarColumn(), TimeRemainingColumn()) if total else ()),
        )
        bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
        task, due, shown = bar.add_task("", total=total), time.monotonic() + 1, False

        def update(done: int) -> None:
            nonlocal due, shown
            if time.monotonic() >= due:
                if not shown:
                    bar.start()
                    shown = True
                bar.update(task, completed=done, refresh=True)
                due = time.monotonic() + 0.2

        try:
            yield update
        finally:
            if shown:
                bar.stop()


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command as people meet it: with ``--quiet`` and ``--json``, exit status 2 and one line for a mistake.

    Args:
        function: The command; its first argument is a `Talk`.
    """

    @wraps(function)
    def spoken(*, quiet: bool, as_json: bool, **arguments: Any) -> None:
        talk = Talk(quiet=quiet, as_json=as_json)
        with _one_line_for_mistakes(set(arguments)), _warnings_as_notes(talk):
            function(talk, **arguments)
            sys.stdout.flush()

    _, *parameters = inspect.signature(function).parameters.values()
    parameters += inspect.signature(_shared).parameters.values()
    spoken.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spoken.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spoken


def _shared(
    *,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No bars and no notes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Options of every command."""


@contextmanager
def _one_line_for_mistakes(names: set[str]) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as interrupt:
        say("; ".join(getattr(interrupt, "__notes__", [])) or "interrupted; nothing was written")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # who reads has had enough; what is still in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(PIPE_CLOSED) from None
    except OSError as error:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        what = error.strerror or str(error) or type(error).__name__
        remedy = "" if ";" in what or error.errno not in REMEDIES else f"; {REMEDIES[error.errno]}"
        say(f"{where}{what}{remedy}")
        raise typer.Exit(2) from None
    except MemoryError:
        say("there is not enough memory; give fewer rows or columns")
        raise typer.Exit(2) from None
    except ValueError as error:
        say(_with_options(str(error), names))
        raise typer.Exit(2) from None


@contextmanager
def _warnings_as_notes(talk: Talk) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: talk.note(str(message))
        yield


def _with_options(message: str, names: set[str]) -> str:
    """A sentence about an argument as one about the option that set it: ``batch_size = 0`` is ``--batch-size 0``."""
    found = re.match(r"(\w+)( = |: )", message)
    if found and found[1] in names:
        return f"--{found[1].replace('_', '-')}{' ' if found[2] == ' = ' else ': '}{message[found.end() :]}"
    return message


def _plain(value: Any) -> Any:
    """A value as JSON has it; what is not finite becomes text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)
