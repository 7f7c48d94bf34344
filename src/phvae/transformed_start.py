r"""The law of every column on its own in a family that bends time: start of the decoder, and index of the tail.

Maximum likelihood of the chain, the shape and the scale together, with as many phases as the Bayesian information
criterion asks for: a transform that suits the tail leaves few phases to find, and each phase too many costs tail.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from phvae.distributions.phase_type import SeriesPhaseType
from phvae.distributions.time_transformed import TimeTransformed
from phvae.observed import Cells
from phvae.observed_start import ObservedColumn, log_observed, observed_columns
from phvae.preprocessing import geometric_start
from phvae.start import Array, Sketch, climb, natural, penalty, reachable, sketch
from phvae.transformed_decoders import TransformedDecoder, n_shapes, shapes_of

__all__ = [
    "PHASES",
    "ColumnFit",
    "choose_transformed_phases",
    "fit_transformed",
    "index_and_error",
    "index_at",
    "information",
    "law_at",
    "prior_of",
    "set_transformed_start",
    "spread",
]

# Numbers of phases that are compared where none is asked for.
PHASES = (1, 2, 3, 4, 6)
# Shapes, beyond the least one, and quantiles of the data as scales, from which each fit begins.
SHAPES, QUANTILES = (0.5, 1.0, 2.0), (0.1, 0.5, 0.9)
# Roughness and size of the coordinates cost next to nothing: this keeps apart what the data do not tell apart.
STRENGTH, TETHER = 1e-3, 1e-3
# Steps of the differences that give the observed information, and the smallest curvature that counts as one.
STEP, FLAT = 1e-4, 1e-6


class ColumnFit(NamedTuple):
    """The law of one column, unit-free, and what is known of its tail index.

    initial, rates: The chain, shape ``(m,)`` each.
    shape, scale: Of the transform.
    log_likelihood: Total over the rows.
    criterion: Log-likelihood less half of ``log n`` for every free number.
    tail_index: Estimate ``ξ``; 0 in a family whose tails are no powers.
    tail_index_error: Standard error of ``log ξ`` from the observed information; NaN where that has no inverse.
    """

    initial: Tensor
    rates: Tensor
    shape: float
    scale: float
    log_likelihood: float
    criterion: float
    tail_index: float
    tail_index_error: float


def fit_transformed(
    x: Tensor | Cells | list[ObservedColumn],
    family: type[TimeTransformed],
    n_phases: int,
    weights: Array | None = None,
) -> list[ColumnFit]:
    """Fit every column by maximum likelihood.

    Args:
        x: Unit-free values, shape ``(n, D)``, or cells, of which exact zeros and NaN are left out; or columns.
        family: Class of the laws.
        n_phases: Phases ``m`` of every column.
        weights: Weights of the rows, shape ``(n,)``.

    >>> from phvae.distributions import MatrixPareto
    >>> levels = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    >>> fit, = fit_transformed(levels[:, None] ** -0.5 - 1, MatrixPareto, 1)        # Lomax with tail index 1/2
    >>> round(fit.tail_index, 2), round(fit.shape, 2), 0.02 < fit.tail_index_error < 0.2
    (0.5, 1.0, True)
    """
    return [_fit_column(column, family, n_phases) for column in _columns(x, weights)]


def choose_transformed_phases(
    x: Tensor | Cells | list[ObservedColumn],
    family: type[TimeTransformed],
    choices: Sequence[int] = PHASES,
    weights: Array | None = None,
) -> tuple[int, list[list[float]]]:
    """The number of phases the neediest column asks for, and the criterion of every column for every number.

    Args:
        x: Unit-free values, shape ``(n, D)``, cells or columns.
        family: Class of the laws.
        choices: Numbers of phases to compare, ascending.
        weights: Weights of the rows, shape ``(n,)``.

    >>> from phvae.distributions import MatrixWeibull
    >>> levels = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    >>> choose_transformed_phases((-levels.log()[:, None]) ** 1.5, MatrixWeibull, (1, 2))[0]
    1
    """
    criteria = []
    for column in _columns(x, weights):
        scores: list[float] = []
        for m in choices:
            scores.append(_fit_column(column, family, m).criterion)
            # two numbers of phases without a gain: more will not bring one
            if len(scores) >= 3 and max(scores[-2:]) < max(scores):
                break
        criteria.append(scores)
    return max(choices[int(np.argmax(scores))] for scores in criteria), criteria


def set_transformed_start(
    decoder: TransformedDecoder, x: Tensor, *, fitted: bool, weights: Array | None = None, cells: Cells | None = None
) -> dict[str, Any]:
    """Set the decoder to the law of every column on its own, or to rates spread over the range of its times.

    Args:
        decoder: Decoder of unit-free columns.
        x: Unit-free values, shape ``(n, D)``.
        fitted: By maximum likelihood.
        weights: Weights of the rows, shape ``(n,)``.
        cells: What is known of the cells, where that is not their values.

    Returns:
        Index of the tail of each column and the standard error of its logarithm, None where it has none.
    """
    if not fitted:
        decoder.set_start(*spread(x, decoder.family, decoder.n_phases, weights))
        return {}
    fits = fit_transformed(x if cells is None else cells, decoder.family, decoder.n_phases, weights)
    initial, rates = reachable(torch.stack([fit.initial for fit in fits]), torch.stack([fit.rates for fit in fits]))
    decoder.set_start(initial, rates)
    decoder.set_shapes([fit.shape for fit in fits], [fit.scale for fit in fits])
    if not any(fit.tail_index for fit in fits):
        return {}
    errors = [fit.tail_index_error if np.isfinite(fit.tail_index_error) else None for fit in fits]
    return {"tail_index": [[fit.tail_index, error] for fit, error in zip(fits, errors, strict=True)]}


def spread(
    x: Tensor, family: type[TimeTransformed] | None, n_phases: int, weights: Array | None = None
) -> tuple[Array, Array]:
    """Start probabilities and rates, ``(D, m)`` each, spread over the range of the chain's times; no fit.

    Args:
        x: Unit-free values, shape ``(n, D)``; exact zeros are left out.
        family: Class of the laws; None for phase-type laws, whose times are the values.
        n_phases: Phases ``m``.
        weights: Weights of the rows, shape ``(n,)``.
    """
    if family is None:
        return geometric_start(x.numpy(), n_phases, weights)
    one = torch.ones(1, dtype=torch.float64)
    law = _law(family, one, one, torch.zeros(n_shapes(family), dtype=torch.float64))
    return geometric_start(torch.where(x > 0, -law.log_sf(x), 0.0).numpy(), n_phases, weights)


def _columns(x: Tensor | Cells | list[ObservedColumn], weights: Array | None) -> list[tuple[Sketch, Tensor]]:
    """Cells of each column, and what is known of each: its value (c,), or its ends and bounds (c, 4)."""
    if isinstance(x, list | Cells):
        columns = x if isinstance(x, list) else observed_columns(x, weights)
        return [(column.sketch, torch.from_numpy(column.ends)) for column in columns]
    sketches = [_sketch(column, weights, d) for d, column in enumerate(x.T)]
    return [(cells, torch.from_numpy(cells.x)) for cells in sketches]


def _sketch(column: Tensor, weights: Array | None, position: int) -> Sketch:
    values = column.detach().cpu().double().numpy()
    used = (values != 0) & ~np.isnan(values)
    return sketch(values[used], np.ones(int(used.sum())) if weights is None else weights[used], position)


def _fit_column(column: tuple[Sketch, Tensor], family: type[TimeTransformed], m: int) -> ColumnFit:
    cells, known = column
    starts = _starts(cells, family, m)
    x = known.expand(len(starts), *known.shape)
    weights = torch.from_numpy(cells.weights).expand(len(starts), -1)
    extra = n_shapes(family)
    prior = prior_of(family, m)
    scores = _scores_of(family, m)
    points, values, _ = climb(x, weights, starts, prior, scores=scores, arrived=1e-4, steps=200)
    point = points[int(values.argmax())]
    x, weights = x[:1], weights[:1]
    log_likelihood = float((weights * scores(x, point[None])[0]).sum())
    n = float(cells.weights.sum())
    found = information(x, weights, point, prior, scores)
    index, error = index_and_error(partial(index_at, family, m), point, found)
    initial, rates = natural(point[: 2 * m])
    shape, scale = shapes_of(family, point[2 * m :])
    criterion = log_likelihood - (2 * m - 1 + extra) / 2 * float(np.log(n))
    return ColumnFit(initial, rates, float(shape), float(scale), log_likelihood, criterion, index, error)


def prior_of(family: type[TimeTransformed], m: int) -> Tensor:
    """Matrix of the penalty on the coordinates of a column, as `phvae.start.penalty`."""
    prior: Tensor = torch.block_diag(penalty(m, STRENGTH), TETHER * torch.eye(n_shapes(family), dtype=torch.float64))
    # logits all together, and each direction the data may leave open, stay where they began
    return prior + TETHER * torch.eye(len(prior), dtype=torch.float64)


def law_at(family: type[TimeTransformed], m: int, point: Tensor) -> TimeTransformed:
    """The law at coordinates of a climb: start logits, log rate increments and outputs of the clock."""
    initial, rates = natural(point[..., : 2 * m])
    return _law(family, initial, rates, point[..., 2 * m :])


def index_at(family: type[TimeTransformed], m: int, point: Tensor) -> Tensor:
    """The index of its tail."""
    return law_at(family, m, point).tail_index


def _law(family: type[TimeTransformed], initial: Tensor, rates: Tensor, outputs: Tensor) -> TimeTransformed:
    chain = SeriesPhaseType._build(initial, rates, validate_args=False)
    return family(chain, *shapes_of(family, outputs), validate_args=False)


def _starts(cells: Sketch, family: type[TimeTransformed], m: int) -> Tensor:
    """Points from which to climb: shapes and scales on a grid, each with a chain of the right mean."""
    below = cells.weights.cumsum() / cells.weights.sum()
    scales = [cells.x[np.searchsorted(below, level)] for level in QUANTILES] if family.scale_is_free else [1.0]
    points = []
    for bend in SHAPES:
        for scale in scales:
            outputs = torch.tensor([np.log(bend), np.log(scale)][: n_shapes(family)], dtype=torch.float64)
            one = torch.ones(1, dtype=torch.float64)
            law = _law(family, one, one, outputs)
            # what the clock of the chain shows, on average over the rows
            time = -law.log_sf(torch.from_numpy(cells.x))
            mean = float((torch.from_numpy(cells.weights) * time).sum() / cells.weights.sum())
            rates = np.geomspace(0.7, 10.0, m) / mean if m > 1 else np.array([1 / mean])
            chain = np.concatenate([np.zeros(m), np.log(np.diff(rates, prepend=0.0))])
            points.append(torch.cat([torch.from_numpy(chain), outputs]))
    return torch.stack(points)


def _scores_of(family: type[TimeTransformed], m: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """For `phvae.start.climb`: log-likelihood of every cell (P, cells) and its gradient (P, cells, 2m + shapes)."""

    def scores(x: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
        # a copy of the law per value makes the gradient come out per value
        own = point[:, None].expand(*x.shape[:2], point.shape[-1]).clone().requires_grad_()
        law = law_at(family, m, own)
        log_density = law.log_prob(x) if x.ndim == 2 else log_observed(law, x)
        (slopes,) = torch.autograd.grad(log_density.sum(), own)
        return log_density.detach(), slopes

    return scores


def information(
    x: Tensor, weights: Tensor, point: Tensor, prior: Tensor, scores: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
) -> Tensor:
    """Observed information: minus the second derivatives of the penalised log-likelihood, by central differences."""
    moves = STEP * torch.eye(len(point), dtype=torch.float64)
    around = torch.cat([point + moves, point - moves])
    slopes = scores(x.expand(len(around), *x.shape[1:]), around)[1]
    gradients = (weights[..., None] * slopes).sum(1) - 2 * around @ prior
    up, down = gradients.chunk(2)
    curvature = (down - up) / (2 * STEP)
    return (curvature + curvature.T) / 2


def index_and_error(tail_index: Callable[[Tensor], Tensor], point: Tensor, curvature: Tensor) -> tuple[float, float]:
    """Index of the tail of a law at a point and the standard error of its logarithm, by the delta method."""
    at = point.clone().requires_grad_()
    index = tail_index(at)
    if not float(index.detach()) > 0:
        return float(index.detach()), float("nan")
    (slope,) = torch.autograd.grad(index.log(), at)
    values, vectors = torch.linalg.eigh(curvature)
    if float(values[0]) <= FLAT:
        return float(index.detach()), float("nan")
    error = ((slope @ vectors).square() / values).sum().sqrt()
    return float(index.detach()), float(error)
