"""The multilayer perceptron behind every encoder and decoder."""

import copy
import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from phvae import defaults

# Inputs of a layer up to which products of a CPU with so few columns are slow.
FEW_INPUTS = 16


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

    def part(self, x: Tensor, outputs: slice) -> Tensor:
        """Some of the outputs, at the cost of these alone."""
        return linear(x, self.weight[outputs], self.bias[outputs])

    @torch.no_grad()
    def hold(self, values: Tensor) -> None:
        """Hold the last inputs at ``values``, shape ``(k,)``, and leave the first ones free."""
        free = self.in_features - len(values)
        self.bias.add_(self.weight[:, free:] @ values)
        self.weight = nn.Parameter(self.weight[:, :free].clone())
        self.in_features = free


class LowRankHead(nn.Module):
    """Affine map to groups of outputs, such as the columns of a table, each of which moves along few directions.

    ``output_g = bias_g + Σ_r score_gr direction_r`` with ``score = weight · x``: the scores of a group are its own, the
    ``rank`` directions are those of all groups. With as many directions as a group has outputs it is any affine map.
    Its weights are ``inputs · groups · rank + rank · outputs per group``.

    Args:
        inputs: Length of the input.
        groups: Number of groups.
        outputs: Outputs per group.
        rank: Number of directions.
        gain: Factor on the first scores; small for a head that should start at its bias.
        generator: Source of the first weights; the global one of torch when omitted.

    >>> LowRankHead(8, 100, 20, rank=4)(torch.zeros(5, 8)).shape
    torch.Size([5, 2000])
    """

    def __init__(
        self,
        inputs: int,
        groups: int,
        outputs: int,
        *,
        rank: int,
        gain: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.groups, self.outputs, self.rank = groups, outputs, rank
        # directions have entries of variance one, so that outputs vary at first as those of `Linear` do
        bound = gain / math.sqrt(inputs * rank)
        self.scores = nn.Linear(inputs, groups * rank, bias=False)
        self.directions = nn.Parameter(torch.empty(rank, outputs))
        self.bias = nn.Parameter(torch.zeros(groups * outputs))
        nn.init.uniform_(self.scores.weight, -bound, bound, generator=generator)
        nn.init.uniform_(self.directions, -math.sqrt(3), math.sqrt(3), generator=generator)

    @property
    def weight(self) -> Tensor:
        """The weights of the scores, shape ``(groups · rank, inputs)``."""
        return self.scores.weight

    @property
    def in_features(self) -> int:
        """Length of the input."""
        return self.scores.in_features

    @torch.no_grad()
    def hold(self, values: Tensor) -> None:
        """Hold the last inputs at ``values``, shape ``(k,)``, and leave the first ones free."""
        free = self.in_features - len(values)
        scores = self.scores.weight[:, free:] @ values
        self.bias.add_((scores.view(-1, self.rank) @ self.directions).flatten())
        self.scores.weight = nn.Parameter(self.scores.weight[:, :free].clone())
        self.scores.in_features = free

    def forward(self, x: Tensor) -> Tensor:
        """Outputs for inputs of shape ``(..., inputs)``, shape ``(..., groups · outputs)``."""
        return self.part(x, slice(0, self.groups * self.outputs))

    def part(self, x: Tensor, outputs: slice) -> Tensor:
        """The outputs of some groups, from the first of one to the last of one, at the cost of these alone."""
        own = slice(outputs.start // self.outputs * self.rank, outputs.stop // self.outputs * self.rank)
        scores = linear(x, self.scores.weight[own])
        moves = scores.view(-1, self.rank) @ self.directions
        # in place: what is moved is most of the memory of a step
        return moves.view(*x.shape[:-1], outputs.stop - outputs.start).add_(self.bias[outputs])


class MLP(nn.Module):
    """``head(trunk(x))``: hidden layers with SiLU and a linear head. Without inputs only the bias of the head is left.

    Args:
        inputs: Length of the input; 0 makes the output constant.
        outputs: Length of the output.
        hidden: Widths of the hidden layers.
        head_gain: Factor on the first weights of the head.
        head_rank: Most directions in which the outputs of a group move, see `LowRankHead`; 0 leaves each of them
            weights of its own.
        groups: Groups of outputs that share their directions.
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
        head_rank: int = 0,
        groups: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if head_rank < 0:
            raise ValueError(f"head_rank = {head_rank!r}; give a positive number of directions, or 0 for a full head")
        for position, width in enumerate(hidden):
            if width < 1:
                raise ValueError(f"hidden[{position}] = {width!r} is no width of a layer; give a positive integer")
        widths = [inputs, *hidden] if inputs else [0]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [Linear(before, after, generator=generator), nn.SiLU()]
        self.trunk = nn.Sequential(*layers)
        self._layers = tuple(layer for layer in layers if isinstance(layer, Linear))
        self.head: Linear | LowRankHead
        if inputs and head_rank:
            each = outputs // groups
            rank = min(head_rank, each)
            self.head = LowRankHead(widths[-1], groups, each, rank=rank, gain=head_gain, generator=generator)
        else:
            self.head = Linear(widths[-1], outputs, gain=head_gain, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Output for inputs of shape ``(..., inputs)``, shape ``(..., outputs)``."""
        return self.head.forward(self.hidden(x))

    def hidden(self, x: Tensor) -> Tensor:
        """What the last hidden layer says of inputs ``(..., inputs)``: what the head is given."""
        # without the calls of `nn.Module`, which cost a small batch as much as a layer
        for layer in self._layers:
            x = silu(linear(x, _laid_out(layer.weight), layer.bias))
        return x

    @torch.no_grad()
    def given(self, values: Tensor) -> "MLP":
        """The network of the first inputs, with the last ones held at ``values``, shape ``(k,)``.

        >>> network, x = MLP(3, 2, hidden=(8,)), torch.randn(5, 3)
        >>> torch.allclose(network.given(x[0, 1:])(x[0, :1]), network(x[0]), atol=1e-6)
        True
        """
        entry = self._layers[0] if self._layers else self.head
        if entry.in_features == len(values):
            constant = MLP(0, len(self.head.bias), generator=torch.Generator()).to(self.head.bias)
            constant.head.bias.copy_(self(values))
            return constant
        held = copy.deepcopy(self)
        (held._layers[0] if held._layers else held.head).hold(values)
        return held


def _laid_out(weight: Tensor) -> Tensor:
    """The same weights; those of few inputs so laid out in memory that their slopes are a product with few rows.

    On a CPU that takes a fourth of the time of the product with few columns, which the usual layout leads to.
    """
    few = weight.shape[1] <= FEW_INPUTS and weight.device.type == "cpu"
    return weight.t().contiguous().t() if few else weight
