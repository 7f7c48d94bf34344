"""Phase-type laws in a power of logarithmic time: tails between the stretched exponential and the power."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from phvae.distributions.time_transformed import TimeTransformed, log1p_exp, log_expm1

__all__ = ["MatrixLogNormal"]


class MatrixLogNormal(TimeTransformed):
    """Law of ``X = scale · (exp(Y^(1 / shape)) - 1)``: a tail like ``exp(-c (log x)^shape)``, lognormal in kind for 2.

    ``h(u) = log(1 + u)^shape``. With a shape above 1 every moment exists, with 1 the tail is a power, and below 1 no
    moment exists at all.

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = MatrixLogNormal(SeriesPhaseType([1.0], [1.0]), shape=2.0)
    >>> round(float(law.log_sf(torch.tensor(3.0).double().expm1())), 9)                            # -(log(1 + u))²
    -9.0
    """

    # below it no moment exists
    least_shape = 1.0

    def _log_time(self, log_value: Tensor) -> Tensor:
        return self._log_log(log_value) * self.shape

    def _log_pace(self, log_value: Tensor) -> Tensor:
        bent = (self.shape - 1) * self._log_log(log_value)
        return self.shape.log() + bent + logsigmoid(log_value)

    def _log_value(self, time: Tensor) -> Tensor:
        return log_expm1((time.log() / self.shape).exp())

    def _log_log(self, log_value: Tensor) -> Tensor:
        """``log log(1 + u)`` from ``log u``."""
        return log1p_exp(log_value).log()

    @property
    def tail_index(self) -> Tensor:
        """0 for a shape above 1, that of the power for 1, and infinite below."""
        power = 1 / self.base.tail_rate
        return torch.where(self.shape > 1, 0.0, torch.where(self.shape < 1, torch.inf, power))

    @property
    def _last_speed(self) -> Tensor:
        return torch.zeros_like(self.shape)
