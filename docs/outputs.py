"""What the blocks of a page print, written below them: ``python docs/outputs.py docs/tour.md``.

A page is run from top to bottom in an empty folder, and a block of text that follows a Python block is replaced by what
the block prints now. Run it again when numbers have changed; the last digits depend on the processor.
"""

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

WIDTH = 96
BLOCK = re.compile(r"```(python|sh)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


def rendered(text: str) -> str:
    """The page with the outputs of its Python blocks."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return BLOCK.sub(lambda match: _with_output(match, names), text)


def _with_output(match: re.Match[str], names: dict[str, Any]) -> str:
    language, code, _ = match.groups()
    if language == "sh":
        commands = f"PATH={Path(sys.executable).parent}:$PATH; {code}"
        subprocess.run(["/bin/sh", "-ec", commands], check=True, stdout=subprocess.DEVNULL)
        return match[0]
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "page", "exec"), names)
    lines = [part for line in printed.getvalue().splitlines() for part in _folded(line)]
    if not lines:
        # a text below a block that prints nothing is not its output
        return match[0]
    return f"```python\n{code}```\n\n```text\n{os.linesep.join(lines)}\n```\n"


def _folded(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, replace_whitespace=False) or [""]


def main() -> None:
    """Run the pages and write them again."""
    import pandas as pd

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    warnings.simplefilter("error")
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # pages import the experiments
    pd.set_option("display.width", WIDTH, "display.max_columns", 20)
    for page in [path.resolve() for path in parser.parse_args().pages]:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                written = rendered(text)
            finally:
                os.chdir(page.parent)
        page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
