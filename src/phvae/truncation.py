"""Rows that are in a table only because they lie within bounds: the probability that a row does."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from phvae.vae import VAE

__all__ = ["POINTS", "log_acceptance"]

# Latent points that stand for the prior in a step of training, and pairs of bounds and points evaluated at once.
POINTS = 256
CHUNK = 2**18


def log_acceptance(
    vae: "VAE", x: Tensor, *, n_points: int = POINTS, generator: torch.Generator | None = None
) -> Tensor:
    """Log of ``P(entry < X <= exit) = ∫ Π_j P_j(entry_j < X_j <= exit_j | z) p(z) dz`` for the bounds of every row.

    The integral is a mean over points drawn from the prior. Rows with equal bounds share the work, and without
    covariates all rows share the points. The mean is unbiased; its logarithm is too low by
    ``Var / (2 n_points P²)`` on average, where ``Var`` is that of the probability given ``z``: by at most
    ``(1 / P - 1) / (2 n_points)``. Without latent dimensions one point is exact.

    Args:
        vae: Model of the rows; gradients reach its prior through the weights of the points.
        x: Rows, shape ``(n, width)`` of its layout.
        n_points: Number of points.
        generator: Source of the points; the global one of torch when omitted.

    Returns:
        Float64, shape ``(n,)``.
    """
    layout, d = vae.layout, vae.n_columns
    entries, exits, c = layout.entries(x), layout.exits(x), layout.covariates(x)
    first = torch.full_like(x[:, :d], -torch.inf) if entries is None else entries
    last = torch.full_like(x[:, :d], torch.inf) if exits is None else exits
    distinct, place = torch.unique(torch.cat((first, last, c), 1), dim=0, return_inverse=True)
    first, last, c = distinct[:, :d].double(), distinct[:, d : 2 * d].double(), distinct[:, 2 * d :]
    bounded = ((first > -torch.inf) | (last < torch.inf)).any(0).nonzero()[:, 0].tolist()
    count = n_points if vae.latent_dim else 1
    shared = None if layout.n_covariates else _points(vae, c[:1].expand(count, -1), generator)
    parts = []
    for some in torch.arange(len(distinct), device=x.device).split(max(1, CHUNK // count)):
        if shared is None:
            inputs, log_weight = _points(vae, c[some].repeat(count, 1), generator)
        else:
            inputs, log_weight = shared
        # points (count, 1) for all bounds, or (count, bounds)
        log_chance = log_weight.view(count, -1)
        for j in bounded:
            law = vae.decoder.column(inputs.view(count, len(inputs) // count, inputs.shape[-1]), j)
            log_chance = log_chance + law.log_interval(first[some, j, None], last[some, j, None])[..., 0]
        parts.append(torch.logsumexp(log_chance, 0) - math.log(count))
    return torch.cat(parts)[place]


def _points(vae: "VAE", c: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Where the decoder is asked, one draw from the prior for each row of covariates, and logs of weights."""
    prior = vae.prior_given(c)
    z = prior.sample(len(c), generator).detach()
    log_density = prior.log_prob(z).double()
    # zero, but not its gradient: points that the prior makes likelier count more
    return vae.beside(z, c), log_density - log_density.detach()
