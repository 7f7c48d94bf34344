"""What a parameter, an observation or a probability must be, and the sentence a user reads when it is not."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import constraints

Numbers = Tensor | float | Sequence[Any] | NDArray[Any]

SUM_TOLERANCE = 1e-6


class _Entry(constraints.Constraint):
    """Non-negative weights that sum to one."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() <= SUM_TOLERANCE)


class _Rates(constraints.Constraint):
    """Positive finite rates in non-decreasing order."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value > 0) & (value < torch.inf)).all(-1) & (value.diff(dim=-1) >= 0).all(-1)


class _SubGenerator(constraints.Constraint):
    """Jump rates off the diagonal, row sums at most zero, absorption reachable from every phase."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        diagonal = value.diagonal(dim1=-2, dim2=-1)
        jumps = value - torch.diag_embed(diagonal)
        rows = (jumps >= 0).all(-1) & (diagonal < 0) & value.isfinite().all(-1)
        rows &= value.sum(-1) <= row_rounding(value)
        return rows.all(-1) & absorbs(value).all(-1)


entry = _Entry()
increasing_rates = _Rates()
sub_generator = _SubGenerator()


def normalised(weights: Tensor) -> Tensor:
    """Probabilities in float64 that sum to exactly one; NaN in rows that were no probabilities."""
    weights = weights.double()
    shares: Tensor = _Shares.apply(weights)  # type: ignore[no-untyped-call]
    return where_sound(entry.check(weights)[..., None], shares)


def where_sound(sound: Tensor, values: Tensor) -> Tensor:
    """The values, NaN where they are not sound, in one addition: it keeps nothing for the way back.

    Parameters of a law come before everything that is asked of it: what autograd keeps for them is gone after the first
    gradient, and with it the gradients of all other answers.
    """
    return values + torch.zeros_like(values, requires_grad=False).masked_fill(~sound, torch.nan).detach()


class _Shares(torch.autograd.Function):
    """``weights / sum(weights)``, for as many ways back as are asked for."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor) -> Tensor:
        # an attribute outlives the first way back; the weights are the caller's, and no loop goes through them
        ctx.weights = weights
        return weights / weights.sum(-1, keepdim=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = ctx.weights.sum(-1, keepdim=True)
        mean = (grad * ctx.weights).sum(-1, keepdim=True) / total
        slope: Tensor = (grad - mean) / total
        return slope


def row_rounding(generator: Tensor) -> Tensor:
    """Largest row sum that is still rounding error of the generator's own precision."""
    return generator.shape[-1] * torch.finfo(generator.dtype).eps * generator.diagonal(dim1=-2, dim2=-1).abs()


def absorbs(generator: Tensor) -> Tensor:
    """Whether absorption can be reached from each phase, shape ``(..., m)``."""
    reached = -generator.sum(-1) > row_rounding(generator)
    for _ in range(generator.shape[-1] - 1):
        reached = reached | ((generator > 0) & reached[..., None, :]).any(-1)
    return reached


def as_tensor(name: str, value: Numbers, *, like: Tensor | None = None) -> Tensor:
    """A real floating tensor; numbers, lists and arrays become float64."""
    if isinstance(value, Tensor):
        tensor = value
    else:
        try:
            array = np.asarray(value)
            if array.dtype.kind not in "fiuO":
                raise ValueError(f"dtype {array.dtype}")
            kind = array.dtype if array.dtype in (np.float16, np.float32) else np.dtype(np.float64)
            tensor = torch.as_tensor(array.astype(kind), device=None if like is None else like.device)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} is not an array of numbers ({error}); pass a tensor, array or list") from error
    if tensor.is_complex() or tensor.dtype is torch.bool:
        raise ValueError(f"{name} has dtype {tensor.dtype}; pass real numbers")
    return tensor if tensor.is_floating_point() else tensor.double()


def is_whole(value: object, *, least: int) -> bool:
    """Whether the value is an integer of at least ``least``, numpy's integers included."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def phases(name: str, value: Tensor, *, dims: int) -> int:
    """Number of phases of a parameter with ``dims`` trailing axes of that length; a wrong shape is a ValueError."""
    shape = tuple(value.shape)
    wanted = "(..., m)" if dims == 1 else "(..., m, m)"
    if value.ndim < dims or (dims == 2 and shape[-1] != shape[-2]):
        raise ValueError(f"{name} has shape {shape}; it must be {wanted} with one entry per phase")
    if value.shape[-1] == 0:
        raise ValueError(f"{name} has shape {shape}: no phases; give at least one phase")
    if value.numel() == 0:
        raise ValueError(f"{name} has shape {shape}: an empty batch; give at least one law")
    return value.shape[-1]


def same_phases(first: tuple[str, Tensor, int], second: tuple[str, Tensor, int]) -> torch.Size:
    """Batch shape of two parameters, or a ValueError that names both shapes."""
    (name, value, dims), (other_name, other, other_dims) = first, second
    shapes = f"{name} has shape {tuple(value.shape)} and {other_name} has shape {tuple(other.shape)}"
    if phases(name, value, dims=dims) != phases(other_name, other, dims=other_dims):
        raise ValueError(f"{shapes}: different numbers of phases; give one {name} entry per phase of {other_name}")
    try:
        batch: torch.Size = torch.broadcast_shapes(value.shape[:-dims], other.shape[:-other_dims])
    except RuntimeError as error:
        raise ValueError(f"{shapes}: the batch axes do not broadcast; make them equal or of length one") from error
    return batch


def _refuse(name: str, value: Tensor, bad: Tensor, fault: str, remedy: str) -> NoReturn:
    position = tuple(int(i) for i in bad.nonzero()[0])
    where = f"{name}[{', '.join(map(str, position))}]" if position else name
    raise ValueError(f"{where} = {float(value.detach()[position])!r} {fault}; {remedy}")


def require_entry(initial: Tensor, name: str = "initial") -> None:
    """Raise unless every row is a probability vector over phases."""
    bad = ~(initial >= 0)
    if bool(bad.any()):
        _refuse(name, initial, bad, "is not a probability", "give non-negative entries that sum to one")
    totals = initial.double().sum(-1)
    bad = ~((totals - 1).abs() <= SUM_TOLERANCE)
    if bool(bad.any()):
        _refuse(f"sum of {name}", totals, bad, "is not one", f"divide {name} by its sum")


def require_rates(rates: Tensor) -> None:
    """Raise unless every row of rates is positive, finite and non-decreasing."""
    bad = ~((rates > 0) & (rates < torch.inf))
    if bool(bad.any()):
        _refuse("rates", rates, bad, "is not a positive finite rate", "give rates > 0 (the inverse mean times)")
    bad = torch.cat((torch.zeros_like(rates[..., :1]), rates.diff(dim=-1)), -1) < 0
    if bool(bad.any()):
        remedy = "give non-decreasing rates, or use PhaseType(...).to_series() for any order"
        _refuse("rates", rates, bad, "is smaller than the rate before it", remedy)


def require_generator(generator: Tensor) -> None:
    """Raise unless every matrix is the sub-generator of a chain that is absorbed."""
    on_diagonal = torch.eye(generator.shape[-1], dtype=torch.bool, device=generator.device)
    bad = ~generator.isfinite()
    if bool(bad.any()):
        _refuse("generator", generator, bad, "is not finite", "give finite rates")
    bad = ~on_diagonal & (generator < 0)
    if bool(bad.any()):
        _refuse("generator", generator, bad, "is a negative jump rate", "off-diagonal entries must be >= 0")
    bad = on_diagonal & (generator >= 0)
    if bool(bad.any()):
        remedy = "a diagonal entry must be < 0: minus the total rate of leaving the phase"
        _refuse("generator", generator, bad, "is a phase that is never left", remedy)
    sums = generator.sum(-1)
    bad = sums > row_rounding(generator)
    if bool(bad.any()):
        remedy = "row sums must be <= 0 (minus the exit rate): lower the diagonal entry of that row"
        _refuse("row sum of generator", sums, bad, "is positive", remedy)
    bad = ~absorbs(generator)
    if bool(bad.any()):
        remedy = "give it, or a phase reachable from it, a negative row sum"
        _refuse("generator", generator, torch.diag_embed(bad), "belongs to a phase that is never absorbed", remedy)


def require_some(name: str, value: Tensor) -> None:
    """Raise when there is nothing to evaluate."""
    if value.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(value.shape)}: an empty batch; give at least one entry")


def require_observations(name: str, x: Tensor) -> None:
    """Raise unless every observation is a non-negative number (infinity is allowed)."""
    bad = ~(x >= 0)
    if bool(bad.any()):
        remedy = "observations must be >= 0: drop missing values and subtract the column's lower endpoint first"
        _refuse(name, x, bad, "is negative or missing", remedy)


def require_finite(name: str, x: Tensor) -> None:
    """Raise unless every entry is finite."""
    bad = ~x.isfinite()
    if bool(bad.any()):
        _refuse(name, x, bad, "is not finite", f"give finite {name}: no limit exists there")


def require_probabilities(name: str, p: Tensor) -> None:
    """Raise unless every entry is in [0, 1]."""
    bad = ~((p >= 0) & (p <= 1))
    if bool(bad.any()):
        _refuse(name, p, bad, "is not a probability", "give levels in [0, 1]")


def require_positive(name: str, value: Tensor) -> None:
    """Raise unless every entry is positive and finite."""
    bad = ~((value > 0) & (value < torch.inf))
    if bool(bad.any()):
        _refuse(name, value, bad, "is not a positive finite number", f"give {name} > 0")


def require_non_negative(name: str, value: Tensor) -> None:
    """Raise unless every entry is non-negative."""
    bad = ~(value >= 0)
    if bool(bad.any()):
        _refuse(name, value, bad, "is negative or missing", f"give {name} >= 0, where the value always exists")
