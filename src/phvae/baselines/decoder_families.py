"""Variational autoencoders that differ from `PHVAE` in the family of the decoder alone.

Prior ``N(0, I)``, posterior ``N(μ(x), diag σ²(x))``, and given ``z`` independent columns of one classical family, whose
parameters are outputs of a network. Every family starts at a law of each column's own size. A column with exact zeros
has an atom there, as it has in `PHVAE`; none of these families could be fitted to such a column otherwise.
"""

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor

from phvae.baselines.neural import BLOCK, NeuralBaseline
from phvae.decoders import GammaDecoder, GaussianDecoder, LogNormalDecoder, StudentTDecoder
from phvae.preprocessing import PositiveScaler
from phvae.priors import StandardNormal
from phvae.vae import VAE

__all__ = ["GammaVAE", "GaussianVAE", "LogNormalVAE", "MeanDecodedGaussianVAE", "StudentTVAE"]

Array = NDArray[np.float64]
Family = GammaDecoder | GaussianDecoder | LogNormalDecoder | StudentTDecoder


class _FamilyVAE(NeuralBaseline):
    model_: VAE
    decoder: ClassVar[type[Family]]

    @staticmethod
    @abstractmethod
    def _start(u: Array) -> tuple[float, ...]:
        """Parameters of the family for one column of positive scaled values."""

    def _model(self, x: Array, scaler: PositiveScaler, latent_dim: int, generator: torch.Generator) -> VAE:
        encoder = self._encoder(x, scaler, latent_dim, generator)
        decoder = self.decoder(
            latent_dim,
            origin=torch.from_numpy(scaler.origin_),
            scale=torch.from_numpy(scaler.scale_),
            hidden=self.hidden,
            zero_share=torch.from_numpy(scaler.zero_share_),
            generator=generator,
        )
        starts = [self._start(column[column > 0]) for column in scaler.transform(x).T]
        decoder.set_start(*torch.tensor(starts, dtype=torch.float64).T)
        return VAE(encoder, decoder, StandardNormal(latent_dim))


class GaussianVAE(_FamilyVAE):
    """Gaussian decoder ``N(μ_j(z), σ_j²(z))`` with learned variances; new rows are draws from it.

    Kingma, Welling, "Auto-encoding variational Bayes" (2014). Its authors have no assumption on the data but that they
    are real numbers: the share of generated values below zero is part of the result.
    """

    name = "Gaussian VAE, sampled"
    decoder = GaussianDecoder

    @staticmethod
    def _start(u: Array) -> tuple[float, float]:
        """Mean and standard deviation."""
        return float(u.mean()), float(u.std())

    def mean_decoded(self) -> "MeanDecodedGaussianVAE":
        """The same fitted model with means for new rows; nothing is trained again."""
        return MeanDecodedGaussianVAE.of(self)


class MeanDecodedGaussianVAE(GaussianVAE):
    """The `GaussianVAE` whose new rows are the means ``μ_j(z)`` for draws of ``z``, without the decoder's noise.

    Many programs do this. It leaves out ``E[σ²(z)]`` of the variance ``E[σ²(z)] + Var[μ(z)]`` of a column.
    """

    name = "Gaussian VAE, mean-decoded"

    @classmethod
    def of(cls, fitted: GaussianVAE) -> Self:
        """The same fitted model, generating means."""
        other = cls(
            latent_dim=fitted.latent_dim,
            hidden=fitted.hidden,
            origin=fitted.origin,
            epochs=fitted.epochs,
            learning_rate=fitted.learning_rate,
        )
        other.model_, other.history_, other.settings_ = fitted.model_, fitted.history_, fitted.settings_
        return other

    @torch.no_grad()
    def _generate(self, generator: torch.Generator) -> Tensor:
        means: Tensor = self.model_.decoder(self.model_.prior.sample(BLOCK, generator)).mean
        return means


class StudentTVAE(_FamilyVAE):
    """Student decoder with location, scale and degrees of freedom of every column given by ``z``.

    Takahashi, Iwata, Yamanaka, Yamada, Yagi, "Student-t variational autoencoder for robust density estimation" (2018).
    The data are real numbers there: the share of generated values below zero is part of the result.
    """

    name = "Student-t VAE"
    decoder = StudentTDecoder
    DEGREES = 3.0

    @classmethod
    def _start(cls, u: Array) -> tuple[float, float, float]:
        """Median, and the scale with the interquartile range of the column at three degrees of freedom."""
        lower, middle, upper = np.quantile(u, [0.25, 0.5, 0.75])
        return float(middle), float((upper - lower) / 2 / stats.t(cls.DEGREES).ppf(0.75)), cls.DEGREES


class LogNormalVAE(_FamilyVAE):
    """Lognormal decoder ``log X_j ~ N(μ_j(z), σ_j²(z))``: for positive data."""

    name = "LogNormal-VAE"
    decoder = LogNormalDecoder

    @staticmethod
    def _start(u: Array) -> tuple[float, float]:
        """Mean and standard deviation of the logarithms."""
        logs = np.log(u)
        return float(logs.mean()), float(logs.std())


class GammaVAE(_FamilyVAE):
    """Gamma decoder with shape and rate of every column given by ``z``: for positive data."""

    name = "Gamma-VAE"
    decoder = GammaDecoder

    @staticmethod
    def _start(u: Array) -> tuple[float, float]:
        """Shape and rate of maximum likelihood, from ``log k - ψ(k) = log mean(u) - mean(log u)``."""
        gap = float(np.log(u.mean()) - np.log(u).mean())
        shape = (3 - gap + np.sqrt((3 - gap) ** 2 + 24 * gap)) / (12 * gap)
        for _ in range(4):
            # Newton steps in 1 / shape
            residual = np.log(shape) - special.digamma(shape) - gap
            slope = shape**2 * (1 / shape - special.polygamma(1, shape))
            shape = 1 / (1 / shape + residual / slope)
        return float(shape), float(shape / u.mean())
