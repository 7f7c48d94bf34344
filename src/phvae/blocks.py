"""The rows of a sample in blocks that share one stream of random numbers: whoever draws a block draws the same rows."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.vae import VAE

__all__ = ["BLOCK", "Shard", "blocks_of", "draw", "draw_block"]

# Rows of a block: always drawn together, so that a sample depends on its seed alone.
BLOCK = 4096

Shard = tuple[int, int]


def draw_block(vae: VAE, seed: int, block: int, covariates: Tensor | None = None) -> Tensor:
    """Rows ``block * BLOCK`` to ``(block + 1) * BLOCK - 1`` of the sample with this seed; with covariates, theirs."""
    stream = int(np.random.SeedSequence([seed, block]).generate_state(1, np.uint64)[0] >> 1)
    if covariates is not None:
        own = covariates[block * BLOCK : (block + 1) * BLOCK]
        # a block is always drawn whole, so that its rows do not depend on how many of them are wanted
        covariates = torch.cat((own, own[-1:].expand(BLOCK - len(own), -1)))
    return vae.generate(BLOCK, covariates=covariates, generator=torch.Generator().manual_seed(stream))


def draw(
    vae: VAE,
    seed: int,
    n_rows: int,
    blocks: range,
    move: Callable[[Tensor], Tensor] = lambda rows: rows,
    covariates: Tensor | None = None,
) -> Iterator[NDArray[np.float64]]:
    """Some blocks of a sample of ``n_rows``, of which the last may be shorter; ``move`` changes rows one by one."""
    return (move(draw_block(vae, seed, block, covariates)[: n_rows - block * BLOCK]).numpy() for block in blocks)


def blocks_of(n_rows: int, shard: Shard | None = None) -> range:
    """The blocks of a sample, or of one of several parts of it that follow each other.

    Args:
        n_rows: Rows of the whole sample.
        shard: ``(i, n)`` for the part with number ``i``, counted from 1, of ``n``.

    >>> [list(blocks_of(5 * BLOCK, (i, 3))) for i in (1, 2, 3)]
    [[0], [1, 2], [3, 4]]
    """
    n_blocks = -(-n_rows // BLOCK)
    if shard is None:
        return range(n_blocks)
    number, total = shard
    if not 1 <= number <= total:
        raise ValueError(f"shard = {number}/{total}; give i/n with i from 1 to n, such as 2/8")
    if total > n_blocks:
        raise ValueError(
            f"shard = {number}/{total}: {n_rows:,} rows are {n_blocks} blocks of {BLOCK:,}, which are drawn whole; "
            f"give at most {n_blocks} shards"
        )
    return range(n_blocks * (number - 1) // total, n_blocks * number // total)
