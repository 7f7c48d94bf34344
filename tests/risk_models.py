"""Models whose latent vector matters, made without training: what the tail answers are tested on."""

from functools import cache

import numpy as np
import torch

from phvae import PHVAE
from phvae.risk.sources import Fitted

ROWS = 400


@cache
def table():
    """Rows of three columns with heavy tails; the last one is exactly zero in four of ten rows."""
    rng = np.random.default_rng(0)
    common = np.exp(0.5 * rng.standard_normal((ROWS, 1)))
    x = common * (1 + rng.pareto(2.5, (ROWS, 3)))
    x[rng.random(ROWS) < 0.4, 2] = 0.0
    return x


@cache
def model(latent_dim=2, seed=0):
    """A model of `table` whose laws change with the latent vector by about a factor three; fitted to no dependence."""
    fitted = PHVAE(n_phases=5, latent_dim=latent_dim, hidden=(8,), epochs=0, random_state=seed).fit(table())
    if latent_dim:
        decoder = fitted.vae_.decoder
        head = decoder.network.head
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            rough = 0.2 * torch.randn(head.weight.shape, generator=generator)
            # one direction moves all columns together: every rate of every column slower with the first hidden unit
            rates = torch.zeros(decoder.n_columns, decoder.width)
            rates[:, decoder.n_phases : 2 * decoder.n_phases] = 3.0
            head.weight.copy_(rough)
            head.weight[:, 0] += rates.flatten()
    return fitted


def exact(function, latent_dim=1, reach=9.0, nodes=6001):
    """The mean of a function of latent points over a standard normal law of one dimension, by the trapezoid rule."""
    assert latent_dim == 1
    z = torch.linspace(-reach, reach, nodes, dtype=torch.float64)
    weight = torch.exp(-z.square() / 2) / (2 * torch.pi) ** 0.5 * (z[1] - z[0])
    with torch.no_grad():
        values = function(z[:, None])
    return (weight.reshape(-1, *[1] * (values.ndim - 1)) * values).sum(0)


def inside(fitted_model):
    """What a model gives to its answers."""
    return Fitted.of(fitted_model)
