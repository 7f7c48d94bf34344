"""The one door to sums of independent chains: inverted transforms, and the parts that the columns have in a tail."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from phvae.kernels.backends import in_threads

__all__ = ["log_inverse", "log_tail_parts"]

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

    rows: Any = contour_rows
    inputs = [part.detach().contiguous().numpy() for part in (x.double(), law)]
    inputs += [part.detach().double().contiguous().numpy() for part in (initial, rates, zero)]
    value, shares = np.empty(len(x)), np.empty((len(x), parts))
    in_threads(
        len(x),
        NODES * initial.shape[1] * initial.shape[2],
        lambda begin, end: rows(order, power, *inputs, begin, end, value, shares),
    )
    return torch.from_numpy(value), torch.from_numpy(shares)
