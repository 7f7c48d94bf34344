"""What a run found beside what the repository holds: ratios travel between machines, seconds do not."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["WORSE", "argument", "store", "worse"]

RESULTS = Path(__file__).parent / "results"
# A ratio this much worse than the committed one is more than the noise of a shared machine.
WORSE = 1.3


def argument(name: str) -> argparse.ArgumentParser:
    """A parser with the option that every benchmark has: where its results go."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--output", type=Path, default=Path("build/bench") / name, help="JSON file for the results")
    return parser


def store(found: Mapping[str, Any], output: Path) -> None:
    """Write results, and say which ratios are worse than those of the same name in the committed results.

    Args:
        found: Plain values; under ``"ratios"`` a number for every name, the smaller the better.
        output: File to write; the committed results are those of the same file name.
    """
    known = RESULTS / output.name
    before = json.loads(known.read_text()).get("ratios", {}) if known.exists() else {}
    for line in worse(found["ratios"], before):
        from rich.console import Console

        Console(highlight=False, soft_wrap=True).print(line, style="bold red", markup=False)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found, indent=1) + "\n")


def worse(ratios: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """One line for every ratio that has worsened by more than 30%.

    >>> worse({"epoch / peer": 0.3, "rows": 2.0}, {"epoch / peer": 0.2, "rows": 1.9})
    ['worse than committed: epoch / peer is 0.3, was 0.2']
    """
    return [
        f"worse than committed: {name} is {value:.3g}, was {before[name]:.3g}"
        for name, value in ratios.items()
        if name in before and value > WORSE * before[name]
    ]
