r"""The law of every column on its own: where the decoder starts, and how smooth its phases should be.

Each column gets one series phase-type law by penalised maximum likelihood,

    max  Σ_j w_j log f(x_j; initial, rates) − strength · roughness(log initial, log increments),

with roughness the sum of squared third differences across phases. Laws without roughness have start logits and log
rate increments quadratic in the phase number: six numbers that cover power, lognormal and stretched exponential tails
over the range of the data, so the penalty shares strength along the tail without bending it to one family.

Read as a prior, the penalty makes third differences normal with variance 1/(2 strength). The strength is chosen
column by column as the one under which the data are most probable (Laplace's approximation of the integral over the
parameters): no rows are held out, nothing is drawn, and one path of fits serves all strengths.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phvae.kernels import series

__all__ = ["STRENGTHS", "Marginals", "fit_marginals", "reachable", "roughness"]

Array = npt.NDArray[np.float64]
Scores = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# Strengths on offer, strongest first: each fit starts from the one before, every second one also from the beginning,
# because what is smooth may have led to a lower hill.
STRENGTHS = (1000.0, 100.0, 10.0, 1.0, 0.1, 0.01)
# Weight of second differences, far too weak to shape the law: keeps phases the data do not see beside their neighbours.
ALIGNMENT = 1e-3
# Order statistics kept one by one at either end; further in, a cell holds this fraction of the rows beyond it. With
# 10,000 rows the tail of the fit moves by at most 2e-4 against that to the rows themselves, a hundredth of its error.
TOP, BOTTOM = 50, 20
# Gain in total log-likelihood below which a climb has arrived; a standard error is worth 1/2.
ARRIVED = 1e-2
# Log evidence lost since the best strength beyond which weaker ones are not worth a fit.
HOPELESS = 6.0
# Columns fitted at once; bounds the memory that per-value gradients take.
BLOCK = 16


@dataclass(frozen=True)
class Marginals:
    """One law per column in the units of x, and the smoothness that suited it.

    initial: (D, m) start probabilities.
    rates: (D, m) rates, ascending.
    smoothness: (D,) chosen strength over total weight: the weight of `roughness` beside a mean log-likelihood.
    strengths: (S,) strengths compared.
    evidence: (D, S) log probability of the data at each strength, but for a constant; -inf where the search stopped.
    """

    initial: Tensor
    rates: Tensor
    smoothness: Tensor
    strengths: Tensor
    evidence: Tensor


def roughness(logits: Tensor, log_increments: Tensor) -> Tensor:
    """Sum of squared third differences across phases, (..., m) and (..., m) -> (...); zero below four phases.

    >>> i = torch.arange(6.0)
    >>> float(roughness(i**2, 1 - i)), float(roughness(i**3, i))
    (0.0, 108.0)
    """
    return logits.diff(n=3).square().sum(-1) + log_increments.diff(n=3).square().sum(-1)


def fit_marginals(
    x: Tensor,
    *,
    n_phases: int = 10,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    strengths: tuple[float, ...] = STRENGTHS,
) -> Marginals:
    """Fit one series phase-type law to every column, with a penalty across phases as strong as the column asks for.

    Args:
        x: (n, D) non-negative values; NaN is skipped, and so is an exact zero, where the likelihood is unbounded.
        n_phases: number of phases m.
        mask: (n, D), True where a value is used; None uses all.
        weights: (n,) weight of each row; a weight of 2 counts a row twice. None weighs all rows 1.
        strengths: penalties to choose from, descending; one alone is used as given.

    Returns:
        The laws, their smoothness and the evidence for each strength.

    >>> levels = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    >>> law = fit_marginals(-levels.log()[:, None] / 2, n_phases=4)          # exponential with rate 2
    >>> from phvae.distributions import SeriesPhaseType
    >>> round(float(SeriesPhaseType(law.initial, law.rates).mean), 2)
    0.5
    """
    used, mass = _checked(x, n_phases, mask, weights, strengths)
    values = x.detach().cpu().double().numpy()
    sketches = [sketch(values[used[:, d], d], mass[used[:, d]], d) for d in range(values.shape[1])]
    return fit_sketches(sketches, n_phases, strengths)


def fit_sketches(
    sketches: list["Sketch"],
    n_phases: int,
    strengths: tuple[float, ...] = STRENGTHS,
    *,
    scores: Scores | None = None,
    ends: list[Array] | None = None,
) -> Marginals:
    """`fit_marginals` of columns that are sketches.

    Args:
        sketches: Points and weights of the cells of each column.
        n_phases: Number of phases m.
        strengths: As in `fit_marginals`.
        scores: Log-likelihood of cells and its gradient, as in `climb`; that of exact values when omitted.
        ends: What `scores` is given of the cells of each column, (cells, k), where that is not their point.
    """
    offered = torch.tensor(strengths, dtype=torch.float64)
    blocks = [slice(d, d + BLOCK) for d in range(0, len(sketches), BLOCK)]
    parts = [_fit_block(sketches[d], n_phases, offered, scores, None if ends is None else ends[d]) for d in blocks]
    point, strength, evidence = (torch.cat(part) for part in zip(*parts, strict=True))
    initial, rates = natural(point)
    total = torch.tensor([s.weights.sum() for s in sketches], dtype=torch.float64)
    return Marginals(initial, rates, strength / total, offered, evidence)


def _checked(
    x: Tensor, n_phases: int, mask: Tensor | None, weights: Tensor | None, strengths: tuple[float, ...]
) -> tuple[npt.NDArray[np.bool_], Array]:
    """Which values are used (n, D), and the weight of each row (n,)."""
    if x.dim() != 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; give rows and columns, (n, D)")
    if n_phases < 1:
        raise ValueError(f"n_phases is {n_phases}; give at least 1")
    if not strengths or any(a <= b for a, b in pairwise(strengths)) or strengths[-1] <= 0:
        raise ValueError(f"strengths is {strengths}; give at least one, positive and in descending order")
    if mask is not None and mask.shape != x.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)} and x {tuple(x.shape)}; give one entry per value")
    if weights is not None and weights.shape != x.shape[:1]:
        raise ValueError(f"weights has shape {tuple(weights.shape)} and x {len(x)} rows; give one weight per row")
    if weights is not None and not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError("weights has entries that are negative or not finite; weights are finite and >= 0")
    used = (x != 0) & ~x.isnan()
    if mask is not None:
        used = used & mask
    wrong = used & ~((x > 0) & x.isfinite())
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(f"x[{row}, {column}] is {float(x[row, column]):g}; give finite values >= 0 or mask it")
    mass = torch.ones(len(x)) if weights is None else weights
    return used.cpu().numpy(), mass.detach().cpu().double().numpy()


class Sketch(NamedTuple):
    """A column as few cells of neighbouring values: their mean (cells,), ascending, and their weight (cells,)."""

    x: Array
    weights: Array


def sketch(values: Array, weights: Array, column: int = 0, *, top: int = TOP, bottom: int = BOTTOM) -> Sketch:
    """Cells whose share of the weight beyond them is the same, 1/top above the median and 1/bottom below."""
    kept = weights > 0
    distinct, where = np.unique(values[kept], return_inverse=True)
    if len(distinct) < 2:
        raise ValueError(f"x[:, {column}] has no two different positive values; drop the column or give data that vary")
    mass = np.bincount(where, weights=weights[kept])
    first = cells(mass, top=top, bottom=bottom)
    total = np.add.reduceat(mass, first)
    return Sketch(np.add.reduceat(mass * distinct, first) / total, total)


def cells(mass: npt.NDArray[Any], *, top: int = TOP, bottom: int = BOTTOM) -> npt.NDArray[np.int64]:
    """Where the cells of a `sketch` begin, for the weights of ascending values.

    >>> cells(np.ones(12), top=2, bottom=1).tolist()
    [0, 1, 3, 6, 8, 10, 11]
    """
    below = np.cumsum(mass) - mass
    above = below[-1] + mass[-1] - below - mass
    # Numbered from either end; a bottom cell is told from a top cell by its sign.
    cell = np.where(below < above, -1 - _cell(below, bottom), _cell(above, top))
    return np.flatnonzero(np.diff(cell, prepend=cell[0] - 1))


def _cell(rank: npt.NDArray[Any], singles: int) -> npt.NDArray[np.int64]:
    """Number of the cell of a value with this weight beyond it: single ranks first, then equal ratios of ranks."""
    return np.where(rank < singles, rank, singles * (1 + np.log(np.maximum(rank, singles) / singles))).astype(np.int64)


def reachable(initial: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    """The same laws to a millionth, with no phase so empty or so close to the next that a decoder cannot start it."""
    steps = rates.diff(dim=-1, prepend=torch.zeros_like(rates[:, :1]))
    return torch.maximum(initial, 1e-6 * initial.max()), torch.maximum(steps, 1e-6 * rates).cumsum(-1)


def natural(point: Tensor) -> tuple[Tensor, Tensor]:
    """Start probabilities and rates, (..., m) each, of a point (..., 2m): start logits, then log rate increments."""
    logits, log_increments = point.chunk(2, -1)
    return logits.softmax(-1), log_increments.exp().cumsum(-1)


def _fit_block(
    sketches: list[Sketch], m: int, strengths: Tensor, scores: Scores | None, ends: list[Array] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Point (D, 2m), chosen strength (D,) and evidence (D, S)."""
    cells = max(len(s.x) for s in sketches)
    # Short sketches are filled up with a value of their own at weight zero.
    points = [s.x[:, None] for s in sketches] if ends is None else ends
    padded = np.array([np.pad(part, ((0, cells - len(part)), (0, 0)), mode="edge") for part in points])
    x = torch.tensor(padded[..., 0] if ends is None else padded)
    weights = torch.tensor(np.array([np.pad(s.weights, (0, cells - len(s.x))) for s in sketches]))
    beginning = torch.stack([geometric(s, m) for s in sketches])
    # All logits together move no law: curvature one along that direction makes the determinant below finite.
    together = torch.cat([torch.ones(m, dtype=torch.float64), torch.zeros(m, dtype=torch.float64)])
    path: list[Tensor] = []
    evidence = weights.new_full((len(x), len(strengths)), -torch.inf)
    for i, strength in enumerate(strengths):
        prior = penalty(m, float(strength))
        restarted = i % 2 == 0
        point, value, curvature = climb(x, weights, path[-1] if i else beginning, prior, scores=scores)
        if i and restarted:
            fresh = climb(x, weights, beginning, prior, scores=scores)
            higher = fresh[1] > value
            point = torch.where(higher[:, None], fresh[0], point)
            value = torch.where(higher, fresh[1], value)
            curvature = torch.where(higher[:, None, None], fresh[2], curvature)
        path.append(point)
        volume = torch.linalg.slogdet(curvature + torch.outer(together, together) / m).logabsdet
        evidence[:, i] = value + (_log_precision(prior) - volume) / 2
        if i and restarted and bool((evidence[:, i] < evidence.amax(-1) - HOPELESS).all()):
            break
    best = evidence.argmax(-1)
    return torch.stack(path, 1)[torch.arange(len(x)), best], strengths[best], evidence


def geometric(s: Sketch, m: int) -> Tensor:
    """Equal weights on rates spread from the largest value to well inside the median."""
    median = s.x[np.searchsorted(s.weights.cumsum(), s.weights.sum() / 2)]
    rates = np.geomspace(3 / s.x[-1], 20 / median, m) if m > 1 else np.array([1 / median])
    return torch.tensor(np.concatenate([np.zeros(m), np.log(np.diff(rates, prepend=0.0))]))


def penalty(m: int, strength: float) -> Tensor:
    """Matrix R (2m, 2m) of the penalty θᵀRθ: strength · roughness and the alignment."""
    eye = torch.eye(m, dtype=torch.float64)
    third, second = eye.diff(n=3, dim=0), eye.diff(n=2, dim=0)
    one = strength * third.T @ third + ALIGNMENT * second.T @ second
    none = torch.zeros_like(one)
    return torch.cat([torch.cat([one, none], 1), torch.cat([none, one], 1)])


def _log_precision(prior: Tensor) -> Tensor:
    """Log determinant of the prior's precision 2R, without the directions that every strength leaves free."""
    free = 2 * min(2, len(prior) // 2)
    precision: Tensor = torch.linalg.eigvalsh(2 * prior)[free:]
    return precision.log().sum()


def climb(
    x: Tensor,
    weights: Tensor,
    start: Tensor,
    prior: Tensor,
    *,
    arrived: float = ARRIVED,
    steps: int = 100,
    scores: Scores | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Levenberg-Marquardt ascent of P penalised likelihoods at once, the scores' outer products as curvature.

    Args:
        x, weights: (P, cells); x may have further axes, if `scores` is given.
        start: (P, 2m), or any coordinates that `scores` knows.
        prior: (2m, 2m), from `penalty`.
        arrived: a problem whose predicted gain and real gain fall below this drops out.
        steps: largest number of steps.
        scores: log f of every value and its gradient in the coordinates; that of a series law when omitted.

    Returns:
        Points (P, 2m), penalised log-likelihoods (P,) and curvatures (P, 2m, 2m).
    """

    def evaluate(rows: Tensor, point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_density, slopes = (scores or _scores)(x[rows], point)
        weighted = slopes * weights[rows, :, None]
        value = (weights[rows] * log_density).sum(-1) - (point @ prior * point).sum(-1)
        return value, weighted.sum(1) - 2 * point @ prior, weighted.mT @ slopes + 2 * prior

    best = start.clone()
    active = torch.arange(len(start))
    value, gradient, curvature = evaluate(active, best)
    damping = torch.ones_like(value)
    for _ in range(steps):
        at = gradient[active]
        ridge = damping[active, None] * 0.1 * (curvature[active].diagonal(dim1=-2, dim2=-1) + 1)
        step = torch.linalg.solve(curvature[active] + torch.diag_embed(ridge), at)
        # Beyond a factor e^3 in a weight or a rate the quadratic model means nothing.
        step = step / (step.abs().amax(-1, keepdim=True) / 3).clip(min=1)
        predicted = (at * step).sum(-1) / 2
        trial = best[active] + step
        higher, slope, bend = evaluate(active, trial)
        gain = higher - value[active]
        accepted = gain >= 0
        taken = active[accepted]
        best[taken], value[taken] = trial[accepted], higher[accepted]
        gradient[taken], curvature[taken] = slope[accepted], bend[accepted]
        damping[active] = torch.where(accepted, (damping[active] / 5).clip(min=1e-6), damping[active] * 8)
        stuck = damping[active] > 1e8
        active = active[~((accepted & (predicted < arrived) & (gain < arrived)) | stuck)]
        if len(active) == 0:
            break
    return best, value, curvature


def _scores(x: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """log f of every value (P, cells) and its gradient in the coordinates of its law (P, cells, 2m)."""
    initial, rates = (p[:, None] for p in natural(point))
    # A copy of the law per value makes the gradient come out per value.
    shape = (*x.shape, rates.shape[-1])
    own = [p.expand(shape).clone().requires_grad_() for p in (initial, rates)]
    log_density = series.log_density(x, *own)
    by_initial, by_rates = torch.autograd.grad(log_density.sum(), own)
    by_logit = initial * (by_initial - (initial * by_initial).sum(-1, keepdim=True))
    increments = point.chunk(2, -1)[1].exp()[:, None]
    return log_density.detach(), torch.cat([by_logit, increments * by_rates.flip(-1).cumsum(-1).flip(-1)], -1)
