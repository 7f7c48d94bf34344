"""The multilayer perceptron behind every encoder and decoder."""

import copy
import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from phvae import defaults


class Linear(nn.Linear):
    """Affine map whose first weights come from a generator of the caller's, never from another one.

    Weights and biases are uniform on ``±gain / sqrt(inputs)``.

    Args:
        inputs: Length of the input.
        outputs: Length of the output.
        gain: Factor on the width of the first weights; small for a head that should start at its bias.
        generator: Source of the first weights; the global one of torch when omitted.
    """

    def __init__(
        self, inputs: int, outputs: int, *, gain: float = 1.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(inputs, outputs)
        bound = gain / math.sqrt(inputs) if inputs else 0.0
        nn.init.uniform_(self.bias, -bound, bound, generator=generator)
        if inputs:
            nn.init.uniform_(self.weight, -bound, bound, generator=generator)

    def reset_parameters(self) -> None:
        """Does nothing: the constructor of torch calls this before there is a generator."""


class MLP(nn.Module):
    """``head(trunk(x))``: hidden layers with SiLU and a linear head. Without inputs only the bias of the head is left.

    Args:
        inputs: Length of the input; 0 makes the output constant.
        outputs: Length of the output.
        hidden: Widths of the hidden layers.
        head_gain: Factor on the first weights of the head.
        generator: Source of the first weights; the global one of torch when omitted.

    >>> MLP(3, 2, hidden=(8,))(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        hidden: Sequence[int] = defaults.HIDDEN,
        head_gain: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for position, width in enumerate(hidden):
            if width < 1:
                raise ValueError(f"hidden[{position}] = {width!r} is no width of a layer; give a positive integer")
        widths = [inputs, *hidden] if inputs else [0]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [Linear(before, after, generator=generator), nn.SiLU()]
        self.trunk = nn.Sequential(*layers)
        self._layers = tuple(layer for layer in layers if isinstance(layer, Linear))
        self.head = Linear(widths[-1], outputs, gain=head_gain, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Output for inputs of shape ``(..., inputs)``, shape ``(..., outputs)``."""
        head = self.head
        return linear(self.hidden(x), head.weight, head.bias)

    def hidden(self, x: Tensor) -> Tensor:
        """What the last hidden layer says of inputs ``(..., inputs)``: what the head is given."""
        # without the calls of `nn.Module`, which cost a small batch as much as a layer
        for layer in self._layers:
            x = silu(linear(x, layer.weight, layer.bias))
        return x

    @torch.no_grad()
    def given(self, values: Tensor) -> "MLP":
        """The network of the first inputs, with the last ones held at ``values``, shape ``(k,)``.

        >>> network, x = MLP(3, 2, hidden=(8,)), torch.randn(5, 3)
        >>> torch.allclose(network.given(x[0, 1:])(x[0, :1]), network(x[0]), atol=1e-6)
        True
        """
        first = next(module for module in self.modules() if isinstance(module, Linear))
        free = first.in_features - len(values)
        if not free:
            constant = MLP(0, self.head.out_features, generator=torch.Generator()).to(first.weight)
            constant.head.bias.copy_(self(values))
            return constant
        held = copy.deepcopy(self)
        entry = next(module for module in held.modules() if isinstance(module, Linear))
        entry.in_features = free
        entry.bias.add_(first.weight[:, free:] @ values)
        entry.weight = nn.Parameter(first.weight[:, :free].clone())
        return held
