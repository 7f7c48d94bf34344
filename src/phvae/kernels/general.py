"""Log density, survival and cdf of any phase-type law, in non-negative arithmetic at any depth.

Everything is the one form ``initial · exp(generator x) · target``. The matrix is shifted by its largest diagonal rate
so that every entry is non-negative, the scaled exponential is a Taylor series, and squaring brings it back. Rows carry
a power of two each, so nothing underflows, and while a row has lost less than half of its mass to absorption it is
rescaled to the mass it must have; that stops the rounding error of the squarings from doubling. No step subtracts
numbers of equal size, so each entry keeps its relative accuracy (Xue and Ye, "Computing exponentials of essentially
non-negative matrices entrywise to high relative accuracy", Math. Comp. 82, 2013).
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phvae.kernels.once import closed_form

_CHUNK_ENTRIES = 2**18
_EXTRA_TERMS = 20


def log_density(x: Tensor, initial: Tensor, generator: Tensor, exit_rates: Tensor | None = None) -> Tensor:
    """Log of ``f(x) = initial · exp(generator x) · exit_rates``.

    Args:
        x: Points, shape broadcastable with the batch shape of the parameters.
        initial: Entry weights, shape ``(..., m)``; they need not sum to one.
        generator: Sub-generator, shape ``(..., m, m)``.
        exit_rates: Shape ``(..., m)``; minus the row sums of ``generator`` unless given.

    Returns:
        float64, shape ``broadcast(x, initial[..., 0])``; NaN where the input is not a law or ``x`` is not a point.

    >>> float(log_density(torch.tensor(1e6), torch.tensor([1.0]), torch.tensor([[-1.0]])))
    -1000000.0
    """
    exit_rates = row_deficits(generator) if exit_rates is None else exit_rates
    return log_form(x, initial, generator, exit_rates, exit_rates)


def log_survival(x: Tensor, initial: Tensor, generator: Tensor, exit_rates: Tensor | None = None) -> Tensor:
    """Log of ``S(x) = initial · exp(generator x) · 1``; arguments as in `log_density`."""
    exit_rates = row_deficits(generator) if exit_rates is None else exit_rates
    return log_form(x, initial, generator, torch.ones_like(exit_rates), exit_rates)


def log_cdf(x: Tensor, initial: Tensor, generator: Tensor, exit_rates: Tensor | None = None) -> Tensor:
    """Log of ``F(x) = sum(initial) - S(x)``; arguments as in `log_density`.

    Below the median ``F`` is the mass of an added absorbing state, which loses no digits as ``x`` goes to zero.
    """
    exit_rates = row_deficits(generator) if exit_rates is None else exit_rates
    x, initial, generator, exit_rates = (value.double() for value in (x, initial, generator, exit_rates))
    total = initial.sum(-1).log()
    log_sf = log_survival(x, initial, generator, exit_rates) - total
    below = log_sf > -math.log(2)
    upper = torch.log1p(-torch.exp(torch.where(below, -math.inf, log_sf))) + total
    if not bool(below.any()):
        return upper
    shape = below.shape
    zero = torch.zeros_like(exit_rates[..., :1])
    batch = torch.broadcast_shapes(generator.shape[:-2], exit_rates.shape[:-1])
    size = generator.shape[-1]
    rows = torch.cat((generator.expand(*batch, size, size), exit_rates.expand(*batch, size)[..., None]), -1)
    augmented = torch.cat((rows, torch.zeros_like(rows[..., :1, :])), -2)
    target = torch.cat((torch.zeros_like(exit_rates), zero + 1), -1)
    # a zero at points above the median costs no squarings there, and its value and gradient are not used
    points = torch.where(below, x.expand(shape), 0.0)
    weights = torch.cat((initial, torch.zeros_like(initial[..., :1])), -1)
    lower = log_form(points, weights, augmented, target, torch.zeros_like(target))
    return torch.where(below, lower, upper)


def row_deficits(generator: Tensor, unit_roundoff: float = torch.finfo(torch.float64).eps) -> Tensor:
    """Exit rates: minus the row sums, where a sum that is only rounding error counts as exactly zero."""
    deficits = -generator.sum(-1)
    rounding = generator.shape[-1] * unit_roundoff * generator.diagonal(dim1=-2, dim2=-1).abs()
    # a subtraction keeps nothing for the way back, which parameters of a law go more than once
    return deficits - deficits.masked_fill(deficits.abs() > rounding, 0.0).detach()


def log_form(x: Tensor, initial: Tensor, generator: Tensor, target: Tensor, exit_rates: Tensor) -> Tensor:
    """Log of ``initial · exp(generator x) · target`` for non-negative ``initial`` and ``target``.

    Differentiable once in ``x``, ``initial``, ``generator`` and ``target``; ``exit_rates`` only steers the rounding
    and is taken as a constant. Memory is bounded: elements are worked through in chunks of like cost.
    """
    x, initial, generator, target = (value.double() for value in (x, initial, generator, target))
    exit_rates = exit_rates.detach().double()
    size = generator.shape[-1]
    batch = torch.broadcast_shapes(initial.shape[:-1], generator.shape[:-2], target.shape[:-1], exit_rates.shape[:-1])
    shape = torch.broadcast_shapes(x.shape, batch)
    law = torch.arange(math.prod(batch), device=generator.device).reshape(batch).expand(shape).reshape(-1)
    value: Tensor = _LogForm.apply(  # type: ignore[no-untyped-call]
        x.expand(shape).reshape(-1),
        initial.expand(*batch, size).reshape(-1, size),
        generator.expand(*batch, size, size).reshape(-1, size, size),
        target.expand(*batch, size).reshape(-1, size),
        exit_rates.expand(*batch, size).reshape(-1, size),
        law,
    )
    return value.reshape(shape)


class _LogForm(torch.autograd.Function):
    """The flat form: points ``(n,)``, parameters of ``b`` laws, and the law of each point ``(n,)``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, initial: Tensor, generator: Tensor, target: Tensor, exit_rates: Tensor, law: Tensor
    ) -> Tensor:
        found = _values(x, initial, generator, target, exit_rates, law)
        ctx.save_for_backward(x, initial, generator, target, exit_rates, law, *found)
        return found[0]

    @staticmethod
    @closed_form
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, initial, generator, target, exit_rates, law, value, by_x, by_initial, by_target = ctx.saved_tensors
        used = grad != 0
        index, weight = law[used], grad[used]
        grad_x = torch.zeros_like(x)
        grad_x[used] = weight * by_x[used]
        grad_initial = torch.zeros_like(initial).index_add_(0, index, weight[:, None] * by_initial[used])
        grad_target = torch.zeros_like(target).index_add_(0, index, weight[:, None] * by_target[used])
        grad_generator = None
        if ctx.needs_input_grad[2]:
            grad_generator = torch.zeros_like(generator)
            lost = used & value.isnan()
            grad_generator[law[lost]] = math.nan
            wanted = used & ~value.isnan() & (x < math.inf)
            for rows, slope in _generator_slopes(x, initial, generator, target, exit_rates, law, wanted):
                grad_generator.index_add_(0, law[rows], grad[rows, None, None] * slope)
        return grad_x, grad_initial, grad_generator, grad_target, None, None


def partials(
    x: Tensor, initial: Tensor, generator: Tensor, target: Tensor, exit_rates: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`log_form` of one law per point ``(n,)`` and its derivatives by x, initial and generator, without autograd."""
    law = torch.arange(len(x), device=x.device)
    value, by_x, by_initial, _ = _values(x, initial, generator, target, exit_rates, law)
    by_generator = torch.full_like(generator, math.nan)
    wanted = ~value.isnan() & (x < math.inf)
    for rows, slope in _generator_slopes(x, initial, generator, target, exit_rates, law, wanted):
        by_generator[rows] = slope
    return value, by_x, by_initial, by_generator


def value_and_reach(
    x: Tensor, initial: Tensor, generator: Tensor, target: Tensor, exit_rates: Tensor
) -> tuple[Tensor, Tensor]:
    """`log_form` of one law per point ``(n,)`` and its derivative by initial, without autograd."""
    value, _, by_initial, _ = _values(x, initial, generator, target, exit_rates, torch.arange(len(x), device=x.device))
    return value, by_initial


def _values(
    x: Tensor, initial: Tensor, generator: Tensor, target: Tensor, exit_rates: Tensor, law: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Value and its derivatives by x, initial and target, row by row."""
    value = torch.full_like(x, math.nan)
    by_x = torch.full_like(x, math.nan)
    by_initial = torch.full((len(x), initial.shape[-1]), math.nan, dtype=x.dtype, device=x.device)
    by_target = by_initial.clone()
    valid = _is_law(initial, generator, target, exit_rates)[law]
    value[valid & (x == math.inf)] = -math.inf
    for rows, squarings in _chunks(x, generator, law, valid & (x >= 0) & (x < math.inf)):
        start, generators = initial[law[rows]], generator[law[rows]]
        flow = _propagate(x[rows], start, generators, target[law[rows]], exit_rates[law[rows]], squarings, False)
        reach = (flow.exponential @ flow.target[..., None])[..., 0]
        top, total = _total(start * reach, flow.exponent)
        value[rows] = total.log() + top * math.log(2)
        by_initial[rows] = _scale(reach, flow.exponent - top[:, None]) / total[:, None]
        weights = _scale(start, flow.exponent - top[:, None]) / total[:, None]
        occupied = (weights[:, None, :] @ flow.exponential)[:, 0]
        by_target[rows] = _scale(occupied, -flow.potential)
        drift = _drift(generators, target[law[rows]], exit_rates[law[rows]])
        by_x[rows] = (occupied * _scale(drift, -flow.potential)).sum(-1)
    return value, by_x, by_initial, by_target


def _generator_slopes(
    x: Tensor, initial: Tensor, generator: Tensor, target: Tensor, exit_rates: Tensor, law: Tensor, wanted: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Derivatives by the generator for the wanted rows, chunk by chunk.

    d f / d A_ij is the integral of occupancy(i at u) times reach(j at x - u): entry (j, i) of the integral.
    """
    for rows, squarings in _chunks(x, generator, law, wanted):
        start, generators = initial[law[rows]], generator[law[rows]]
        flow = _propagate(x[rows], start, generators, target[law[rows]], exit_rates[law[rows]], squarings, True)
        reach = (flow.exponential @ flow.target[..., None])[..., 0]
        top, total = _total(start * reach, flow.exponent)
        exponent = flow.integral_exponent[:, :, None] - flow.potential[:, None, :] - top[:, None, None]
        slope = _scale(flow.integral, exponent) / total[:, None, None]
        yield rows, slope.mT


class _Flow(NamedTuple):
    """``exp(generator x) = diag(2^exponent) exponential diag(2^-potential)``, and likewise its directional integral."""

    exponential: Tensor
    exponent: Tensor
    potential: Tensor
    target: Tensor
    integral: Tensor
    integral_exponent: Tensor


def _propagate(
    x: Tensor,
    initial: Tensor,
    generator: Tensor,
    target: Tensor,
    exit_rates: Tensor,
    squarings: Tensor,
    with_integral: bool,
) -> _Flow:
    """Exponential at ``x``, and ``integral of exp(A u) target initial exp(A (x - u)) du`` when asked for.

    ``squarings`` is in descending order, so the elements still to be squared are always a prefix.
    """
    size = generator.shape[-1]
    terms = size + _EXTRA_TERMS
    step = _scale(x, -squarings)
    shift = -generator.diagonal(dim1=-2, dim2=-1).amin(-1)
    potential = _potential(generator * step[:, None, None], target, squarings)
    generator = _scale(generator, potential[:, None, :] - potential[:, :, None])
    target = _scale(target, -potential)
    positive = generator + shift[:, None, None] * torch.eye(size, dtype=x.dtype, device=x.device)
    positive = positive * step[:, None, None]
    damping = torch.exp(-shift * step)
    exponential = damping[:, None, None] * _taylor(positive, terms)
    exponential, exponent = _normalised(exponential, potential)
    # absorbed mass after one step: the same series with a source that decays only by the shift
    clock = (shift * step)[:, None] ** torch.arange(terms, dtype=x.dtype, device=x.device)
    weights = (clock @ _pair_coefficients(terms).to(x.device)) * (step * damping)[:, None]
    absorbed = (weights[:, None, :] @ _krylov(positive, exit_rates, terms))[:, 0]
    integral, integral_exponent = exponential, exponent
    if with_integral:
        top, _ = _total(initial, potential)
        source = _scale(initial, potential - top[:, None])
        left = _krylov(positive, target, terms).mT @ _pair_coefficients(terms).to(x.device)
        integral = left @ _krylov(positive.mT, source, terms) * (step * damping)[:, None, None]
        integral, integral_exponent = _normalised(integral, potential + top[:, None])

    for count in _prefixes(squarings):
        part, part_exponent = exponential[:count], exponent[:count]
        if with_integral:
            whole, whole_exponent = integral[:count], integral_exponent[:count]
            early = _product(part, part_exponent, whole, whole_exponent)
            late = _product(whole, whole_exponent, part, part_exponent)
            integral[:count], integral_exponent[:count] = _sum(early, late)
        moved = (part @ absorbed[:count, :, None])[..., 0]
        doubled, doubled_exponent = _product(part, part_exponent, part, part_exponent)
        absorbed[:count] = absorbed[:count] + _scale(moved, part_exponent)
        alive = 1 - absorbed[:count]
        correction = _scale(alive, -doubled_exponent) / doubled.sum(-1)
        correction = torch.where(alive > 0.5, correction, torch.ones_like(alive))
        exponential[:count], exponent[:count] = doubled * correction[..., None], doubled_exponent
    return _Flow(exponential, exponent, potential, target, integral, integral_exponent)


def _is_law(initial: Tensor, generator: Tensor, target: Tensor, exit_rates: Tensor) -> Tensor:
    diagonal = generator.diagonal(dim1=-2, dim2=-1)
    jumps = generator - torch.diag_embed(diagonal)
    signs = (jumps >= 0).all(-1) & (diagonal <= 0) & (exit_rates >= 0) & (initial >= 0) & (target >= 0)
    finite = generator.isfinite().all(-1) & initial.isfinite() & target.isfinite() & exit_rates.isfinite()
    return (signs & finite).all(-1)


def _drift(generator: Tensor, target: Tensor, exit_rates: Tensor) -> Tensor:
    """``generator · target`` with the diagonal that jumps and exits mean: for equal targets only the exits are left."""
    jumps = generator - torch.diag_embed(generator.diagonal(dim1=-2, dim2=-1))
    return (jumps * (target[:, None, :] - target[:, :, None])).sum(-1) - exit_rates * target


def _chunks(x: Tensor, generator: Tensor, law: Tensor, wanted: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Indices of the wanted points, most squarings first, in pieces of bounded size."""
    rows = wanted.nonzero()[:, 0]
    speed = -generator.diagonal(dim1=-2, dim2=-1).amin(-1)
    doublings = torch.ceil(speed[law[rows]].log2() + x[rows].log2())
    squarings = torch.where(doublings > 0, doublings, torch.zeros_like(doublings))
    squarings, order = squarings.sort(descending=True)
    length = max(1, _CHUNK_ENTRIES // generator.shape[-1] ** 2)
    return list(zip(rows[order].split(length), squarings.split(length), strict=True))


def _prefixes(squarings: Tensor) -> list[int]:
    """How many elements take part in the first, second, ... squaring."""
    counts = squarings.long().tolist()
    prefixes: list[int] = []
    taking_part = len(counts)
    for done in range(counts[0] if counts else 0):
        while counts[taking_part - 1] <= done:
            taking_part -= 1
        prefixes.append(taking_part)
    return prefixes


def _potential(scaled: Tensor, target: Tensor, squarings: Tensor) -> Tensor:
    """Binary logarithm of the heaviest path from each phase into the target, for elements that take no squaring.

    Conjugating by it keeps a chain of many phases from underflowing at tiny ``x``; elsewhere it is zero.
    """
    small = squarings == 0
    if not bool(small.any()):
        return torch.zeros_like(target)
    off_diagonal = ~torch.eye(scaled.shape[-1], dtype=torch.bool, device=scaled.device)
    edges = torch.where(off_diagonal, scaled, torch.zeros_like(scaled)).log2()
    heaviest = target.log2()
    for _ in range(scaled.shape[-1] - 1):
        improved = torch.maximum(heaviest, (edges + heaviest[:, None, :]).amax(-1))
        if torch.equal(improved, heaviest):
            break
        heaviest = improved
    reached = heaviest.isfinite()
    lowest = torch.where(reached, heaviest, math.inf).amin(-1, keepdim=True)
    lowest = torch.where(lowest.isfinite(), lowest, torch.zeros_like(lowest))
    potential = torch.where(reached, heaviest, lowest).floor()
    return torch.where(small[:, None], potential, torch.zeros_like(potential))


@lru_cache
def _coefficients(terms: int) -> Tensor:
    return torch.tensor([1 / math.factorial(k) for k in range(terms)], dtype=torch.float64)


@lru_cache
def _pair_coefficients(terms: int) -> Tensor:
    """``∫ u^k/k! (1-u)^l/l! du = 1 / (k + l + 1)!``."""
    inverse = [1 / math.factorial(k) for k in range(2 * terms)]
    return torch.tensor([inverse[k + 1 : k + 1 + terms] for k in range(terms)], dtype=torch.float64)


def _taylor(matrix: Tensor, terms: int) -> Tensor:
    """``sum over k < terms of matrix^k / k!`` by blocks (Paterson and Stockmeyer)."""
    width = math.isqrt(terms - 1) + 1
    coefficients = _coefficients(terms).to(matrix.device)
    powers = [torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device).expand_as(matrix)]
    for _ in range(width):
        powers.append(powers[-1] @ matrix)
    stacked = torch.stack(powers[:width])
    total = torch.zeros_like(matrix)
    for start in reversed(range(0, terms, width)):
        block = coefficients[start : start + width]
        total = total @ powers[width] + torch.tensordot(block, stacked[: len(block)], dims=1)
    return total


def _krylov(matrix: Tensor, vector: Tensor, terms: int) -> Tensor:
    """``matrix^k · vector`` for ``k < terms``, shape ``(n, terms, m)``."""
    vectors = [vector[..., None]]
    for _ in range(terms - 1):
        vectors.append(matrix @ vectors[-1])
    return torch.cat(vectors, -1).mT


def _scale(value: Tensor, exponent: Tensor) -> Tensor:
    """``value · 2^exponent`` without an overflow on the way."""
    mantissa, own = torch.frexp(value)
    return torch.where(mantissa == 0, mantissa, mantissa * torch.exp2(own + exponent))


def _normalised(matrix: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """The same rows with largest entries in [1/2, 1) and the powers of two moved into ``exponent``."""
    _, top = torch.frexp(matrix.amax(-1))
    # in two steps: for a row of denormal numbers the whole factor would overflow
    half = torch.div(-top, 2, rounding_mode="floor")
    return matrix * torch.exp2(half.double())[..., None] * torch.exp2((-top - half).double())[..., None], exponent + top


def _total(value: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """``sum of value · 2^exponent`` over the last axis as ``(power, mantissa)``."""
    mantissa, own = torch.frexp(value)
    exponents = torch.where(mantissa == 0, -math.inf, own + exponent)
    top = exponents.amax(-1)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    return top, (mantissa * torch.exp2(exponents - top[..., None])).sum(-1)


def _product(left: Tensor, left_exponent: Tensor, right: Tensor, right_exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Product of two row-scaled matrices, row-scaled."""
    mantissa, own = torch.frexp(left)
    exponents = torch.where(mantissa == 0, -math.inf, own + right_exponent[:, None, :])
    top = exponents.amax(-1)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    return _normalised((mantissa * torch.exp2(exponents - top[..., None])) @ right, left_exponent + top)


def _sum(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    top = torch.maximum(first[1], second[1])
    total = sum(matrix * torch.exp2(exponent - top)[..., None] for matrix, exponent in (first, second))
    assert isinstance(total, Tensor)
    return _normalised(total, top)
