"""What one event costs: a loss, its growth, what is left out of it and where it is cut."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from phvae.risk.compound import tabulated
from phvae.risk.frequency import Frequency
from phvae.risk.law import IntegratedLaw
from phvae.risk.layers import layer_moments
from phvae.risk.sources import Source, tensor

__all__ = ["Severity", "grid_step"]

Array = NDArray[np.float64]

# Knots between which the survival function of a loss is interpolated, and the nearest one to its lower end, beside its
# typical size.
KNOTS, NEAREST = 96, 1e-4


class Severity(NamedTuple):
    """One event: ``min((factor · X - attachment)_+, limit)`` of a loss ``X``."""

    source: Source
    factor: float
    attachment: float
    limit: float

    def log_sf(self, law: IntegratedLaw, y: Array) -> Array:
        """Log of the chance that an event costs more than ``y >= 0``, below the limit, shape ``(R, k)``."""
        return np.asarray(law.log_sf(tensor((self.attachment + y) / self.factor)).numpy())

    def moments(self, law: IntegratedLaw) -> tuple[Array, Array]:
        """First and second moment of the cost of an event, shape ``(R,)`` each."""
        low = tensor([self.attachment / self.factor])
        first, second = layer_moments(law, low, low + self.limit / self.factor)
        return self.factor * first[:, 0].numpy(), self.factor**2 * second[:, 0].numpy()

    def tabulated(self, law: IntegratedLaw, end: float) -> Callable[[Array], Array]:
        """``P(Y > y)`` for very many points up to ``end``, shape ``(R, k)``, interpolated."""
        lower = law.lower * self.factor
        typical = float((law.mean.median() - law.lower).abs()) * self.factor
        if not math.isfinite(typical):
            middle = float(law.isf(tensor([0.5])).median())
            typical = (middle - law.lower if middle > law.lower else 1.0) * self.factor
        top = min(end, self.limit)
        last = max(1.01 * top + self.attachment - lower, typical)
        knots = lower + np.geomspace(NEAREST * typical, last, KNOTS)
        at = tensor(knots / self.factor)
        log_survival = law.log_sf(torch.cat((tensor([law.lower]), at))).numpy()
        log_density = law.log_pdf(at).numpy() - math.log(self.factor)
        gross = tabulated(knots, log_survival, log_density, lower)

        def survival(y: Array) -> Array:
            return np.where(y < self.limit, gross(self.attachment + np.minimum(y, top)), 0.0)

        return survival


def grid_step(
    severity: Severity, law: IntegratedLaw, frequency: Frequency, share: float, rarest: float, cells: int
) -> float:
    """Step of a grid that the total leaves with less than a chance of about ``rarest``.

    Args:
        severity: Cost of an event.
        law: Law of its loss.
        frequency: Number of events.
        share: Chance of an event that is rarer than anything asked for.
        rarest: Smallest exceedance probability asked for.
        cells: Cells of the grid.
    """
    point = float(law.isf(tensor([share])).max()) * severity.factor - severity.attachment
    single = min(max(point, 0.0), severity.limit)
    if single == 0:
        raise ValueError(
            f"attachment = {severity.attachment:g} is reached with less than a chance of {share:g} per event; give a "
            "lower one, or a smaller rarest"
        )
    # the largest loss that is not rarer, on top of very many others cut there
    first, second = (float(part.max()) for part in severity._replace(limit=single).moments(law))
    count = frequency.most(rarest / 20)
    end = count * first + 6 * math.sqrt(max(count, 1.0) * second) + 2 * single
    if severity.limit == math.inf:
        return end / (cells - 1)
    step = 2 * end / (cells - 1)
    if severity.limit < 2 * step:
        raise ValueError(
            f"limit = {severity.limit:g} is too little beside a total of up to {end:g} for a grid; give a higher one"
        )
    # twice the step divides the limit too
    return severity.limit / (2 * math.ceil(severity.limit / (2 * step)))
