"""Steps of training on a GPU: launched ahead of the device, captured as a graph, their numbers read once in a while.

A step of a small model is a hundred kernels of some microseconds. Waiting for its loss, or only naming the kernels one
by one, would take longer than the work. So everything that a step needs is on the device before its epoch begins (the
order of the rows, the step sizes, the weight of the divergence), everything that it says stays there, and the whole
step is recorded once and replayed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from phvae.batches import Batch, RowsInMemory
from phvae.objective import batch_means
from phvae.vae import GenerativeModel

__all__ = ["LaunchedSteps", "hold_back"]

# Steps before one is captured: what is chosen or allocated at first use is then in place.
WARM_UP = 3


def hold_back(optimiser: Optimizer, clip_norm: float) -> Tensor:
    """Norm of the gradient; the next step of a fused optimiser divides the gradient by what it is above ``clip_norm``.

    The division is part of the optimiser's own pass, so that clipping costs nothing but the norm.
    """
    slopes = [
        slope.flatten()
        for group in optimiser.param_groups
        for value in group["params"]
        if (slope := value.grad) is not None
    ]
    norm: Tensor = torch.linalg.vector_norm(torch.cat(slopes))
    # on a CPU a look at the norm costs nothing, and spares the usual step a division by 1
    within = not norm.is_cuda and float(norm) <= clip_norm
    # in single precision, as the fused pass reads it whatever the parameters are in
    scale = None if within else (norm / clip_norm).clamp(min=1.0).float()
    optimiser.grad_scale = scale  # type: ignore[attr-defined]
    return norm


class LaunchedSteps:
    """The steps of `phvae.training.train` without the host: the same arithmetic, the same noise.

    Once a loss or gradient is no number, no later step changes the model, and `read` shows which step it was.

    Args:
        model: Model in training, on its device.
        optimiser: Its optimiser, a fused one.
        table: Rows, on the device.
        batch_size: Rows per step.
        clip_norm: Largest norm of a gradient.
        penalties: Weight of the roughness per column, or None.
    """

    def __init__(
        self,
        model: GenerativeModel,
        optimiser: Optimizer,
        table: RowsInMemory,
        *,
        batch_size: int,
        clip_norm: float,
        penalties: Tensor | None,
    ) -> None:
        self.model, self.optimiser, self.table = model, optimiser, table
        self.batch_size, self.clip_norm, self.penalties = batch_size, clip_norm, penalties
        device = table.x.device
        self.generator = torch.Generator(device)
        self.captures = table.x.is_cuda and model.capturable
        self._stream = torch.cuda.Stream(device) if table.x.is_cuda else None
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._taken = 0
        n_batches = -(-table.shape[0] // batch_size)
        self._places = torch.arange(batch_size, device=device)
        # what a graph reads and writes lies at fixed places
        self._order = torch.zeros(table.shape[0], dtype=torch.int64, device=device)
        self._warmth = torch.zeros(n_batches, dtype=torch.float64, device=device)
        # the fused kernels of a GPU take a step size in single precision
        size = torch.float32 if table.x.is_cuda else torch.float64
        self._rates = torch.zeros((n_batches, len(optimiser.param_groups)), dtype=size, device=device)
        self._numbers = torch.zeros((n_batches, 4), dtype=torch.float64, device=device)
        self._batch = torch.zeros(1, dtype=torch.int64, device=device)
        self._spoiled = torch.zeros((), dtype=torch.float64, device=device)
        self._launched = self._read = 0

    def begin(self, order: Tensor, first: int, warmth: Sequence[float], rates: Sequence[Sequence[float]]) -> None:
        """Start an epoch at its batch ``first``.

        Args:
            order: Order of the rows, shape ``(n,)``.
            first: Batches that are done.
            warmth: Weight of the divergence in every step that is left.
            rates: Step size of every group of parameters in each of them.
        """
        self._order.copy_(order)
        self._warmth[first:] = torch.tensor(warmth, dtype=torch.float64).to(self._warmth)
        self._rates[first:] = torch.tensor(rates, dtype=torch.float64).to(self._rates)
        self._batch.fill_(first)
        self._launched = self._read = first
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self.table.x.device))

    def launch(self, seed: int) -> None:
        """The next step, with noise from this seed."""
        size = self.size(self._launched)
        self.generator.manual_seed(seed)
        with self._beside():
            if size in self._graphs:
                self._graphs[size].replay()
            elif self.captures and self._taken >= WARM_UP:
                self._capture(size)
                self._graphs[size].replay()
            else:
                self._step(size)
        self._taken += 1
        self._launched += 1

    def read(self) -> list[list[float]]:
        """Loss, norm of the gradient, log-likelihood and divergence of every step since the last call; waits for it."""
        with self._beside():
            numbers: list[list[float]] = self._numbers[self._read : self._launched].tolist()
        self._read = self._launched
        return numbers

    def size(self, number: int) -> int:
        """How many rows a step has; the last one of an epoch may have fewer."""
        return min(self.batch_size, self.table.shape[0] - number * self.batch_size)

    def batch(self, number: int) -> Batch:
        """The rows of a step of this epoch."""
        return self.table.batch(self._order[number * self.batch_size :][: self.batch_size])

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """On a stream of its own, which a capture needs."""
        if self._stream is None:
            yield
        else:
            with torch.cuda.stream(self._stream):
                yield

    def _capture(self, size: int) -> None:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        for group in self.optimiser.param_groups:
            group["capturable"] = True
        self.optimiser.zero_grad()
        with torch.cuda.graph(graph, stream=self._stream):
            self._step(size)
        for group in self.optimiser.param_groups:
            group["capturable"] = False
        self._graphs[size] = graph

    def _step(self, size: int) -> None:
        """One step, all of it on the device."""
        places = self._batch * self.batch_size + self._places[:size]
        rows = self._order.index_select(0, places)
        rates = self._rates.index_select(0, self._batch)[0]
        for number, group in enumerate(self.optimiser.param_groups):
            group["lr"] = rates[number]
        batch, rough = self.table.batch(rows), self.penalties is not None
        means = batch_means(self.model, batch, generator=self.generator, penalty=rough)
        loss = self._warmth.index_select(0, self._batch)[0] * means.kl - means.log_likelihood
        if self.penalties is not None:
            loss = loss + self.penalties @ means.roughness
        self.optimiser.zero_grad()
        loss.backward()
        norm = hold_back(self.optimiser, self.clip_norm)
        values = (loss, norm, means.log_likelihood, means.kl)
        numbers = torch.stack([value.detach().double() for value in values])
        # nothing is added while all numbers are finite, else NaN, for ever: then the fused step leaves everything alone
        self._spoiled.add_(numbers.sum(), alpha=0.0)
        self.optimiser.found_inf = (self._spoiled != 0.0).float()  # type: ignore[attr-defined]
        self.optimiser.step()
        self._numbers.index_copy_(0, self._batch, numbers[None])
        self._batch += 1
