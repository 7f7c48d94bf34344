"""The installed command, many times over at the price of one start.

A process imports what the command imports and then forks for every run; the child executes the installed script as the
shell would, with its own folder, standard streams, limits and user.
"""

import ctypes
import json
import os
import resource
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(sys.executable).with_name("phvae")
# what lets root pass by the permissions of files, as bits, and how the system wants to hear of it
ROOT_PASSES = 1 << 1 | 1 << 2
CAPABILITY_VERSION = 0x20080522
# Standard input, output and error of a run, files of its folder.
STREAMS = (".in", ".out", ".err")


class Said(NamedTuple):
    """Exit status, standard output and standard error."""

    status: int
    out: str
    err: str


class InstalledCommand:
    """Context manager; call it with the words after `phvae`."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __enter__(self):
        for name in STREAMS:
            (self.folder / name).touch()  # there from the first run on: tests look at what a run leaves behind
        words = [sys.executable, __file__, str(SCRIPT)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def __call__(self, *words, stdin=None, as_anybody=False, largest_file=None):
        """Run the command in the folder.

        Args:
            words: Its arguments.
            stdin: Bytes on standard input.
            as_anybody: Heed the permissions of files even as root.
            largest_file: Bytes after which a write fails as on a full disk.
        """
        for name, content in zip(STREAMS, (stdin or b"", b"", b""), strict=True):
            (self.folder / name).write_bytes(content)
        task = {"words": [str(word) for word in words], "folder": str(self.folder)}
        task |= {"as_anybody": as_anybody, "largest_file": largest_file}
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return Said(status, *((self.folder / name).read_text(errors="replace") for name in STREAMS[1:]))


def _serve():
    script = sys.argv[1]
    # what a fit imports, now and at its first error: a user without rights may not read the interpreter's own files
    import fractions  # noqa: F401

    import phvae.cli.fit
    import phvae.estimator
    import phvae.tables.read  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(script, json.loads(line))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def _heed_permissions():
    """Root remains the owner of its files, the interpreter's among them, and opens no others that are closed to it."""
    system = ctypes.CDLL(None, use_errno=True)
    header, rights = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    assert system.capget(header, rights) == 0
    rights[0] &= ~ROOT_PASSES
    assert system.capset(header, rights) == 0


def _run(script, task):
    os.chdir(task["folder"])
    for number, name in enumerate(STREAMS):
        os.dup2(os.open(name, os.O_WRONLY if number else os.O_RDONLY), number)
    sys.stdin = open(0)  # noqa: SIM115 - the parent's has read ahead
    if task["as_anybody"] and os.getuid() == 0:
        _heed_permissions()
    if task["largest_file"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (task["largest_file"],) * 2)
    sys.argv = [script, *task["words"]]
    status = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        status = stop.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve()
