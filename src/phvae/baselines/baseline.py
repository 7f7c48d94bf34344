"""The face every model of a comparison has, whatever is behind it."""

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from phvae.training import TrainingError

__all__ = ["Baseline"]

Array = NDArray[np.float64]


class Baseline(ABC):
    """A law that is learned from rows and draws new ones. Settings are keywords of the constructor.

    Attributes:
        name: Label in tables.
    """

    name: str

    @abstractmethod
    def _fit(self, x: Array, seed: int) -> None: ...

    @abstractmethod
    def _draw(self, n: int, seed: int) -> Array: ...

    @property
    def n_parameters(self) -> int | None:
        """Numbers that were learned; None for a model that keeps the rows themselves."""
        return None

    def fit(self, x: Array, seed: int = 0) -> Self:
        """Learn from rows.

        Args:
            x: Finite values, shape ``(n, D)``.
            seed: Seed of everything random; the same seed gives the same model.

        Raises:
            TrainingError: The fit diverged; nothing usable is left.
        """
        rows = np.asarray(x, dtype=np.float64)
        if rows.ndim != 2 or len(rows) < 2 or not rows.shape[1]:
            raise ValueError(f"x has shape {rows.shape}; give at least two rows of at least one column")
        if not np.isfinite(rows).all():
            row, column = np.argwhere(~np.isfinite(rows))[0].tolist()
            raise ValueError(f"x[{row}, {column}] = {rows[row, column]} is not finite; drop or impute such rows first")
        self._fit(rows, seed)
        return self

    def sample(self, n: int, seed: int) -> Array:
        """New rows, shape ``(n, D)``, negative ones included where the model gives such.

        Args:
            n: Number of rows.
            seed: Seed of the draws.

        Raises:
            TrainingError: The model draws values that are no finite numbers, so it had diverged.
        """
        if n < 1:
            raise ValueError(f"n = {n!r}; give a whole number of at least 1")
        rows = self._draw(n, seed)
        broken = int((~np.isfinite(rows)).any(1).sum())
        if broken:
            raise TrainingError(f"{self.name}: {broken} of {n} generated rows are not finite; the fit has diverged")
        return rows


def stream(*key: int) -> torch.Generator:
    """A generator of its own for every key."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1))
