"""The phase-type law that outputs of a network stand for."""

from typing import Any

import torch
from torch import Tensor

from phvae.distributions.phase_type import SeriesPhaseType
from phvae.kernels import heads

__all__ = ["DecodedChain"]


class DecodedChain(SeriesPhaseType):
    """A `SeriesPhaseType` from outputs of a network: ``initial = softmax(u)``, ``rates = cumsum(softplus(v)) / scale``.

    Start vector and rates are computed when somebody asks for them. Training asks for the density alone, which comes
    with its slopes in the outputs from one pass.

    Args:
        outputs: ``u`` and ``v`` side by side, shape ``(..., D, 2 m)``.
        scale: Unit of each column, shape ``(D,)``.

    >>> law = DecodedChain(torch.zeros(1, 4), torch.tensor([2.0]))
    >>> law.initial, float(law.log_prob(torch.tensor([1.0]))) == float(law.expand((3, 1)).log_prob(1.0)[0])
    (tensor([[0.5000, 0.5000]], dtype=torch.float64), True)
    """

    def __init__(self, outputs: Tensor, scale: Tensor) -> None:
        self._outputs, self._scale = outputs, scale
        # parameters have the gradients that they would have had at once, whoever asks first
        self._differentiable = torch.is_grad_enabled()
        self._setup(outputs.shape[:-1], validate_args=False)

    def __getattr__(self, name: str) -> Tensor:
        if name not in ("initial", "rates"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with torch.set_grad_enabled(self._differentiable):
            self.initial, self.rates = heads.chain_parameters(self._outputs, self._scale)
        found: Tensor = self.__dict__[name]
        return found

    @classmethod
    def _build(cls, initial: Tensor, rates: Tensor, validate_args: bool | None) -> Any:
        # laws made from this one have parameters of their own
        return SeriesPhaseType._build(initial, rates, validate_args)

    def _log_density(self, x: Tensor) -> Tensor:
        if x.shape == self.batch_shape and x.device.type == "cpu":
            return heads.log_density(x, self._outputs, self._scale)
        # points that share a law, and the kernels of a GPU, start from its parameters
        return super()._log_density(x)
