"""The smallest of several columns, each in its own unit: its tail is the chance that all are exceeded."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.risk.column import ColumnLaw
from phvae.risk.conditions import Range, log_chance
from phvae.risk.law import IntegratedLaw
from phvae.risk.quadrature import Proposal
from phvae.risk.sources import Build, Column, Source, rarer_than_seen, tensor

__all__ = ["Ray"]

Array = NDArray[np.float64]


class RayLaw(IntegratedLaw):
    """Law of ``min_j X_j / direction_j`` above zero: all are exceeded at ``t · direction``.

    ``S(t) = Σ_n w_n Π_j S_j(t direction_j | z_n)``, and the hazard given ``z`` is the sum of the columns' hazards.

    Args:
        laws: Laws of the columns on the same latent points.
        direction: Positive numbers, shape ``(k,)``.
    """

    def __init__(self, laws: Sequence[ColumnLaw], direction: Array) -> None:
        self.laws, self.direction = laws, direction
        self.replicates = laws[0].replicates
        self.lower = max(max(law.lower, 0.0) / w for law, w in zip(laws, direction, strict=True))

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of the probability that every column exceeds ``x · direction``."""
        return self._over_points(x, lambda survival, _: survival)

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density."""
        return self._over_points(x, lambda survival, hazard: survival + hazard.log())

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of the probability that some column does not exceed ``x · direction``."""
        return torch.log1p(-self.log_sf(x).exp())

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """No closed form; nothing asks for it."""
        raise NotImplementedError("stop-loss moments of a minimum have no closed form")

    @cached_property
    def mean(self) -> Tensor:
        """The smallest of the columns' means (typical sizes, of signed ones): where a search starts, no closed form."""
        sizes = [law.log_usual().exp() if law.lower < 0 else law.mean for law in self.laws]
        return torch.stack([size / w for size, w in zip(sizes, self.direction, strict=True)]).amin(0)

    def log_usual(self) -> Tensor:
        """Log of a usual distance from the lower end: where that lies beyond a column's mean, by the mean excesses."""
        usual = (self.mean - self.lower).log()
        if bool(usual.isfinite().all()):
            return usual
        lower = torch.full((1,), self.lower, dtype=torch.float64)
        excesses = [law.mean_excess(lower * w)[:, 0] / w for law, w in zip(self.laws, self.direction, strict=True)]
        least = torch.stack(excesses).amin(0).log()
        return torch.where(least.isfinite(), least, 0.0)

    @property
    def variance(self) -> Tensor:
        """No closed form; nothing asks for it."""
        raise NotImplementedError("the variance of a minimum has no closed form")

    def _over_points(self, x: Tensor, combine: Any) -> Tensor:
        x = x.double().expand(self.replicates, x.shape[-1])
        total = torch.full(x.shape, -torch.inf, dtype=torch.float64)
        parts = zip(*(law.parts for law in self.laws), strict=True)
        with torch.no_grad():
            for columns in parts:
                r, n, _ = columns[0]
                for i in range(x.shape[1]):
                    survival, hazard = torch.zeros(()), torch.zeros(())
                    for (_, _, law), w in zip(columns, self.direction, strict=True):
                        at = w * x[r, i][:, None, None]
                        own = law.log_sf(at)[..., 0]
                        density = law.log_prob(at)[..., 0]
                        survival = survival + own
                        hazard = hazard + w * torch.where(own > -torch.inf, (density - own).exp(), 0.0)
                    some = torch.logsumexp(combine(survival, hazard) + self.laws[0].log_weight[r, n], -1)
                    total[r, i] = torch.logaddexp(total[r, i], some)
        return total


class Ray(Source):
    """The smallest of columns, each measured by its own unit: exceeded where all columns are.

    Args:
        columns: The columns.
        direction: The units, positive.
    """

    def __init__(self, columns: Sequence[Column], direction: Array) -> None:
        self.columns, self.direction = columns, direction
        self.fitted = columns[0].fitted
        self.name = tuple(column.name for column in columns)
        self.lower = 0.0

    def at(self, *, probability: float = 1.0, points: Sequence[float] = ()) -> Build:
        """Laws that are accurate down to a probability: the ray is climbed until the survival is smaller."""
        proposal = Proposal(self.fitted.prior, self.fitted.seed)

        def law(n: int) -> RayLaw:
            laws = [ColumnLaw(self.fitted.vae, column.position, proposal, n) for column in self.columns]
            return RayLaw(laws, self.direction)

        if self.fitted.vae.latent_dim:
            level = 1e-2
            while True:
                at = float(law(2**8).isf(tensor([max(level, probability)])).median())
                ranges = [
                    Range(column.position, float(at * w), torch.inf)
                    for column, w in zip(self.columns, self.direction, strict=True)
                ]
                proposal.cover(partial(log_chance, self.fitted.vae, ranges))
                if level <= probability:
                    break
                level *= 1e-2
        return law

    def extrapolated(self, law: IntegratedLaw, x: Tensor) -> NDArray[np.bool_]:
        """Whether fewer than one row of the fit is expected beyond."""
        return rarer_than_seen(law, x, self.fitted.n_rows)
