"""Files that appear whole or not at all."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["PARTIAL", "Place", "whole_file"]

Place = str | os.PathLike[str]

# What the name of a file ends in while it is written. One that is there without its writer was left by a killed run
# and can be deleted.
PARTIAL = ".part"


@contextmanager
def whole_file(path: Place) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name, replacing an older one, when all of it is on disk.

    Until then it stands in the same folder as ``.NAME.XXXXXXXX.part``; an exception removes it. A device or a pipe,
    such as ``/dev/null``, is written to as it is. An `OSError` of the file itself names the path.

    Args:
        path: Where to. A link is followed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(f"{folder}/figures") as file:
    ...         _ = file.write(b"1 2 3")
    ...         before = os.path.exists(f"{folder}/figures")
    ...     before, os.listdir(folder)
    (False, ['figures'])
    """
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder; give the name of a file in it")
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "its folder does not exist; make it or give another place")
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        yield from _replacing(target)
    except OSError as error:
        own = (None, str(target))
        if error.errno is not None and (error.filename in own or str(error.filename).endswith(PARTIAL)):
            error.filename = os.fspath(path)
        raise


def _replacing(target: Path) -> Iterator[BinaryIO]:
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
