"""Variational autoencoders that differ from `PHVAE` in the family of the decoder alone.

Prior ``N(0, I)``, posterior ``N(μ(x), diag σ²(x))``, and given ``z`` independent columns of one family, whose
parameters are outputs of a network. `DecoderVAE` is that for any decoder, the others are it with a name. A column with
exact zeros has an atom there, as it has in `PHVAE`; few families could be fitted to such a column otherwise.
"""

import inspect
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae import defaults
from phvae.baselines.neural import BLOCK, NeuralBaseline
from phvae.decoders import Decoder, GammaDecoder, GaussianDecoder, LogNormalDecoder, StudentTDecoder
from phvae.preprocessing import PositiveScaler
from phvae.priors import StandardNormal
from phvae.vae import VAE

__all__ = ["DecoderVAE", "GammaVAE", "GaussianVAE", "LogNormalVAE", "MeanDecodedGaussianVAE", "StudentTVAE"]

Array = NDArray[np.float64]


class DecoderVAE(NeuralBaseline):
    """The VAE of any `Decoder`: a class with the arguments ``latent_dim``, ``origin``, ``scale`` and ``generator``.

    ``hidden`` and ``zero_share`` reach the classes that take them; one that takes no ``zero_share`` cannot be fitted to
    columns with exact zeros. Every column starts where `Decoder.start_outputs` says.

    Args:
        decoder: The class, not an object of it.
        name: Label in tables; the name of the class with ``-VAE`` for ``Decoder`` when omitted.
        settings: As for `NeuralBaseline`.

    >>> x = np.random.default_rng(0).gamma(2.0, size=(100, 1))
    >>> model = DecoderVAE(GammaDecoder, epochs=1).fit(x)
    >>> model.name, model.sample(5, seed=0).shape
    ('Gamma-VAE', (5, 1))
    """

    model_: VAE

    def __init__(self, decoder: type[Decoder], *, name: str | None = None, **settings: Any) -> None:
        self.decoder = decoder
        self.name = name or f"{decoder.__name__.removesuffix('Decoder')}-VAE"
        super().__init__(**settings)
        if tuple(self.hidden) != defaults.HIDDEN and not self._takes("hidden"):
            raise ValueError(f"hidden = {self.hidden!r}: {decoder.__name__} does not take it; {_pass_on('hidden')}")

    def _takes(self, argument: str) -> bool:
        parameters = inspect.signature(self.decoder).parameters
        return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def _model(self, x: Array, scaler: PositiveScaler, latent_dim: int, generator: torch.Generator) -> VAE:
        if scaler.zero_share_.any() and not self._takes("zero_share"):
            column = int(scaler.zero_share_.argmax())
            raise ValueError(
                f"x[:, {column}] has {scaler.zero_share_[column]:.1%} zeros, and {self.decoder.__name__} takes no "
                f"zero_share; {_pass_on('zero_share')}"
            )
        encoder = self._encoder(x, scaler, latent_dim, generator)
        optional = {"hidden": self.hidden, "zero_share": torch.from_numpy(scaler.zero_share_)}
        arguments: dict[str, Any] = {
            "origin": torch.from_numpy(scaler.origin_),
            "scale": torch.from_numpy(scaler.scale_),
            "generator": generator,
            **{name: value for name, value in optional.items() if self._takes(name)},
        }
        decoder = self.decoder(latent_dim, **arguments)
        decoder.start_from([column[column > 0] for column in scaler.transform(x).T])
        return VAE(encoder, decoder, StandardNormal(latent_dim))


class GaussianVAE(DecoderVAE):
    """Gaussian decoder ``N(μ_j(z), σ_j²(z))`` with learned variances; new rows are draws from it.

    Kingma, Welling, "Auto-encoding variational Bayes" (2014). Its authors have no assumption on the data but that they
    are real numbers: the share of generated values below zero is part of the result.
    """

    name = "Gaussian VAE, sampled"

    def __init__(self, **settings: Any) -> None:
        super().__init__(GaussianDecoder, name=self.name, **settings)

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


class StudentTVAE(DecoderVAE):
    """Student decoder with location, scale and degrees of freedom of every column given by ``z``.

    Takahashi, Iwata, Yamanaka, Yamada, Yagi, "Student-t variational autoencoder for robust density estimation" (2018).
    The data are real numbers there: the share of generated values below zero is part of the result.
    """

    name = "Student-t VAE"

    def __init__(self, **settings: Any) -> None:
        super().__init__(StudentTDecoder, name=self.name, **settings)


class LogNormalVAE(DecoderVAE):
    """Lognormal decoder ``log X_j ~ N(μ_j(z), σ_j²(z))``: for positive data."""

    name = "LogNormal-VAE"

    def __init__(self, **settings: Any) -> None:
        super().__init__(LogNormalDecoder, name=self.name, **settings)


class GammaVAE(DecoderVAE):
    """Gamma decoder with shape and rate of every column given by ``z``: for positive data."""

    name = "Gamma-VAE"

    def __init__(self, **settings: Any) -> None:
        super().__init__(GammaDecoder, name=self.name, **settings)


def _pass_on(argument: str) -> str:
    return f"give the class an argument {argument} and pass it on to Decoder"
