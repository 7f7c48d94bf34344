"""The encoder: from what a row says of its cells to the law of its latent vector."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from phvae import defaults
from phvae.distributions.checks import Numbers, as_tensor
from phvae.layout import Layout
from phvae.networks import MLP
from phvae.observation import representative

__all__ = ["LOG_VARIANCE_BOUNDS", "GaussianEncoder", "posterior"]

# Bounds of the encoder's log-variance, part of the model.
LOG_VARIANCE_BOUNDS = (-30.0, 20.0)


class GaussianEncoder(nn.Module):
    """Diagonal normal posterior ``q(z | x)`` from the logarithm of the scaled values.

    With ``u = (x - origin) / scale`` each column gives the features ``asinh(u)`` and ``asinh(64 u)``: straight lines
    in ``log u`` for large ``u``, the second also down to a hundredth, both finite for every ``x``, zeros included. A
    cell that is no value is seen through one that stands for it, a missing one not at all: its features are 0. Where
    the layout says so, three flags per column follow: missing, censored from the right, somewhere in an interval; and
    where there are signed columns a fourth, censored from the left.

    Args:
        n_columns: Number of columns ``D``.
        latent_dim: Length ``d`` of the latent vector; with 0 there is no network.
        hidden: Widths of the hidden layers.
        origin: Lower end of each column, shape ``(D,)``.
        scale: Typical size of each column beyond its origin, shape ``(D,)``.
        layout: What the slices of a row are; its values alone when omitted.
        signed: Columns without a lower end, shape ``(D,)``; none when omitted.
        generator: Source of the first weights; the global one of torch when omitted.

    >>> encoder = GaussianEncoder(3, 2, origin=[0.0, 0.0, 1.0], scale=[1.0, 10.0, 1.0])
    >>> encoder(torch.ones(5, 3, dtype=torch.float64)).mean.shape
    torch.Size([5, 2])
    """

    RESOLUTIONS = (1.0, 64.0)
    N_FLAGS = 3
    origin: Tensor
    scale: Tensor
    signed: Tensor
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
        signed: Tensor | None = None,
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
        nothing = torch.zeros(n_columns, dtype=torch.bool)
        self.register_buffer("signed", nothing if signed is None else signed.clone(), persistent=False)
        # known without a look at the buffer, which may be on a device
        self.any_signed = bool(self.signed.any())
        n_features = len(self.RESOLUTIONS) * n_columns
        self.register_buffer("resolutions", torch.tensor(self.RESOLUTIONS, dtype=torch.float64)[:, None], False)
        self.register_buffer("feature_mean", torch.zeros(n_features, dtype=torch.float64))
        self.register_buffer("feature_deviation", torch.ones(n_features, dtype=torch.float64))
        n_flags = (self.N_FLAGS + self.any_signed) * n_columns if self.layout.flagged else 0
        n_inputs = n_features + n_flags + self.layout.n_covariates
        self.network = MLP(n_inputs, 2 * latent_dim, hidden=hidden, generator=generator) if latent_dim else None

    def _raw_features(self, x: Tensor) -> Tensor:
        signed = self.signed if self.any_signed else None
        scaled = (representative(x.double(), self.layout, self.origin, signed) - self.origin) / self.scale
        return (scaled[..., None, :] * self.resolutions).asinh().flatten(-2)

    def features(self, x: Tensor) -> Tensor:
        """What the network sees of rows of shape ``(..., width)``, with the mean and deviation of `standardise`."""
        features = (self._raw_features(x) - self.feature_mean) / self.feature_deviation
        if self.layout.intervals:
            missing = self.layout.missing(x)
            features = torch.where(self._of_features(missing), 0.0, features)
            if self.layout.flagged:
                right = (self.layout.upper(x) == torch.inf) & ~missing
                flags = [missing, right, ~(self.layout.exact(x) | missing | right)]
                if self.any_signed:
                    left = (self.layout.lower(x) == -torch.inf) & ~missing & self.signed
                    flags = [*flags[:2], flags[2] & ~left, left]
                features = torch.cat((features, torch.cat(flags, -1).to(features)), -1)
        return torch.cat((features, self.layout.covariates(x)), -1) if self.layout.n_covariates else features

    def _of_features(self, cells: Tensor) -> Tensor:
        """What is so of cells, ``(..., D)``, of the features that they give."""
        return cells.repeat(*(1,) * (cells.ndim - 1), len(self.RESOLUTIONS))

    def given(self, covariates: Tensor) -> "GaussianEncoder":
        """The encoder of rows without covariates, all of which have these, shape ``(n_covariates,)``."""
        held = copy.deepcopy(self)
        held.layout = replace(self.layout, n_covariates=0)
        held.network = None if self.network is None else self.network.given(covariates)
        return held

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

    def outputs(self, x: Tensor) -> Tensor:
        """Means and log-variances of the posterior of rows side by side, shape ``x.shape[:-1] + (2 latent_dim,)``."""
        if self.network is None:
            return x.new_empty((*x.shape[:-1], 0), dtype=torch.float32)
        return self.network.forward(self.features(x).to(self.network.head.weight.dtype))

    def forward(self, x: Tensor) -> Normal:
        """Posterior of the rows of ``x``, batch shape ``x.shape[:-1] + (latent_dim,)``."""
        return posterior(self.outputs(x))


def posterior(outputs: Tensor) -> Normal:
    """The diagonal normal law of means and log-variances side by side; the latter within their bounds."""
    mean, log_variance = outputs.chunk(2, -1)
    return Normal(mean, (log_variance.clamp(*LOG_VARIANCE_BOUNDS) / 2).exp(), validate_args=False)
