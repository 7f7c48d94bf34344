"""The one door to sums of independent chains: inverted transforms, and the parts that the columns have in a tail."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from phvae.kernels.backends import in_threads

__all__ = ["log_inverse", "log_signed_inverse", "log_signed_tail_parts", "log_tail_parts"]

# Work per phase of a row beside that of one chain's likelihood, which threads are started for.
NODES = 40


def log_inverse(order: int, power: int, x: Tensor, law: Tensor, initial: Tensor, rates: Tensor, zero: Tensor) -> Tensor:
    """Log of an integral of the density of ``X = Σ_j X_j``; NaN where no path through the saddle has converged.

    ``order = k`` with ``power = 0`` is ``f(x)`` for 0, ``P(X > x)`` for 1 and ``E[(X - x)_+^(k-1)] / (k-1)!`` beyond;
    ``order = 0`` with ``power = k`` is ``P(X <= x)`` for 1 and ``E[(x - X)_+^(k-1)] / (k-1)!`` beyond, atom included.

    Args:
        order: 0 to 3.
        power: 0 to 3; one of both is 0.
        x: Points, positive, shape ``(n,)``.
        law: Which sum each belongs to, shape ``(n,)``.
        initial: Start probabilities of the columns, shape ``(laws, D, m)``.
        rates: Rates, non-decreasing, shape ``(laws, D, m)``.
        zero: Chance that a column is zero, shape ``(laws, D)``, not 1 for all.

    >>> one = torch.ones(1, 2, 1, dtype=torch.float64)
    >>> rates, zero = torch.tensor([[[1.0], [2.0]]]), torch.zeros(1, 2)
    >>> tail = log_inverse(1, 0, torch.tensor([3.0]), torch.zeros(1, dtype=torch.int64), one, rates, zero).exp()
    >>> bool((tail - (2 * torch.exp(torch.tensor(-3.0)) - torch.exp(torch.tensor(-6.0)))).abs() < 1e-7)
    True
    """
    return _rows(order, power, x, law, initial, rates, zero, 0)[0]


def log_tail_parts(x: Tensor, law: Tensor, initial: Tensor, rates: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
    """Log of ``P(X > x)``, shape ``(n,)``, and ``E[X_j | X > x]`` of every column, shape ``(n, D)``.

    Arguments as in `log_inverse`.
    """
    return _rows(1, 0, x, law, initial, rates, zero, initial.shape[1])


def _rows(
    order: int, power: int, x: Tensor, law: Tensor, initial: Tensor, rates: Tensor, zero: Tensor, parts: int
) -> tuple[Tensor, Tensor]:
    from phvae.kernels.cpu_sums import contour_rows

    return _filled(contour_rows, (order, power), x, law, (initial, rates, zero), initial.shape[1], parts)


def _filled(
    rows: Any, which: tuple[int, int], x: Tensor, law: Tensor, laws: tuple[Tensor, ...], chains: int, parts: int
) -> tuple[Tensor, Tensor]:
    """What a kernel writes for all rows, in threads."""
    inputs = [part.detach().contiguous().numpy() for part in (x.double(), law)]
    inputs += [part.detach().double().contiguous().numpy() for part in laws]
    value, shares = np.empty(len(x)), np.empty((len(x), parts))
    in_threads(
        len(x),
        NODES * chains * laws[0].shape[-1],
        lambda begin, end: rows(*which, *inputs, begin, end, value, shares),
    )
    return torch.from_numpy(value), torch.from_numpy(shares)


def log_signed_inverse(
    order: int, lower: bool, x: Tensor, law: Tensor, initial: Tensor, rates: Tensor, share: Tensor, zero: Tensor
) -> Tensor:
    """Log of an integral of the density of a sum of two-sided chains; NaN where no path has converged.

    ``order = 0`` is ``f(x)``, from 1 on it is ``E[(X - x)_+^(k-1)] / (k-1)!``, ``P(X > x)`` for ``k = order = 1``, and
    with ``lower`` that of ``(x - X)_+``; an atom at zero is in none of them.

    Args:
        order: 0 to 3.
        lower: Whether the saddle, and with it the tail, lies on the losses' side of zero.
        x: Points, at least 0, shape ``(n,)``.
        law: Which sum each belongs to, shape ``(n,)``.
        initial: Start probabilities of gains and of losses, shape ``(laws, 2, D, m)``.
        rates: Rates, non-decreasing, shape ``(laws, 2, D, m)``.
        share: Chance of a gain and of a loss, shape ``(laws, 2, D)``.
        zero: Chance that a column is zero, shape ``(laws, D)``.

    >>> one = torch.ones(1, 2, 1, 1, dtype=torch.float64)
    >>> share, zero = torch.full((1, 2, 1), 0.5), torch.zeros(1, 1)
    >>> first = torch.zeros(1, dtype=torch.int64)
    >>> tail = log_signed_inverse(1, False, torch.tensor([3.0]), first, one, one, share, zero)
    >>> bool((tail.exp() - torch.exp(torch.tensor(-3.0)) / 2).abs() < 1e-8)
    True
    """
    return _signed_rows(order, lower, x, law, initial, rates, share, zero, 0)[0]


def log_signed_tail_parts(
    x: Tensor, law: Tensor, initial: Tensor, rates: Tensor, share: Tensor, zero: Tensor
) -> tuple[Tensor, Tensor]:
    """Log of ``P(X > x)``, shape ``(n,)``, and ``E[X_j | X > x]`` of every two-sided column, shape ``(n, D)``.

    Arguments as in `log_signed_inverse`.
    """
    return _signed_rows(1, False, x, law, initial, rates, share, zero, zero.shape[1])


def _signed_rows(
    order: int,
    lower: bool,
    x: Tensor,
    law: Tensor,
    initial: Tensor,
    rates: Tensor,
    share: Tensor,
    zero: Tensor,
    parts: int,
) -> tuple[Tensor, Tensor]:
    from phvae.kernels.cpu_signed_sums import signed_rows

    return _filled(signed_rows, (order, lower), x, law, (initial, rates, share, zero), 2 * initial.shape[2], parts)
