"""What is known of a column with both signs, side by side and as a whole: start laws from values and from cells."""

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phvae.distributions.phase_type import SeriesPhaseType
from phvae.distributions.tails import TailedLaw
from phvae.distributions.time_transformed import TimeTransformed
from phvae.distributions.two_sided import Side, TwoSided
from phvae.distributions.zero_atom import ZeroAtom
from phvae.observed import Cells
from phvae.observed_start import ObservedColumn, gathered, log_observed, observed_columns, representatives
from phvae.start import climb, natural, penalty, sketch
from phvae.transformed_start import index_and_error, index_at, information, law_at, prior_of

__all__ = ["SideLaw", "WholeLaw", "climb_together", "points_of", "sides"]

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class SideLaw(NamedTuple):
    """The law of one side of a column: its chain ``(m,)``, the outputs of its clock, smoothness and index of its tail.

    The penalty on the roughness of the chain has the weight ``strength`` in its own fit.
    """

    initial: Tensor
    rates: Tensor
    shapes: Tensor
    smoothness: float
    strength: float
    tail_index: tuple[float, float]

    @property
    def coordinates(self) -> Tensor:
        """Start logits, log rate increments and outputs of the clock, as `phvae.start.climb` moves them."""
        steps = self.rates.diff(prepend=torch.zeros(1, dtype=torch.float64))
        return torch.cat((self.initial.log(), steps.log(), self.shapes))


class WholeLaw(NamedTuple):
    """The law of a column: that of its gains, that of its losses, log odds of a loss and, with an atom, of a zero."""

    gain: SideLaw
    loss: SideLaw
    odds: float
    zero_odds: float | None


def sides(x: Tensor | Cells, signed: Mask, weights: Array | None) -> tuple[list[ObservedColumn], list[ObservedColumn]]:
    """What is different among the gains of every column, and among the losses of those that have any.

    An interval across zero is a part of both sides: it counts by the share of the rows in it, of known sign, that are
    on each; and what is seen within bounds is, of a known sign, seen within the part of them on its side.

    Args:
        x: Unit-free values, shape ``(n, D)``, or cells.
        signed: Which columns have losses, shape ``(D,)``.
        weights: Weights of the rows, shape ``(n,)``.
    """
    own = np.flatnonzero(signed).tolist()
    if isinstance(x, Cells):
        minus = _mirrored(x)
        gains = [
            _part(x, j, weights) if signed[j] else observed_columns(_one(x, j), weights)[0] for j in range(len(signed))
        ]
        return gains, [_part(minus, j, weights) for j in own]
    values = x.numpy()
    mass = np.ones(len(values)) if weights is None else weights
    return [_values(values[:, j], mass, j) for j in range(len(signed))], [_values(-values[:, j], mass, j) for j in own]


def points_of(x: Cells, signed: Mask) -> Array:
    """One value for every cell, shape ``(n, D)``, as `representatives`; 0 where the sign is not known."""
    losses = signed & (x.upper <= 0)
    across = signed & (x.lower < 0) & (x.upper > 0)
    points: Array = np.where(losses, -representatives(_mirrored(x)), representatives(x))
    return np.where(across, 0.0, points)


def climb_together(
    x: Cells,
    j: int,
    weights: Array | None,
    gain: SideLaw,
    loss: SideLaw,
    *,
    family: type[TimeTransformed] | None,
    atom: bool,
) -> WholeLaw | None:
    """The law of the highest likelihood of a whole column, near laws of its sides; None where these have it already.

    That is so where every sign is known and no row had to pass bounds.

    Args:
        x: Unit-free cells.
        j: The column, which is signed.
        weights: Weights of the rows, shape ``(n,)``.
        gain: Law of the gains to begin at.
        loss: Law of the losses to begin at.
        family: Class of both; None for phase-type laws.
        atom: Whether exact zeros have a probability of their own.
    """
    own = _one(x, j)
    mass = np.ones(len(own.lower)) if weights is None else weights
    zero = (own.lower == 0) & (own.upper == 0)
    used = _says_something(own) & (mass[:, None] > 0) & (~zero | atom)
    losses, gains = used & (own.upper <= 0) & ~zero, used & (own.lower >= 0) & ~zero
    across = used & ~(losses | gains | zero)
    if not across.any() and own.entry is None and own.exit is None:
        return None
    ends, counted = _thinned(own, mass, (losses, gains, across, used & zero))
    n_losses, n_gains, n_zeros = (float(mass[part[:, 0]].sum()) for part in (losses, gains, used & zero))
    odds = [np.log(n_losses / n_gains), *([np.log(n_zeros / (n_losses + n_gains))] if atom else [])]
    m, k = len(gain.initial), len(gain.coordinates)
    start = torch.cat((gain.coordinates, loss.coordinates, torch.tensor(odds, dtype=torch.float64)))[None]
    priors = [penalty(m, side.strength) if family is None else prior_of(family, m) for side in (gain, loss)]
    prior = torch.block_diag(*priors, torch.zeros(len(odds), len(odds), dtype=torch.float64))

    def scores(ends: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
        # a copy of the law for every cell makes the gradient come out per cell
        at = point[:, None].expand(*ends.shape[:2], point.shape[-1]).clone().requires_grad_()
        gains, losses = (_law(family, m, at[..., side : side + k]) for side in (0, k))
        law: TailedLaw = TwoSided(at[..., 2 * k], losses, gains, validate_args=False)
        value = log_observed(ZeroAtom(at[..., -1], law, validate_args=False) if atom else law, ends)
        (slope,) = torch.autograd.grad(value.sum(), at)
        return value.detach(), slope

    points, _, _ = climb(ends, counted, start, prior, arrived=1e-4, steps=200, scores=scores)
    point, found = points[0], []
    curvature = None if family is None else information(ends, counted, point, prior, scores)
    for side, first in ((gain, 0), (loss, k)):
        initial, rates = natural(point[first : first + 2 * m])
        index = side.tail_index
        if family is not None and curvature is not None:
            index = index_and_error(partial(_index, family, m, slice(first, first + k)), point, curvature)
        shapes = point[first + 2 * m : first + k]
        found.append(side._replace(initial=initial, rates=rates, shapes=shapes, tail_index=index))
    return WholeLaw(found[0], found[1], float(point[2 * k]), float(point[-1]) if atom else None)


def _law(family: type[TimeTransformed] | None, m: int, point: Tensor) -> Side:
    """The law of a side at coordinates of a climb."""
    if family is None:
        return SeriesPhaseType._build(*natural(point), validate_args=False)
    return law_at(family, m, point)


def _index(family: type[TimeTransformed], m: int, side: slice, point: Tensor) -> Tensor:
    return index_at(family, m, point[side])


def _one(x: Cells, j: int) -> Cells:
    """A column of cells by itself."""
    own = slice(j, j + 1)
    entry, exits = (None if bound is None else bound[:, own] for bound in (x.entry, x.exit))
    return Cells(x.lower[:, own], x.upper[:, own], entry, exits, x.flagged)


def _mirrored(x: Cells) -> Cells:
    """The cells of minus the columns; nothing hangs on which of two ends belongs to an interval."""
    entry, exits = (None if bound is None else -bound for bound in (x.exit, x.entry))
    return Cells(-x.upper, -x.lower, entry, exits, x.flagged)


def _says_something(own: Cells) -> Mask:
    """Which cells are more than what the bounds say by themselves."""
    above = True if own.entry is None else own.lower > own.entry
    below = True if own.exit is None else own.upper < own.exit
    said: Mask = (own.lower == own.upper) | ((own.lower > -np.inf) & above) | ((own.upper < np.inf) & below)
    return said


def _values(values: Array, mass: Array, j: int) -> ObservedColumn:
    """The positive ones among values."""
    used = values > 0
    known = sketch(values[used], mass[used], j)
    return ObservedColumn(known, known.x)


def _part(x: Cells, j: int, weights: Array | None) -> ObservedColumn:
    """What is different above zero in a signed column of cells."""
    own = _one(x, j)
    lower, upper = own.lower, own.upper
    mass = np.ones(len(lower)) if weights is None else weights
    share = np.where((lower < 0) & (upper > 0), _shares(lower[:, 0], upper[:, 0], mass)[:, None], 1.0)
    # what lies below is left out as if it were an exact zero
    below = upper <= 0
    kept = Cells(
        np.where(below, 0.0, np.where(lower < 0, -np.inf, lower)),
        np.where(below, 0.0, upper),
        None if own.entry is None else np.where(own.entry <= 0, -np.inf, own.entry),
        None if own.exit is None else np.where(own.exit <= 0, np.inf, own.exit),
        own.flagged,
    )
    return observed_columns(kept, mass * share[:, 0])[0]


def _shares(lower: Array, upper: Array, mass: Array) -> Array:
    """Of the values in each interval across zero, and of the ends of those of known sign, the share above zero."""
    gains, losses = (lower >= 0) & (upper > 0), (upper <= 0) & (lower < 0)
    above = _mass_up_to(np.where(lower > 0, lower, np.where(upper < np.inf, upper, 0.0)), mass, gains, upper)
    below = _mass_up_to(-np.where(upper < 0, upper, np.where(lower > -np.inf, lower, 0.0)), mass, losses, -lower)
    total = above + below
    overall = mass[gains].sum() / mass[gains | losses].sum()
    share: Array = np.where(total > 0, above / np.where(total > 0, total, 1.0), overall)
    return share


def _mass_up_to(points: Array, mass: Array, used: Mask, until: Array) -> Array:
    order = np.argsort(points[used], kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(mass[used][order])])
    found: Array = sums[np.searchsorted(points[used][order], until, side="right")]
    return found


def _thinned(own: Cells, mass: Array, parts: tuple[Mask, ...]) -> tuple[Tensor, Tensor]:
    """Ends and bounds of cells, ``(1, c, 4)``, and their weights, ``(1, c)``; neighbours within a part become one."""
    columns = []
    minus = _mirrored(own)
    for number, part in enumerate(parts):
        if not part.any():
            continue
        # the losses by their size, as the gains are: a mirrored table has the same cells
        side, sign = (minus, -1.0) if number == 0 else (own, 1.0)
        bounds = (
            np.full_like(side.lower, -np.inf) if side.entry is None else side.entry,
            np.full_like(side.lower, np.inf) if side.exit is None else side.exit,
        )
        ends = np.concatenate((side.lower, side.upper, *bounds), 1)[part[:, 0]]
        points = np.where(np.isfinite(ends[:, 1]), ends[:, 1], np.where(np.isfinite(ends[:, 0]), ends[:, 0], 0.0))
        column = gathered(points, ends, mass[part[:, 0]])
        columns.append((column.ends if sign > 0 else -column.ends[:, [1, 0, 3, 2]], column.sketch.weights))
    joined = [torch.from_numpy(np.concatenate(part))[None] for part in zip(*columns, strict=True)]
    return joined[0], joined[1]
