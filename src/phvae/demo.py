"""A worked example on data whose law is known: draw, fit, and hold the fitted tail against the true one."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phvae.distributions.fitting import SeriesFit, fit_series

__all__ = ["Demo", "Lomax", "run_demo"]


@dataclass(frozen=True)
class Lomax:
    """The Pareto law that starts at zero, P(X > x) = (1 + x/scale)^-shape.

    >>> law = Lomax(shape=2.0, scale=3.0)
    >>> float(law.isf(torch.tensor(0.25))), round(float(law.log_sf(torch.tensor(3.0)).exp()), 6)
    (3.0, 0.25)
    """

    shape: float
    scale: float

    def __str__(self) -> str:
        return f"Lomax law, tail index {self.shape:g}, scale {self.scale:g}"

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of P(X > x)."""
        return -self.shape * torch.log1p(x / self.scale)

    def isf(self, p: Tensor) -> Tensor:
        """The x with P(X > x) = p."""
        return self.scale * torch.expm1(-torch.log(p) / self.shape)


@dataclass(frozen=True)
class Demo:
    """Data, the truth they came from, the fit, and fits to resampled data that show how sure it is."""

    truth: Lomax
    x: npt.NDArray[np.float64]
    fit: SeriesFit
    refits: tuple[SeriesFit, ...]
    unit: str


def run_demo(*, n_rows: int = 5000, n_phases: int = 8, n_refits: int = 20, seed: int = 0) -> Demo:
    """Draw from a Lomax law with tail index 2.4, fit a series phase-type law, and refit to resampled data.

    >>> demo = run_demo(n_rows=200, n_phases=2, n_refits=2)
    >>> demo.x.shape, demo.fit.converged, len(demo.refits)
    ((200,), True, 2)
    """
    truth = Lomax(shape=2.4, scale=10.0)
    rng = np.random.default_rng(seed)
    x = truth.isf(torch.as_tensor(rng.random(n_rows))).numpy()
    fit = fit_series(x, n_phases, starts="geometric")
    counts = rng.multinomial(n_rows, np.full(n_rows, 1 / n_rows), size=n_refits)
    refits = tuple(fit_series(x, n_phases, weights, starts=fit.law, tolerance=1e-4) for weights in counts)
    return Demo(truth=truth, x=x, fit=fit, refits=refits, unit="k€")
