"""Phase-type laws in the power of time: stretched or compressed exponential tails."""

import torch
from torch import Tensor

from phvae.distributions.time_transformed import TimeTransformed

__all__ = ["MatrixWeibull"]


class MatrixWeibull(TimeTransformed):
    """Law of ``X = scale · Y^(1 / shape)``: a tail like ``exp(-c x^shape)``, Weibull for a chain of one phase.

    Another scale is another choice of rates; it is there to keep units apart from them.

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = MatrixWeibull(SeriesPhaseType([1.0], [1.0]), shape=0.5, scale=3.0)
    >>> round(float(law.mean), 9), round(float(law.log_sf(12.0)), 9)                              # 3 Γ(3), -√(12 / 3)
    (6.0, -2.0)
    """

    scale_is_free = False

    def _log_time(self, log_value: Tensor) -> Tensor:
        return self.shape * log_value

    def _log_pace(self, log_value: Tensor) -> Tensor:
        return self.shape.log() + self.shape * log_value

    def _log_value(self, time: Tensor) -> Tensor:
        return time.log() / self.shape

    @property
    def tail_index(self) -> Tensor:
        """0: every moment exists."""
        return torch.zeros_like(self.shape)

    @property
    def _last_speed(self) -> Tensor:
        return torch.where(self.shape < 1, 0.0, torch.where(self.shape > 1, torch.inf, 1 / self.scale))
