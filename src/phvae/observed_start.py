"""Start laws of columns of which not everything is known: maximum likelihood under censoring and truncation."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phvae.distributions.base import AbsorptionTime
from phvae.distributions.phase_type import SeriesPhaseType
from phvae.distributions.tails import TailedLaw, typical
from phvae.observed import Cells
from phvae.start import STRENGTHS, Marginals, Sketch, cells, fit_sketches, natural

__all__ = [
    "ObservedColumn",
    "fit_cells",
    "fit_observed",
    "gathered",
    "log_observed",
    "observed_columns",
    "representatives",
    "scores_of_cells",
]

Array = npt.NDArray[np.float64]

# Different cells of a column that are kept one by one; of more, neighbours become one.
KEPT = 2000
# Singles at either end of a group of neighbouring cells, and rows beyond a cell for each row in it.
TOP, BOTTOM = 200, 80
# Different bounds of a column up to which cells of equal bounds are averaged.
MOST_BOUNDS = 20
# The same at both ends of intervals, which are neighbours only if they are so at either end.
SQUARES = 8


class ObservedColumn(NamedTuple):
    """Cells of a column: points that stand for them and their weights, and their ends and bounds, (cells, 4).

    ``place`` says which of the cells stands for that of each row, shape ``(n,)``, -1 where a row says nothing; None
    where the column does not remember.
    """

    sketch: Sketch
    ends: Array
    place: npt.NDArray[np.int64] | None = None

    def masses(self, counts: npt.NDArray[np.int64]) -> Array:
        """Weight of the cells, shape ``(B, cells)``, where the rows count so often, ``(B, n)``."""
        assert self.place is not None
        used = self.place >= 0
        where = self.place[used]
        return np.stack([np.bincount(where, weights=row[used], minlength=len(self.ends)) for row in counts])


def fit_cells(data: Cells, *, n_phases: int = 10, weights: Array | None = None) -> Marginals:
    """Fit one series phase-type law to every column of unit-free cells, as `phvae.start.fit_marginals` does to values.

    The likelihood of a cell is ``f(x)`` or ``P(lower < X <= upper)``, over ``P(entry < X <= exit)`` of its own column.
    A cell that is missing, or an exact zero, is left out.

    Args:
        data: Unit-free cells.
        n_phases: Number of phases.
        weights: Weight of each row, shape ``(n,)``.

    >>> x = np.linspace(0.01, 3, 400)[:, None]
    >>> law = fit_cells(Cells(x, x + 1e-9), n_phases=2)
    >>> bool(abs(float(SeriesPhaseType(law.initial, law.rates).mean) - x.mean()) < 0.05)
    True
    """
    return fit_observed(observed_columns(data, weights), n_phases)


def fit_observed(columns: list[ObservedColumn], n_phases: int) -> Marginals:
    """The same from what is different in each column."""
    sketches, ends = [column.sketch for column in columns], [column.ends for column in columns]
    return fit_sketches(sketches, n_phases, STRENGTHS, ends=ends, scores=scores_of_cells)


def observed_columns(data: Cells, weights: Array | None = None) -> list[ObservedColumn]:
    """What is different in each column of unit-free cells; weights of rows as in `fit_cells`."""
    return [_column(data, j, weights) for j in range(data.lower.shape[1])]


def representatives(data: Cells) -> Array:
    """One value for every cell, shape ``(n, D)``: the lower end, or half of the upper one where that is all; else 0."""
    below, above = data.lower, data.upper
    with np.errstate(invalid="ignore"):
        middle = np.where(above < np.inf, (np.maximum(below, 0) + above) / 2, np.maximum(below, 0))
    points: Array = np.where(below == above, below, middle)
    return points


def _column(data: Cells, j: int, weights: Array | None) -> ObservedColumn:
    lower, upper = data.lower[:, j], data.upper[:, j]
    first = np.full_like(lower, -np.inf) if data.entry is None else data.entry[:, j]
    last = np.full_like(lower, np.inf) if data.exit is None else data.exit[:, j]
    mass = np.ones_like(lower) if weights is None else weights
    exact = lower == upper
    lower = np.where(~exact & (lower <= 0), -np.inf, lower)
    # what is as wide as the bounds says nothing, and where a value is zero the likelihood is unbounded
    used = np.where(exact, lower > 0, (lower > first) | (upper < last)) & (mass > 0)
    ends = np.stack((lower, upper, first, last), 1)[used]
    column = gathered(representatives(data)[used, j], ends, mass[used])
    place = np.full(len(lower), -1)
    place[used] = column.place
    return column._replace(place=place)


def gathered(points: Array, ends: Array, mass: Array) -> ObservedColumn:
    """Cells as a column has them: equal ones once, and of many neighbours one.

    Args:
        points: What stands for each cell, shape ``(n,)``.
        ends: Its ends and bounds, shape ``(n, 4)``.
        mass: Its weight, shape ``(n,)``.
    """
    distinct, inverse = np.unique(ends, axis=0, return_inverse=True)
    total: Array = np.bincount(inverse.reshape(-1), weights=mass).astype(np.float64)
    stands = np.zeros(len(distinct))
    stands[inverse.reshape(-1)] = points
    order = np.argsort(stands, kind="stable")
    stands, distinct, total = stands[order], distinct[order], total[order]
    place = np.argsort(order)[inverse.reshape(-1)]
    if len(stands) > KEPT:
        stands, distinct, total, group = _thinned(stands, distinct, total)
        place = group[place]
    return ObservedColumn(Sketch(stands, total), distinct, place)


def _thinned(points: Array, ends: Array, mass: Array) -> tuple[Array, Array, Array, npt.NDArray[np.int64]]:
    """Fewer cells: of neighbours of one kind with the same bounds, one of mean ends and the weight of all.

    Intervals of different widths about one middle are no neighbours: what they say is far from linear in their ends.
    Beside them, which of these each cell has become.
    """
    exact = ends[:, 0] == ends[:, 1]
    kind = exact + 2 * np.isfinite(ends[:, 0]) + 4 * np.isfinite(ends[:, 1])
    keys = np.column_stack((kind, ends[:, 2:]))
    groups, group = np.unique(keys, axis=0, return_inverse=True)
    averaged = len(groups) <= MOST_BOUNDS
    if not averaged:
        groups, group = np.unique(kind, return_inverse=True)
    parts = []
    joined, found = np.empty(len(mass), np.int64), 0
    for number in range(len(groups)):
        own = np.flatnonzero(group.reshape(-1) == number)
        first = ends[own[0]]
        if np.isfinite(first[:2]).all() and first[0] != first[1]:
            square = _squares(ends[own, :2], mass[own])
            own = own[np.argsort(square, kind="stable")]
            firsts = np.flatnonzero(np.diff(np.sort(square), prepend=-1))
        else:
            firsts = cells(mass[own], top=TOP, bottom=BOTTOM)
        total = np.add.reduceat(mass[own], firsts)
        if averaged:
            # infinite ends are the same in the whole group
            mean = np.add.reduceat(mass[own, None] * ends[own], firsts) / total[:, None]
            parts.append((np.add.reduceat(mass[own] * points[own], firsts) / total, mean, total))
        else:
            # bounds of so many kinds are not averaged: every cell of neighbours is the one in their middle
            middles = own[(firsts + np.append(firsts[1:], len(own)) - 1) // 2]
            parts.append((points[middles], ends[middles], total))
        joined[own] = found + _numbered(firsts, len(own))
        found += len(firsts)
    points, ends, mass = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(points, kind="stable")
    return points[order], ends[order], mass[order], np.argsort(order)[joined]


def _numbered(firsts: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """In which of the stretches that begin at these places each of ``n`` is."""
    return np.searchsorted(firsts, np.arange(n), side="right") - 1


def _squares(ends: Array, mass: Array) -> npt.NDArray[np.int64]:
    """Number of the group of each interval, by the cells of `phvae.start.sketch` that either of its ends is in."""
    numbers = []
    for end in ends.T:
        order = np.argsort(end, kind="stable")
        begins = np.zeros(len(end), dtype=np.int64)
        begins[cells(mass[order], top=SQUARES, bottom=SQUARES)] = 1
        number = np.empty_like(begins)
        number[order] = begins.cumsum()
        numbers.append(number)
    square: npt.NDArray[np.int64] = numbers[0] * (numbers[1].max() + 1) + numbers[1]
    return square


def log_observed(law: AbsorptionTime | TailedLaw, ends: Tensor) -> Tensor:
    """Log-likelihood of cells under a law of each, from their ends and bounds on the last axis, (..., 4)."""
    lower, upper, first, last = ends.unbind(-1)
    exact = lower == upper
    within = law.log_interval(torch.where(exact, -torch.inf, lower), torch.where(exact, torch.inf, upper))
    with torch.no_grad():
        # cells that are no values are asked about a point without infinite gradients, and not listened to
        points = torch.where(exact, lower, typical(law))
    return torch.where(exact, law.log_prob(points), within) - law.log_interval(first, last)


def scores_of_cells(ends: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """Log-likelihood of every cell (P, c) from its ends and bounds (P, c, 4), and its gradient (P, c, 2m).

    Both as `phvae.start.climb` asks for them.
    """
    # a copy of the law for every cell makes the gradient come out per cell
    own = point[:, None].expand(*ends.shape[:2], point.shape[-1]).clone().requires_grad_()
    value = log_observed(SeriesPhaseType._build(*natural(own), validate_args=False), ends)
    (slope,) = torch.autograd.grad(value.sum(), own)
    return value.detach(), slope
