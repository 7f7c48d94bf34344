"""The variational autoencoder: an encoder, a decoder and a prior, and the bounds they give together."""

import copy
import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from phvae import defaults
from phvae.decoders import Decoder
from phvae.distributions.tails import drawn
from phvae.encoders import GaussianEncoder
from phvae.layout import Layout
from phvae.observation import log_likelihood
from phvae.priors import ConditionalPrior, Prior, divergence_per_dimension
from phvae.truncation import POINTS, log_acceptance

__all__ = ["VAE", "GaussianEncoder", "GenerativeModel", "Terms"]

# Laws that are held at once by `VAE.log_likelihood` and `VAE.reconstruct`.
CHUNK = 65_536
# Rows that `VAE.generate` draws at once, where columns are many.
ROWS = 4096
# Rows of a batch whose laws stand for all in the penalty on roughness; it varies far less than the likelihood does.
ROUGHNESS_ROWS = 64


class Terms(NamedTuple):
    """What a loss is made of: two terms per row, shape ``(n,)``, and one penalty per column, shape ``(D,)``."""

    log_likelihood: Tensor
    kl: Tensor
    roughness: Tensor


class GenerativeModel(nn.Module, ABC):
    """A law of rows that `phvae.training.train` can learn: parameters, the terms of an objective, and draws."""

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """Number of columns of a row."""

    @property
    def layout(self) -> Layout:
        """What the slices of a row are."""
        return Layout(self.n_columns)

    @property
    def capturable(self) -> bool:
        """Whether no step of `terms` on a GPU looks at a number, so that a graph can be made of it."""
        return False

    @abstractmethod
    def terms(
        self, x: Tensor, *, generator: torch.Generator | None = None, n_samples: int = 1, penalty: bool = False
    ) -> Terms:
        """What the loss is made of, in float64.

        Args:
            x: Rows, shape ``(n, width)`` of the layout.
            generator: Source of the noise; the global one of torch when omitted.
            n_samples: Draws of latent variables per row.
            penalty: Also give the roughness; otherwise that is 0.
        """

    @abstractmethod
    def generate(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draws of new rows, shape ``(n, D)``."""

    def elbo_terms(
        self, x: Tensor, *, generator: torch.Generator | None = None, n_samples: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Expected log-likelihood and divergence per row, the two terms of `elbo`; arguments as there."""
        return self.terms(x, generator=generator, n_samples=n_samples)[:2]

    def elbo(
        self, x: Tensor, *, beta: float = 1.0, generator: torch.Generator | None = None, n_samples: int = 1
    ) -> Tensor:
        """``E_q[log p(x | z)] - beta KL[q(z | x) || p(z)]`` per row: for ``beta = 1`` a lower bound of ``log p(x)``.

        Args:
            x: Rows, shape ``(n, D)``.
            beta: Weight of the divergence.
            generator: Source of the noise; the global one of torch when omitted.
            n_samples: Draws from the posterior per row.

        Returns:
            Unbiased estimate of the bound, float64, shape ``(n,)``.
        """
        log_likelihood, kl = self.elbo_terms(x, generator=generator, n_samples=n_samples)
        return log_likelihood - beta * kl


class VAE(GenerativeModel):
    """``p(x) = ∫ p(x | z) p(z) dz`` with an approximate posterior ``q(z | x)``. Likelihoods are in the units of ``x``.

    With covariates ``c``, the last ``n_covariates`` numbers of every row, all three are conditioned on them:
    ``p(x | c) = ∫ p(x | z, c) p(z | c) dz``. The decoder is then one of ``(z, c)``; `given` is the model of one ``c``.

    The likelihood of a row that is seen only within bounds is ``p(x) / P(a row lies within them)``. The posterior of
    its ``z`` is that of any other row, for the divisor does not depend on ``z``.

    Args:
        encoder: ``x -> q(z | x)``, or ``(x, c) -> q(z | x, c)``.
        decoder: ``z -> p(x | z)``, or ``(z, c) -> p(x | z, c)``.
        prior: ``p(z)``, or ``c -> p(z | c)``.

    >>> from phvae.decoders import PhaseTypeDecoder
    >>> from phvae.priors import StandardNormal
    >>> units = {"origin": [0.0], "scale": [1.0]}
    >>> model = VAE(GaussianEncoder(1, 2, **units), PhaseTypeDecoder(2, **units), StandardNormal(2))
    >>> x = torch.tensor([[0.5], [30.0]])
    >>> model.elbo(x).shape, model.log_likelihood(x).shape, model.reconstruct(x).shape
    (torch.Size([2]), torch.Size([2]), torch.Size([2, 1]))
    >>> model.kl_per_dimension(x).shape, model.active_units(x).shape
    (torch.Size([2]), torch.Size([2]))
    """

    def __init__(self, encoder: GaussianEncoder, decoder: Decoder, prior: Prior) -> None:
        super().__init__()
        latent_dim = decoder.latent_dim - encoder.layout.n_covariates
        sizes = {"encoder": encoder.latent_dim, "decoder": latent_dim, "prior": prior.latent_dim}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"latent_dim differs: {sizes}; give the three parts the same")
        if encoder.n_columns != decoder.n_columns:
            raise ValueError(f"the encoder has {encoder.n_columns} columns and the decoder {decoder.n_columns}")
        self.encoder, self.decoder, self.prior = encoder, decoder, prior

    @property
    def n_columns(self) -> int:
        """Number of columns of a row."""
        return self.decoder.n_columns

    @property
    def layout(self) -> Layout:
        """What the slices of a row are; the encoder holds it."""
        return self.encoder.layout

    @property
    def capturable(self) -> bool:
        """Whether the likelihood on a GPU looks at no number, so that a graph can be made of a step."""
        return self.decoder.capturable and not self.layout.partial

    @property
    def latent_dim(self) -> int:
        """Length of the latent vector."""
        return self.prior.latent_dim

    def posterior(self, x: Tensor) -> Normal:
        """Approximate posterior of the latent vector given rows of shape ``(n, width)``."""
        posterior: Normal = self.encoder(x)
        return posterior

    def prior_given(self, covariates: Tensor) -> Prior:
        """Law of the latent vector of rows with these covariates, shape ``(n, n_covariates)``."""
        return self.prior.given(covariates) if isinstance(self.prior, ConditionalPrior) else self.prior

    def beside(self, z: Tensor, covariates: Tensor) -> Tensor:
        """What the decoder is asked at: latent points ``(..., n, latent_dim)`` beside the covariates of the rows."""
        if not self.layout.n_covariates:
            return z
        return torch.cat((z, covariates.expand(*z.shape[:-1], covariates.shape[-1])), -1)

    @torch.no_grad()
    def given(self, covariates: Tensor) -> "VAE":
        """The model of rows that all have these covariates: one without any, to which every question can be put.

        Args:
            covariates: One row, shape ``(n_covariates,)``.
        """
        decoder = copy.deepcopy(self.decoder)
        c = covariates.to(decoder.scale)
        decoder.network = decoder.network.given(c)
        decoder.latent_dim = self.latent_dim
        prior = self.prior.at(c) if isinstance(self.prior, ConditionalPrior) else copy.deepcopy(self.prior)
        return VAE(self.encoder.given(c), decoder, prior)

    def terms(
        self,
        x: Tensor,
        *,
        generator: torch.Generator | None = None,
        n_samples: int = 1,
        penalty: bool = False,
        part: tuple[int, int] | None = None,
    ) -> Terms:
        """The parts of the bound, in float64, from one pass through the networks.

        Args:
            x: Rows, shape ``(n, D)``.
            generator: Source of the noise; the global one of torch when omitted.
            n_samples: Draws from the posterior per row.
            penalty: Also ask the decoder for its roughness, at the first rows; otherwise that is 0.
            part: Where the rows are only those from ``part[0]`` on of a batch of ``part[1]``: they get the noise that
                they would get in the whole batch, and a roughness of which the sum over all parts is that of the batch.

        Returns:
            ``E_q[log p(x | z)]`` and ``KL[q(z | x) || p(z)]``, ``(n,)`` each; the decoder's roughness, ``(D,)``.
        """
        encoded, c = self.encoder.outputs(x), self.layout.covariates(x)
        # the common case of one draw goes without an axis to average over
        leading = () if n_samples == 1 else (n_samples,)
        noise = _noise(encoded, (*leading, len(x), self.latent_dim), generator, part)
        z, divergence = self.prior_given(c).draw(encoded, noise)
        outputs = self.decoder.outputs(self.beside(z, c))
        fit = _row_mean(log_likelihood(self.decoder.law(outputs), x, self.layout))
        if self.layout.truncated:
            fit = fit - self.log_acceptance(x, generator=generator)
        kl = _row_mean(divergence.double())
        return Terms(fit, kl, self._roughness(outputs, part) if penalty else fit.new_zeros(self.n_columns))

    def _roughness(self, outputs: Tensor, part: tuple[int, int] | None) -> Tensor:
        """The decoder's roughness at the first rows of a batch, shape ``(D,)``; `part` as in `terms`."""
        few = outputs[..., : ROUGHNESS_ROWS if part is None else max(0, ROUGHNESS_ROWS - part[0]), :, :]
        if not few.shape[-3]:
            return outputs.new_zeros(self.n_columns, dtype=torch.float64)
        roughness = self.decoder.roughness(few)
        return roughness if part is None else roughness * (few.shape[-3] / min(ROUGHNESS_ROWS, part[1]))

    def log_likelihood(
        self, x: Tensor, *, n_importance: int = defaults.N_IMPORTANCE, generator: torch.Generator | None = None
    ) -> Tensor:
        """Importance-weighted estimate of ``log p(x)`` per row; in the mean a lower bound, tight for large ``K``.

        ``log (1/K) Σ_k p(x | z_k) p(z_k) / q(z_k | x)`` with ``K`` draws ``z_k`` from the posterior.

        Args:
            x: Rows, shape ``(n, D)``.
            n_importance: Number ``K`` of draws per row.
            generator: Source of the noise; the global one of torch when omitted.

        Returns:
            Float64, shape ``(n,)``.
        """
        if n_importance < 1:
            raise ValueError(f"n_importance = {n_importance!r}; give at least one draw per row")
        if not self.latent_dim:
            return self.elbo(x)
        posterior, c = self.posterior(x), self.layout.covariates(x)
        prior = self.prior_given(c)
        at_once = self._draws_at_once(len(x))
        totals = []
        for first in range(0, n_importance, at_once):
            z = _draws(posterior, (min(at_once, n_importance - first),), generator)
            log_ratio = prior.log_prob(z) - posterior.log_prob(z).sum(-1)
            fit = log_likelihood(self.decoder(self.beside(z, c)), x, self.layout)
            totals.append(torch.logsumexp(fit + log_ratio, 0))
        estimate = torch.logsumexp(torch.stack(totals), 0) - math.log(n_importance)
        return estimate - self.log_acceptance(x, generator=generator) if self.layout.truncated else estimate

    def log_acceptance(self, x: Tensor, *, n_points: int = POINTS, generator: torch.Generator | None = None) -> Tensor:
        """Log of the probability that a row lies within the bounds of each row; see `phvae.truncation`."""
        return log_acceptance(self, x, n_points=n_points, generator=generator)

    @torch.no_grad()
    def generate(self, n: int, *, covariates: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Draws of new rows, shape ``(n, D)``: a latent point from the prior, then a draw from its law.

        Args:
            n: Number of rows.
            covariates: Those of the rows, shape ``(n, n_covariates)``, for a model that has any.
            generator: Source of the noise; the global one of torch when omitted.
        """
        c = torch.zeros(n, 0) if covariates is None else covariates
        z = self.beside(self.prior_given(c).sample(n, generator), c)
        # a usual table at once, as ever; one with many columns in parts that fit into memory
        at_once = max(1, n) if self.n_columns <= defaults.MANY_COLUMNS else defaults.rows_at_once(ROWS, self.n_columns)
        parts = [drawn(self.decoder(part).base_dist, (), generator) for part in z.split(at_once)]
        return torch.cat(parts)

    @torch.no_grad()
    def reconstruct(
        self, x: Tensor, *, sample: bool = False, n_samples: int = 32, generator: torch.Generator | None = None
    ) -> Tensor:
        """Rows as the model sees them, shape ``(n, D)``.

        Args:
            x: Rows, shape ``(n, D)``.
            sample: Draw each row once from the decoder, instead of averaging the decoder's means.
            n_samples: Draws from the posterior to average over.
            generator: Source of the noise; the global one of torch when omitted.
        """
        posterior, c = self.posterior(x), self.layout.covariates(x)
        if sample:
            z = self.beside(_draws(posterior, (), generator), c)
            return drawn(self.decoder(z).base_dist, (), generator)
        if n_samples < 1:
            raise ValueError(f"n_samples = {n_samples!r}; give at least one draw per row")
        at_once = self._draws_at_once(len(x))
        total = x.new_zeros((len(x), self.n_columns), dtype=torch.float64)
        for first in range(0, n_samples, at_once):
            z = _draws(posterior, (min(at_once, n_samples - first),), generator)
            total += self.decoder(self.beside(z, c)).mean.sum(0)
        return total / n_samples

    def _draws_at_once(self, n_rows: int) -> int:
        """Draws per row whose laws are held at once."""
        return max(1, CHUNK // max(1, n_rows * max(1, self.n_columns // defaults.MANY_COLUMNS)))

    @torch.no_grad()
    def kl_per_dimension(self, x: Tensor) -> Tensor:
        """Mean over rows of the divergence of each latent entry from a standard normal one, shape ``(latent_dim,)``."""
        return divergence_per_dimension(self.posterior(x)).double().mean(0)

    @torch.no_grad()
    def active_units(self, x: Tensor, *, threshold: float = 0.01) -> Tensor:
        """Which latent entries are used: the variance of their posterior mean over rows exceeds ``threshold``.

        Burda, Grosse, Salakhutdinov, "Importance weighted autoencoders" (2016), appendix C.

        Returns:
            Boolean tensor, shape ``(latent_dim,)``.
        """
        means = self.posterior(x).mean.double()
        return (means - means.mean(0)).square().mean(0) > threshold


def _row_mean(values: Tensor) -> Tensor:
    """Mean over draws of values of shape ``(n,)`` or ``(draws, n)``."""
    return values if values.ndim == 1 else values.mean(0)


def _draws(posterior: Normal, leading: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Reparameterised draws ``mean + deviation · noise``, shape ``leading + (n, latent_dim)``."""
    mean = posterior.loc
    return torch.addcmul(mean, posterior.scale, _noise(mean, (*leading, *mean.shape), generator))


def _noise(
    like: Tensor, shape: tuple[int, ...], generator: torch.Generator | None, part: tuple[int, int] | None = None
) -> Tensor:
    """Standard normal numbers of the type of a tensor, shape ``(..., n, latent_dim)``; `part` as in `terms`."""
    if part is None:
        return torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
    *leading, n, latent_dim = shape
    first, total = part
    return _noise(like, (*leading, total, latent_dim), generator)[..., first : first + n, :]
