"""The tail-risk report: one printable page about a fitted model beside data, with all its numbers as JSON.

>>> from phvae import PHVAE
>>> import numpy as np
>>> x = np.random.default_rng(0).pareto(2.4, size=(300, 1))
>>> report = tail_report(PHVAE(n_phases=3, random_state=0).fit(x), x, levels=[0.9, 0.99])
>>> [row["level"] for row in report.numbers["risk"]], report.html[:15]
([0.9, 0.99], '<!doctype html>')
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from phvae import defaults
from phvae.report.numbers import report_numbers
from phvae.report.page import Report
from phvae.report.subject import Subject
from phvae.risk import questions
from phvae.risk.seen import SeenRows
from phvae.risk.sources import Splice

__all__ = ["Report", "tail_report"]

# What can be known of the cells of a table beside its values.
BESIDE = ("lower", "upper", "censored", "entry", "exit")


def tail_report(
    model: Any,
    X: Any,
    *,
    sample_weight: Any = None,
    lower: Any = None,
    upper: Any = None,
    censored: Any = None,
    entry: Any = None,
    exit: Any = None,
    held_out: Any = None,
    tail: Any = "both",
    levels: Sequence[float] = defaults.REPORT_LEVELS,
    periods: Sequence[float] = defaults.REPORT_PERIODS,
    events_per_period: float | None = None,
    layers: Sequence[tuple[float, float]] = (),
    truth: Mapping[Any, Any] | None = None,
    splice: Splice = None,
    rtol: float = defaults.REPORT_RTOL,
    unit: str = "",
    title: str | None = None,
    model_name: str | None = None,
    data_name: str | None = None,
    held_out_name: str | None = None,
) -> Report:
    """A tail-risk report of a fitted model.

    Args:
        model: Fitted `phvae.PHVAE`.
        X: The table it was fitted to, or other rows of the same columns, that the model is drawn beside.
        sample_weight: How many rows each row of ``X`` stands for, as in `phvae.PHVAE.fit`, like all up to ``exit``.
        lower: Lower ends of cells that are intervals.
        upper: Upper ends.
        censored: Which values are only known to be exceeded.
        entry: Value from which on a cell is seen.
        exit: Value up to which a cell is seen.
        held_out: Rows the fit has not seen, for the back-test; None counts exceedances in ``X``. A table, or a dict of
            the table ``X`` and of what is known beside it, such as ``{"X": fresh, "censored": {"loss": is_open}}``.
        tail: ``"both"``, ``"upper"`` or ``"lower"`` tail of signed columns, or a dict from column to one of them; the
            lower tail is that of minus the column, and its rows are named so. Other columns have the upper one.
        levels: Of VaR and CVaR.
        periods: Return periods; in rows, unless ``events_per_period`` is given.
        events_per_period: Rows per period on average, such as claims per year.
        layers: Pairs ``(limit, attachment)`` to price for every column.
        truth: Law of columns where it is known, with ``sf``, ``cdf``, ``isf`` and ``cvar``, by name of the column.
        splice: ``"gpd"`` for generalised Pareto tails beyond the trust points in all answers of one column.
        rtol: Relative standard error that integrals over latent space are computed to.
        unit: Unit of the columns, for tables and axes.
        title: Heading of the page.
        model_name: What the page calls the model, such as the name of its file.
        data_name: What the page calls the table.
        held_out_name: What the page calls the held-out table.
    """
    asked = questions.levels("levels", levels).tolist()
    rate = None if events_per_period is None else float(questions.positive("events_per_period", events_per_period)[0])
    for i, layer in enumerate(layers):
        limit, attachment = layer
        if not (limit > 0 and 0 <= attachment < math.inf):
            raise ValueError(f"layers[{i}] = {layer!r}; give a limit > 0 and an attachment >= 0, such as (10, 20)")
    years = questions.positive("periods", periods).tolist()
    names = {"title": title, "model": model_name, "data": data_name, "held_out": held_out_name}
    beside = {"lower": lower, "upper": upper, "censored": censored, "entry": entry, "exit": exit}
    rows = SeenRows.of(model, X, sample_weight, beside)
    fresh = None if held_out is None else _held_out(model, held_out)
    subject = Subject.of(model, rows, truth, splice, questions.checked_rtol(rtol), tail)
    return Report(
        report_numbers(
            subject,
            fresh,
            names=names,
            unit=unit,
            levels=asked,
            periods=years,
            events_per_period=rate,
            layers=[(float(limit), float(attachment)) for limit, attachment in layers],
        )
    )


def _held_out(model: Any, given: Any) -> SeenRows:
    """Held-out rows from a table, or from a dict of a table and what is known beside it."""
    if isinstance(given, SeenRows):
        return given
    told = dict(given) if isinstance(given, Mapping) else {"X": given}
    unknown = [name for name in told if name not in ("X", "sample_weight", *BESIDE)]
    if unknown or "X" not in told:
        what = f"has {unknown[0]!r}" if unknown else "has no 'X'"
        raise ValueError(
            f"held_out {what}; give a table, or a dict of the table 'X' and of any of 'sample_weight', "
            f"{', '.join(map(repr, BESIDE))}"
        )
    return SeenRows.of(model, told["X"], told.get("sample_weight"), {name: told.get(name) for name in BESIDE})
