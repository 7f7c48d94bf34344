"""What adding columns up saves: the shortfall of their sum beside those of the columns, and the part of each in it."""

import numpy as np
from numpy.typing import NDArray

from phvae.report.empirical import Values
from phvae.report.subject import Rows, Subject, estimate, rows_of

__all__ = ["diversification"]

# Levels of the table, and most columns that are added up: given the latent vector they cost the same each.
LEVELS = (0.9, 0.99)
MOST_COLUMNS = 20


def diversification(subject: Subject, values: NDArray[np.float64]) -> Rows | None:
    """Expected shortfall of the sum of all columns at two levels; None for too many columns.

    Sums are those of the model's own tails. None as well for tails that are no phase-type laws, whose sums are drawn,
    and for signed columns, whose sums take too long for a page.

    Args:
        subject: What the report is about.
        values: Rows without missing values.
    """
    if any(subject.is_signed(j) for j in range(len(subject.names))):
        return None
    if len(subject.names) > MOST_COLUMNS or subject.model.settings_.get("tail", "exponential") != "exponential":
        return None
    total = subject.model.sum(rtol=subject.drawn_rtol)
    figures = rows_of(total.diversification(list(LEVELS)))
    parts = rows_of(total.allocation(list(LEVELS)))
    seen = Values(values.sum(1))
    rows: Rows = []
    for level in LEVELS:
        rows.append(
            {
                "level": level,
                **{str(row["measure"]): estimate(row) for row in figures if row["level"] == level},
                "parts": [{"column": str(row["column"]), **estimate(row)} for row in parts if row["level"] == level],
                "data": seen.tail_mean(level),
            }
        )
    return rows
