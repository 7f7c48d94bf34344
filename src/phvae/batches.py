"""Rows to train on, batch by batch: where they are kept is nobody else's business."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from phvae.checkpoint import fingerprint

__all__ = ["Batch", "RowSource", "RowsInMemory", "stream"]


class Batch(NamedTuple):
    """Rows of one step.

    x: The rows, shape ``(b, D)``.
    rows: Their numbers in the table, shape ``(b,)``.
    weights: Their weights, with mean one over the table, shape ``(b,)``; None where all count the same.
    """

    x: Tensor
    rows: Tensor
    weights: Tensor | None = None


class RowSource(Protocol):
    """Rows that can be gone through again and again, in another order in every epoch."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    def fingerprint(self) -> str:
        """Digest of the rows and of whatever else their order follows from."""

    def epoch(self, number: int, *, seed: int, batch_size: int, first: int) -> Iterator[Batch]:
        """The batches of an epoch from the one with number ``first`` on; the last one of it may be smaller."""


class RowsInMemory:
    """Rows of a tensor, shuffled anew for every epoch by ``(seed, epoch)``.

    Args:
        x: The rows, shape ``(n, D)``, on the device they are used on.
        weights: Their weights, shape ``(n,)``.

    >>> rows = RowsInMemory(torch.arange(5.0)[:, None])
    >>> [batch.rows.tolist() for batch in rows.epoch(0, seed=1, batch_size=2, first=1)]
    [[0, 1], [3]]
    """

    def __init__(self, x: Tensor, weights: Tensor | None = None) -> None:
        self.x, self.weights = x, weights

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.x), self.x.shape[1]

    def fingerprint(self) -> str:
        """Digest of rows and weights."""
        return fingerprint(self.x, self.weights)

    def order(self, number: int, *, seed: int) -> Tensor:
        """Order of the rows in an epoch, shape ``(n,)``."""
        return torch.randperm(len(self.x), generator=stream("cpu", seed, "order", number)).to(self.x.device)

    def epoch(self, number: int, *, seed: int, batch_size: int, first: int) -> Iterator[Batch]:
        """The batches of an epoch from the one with number ``first`` on."""
        order = self.order(number, seed=seed)
        for start in range(first * batch_size, len(order), batch_size):
            yield self.batch(order[start : start + batch_size])

    def batch(self, rows: Tensor) -> Batch:
        """The rows with these numbers, shape ``(b,)``."""
        weights = None if self.weights is None else self.weights.index_select(0, rows)
        return Batch(self.x.index_select(0, rows), rows, weights)


def stream(device: torch.device | str, *key: int | str) -> torch.Generator:
    """A generator of its own for every key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator(device=device).manual_seed(int.from_bytes(digest, "little") >> 1)
