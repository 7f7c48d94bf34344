"""What the rows of a report leave open, counted and said: cells that are cut, missing or seen within bounds."""

import math
from typing import Any

import numpy as np

from phvae.report.product_limit import ProductLimit
from phvae.report.subject import Rows, Side, Subject
from phvae.report.wording import count, figure, percent
from phvae.risk.seen import cut_columns

__all__ = ["cells", "notes"]


def cells(subject: Subject) -> Rows:
    """How many cells of each column are values, cut, in an interval and missing; nothing where all are values."""
    rows: Rows = []
    for position, name in enumerate(subject.names):
        column = subject.rows.column(position).rounded
        low = np.full_like(column.lower, -np.inf) if column.entry is None else column.entry
        parts = {"values": column.exact, "cut": column.cut, "between": column.between, "missing": column.missing}
        counts = {kind: round(float(column.mass[part].sum())) for kind, part in parts.items()}
        bounded = round(float(column.mass[(low > -np.inf) | (_exits(column) < np.inf)].sum()))
        rows.append({"column": name, **counts, "bounded": bounded})
    plain = all(row[kind] == 0 for row in rows for kind in ("cut", "between", "missing", "bounded"))
    return [] if plain else rows


def notes(subject: Subject) -> list[str]:
    """What else to know of the figures of the data, a sentence each."""
    found = []
    if subject.rows.weights is not None:
        found.append("Rows count as often as their weights say, in every figure of the data.")
    for side, data in zip(subject.sides, subject.data, strict=True):
        if isinstance(data, ProductLimit):
            found += _of_curve(subject, side, data)
    names = [subject.names[j] for j in cut_columns(subject.model)]
    if names:
        found.append(
            f"The fit has seen values of {', '.join(names)} cut, or rows within bounds, and the model keeps the values "
            "that are known: no generalised Pareto law is held beside them."
        )
    return found


def _of_curve(subject: Subject, side: Side, data: ProductLimit) -> list[str]:
    """What the product-limit estimate of a side rests on, and what it leaves open."""
    column = subject.seen(side)
    if column.selected:
        return [
            f"{side.name}: rows are in the table or not by other columns, which hang together with this one, so that "
            "they say nothing of all rows: there are no figures of the data, and no back-test."
        ]
    if column.exit is not None:
        return [
            f"{side.name}: rows are seen only up to a bound, so that there are no figures of the data for all rows."
        ]
    found = [f"{side.name}: figures of the data are product-limit estimates (Kaplan and Meier)"]
    between = round(float(column.mass[column.rounded.between].sum()))
    if between:
        found.append(f"{count(between)} cells known only to an interval count at its middle")
    if not data.complete and len(data.x):
        found.append(
            f"the rows leave open what lies beyond {figure(data.reach)}, which {percent(float(data.after[-1]))} of the "
            "rows exceed, and with it the mean, CVaR and the mean excess"
        )
    if math.isfinite(data.begin) and len(data.x):
        found.append(
            f"they say nothing of rows below {figure(data.begin)}, and the share beyond it, {percent(data.share)}, is "
            "taken from the model"
        )
    return ["; ".join(found) + "."]


def _exits(column: Any) -> Any:
    return np.full_like(column.lower, np.inf) if column.exit is None else column.exit
