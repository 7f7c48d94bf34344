"""What metrics take: one column or a table of finite numbers, and the sentences for those they cannot judge."""

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["FEWEST_ROWS", "MetricWarning", "column", "is_law", "not_available", "table", "warn_if_discrete"]

Array = NDArray[np.float64]

# Generated rows beyond a threshold below which a tail metric says N/A.
FEWEST_ROWS = 200
# Share of distinct values among the rows compared below which they count as discrete.
DISTINCT = 0.9


class MetricWarning(UserWarning):
    """A metric that is not available, or that does not mean what it usually means."""


def column(name: str, x: ArrayLike) -> Array:
    """One column as float64; ``(n, 1)`` counts as one."""
    values = np.asarray(x, dtype=np.float64)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{name} has shape {values.shape}; give one column at a time")
    return _finite(name, values)


def table(name: str, x: ArrayLike) -> Array:
    """Several columns as float64, shape ``(n, D)``."""
    values = np.asarray(x, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(f"{name} has shape {values.shape}; give a table of two columns or more")
    return _finite(name, values)


def is_law(x: Any) -> bool:
    """Whether a truth is a law with exact tails rather than rows."""
    return hasattr(x, "sf") and hasattr(x, "isf")


def not_available(metric: str, reason: str) -> float:
    """``nan``, and one warning that says why."""
    warnings.warn(f"{metric} is not available: {reason}", MetricWarning, stacklevel=3)
    return math.nan


def warn_if_discrete(metric: str, name: str, values: Array) -> None:
    """Warn where ties would be what a distance between distribution functions sees."""
    if len(values) and len(np.unique(values)) < DISTINCT * len(values):
        warnings.warn(
            f"{metric}: {name} is discrete ({len(np.unique(values)):,} values in {len(values):,} rows), and distances "
            "between distribution functions see the steps; look at quantile errors and the log-log tail plot instead",
            MetricWarning,
            stacklevel=3,
        )


def _finite(name: str, values: Array) -> Array:
    if len(values) == 0:
        raise ValueError(f"{name} has no rows")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has {int((~np.isfinite(values)).sum())} entries that are missing or infinite")
    return values
