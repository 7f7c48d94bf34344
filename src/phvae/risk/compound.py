"""The sum of a random number of losses on a grid, by fast Fourier transforms with an exponential tilt."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from phvae.risk.frequency import Frequency

__all__ = ["CompoundLaw", "tabulated"]

Array = NDArray[np.float64]

# The tilt makes what wraps around the grid smaller by exp(-TILT), and rounding errors at its end larger by as much.
TILT = 8.0
# Multiples of a limit that are followed as atoms of their own, and the mass from which one is.
ATOMS = 4096
FAINT = 1e-14
BISECTIONS = 80


class CompoundLaw:
    """Law of ``A = Y_1 + ... + Y_N`` for independent losses ``Y >= 0``, in every replicate.

    A loss is rounded to the nearest multiple of the step, which keeps its mean up to the square of the step, and the
    law of the sum on the grid follows from ``G(φ)``, with ``φ`` the transform of the rounded loss and ``G`` the
    generating function of ``N``. Before the transform masses are tilted by ``exp(-θ k)``, after it back, so that what
    exceeds the grid does not wrap around (Grübel and Hermesmeier, "Computation of compound distributions I", ASTIN
    Bulletin 29, 1999). Atoms, at zero and at multiples of a limit on each loss, are kept apart; what is left is spread
    evenly over its cell.

    Args:
        frequency: Law of ``N``.
        survival: ``P(Y > y)`` at points ``(k,)``, shape ``(R, k)``; it is 0 from the limit on.
        mean: ``E[Y]``, shape ``(R,)``.
        step: Width of a cell; a limit is a multiple of it.
        n: Cells.
        limit: Largest loss, ``inf`` for none.
    """

    def __init__(
        self,
        frequency: Frequency,
        survival: Callable[[Array], Array],
        mean: Array,
        step: float,
        n: int,
        limit: float = math.inf,
    ) -> None:
        self.step, self.end, self.mean = step, (n - 0.5) * step, frequency.mean * mean
        tails = survival((np.arange(n, dtype=np.float64) + 0.5) * step)
        ones = np.ones((len(tails), 1))
        # what exceeds the grid is left out: its sums do so too
        masses = np.concatenate([ones, tails[:, :-1]], 1) - tails
        back = np.exp(TILT / n * np.arange(n))
        # twice the cells, the second half empty, hold every sum that begins within the first
        total = fft.rfft(masses / back, 2 * n, axis=1)
        whole = fft.irfft(frequency.generating(total), 2 * n, axis=1)[:, :n] * back
        positive = survival(np.zeros(1))
        none = frequency.without(positive[:, 0])
        self.places: Array = np.zeros(1)
        self.atoms: Array = none[:, None]
        if limit < math.inf:
            count = min(ATOMS, int(self.end / limit) + 1)
            full = survival(np.array([limit * (1 - 1e-12)]))[:, 0]
            # coefficients of G(F(0) + full z): so many losses at their limit, the others none
            circle = np.exp(2j * np.pi * np.arange(2 * ATOMS) / (2 * ATOMS))
            around = frequency.generating(1 - positive + full[:, None] * circle)
            self.places = limit * np.arange(count, dtype=np.float64)
            self.atoms = np.asarray(fft.fft(around, axis=1).real[:, :count] / (2 * ATOMS))
            self.atoms[:, 0] = none
            kept = (self.atoms.max(0) > FAINT) | (self.places == 0)
            self.places, self.atoms = self.places[kept], self.atoms[:, kept]
        smooth = whole
        cells = np.rint(self.places / step).astype(np.int64)
        smooth[:, cells[cells < n]] -= self.atoms[:, cells < n]
        # P(A > x) less that of the atoms, at 0 and at the right end of every cell
        inside = np.cumsum(smooth, axis=1)
        self._smooth = (1 - self.atoms.sum(1))[:, None] - np.concatenate([0 * ones, inside], 1)
        widths = np.full(n, step)
        widths[0] = step / 2
        area = (self._smooth[:, :-1] + self._smooth[:, 1:]) / 2 * widths
        self._area = np.concatenate([0 * ones, np.cumsum(area, axis=1)], 1)

    def sf(self, x: Array) -> Array:
        """``P(A > x)`` at points ``(R, k)`` within the grid."""
        left, share, _ = self._cell(x)
        smooth = _take(self._smooth, left) * (1 - share) + _take(self._smooth, left + 1) * share
        return smooth + self._atoms(x, lambda gap: (gap > 0).astype(np.float64))

    def limited(self, x: Array) -> Array:
        """``E[min(A, x)]``, the area below the survival function up to points ``(R, k)``."""
        left, share, width = self._cell(x)
        first = _take(self._smooth, left)
        part = width * share * (first + share * (_take(self._smooth, left + 1) - first) / 2)
        return _take(self._area, left) + part + self._atoms(x, lambda gap: np.minimum(gap, 0) + x[..., None])

    def excess(self, x: Array) -> Array:
        """``E[(A - x)_+]`` at points ``(R, k)``; what lies beyond the grid comes in through the exact mean."""
        return self.mean[:, None] - self.limited(x)

    def isf(self, probability: Array) -> Array:
        """Smallest points with ``P(A > point) <= probability``, ``(k,)``, shape ``(R, k)``; ``inf`` beyond the grid."""
        shape = (len(self.mean), len(probability))
        low, high = np.zeros(shape), np.full(shape, self.end)
        at_zero = self.sf(low) <= probability
        beyond = self.sf(high) > probability
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            above = self.sf(middle) > probability
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(at_zero, 0.0, np.where(beyond, math.inf, high))

    def layer(self, low: float, high: float) -> tuple[Array, Array]:
        """``E[Y]`` and ``E[Y²]`` of ``Y = min((A - low)_+, high - low)`` within the grid, shape ``(R,)`` each."""
        edges = np.linspace(low, high, 4097)
        nodes, weights = np.polynomial.legendre.leggauss(4)
        half = (high - low) / 4096 / 2
        at = (edges[:-1, None] + half * (1 + nodes)).ravel()
        share = np.tile(half * weights, 4096)
        survival = self.sf(np.broadcast_to(at, (len(self.mean), len(at))))
        return survival @ share, 2 * survival @ (share * (at - low))

    def _cell(self, x: Array) -> tuple[NDArray[np.int64], Array, Array]:
        """Cell of each point, how far into it the point is, and its width; the first cell is half as wide."""
        left = np.minimum(np.floor(x / self.step + 0.5).astype(np.int64), self._area.shape[1] - 2)
        width = np.where(left == 0, self.step / 2, self.step)
        start = np.where(left == 0, 0.0, (left - 0.5) * self.step)
        return left, (x - start) / width, width

    def _atoms(self, x: Array, function: Callable[[Array], Array]) -> Array:
        # the last digit of a multiple of the limit is no distance from it
        gap = self.places - x[..., None]
        gap = np.where(np.abs(gap) <= 1e-9 * self.places, 0.0, gap)
        return np.asarray((self.atoms[:, None, :] * function(gap)).sum(-1))


def _take(values: Array, place: NDArray[np.int64]) -> Array:
    return np.take_along_axis(values, place, 1)


def tabulated(x: Array, log_survival: Array, log_density: Array, lower: float) -> Callable[[Array], Array]:
    """A survival function from exact values and slopes at knots, ``x > lower`` increasing, shape ``(K,)``.

    Cubic in ``log(x - lower)`` between knots; straight in ``x`` from the lower end to the first.

    Args:
        x: Knots.
        log_survival: Log of ``P(X > x)`` there, shape ``(R, K)``; at the lower end itself in front, ``(R, K + 1)``.
        log_density: Log density at the knots, shape ``(R, K)``.
        lower: Lower end, but for an atom at zero below it.
    """
    t = np.log(x - lower)
    first, values = np.exp(log_survival[:, 0]), log_survival[:, 1:]
    with np.errstate(invalid="ignore"):
        slopes = np.where(values > -math.inf, -np.exp(log_density - values + t), 0.0)
    values = np.where(values > -math.inf, values, -745.0)

    def survival(at: Array) -> Array:
        gap = at - lower
        inside = gap > x[0] - lower
        place = np.log(np.where(inside, gap, x[0] - lower))
        left = np.clip(np.searchsorted(t, place, side="right") - 1, 0, len(t) - 2)
        width = t[left + 1] - t[left]
        s = (place - t[left]) / width
        rise = values[:, left + 1] - values[:, left]
        a, b = slopes[:, left] * width - rise, rise - slopes[:, left + 1] * width
        found = np.exp(values[:, left] + s * rise + s * (1 - s) * (a * (1 - s) + b * s))
        share = np.clip(gap / (x[0] - lower), 0, 1)
        near = first[:, None] + share * (np.exp(values[:, :1]) - first[:, None])
        return np.where(inside, found, np.where(at < 0, 1.0, near))

    return survival
