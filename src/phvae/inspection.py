"""The chains of a fitted model, to look at."""

from typing import TYPE_CHECKING, Any

import torch
from sklearn.utils.validation import check_is_fitted

from phvae.distributions import SeriesPhaseType
from phvae.fitted import unconditional
from phvae.preprocessing import column_names
from phvae.risk.questions import place
from phvae.risk.turned import Tail, turned
from phvae.signed_decoders import chain_of

if TYPE_CHECKING:
    from phvae.estimator import PHVAE

__all__ = ["phase_type"]


def phase_type(model: "PHVAE", column: str | int, z: Any = None, *, tail: Tail = "upper") -> SeriesPhaseType:
    """The chain the decoder gives a column: the law of what a value that is no exact zero exceeds its origin by.

    This is the law given one latent vector, to look at or to export. It is not the law of the column, whose tail is
    heavier: that one is the mean over all latent vectors, which `sample` draws from.

    Args:
        model: Fitted estimator.
        column: Name or position.
        z: Latent vectors, shape ``(..., latent_dim)``; None takes the centre, ``z = 0``.
        tail: Side of a signed column: ``"upper"`` for the size of its gains, ``"lower"`` for that of its losses.

    Returns:
        One law for each latent vector, in the user's units.
    """
    check_is_fitted(model)
    names = column_names(model.n_features_in_, model.columns_)
    position = place(column, names)
    losses = bool(turned(tail, [position], names, model.scaler_.lower_.tolist()))
    vae = unconditional(model)
    points = torch.zeros(vae.latent_dim) if z is None else torch.as_tensor(z)
    if points.shape[-1:] != (vae.latent_dim,):
        raise ValueError(f"z has shape {tuple(points.shape)}; give vectors of length {vae.latent_dim}")
    with torch.no_grad():
        chain = chain_of(vae.decoder(points.double()).base_dist, losses=losses)
    if not isinstance(chain, SeriesPhaseType):
        raise ValueError(f"tail = {model.tail!r}: its chains run in a time of their own; look at vae_")
    return SeriesPhaseType(chain.initial[..., position, :], chain.rates[..., position, :])
