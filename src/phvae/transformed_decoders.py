"""Decoders of inhomogeneous phase-type laws: a chain per column, and a clock that the latent vector bends."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from phvae import defaults
from phvae.decoders import PhaseTypeDecoder
from phvae.decoders.chain import DecodedChain
from phvae.distributions.checks import Numbers, as_tensor, require_positive
from phvae.distributions.located import Located
from phvae.distributions.matrix_lognormal import MatrixLogNormal
from phvae.distributions.matrix_pareto import MatrixPareto
from phvae.distributions.matrix_weibull import MatrixWeibull
from phvae.distributions.time_transformed import TimeTransformed

__all__ = ["TransformedDecoder", "family_of", "law_of", "n_shapes", "shape_outputs", "shapes_of"]

# The family for each tail that a user may ask for; a phase-type law needs none.
FAMILIES: dict[str, type[TimeTransformed] | None] = {
    "exponential": None,
    "weibull": MatrixWeibull,
    "lognormal": MatrixLogNormal,
    "pareto": MatrixPareto,
}

# Bounds of the logarithm of a shape beyond its least one, and of that of a scale: part of the model.
SHAPE_BOUNDS, SCALE_BOUNDS = (-3.0, 3.0), (-20.0, 20.0)


class TransformedDecoder(PhaseTypeDecoder):
    """Series phase-type law per column, read at a transformed time: with outputs ``v`` beside those of the chain,

    ``shape = least + exp(v_1)`` and ``scale = column scale · exp(v_2)``, where the family has a scale of its own.

    Args:
        latent_dim: Length of the latent vector; with 0 there is one law and no network.
        family: Class of the law: `MatrixWeibull`, `MatrixPareto`, `MatrixLogNormal`.
        origin: Lower end of each column, shape ``(D,)``, in the user's units.
        scale: Positive typical size of each column beyond its origin, shape ``(D,)``.
        n_phases: Phases ``m`` per column.
        hidden: Widths of the hidden layers.
        zero_share: Share of exact zeros per column, shape ``(D,)``; a column with 0 has no atom at zero.
        head_rank: Most directions in which the latent vector moves the outputs of a column; 0 for every direction.
        generator: Source of the first weights; the global one of torch when omitted.

    >>> from phvae.distributions import MatrixPareto
    >>> decoder = TransformedDecoder(2, family=MatrixPareto, origin=[0.0], scale=[100.0], n_phases=1)
    >>> decoder.set_start([[1.0]], [[2.5]])
    >>> decoder.set_shapes([1.0], [1.0])
    >>> law = decoder(torch.zeros(5, 2)).base_dist
    >>> law.batch_shape, bool((law.log_sf(1e10) > -60).all())
    (torch.Size([5, 1]), True)
    """

    def __init__(
        self,
        latent_dim: int,
        *,
        family: type[TimeTransformed],
        origin: Numbers,
        scale: Numbers,
        n_phases: int = defaults.DECODER_PHASES,
        hidden: Sequence[int] = defaults.HIDDEN,
        zero_share: Numbers | None = None,
        head_rank: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        self.family = family
        super().__init__(
            latent_dim,
            origin=origin,
            scale=scale,
            n_phases=n_phases,
            n_shapes=n_shapes(family),
            hidden=hidden,
            zero_share=zero_share,
            head_rank=head_rank,
            generator=generator,
        )
        ones = torch.ones(self.n_columns, dtype=torch.float64)
        self.set_shapes((family.least_shape + 1) * ones, ones)

    def set_shapes(self, shape: Numbers, scale: Numbers) -> None:
        """Make these the shapes and scales at zero head weights.

        Args:
            shape: Shape per column, above the least one of the family, shape ``(D,)``.
            scale: Scale per column in scaled units, shape ``(D,)``; not read where the family has none.
        """
        bend, unit = as_tensor("shape", shape).double(), as_tensor("scale", scale).double()
        require_positive("shape", bend - self.family.least_shape)
        require_positive("scale", unit)
        self._start_at(shape_outputs(self.family, bend, unit), 2 * self.n_phases)

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> Located:
        return Located(law_of(self.family, outputs, scale, self.n_phases), origin, validate_args=False)


def law_of(family: type[TimeTransformed] | None, outputs: Tensor, scale: Tensor, m: int) -> Any:
    """The law on ``[0, inf)`` that the outputs of a chain, and of a clock behind them, stand for.

    Args:
        family: Class of the law; None for a phase-type law.
        outputs: Shape ``(..., 2m + n_shapes(family))``.
        scale: Unit of each column, shape ``(D,)``.
        m: Phases of the chain.
    """
    if family is None:
        return DecodedChain(outputs, scale)
    chain, shapes = outputs.split((2 * m, n_shapes(family)), -1)
    # the time of the chain has no unit: the unit of the column is the scale of the transform
    shape, unit = shapes_of(family, shapes.double())
    return family(DecodedChain(chain, torch.ones_like(scale)), shape, unit * scale, validate_args=False)


def n_shapes(family: type[TimeTransformed] | None) -> int:
    """Outputs per column beside those of the chain."""
    return 0 if family is None else 1 + int(family.scale_is_free)


def shapes_of(family: type[TimeTransformed], outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Shape and unit-free scale from outputs of shape ``(..., n_shapes)``."""
    shape = family.least_shape + outputs[..., 0].clamp(*SHAPE_BOUNDS).exp()
    scale = outputs[..., 1].clamp(*SCALE_BOUNDS).exp() if family.scale_is_free else torch.ones_like(shape)
    return shape, scale


def shape_outputs(family: type[TimeTransformed], shape: Tensor, scale: Tensor) -> Tensor:
    """Outputs that stand for a shape and a unit-free scale, on a new last axis."""
    logs = ((shape - family.least_shape).log(), scale.log())
    return torch.stack(torch.broadcast_tensors(*logs[: n_shapes(family)]), -1)


def family_of(settings: Mapping[str, Any]) -> type[TimeTransformed] | None:
    """The family that bends time for the tail in the settings; those of older files name none."""
    return FAMILIES[settings.get("tail", defaults.TAIL)]
