"""Mixtures of normal laws on latent space: the prior written as one, and proposals fitted toward an event."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from phvae.priors import MixturePrior, Prior, StandardNormal

__all__ = ["NormalMixture"]

_LOG_TWO_PI = math.log(2 * math.pi)
# A proposal is fitted to a finite sample of an event; with this factor on its variance it covers what that missed.
INFLATION = 1.5
# Below this many effective points per number to fit, the covariance is shrunk toward that of the starting law.
POINTS_PER_NUMBER = 5


class NormalMixture(NamedTuple):
    """``Σ_k weight_k N(mean_k, factor_k factor_kᵀ)`` on ``d`` dimensions, in float64.

    Args:
        weights: Shape ``(K,)``, sum one.
        means: Shape ``(K, d)``.
        factors: Lower triangular, shape ``(K, d, d)``.

    >>> law = NormalMixture.of_prior(StandardNormal(2))
    >>> law.log_density(torch.zeros(1, 2, dtype=torch.float64))
    tensor([-1.8379], dtype=torch.float64)
    """

    weights: Tensor
    means: Tensor
    factors: Tensor

    @classmethod
    def of_prior(cls, prior: Prior) -> Self:
        """The prior of a model."""
        if isinstance(prior, MixturePrior):
            scales = prior.log_scales.detach().double().exp()
            return cls(prior.logits.detach().double().softmax(-1), prior.means.detach().double(), scales.diag_embed())
        if isinstance(prior, StandardNormal):
            d = prior.latent_dim
            unit = torch.eye(d, dtype=torch.float64)[None]
            return cls(torch.ones(1, dtype=torch.float64), torch.zeros(1, d, dtype=torch.float64), unit)
        raise TypeError(f"a prior of type {type(prior).__name__} is no mixture of normal laws; write it as one here")

    @classmethod
    def blend(cls, parts: Sequence[tuple[float, "NormalMixture"]]) -> Self:
        """Mixture of mixtures with the given shares, which are made to sum to one."""
        total = sum(share for share, _ in parts)
        weights = torch.cat([part.weights * (share / total) for share, part in parts])
        means, factors = (torch.cat([part[field] for _, part in parts]) for field in (1, 2))
        return cls(weights, means, factors)

    @classmethod
    def around(cls, z: Tensor, weights: Tensor) -> Self:
        """One normal law with the moments of weighted points, widened; where the points are few it stays round.

        Args:
            z: Points, shape ``(n, d)``.
            weights: Their weights, shape ``(n,)``, sum one.
        """
        d = z.shape[1]
        mean = weights @ z
        offset = z - mean
        covariance = offset.T @ (weights[:, None] * offset)
        effective = 1 / float(weights.square().sum())
        kept = min(1.0, effective / (POINTS_PER_NUMBER * d))
        unit = torch.eye(d, dtype=z.dtype)
        factor = torch.linalg.cholesky(INFLATION * (kept * covariance + (1 - kept) * unit) + 1e-6 * unit)
        return cls(torch.ones(1, dtype=z.dtype), mean[None], factor[None])

    def place(self, uniform: Tensor) -> Tensor:
        """Points of the law from points of the unit cube in ``d + 1`` dimensions; the first picks the part."""
        steps = self.weights.cumsum(0)
        part = torch.searchsorted(steps[:-1].contiguous(), uniform[:, 0].contiguous(), right=True)
        normal: Tensor = torch.special.ndtri(uniform[:, 1:])
        return self.means[part] + (self.factors[part] @ normal[:, :, None])[:, :, 0]

    def log_density(self, z: Tensor) -> Tensor:
        """Log density at points ``(n, d)``, shape ``(n,)``."""
        d = z.shape[-1]
        total = torch.full(z.shape[:1], -torch.inf, dtype=z.dtype)
        for weight, mean, factor in zip(self.weights, self.means, self.factors, strict=True):
            standardised = torch.linalg.solve_triangular(factor, (z - mean).T, upper=False)
            log_part = (
                weight.log() - factor.diagonal().log().sum() - (standardised.square().sum(0) + d * _LOG_TWO_PI) / 2
            )
            total = torch.logaddexp(total, log_part)
        return total
