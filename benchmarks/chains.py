"""Rows for the benchmarks: Pareto observations, and chains as an initialised and as a trained decoder emits them."""

import numpy as np
import torch
from torch import Tensor

PARETO_INDEX = 2.4


def rows(kind: str, count: int, phases: int, *, seed: int = 0, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Points ``(count,)``, start vectors and rates ``(count, phases)``, float64, one law per row.

    "initialised": start logits near zero, rates the cumulated softplus of numbers near zero. "trained": rates spread
    geometrically from the largest observation to well inside the median, jittered row by row as a latent variable does.
    """
    rng = np.random.default_rng(seed)
    x = rng.pareto(PARETO_INDEX, count) + 1
    if kind == "initialised":
        logits = 0.1 * rng.standard_normal((count, phases))
        rates = np.cumsum(np.logaddexp(0, 0.1 * rng.standard_normal((count, phases))), axis=1)
    else:
        ladder = np.geomspace(3 / x.max(), 20 / np.median(x), phases)
        steps = np.diff(ladder, prepend=0.0) * np.exp(0.5 * rng.standard_normal((count, phases)))
        logits, rates = 1.5 * rng.standard_normal((count, phases)), np.cumsum(steps, axis=1)
    initial = np.exp(logits - logits.max(1, keepdims=True))
    initial /= initial.sum(1, keepdims=True)
    return tuple(torch.as_tensor(v, device=device) for v in (x, initial, rates))  # type: ignore[return-value]
