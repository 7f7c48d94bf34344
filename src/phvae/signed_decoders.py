"""The decoder of signed columns: returns, gains and losses, with a chain for either side of zero."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from phvae import defaults
from phvae.decoders import PhaseTypeDecoder
from phvae.distributions.checks import Numbers, as_tensor
from phvae.distributions.located import Located
from phvae.distributions.tails import TailedLaw
from phvae.distributions.time_transformed import TimeTransformed
from phvae.distributions.two_sided import TwoSided
from phvae.distributions.zero_atom import ZeroAtom
from phvae.transformed_decoders import TransformedDecoder, family_of, law_of, n_shapes, shape_outputs

__all__ = ["SignedDecoder", "chain_of", "decoder_of"]


class SignedDecoder(PhaseTypeDecoder):
    """Two-sided law per column: that of the gains, that of the losses, and the log odds of a loss.

    The outputs of a column are those of `PhaseTypeDecoder`, or of `TransformedDecoder`, for the gains, the same for the
    losses, and one logit. A column without losses is the column of such a decoder; only such a column may have an
    origin other than 0.

    Args:
        latent_dim: Length of the latent vector; with 0 there is one law and no network.
        origin: Lower end of each column without losses, shape ``(D,)``, in the user's units; 0 for the others.
        scale: Positive typical size of each column, shape ``(D,)``.
        loss_share: Share of negative values among those that are no exact zeros, shape ``(D,)``, below 1; a column with
            0 has no losses.
        family: Class of the laws of both sides: `MatrixWeibull`, `MatrixPareto`, `MatrixLogNormal`; None for
            phase-type laws.
        n_phases: Phases ``m`` per side.
        hidden: Widths of the hidden layers.
        zero_share: Share of exact zeros per column, shape ``(D,)``; a column with 0 has no atom at zero.
        head_rank: Most directions in which the latent vector moves the outputs of a column; 0 for every direction.
        generator: Source of the first weights; the global one of torch when omitted.

    >>> decoder = SignedDecoder(0, origin=[0.0, 1.0], scale=[0.01, 100.0], loss_share=[0.5, 0.0], n_phases=4)
    >>> law = decoder(torch.zeros(5, 0)).base_dist
    >>> law.cdf(torch.tensor([0.0, 1.0]))[0].tolist(), decoder.lower.tolist()
    ([0.5, 0.0], [-inf, 1.0])
    """

    loss_share: Tensor
    mirrored: Tensor

    def __init__(
        self,
        latent_dim: int,
        *,
        origin: Numbers,
        scale: Numbers,
        loss_share: Numbers,
        family: type[TimeTransformed] | None = None,
        n_phases: int = defaults.DECODER_PHASES,
        hidden: Sequence[int] = defaults.HIDDEN,
        zero_share: Numbers | None = None,
        head_rank: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        self.family = family
        # outputs of a side
        self.side = 2 * n_phases + n_shapes(family)
        super().__init__(
            latent_dim,
            origin=origin,
            scale=scale,
            n_phases=n_phases,
            n_shapes=self.side + n_shapes(family) + 1,
            hidden=hidden,
            zero_share=zero_share,
            head_rank=head_rank,
            generator=generator,
        )
        share = as_tensor("loss_share", loss_share).double()
        if share.shape != self.origin.shape or not bool(((share >= 0) & (share < 1)).all()):
            raise ValueError(f"loss_share = {share.tolist()}; give one share of at least 0 and below 1 for each column")
        moved = (share > 0) & (self.origin != 0)
        if bool(moved.any()):
            j = int(moved.nonzero()[0])
            raise ValueError(f"origin[{j}] = {float(self.origin[j]):g}; a column with losses has its origin at 0")
        self.register_buffer("loss_share", share.clone())
        self.register_buffer("mirrored", torch.zeros_like(share, dtype=torch.bool), persistent=False)
        # known without a look at the buffer, which may be on a device
        self.turned = False
        gains = self._bias()[:, : 2 * n_phases].detach().clone()
        self._start_at(gains, self.side)
        self.set_loss_odds(torch.where(share > 0, share, 0.5).logit())
        if family is not None:
            ones = torch.ones(self.n_columns, dtype=torch.float64)
            clocks = shape_outputs(family, (family.least_shape + 1) * ones, ones)
            self.set_clocks(clocks, clocks)

    @property
    def is_signed(self) -> Tensor:
        """Whether a column has losses, shape ``(D,)``."""
        return self.loss_share > 0

    @property
    def lower(self) -> Tensor:
        """Least possible value of each column, shape ``(D,)``."""
        return torch.where(self.is_signed, -torch.inf, super().lower)

    def mirror(self, columns: Sequence[int]) -> None:
        """Make the laws of these columns those of their values with the other sign: gains are losses and losses gains.

        Args:
            columns: Positions of columns with losses.
        """
        for j in columns:
            if not bool(self.is_signed[j]):
                raise ValueError(f"columns = {list(columns)}: column {j} has no losses, so its mirror image has no law")
            self.mirrored[j] = ~self.mirrored[j]
        self.turned = bool(self.mirrored.any())

    def set_losses(self, initial: Numbers, rates: Numbers) -> None:
        """Make these the laws of the losses at zero head weights; arguments as in `set_start`, a row per column."""
        start, speed = as_tensor("initial", initial).double(), as_tensor("rates", rates).double()
        self._start_at(self._chain_outputs(start, speed), self.side)

    def set_clocks(self, gains: Tensor, losses: Tensor) -> None:
        """Make these, ``(D, n_shapes)`` each, the outputs for the clocks of both sides; see `shape_outputs`."""
        for first, clocks in ((0, gains), (self.side, losses)):
            self._start_at(clocks, first + 2 * self.n_phases)

    def set_loss_odds(self, logit: Tensor) -> None:
        """Make these the log odds of a loss at zero head weights, shape ``(D,)``."""
        self._start_at(logit[:, None], 2 * self.side)

    def set_zero_odds(self, position: int, logit: float) -> None:
        """Make this the log odds of an exact zero of a column with an atom, at zero head weights."""
        with torch.no_grad():
            self._bias()[position, -1] = logit

    def _law(self, outputs: Tensor, columns: slice) -> TailedLaw:
        k = self.side
        chains, logit, zero = outputs.split((2 * k, 1, self.width - 2 * k - 1), -1)
        odds = torch.where(self.is_signed[columns, None], logit, -torch.inf)
        if self.turned:
            turned = self.mirrored[columns, None]
            gains, losses = chains.chunk(2, -1)
            chains = torch.where(turned, torch.cat((losses, gains), -1), chains)
            odds = torch.where(turned, -odds, odds)
        return super()._law(torch.cat((chains, odds, zero), -1), columns)

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> TwoSided:
        gains, losses, odds = outputs.split((self.side, self.side, 1), -1)
        gain, loss = (law_of(self.family, part, scale, self.n_phases) for part in (gains, losses))
        return TwoSided(odds[..., 0], loss, Located(gain, origin, validate_args=False), validate_args=False)

    def roughness(self, outputs: Tensor) -> Tensor:
        """Roughness of both sides, weighted by their shares of the rows; arguments as in `PhaseTypeDecoder`."""
        k, share = self.side, self.loss_share
        losses = torch.cat((outputs[..., k:], outputs[..., :k]), -1)
        return (1 - share) * super().roughness(outputs) + share * super().roughness(losses)


def chain_of(law: Any, *, losses: bool = False) -> Any:
    """The law of what values that are no exact zeros exceed their origin by; or that of the sizes of losses.

    Args:
        law: Law of columns, as decoders give it.
        losses: That of the losses of signed columns.
    """
    continuous: Any = law.law if isinstance(law, ZeroAtom) else law
    if not isinstance(continuous, TwoSided):
        return continuous.base
    gains: Any = continuous.gain
    return continuous.loss if losses else gains.base


def decoder_of(settings: Mapping[str, Any], **arguments: Any) -> PhaseTypeDecoder:
    """The decoder for the tail, the signs, the phases, the latent size and the covariates in the settings."""
    family, n_inputs = family_of(settings), settings["latent_dim"] + settings.get("layout", {}).get("n_covariates", 0)
    # files of older versions name no rank
    arguments |= {"head_rank": settings.get("head_rank", 0), "n_phases": settings["n_phases"]}
    if "loss_share" in settings:
        return SignedDecoder(n_inputs, loss_share=settings["loss_share"], family=family, **arguments)
    if family is None:
        return PhaseTypeDecoder(n_inputs, **arguments)
    return TransformedDecoder(n_inputs, family=family, **arguments)
