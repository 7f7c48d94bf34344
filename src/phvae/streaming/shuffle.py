"""Rows of row groups in an order of chance, with a bounded number of them in memory.

An epoch goes through the row groups in an order that follows from (seed, epoch), several at a time, and fills a window
with rows from all of them in turn; the rows of a window are shuffled. Where everything fits into one window the order
is that of rows in memory, `phvae.batches.RowsInMemory`. Which rows a window holds follows from the sizes of the row
groups alone, so that an interrupted epoch goes on without reading what lies behind it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.batches import Batch, stream
from phvae.checkpoint import fingerprint
from phvae.tables.row_groups import Piece, RowGroups

__all__ = ["Slice", "StreamedRows", "windows"]

Array = NDArray[np.float64]

# Row groups that are read at the same time, where the columns are few; each costs some pages of every column.
LANES, PAGES = 16, 128


class Slice(NamedTuple):
    """Rows ``first`` to ``first + n`` of a row group."""

    group: int
    first: int
    n: int


def windows(counts: Sequence[int], order: Sequence[int], size: int, lanes: int) -> Iterator[list[Slice]]:
    """What each window holds.

    Args:
        counts: Rows of each row group.
        order: The row groups in the order in which they are opened.
        size: Rows of a window; the last one may have fewer.
        lanes: Row groups open at the same time.

    >>> [[tuple(part) for part in window] for window in windows([3, 4, 2], [1, 0, 2], 5, 2)]
    [[(0, 0, 2), (1, 0, 3)], [(0, 2, 1), (1, 3, 1), (2, 0, 2)]]
    """
    waiting = deque(group for group in order if counts[group])
    opened: deque[tuple[int, int]] = deque()
    share = -(-size // lanes)
    left = sum(counts)
    while left:
        taken: dict[int, Slice] = {}
        room = size
        while room and (opened or waiting):
            while waiting and len(opened) < lanes:
                opened.append((waiting.popleft(), 0))
            group, first = opened.popleft()
            n = min(share, room, counts[group] - first)
            before = taken.get(group, Slice(group, first, 0))
            taken[group] = Slice(group, before.first, before.n + n)
            room -= n
            if first + n < counts[group]:
                opened.append((group, first + n))
        left -= size - room
        yield [taken[group] for group in sorted(taken)]


class StreamedRows:
    """Rows to train on, read from row groups: a `phvae.batches.RowSource`.

    Args:
        groups: The row groups.
        digest: Digest of their contents.
        held_out: Numbers of the rows that are not trained on, ascending.
        prepare: Turns rows as they are read into rows as they are trained on, row by row.
        window: Rows in memory.
        device: Where the batches are wanted.
    """

    def __init__(
        self,
        groups: RowGroups,
        digest: str,
        held_out: NDArray[np.int64],
        prepare: Callable[[Array], Array],
        *,
        window: int,
        device: str = "cpu",
    ) -> None:
        self._groups, self._prepare, self._device = groups, prepare, device
        ends = np.cumsum(groups.counts)
        # where each row group begins, among all rows and among those held out
        self._starts = ends - groups.counts
        first, last = np.searchsorted(held_out, self._starts), np.searchsorted(held_out, ends)
        self._held_out = [held_out[a:b] - start for a, b, start in zip(first, last, self._starts, strict=True)]
        self._counts = [count - len(out) for count, out in zip(groups.counts, self._held_out, strict=True)]
        self._window = min(window, sum(self._counts))
        self._lanes = max(2, min(LANES, PAGES // groups.shape[1]))
        layout = f"{fingerprint(torch.from_numpy(held_out))} {groups.counts} {self._window} {self._lanes}"
        self._digest = f"{digest} {layout}"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return sum(self._counts), self._groups.shape[1]

    def fingerprint(self) -> str:
        """Digest of the rows, and of what their order follows from."""
        return self._digest

    def epoch(self, number: int, *, seed: int, batch_size: int, first: int) -> Iterator[Batch]:
        """The batches of an epoch from the one with number ``first`` on."""
        n_groups = len(self._counts)
        shuffled = torch.randperm(n_groups, generator=stream("cpu", seed, "row groups", number)).tolist()
        memory = torch.empty((self._window, self._groups.shape[1]), dtype=torch.float64)
        lanes: dict[int, _Lane] = {}
        start, behind = first * batch_size, 0
        parts: list[tuple[Tensor, Tensor]] = []
        missing = batch_size
        for index, window in enumerate(windows(self._counts, shuffled, self._window, self._lanes)):
            n = sum(part.n for part in window)
            behind += n
            if behind <= start:
                continue
            self._load(window, memory, lanes)
            numbers = self._numbers(window)
            order = torch.randperm(n, generator=stream("cpu", seed, "order", number, *([index] if index else [])))
            order = order[max(0, start - (behind - n)) :]
            while len(order):
                rows, order = order[:missing], order[missing:]
                parts.append((memory[rows], numbers(rows)))
                missing -= len(rows)
                if not missing:
                    yield self._batch(parts)
                    parts, missing = [], batch_size
        if parts:
            yield self._batch(parts)

    def _batch(self, parts: list[tuple[Tensor, Tensor]]) -> Batch:
        x, rows = (torch.cat(field) for field in zip(*parts, strict=True))
        return Batch(x.to(self._device), rows)

    def _load(self, window: list[Slice], memory: Tensor, lanes: dict[int, "_Lane"]) -> None:
        place = 0
        for group, first, n in window:
            if group not in lanes:
                lanes[group] = _Lane(self._groups.read(group), self._held_out[group], first)
            for values in lanes[group].take(n):
                memory[place : place + len(values)] = torch.from_numpy(self._prepare(values))
                place += len(values)
            if first + n == self._counts[group]:
                lanes.pop(group).close()

    def _numbers(self, window: list[Slice]) -> Callable[[Tensor], Tensor]:
        """From places in a window to numbers of rows among those that are trained on."""
        trained = np.cumsum(self._counts) - self._counts
        ends = torch.tensor(np.cumsum([part.n for part in window]))
        shifts = torch.tensor([int(trained[part.group]) + part.first for part in window])
        shifts -= ends - torch.tensor([part.n for part in window])
        return lambda places: places + shifts[torch.searchsorted(ends, places, right=True)]


class _Lane:
    """An open row group: the rows to train on, as many at a time as are asked for."""

    def __init__(self, pieces: Iterator[Piece], held_out: NDArray[np.int64], first: int) -> None:
        self._pieces, self._held_out = pieces, held_out
        self._seen = 0
        self._left = np.zeros((0, 0))
        for _ in self.take(first):
            pass

    def take(self, n: int) -> Iterator[Array]:
        """The next ``n`` rows, in pieces."""
        while n:
            if not len(self._left):
                piece = next(self._pieces, None)
                if piece is None:
                    raise ValueError(
                        "a file has fewer rows than when training began; leave files alone while they are read"
                    )
                out = self._held_out - self._seen
                self._seen += len(piece.values)
                out = out[(out >= 0) & (out < len(piece.values))]
                self._left = np.delete(piece.values, out, axis=0) if len(out) else piece.values
            values, self._left = self._left[:n], self._left[n:]
            n -= len(values)
            yield values

    def close(self) -> None:
        """Let go of the file."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
