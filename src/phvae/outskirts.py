"""The prior after training: its components on the outskirts of latent space, where the extremes of rows come from.

The bound pays for the prior by the row. An error of a fifth in the rare region from which two columns are large
together costs a few millionths of it, so that training leaves it there, and rows drawn from the prior are extreme
together too rarely. Here the rows on the outskirts have components and a share of their own.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Normal

from phvae import distributed
from phvae.batches import RowSource, stream
from phvae.priors import ConditionalPrior, MixturePrior
from phvae.threads import one_thread
from phvae.vae import VAE

__all__ = ["settle_prior"]

# Share of the rows that are on the outskirts.
OUTSKIRTS = 0.1
# Rows there for each component of their own, and the components from which on they are worth having.
ROWS_PER_COMPONENT = 100
FEWEST = 8
# Rows that are asked, of more than so many, and draws of the latent vector of each.
MOST_ROWS = 2**17
DRAWS = 3
# Steps for components that training has placed, and for new ones.
STEPS, NEW_STEPS = 30, 60
# Draws from the law of all that every component counts beside its own: none can be lost, or shrink to a point.
SHARED_DRAWS = 3.0
# Rows and draws at once.
CHUNK = 2**14


class _Components(NamedTuple):
    """Diagonal normal laws: weights ``(K,)``, means and deviations ``(K, d)``."""

    weights: Tensor
    means: Tensor
    deviations: Tensor

    @torch.no_grad()
    def prior(self) -> MixturePrior:
        settled = MixturePrior(self.means.shape[1], len(self.weights), generator=torch.Generator())
        settled.logits.copy_(self.weights.log())
        settled.means.copy_(self.means)
        settled.log_scales.copy_(self.deviations.log())
        return settled


class _Posteriors(NamedTuple):
    """Diagonal normal laws of rows, ``(n, d)``, before covariates move them, and the weights of the rows, ``(n,)``."""

    means: Tensor
    deviations: Tensor
    weights: Tensor

    def where(self, chosen: Tensor) -> "_Posteriors":
        return _Posteriors(*(part[chosen] for part in self))


@one_thread()
@torch.no_grad()
def settle_prior(vae: VAE, rows: RowSource, *, seed: int) -> int | None:
    """Give the rows on the outskirts of a trained model components of their own in its mixture prior, in place.

    The outskirts are the tenth of the rows at whose posterior mean the prior is lowest. Two mixtures are fitted to
    draws from the posteriors, ``p(z) = (1 - s) Σ_k w_k N(z; m_k, S_k) + s Σ_l v_l N(z; m_l, S_l)``: one to all other
    rows, from where training has left the components, and one to the outskirts, with ``s`` their share exactly.

    Args:
        vae: Trained model; nothing happens to one without a mixture prior.
        rows: What it was trained on, on its device.
        seed: Seed of the noise.

    Returns:
        The number of components there are now; None where the outskirts have too few rows for any of their own.

    >>> from phvae.batches import RowsInMemory
    >>> from phvae.decoders import PhaseTypeDecoder
    >>> from phvae.encoders import GaussianEncoder
    >>> units = {"origin": [0.0], "scale": [1.0]}
    >>> model = VAE(GaussianEncoder(1, 2, **units), PhaseTypeDecoder(2, **units), MixturePrior(2, 8))
    >>> settle_prior(model, RowsInMemory(torch.rand(9000, 1, dtype=torch.float64)), seed=0)
    16
    """
    trained = vae.prior.base if isinstance(vae.prior, ConditionalPrior) else vae.prior
    if not isinstance(trained, MixturePrior) or OUTSKIRTS * rows.shape[0] < FEWEST * ROWS_PER_COMPONENT:
        return None
    learned = _Components(trained.logits.softmax(-1).cpu(), trained.means.cpu(), trained.log_scales.exp().cpu())
    posteriors = _posteriors(vae, rows, seed)
    density = torch.cat([_log_joint(part, learned).logsumexp(-1) for part in posteriors.means.split(CHUNK)])
    order = density.argsort(stable=True)
    far = torch.empty_like(order, dtype=torch.bool)
    far[order] = posteriors.weights[order].cumsum(0) <= OUTSKIRTS * posteriors.weights.sum()
    n_new = min(int(far.sum()) // ROWS_PER_COMPONENT, len(learned.weights))
    if n_new < FEWEST:
        return None
    generator = stream("cpu", seed, "outskirts")
    body, tail = posteriors.where(~far), posteriors.where(far)
    parts = _fitted(body, learned, STEPS, generator), _fitted(tail, n_new, NEW_STEPS, generator)
    share = float(tail.weights.sum() / posteriors.weights.sum())
    weights = torch.cat((parts[0].weights * (1 - share), parts[1].weights * share))
    means, deviations = (torch.cat([part[field] for part in parts]) for field in (1, 2))
    if (world := distributed.current()) is not None:
        weights, means, deviations = map(world.of_first, (weights, means, deviations))
    settled = _Components(weights, means, deviations).prior().to(trained.means.device)
    if isinstance(vae.prior, ConditionalPrior):
        vae.prior.base = settled
    else:
        vae.prior = settled
    return len(weights)


def _posteriors(vae: VAE, rows: RowSource, seed: int) -> _Posteriors:
    """Posteriors of all rows, or of as many as are asked, each taken with the same chance; on the CPU."""
    chance, generator = MOST_ROWS / rows.shape[0], stream("cpu", seed, "rows of the prior")
    parts = []
    for batch in rows.epoch(0, seed=seed, batch_size=CHUNK, first=0):
        x, weights = batch.x, batch.weights
        weights = x.new_ones(len(x)) if weights is None else weights
        if chance < 1:
            taken = (torch.rand(len(x), generator=generator) < chance).to(x.device)
            x, weights = x[taken], weights[taken]
        law: Normal = vae.posterior(x)
        loc, scale = law.loc, law.scale
        if isinstance(vae.prior, ConditionalPrior):
            moved = vae.prior.given(vae.layout.covariates(x))
            shrink = (-moved.log_scale).exp()
            loc, scale = (loc - moved.mean) * shrink, scale * shrink
        parts.append((loc.cpu(), scale.cpu(), weights.float().cpu()))
    return _Posteriors(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _fitted(rows: _Posteriors, start: _Components | int, steps: int, generator: torch.Generator) -> _Components:
    """Normal laws fitted to draws of rows by expectation and maximisation, from some or from that many draws."""
    shares = (rows.weights / rows.weights.sum()).double()
    centre = shares @ rows.means.double()
    spread = (shares @ ((rows.means - centre).square() + rows.deviations.double().square())).sqrt()
    means, deviations = ((rows.means - centre) / spread).float(), (rows.deviations / spread).float()
    noise = torch.randn(DRAWS, *means.shape, generator=generator)
    z = (means + deviations * noise).flatten(0, 1)
    if isinstance(start, int):
        chosen = torch.multinomial(shares, start, generator=generator)
        unit = torch.ones(start, z.shape[1])
        found = _Components(unit[:, 0] / start, z[chosen], unit / 2)
    else:
        found = _Components(
            start.weights, ((start.means - centre) / spread).float(), (start.deviations / spread).float()
        )
    weights = (rows.weights / rows.weights.mean()).repeat(DRAWS)
    moments = torch.cat((torch.ones(len(z), 1), z, z.square()), 1)
    # the law of all has mean zero and variance one here
    d = z.shape[1]
    shared = SHARED_DRAWS * torch.cat((torch.ones(1), torch.zeros(d), torch.ones(d))).double()
    for _ in range(steps):
        totals = shared.expand(len(found.weights), -1).clone()
        for part, mass, own in zip(z.split(CHUNK), weights.split(CHUNK), moments.split(CHUNK), strict=True):
            responsibility = _log_joint(part, found).softmax(-1) * mass[:, None]
            totals += (responsibility.mT @ own).double()
        mean, square = (totals[:, 1:] / totals[:, :1]).chunk(2, -1)
        deviation = (square - mean.square()).sqrt()
        found = _Components((totals[:, 0] / totals[:, 0].sum()).float(), mean.float(), deviation.float())
    return _Components(found.weights, (centre + spread * found.means).float(), (spread * found.deviations).float())


def _log_joint(z: Tensor, laws: _Components) -> Tensor:
    """``log w_k N(z; m_k, S_k)`` at points ``(n, d)``, shape ``(n, K)``, by two products of matrices."""
    precision = laws.deviations**-2
    constant = laws.weights.log() - laws.deviations.log().sum(-1) - (laws.means.square() * precision).sum(-1) / 2
    constant = constant - z.shape[-1] * math.log(2 * math.pi) / 2
    return constant - z.square() @ (precision.mT / 2) + z @ (laws.means * precision).mT
