"""Integration to a tolerance: points are added until the spread of the replicates is small enough."""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

__all__ = ["CONFIDENCE", "FEWEST", "MOST", "RTOL", "SUM_RTOL", "Estimate", "IntegrationWarning", "to_tolerance"]

Array = NDArray[np.float64]

# Points per replicate that an integration begins with, by how much their number grows, and where it ends.
FEWEST, GROWTH, MOST = 2**8, 4, 2**16
# Relative standard error that answers are integrated to.
RTOL = 1e-3
# The same of sums of columns, whose law costs a hundred times that of a column.
SUM_RTOL = 1e-2
# Confidence of the intervals of the integration.
CONFIDENCE = 0.95


class IntegrationWarning(UserWarning):
    """An integral over latent space did not reach the tolerance asked for; its standard error says how far it got."""


class Estimate(NamedTuple):
    """Values and the standard errors of their integration, shape ``(k,)`` each.

    value: Mean over replicates.
    standard_error: Its standard error; 0 for a law without latent variables, where nothing is integrated.
    replicates: Number of replicates.
    """

    value: Array
    standard_error: Array
    replicates: int

    @classmethod
    def of(cls, replicates: Tensor) -> "Estimate":
        """From the values of every replicate, shape ``(R, k)``.

        >>> Estimate.of(torch.tensor([[1.0], [3.0]]))
        Estimate(value=array([2.]), standard_error=array([1.]), replicates=2)
        """
        values = replicates.double().numpy()
        value = values.mean(0)
        if len(values) == 1:
            return cls(value, np.zeros_like(value), 1)
        # replicates that agree, also on infinity, have no error
        agree = (values == values[0]).all(0)
        centred = np.where(agree | ~np.isfinite(values), 0.0, values - np.where(np.isfinite(value), value, 0.0))
        error = np.sqrt((centred**2).sum(0) / (len(values) - 1) / len(values))
        return cls(value, np.where(agree | np.isfinite(values).all(0), error, np.inf), len(values))

    @classmethod
    def of_logs(cls, logs: Tensor) -> "Estimate":
        """Log of the mean of values whose logs are given, shape ``(R, k)``; its error is their relative error."""
        count = len(logs)
        mean = torch.logsumexp(logs, 0) - math.log(count)
        ratio = torch.where(mean > -math.inf, (logs - mean).exp(), 1.0)
        return cls(mean.numpy(), cls.of(ratio).standard_error, count)

    def exp(self) -> "Estimate":
        """The values whose logs these are."""
        value = np.exp(self.value)
        return self._replace(value=value, standard_error=value * self.standard_error)

    def interval(self) -> tuple[Array, Array]:
        """Ends of the interval of the integration: Student's quantile times the standard error on either side."""
        if self.replicates == 1:
            return self.value, self.value
        reach = float(special.stdtrit(self.replicates - 1, (1 + CONFIDENCE) / 2))
        return self.value - reach * self.standard_error, self.value + reach * self.standard_error


def to_tolerance(
    evaluate: Callable[[int], tuple[Estimate, Any]], rtol: float, *, logs: bool = False, most: int = MOST
) -> Any:
    """An estimate whose standard errors are within a relative tolerance, from as few points as possible.

    Args:
        evaluate: From a number of points per replicate to an estimate and whatever belongs to it.
        rtol: Largest standard error beside the size of a value.
        logs: Values are logs, so that their errors are relative ones.
        most: Points per replicate at which it ends.

    Returns:
        What ``evaluate`` gave at last; a warning says if that does not reach the tolerance.
    """
    n = FEWEST
    while True:
        estimate, extra = evaluate(n)
        size = np.ones_like(estimate.value) if logs else np.abs(estimate.value)
        with np.errstate(invalid="ignore", divide="ignore"):
            relative = np.where(estimate.standard_error == 0, 0.0, estimate.standard_error / size)
        if bool((relative <= rtol).all()):
            return estimate, extra
        if n >= most:
            warnings.warn(
                f"the integral over latent space reached a relative error of {relative.max():.1e}, not {rtol:g}; "
                "standard_error says so row by row; give a larger rtol, or a less extreme question",
                IntegrationWarning,
                stacklevel=2,
            )
            return estimate, extra
        n *= GROWTH
