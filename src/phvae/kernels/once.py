"""Backward passes in closed form: right once, and an error where somebody differentiates them again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["closed_form"]

Backward = Callable[..., tuple[Tensor | None, ...]]


def closed_form(backward: Backward) -> Backward:
    """A backward pass whose results cannot be differentiated, and say so: ``torch.autograd`` takes them for constants.

    `torch.autograd.function.once_differentiable` speaks up only where the incoming gradient itself depends on
    something, and to ``backward()`` alone. Here the results hang on the inputs of the forward pass, so that whoever
    asks for a second derivative in any of them comes by.

    Args:
        backward: ``backward(ctx, *grads)``, as `torch.autograd.Function` has it; its forward pass saves its inputs
            besides what it needs.
    """

    def guarded(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            found = backward(ctx, *grads)
        # a graph of the gradients is only wanted where they are to be differentiated
        if not torch.is_grad_enabled():
            return found
        sources = [tensor for tensor in (*ctx.saved_tensors, *grads) if tensor.requires_grad]
        return tuple(None if part is None else _Once.apply(part, *sources) for part in found)  # type: ignore[no-untyped-call]

    return guarded


class _Once(torch.autograd.Function):
    """The first argument, which depends on the others in a way that is not known."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *sources: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        raise RuntimeError(
            "trying to differentiate twice what has its first derivatives in closed form; for second "
            "derivatives take differences of first ones"
        )
