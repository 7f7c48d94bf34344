"""What all neural baselines share: preparation of the rows, sizes, budget, training and generation.

Every model has the encoder of `PHVAE`, the same hidden widths, the same optimiser, batches, epochs, schedule, warm-up
and early stopping, and held-out rows of its own for the latter: what `phvae.defaults.for_size` says. What differs
between models is the family of the decoder, the prior or the objective.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae import defaults
from phvae.assembly import split
from phvae.baselines.baseline import Baseline, stream
from phvae.history import History
from phvae.preprocessing import Origin, PositiveScaler
from phvae.training import train
from phvae.vae import GaussianEncoder, GenerativeModel

__all__ = ["NeuralBaseline"]

Array = NDArray[np.float64]

# Rows that share one stream of random numbers, always drawn together.
BLOCK = 16_384
# The latent size for one column, where `PHVAE` needs none: that of the paper's configuration.
LATENT_DIM_OF_ONE_COLUMN = 2
# Draws from the posterior per held-out row when settings are compared.
DRAWS = 8


class NeuralBaseline(Baseline):
    """A variational autoencoder whose columns enter as ``(x - origin) / scale``; its rows are in the user's units.

    The scale is the median excess over the origin, a unit and nothing more: no observation is centred, ranked or put
    on a logarithmic scale. The encoder sees ``asinh`` of the scaled values, as that of `PHVAE` does.

    Args:
        latent_dim: Length of the latent vector; 2 for one column, twice the columns and at most 16 for several.
        hidden: Widths of the hidden layers.
        origin: Lower end of each column: 0 as the authors of these models have it; ``"auto"`` gives the model the same
            estimate that `PHVAE` makes for itself.
        epochs: Passes over the rows.
        learning_rate: Step size.

    Attributes:
        model_: The trained model.
        history_: One record per epoch.
        settings_: Values used of every setting.
    """

    model_: GenerativeModel
    history_: History
    settings_: dict[str, Any]
    # Factors on the step size of some parameters, by the beginning of their names.
    rate_factors: ClassVar[dict[str, float]] = {}

    def __init__(
        self,
        *,
        latent_dim: int | Literal["auto"] = "auto",
        hidden: Sequence[int] = defaults.HIDDEN,
        origin: Origin = 0.0,
        epochs: int | Literal["auto"] = "auto",
        learning_rate: float | Literal["auto"] = "auto",
    ) -> None:
        self.latent_dim = latent_dim
        self.hidden = hidden
        self.origin = origin
        self.epochs = epochs
        self.learning_rate = learning_rate
        if origin != 0.0:
            self.name = f"{self.name}, own origin"

    @abstractmethod
    def _model(self, x: Array, scaler: PositiveScaler, latent_dim: int, generator: torch.Generator) -> GenerativeModel:
        """The model before training, with first weights; the rows are there to start the laws at their size."""

    @property
    def n_parameters(self) -> int:
        """Weights of all networks."""
        return sum(parameter.numel() for parameter in self.model_.parameters())

    def resolved(self, n_rows: int, n_columns: int) -> dict[str, Any]:
        """The values of all settings for a table of this size."""
        latent_dim = self.latent_dim
        if latent_dim == "auto":
            latent_dim = defaults.for_size(n_rows, n_columns)["latent_dim"] or LATENT_DIM_OF_ONE_COLUMN
        epochs = None if self.epochs == "auto" else self.epochs
        sizes = defaults.for_size(n_rows, n_columns, latent_dim=latent_dim, epochs=epochs)
        chosen = sizes["learning_rate"] if self.learning_rate == "auto" else self.learning_rate
        names = ("batch_size", "epochs", "kl_warmup", "validation_fraction", "patience")
        return {name: sizes[name] for name in names} | {"latent_dim": latent_dim, "learning_rate": chosen}

    def _fit(self, x: Array, seed: int) -> None:
        settings = self.resolved(*x.shape)
        scaler = PositiveScaler(self.origin).fit(x)
        rows, held_out = split(len(x), settings["validation_fraction"], seed)
        model = self._model(x[rows], scaler, settings["latent_dim"], stream(seed))
        self.history_ = train(
            model,
            torch.from_numpy(x[rows]),
            epochs=settings["epochs"],
            batch_size=settings["batch_size"],
            learning_rate=settings["learning_rate"],
            rate_factors=self.rate_factors,
            kl_warmup=settings["kl_warmup"],
            validation=torch.from_numpy(x[held_out]) if len(held_out) else None,
            patience=settings["patience"] if len(held_out) else None,
            seed=seed,
            progress=False,
        )
        self.model_ = model.eval()
        self.settings_ = settings

    def _encoder(
        self, x: Array, scaler: PositiveScaler, latent_dim: int, generator: torch.Generator
    ) -> GaussianEncoder:
        encoder = GaussianEncoder(
            x.shape[1],
            latent_dim,
            origin=torch.from_numpy(scaler.origin_),
            scale=torch.from_numpy(scaler.scale_),
            hidden=self.hidden,
            generator=generator,
        )
        encoder.standardise(torch.from_numpy(x))
        return encoder

    def _draw(self, n: int, seed: int) -> Array:
        blocks = [self._generate(stream(seed, block)) for block in range(-(-n // BLOCK))]
        return np.asarray(torch.cat(blocks)[:n].numpy())

    def _generate(self, generator: torch.Generator) -> Tensor:
        """One block of new rows."""
        return self.model_.generate(BLOCK, generator=generator)

    def objective(self, x: Array, seed: int = 0) -> float:
        """What training maximises, as a mean over rows it has not seen: the evidence lower bound, in nats per row."""
        with torch.no_grad():
            noise = torch.Generator().manual_seed(seed)
            bounds = self.model_.elbo(torch.as_tensor(x, dtype=torch.float64), n_samples=DRAWS, generator=noise)
        return float(bounds.mean())
