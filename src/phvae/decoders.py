"""Decoders: networks whose value at a latent point is a law of the columns, in the user's units."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Independent
from torch.nn.functional import softplus

from phvae import defaults
from phvae.distributions.checks import Numbers, as_tensor
from phvae.distributions.classical import Gamma, Gaussian, LogNormal, StudentT
from phvae.distributions.located import Located
from phvae.distributions.phase_type import SeriesPhaseType
from phvae.distributions.tails import TailedLaw
from phvae.distributions.zero_atom import ZeroAtom
from phvae.kernels import series
from phvae.kernels.heads import SOFTPLUS_LINEAR, chain_parameters
from phvae.networks import MLP

__all__ = ["Decoder", "GammaDecoder", "GaussianDecoder", "LogNormalDecoder", "PhaseTypeDecoder", "StudentTDecoder"]

# The first weights of the head, relative to usual ones: at first every latent point decodes to nearly the same law.
HEAD_GAIN = 0.1
# Bounds of every log-parameter of the classical families, in scaled units; the same as for the encoder's log-variance.
LOG_BOUNDS = (-30.0, 20.0)


class Decoder(nn.Module, ABC):
    """Conditional law of ``D`` columns, independent given the latent point, each from its own outputs of one MLP.

    Args:
        latent_dim: Length of the latent vector; with 0 there is one law and no network.
        origin: Lower end (or location) of each column, shape ``(D,)``, in the user's units.
        scale: Positive typical size of each column beyond its origin, shape ``(D,)``.
        n_outputs: Outputs of the network per column, the log odds of a zero not counted.
        hidden: Widths of the hidden layers.
        zero_share: Share of exact zeros per column, shape ``(D,)``; a column with 0 has no atom at zero.
        head_rank: Most directions in which the latent vector moves the outputs of a column; 0 for every direction, at
            the cost of weights for each output of each column.
        generator: Source of the first weights; the global one of torch when omitted.
    """

    origin: Tensor
    scale: Tensor
    has_atom: Tensor

    def __init__(
        self,
        latent_dim: int,
        *,
        origin: Numbers,
        scale: Numbers,
        n_outputs: int,
        hidden: Sequence[int],
        zero_share: Numbers | None,
        head_rank: int,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        place, size = as_tensor("origin", origin).double(), as_tensor("scale", scale).double()
        share = torch.zeros_like(place) if zero_share is None else as_tensor("zero_share", zero_share).double()
        _check_columns(place, size, share)
        self.register_buffer("origin", place.clone())
        self.register_buffer("scale", size.clone())
        self.register_buffer("has_atom", share > 0)
        self.latent_dim, self.n_columns = latent_dim, len(place)
        self.n_outputs = n_outputs
        self.atoms = bool((share > 0).any())
        self.width = n_outputs + int(self.atoms)
        self.network = MLP(
            latent_dim,
            self.n_columns * self.width,
            hidden=hidden,
            head_gain=HEAD_GAIN,
            head_rank=head_rank,
            groups=self.n_columns,
            generator=generator,
        )
        if self.atoms:
            self.set_zero_share(share)

    def _bias(self) -> Tensor:
        """The bias of the head, one row per column."""
        return self.network.head.bias.view(self.n_columns, self.width)

    def set_zero_share(self, share: Tensor) -> None:
        """Make these the shares of exact zeros at zero head weights, shape ``(D,)``, below one.

        A column with an atom may have the share 0, and without an atom only that.
        """
        with torch.no_grad():
            # a column without atom has an output too, which is never read
            self._bias()[:, -1] = torch.where(self.has_atom, share, 0.5).logit()

    def move_zero_share(self, before: Tensor, after: Tensor) -> None:
        """Move the log odds of an exact zero, at every latent point, as these shares ``(D,)`` move."""
        with torch.no_grad():
            self._bias()[:, -1] += torch.where(self.has_atom, after.logit() - before.logit(), 0.0)

    def _start_at(self, outputs: Tensor, first: int = 0) -> None:
        with torch.no_grad():
            self._bias()[:, first : first + outputs.shape[-1]] = outputs

    @abstractmethod
    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> TailedLaw:
        """Law of columns with these origins and scales from their ``n_outputs`` outputs on the last axis."""

    @property
    def lower(self) -> Tensor:
        """Least possible value of each column, shape ``(D,)``."""
        return torch.where(self.has_atom & (self.origin > 0), 0.0, self.origin)

    @property
    def capturable(self) -> bool:
        """Whether `log_prob` of the laws on a GPU looks at no number, so that a graph can be made of it."""
        return True

    def outputs(self, z: Tensor) -> Tensor:
        """What the network says, before it is made parameters: shape ``z.shape[:-1] + (D, outputs per column)``."""
        values: Tensor = self.network(z.to(self.network.head.weight.dtype))
        return values.view(*values.shape[:-1], self.n_columns, self.width)

    def column(self, z: Tensor, position: int) -> TailedLaw:
        """Law of one column at points ``(..., latent_dim)``, batch shape ``z.shape[:-1] + (1,)``, at the cost of one.

        >>> decoder = PhaseTypeDecoder(2, origin=[0.0, 1.0], scale=[1.0, 100.0], n_phases=4)
        >>> z = torch.randn(5, 2)
        >>> torch.allclose(decoder.column(z, 1).mean[:, 0], decoder(z).mean[:, 1])
        True
        """
        head, own = self.network.head, slice(position * self.width, (position + 1) * self.width)
        values = head.part(self.network.hidden(z.to(head.weight.dtype)), own)
        return self._law(values[..., None, :], slice(position, position + 1))

    def law(self, outputs: Tensor) -> Independent[TailedLaw]:
        """The law that these `outputs` stand for."""
        return Independent(self._law(outputs, slice(None)), 1, validate_args=False)

    def _law(self, outputs: Tensor, columns: slice) -> TailedLaw:
        """Law of each of some columns."""
        origin, scale = self.origin[columns], self.scale[columns]
        if not self.atoms:
            return self._columns(outputs, origin, scale)
        continuous, zero = outputs.split((self.n_outputs, 1), -1)
        zero_logit = torch.where(self.has_atom[columns], zero[..., 0].double(), -torch.inf)
        return ZeroAtom(zero_logit, self._columns(continuous, origin, scale), validate_args=False)

    def forward(self, z: Tensor) -> Independent[TailedLaw]:
        """Law of the columns at points ``(..., latent_dim)``, with batch shape ``z.shape[:-1]`` and event ``(D,)``."""
        return self.law(self.outputs(z))

    def roughness(self, outputs: Tensor) -> Tensor:
        """How unevenly the phases run, a mean over latent points, shape ``(D,)``; 0 for a family without phases."""
        return torch.zeros_like(self.scale)


class PhaseTypeDecoder(Decoder):
    """Series phase-type law per column: softmax gives the start vector, softplus and a running sum the rates.

    With ``u = network(z)``: ``initial = softmax(u_1..u_m)`` and
    ``rates_i = (softplus(u_{m+1}) + ... + softplus(u_{m+i})) / scale``.

    Args:
        latent_dim: Length of the latent vector; with 0 there is one law and no network.
        origin: Lower end of each column, shape ``(D,)``, in the user's units.
        scale: Positive typical size of each column beyond its origin, shape ``(D,)``; folded into the rates.
        n_phases: Phases ``m`` per column.
        n_shapes: Further outputs per column, of a family that bends time.
        hidden: Widths of the hidden layers.
        zero_share: Share of exact zeros per column, shape ``(D,)``; a column with 0 has no atom at zero.
        head_rank: Most directions in which the latent vector moves the outputs of a column; 0 for every direction, at
            the cost of weights for each output of each column.
        generator: Source of the first weights; the global one of torch when omitted.

    >>> decoder = PhaseTypeDecoder(2, origin=[0.0, 1.0], scale=[1.0, 100.0], n_phases=4)
    >>> law = decoder(torch.zeros(5, 2))
    >>> law.batch_shape, law.event_shape, law.base_dist.log_sf(-1.0).max().item()
    (torch.Size([5]), torch.Size([2]), 0.0)
    """

    differences: Tensor
    # The default start: these rates, in scaled units, spread evenly on a log scale.
    SLOWEST, FASTEST = 0.03, 20.0

    def __init__(
        self,
        latent_dim: int,
        *,
        origin: Numbers,
        scale: Numbers,
        n_phases: int = defaults.DECODER_PHASES,
        n_shapes: int = 0,
        hidden: Sequence[int] = defaults.HIDDEN,
        zero_share: Numbers | None = None,
        head_rank: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        if n_phases < 1:
            raise ValueError(f"n_phases = {n_phases!r}; a phase-type law has at least one phase")
        super().__init__(
            latent_dim,
            origin=origin,
            scale=scale,
            n_outputs=2 * n_phases + n_shapes,
            hidden=hidden,
            zero_share=zero_share,
            head_rank=head_rank,
            generator=generator,
        )
        self.n_phases = n_phases
        third = torch.eye(n_phases, dtype=torch.float64).diff(n=3, dim=0).T
        self.register_buffer("differences", torch.block_diag(third, third), persistent=False)
        slowest, fastest = (self.SLOWEST, self.FASTEST) if n_phases > 1 else (1.0, 1.0)
        logs = torch.linspace(math.log(slowest), math.log(fastest), n_phases)
        initial = torch.full((self.n_columns, n_phases), 1 / n_phases)
        self.set_start(initial, logs.exp().expand(self.n_columns, n_phases))

    @property
    def capturable(self) -> bool:
        """Whether the fused kernels answer: the ways for more phases, or without Triton, ask which rows are left."""
        return series.stays_on_device(self.n_phases)

    def set_start(self, initial: Numbers, rates: Numbers) -> None:
        """Make these the laws at zero head weights, to float32 precision.

        Args:
            initial: Start probabilities per column, shape ``(D, m)``, positive.
            rates: Rates per column in scaled units (times ``scale``), shape ``(D, m)``, strictly increasing.
        """
        start, speed = as_tensor("initial", initial).double(), as_tensor("rates", rates).double()
        self._start_at(self._chain_outputs(start, speed))

    def move_start(self, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> None:
        """Move the laws at every latent point, in the outputs of the network, as these laws move; as `set_start`."""
        with torch.no_grad():
            moved = self._chain_outputs(*(part.double() for part in after))
            self._bias()[:, : 2 * self.n_phases] += moved - self._chain_outputs(*(part.double() for part in before))

    def _chain_outputs(self, start: Tensor, speed: Tensor) -> Tensor:
        """Outputs that stand for start vectors and rates, both ``(D, m)``."""
        wanted = (self.n_columns, self.n_phases)
        for name, value in (("initial", start), ("rates", speed)):
            if value.shape != wanted:
                raise ValueError(f"{name} has shape {tuple(value.shape)}; give one row per column, shape {wanted}")
        steps = speed.diff(dim=-1, prepend=torch.zeros_like(speed[:, :1]))
        _require_positive("initial", start, "a softmax reaches no zero; mix in a small positive probability")
        _require_positive("step of rates", steps, "give positive, strictly increasing rates")
        # the inverse of softplus, with all digits for small and for large steps
        return torch.cat((start.log(), steps + torch.log(-torch.expm1(-steps))), -1)

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> TailedLaw:
        initial, rates = chain_parameters(outputs, scale)
        return Located(SeriesPhaseType._build(initial, rates, validate_args=False), origin, validate_args=False)

    def roughness(self, outputs: Tensor) -> Tensor:
        """Roughness of the start logits and of the log rate steps across phases, as `phvae.start.roughness` has it.

        Args:
            outputs: Outputs at latent points, shape ``(..., D, outputs per column)``.

        Returns:
            Mean over the points, float64, shape ``(D,)``.
        """
        rows = outputs.reshape(-1, self.n_columns, self.width)
        start, steps, *_ = rows.split([self.n_phases, self.n_phases, self.width - 2 * self.n_phases], -1)
        log_steps = softplus(steps.double(), threshold=SOFTPLUS_LINEAR).log()
        # all third differences in one product: what costs time in a step is the number of operations
        bends = torch.cat((start.double(), log_steps), -1) @ self.differences
        return bends.square().sum((0, -1)) / len(rows)


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
    """Gaussian law per column: mean and standard deviation. The origin is a location like any other."""

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
    """Lognormal law per column beyond its origin: mean and standard deviation of the logarithm."""

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
    """Gamma law per column beyond its origin: shape and rate."""

    START = (1.0, 0.5)

    @staticmethod
    def _as_outputs(*parameters: Tensor) -> Tensor:
        shape, rate = parameters
        return torch.stack(torch.broadcast_tensors(shape.log(), rate.log()), -1)

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> Located:
        shape, rate = _bounded(outputs.double()).exp().unbind(-1)
        return Located(Gamma(shape, rate / scale, validate_args=False), origin, validate_args=False)


class StudentTDecoder(_ClassicalDecoder):
    """Student law per column: location, scale, degrees of freedom. The origin is a location like any other."""

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


def _require_positive(name: str, value: Tensor, remedy: str) -> None:
    bad = ~((value > 0) & value.isfinite())
    if bool(bad.any()):
        position = tuple(bad.nonzero()[0].tolist())
        raise ValueError(f"{name}[{', '.join(map(str, position))}] = {float(value[position])!r}; {remedy}")


def _check_columns(origin: Tensor, scale: Tensor, share: Tensor) -> None:
    if origin.ndim != 1 or not len(origin) or origin.shape != scale.shape or origin.shape != share.shape:
        shapes = f"origin {tuple(origin.shape)}, scale {tuple(scale.shape)}, zero_share {tuple(share.shape)}"
        raise ValueError(f"shapes {shapes} differ or are empty; give one number per column to each")
    if not bool(origin.isfinite().all()):
        raise ValueError(f"origin = {origin.tolist()} is not finite; give the lower end of each column")
    _require_positive("scale", scale, "give a positive typical size per column")
    bad = ~((share >= 0) & (share < 1))
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise ValueError(f"zero_share[{at}] = {float(share[at])!r}; give a share in [0, 1), drop a column of zeros")
