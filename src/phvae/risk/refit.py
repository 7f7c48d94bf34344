"""A fitted model fitted again to resampled rows, from where it stands."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.start import cells, climb, natural, penalty

__all__ = ["refit_column", "resampled"]

Array = NDArray[np.float64]

# Scores of so many values and parameters are held at once when one column is fitted to many resamples.
ENTRIES_AT_ONCE = 2**21


def resampled(n: int, seed: int, replicate: int, block_length: int = 1) -> NDArray[np.int64]:
    """Rows of one resample, shape ``(n,)``: drawn with replacement, or as blocks of neighbours on a circle.

    Rows that depend on the rows before them keep that dependence within a block (Politis and Romano 1992).

    Args:
        n: Rows of the table.
        seed: Seed of all resamples.
        replicate: Number of this one.
        block_length: Rows of a block; 1 for independent rows.

    >>> resampled(6, seed=0, replicate=1, block_length=3)
    array([3, 4, 5, 5, 0, 1])
    """
    rng = np.random.default_rng([seed, replicate])
    starts = rng.integers(n, size=-(-n // block_length))
    rows: NDArray[np.int64] = ((starts[:, None] + np.arange(block_length)) % n).ravel()[:n]
    return rows


def refit_column(
    u: Array, counts: NDArray[np.int64], initial: Tensor, rates: Tensor, smoothness: float
) -> tuple[Tensor, Tensor]:
    """Series phase-type laws of one column by penalised maximum likelihood, one for every resample, from one law.

    Args:
        u: Unit-free values, shape ``(n,)``; exact zeros are left out.
        counts: How often each resample holds each value, shape ``(B, n)``.
        initial: Start probabilities of the fitted law, shape ``(m,)``.
        rates: Its rates, shape ``(m,)``.
        smoothness: Weight of the penalty on uneven phases, beside a mean log-likelihood.

    Returns:
        Start probabilities and rates, both of shape ``(B, m)``.
    """
    distinct, where = np.unique(u, return_inverse=True)
    original = np.bincount(where)
    positive = distinct > 0
    distinct, original = distinct[positive], original[positive]
    first = cells(original)
    middle = np.add.reduceat(original * distinct, first) / np.add.reduceat(original, first)
    x, weights = [], []
    for row in counts:
        mass = np.bincount(where, weights=row)[positive]
        total = np.add.reduceat(mass, first)
        # a cell that this resample misses keeps a value, at weight zero
        x.append(np.divide(np.add.reduceat(mass * distinct, first), total, out=middle.copy(), where=total > 0))
        weights.append(total)
    point = torch.cat([initial.log(), rates.diff(prepend=torch.zeros(1, dtype=rates.dtype)).log()])
    prior = penalty(len(initial), smoothness * float(original.sum()))
    at_once = max(1, ENTRIES_AT_ONCE // (len(first) * len(point)))
    parts = [
        climb(torch.from_numpy(np.stack(values)), torch.from_numpy(np.stack(mass)), point.repeat(len(values), 1), prior)
        for values, mass in ((x[b : b + at_once], weights[b : b + at_once]) for b in range(0, len(x), at_once))
    ]
    return natural(torch.cat([reached for reached, _, _ in parts]))
