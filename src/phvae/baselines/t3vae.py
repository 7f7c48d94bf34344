"""The t3-VAE: Student laws for prior, posterior and decoder, and an objective from the γ-power divergence."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.baselines.neural import NeuralBaseline
from phvae.networks import MLP
from phvae.preprocessing import PositiveScaler
from phvae.vae import GaussianEncoder, GenerativeModel, Terms

__all__ = ["T3VAE", "T3Model"]

Array = NDArray[np.float64]


class T3VAE(NeuralBaseline):
    """Heavy tails of one given weight ``ν`` everywhere: Kim, Kwon, Cho, Kang, "t3-Variational autoencoder" (2024).

    Its authors have real numbers of comparable size and no family for positive ones: rows are divided by the median of
    their column, and the share of generated values below zero is part of the result. There is no atom at zero, since
    the laws of all columns come from one multivariate Student law.

    Args:
        degrees: Degrees of freedom ``ν > 2`` of the prior; there is no canonical choice.
        spread: Scale ``s`` of the decoder, in units of the median of a column.
        settings: As for `NeuralBaseline`.
    """

    model_: "T3Model"

    def __init__(self, *, degrees: float = 9.0, spread: float = 1.0, **settings: Any) -> None:
        if not (degrees > 2 and spread > 0):
            raise ValueError(f"degrees = {degrees!r} and spread = {spread!r}; give more than 2 and more than 0")
        self.degrees, self.spread = degrees, spread
        self.name = f"t3-VAE (nu={degrees:g}, s={spread:g})"
        super().__init__(**settings)

    def _model(self, x: Array, scaler: PositiveScaler, latent_dim: int, generator: torch.Generator) -> "T3Model":
        encoder = self._encoder(x, scaler, latent_dim, generator)
        decoder = MLP(latent_dim, x.shape[1], hidden=self.hidden, generator=generator)
        with torch.no_grad():
            decoder.head.bias.copy_(torch.from_numpy(np.median(scaler.transform(x), 0)))
        return T3Model(encoder, decoder, degrees=self.degrees, spread=self.spread)

    def objective(self, x: Array, seed: int = 0) -> float:
        """What training maximises, as a mean over rows it has not seen: half the γ-loss with its sign changed.

        It is no bound of a log-likelihood and says nothing between models, nor between degrees of freedom or spreads.
        """
        return super().objective(x, seed)


class T3Model(GenerativeModel):
    """Student prior, posterior and decoder with ``D`` columns and ``d`` latent dimensions, on scaled rows ``u``.

    - prior ``t_d(0, I, ν)``,
    - decoder ``t_D(μ(z), s² (ν + |z|²) / (ν + d) I, ν + d)``,
    - posterior ``t_d(m(u), ν / (ν + D) Σ(u), ν + D)`` with ``Σ`` diagonal.

    A latent point and a row are each one Student vector: its entries share one chi-square variable.

    Args:
        encoder: Its mean is ``m`` and its variances are ``Σ``; its origin and scale say what ``u`` is.
        decoder: The network ``μ``.
        degrees: ``ν``.
        spread: ``s``.
    """

    def __init__(self, encoder: GaussianEncoder, decoder: MLP, *, degrees: float, spread: float) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.degrees, self.spread = degrees, spread
        self.divergence = T3Divergence(encoder.n_columns, encoder.latent_dim, degrees, spread)

    @property
    def n_columns(self) -> int:
        """Number of columns of a row."""
        return self.encoder.n_columns

    def draw_posterior(
        self, mean: Tensor, deviation: Tensor, n_samples: int, generator: torch.Generator | None
    ) -> Tensor:
        """Latent points ``m + Σ^½ ε sqrt(ν / v)`` with ``v ~ χ²(ν + D)``, shape ``(n_samples, n, d)``."""
        noise = torch.randn((n_samples, *mean.shape), dtype=mean.dtype, device=mean.device, generator=generator)
        shared = _chi_square(noise[..., :1], self.degrees + self.n_columns, generator)
        z: Tensor = mean + deviation * noise * (self.degrees / shared).sqrt()
        return z

    def terms(
        self, x: Tensor, *, generator: torch.Generator | None = None, n_samples: int = 1, penalty: bool = False
    ) -> Terms:
        """Half the γ-loss: ``-|u - μ(z)|² / (2 s²)`` in place of the log-likelihood, and half the `T3Divergence`.

        With these the loss of `phvae.training.train` is half the γ-loss of Kim and others, as they have it too.
        """
        posterior = self.encoder(x)
        z = self.draw_posterior(posterior.loc, posterior.scale, n_samples, generator)
        centre = self.decoder(z).double()
        scaled = (x - self.encoder.origin) / self.encoder.scale
        error = ((scaled - centre) / self.spread).square().sum(-1).mean(0)
        divergence = self.divergence(posterior.loc.double(), posterior.scale.double())
        return Terms(-error / 2, divergence / 2, error.new_zeros(self.n_columns))

    @torch.no_grad()
    def generate(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draws of new rows, shape ``(n, D)``: a latent point from the prior, then a draw of the decoder."""
        latent_dim, weight = self.encoder.latent_dim, self.decoder.head.weight
        noise = torch.randn((n, latent_dim), dtype=weight.dtype, device=weight.device, generator=generator)
        z = noise * (self.degrees / _chi_square(noise[:, :1], self.degrees, generator)).sqrt()
        centre = self.decoder(z).double()
        noise = torch.randn(centre.shape, dtype=centre.dtype, device=centre.device, generator=generator)
        # s² (ν + |z|²) / (ν + d) of the decoder times (ν + d) / χ²(ν + d) of a Student draw
        shared = _chi_square(noise[:, :1], self.degrees + latent_dim, generator)
        width = self.spread * ((self.degrees + z.double().square().sum(-1, keepdim=True)) / shared).sqrt()
        rows: Tensor = self.encoder.origin + self.encoder.scale * (centre + width * noise)
        return rows


class T3Divergence:
    """What stands for the divergence from the prior in the γ-loss, with ``D`` columns and ``d`` latent dimensions.

    ``R(m, Σ) = |m|² + ν / (ν + D - 2) tr Σ - ν C |Σ|^(-γ / (2 + 2γ)) + ν T`` with ``γ = -2 / (ν + D + d)``,

    - ``log B = -D log s + log Γ((ν + D) / 2) - log Γ(ν / 2) - (D / 2) log(ν π) - log(ν + D - 2) + log(ν - 2)``,
    - ``C = (1 + d / (ν + D - 2)) B^(-γ / (1 + γ))``,
    - ``T = B^(2 / (ν + D - 2))``.

    It is a multiple of the γ-power divergence of the posterior from ``t_d(0, ν T / (ν + D) I, ν + D)``: zero at
    ``m = 0, Σ = T I``, and positive elsewhere.

    >>> divergence = T3Divergence(3, 2, degrees=5.0, spread=0.1)
    >>> deviation = torch.full((1, 2), divergence.variance**0.5, dtype=torch.float64)
    >>> bool(divergence(torch.zeros(1, 2), deviation).abs() < 1e-12 * divergence.variance)
    True
    """

    def __init__(self, n_columns: int, latent_dim: int, degrees: float, spread: float) -> None:
        both = degrees + n_columns
        log_b = (
            -n_columns * math.log(spread)
            + math.lgamma(both / 2)
            - math.lgamma(degrees / 2)
            - n_columns / 2 * math.log(degrees * math.pi)
            - math.log(both - 2)
            + math.log(degrees - 2)
        )
        # -γ / (1 + γ)
        self.power = 2 / (both + latent_dim - 2)
        self.degrees, self.share = degrees, degrees / (both - 2)
        self.log_c = math.log1p(latent_dim / (both - 2)) + self.power * log_b
        self.variance = math.exp(2 / (both - 2) * log_b)

    def __call__(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """``R`` of posteriors with these means and the square roots of ``Σ``, both ``(n, d)``; shape ``(n,)``."""
        squares = mean.square().sum(-1) + self.share * deviation.square().sum(-1)
        entropy = (self.log_c + self.power * deviation.log().sum(-1)).exp()
        return squares - self.degrees * entropy + self.degrees * self.variance


def _chi_square(like: Tensor, degrees: float, generator: torch.Generator | None) -> Tensor:
    """Draws in the shape and kind of a tensor."""
    return 2 * torch._standard_gamma(torch.full_like(like, degrees / 2), generator=generator)
