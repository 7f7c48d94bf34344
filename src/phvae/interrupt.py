"""Ctrl-C that never falls into the middle of a change."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

__all__ = ["Undivided", "undivided"]


class Undivided:
    """Context manager around changes that belong together; Ctrl-C in between is raised right after them.

    `broken` says that an exception of another kind left the changes unfinished.
    """

    def __init__(self) -> None:
        self.broken = False
        self._pressed = False

    def __enter__(self) -> None:
        self.broken = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broken = kind is not None
        if self._pressed and kind is None:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._pressed = True
        if not self.broken:
            raise KeyboardInterrupt


@contextmanager
def undivided() -> Iterator[Undivided]:
    """An `Undivided` that hears Ctrl-C as long as this lasts, unless the program has its own handler for it."""
    changes = Undivided()
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield changes
        return
    signal.signal(signal.SIGINT, changes._on_signal)
    try:
        yield changes
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
