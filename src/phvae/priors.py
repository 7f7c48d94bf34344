"""Laws of the latent vector before any data: each a module with a log density, draws and a divergence."""

import copy
import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from phvae.encoders import LOG_VARIANCE_BOUNDS, posterior
from phvae.kernels import latent
from phvae.kernels.once import closed_form

__all__ = ["ConditionalPrior", "MixturePrior", "Prior", "StandardNormal", "even_offsets"]

_LOG_TWO_PI = math.log(2 * math.pi)


class Prior(nn.Module, ABC):
    """Law of a latent vector of length ``latent_dim``."""

    latent_dim: int

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """Log density at points of shape ``(..., latent_dim)``, shape ``(...)``."""

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, shape ``(n, latent_dim)``."""

    def draw(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Points of posteriors, and the divergence of these from this prior.

        Args:
            outputs: What an encoder says of rows, shape ``(n, 2 latent_dim)``; see `phvae.encoders.posterior`.
            noise: Standard normal numbers, shape ``(..., n, latent_dim)``.

        Returns:
            ``mean + deviation · noise``, shape of the noise, and `divergence` there.
        """
        law = posterior(outputs)
        z = torch.addcmul(law.loc, law.scale, noise)
        return z, self.divergence(law, z)

    def divergence(self, posterior: Normal, z: Tensor) -> Tensor:
        """One-draw estimate ``log q(z) - log p(z)`` of the divergence of a posterior from this prior.

        Args:
            posterior: Diagonal normal law ``q``, batch shape ``(n, latent_dim)``.
            z: Draws from it, shape ``(..., n, latent_dim)``.

        Returns:
            Tensor of shape ``(..., n)``; a prior with a closed form overrides this.
        """
        log_posterior: Tensor = posterior.log_prob(z).sum(-1)
        return log_posterior - self.log_prob(z)


class StandardNormal(Prior):
    """Independent standard normal entries; the divergence of a posterior is exact.

    >>> StandardNormal(2).log_prob(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    tensor([-1.8379, -2.8379])
    """

    place: Tensor

    def __init__(self, latent_dim: int) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        # remembers the device, holds nothing
        self.register_buffer("place", torch.empty(0), persistent=False)

    def log_prob(self, z: Tensor) -> Tensor:
        """Log density at points of shape ``(..., latent_dim)``, shape ``(...)``."""
        return -(z.square().sum(-1) + self.latent_dim * _LOG_TWO_PI) / 2

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, shape ``(n, latent_dim)``."""
        return torch.randn(n, self.latent_dim, device=self.place.device, dtype=self.place.dtype, generator=generator)

    def draw(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Points and divergences as everywhere, on a CPU from one pass."""
        if latent.fused(outputs) is None:
            return super().draw(outputs, noise)
        return latent.draw(outputs, noise, LOG_VARIANCE_BOUNDS)

    def divergence(self, posterior: Normal, z: Tensor) -> Tensor:
        """``Σ (mean² + variance - 1 - log variance) / 2`` for each row, whatever ``z``."""
        divergence: Tensor = _Divergence.apply(posterior.loc, posterior.scale)  # type: ignore[no-untyped-call]
        return divergence


class MixturePrior(Prior):
    """Learned mixture of diagonal normal laws, started so that the whole has mean zero and unit variance.

    Args:
        latent_dim: Length of the latent vector.
        n_components: Number of normal laws.
        generator: Source of the first means; the global one of torch when omitted.

    >>> prior = MixturePrior(2, 8, generator=torch.Generator().manual_seed(0))
    >>> prior.sample(5).shape, prior.log_prob(torch.zeros(5, 2)).shape
    (torch.Size([5, 2]), torch.Size([5]))
    """

    # Share of the variance that is between the components at the start.
    SPREAD = 0.5

    def __init__(self, latent_dim: int, n_components: int = 32, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if n_components < 1:
            raise ValueError(f"n_components = {n_components!r}; a mixture has at least one component")
        self.latent_dim = latent_dim
        centres = torch.randn(n_components, latent_dim, generator=generator)
        self.means = nn.Parameter(math.sqrt(self.SPREAD) * centres)
        self.log_scales = nn.Parameter(torch.full_like(centres, math.log(1 - self.SPREAD) / 2))
        self.logits = nn.Parameter(torch.zeros(n_components))

    def log_prob(self, z: Tensor) -> Tensor:
        """Log density at points of shape ``(..., latent_dim)``, shape ``(...)``."""
        standardised = (z[..., None, :] - self.means) * (-self.log_scales).exp()
        exponent = standardised.square().sum(-1) / 2 + self.log_scales.sum(-1) + self.latent_dim * _LOG_TWO_PI / 2
        return torch.logsumexp(self.logits.log_softmax(-1) - exponent, -1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, shape ``(n, latent_dim)``."""
        with torch.no_grad():
            steps = self.logits.softmax(-1).cumsum(-1)
            uniform = torch.rand(n, 1, device=steps.device, dtype=steps.dtype, generator=generator)
            component = (uniform * steps[-1] >= steps[:-1]).sum(-1)
            noise = torch.randn(n, self.latent_dim, device=steps.device, dtype=steps.dtype, generator=generator)
            return self.means[component] + self.log_scales[component].exp() * noise


class ConditionalPrior(Prior):
    """``p(z | c)``: a prior of which each entry is moved and stretched by covariates, ``z = A c + exp(B c) z'``.

    At first ``A`` and ``B`` are zero, and the covariates say nothing. As a prior itself it is that of ``c = 0``.

    Args:
        base: Law of ``z'``.
        n_covariates: Length of ``c``.

    >>> prior = ConditionalPrior(StandardNormal(2), 3)
    >>> prior.given(torch.ones(5, 3)).log_prob(torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    def __init__(self, base: Prior, n_covariates: int) -> None:
        super().__init__()
        self.base, self.latent_dim = base, base.latent_dim
        self.shift = nn.Linear(n_covariates, 2 * base.latent_dim, bias=False)
        nn.init.zeros_(self.shift.weight)

    def log_prob(self, z: Tensor) -> Tensor:
        """Log density at points of shape ``(..., latent_dim)``, shape ``(...)``."""
        return self.base.log_prob(z)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, shape ``(n, latent_dim)``."""
        return self.base.sample(n, generator)

    def given(self, c: Tensor) -> "MovedPrior":
        """The prior of rows with these covariates, shape ``(n, n_covariates)``."""
        mean, log_scale = self.shift(c.to(self.shift.weight.dtype)).chunk(2, -1)
        return MovedPrior(self.base, mean, log_scale)

    @torch.no_grad()
    def at(self, c: Tensor) -> Prior:
        """The prior given one row of covariates, shape ``(n_covariates,)``: a mixture of normal laws of its own."""
        mean, log_scale = self.shift(c).chunk(2, -1)
        if isinstance(self.base, MixturePrior):
            held = copy.deepcopy(self.base)
        else:
            held = MixturePrior(self.latent_dim, 1, generator=torch.Generator()).to(c)
            held.means.zero_()
            held.log_scales.zero_()
        held.means.copy_(mean + log_scale.exp() * held.means)
        held.log_scales.add_(log_scale)
        return held


class MovedPrior(Prior):
    """Law of ``z = mean + exp(log_scale) z'`` for ``z'`` from another prior.

    Args:
        base: Law of ``z'``.
        mean: Shape ``(latent_dim,)``, or ``(n, latent_dim)`` for a law of each of ``n`` rows.
        log_scale: The same shape.
    """

    def __init__(self, base: Prior, mean: Tensor, log_scale: Tensor) -> None:
        super().__init__()
        self.base, self.latent_dim = base, base.latent_dim
        self.mean, self.log_scale = mean, log_scale

    def log_prob(self, z: Tensor) -> Tensor:
        """Log density at points of shape ``(..., n, latent_dim)``, shape ``(..., n)``."""
        return self.base.log_prob((z - self.mean) * (-self.log_scale).exp()) - self.log_scale.sum(-1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, one for each row, shape ``(n, latent_dim)``."""
        return self.mean + self.log_scale.exp() * self.base.sample(n, generator)

    def divergence(self, posterior: Normal, z: Tensor) -> Tensor:
        """That of the base for what the posterior and its draws are before they are moved."""
        shrink = (-self.log_scale).exp()
        before = Normal((posterior.loc - self.mean) * shrink, posterior.scale * shrink, validate_args=False)
        return self.base.divergence(before, (z - self.mean) * shrink)


def divergence_per_dimension(posterior: Normal) -> Tensor:
    """Divergence of each entry of a diagonal normal posterior from a standard normal entry, shape ``(n, d)``."""
    return _divergences(posterior.loc, posterior.scale)


def _divergences(mean: Tensor, deviation: Tensor) -> Tensor:
    """``(mean² + deviation² - 1) / 2 - log deviation`` of each entry."""
    return torch.addcmul(deviation * deviation, mean, mean).sub_(1.0).div_(2.0).sub_(deviation.log())


class _Divergence(torch.autograd.Function):
    """The sum of each row in float64, with its slopes as they are: a fifth of the operations."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, deviation: Tensor) -> Tensor:
        ctx.save_for_backward(mean, deviation)
        return _divergences(mean, deviation).sum(-1, dtype=torch.float64)

    @staticmethod
    @closed_form
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        mean, deviation = ctx.saved_tensors
        slope = slope.to(mean.dtype)[..., None]
        return slope * mean, (deviation - deviation.reciprocal()).mul_(slope)


def even_offsets(n_points: int, latent_dim: int) -> Tensor:
    """Standard normal points that fill the space evenly, shape ``(n_points, 1, latent_dim)``; always the same ones."""
    if not latent_dim:
        return torch.zeros(1, 1, 0, dtype=torch.float64)
    engine: Any = torch.quasirandom.SobolEngine
    uniform: Tensor = engine(latent_dim, scramble=True, seed=0).draw(n_points, dtype=torch.float64)
    # the points are multiples of 2^-30: from the middle of their cells none is 0, where the quantile is infinite
    offsets: Tensor = torch.special.ndtri(uniform + 2**-31)
    return offsets[:, None]
