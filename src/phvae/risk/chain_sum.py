"""The law of a weighted sum of columns that are chains given the latent vector: exact there, integrated over it."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phvae.distributions.phase_type import SeriesPhaseType
from phvae.distributions.two_sided import TwoSided
from phvae.distributions.zero_atom import ZeroAtom
from phvae.kernels import sums
from phvae.risk.law import IntegratedLaw
from phvae.risk.quadrature import Proposal
from phvae.risk.signed_sum import SignedSum, from_each_phase, log_rest, require_found
from phvae.vae import VAE

__all__ = ["ChainSum", "ChainSumLaw", "MixedSum"]

# Latent points whose laws are held at once.
POINTS_AT_ONCE = 2**12
# The rough law that a root search starts from has this share of the points, but never fewer than so many.
COARSE, FEWEST = 16, 64
# Relative step of a slope that stands for a density: to about a thousandth, of the step and of the tails' last digits.
SLOPE_STEP = 3e-2


class ChainSum(NamedTuple):
    """Laws of ``offset + Σ_j X_j`` for independent chains ``X_j`` with atoms at zero, a batch of ``n``.

    initial: Start probabilities, shape ``(n, D, m)``.
    rates: Rates, shape ``(n, D, m)``.
    zero: Chances of a zero, shape ``(n, D)``.
    offset: What is added, a number.
    """

    initial: Tensor
    rates: Tensor
    zero: Tensor
    offset: float

    @property
    def column_means(self) -> Tensor:
        """Mean of every column, shape ``(n, D)``."""
        return (1 - self.zero) * (self.initial * from_each_phase(1 / self.rates)).sum(-1)

    @property
    def mean(self) -> Tensor:
        """Mean of the sum without its offset, shape ``(n,)``."""
        return self.column_means.sum(-1)

    @property
    def variance(self) -> Tensor:
        """Variance of the sum, shape ``(n,)``."""
        times = from_each_phase(1 / self.rates)
        centre = (self.initial * times).sum(-1, keepdim=True)
        within = (self.initial * (from_each_phase(self.rates**-2) + (times - centre).square())).sum(-1)
        return ((1 - self.zero) * (within + self.zero * centre[..., 0].square())).sum(-1)

    @property
    def log_atom(self) -> Tensor:
        """Log of the chance that all columns are zero, shape ``(n,)``."""
        return self.zero.log().sum(-1)

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density at points ``(k, n)``; at the lower end its limit."""
        first = (1 - self.zero) * self.initial[..., -1] * self.rates[..., -1]
        others = torch.stack(
            [torch.cat((self.zero[:, :j], self.zero[:, j + 1 :]), -1).prod(-1) for j in range(self.zero.shape[1])], -1
        )
        at_end = (first * others).sum(-1).log()
        found = self._inside(x, self._density)
        return torch.where(x == self.offset, at_end, torch.where(x < self.offset, -math.inf, found))

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)`` at points ``(k, n)``."""
        above = x - self.offset >= self.mean
        found = self._smaller(x, above, 1)
        found = torch.where(above, found, log_rest(found))
        at_end = log_rest(self.log_atom)
        return torch.where(x < self.offset, 0.0, torch.where(x == self.offset, at_end, found))

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)`` at points ``(k, n)``."""
        above = x - self.offset >= self.mean
        found = self._smaller(x, above, 1)
        found = torch.where(above, log_rest(found), found)
        return torch.where(x < self.offset, -math.inf, torch.where(x == self.offset, self.log_atom, found))

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` at points ``(k, n)``, orders 1 and 2.

        Below the mean it is the moment around ``x`` less that of the other side, ``E[(x - X)_+]`` added for order 1.
        """
        gap = self.mean - (x - self.offset)
        found = self._smaller(x, gap <= 0, order + 1).exp()
        if order == 1:
            below, whole = gap + found, gap
        else:
            whole = self.variance + gap.square()
            below, found = whole - 2 * found, 2 * found
        return torch.where(x <= self.offset, whole, torch.where(gap <= 0, found, below)).log()

    def tail_parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log of ``P(X > x)`` at points ``(k, n)``, and ``E[X_j | X > x]`` without the offset, ``(k, n, D)``."""
        means = self.column_means.expand(*x.shape, -1).clone()
        inside, law = self._rows(x)
        _, parts = sums.log_tail_parts((x - self.offset)[inside], law, *self[:3])
        means[inside] = parts
        return self.log_sf(x), means

    def _rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Points inside the support of a law that is no atom, and the laws they belong to."""
        inside = (x > self.offset) & (x < math.inf) & (self.zero < 1).any(-1)
        return inside, torch.arange(x.shape[1]).expand(x.shape)[inside]

    def _inside(self, x: Tensor, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """A function of points without the offset and of laws, where there is something to invert."""
        values = torch.full(x.shape, -math.inf, dtype=torch.float64)
        inside, law = self._rows(x)
        values[inside] = function((x - self.offset)[inside], law)
        return values

    def _density(self, x: Tensor, law: Tensor) -> Tensor:
        """Log density by its own inversion; by the slope of the smaller tail where that has no path."""
        found = sums.log_inverse(0, 0, x, law, *self[:3])
        none = found.isnan()
        if bool(none.any()):
            at, of = x[none], law[none]
            above = at >= self.mean[of]
            ends = [self._tail(at * (1 + side * SLOPE_STEP), of, above).exp() for side in (-1, 1)]
            found[none] = ((ends[1] - ends[0]).abs() / (2 * SLOPE_STEP * at)).log()
        return found

    def _tail(self, x: Tensor, law: Tensor, above: Tensor) -> Tensor:
        """Log of ``P(X > x)`` where ``above``, of ``P(X <= x)`` elsewhere."""
        return torch.where(above, self._inverse(1, 0, x, law), self._inverse(0, 1, x, law))

    def _inverse(self, order: int, power: int, x: Tensor, law: Tensor) -> Tensor:
        found = sums.log_inverse(order, power, x, law, *self[:3])
        require_found(found, x)
        return found

    def _smaller(self, x: Tensor, above: Tensor, order: int) -> Tensor:
        """Log of ``E[(X - x)_+^k] / k!``, ``k = order - 1``, where ``above``, of ``E[(x - X)_+^k] / k!`` elsewhere.

        Of a sum that is an atom both are ``-inf``: whether it is above its mean, 0, the two sides see to.
        """
        values = torch.full(x.shape, -math.inf, dtype=torch.float64)
        inside, law = self._rows(x)
        at, upper = (x - self.offset)[inside], above[inside]
        found = torch.empty_like(at)
        found[upper] = self._inverse(order, 0, at[upper], law[upper])
        found[~upper] = self._inverse(0, order, at[~upper], law[~upper])
        values[inside] = found
        return values


class MixedSum(NamedTuple):
    """A sum some of whose columns have both an atom at zero and an origin: a mixture over which of these occur.

    parts: One sum for every set of them, with the log of its probability, shape ``(n,)``.
    origins: For every part what the origins add to each column, shape ``(D,)``.
    """

    parts: Sequence[tuple[Tensor, ChainSum | SignedSum]]
    origins: Sequence[Tensor]

    @classmethod
    def of(
        cls, law: Callable[[Tensor, float], ChainSum | SignedSum], zero: Tensor, origin: Tensor, has_atom: Tensor
    ) -> "MixedSum":
        """From weighted columns.

        Args:
            law: Their sum, from chances of zeros ``(n, D)`` and what is added.
            zero: Chances of a zero, shape ``(n, D)``.
            origin: Their origins, shape ``(D,)``.
            has_atom: Whether a column has an atom at zero, shape ``(D,)``.
        """
        mixed = (has_atom & (origin != 0)).nonzero()[:, 0].tolist()
        parts, origins = [], []
        for occurs in product((False, True), repeat=len(mixed)):
            own, log_chance, added = zero.clone(), torch.zeros(len(zero), dtype=torch.float64), origin.clone()
            for j, yes in zip(mixed, occurs, strict=True):
                log_chance = log_chance + (torch.log1p(-zero[:, j]) if yes else zero[:, j].log())
                own[:, j] = 0.0 if yes else 1.0
                added[j] = origin[j] if yes else 0.0
            parts.append((log_chance, law(own, float(added.sum()))))
            origins.append(added)
        return cls(parts, origins)

    def mixed(self, log_function: Callable[[ChainSum | SignedSum], Tensor]) -> Tensor:
        """Log of the mean of a function over the mixture."""
        return torch.logsumexp(torch.stack([weight + log_function(law) for weight, law in self.parts]), 0)

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        """First and second moment, shape ``(n,)`` each."""
        means = [law.mean + law.offset for _, law in self.parts]
        squares = [law.variance + mean.square() for (_, law), mean in zip(self.parts, means, strict=True)]
        weights = [weight.exp() for weight, _ in self.parts]
        first, second = (
            torch.stack([w * value for w, value in zip(weights, values, strict=True)]).sum(0)
            for values in (means, squares)
        )
        return first, second

    def tail_parts(self, x: Tensor) -> Tensor:
        """``E[X_j; X > x]`` of every column with its origin, at points ``(k, n)``, shape ``(k, n, D)``."""
        total = torch.zeros(*x.shape, len(self.origins[0]), dtype=torch.float64)
        for (weight, law), origin in zip(self.parts, self.origins, strict=True):
            log_survival, means = law.tail_parts(x)
            total += (weight + log_survival).exp()[..., None] * (means + origin)
        return total


class ChainSumLaw(IntegratedLaw):
    """``S(x) = Σ_n w_n S(x | z_n)`` for ``X = Σ_j weight_j X_j``, in every replicate.

    Args:
        vae: Model in double precision, its columns chains given the latent vector.
        columns: Positions of the columns.
        weights: Their weights, positive.
        proposal: Law the points are drawn from.
        n: Points per replicate, a power of two.
    """

    def __init__(self, vae: VAE, columns: Sequence[int], weights: Sequence[float], proposal: Proposal, n: int) -> None:
        self.vae, self.columns, self.weights, self.proposal, self.n = vae, list(columns), list(weights), proposal, n
        origin = torch.tensor(weights, dtype=torch.float64) * vae.decoder.origin[self.columns]
        atom = vae.decoder.has_atom[self.columns]
        # without a column that is always there the sum has an atom, and begins with the least of its columns
        self.lower = float(origin.min()) if bool(atom.all()) else float(origin[~atom].sum())
        if bool((vae.decoder.lower[self.columns] == -math.inf).any()):
            self.lower = -math.inf
        points = proposal.points(n)
        self.points, self.log_weight = points.z, points.log_weight
        self.replicates = len(points.z)

    def coarse(self) -> "IntegratedLaw":
        """The law from the first of the points."""
        n = self.n // COARSE
        if n < FEWEST or not self.vae.latent_dim:
            return self
        return ChainSumLaw(self.vae, self.columns, self.weights, self.proposal, n)

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density."""
        return self._integral(lambda law, x: law.mixed(lambda part: part.log_pdf(x)), x)

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)``."""
        return self._integral(lambda law, x: law.mixed(lambda part: part.log_sf(x)), x)

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)``."""
        return self._integral(lambda law, x: law.mixed(lambda part: part.log_cdf(x)), x)

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` for orders 1 and 2."""
        return self._integral(lambda law, x: law.mixed(lambda part: part.log_excess(x, order)), x)

    def tail_parts(self, x: Tensor) -> Tensor:
        """``E[weight_j X_j; X > x]`` of every column, shape ``(R, k, D)``; they add up to ``E[X; X > x]``."""
        x = x.double().expand(self.replicates, x.shape[-1])
        total = torch.zeros(*x.shape, len(self.columns), dtype=torch.float64)
        for r, n, law in self._pieces():
            parts = law.tail_parts(x[r][:, None].expand(x.shape[1], self.points[r, n].shape[0]))
            total[r] += torch.einsum("n,knj->kj", self.log_weight[r, n].exp(), parts)
        return total

    @cached_property
    def mean(self) -> Tensor:
        """Expected value, shape ``(R,)``."""
        return self._moments[0]

    @cached_property
    def variance(self) -> Tensor:
        """Variance, shape ``(R,)``."""
        first, second = self._moments
        return second - first.square()

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        first, second = (torch.zeros(self.replicates, dtype=torch.float64) for _ in range(2))
        for r, n, law in self._pieces():
            weight = self.log_weight[r, n].exp()
            one, two = law.moments
            first[r] += (weight * one).sum()
            second[r] += (weight * two).sum()
        return first, second

    def _integral(self, log_function: Callable[[MixedSum, Tensor], Tensor], x: Tensor) -> Tensor:
        x = x.double().expand(self.replicates, x.shape[-1])
        total = torch.full(x.shape, -math.inf, dtype=torch.float64)
        for r, n, law in self._pieces():
            log_weight = self.log_weight[r, n]
            values = log_function(law, x[r][:, None].expand(x.shape[1], len(log_weight)))
            total[r] = torch.logaddexp(total[r], torch.logsumexp(values + log_weight, -1))
        return total

    def _pieces(self) -> Any:
        """Replicate, slice of points and laws at these, as many at once as memory allows."""
        for r in range(self.replicates):
            for first in range(0, self.points.shape[1], POINTS_AT_ONCE):
                n = slice(first, min(first + POINTS_AT_ONCE, self.points.shape[1]))
                yield r, n, sum_given(self.vae, self.columns, self.weights, self.points[r, n])


def sum_given(vae: VAE, columns: Sequence[int], weights: Sequence[float], z: Tensor) -> MixedSum:
    """The weighted sum of columns given latent points ``(n, latent_dim)``."""
    with torch.no_grad():
        law: Any = vae.decoder(z).base_dist
    places, unit = list(columns), torch.tensor(weights, dtype=torch.float64)
    zero = torch.zeros(len(z), len(places), dtype=torch.float64)
    if isinstance(law, ZeroAtom):
        zero, law = law.log_zero[:, places].exp(), law.law
    origin, has_atom = unit * vae.decoder.origin[places], vae.decoder.has_atom[places]
    two = law if isinstance(law, TwoSided) else None
    chain: Any = law.base if two is None else two.gain.base  # type: ignore[union-attr]
    assert isinstance(chain, SeriesPhaseType)
    initial, rates = chain.initial[:, places], chain.rates[:, places] / unit[:, None]
    if two is None or not bool(two.has_losses[:, places].any()):
        return MixedSum.of(lambda own, offset: ChainSum(initial, rates, own, offset), zero, origin, has_atom)
    loss = two.loss
    assert isinstance(loss, SeriesPhaseType)
    starts = torch.stack((initial, loss.initial[:, places]), 1)
    speeds = torch.stack((rates, loss.rates[:, places] / unit[:, None]), 1)
    sides = torch.stack((two.log_gain, two.log_loss), 1)[..., places].exp()
    return MixedSum.of(lambda own, offset: SignedSum(starts, speeds, sides, own, offset), zero, origin, has_atom)
