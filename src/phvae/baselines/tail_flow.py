"""A normalising flow whose last layer gives the tails: the modern peer that is no variational autoencoder.

Needs the package zuko: ``pip install "phvae[flows]"``.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor, nn
from torch.distributions import Distribution

from phvae.baselines.neural import NeuralBaseline
from phvae.distributions.generalised_pareto import fit_generalised_pareto
from phvae.preprocessing import PositiveScaler
from phvae.vae import GenerativeModel, Terms

__all__ = ["FlowModel", "LogTailTransformFlow", "TailTransform", "TailTransformFlow"]

Array = NDArray[np.float64]

# The least weight of a tail to begin with; a weight of 0 would be the limit of a tail without power.
LIGHT = 0.05
# Share of the rows in each tail from which its weight is estimated to begin with.
TAIL_SHARE = 0.1
LAYERS = 2
_LOG_TWO = math.log(2)


class TailTransformFlow(NeuralBaseline):
    """Hickling, Prangle, "Flexible tails for normalizing flows" (2025): a spline flow under a `TailTransform`.

    Rows are divided by the median of their column and nothing else; its authors have real numbers, so the share of
    generated values below zero is part of the result. The splines have the hidden widths of the other models; in one
    column they have no network. The objective is the log-likelihood itself.

    Args:
        settings: As for `NeuralBaseline`; there is no latent vector, so its length has no effect.
    """

    name = "tail-transform flow"
    model_: "FlowModel"
    logarithm = False

    def _model(self, x: Array, scaler: PositiveScaler, latent_dim: int, generator: torch.Generator) -> "FlowModel":
        units = scaler.transform(x)
        if self.logarithm:
            if (units <= 0).any():
                raise ValueError(f"{self.name}: {int((units <= 0).sum())} values have no logarithm")
            units = np.log(units)
        tails = TailTransform(*(torch.tensor(part) for part in _start(units)))
        flow = _spline_flow(x.shape[1], self.hidden, int(torch.randint(2**62, (), generator=generator)))
        scale = torch.from_numpy(scaler.scale_)
        return FlowModel(flow, tails, torch.from_numpy(scaler.origin_), scale, logarithm=self.logarithm)

    def objective(self, x: Array, seed: int = 0) -> float:
        """The log-likelihood, as a mean over rows it has not seen; in nats per row."""
        return super().objective(x, seed)


class LogTailTransformFlow(TailTransformFlow):
    """`TailTransformFlow` of the logarithms of positive rows: the other of its two customary input scales."""

    name = "tail-transform flow of logarithms"
    logarithm = True


class TailTransform(nn.Module):
    """``x = μ + s sgn(z) (erfc(|z| / √2)^-λ - 1) / λ`` per column, with a weight ``λ > 0`` for each tail.

    A normal ``z`` gives an ``x`` with tail ``P(X > x) ~ x^(-1/λ)``. With ``t = -log erfc(|z| / √2)``, which is free of
    underflow, ``x = μ ± s (e^(λ t) - 1) / λ``.

    Args:
        location: ``μ``, shape ``(D,)``.
        scale: ``s``, positive, shape ``(D,)``.
        weights: ``λ`` of the lower and the upper tail, positive, shape ``(D, 2)``.

    >>> tails = TailTransform(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([[0.5, 0.5]]))
    >>> z = torch.tensor([[-3.0], [0.0], [30.0]], dtype=torch.float64)
    >>> back, _ = tails.inverse(tails(z))
    >>> bool(torch.allclose(back, z, rtol=1e-12, atol=0))
    True
    """

    def __init__(self, location: Tensor, scale: Tensor, weights: Tensor) -> None:
        super().__init__()
        self.location = nn.Parameter(location.double())
        self.log_scale = nn.Parameter(scale.double().log())
        self.log_weights = nn.Parameter(weights.double().log())

    def _weights(self, upper: Tensor) -> Tensor:
        lower_weight, upper_weight = self.log_weights.exp().unbind(-1)
        return torch.where(upper, upper_weight, lower_weight)

    def forward(self, z: Tensor) -> Tensor:
        """``x`` of points ``z`` of shape ``(..., D)``."""
        weight = self._weights(z >= 0)
        reach = torch.expm1(weight * _minus_log_erfc(z.abs())) / weight
        return self.location + self.log_scale.exp() * z.sign() * reach

    def inverse(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``z`` of points ``x`` of shape ``(..., D)``, and ``log |dz / dx|``, the same shape."""
        distance = (x - self.location) * (-self.log_scale).exp()
        weight = self._weights(distance >= 0)
        t = torch.log1p(weight * distance.abs()) / weight
        size: Tensor = _InverseLogErfc.apply(t)  # type: ignore[no-untyped-call]
        # dx / dz = s e^(λ t) dt / dz, and dt / dz is the hazard rate of the normal law
        slope = self.log_scale + weight * t + _log_hazard(size)
        return torch.where(distance >= 0, size, -size), -slope


class FlowModel(GenerativeModel):
    """A spline flow from normal noise to ``z``, and the `TailTransform` from there to scaled rows.

    Args:
        flow: Flow of zuko.
        tails: The last layer.
        origin: Zero of each column, shape ``(D,)``.
        scale: Unit of each column, shape ``(D,)``.
        logarithm: The layers see the logarithm of scaled rows.
    """

    origin: Tensor
    scale: Tensor

    def __init__(self, flow: Any, tails: TailTransform, origin: Tensor, scale: Tensor, *, logarithm: bool) -> None:
        super().__init__()
        self.flow, self.tails, self.logarithm = flow, tails, logarithm
        self.register_buffer("origin", origin)
        self.register_buffer("scale", scale)

    @property
    def n_columns(self) -> int:
        """Number of columns of a row."""
        return len(self.scale)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of rows of shape ``(n, D)`` in their own units, shape ``(n,)``; ``-inf`` off the support."""
        u = (x - self.origin) / self.scale
        volume = self.scale.log().expand_as(u)
        inside = u > 0 if self.logarithm else torch.ones_like(u, dtype=torch.bool)
        if self.logarithm:
            u = torch.where(inside, u, 1.0).log()
            volume = volume + u
        z, log_slope = self.tails.inverse(u)
        noise, log_volume = self.flow().transform.call_and_ladj(z)
        normal = -(noise.square() + math.log(2 * math.pi)).sum(-1) / 2
        density: Tensor = normal + log_volume + (log_slope - volume).sum(-1)
        return torch.where(inside.all(-1), density, -torch.inf)

    def terms(
        self, x: Tensor, *, generator: torch.Generator | None = None, n_samples: int = 1, penalty: bool = False
    ) -> Terms:
        """The exact log-likelihood; nothing is latent."""
        density = self.log_prob(x)
        return Terms(density, torch.zeros_like(density), density.new_zeros(self.n_columns))

    @torch.no_grad()
    def generate(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draws of new rows, shape ``(n, D)``."""
        noise = torch.randn((n, self.n_columns), dtype=self.scale.dtype, device=self.scale.device, generator=generator)
        u = self.tails(self.flow().transform.inv(noise))
        rows: Tensor = self.origin + self.scale * (u.exp() if self.logarithm else u)
        return rows


def _spline_flow(n_columns: int, hidden: Sequence[int], seed: int) -> Any:
    """Rational-quadratic splines of zuko in double precision, with first weights from a seed."""
    checked = Distribution._validate_args
    try:
        import zuko
    except ImportError as error:
        raise ImportError('the tail-transform flow needs the package zuko: pip install "phvae[flows]"') from error
    finally:
        # importing zuko switches the checks of all laws off, for everybody in the process
        Distribution.set_default_validate_args(checked)
    with torch.random.fork_rng(devices=[]):
        # zuko takes its first weights from the global generator, which is put back afterwards
        torch.manual_seed(seed)
        return zuko.flows.NSF(features=n_columns, transforms=LAYERS, hidden_features=tuple(hidden)).double()


def _start(u: Array) -> tuple[Array, Array, Array]:
    """Location, scale and weights of the tails of each column to begin with."""
    middle = np.median(u, 0)
    low, high = np.quantile(u, [0.25, 0.75], axis=0)
    # the quartiles of a normal z, at the least weight
    reach = np.expm1(LIGHT * _LOG_TWO) / LIGHT
    weights = [[_weight(middle[j] - column), _weight(column - middle[j])] for j, column in enumerate(u.T)]
    # a column that is mostly one value has quartiles that coincide
    spread = np.where(high > low, (high - low) / 2 / reach, u.std(0))
    return middle, spread, np.array(weights)


def _weight(excess: Array) -> float:
    """Weight of one tail."""
    threshold = np.quantile(excess, 1 - TAIL_SHARE)
    beyond = excess[excess > threshold] - threshold
    return max(LIGHT, fit_generalised_pareto(beyond).shape) if len(np.unique(beyond)) > 1 else LIGHT


def _minus_log_erfc(size: Tensor) -> Tensor:
    """``-log erfc(size / √2)`` of non-negative points."""
    tail: Tensor = torch.special.log_ndtr(-size)
    return -(tail + _LOG_TWO)


def _log_hazard(size: Tensor) -> Tensor:
    """Logarithm of the hazard rate of the standard normal law."""
    tail: Tensor = torch.special.log_ndtr(-size)
    return -size.square() / 2 - math.log(2 * math.pi) / 2 - tail


class _InverseLogErfc(torch.autograd.Function):
    """The ``z >= 0`` with ``-log erfc(z / √2) = t``; its derivative is one over the hazard rate at ``z``."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        size = -torch.from_numpy(np.asarray(special.ndtri_exp(-t.detach().cpu().numpy() - _LOG_TWO))).to(t)
        ctx.save_for_backward(size)
        return size

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (size,) = ctx.saved_tensors
        return gradient * (-_log_hazard(size)).exp()
