"""Models of signed columns whose latent vector matters, made without training."""

from functools import cache

import numpy as np
import torch

from phvae import PHVAE

ROWS = 500
NAMES = ["bond", "stock"]


@cache
def returns():
    """Rows of two signed columns with different tails on either side; one row in five of the second is exactly zero."""
    rng = np.random.default_rng(1)
    gains, losses = rng.pareto(3.0, (ROWS, 2)), 1.5 * rng.gamma(0.7, size=(ROWS, 2))
    x = 0.01 * np.where(rng.random((ROWS, 2)) < 0.45, -losses, gains)
    x[rng.random(ROWS) < 0.2, 1] = 0.0
    return x


BESIDE = ("lower", "upper", "censored", "entry", "exit")


def fit(x, **changes):
    """A model at the start laws of its columns, unless told otherwise; ends and bounds of cells are for its fit."""
    beside = {name: changes.pop(name) for name in BESIDE if name in changes}
    settings = {"support": "real", "n_phases": 4, "latent_dim": 0, "hidden": (8,), "epochs": 0, "random_state": 0}
    return PHVAE(**{**settings, **changes}).fit(x, **beside)


@cache
def model(latent_dim=1):
    """A model of `returns` whose laws, odds of a loss and of a zero change with the latent vector."""
    fitted = fit(returns(), latent_dim=latent_dim)
    if latent_dim:
        decoder = fitted.vae_.decoder
        head = decoder.network.head
        generator = torch.Generator().manual_seed(0)
        m = decoder.n_phases
        with torch.no_grad():
            head.weight.copy_(0.3 * torch.randn(head.weight.shape, generator=generator))
            # one direction moves both sides of all columns together: slower rates with the first hidden unit
            rates = torch.zeros(decoder.n_columns, decoder.width)
            rates[:, m : 2 * m] = rates[:, 3 * m : 4 * m] = 2.0
            head.weight[:, 0] += rates.flatten()
    return fitted
