"""The variational autoencoder: an encoder, a decoder and a prior, and the bounds they give together."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from phvae import defaults
from phvae.decoders import Decoder
from phvae.distributions.checks import Numbers, as_tensor
from phvae.layout import Layout
from phvae.networks import MLP
from phvae.observation import log_likelihood, representative
from phvae.priors import Prior, divergence_per_dimension

__all__ = ["VAE", "GaussianEncoder", "GenerativeModel", "Terms"]

# Bounds of the encoder's log-variance, part of the model.
LOG_VARIANCE_BOUNDS = (-30.0, 20.0)
# Laws that are held at once by `VAE.log_likelihood` and `VAE.reconstruct`.
CHUNK = 65_536
# Rows of a batch whose laws stand for all in the penalty on roughness; it varies far less than the likelihood does.
ROUGHNESS_ROWS = 64


class GaussianEncoder(nn.Module):
    """Diagonal normal posterior ``q(z | x)`` from the logarithm of the scaled values.

    With ``u = (x - origin) / scale`` each column gives the features ``asinh(u)`` and ``asinh(64 u)``: straight lines
    in ``log u`` for large ``u``, the second also down to a hundredth, both finite for every ``x``, zeros included. A
    cell that is no value is seen through one that stands for it, a missing one not at all: its features are 0. Where
    the layout says so, three flags per column follow: missing, censored from the right, somewhere in an interval.

    Args:
        n_columns: Number of columns ``D``.
        latent_dim: Length ``d`` of the latent vector; with 0 there is no network.
        hidden: Widths of the hidden layers.
        origin: Lower end of each column, shape ``(D,)``.
        scale: Typical size of each column beyond its origin, shape ``(D,)``.
        layout: What the slices of a row are; its values alone when omitted.
        generator: Source of the first weights; the global one of torch when omitted.

    >>> encoder = GaussianEncoder(3, 2, origin=[0.0, 0.0, 1.0], scale=[1.0, 10.0, 1.0])
    >>> encoder(torch.ones(5, 3, dtype=torch.float64)).mean.shape
    torch.Size([5, 2])
    """

    RESOLUTIONS = (1.0, 64.0)
    N_FLAGS = 3
    origin: Tensor
    scale: Tensor
    feature_mean: Tensor
    feature_deviation: Tensor
    resolutions: Tensor

    def __init__(
        self,
        n_columns: int,
        latent_dim: int,
        *,
        origin: Numbers,
        scale: Numbers,
        hidden: Sequence[int] = defaults.HIDDEN,
        layout: Layout | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_columns, self.latent_dim = n_columns, latent_dim
        self.layout = Layout(n_columns) if layout is None else layout
        if self.layout.n_columns != n_columns:
            raise ValueError(f"the layout is one of {self.layout.n_columns} columns and the encoder has {n_columns}")
        self.register_buffer("origin", as_tensor("origin", origin).double().clone())
        self.register_buffer("scale", as_tensor("scale", scale).double().clone())
        if self.origin.shape != (n_columns,) or self.scale.shape != (n_columns,):
            shapes = f"origin {tuple(self.origin.shape)} and scale {tuple(self.scale.shape)}"
            raise ValueError(f"{shapes}: give one number for each of the {n_columns} columns")
        n_features = len(self.RESOLUTIONS) * n_columns
        self.register_buffer("resolutions", torch.tensor(self.RESOLUTIONS, dtype=torch.float64)[:, None], False)
        self.register_buffer("feature_mean", torch.zeros(n_features, dtype=torch.float64))
        self.register_buffer("feature_deviation", torch.ones(n_features, dtype=torch.float64))
        n_inputs = n_features + (self.N_FLAGS * n_columns if self.layout.flagged else 0)
        self.network = MLP(n_inputs, 2 * latent_dim, hidden=hidden, generator=generator) if latent_dim else None

    def _raw_features(self, x: Tensor) -> Tensor:
        scaled = (representative(x.double(), self.layout, self.origin) - self.origin) / self.scale
        return (scaled[..., None, :] * self.resolutions).asinh().flatten(-2)

    def features(self, x: Tensor) -> Tensor:
        """What the network sees of rows of shape ``(..., width)``, with the mean and deviation of `standardise`."""
        features = (self._raw_features(x) - self.feature_mean) / self.feature_deviation
        if not self.layout.intervals:
            return features
        missing = self.layout.missing(x)
        features = torch.where(self._of_features(missing), 0.0, features)
        if not self.layout.flagged:
            return features
        right = (self.layout.upper(x) == torch.inf) & ~missing
        flags = torch.cat((missing, right, ~(self.layout.exact(x) | missing | right)), -1)
        return torch.cat((features, flags.to(features)), -1)

    def _of_features(self, cells: Tensor) -> Tensor:
        """What is so of cells, ``(..., D)``, of the features that they give."""
        return cells.repeat(*(1,) * (cells.ndim - 1), len(self.RESOLUTIONS))

    def standardise(self, x: Tensor, weights: Tensor | None = None) -> None:
        """Set the mean and deviation of the features to those of ``x``, the rows to train on.

        Args:
            x: Rows, shape ``(n, width)``.
            weights: Their weights, shape ``(n,)``.
        """
        raw = self._raw_features(x)
        if self.layout.intervals:
            # over the cells that are there
            mass = (~self._of_features(self.layout.missing(x))).double()
            mass = mass if weights is None else mass * weights.double()[:, None]
            total = mass.sum(0)
            total = torch.where(total > 0, total, 1.0)
            mean = (mass * raw).sum(0) / total
            deviation = ((mass * (raw - mean).square()).sum(0) / total).sqrt()
        elif weights is None:
            mean, deviation = raw.mean(0), raw.std(0, correction=0)
        else:
            shares = weights.double() / weights.sum()
            mean = shares @ raw
            deviation = (shares @ (raw - mean).square()).sqrt()
        self.feature_mean.copy_(mean)
        # a constant column says nothing; its feature stays at zero
        self.feature_deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, x: Tensor) -> Normal:
        """Posterior of the rows of ``x``, batch shape ``x.shape[:-1] + (latent_dim,)``."""
        if self.network is None:
            nothing = x.new_empty((*x.shape[:-1], 0), dtype=torch.float32)
            return Normal(nothing, nothing, validate_args=False)
        mean, log_variance = self.network(self.features(x).to(self.network.head.weight.dtype)).chunk(2, -1)
        return Normal(mean, (log_variance.clamp(*LOG_VARIANCE_BOUNDS) / 2).exp(), validate_args=False)


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

    Args:
        encoder: ``x -> q(z | x)``.
        decoder: ``z -> p(x | z)``.
        prior: ``p(z)``.

    >>> from phvae.decoders import PhaseTypeDecoder
    >>> from phvae.priors import StandardNormal
    >>> units = {"origin": [0.0], "scale": [1.0]}
    >>> model = VAE(GaussianEncoder(1, 2, **units), PhaseTypeDecoder(2, **units), StandardNormal(2))
    >>> model.elbo(torch.tensor([[0.5], [30.0]])).shape
    torch.Size([2])
    """

    def __init__(self, encoder: GaussianEncoder, decoder: Decoder, prior: Prior) -> None:
        super().__init__()
        sizes = {"encoder": encoder.latent_dim, "decoder": decoder.latent_dim, "prior": prior.latent_dim}
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
        return self.decoder.capturable and not self.layout.intervals and not self.layout.truncated

    @property
    def latent_dim(self) -> int:
        """Length of the latent vector."""
        return self.prior.latent_dim

    def posterior(self, x: Tensor) -> Normal:
        """Approximate posterior of the latent vector given rows of shape ``(n, width)``."""
        posterior: Normal = self.encoder(x)
        return posterior

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
        posterior = self.posterior(x)
        # the common case of one draw goes without an axis to average over
        z = _draws(posterior, () if n_samples == 1 else (n_samples,), generator, part)
        outputs = self.decoder.outputs(z)
        fit = _row_mean(log_likelihood(self.decoder.law(outputs), x, self.layout))
        kl = _row_mean(self.prior.divergence(posterior, z).double())
        few = outputs[..., : ROUGHNESS_ROWS if part is None else max(0, ROUGHNESS_ROWS - part[0]), :, :]
        rough = penalty and few.shape[-3] > 0
        roughness = self.decoder.roughness(few) if rough else fit.new_zeros(self.n_columns)
        if part is not None:
            roughness = roughness * (few.shape[-3] / min(ROUGHNESS_ROWS, part[1]))
        return Terms(fit, kl, roughness)

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
        posterior = self.posterior(x)
        at_once = max(1, CHUNK // max(1, len(x)))
        totals = []
        for first in range(0, n_importance, at_once):
            z = _draws(posterior, (min(at_once, n_importance - first),), generator)
            log_ratio = self.prior.log_prob(z) - posterior.log_prob(z).sum(-1)
            fit = log_likelihood(self.decoder(z), x, self.layout)
            totals.append(torch.logsumexp(fit + log_ratio, 0))
        return torch.logsumexp(torch.stack(totals), 0) - math.log(n_importance)

    @torch.no_grad()
    def generate(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draws of new rows, shape ``(n, D)``: a latent point from the prior, then a draw from its law."""
        draws: Tensor = self.decoder(self.prior.sample(n, generator)).base_dist.sample((), generator=generator)
        return draws

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
        posterior = self.posterior(x)
        if sample:
            draws: Tensor = self.decoder(_draws(posterior, (), generator)).base_dist.sample((), generator=generator)
            return draws
        if n_samples < 1:
            raise ValueError(f"n_samples = {n_samples!r}; give at least one draw per row")
        at_once = max(1, CHUNK // max(1, len(x)))
        total = x.new_zeros((len(x), self.n_columns), dtype=torch.float64)
        for first in range(0, n_samples, at_once):
            total += self.decoder(_draws(posterior, (min(at_once, n_samples - first),), generator)).mean.sum(0)
        return total / n_samples

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


def _draws(
    posterior: Normal, leading: tuple[int, ...], generator: torch.Generator | None, part: tuple[int, int] | None = None
) -> Tensor:
    """Reparameterised draws ``mean + deviation · noise``, shape ``leading + (n, latent_dim)``; `part` as in `terms`."""
    mean = posterior.loc
    first, total = (0, len(mean)) if part is None else part
    shape = (*leading, total, mean.shape[-1])
    noise = torch.randn(shape, dtype=mean.dtype, device=mean.device, generator=generator)
    return mean + posterior.scale * noise[..., first : first + len(mean), :]
