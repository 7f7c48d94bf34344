"""The extreme-value VAE: products of Fréchet noise and a mixture of tilted stable variables."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from phvae.baselines.neural import NeuralBaseline
from phvae.baselines.spliced import SplicedLaw
from phvae.preprocessing import PositiveScaler
from phvae.priors import Prior
from phvae.vae import GaussianEncoder, GenerativeModel, Terms

__all__ = ["XVAE", "TiltedStable", "XModel", "XVAEWithParetoMargins"]

Array = NDArray[np.float64]

# The index a of stability, for which tilted stable variables are inverse Gaussian ones.
INDEX = 0.5


class XVAE(NeuralBaseline):
    """Zhang, Ma, Wikle, Huser, "Capturing extreme events in turbulence using an extreme variational autoencoder".

    Raw data: rows are divided by the median of their column, the unit of its Fréchet noise. Its authors assume margins
    brought to a common heavy-tailed scale first, which `XVAEWithParetoMargins` does. There is no network but the
    encoder; tilts, weights and scales have ten times the step size of it.

    Args:
        location: Location of the Fréchet noise; a positive one gives rows probability zero for some latent points.
        settings: As for `NeuralBaseline`.
    """

    name = "xVAE, raw"
    rate_factors = {"prior": 10.0, "logits": 10.0, "log_scales": 10.0}  # noqa: RUF012
    model_: "XModel"

    def __init__(self, *, location: float = 0.0, **settings: Any) -> None:
        self.location = location
        super().__init__(**settings)

    def _fit(self, x: Array, seed: int) -> None:
        if (x <= 0).any():
            raise ValueError(f"{self.name}: {int((x <= 0).sum())} values are not positive, as Fréchet noise is")
        super()._fit(x, seed)

    def _model(self, x: Array, scaler: PositiveScaler, latent_dim: int, generator: torch.Generator) -> "XModel":
        encoder = self._encoder(x, scaler, latent_dim, generator)
        return XModel(encoder, location=self.location, generator=generator)


class XVAEWithParetoMargins(XVAE):
    """`XVAE` on margins of unit Fréchet scale ``y = -1 / log F_j(x)``, as its authors prepare their data.

    ``F_j`` is the `SplicedLaw` of the column, an empirical body with a generalised Pareto tail beyond the 90% quantile.
    New rows go back by its quantiles, so a value is negative only where the body is. Ties, zeros among them, share
    their mean rank and come back as they were.
    """

    name = "xVAE, GPD margins"

    def _fit(self, x: Array, seed: int) -> None:
        self.margins_ = [SplicedLaw.fit(column) for column in x.T]
        super()._fit(self._to_frechet(x), seed)

    def _to_frechet(self, x: Array) -> Array:
        survival = [margin.sf(column) for margin, column in zip(self.margins_, x.T, strict=True)]
        return np.stack([-1 / np.log1p(-share) for share in survival], 1)

    def _draw(self, n: int, seed: int) -> Array:
        survival = -np.expm1(-1 / super()._draw(n, seed))
        return np.stack([margin.isf(share) for margin, share in zip(self.margins_, survival.T, strict=True)], 1)

    def objective(self, x: Array, seed: int = 0) -> float:
        """The evidence lower bound on the Fréchet scale, as a mean over rows it has not seen; in nats per row."""
        return super().objective(self._to_frechet(x), seed)


class TiltedStable(Prior):
    """Law of ``log Z`` for independent exponentially tilted positive stable ``Z_k`` of index 1/2.

    ``E exp(-s Z_k) = exp(θ_k^½ - (θ_k + s)^½)``: the inverse Gaussian law with mean ``1 / (2 θ^½)`` and shape 1/2.
    The density of ``u = log z`` is ``(4π)^-½ exp(-u / 2 - θ e^u + θ^½ - e^-u / 4)``.

    >>> u = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None]
    >>> abs(float(TiltedStable(1).log_prob(u).detach().exp().sum()) * 0.004 - 1) < 1e-6
    True
    """

    def __init__(self, latent_dim: int) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.log_tilt = nn.Parameter(torch.zeros(latent_dim))

    def log_prob(self, z: Tensor) -> Tensor:
        """Log density at points ``u = log z`` of shape ``(..., latent_dim)``, float64, shape ``(...)``."""
        u, log_tilt = z.double(), self.log_tilt.double()
        exponent = u / 2 + (log_tilt + u).exp() - (log_tilt / 2).exp() + (-u).exp() / 4
        return -(exponent + math.log(4 * math.pi) / 2).sum(-1)

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws of ``log Z``, shape ``(n, latent_dim)``, float64.

        Michael, Schucany, Haas (1976): a squared normal variable gives two roots, the smaller of which is taken with
        probability ``mean / (mean + root)``.
        """
        place = self.log_tilt.device
        shape = (n, self.latent_dim)
        square = torch.randn(shape, dtype=torch.float64, device=place, generator=generator).square()
        uniform = torch.rand(shape, dtype=torch.float64, device=place, generator=generator)
        # roots r of (r - 1)² / r = square · mean / shape, in units of the mean; their product is 1
        half = square * (-self.log_tilt.double() / 2).exp() / 2
        larger = 1 + half + (half * (half + 2)).sqrt()
        log_root = torch.where(uniform * (1 + 1 / larger) < 1, -larger.log(), larger.log())
        return log_root - self.log_tilt.double() / 2 - math.log(2)


class XModel(GenerativeModel):
    """``X_j = ε_j Y_j`` with ``Y_j = Σ_k w_jk² Z_k``, in units of the scale of column ``j``.

    The ``Z_k`` follow `TiltedStable`, the weights of a column lie on the simplex, and ``ε_j`` is Fréchet with shape 1,
    scale ``τ_j`` and location ``m``: ``log p(x | y) = log τ - 2 log(x / y - m) - log y - τ / (x / y - m)``. The
    posterior of ``log Z`` is a diagonal normal law. A column has the distribution function, for ``m = 0``,

        ``F(x) = exp(Σ_k θ_k^½ - (θ_k + τ w_k² / x)^½)``.

    Args:
        encoder: Posterior of ``log Z``; its scale is the unit of the columns.
        location: ``m``.
        generator: Source of the first weights; the global one of torch when omitted.
    """

    def __init__(
        self, encoder: GaussianEncoder, *, location: float = 0.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.location = encoder, location
        n_columns, latent_dim = encoder.n_columns, encoder.latent_dim
        self.prior = TiltedStable(latent_dim)
        self.logits = nn.Parameter(torch.randn((n_columns, latent_dim), generator=generator))
        # equal weights would give these columns the median 1, for m = 0
        log_two = math.log(2)
        first = torch.full((n_columns,), math.log(log_two * (2 * latent_dim + log_two)))
        self.log_scales = nn.Parameter(first)

    @property
    def n_columns(self) -> int:
        """Number of columns of a row."""
        return self.encoder.n_columns

    def log_mixture(self, log_z: Tensor) -> Tensor:
        """``log Y`` in the units of the columns, float64, at points ``(..., d)``; shape ``(..., D)``."""
        log_weights = self.logits.double().log_softmax(-1) / INDEX
        return torch.logsumexp(log_weights + log_z.double()[..., None, :], -1) + self.encoder.scale.log()

    def log_density(self, x: Tensor, log_y: Tensor) -> Tensor:
        """``log p(x | y)`` per column; ``-inf`` where ``x <= m y``."""
        noise = x * (-log_y).exp() - self.location
        positive = noise > 0
        log_noise = torch.where(positive, noise, 1.0).log()
        log_scale = self.log_scales.double()
        density = log_scale - 2 * log_noise - log_y - (log_scale - log_noise).exp()
        return torch.where(positive, density, -torch.inf)

    def terms(
        self, x: Tensor, *, generator: torch.Generator | None = None, n_samples: int = 1, penalty: bool = False
    ) -> Terms:
        """The parts of the evidence lower bound; arguments as in `GenerativeModel.terms`."""
        posterior = self.encoder(x)
        mean, deviation = posterior.loc, posterior.scale
        noise = torch.randn((n_samples, *mean.shape), dtype=mean.dtype, device=mean.device, generator=generator)
        log_z = mean + deviation * noise
        log_likelihood = self.log_density(x, self.log_mixture(log_z)).sum(-1).mean(0)
        return Terms(
            log_likelihood, self.prior.divergence(posterior, log_z).mean(0), log_likelihood.new_zeros(self.n_columns)
        )

    @torch.no_grad()
    def generate(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draws of new rows, shape ``(n, D)``: latent variables from their prior, times Fréchet noise."""
        y = self.log_mixture(self.prior.sample(n, generator)).exp()
        exponential = torch.empty_like(y).exponential_(generator=generator)
        return y * (self.location + self.log_scales.double().exp() / exponential)
