"""One training run on several processes, started by torchrun: every process takes its part of every batch.

Every process has all the rows; what they share are gradients. The result is that of one process but for the order in
which floating point numbers are added; `phvae.objective` says why.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as group
from torch import Tensor

from phvae import __version__

__all__ = ["World", "current", "joined", "restarted"]


class World:
    """The processes of a run, of which this is one.

    Args:
        rank: Number of this process, from 0.
        size: How many there are.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def mean(self, values: Tensor) -> Tensor:
        """Mean of a tensor over the processes, the same on all of them."""
        total = values.clone()
        group.all_reduce(total)
        return total / self.size

    def of_first(self, values: Tensor) -> Tensor:
        """The values of rank 0, on every process."""
        shared = values.clone()
        group.broadcast(shared, 0)
        return shared

    def require_same(self, values: Mapping[str, Any]) -> None:
        """Compare what must not differ between the processes, by ``repr``; a ValueError names the first that does."""
        # with other versions the names themselves could differ
        self._compare({"the version of phvae": __version__, "the version of torch": torch.__version__})
        self._compare({"the names of the settings": sorted(values)})
        self._compare(values)

    def _compare(self, values: Mapping[str, Any]) -> None:
        digests = [hashlib.sha256(repr(value).encode()).digest() for value in values.values()]
        own = torch.tensor([list(digest) for digest in digests], dtype=torch.uint8)
        everyone = [torch.empty_like(own) for _ in range(self.size)]
        group.all_gather(everyone, own)
        for rank, theirs in enumerate(everyone):
            for name, here, there in zip(values, everyone[0], theirs, strict=True):
                if not torch.equal(here, there):
                    own_value = f" (here {values[name]!r:.60})" if name != "data" else ""
                    raise ValueError(
                        f"rank {rank} of {self.size} differs from rank 0 in {name}{own_value}; "
                        "start every process with the same rows, settings and version"
                    )


_CURRENT: ContextVar[World | None] = ContextVar("processes of the run", default=None)


def current() -> World | None:
    """The processes that were joined, or None where this one trains alone."""
    return _CURRENT.get()


@contextmanager
def joined() -> Iterator[World | None]:
    """Within this, models are trained together by all processes that ``torchrun`` has started; alone, nothing happens.

    Every process runs the same program on the same rows, each on a GPU of its own where there are enough, and all get
    the same model; files are written by rank 0 alone.

    >>> with joined() as world:
    ...     world is None
    True
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or _CURRENT.get() is not None:
        yield _CURRENT.get()
        return
    here = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        if here >= torch.cuda.device_count():
            raise ValueError(
                f"--nproc-per-node is above the {torch.cuda.device_count()} GPUs of this machine; "
                "start one process per GPU, or hide the GPUs with CUDA_VISIBLE_DEVICES= to train on the CPU"
            )
        torch.cuda.set_device(here)
    group.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    token = _CURRENT.set(World(group.get_rank(), size))
    try:
        yield _CURRENT.get()
    finally:
        _CURRENT.reset(token)
        group.destroy_process_group()


def restarted() -> bool:
    """Whether ``torchrun`` has started this process again, after one of the run had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
