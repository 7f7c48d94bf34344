"""One HTML file with everything in it: tables, pictures and style; nothing is loaded from elsewhere."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from phvae.files import Place, whole_file
from phvae.report import wording
from phvae.report.pictures import chi_picture, column_pictures, pit_picture, training_picture

__all__ = ["Report", "look_up"]

# How a number is written, by the name that its cell on the page carries.
KINDS: dict[str, Callable[[Any], str]] = {
    "figure": wording.figure,
    "percent": wording.percent,
    "count": wording.count,
    "chance": wording.chance,
    "short": wording.short,
}


@dataclass(frozen=True)
class Report:
    """A tail-risk report: its numbers as JSON values, and the page that shows them.

    numbers: Everything the page says, as in ``page.json``.
    """

    numbers: dict[str, Any]

    @cached_property
    def html(self) -> str:
        """The page as text."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        room = Environment(
            loader=PackageLoader("phvae.report", "template"), undefined=StrictUndefined, autoescape=True,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        room.filters.update(KINDS)
        return room.get_template("page.html").render(
            **self.numbers, pictures=_pictures(self.numbers), write=self._write
        )

    def write(self, path: Place) -> Path:
        """Write the page, and its numbers beside it as JSON; gives the place of the numbers.

        Args:
            path: Of the page, such as ``page.html``; the numbers are then in ``page.json``.
        """
        page = Path(path)
        beside = page.with_suffix(".json")
        if beside == page:
            raise ValueError(f"path = '{os.fspath(path)}' ends in .json, the name of the numbers; end it in .html")
        text = self.html
        with whole_file(beside) as file:
            file.write((json.dumps(self.numbers, allow_nan=False, indent=1, ensure_ascii=False) + "\n").encode())
        with whole_file(page) as file:
            file.write(text.encode())
        return beside

    def _write(self, pointer: str, kind: str) -> str:
        return KINDS[kind](look_up(self.numbers, pointer))


def look_up(numbers: Any, pointer: str) -> Any:
    """The number at a place, named by the way there.

    >>> look_up({"risk": [{"level": 0.9}]}, "risk/0/level")
    0.9
    """
    for step in pointer.split("/"):
        if numbers is None:
            return None
        numbers = numbers[int(step)] if isinstance(numbers, list) else numbers[step]
    return numbers


def _pictures(numbers: dict[str, Any]) -> dict[str, Any]:
    """All pictures of the page."""
    unit, dependence = numbers["unit"], numbers["dependence"]
    chi: dict[tuple[str, str], list[Any]] = {}
    for row in dependence["chi"] if dependence else []:
        chi.setdefault((row["column"], row["other"]), []).append(row)
    return {
        "columns": [column_pictures(curves, f"c{i}", unit) for i, curves in enumerate(numbers["curves"])],
        "chi": [(*pair, chi_picture(rows, f"chi{i}")) for i, (pair, rows) in enumerate(chi.items())],
        "pit": [pit_picture(histogram, f"pit{i}") for i, histogram in enumerate(numbers["backtest"]["pit"])],
        "training": training_picture(numbers["training"]) if numbers["training"]["epoch"] else None,
    }
