"""What a comparison is measured against: the law itself and the rows themselves."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phvae.baselines.baseline import Baseline

__all__ = ["Bootstrap", "TrueLaw"]

Array = NDArray[np.float64]


class Sampled(Protocol):
    """A law that draws rows from a seed."""

    def sample(self, n: int, seed: int) -> Array:
        """Draws, shape ``(n,)`` or ``(n, D)``."""


class TrueLaw(Baseline):
    """The law the rows came from: what a perfect model would score.

    Args:
        law: Has a method ``sample(n, seed)``.
    """

    name = "true law"

    def __init__(self, law: Sampled) -> None:
        self.law = law

    def _fit(self, x: Array, seed: int) -> None:
        """Nothing is left to learn."""

    def _draw(self, n: int, seed: int) -> Array:
        return np.asarray(self.law.sample(n, seed), dtype=np.float64).reshape(n, -1)


class Bootstrap(Baseline):
    """The rows it has seen, drawn with replacement: no model at all.

    >>> sorted(set(Bootstrap().fit(np.array([[1.0], [4.0]])).sample(20, seed=0)[:, 0].tolist()))
    [1.0, 4.0]
    """

    name = "bootstrap of the rows"

    def _fit(self, x: Array, seed: int) -> None:
        self.rows_ = x.copy()

    def _draw(self, n: int, seed: int) -> Array:
        return self.rows_[np.random.default_rng(seed).integers(len(self.rows_), size=n)]
