"""What a phase-type law can be made into: sums, minima and maxima, plain arrays."""

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from phvae.distributions.phase_type import PhaseType

__all__ = ["Composable"]


class Composable:
    """A law with a start vector and a generator, from which others are made exactly."""

    @abstractmethod
    def to_phase_type(self) -> "PhaseType":
        """The same law as a `PhaseType`."""

    def __add__(self, other: "Composable") -> "PhaseType":
        """Law of the sum ``X + Y`` of two independent times; see `phvae.distributions.closure.add`."""
        from phvae.distributions.closure import add

        return add(self, other) if isinstance(other, Composable) else NotImplemented

    def minimum(self, other: "Composable") -> "PhaseType":
        """Law of ``min(X, Y)`` for independent times; see `phvae.distributions.closure.minimum`."""
        from phvae.distributions.closure import minimum

        return minimum(self, other)

    def maximum(self, other: "Composable") -> "PhaseType":
        """Law of ``max(X, Y)`` for independent times; see `phvae.distributions.closure.maximum`."""
        from phvae.distributions.closure import maximum

        return maximum(self, other)

    def to_arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``(initial, generator)`` as numpy arrays: what matrixdist (R) and BuTools take.

        >>> from phvae.distributions import SeriesPhaseType
        >>> SeriesPhaseType([0.3, 0.7], [0.5, 4.0]).to_arrays()
        (array([0.3, 0.7]), array([[-0.5,  0.5], [ 0. , -4. ]]))
        """
        law = self.to_phase_type()
        return law.initial.detach().cpu().numpy().copy(), law.generator.detach().cpu().numpy().copy()
