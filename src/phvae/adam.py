"""The optimiser of training: AdamW of torch, with less to do around its fused pass over the parameters."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import AdamW

__all__ = ["FusedAdam"]


class _Lists(NamedTuple):
    """What the fused pass over a group of parameters reads and writes."""

    group: dict[str, Any]
    parameters: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]
    counted: Tensor


class FusedAdam(AdamW):
    """`torch.optim.AdamW` on its fused kernel; `advance` is its `step`, bit for bit, and `clear` its `zero_grad`.

    A step of `torch.optim` gathers its lists and asks about every case anew, which costs a small model more than the
    arithmetic. Here they are gathered once. Where a parameter has no gradient the step is that of torch.

    Args:
        groups: Groups of parameters, as torch takes them.
        lr: Step size.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> adam = FusedAdam([{"params": [weight], "weight_decay": 0.0}], lr=0.5)
    >>> for _ in range(2):
    ...     weight.grad = torch.tensor([1.0, -3.0])
    ...     adam.advance()
    >>> weight.detach().round(decimals=4)
    tensor([0., 2.])
    """

    def __init__(self, groups: list[dict[str, Any]], *, lr: float) -> None:
        super().__init__(groups, lr=lr, fused=True)
        self._every: list[Tensor] = [value for group in self.param_groups for value in group["params"]]
        self._lists: list[_Lists] = []

    def clear(self) -> None:
        """Forget the gradients."""
        for value in self._every:
            value.grad = None

    def load_state_dict(self, state_dict: Any) -> None:
        """Go on from the state of another one."""
        self._lists = []
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def advance(self) -> None:
        """One step along the gradients."""
        slopes = [[slope for value in lists.parameters if (slope := value.grad) is not None] for lists in self._lists]
        if sum(map(len, slopes)) < len(self._every):
            self.step()
            self._lists = self._gathered()
            return
        for lists, part in zip(self._lists, slopes, strict=True):
            first, second = lists.group["betas"]
            lists.counted.add_(1)
            torch._fused_adamw_(
                lists.parameters,
                part,
                lists.means,
                lists.squares,
                [],
                lists.steps,
                lr=lists.group["lr"],
                beta1=first,
                beta2=second,
                weight_decay=lists.group["weight_decay"],
                eps=lists.group["eps"],
                amsgrad=False,
                maximize=False,
                grad_scale=getattr(self, "grad_scale", None),
                found_inf=None,
            )

    def _gathered(self) -> list[_Lists]:
        """The lists of all groups; none as long as a parameter has no state, or is of another kind than the rest."""
        kinds = {(value.dtype, value.device) for value in self._every}
        if len(kinds) > 1 or any(value not in self.state for value in self._every):
            return []
        return [self._gathered_of(group) for group in self.param_groups if group["params"]]

    def _gathered_of(self, group: dict[str, Any]) -> _Lists:
        states = [self.state[value] for value in group["params"]]
        # the counters of all parameters side by side: one addition counts a step
        counted = torch.stack([state["step"] for state in states])
        for state, own in zip(states, counted.unbind(), strict=True):
            state["step"] = own
        means, squares, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        return _Lists(group, group["params"], means, squares, steps, counted)
