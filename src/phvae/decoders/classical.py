"""Decoders of classical families, whose number of parameters is fixed: what phase-type laws are compared with."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from phvae import defaults
from phvae.decoders.decoder import Decoder
from phvae.distributions.checks import Numbers, as_tensor
from phvae.distributions.classical import Gamma, Gaussian, LogNormal, StudentT
from phvae.distributions.located import Located

__all__ = ["GammaDecoder", "GaussianDecoder", "LogNormalDecoder", "StudentTDecoder"]

# Bounds of every log-parameter, in scaled units; the same as for the encoder's log-variance.
LOG_BOUNDS = (-30.0, 20.0)


class _ClassicalDecoder(Decoder):
    """A decoder whose family has a fixed number of parameters; arguments as in `PhaseTypeDecoder`, without phases."""

    # Parameters of the default start, in scaled units: the arguments of `set_start`.
    START: ClassVar[tuple[float, ...]]

    def __init__(
        self,
        latent_dim: int,
        *,
        origin: Numbers,
        scale: Numbers,
        hidden: Sequence[int] = defaults.HIDDEN,
        zero_share: Numbers | None = None,
        head_rank: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            latent_dim,
            origin=origin,
            scale=scale,
            n_outputs=len(self.START),
            hidden=hidden,
            zero_share=zero_share,
            head_rank=head_rank,
            generator=generator,
        )
        self._start_at(self._as_outputs(*(torch.tensor(value) for value in self.START)))

    @staticmethod
    @abstractmethod
    def _as_outputs(*parameters: Tensor) -> Tensor:
        """Outputs of the network, on the last axis, that stand for these parameters."""

    def set_start(self, *parameters: Numbers) -> None:
        """Make these, in scaled units, the parameters at zero head weights.

        Args:
            parameters: The parameters of the family in the order of its docstring, each of shape ``(D,)`` or ``()``.
        """
        self._start_at(self._as_outputs(*(as_tensor("parameters", value).double() for value in parameters)))


class GaussianDecoder(_ClassicalDecoder):
    """Gaussian law per column: mean and standard deviation. The origin is a location like any other.

    >>> decoder = GaussianDecoder(0, origin=[1.0], scale=[10.0])
    >>> decoder.set_start([2.0], [0.5])
    >>> law = decoder(torch.zeros(1, 0)).base_dist
    >>> round(law.mean.item(), 4), round(law.stddev.item(), 4)
    (21.0, 5.0)
    """

    START = (1.0, 2.0)

    @staticmethod
    def _as_outputs(*parameters: Tensor) -> Tensor:
        mean, deviation = parameters
        return torch.stack(torch.broadcast_tensors(mean, 2 * deviation.log()), -1)

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> Gaussian:
        mean, log_variance = outputs.double().unbind(-1)
        deviation = scale * (_bounded(log_variance) / 2).exp()
        return Gaussian(origin + scale * mean, deviation, validate_args=False)


class LogNormalDecoder(_ClassicalDecoder):
    """Lognormal law per column beyond its origin: mean and standard deviation of the logarithm.

    >>> decoder = LogNormalDecoder(0, origin=[1.0], scale=[10.0])
    >>> decoder.set_start([0.0], [1.5])
    >>> round(decoder(torch.zeros(1, 0)).base_dist.icdf(torch.tensor(0.5)).item(), 6)
    11.0
    """

    START = (0.0, 1.5)

    @staticmethod
    def _as_outputs(*parameters: Tensor) -> Tensor:
        mean, deviation = parameters
        return torch.stack(torch.broadcast_tensors(mean, 2 * deviation.log()), -1)

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> Located:
        mean, log_variance = outputs.double().unbind(-1)
        excess = LogNormal(mean + scale.log(), (_bounded(log_variance) / 2).exp(), validate_args=False)
        return Located(excess, origin, validate_args=False)


class GammaDecoder(_ClassicalDecoder):
    """Gamma law per column beyond its origin: shape and rate.

    >>> decoder = GammaDecoder(0, origin=[1.0], scale=[10.0])
    >>> decoder.set_start([3.0], [0.5])
    >>> round(decoder(torch.zeros(1, 0)).base_dist.mean.item(), 4)
    61.0
    """

    START = (1.0, 0.5)

    @staticmethod
    def _as_outputs(*parameters: Tensor) -> Tensor:
        shape, rate = parameters
        return torch.stack(torch.broadcast_tensors(shape.log(), rate.log()), -1)

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> Located:
        shape, rate = _bounded(outputs.double()).exp().unbind(-1)
        return Located(Gamma(shape, rate / scale, validate_args=False), origin, validate_args=False)


class StudentTDecoder(_ClassicalDecoder):
    """Student law per column: location, scale, degrees of freedom. The origin is a location like any other.

    >>> decoder = StudentTDecoder(0, origin=[1.0], scale=[10.0])
    >>> decoder.set_start([2.0], [1.0], [4.0])
    >>> round(decoder(torch.zeros(1, 0)).base_dist.mean.item(), 4)
    21.0
    """

    START = (1.0, 1.0, 3.0)

    @staticmethod
    def _as_outputs(*parameters: Tensor) -> Tensor:
        location, scale, degrees = parameters
        return torch.stack(torch.broadcast_tensors(location, scale.log(), degrees.log()), -1)

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> StudentT:
        location, log_scale, log_degrees = outputs.double().unbind(-1)
        spread, degrees = scale * _bounded(log_scale).exp(), _bounded(log_degrees).exp()
        return StudentT(origin + scale * location, spread, degrees, validate_args=False)


def _bounded(log_parameter: Tensor) -> Tensor:
    """The logarithm of a parameter, within the bounds that the model sets."""
    return log_parameter.clamp(*LOG_BOUNDS)
