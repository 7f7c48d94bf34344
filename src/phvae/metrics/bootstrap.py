"""Standard errors of metrics, by resampling rows."""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from phvae.metrics.samples import MetricWarning, is_law

__all__ = ["Estimate", "with_error"]


class Estimate(NamedTuple):
    """A metric and its bootstrap standard error."""

    value: float
    standard_error: float


def with_error(
    metric: Callable[..., float],
    *samples: Any,
    resamples: int = 100,
    share: float = 1.0,
    random_state: Any = 0,
    **settings: Any,
) -> Estimate:
    """A metric with its bootstrap standard error: rows of every sample are drawn anew, with replacement.

    The error is that of the samples at hand: what generating other rows, and observing other real rows, would change.
    What training again would change is not in it. A law among the samples is exact and is not resampled.

    Args:
        metric: Any metric of this package that returns a number.
        samples: What it compares, in its order.
        resamples: Number of resamples.
        share: Share of the rows drawn per resample; the error is scaled to all of them. Less is faster.
        random_state: Seed of the resamples.
        settings: Keywords of the metric.

    >>> from phvae.metrics import tail_mass
    >>> rows = np.arange(10_000.0)
    >>> estimate = with_error(tail_mass, rows[:100], rows, level=0.5)
    >>> round(estimate.value, 4), 0.0 < estimate.standard_error < 0.01
    (0.995, True)
    """
    if not 0 < share <= 1:
        raise ValueError(f"share={share:g} must lie in (0, 1]; 1 draws as many rows as there are")
    if resamples < 2:
        raise ValueError(f"resamples={resamples} give no standard error; take 50 or more")
    value = metric(*samples, **settings)
    rng = np.random.default_rng(random_state)
    rows = [None if is_law(sample) else np.asarray(sample, dtype=np.float64) for sample in samples]
    found = []
    for _ in range(resamples):
        drawn = [
            sample if x is None else x[rng.integers(len(x), size=max(1, round(share * len(x))))]
            for sample, x in zip(samples, rows, strict=True)
        ]
        with warnings.catch_warnings():
            # repeated rows are no discrete data, and what is not available was said once
            warnings.simplefilter("ignore", MetricWarning)
            found.append(metric(*drawn, **settings))
    if not math.isfinite(value):
        return Estimate(value, math.nan)
    return Estimate(value, float(np.nanstd(found, ddof=1)) * math.sqrt(share))
