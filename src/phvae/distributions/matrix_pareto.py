"""Phase-type laws in logarithmic time: true power tails."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from phvae.distributions.time_transformed import TimeTransformed, log1p_exp, log_expm1

__all__ = ["MatrixPareto"]


class MatrixPareto(TimeTransformed):
    """Law of ``X = scale · (exp(Y) - 1)^(1 / shape)``: a tail like ``x^(-shape · rate)``, of the slowest rate.

    ``h(u) = log(1 + u^shape)``. A chain of one phase makes it Burr XII, and with shape 1 Lomax, which moved to its
    scale is Pareto; more phases bend the body and leave the power of the tail.

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = MatrixPareto(SeriesPhaseType([1.0], [3.0]), shape=1.0, scale=2.0)
    >>> round(float(law.mean), 9), round(float(law.tail_index), 9), float(law.variance)        # 2 / (3 - 1), 1/3
    (1.0, 0.333333333, 3.0000000000...)
    """

    def _log_time(self, log_value: Tensor) -> Tensor:
        return log1p_exp(self.shape * log_value).log()

    def _log_pace(self, log_value: Tensor) -> Tensor:
        return self.shape.log() + logsigmoid(self.shape * log_value)

    def _log_value(self, time: Tensor) -> Tensor:
        return log_expm1(time) / self.shape

    @property
    def tail_index(self) -> Tensor:
        """``1 / (shape · rate)`` with the rate at which the chain's tail dies off."""
        return 1 / (self.shape * self.base.tail_rate)

    @property
    def _last_speed(self) -> Tensor:
        return torch.zeros_like(self.shape)
