"""What a step of training climbs: means over a batch, by one process or as the sum of the parts of several."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from phvae.batches import Batch
from phvae.distributed import World
from phvae.vae import VAE, GenerativeModel, Terms

__all__ = ["Objective", "batch_means", "objective"]

Objective = Callable[..., Terms]


def objective(model: GenerativeModel, world: World | None) -> Objective:
    """`batch_means` of a model; with several processes their gradients are averaged, from weights of rank 0.

    The parts of a batch add up to the batch: noise, penalty and weights are those that one process would use.
    """
    if world is None:
        return partial(batch_means, model)
    if not isinstance(model, VAE):
        raise ValueError(f"a {type(model).__name__} is trained by one process; leave `phvae.distributed.joined`")
    return nn.parallel.DistributedDataParallel(_Part(model, world))


def batch_means(model: GenerativeModel, batch: Batch, *, generator: torch.Generator, penalty: bool) -> Terms:
    """Weighted means of log-likelihood and divergence over a batch, and its roughness."""
    terms = model.terms(batch.x, generator=generator, penalty=penalty)
    if batch.weights is None:
        return Terms(terms.log_likelihood.mean(), terms.kl.mean(), terms.roughness)
    shares = batch.weights
    return Terms((shares * terms.log_likelihood).mean(), (shares * terms.kl).mean(), terms.roughness)


class _Part(nn.Module):
    """`batch_means` of the part of a batch that a process has, times the number of processes: their mean is the whole.

    A process without rows, in a batch smaller than the number of processes, takes the first one with weight 0.
    """

    def __init__(self, model: VAE, world: World) -> None:
        super().__init__()
        self.model = model
        self._world = world

    def forward(self, batch: Batch, *, generator: torch.Generator, penalty: bool) -> Terms:
        n, rank, size = len(batch.x), self._world.rank, self._world.size
        first, last = n * rank // size, n * (rank + 1) // size
        own = slice(first, last) if last > first else slice(0, 1)
        terms = self.model.terms(batch.x[own], generator=generator, penalty=penalty, part=(own.start, n))
        shares = torch.ones_like(terms.kl) if batch.weights is None else batch.weights[own]
        shares = shares * (size / n if last > first else 0.0)
        roughness = terms.roughness * size if last > first else terms.roughness * 0
        return Terms((shares * terms.log_likelihood).sum(), (shares * terms.kl).sum(), roughness)
