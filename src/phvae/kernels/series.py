r"""The one door to the likelihood of a chain in series canonical form: enter at phase i, pass i, ..., m, leave from m.

With start vector α, rates 0 < λ_1 <= ... <= λ_m and h_i the density of Σ_{k>=i} Exp(λ_k), a row's density is
f(x) = Σ_i α_i h_i(x); S(x) and F(x) are its integrals to the right and left of x. Answers are logarithms in float64,
differentiable in x, α and λ; α need not sum to one.

Methods, all of the same signature:

- ``"auto"``: the contour where its own condition estimate says it is right, squaring elsewhere. Relative error of
  log f at most 1e-10 (of ``max(1, |log f|)``).
- ``"contour"``: the contour in plain torch, whatever its condition: the readable reference.
- ``"squaring"``: non-negative arithmetic, right everywhere, slow.
- ``"uniformization"``: a Poisson mixture of matrix powers, truncated adaptively.

Limits: at x = 0 and x = inf values are limits, and so are gradients where the value is finite. Rows that are no law, or
whose x is negative or NaN, are NaN and leave their neighbours alone.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from phvae.kernels import backends, contour, uniformization
from phvae.kernels.once import closed_form
from phvae.kernels.quantities import CDF, DENSITY, SURVIVAL

__all__ = ["Method", "log_cdf", "log_density", "log_survival", "stays_on_device"]

Method = Literal["auto", "contour", "squaring", "uniformization"]

# Rows whose gradients are held at once where many rows share one law.
_CHUNK_ENTRIES = 2**18


def log_density(x: Tensor, initial: Tensor, rates: Tensor, *, method: Method = "auto") -> Tensor:
    """Log of ``f(x)``.

    Args:
        x: Points, shape broadcastable with the batch shape of the parameters.
        initial: Start weights, shape ``(..., m)``, non-negative.
        rates: Rates, shape ``(..., m)``, positive and non-decreasing.
        method: See the head of this module.

    Returns:
        float64, shape ``broadcast(x, initial[..., 0], rates[..., 0])``.

    >>> log_density(torch.tensor([0.0, 1e6]), torch.tensor([0.5, 0.5]), torch.tensor([1.0, 1.0]))
    tensor([-6.9315e-01, -9.9999e+05], dtype=torch.float64)
    """
    return _evaluate(DENSITY, x, initial, rates, method)


def log_survival(x: Tensor, initial: Tensor, rates: Tensor, *, method: Method = "auto") -> Tensor:
    """Log of ``S(x) = P(X > x)``; arguments as in `log_density`.

    >>> float(log_survival(torch.tensor(3e5), torch.tensor([1.0]), torch.tensor([2.0])))
    -600000.0
    """
    return _evaluate(SURVIVAL, x, initial, rates, method)


def log_cdf(x: Tensor, initial: Tensor, rates: Tensor, *, method: Method = "auto") -> Tensor:
    """Log of ``F(x) = P(X <= x)``; arguments as in `log_density`.

    >>> round(float(log_cdf(torch.tensor(1e-30), torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0]))), 6)
    -69.077553
    """
    return _evaluate(CDF, x, initial, rates, method)


def stays_on_device(phases: int) -> bool:
    """Whether evaluations of so many phases on a GPU never wait for the host, so that a graph can be made of them."""
    return backends.fused_phases() >= phases


def _evaluate(quantity: int, x: Tensor, initial: Tensor, rates: Tensor, method: Method) -> Tensor:
    if method not in ("auto", "contour", "squaring", "uniformization"):
        raise ValueError(f"method is {method!r}; use 'auto', 'contour', 'squaring' or 'uniformization'")
    if initial.shape[-1:] != rates.shape[-1:] or not initial.shape[-1:] or initial.shape[-1] == 0:
        shapes = f"initial has shape {tuple(initial.shape)} and rates {tuple(rates.shape)}"
        raise ValueError(f"{shapes}; both need the same number of phases, at least one, on the last axis")
    phases = initial.shape[-1]
    batch, shape = initial.shape[:-1], x.shape
    # the common case, a law for every point, is spared the work of broadcasting
    if rates.shape[:-1] != batch or shape != batch:
        batch = torch.broadcast_shapes(batch, rates.shape[:-1])
        shape = torch.broadcast_shapes(shape, batch)
        x, initial, rates = x.expand(shape), initial.expand(*batch, phases), rates.expand(*batch, phases)
    x, initial, rates = x.double().reshape(-1), initial.double().reshape(-1, phases), rates.double().reshape(-1, phases)
    law = torch.arange(len(initial), device=initial.device)
    if shape != batch:
        law = law.reshape(batch).expand(shape).reshape(-1)
    if method == "contour":
        value = contour.log_value(quantity, x, initial[law], rates[law])
    elif method == "uniformization":
        value = uniformization.log_value(quantity, x, initial[law], rates[law])
    else:
        value = _LogValue.apply(x, initial, rates, law, quantity, method)  # type: ignore[no-untyped-call]
    return value.reshape(shape)


class _LogValue(torch.autograd.Function):
    """Flat rows ``x (n,)``, parameters of ``b`` laws, and the law of each row ``(n,)``.

    With a law per row the partial derivatives come in the forward pass and are kept. Where rows share laws they would
    outweigh the inputs, so they are computed in the backward pass, chunk by chunk, and summed at once.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, initial: Tensor, rates: Tensor, law: Tensor, quantity: int, method: str) -> Tensor:
        wanted = any(ctx.needs_input_grad[:3])
        ctx.own_law = len(law) == len(initial)
        ctx.quantity, ctx.method = quantity, method
        found = backends.evaluate(quantity, x, initial, rates, law, method, gradients=wanted and ctx.own_law)
        ctx.regular = found.regular
        if wanted and ctx.own_law:
            ctx.save_for_backward(found.d_x, found.d_initial, found.d_rates, x, initial, rates)
        elif wanted:
            ctx.save_for_backward(x, initial, rates, law)
        return found.value

    @staticmethod
    @closed_form
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.own_law:
            d_x, d_initial, d_rates, *_ = ctx.saved_tensors
            needed = ctx.needs_input_grad
            return (
                backends.weighted(grad, d_x, ctx.regular) if needed[0] else None,
                backends.weighted(grad, d_initial, ctx.regular) if needed[1] else None,
                backends.weighted(grad, d_rates, ctx.regular) if needed[2] else None,
                None, None, None,
            )  # fmt: skip
        x, initial, rates, law = ctx.saved_tensors
        grad_x, grad_initial, grad_rates = torch.zeros_like(x), torch.zeros_like(initial), torch.zeros_like(rates)
        length = math.ceil(_CHUNK_ENTRIES / initial.shape[-1])
        for begin in range(0, len(x), length):
            end = min(begin + length, len(x))
            chunk, weight = law[begin:end], grad[begin:end]
            found = backends.evaluate(ctx.quantity, x[begin:end], initial, rates, chunk, ctx.method, gradients=True)
            grad_x[begin:end] = backends.weighted(weight, found.d_x, found.regular)
            grad_initial.index_add_(0, chunk, backends.weighted(weight, found.d_initial, found.regular))
            grad_rates.index_add_(0, chunk, backends.weighted(weight, found.d_rates, found.regular))
        return grad_x, grad_initial, grad_rates, None, None, None
