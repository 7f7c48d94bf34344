"""Draws of the cells that are missing or censored, given all that is known of their row."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.distributions.tails import TailedLaw
from phvae.fitted import in_double, network_rows
from phvae.observation import log_likelihood
from phvae.observed import Cells
from phvae.observing import cells_of, rows_of, whole_counts
from phvae.settings import seed_of
from phvae.vae import VAE

if TYPE_CHECKING:
    from phvae.estimator import PHVAE

__all__ = ["draw_within", "impute", "unknown_cells"]

Array = NDArray[np.float64]

# Latent points of which each draw of a row gets one in proportion to its weight, and laws that are held at once.
POINTS = 512
CHUNK = 2**18


def impute(
    model: "PHVAE", values: Array, n_draws: int, random_state: Any, beside: Mapping[str, Any], covariates: Any
) -> Array:
    """Tables without gaps, shape ``(n_draws, n, D)``.

    For every row latent points are drawn from its approximate posterior, weighted by
    ``p(known cells | z) p(z) / q(z | row)`` and chosen in proportion to the weights; the cells that are not known are
    then drawn from their law given ``z``, between the ends of what is known of them.

    Args:
        model: Fitted estimator.
        values: Values, shape ``(n, D)``, NaN where there is none.
        n_draws: Number of draws.
        random_state: Seed or generator.
        beside: Ends and bounds, as in `phvae.observed.read_cells`.
        covariates: Covariates of the rows, if the model has any.
    """
    cells, unknown = unknown_cells(model, values, beside)
    filled = np.repeat(values[None], n_draws, 0)
    places = np.flatnonzero(unknown.any(1))
    if not len(places):
        return filled
    rows, layout = rows_of(model, cells)
    x = network_rows(model, rows, covariates)
    vae = in_double(model.vae_)
    vae.encoder.layout = layout
    generator = torch.Generator().manual_seed(seed_of(random_state))
    at_once = max(1, CHUNK // ((POINTS + n_draws) * values.shape[1]))
    for own in np.split(places, range(at_once, len(places), at_once)):
        with torch.no_grad():
            z = _latent(vae, x[own], n_draws, generator)
            drawn = _cells(vae, z, x[own], cells, own, unknown, generator)
        for j, column in drawn.items():
            wanted = unknown[own, j]
            filled[:, own[wanted], j] = column.numpy()[:, wanted]
    finished = whole_counts(model, filled.reshape(-1, filled.shape[-1])).reshape(filled.shape)
    return np.where(unknown, finished, values)


def unknown_cells(model: "PHVAE", values: Array, beside: Mapping[str, Any]) -> tuple[Cells, NDArray[np.bool_]]:
    """The cells of a table, and which of them are not known: missing, censored or in an interval; as in `impute`."""
    cells, plain = (cells_of(model, values, known, gaps=True) for known in (beside, {}))
    return cells, np.isnan(values) | (cells.lower != plain.lower) | (cells.upper != plain.upper)


def _latent(vae: VAE, x: Tensor, n_draws: int, generator: torch.Generator) -> Tensor:
    """Draws of the latent vector given rows, shape ``(n_draws, n, latent_dim)``."""
    posterior: Any = vae.posterior(x)
    c = vae.layout.covariates(x)
    noise = torch.randn((POINTS, *posterior.loc.shape), dtype=torch.float64, generator=generator)
    z = posterior.loc + posterior.scale * noise
    fit = log_likelihood(vae.decoder(vae.beside(z, c)), x, vae.layout)
    log_weight = fit + vae.prior_given(c).log_prob(z) - posterior.log_prob(z).sum(-1)
    steps = log_weight.softmax(0).cumsum(0).T.contiguous()
    uniform = torch.rand((len(x), n_draws), dtype=torch.float64, generator=generator) * steps[:, -1:]
    chosen = torch.searchsorted(steps, uniform).clip(max=POINTS - 1)
    points: Tensor = z[chosen.T, torch.arange(len(x))]
    return points


def _cells(
    vae: VAE,
    z: Tensor,
    x: Tensor,
    cells: Cells,
    own: NDArray[np.int64],
    unknown: NDArray[np.bool_],
    generator: torch.Generator,
) -> dict[int, Tensor]:
    """Draws ``(n_draws, n)`` of the columns of which some cell is not known."""
    inputs = vae.beside(z, vae.layout.covariates(x))
    drawn = {}
    for j in np.flatnonzero(unknown[own].any(0)).tolist():
        law = vae.decoder.column(inputs, j)
        # in (0, 1]: at 0 a tail would be drawn at infinity
        uniform = 1 - torch.rand(law.batch_shape, dtype=torch.float64, generator=generator)
        lower, upper = (torch.from_numpy(end[own, j])[:, None] for end in (cells.lower, cells.upper))
        column = draw_within(law, lower, upper, uniform)
        drawn[j] = torch.where(torch.from_numpy(unknown[own, j])[:, None], column, torch.nan)[..., 0]
    return drawn


def draw_within(law: TailedLaw, lower: Tensor, upper: Tensor, uniform: Tensor) -> Tensor:
    """Draws of a law given that it lies in ``(lower, upper]``: its inverse at levels between those of the ends.

    Args:
        law: The law.
        lower: Lower ends, ``-inf`` where there is none, shape broadcastable with the batch shape.
        upper: Upper ends, ``inf`` where there is none, likewise.
        uniform: Numbers in ``(0, 1]``, one for each draw.
    """
    open_below, open_above = lower == -torch.inf, upper == torch.inf
    # an exact cell is not drawn; it is asked about like an open one
    open_above = open_above | (lower >= upper)
    start, end = torch.where(open_below, 0.0, lower), torch.where(open_above, 0.0, upper)
    survival = torch.where(open_below, 1.0, law.log_sf(start).exp())
    rest = torch.where(open_above, 0.0, law.log_sf(end).exp())
    below = torch.where(open_below, 0.0, law.log_cdf(start).exp())
    above = torch.where(open_above, 1.0, law.log_cdf(end).exp())
    # the smaller of the two tails keeps the digits of a difference
    high = survival < above
    level = torch.where(high, rest + uniform * (survival - rest), below + uniform * (above - below))
    x = torch.where(high, law.isf(torch.where(high, level, 0.5)), law.icdf(torch.where(high, 0.5, level)))
    # the inversion's last digits must not carry a draw over an end that it is close to
    x = torch.where(open_below, x, torch.maximum(x, torch.nextafter(start, torch.full_like(start, torch.inf))))
    return torch.where(open_above, x, torch.minimum(x, end))
