"""Backward passes in closed form: right once, and an error where somebody differentiates them again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["closed_form"]

Backward = Callable[..., tuple[Tensor | None, ...]]


def closed_form(backward: Backward) -> Backward:
    """A backward pass whose results cannot be differentiated, and say so: ``torch.autograd`` takes them for constants.

    `once_differentiable` alone speaks up only where the incoming gradient itself depends on something.

    Args:
        backward: ``backward(ctx, grad)``, as `torch.autograd.Function` has it.
    """
    once: Backward = once_differentiable(backward)

    def guarded(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # a graph of the gradients is only wanted where they are to be differentiated
        asked = torch.is_grad_enabled()
        return once(ctx, *(grad.detach().requires_grad_() if asked else grad for grad in grads))

    return guarded
