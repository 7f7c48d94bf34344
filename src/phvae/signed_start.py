"""Where the decoder of signed columns starts: a law for the gains of each column, and one for its losses.

What is known to lie on one side of zero says all that it says to the law of that side. Where an interval holds zero, or
a row is seen within bounds, the column then climbs to the maximum of the likelihood of both sides together.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phvae.distributions.time_transformed import TimeTransformed
from phvae.observed import Cells
from phvae.observed_start import ObservedColumn, fit_observed
from phvae.signed_cells import SideLaw, climb_together, points_of, sides
from phvae.signed_decoders import SignedDecoder
from phvae.start import fit_sketches, reachable
from phvae.transformed_decoders import shape_outputs
from phvae.transformed_start import choose_transformed_phases, fit_transformed, spread

__all__ = ["choose_signed_phases", "set_signed_laws", "set_signed_start"]

Array = npt.NDArray[np.float64]
Found = tuple[Tensor, dict[str, Any]]


def set_signed_start(
    decoder: SignedDecoder, x: Tensor | Cells, *, fitted: bool, weights: Array | None, advised: Tensor
) -> Found:
    """Set both sides of a decoder to start laws, each fitted to its side of zero, and advise on their smoothness.

    Args:
        decoder: The decoder.
        x: Unit-free values, shape ``(n, D)``, or cells.
        fitted: Maximum likelihood laws; otherwise rates spread over the range of each side.
        weights: Weights of the rows, shape ``(n,)``.
        advised: Smoothness where no fit says better, shape ``(D,)``.

    Returns:
        Smoothness per column, shape ``(D,)``: that of the gains and that of the losses, by their shares of the rows;
        and the indices of the tails of both, with the standard errors of their logarithms, where they have any.
    """
    signed = decoder.is_signed.numpy()
    if fitted:
        return set_signed_laws(
            decoder, *sides(x, signed, weights), advised, x if isinstance(x, Cells) else None, weights
        )
    points = points_of(x, signed) if isinstance(x, Cells) else x.numpy()
    # a column without losses keeps its gains there, which nobody reads
    losses = np.where(signed, -points, points)
    for side, set_chain in ((points, decoder.set_start), (losses, decoder.set_losses)):
        used = torch.from_numpy(np.where(side > 0, side, 0.0))
        set_chain(*spread(used, decoder.family, decoder.n_phases, weights))
    return advised, {}


def set_signed_laws(
    decoder: SignedDecoder,
    gains: list[ObservedColumn],
    losses: list[ObservedColumn],
    advised: Tensor,
    cells: Cells | None = None,
    weights: Array | None = None,
) -> Found:
    """Set both sides of a decoder to the laws of the gains of every column, and of the losses of those that have any.

    Args:
        decoder: The decoder.
        gains: What is different among the gains of each column.
        losses: The same among the losses of each signed column.
        advised: As in `set_signed_start`, and so is what is returned.
        cells: What is known of all cells, where that is not their values.
        weights: Weights of their rows.
    """
    signed, odds = decoder.is_signed, torch.where(decoder.is_signed, decoder.loss_share, 0.5).logit()
    own = np.flatnonzero(signed.numpy()).tolist()
    up = _fitted(gains, decoder, advised)
    # a column without losses keeps its gains there, which nobody reads
    down = list(up)
    for j, law in zip(own, _fitted(losses, decoder, advised[signed]), strict=True):
        down[j] = law
        whole = None
        if cells is not None:
            atom = bool(decoder.has_atom[j])
            whole = climb_together(cells, j, weights, up[j], law, family=decoder.family, atom=atom)
        if whole is not None:
            up[j], down[j], odds[j] = _reachable(whole.gain), _reachable(whole.loss), whole.odds
            if whole.zero_odds is not None:
                decoder.set_zero_odds(j, whole.zero_odds)
    for side, set_chain in ((up, decoder.set_start), (down, decoder.set_losses)):
        set_chain(torch.stack([law.initial for law in side]), torch.stack([law.rates for law in side]))
    decoder.set_clocks(*(torch.stack([law.shapes for law in side]) for side in (up, down)))
    decoder.set_loss_odds(odds)
    gains_like, losses_like = (
        torch.tensor([law.smoothness for law in side], dtype=torch.float64) for side in (up, down)
    )
    return torch.lerp(gains_like, losses_like, decoder.loss_share), _indices(up, down, own)


def choose_signed_phases(
    x: Tensor | Cells, signed: npt.NDArray[np.bool_], family: type[TimeTransformed], weights: Array | None = None
) -> int:
    """The number of phases that the neediest side of a column asks for; as `choose_transformed_phases`."""
    gains, losses = sides(x, signed, weights)
    return choose_transformed_phases([*gains, *losses], family)[0]


def _fitted(columns: list[ObservedColumn], decoder: SignedDecoder, advised: Tensor) -> list[SideLaw]:
    """The law of one side of each column by itself."""
    family, m = decoder.family, decoder.n_phases
    if family is not None:
        laws = []
        for fit, smoothness in zip(fit_transformed(columns, family, m), advised.tolist(), strict=True):
            shapes = shape_outputs(family, *torch.tensor([fit.shape, fit.scale], dtype=torch.float64))
            index = (fit.tail_index, fit.tail_index_error)
            laws.append(_reachable(SideLaw(fit.initial, fit.rates, shapes, smoothness, 0.0, index)))
        return laws
    plain = all(column.ends.ndim == 1 for column in columns)
    found = fit_sketches([column.sketch for column in columns], m) if plain else fit_observed(columns, m)
    initial, rates = reachable(found.initial, found.rates)
    totals = [float(column.sketch.weights.sum()) for column in columns]
    none, no_index = torch.zeros(0, dtype=torch.float64), (0.0, float("nan"))
    return [
        SideLaw(initial[d], rates[d], none, smoothness, smoothness * totals[d], no_index)
        for d, smoothness in enumerate(found.smoothness.tolist())
    ]


def _reachable(law: SideLaw) -> SideLaw:
    initial, rates = (part[0] for part in reachable(law.initial[None], law.rates[None]))
    return law._replace(initial=initial, rates=rates)


def _indices(up: list[SideLaw], down: list[SideLaw], own: list[int]) -> dict[str, Any]:
    """Indices of the upper tails, and of the lower ones where there are any; nothing if no tail is a power."""
    if not any(law.tail_index[0] for law in up):
        return {}
    upper, lower = (
        [[law.tail_index[0], law.tail_index[1] if np.isfinite(law.tail_index[1]) else None] for law in side]
        for side in (up, down)
    )
    return {"tail_index": upper, "tail_index_losses": [pair if j in own else None for j, pair in enumerate(lower)]}
