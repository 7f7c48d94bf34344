"""Where the decoder of signed columns starts: a law for the gains of each column, and one for its losses."""

import torch
from torch import Tensor

from phvae.preprocessing import geometric_start
from phvae.signed_decoders import SignedDecoder
from phvae.start import fit_marginals, reachable

__all__ = ["set_signed_start"]


def set_signed_start(
    decoder: SignedDecoder, x: Tensor, *, fitted: bool, weights: Tensor | None, advised: Tensor
) -> Tensor:
    """Set both sides of a decoder to start laws, each fitted to its side of zero, and advise on their smoothness.

    Args:
        decoder: The decoder.
        x: Unit-free values, shape ``(n, D)``.
        fitted: Maximum likelihood laws; otherwise rates spread over the range of each side.
        weights: Weights of the rows, shape ``(n,)``.
        advised: Smoothness where no fit says better, shape ``(D,)``.

    Returns:
        Smoothness per column, shape ``(D,)``: that of the gains and that of the losses, by their shares of the rows.
    """
    mass = None if weights is None else weights.numpy()
    signed = decoder.is_signed

    def laws(side: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if not fitted:
            initial, rates = geometric_start(side.numpy(), decoder.n_phases, mass)
            return torch.from_numpy(initial), torch.from_numpy(rates), advised[: side.shape[1]]
        marginals = fit_marginals(side, n_phases=decoder.n_phases, weights=weights)
        return *reachable(marginals.initial, marginals.rates), marginals.smoothness

    zero = torch.zeros((), dtype=x.dtype)
    initial, rates, smoothness = laws(torch.where(x > 0, x, zero))
    decoder.set_start(initial, rates)
    # a column without losses keeps its gains there, which nobody reads
    losses = [part.clone() for part in (initial, rates, smoothness)]
    for whole, part in zip(losses, laws(torch.where(x < 0, -x, zero)[:, signed]), strict=True):
        whole[signed] = part
    decoder.set_losses(losses[0], losses[1])
    return torch.lerp(smoothness, losses[2], decoder.loss_share)
