"""`PHVAE` with the face of the models it is compared with; as one model, and as one per column."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phvae.baselines.baseline import Baseline
from phvae.estimator import PHVAE
from phvae.settings import resolve

__all__ = ["IndependentPhaseTypeVAEs", "PaperPhaseTypeVAE", "PhaseTypeVAE"]

Array = NDArray[np.float64]

# Draws from the posterior per held-out row when settings are compared.
DRAWS = 8


class PhaseTypeVAE(Baseline):
    """`PHVAE` with its defaults.

    Args:
        settings: Settings of `PHVAE` that differ from the defaults.
    """

    name = "PH-VAE"

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def _new(self, seed: int) -> PHVAE:
        return PHVAE(**{**self.settings, "random_state": seed})

    @property
    def n_parameters(self) -> int:
        """Weights of all networks."""
        return sum(parameter.numel() for parameter in self.model_.vae_.parameters())

    def resolved(self, n_rows: int, n_columns: int) -> dict[str, Any]:
        """The values of all settings for a table of this size."""
        return resolve(self._new(0).get_params(), n_rows, n_columns)

    def _fit(self, x: Array, seed: int) -> None:
        self.model_ = self._new(seed).fit(x)

    def _draw(self, n: int, seed: int) -> Array:
        return np.asarray(self.model_.sample(n, random_state=seed))

    def objective(self, x: Array, seed: int = 0) -> float:
        """The evidence lower bound as a mean over rows it has not seen, in nats per row."""
        with torch.no_grad():
            noise = torch.Generator().manual_seed(seed)
            rows = torch.as_tensor(x, dtype=torch.float64)
            return float(self.model_.vae_.elbo(rows, n_samples=DRAWS, generator=noise).mean())


class PaperPhaseTypeVAE(PhaseTypeVAE):
    """`PHVAE.paper`: the configuration of the paper, as far as it is known."""

    name = "PH-VAE, paper's configuration"

    def _new(self, seed: int) -> PHVAE:
        return PHVAE.paper(**{**self.settings, "random_state": seed})


class IndependentPhaseTypeVAEs(Baseline):
    """One univariate `PHVAE` per column, with the latent size and the phases that one model of all columns has.

    ``p(x) = Π_j ∫ p_j(x_j | z_j) p(z_j) dz_j``: new rows are drawn column by column, so columns are independent.

    Args:
        settings: Settings of `PHVAE` that differ from the defaults.
    """

    name = "Independent PH-VAEs"

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    @property
    def n_parameters(self) -> int:
        """Weights of all networks of all columns."""
        return sum(column.n_parameters for column in self.columns_)

    def resolved(self, n_rows: int, n_columns: int) -> dict[str, Any]:
        """The values of all settings, each the same for every column."""
        joint = resolve(PHVAE(**self.settings).get_params(), n_rows, n_columns)
        alike = {name: joint[name] for name in ("latent_dim", "n_phases")} | self.settings
        return resolve(PHVAE(**alike).get_params(), n_rows, 1)

    def _fit(self, x: Array, seed: int) -> None:
        joint = self.resolved(*x.shape)
        settings = {name: joint[name] for name in ("latent_dim", "n_phases")} | self.settings
        seeds = _seeds(seed, x.shape[1])
        self.columns_ = [
            PhaseTypeVAE(**settings).fit(column[:, None], seed=own) for column, own in zip(x.T, seeds, strict=True)
        ]

    def _draw(self, n: int, seed: int) -> Array:
        # a seed of its own for every column: with one for all, the columns would share their noise
        seeds = _seeds(seed, len(self.columns_))
        return np.concatenate([column.sample(n, own) for column, own in zip(self.columns_, seeds, strict=True)], 1)

    def objective(self, x: Array, seed: int = 0) -> float:
        """The sum over columns of the evidence lower bounds, a mean over rows it has not seen."""
        return sum(column.objective(x[:, [j]], seed) for j, column in enumerate(self.columns_))


def _seeds(seed: int, n: int) -> list[int]:
    return [int(value) for value in np.random.SeedSequence(seed).generate_state(n, np.uint32)]
