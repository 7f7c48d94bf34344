"""Operations under which phase-type laws are closed; each result is exact."""

from collections.abc import Sequence

import torch
from torch import Tensor

from phvae.distributions import checks
from phvae.distributions.checks import Numbers
from phvae.distributions.composable import Composable
from phvae.distributions.phase_type import PhaseType


def _parts(name: str, law: Composable) -> PhaseType:
    if not isinstance(law, Composable):
        raise ValueError(f"{name} is a {type(law).__name__}; give a PhaseType or a SeriesPhaseType")
    return law.to_phase_type()


def _pair(first: Composable, second: Composable) -> tuple[PhaseType, PhaseType]:
    left, right = _parts("first law", first), _parts("other", second)
    try:
        batch = torch.broadcast_shapes(left.batch_shape, right.batch_shape)
    except RuntimeError as error:
        shapes = f"{tuple(left.batch_shape)} and {tuple(right.batch_shape)}"
        raise ValueError(f"the laws have batch shapes {shapes}, which do not broadcast; expand one of them") from error
    return left.expand(batch), right.expand(batch)


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """Kronecker product of two batches of vectors."""
    return (left[..., :, None] * right[..., None, :]).flatten(-2)


def _kron(left: Tensor, right: Tensor) -> Tensor:
    """Kronecker product of two batches of matrices."""
    product = left[..., :, None, :, None] * right[..., None, :, None, :]
    return product.flatten(-4, -3).flatten(-2)


def _eye(law: PhaseType) -> Tensor:
    return torch.eye(law.initial.shape[-1], dtype=law.initial.dtype, device=law.initial.device)


def _blocks(rows: Sequence[Sequence[Tensor | None]], sizes: Sequence[int], like: Tensor) -> Tensor:
    """Block matrix, with zeros where a block is None."""
    batch = like.shape[:-1]

    def block(value: Tensor | None, height: int, width: int) -> Tensor:
        return like.new_zeros((*batch, height, width)) if value is None else value.expand(*batch, height, width)

    return torch.cat(
        [
            torch.cat([block(value, height, width) for value, width in zip(row, sizes, strict=True)], -1)
            for row, height in zip(rows, sizes, strict=True)
        ],
        -2,
    )


def add(first: Composable, second: Composable) -> PhaseType:
    """Law of ``X + Y``: the second chain starts where the first is absorbed.

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = SeriesPhaseType([1.0], [2.0]) + SeriesPhaseType([1.0], [4.0])
    >>> float(law.mean)
    0.75
    """
    left, right = _pair(first, second)
    handover = left.exit_rates[..., :, None] * right.initial[..., None, :]
    sizes = (left.initial.shape[-1], right.initial.shape[-1])
    return PhaseType._build(
        torch.cat((left.initial, torch.zeros_like(right.initial)), -1),
        _blocks([[left.generator, handover], [None, right.generator]], sizes, left.initial),
        torch.cat((torch.zeros_like(left.exit_rates), right.exit_rates), -1),
        left._validate_args,
    )


def minimum(first: Composable, second: Composable) -> PhaseType:
    """Law of ``min(X, Y)``: both chains run, the first absorption ends it (Kronecker sum).

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = SeriesPhaseType([1.0], [2.0]).minimum(SeriesPhaseType([1.0], [6.0]))
    >>> float(law.mean)
    0.125
    """
    left, right = _pair(first, second)
    ones = torch.ones_like(left.exit_rates), torch.ones_like(right.exit_rates)
    return PhaseType._build(
        _outer(left.initial, right.initial),
        _kron(left.generator, _eye(right)) + _kron(_eye(left), right.generator),
        _outer(left.exit_rates, ones[1]) + _outer(ones[0], right.exit_rates),
        left._validate_args,
    )


def maximum(first: Composable, second: Composable) -> PhaseType:
    """Law of ``max(X, Y)``: both chains run until one is absorbed, then the other alone.

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = SeriesPhaseType([1.0], [2.0]).maximum(SeriesPhaseType([1.0], [6.0]))
    >>> round(float(law.mean), 12) == round(1 / 2 + 1 / 6 - 1 / 8, 12)
    True
    """
    left, right = _pair(first, second)
    both = _kron(left.generator, _eye(right)) + _kron(_eye(left), right.generator)
    right_ends = _kron(_eye(left), right.exit_rates[..., :, None])
    left_ends = _kron(left.exit_rates[..., :, None], _eye(right))
    start = _outer(left.initial, right.initial)
    sizes = (start.shape[-1], left.initial.shape[-1], right.initial.shape[-1])
    rows: list[list[Tensor | None]]
    rows = [[both, right_ends, left_ends], [None, left.generator, None], [None, None, right.generator]]
    return PhaseType._build(
        torch.cat((start, torch.zeros_like(left.initial), torch.zeros_like(right.initial)), -1),
        _blocks(rows, sizes, left.initial),
        torch.cat((torch.zeros_like(start), left.exit_rates, right.exit_rates), -1),
        left._validate_args,
    )


def mixture(weights: Numbers, laws: Sequence[Composable], validate_args: bool | None = None) -> PhaseType:
    """Law that is ``laws[k]`` with probability ``weights[..., k]``: the chains side by side.

    Args:
        weights: Probabilities, shape ``(..., k)``, that sum to one.
        laws: One law per weight, with batch shapes that broadcast.
        validate_args: Check the weights; ``False`` gives NaN in the rows at fault. As in ``laws[0]`` by default.

    >>> from phvae.distributions import SeriesPhaseType
    >>> law = mixture([0.25, 0.75], [SeriesPhaseType([1.0], [2.0]), SeriesPhaseType([1.0], [4.0])])
    >>> float(law.mean)
    0.3125
    """
    shares = checks.as_tensor("weights", weights)
    if shares.ndim == 0 or shares.shape[-1] != len(laws) or not laws:
        raise ValueError(f"weights has shape {tuple(shares.shape)} for {len(laws)} laws; give one weight per law")
    parts = [_parts(f"laws[{k}]", law) for k, law in enumerate(laws)]
    validate = parts[0]._validate_args if validate_args is None else validate_args
    if validate:
        checks.require_entry(shares, "weights")
    shares = checks.normalised(shares)
    try:
        batch = torch.broadcast_shapes(shares.shape[:-1], *(law.batch_shape for law in parts))
    except RuntimeError as error:
        shapes = ", ".join(str(tuple(law.batch_shape)) for law in parts)
        raise ValueError(f"the laws have batch shapes {shapes}, which do not broadcast; expand them") from error
    parts = [law.expand(batch) for law in parts]
    starts = torch.cat([shares[..., k : k + 1] * law.initial for k, law in enumerate(parts)], -1)
    rows = [[law.generator if k == j else None for j in range(len(parts))] for k, law in enumerate(parts)]
    sizes = [law.initial.shape[-1] for law in parts]
    exits = torch.cat([law.exit_rates for law in parts], -1)
    return PhaseType._build(starts, _blocks(rows, sizes, starts), exits, validate)
