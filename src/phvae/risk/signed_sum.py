"""The law of a sum of independent two-sided chains: both tails by transforms, each on its own side of zero."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from phvae.kernels import sums

__all__ = ["SignedSum", "from_each_phase", "log_rest", "require_found"]

# Right of a jump the density at zero is that at this share of the typical size: no digit of it differs.
BESIDE = 1e-30


class SignedSum(NamedTuple):
    """Laws of ``offset + Σ_j X_j`` for independent ``X_j``, each zero, a gain or minus a loss, a batch of ``n``.

    initial: Start probabilities of gains and of losses, shape ``(n, 2, D, m)``.
    rates: Rates, shape ``(n, 2, D, m)``.
    sides: Chances of a gain and of a loss among what is no zero, shape ``(n, 2, D)``.
    zero: Chances of a zero, shape ``(n, D)``.
    offset: What is added, a number.
    """

    initial: Tensor
    rates: Tensor
    sides: Tensor
    zero: Tensor
    offset: float

    @property
    def share(self) -> Tensor:
        """Chances of a gain and of a loss, shape ``(n, 2, D)``."""
        return self.sides * (1 - self.zero)[:, None]

    @property
    def column_means(self) -> Tensor:
        """Mean of every column, shape ``(n, D)``."""
        return self._moment(self._times)[:, 0] - self._moment(self._times)[:, 1]

    @property
    def mean(self) -> Tensor:
        """Mean of the sum without its offset, shape ``(n,)``."""
        return self.column_means.sum(-1)

    @property
    def variance(self) -> Tensor:
        """Variance of the sum, shape ``(n,)``."""
        squares = self._moment(from_each_phase(self.rates**-2) + self._times.square())
        return (squares.sum(1) - self.column_means.square()).sum(-1)

    @property
    def log_atom(self) -> Tensor:
        """Log of the chance that all columns are zero, shape ``(n,)``."""
        return self.zero.log().sum(-1)

    def log_pdf(self, x: Tensor) -> Tensor:
        """Log density at points ``(k, n)``; where it jumps its limit from above."""
        y, typical = x - self.offset, self.variance.sqrt()
        y = torch.where(y == 0, BESIDE * typical, y)
        return self._smaller(y, 0, y >= self.mean)

    def log_sf(self, x: Tensor) -> Tensor:
        """Log of ``P(X > x)`` at points ``(k, n)``."""
        y = x - self.offset
        above = y >= self.mean
        found = self._smaller(y, 1, above)
        return torch.where(above, found, log_rest(found))

    def log_cdf(self, x: Tensor) -> Tensor:
        """Log of ``P(X <= x)`` at points ``(k, n)``."""
        y = x - self.offset
        above = y >= self.mean
        found = self._smaller(y, 1, above)
        return torch.where(above, log_rest(found), found)

    def log_excess(self, x: Tensor, order: int = 1) -> Tensor:
        """Log of ``E[(X - x)_+^order]`` at points ``(k, n)``, orders 1 and 2.

        Below the mean it is the moment around ``x`` less that of the other side, ``E[(x - X)_+]`` added for order 1.
        """
        y = x - self.offset
        gap = self.mean - y
        found = self._smaller(y, order + 1, gap <= 0).exp()
        if order == 1:
            below = gap + found
        else:
            below, found = self.variance + gap.square() - 2 * found, 2 * found
        return torch.where(gap <= 0, found, below).log()

    def tail_parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log of ``P(X > x)`` at points ``(k, n)``, and ``E[X_j | X > x]`` without the offset, ``(k, n, D)``."""
        y = x - self.offset
        means = self.column_means.expand(*y.shape, -1).clone()
        inside, law = _finite(y)
        at, of = y[inside], law[inside]
        below = at < 0
        log_beyond, parts = sums.log_signed_tail_parts(
            at.abs(), torch.where(below, of + len(self.zero), of), *self._both
        )
        # what is left of the whole mean when the worst part, whose values have the other sign, is taken out
        beyond = log_beyond.exp()[:, None] * parts
        log_survival = self.log_sf(x)
        rest = (self.column_means[of] + beyond) / log_survival[inside].exp()[:, None]
        means[inside] = torch.where(below[:, None], rest, parts)
        return log_survival, means

    @property
    def _times(self) -> Tensor:
        return from_each_phase(1 / self.rates)

    def _moment(self, of_phase: Tensor) -> Tensor:
        """Chance of a side times the mean of what it has from each phase on, shape ``(n, 2, D)``."""
        return self.share * (self.initial * of_phase).sum(-1)

    @property
    def _both(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Parameters of the laws, and behind them of their mirror images."""
        parts = (self.initial, self.rates, self.share)
        initial, rates, share = (torch.cat((part, part.flip(1))) for part in parts)
        return initial, rates, share, torch.cat((self.zero, self.zero))

    def _smaller(self, y: Tensor, order: int, upper: Tensor) -> Tensor:
        """Log of ``E[(X - y)_+^k] / k!``, ``k = order - 1``, where ``upper``, of ``E[(y - X)_+^k] / k!`` elsewhere.

        The transform is inverted at ``|y|``, for the law or its mirror image. With order 0 it is the density.
        """
        values = torch.full(y.shape, -math.inf, dtype=torch.float64)
        inside, law = _finite(y)
        at, of, rises = y[inside], law[inside], upper[inside]
        turned = at < 0
        found, both = torch.empty_like(at), self._both
        # the upper tail of minus the sum is its lower one
        falls = rises == turned
        for lower in (False, True):
            asked = falls == lower
            place = torch.where(turned, of + len(self.zero), of)[asked]
            found[asked] = sums.log_signed_inverse(order, lower, at[asked].abs(), place, *both)
        if order:
            power = order - 1
            atom = self.log_atom[of] + power * at.abs().log() - math.lgamma(power + 1) if power else self.log_atom[of]
            found = torch.where(falls, torch.logaddexp(found, atom), found)
        require_found(found, at)
        values[inside] = found
        return values


def _finite(y: Tensor) -> tuple[Tensor, Tensor]:
    """Points that are numbers, and the laws they belong to."""
    return y.isfinite(), torch.arange(y.shape[1]).expand(y.shape)


def require_found(found: Tensor, x: Tensor) -> None:
    """Refuse a point where no path through the transform has served."""
    if bool(found.isnan().any()):
        # one column as good as fixed beside another of a far larger scale: no path serves both
        raise ValueError(
            f"the sum at {float(x[found.isnan()][0]):g}: its transform given one latent point could not be "
            'inverted; ask with splice="gpd", for which columns are drawn, or about fewer columns'
        )


def log_rest(log_share: Tensor) -> Tensor:
    """``log(1 - exp(log_share))``; ``-inf`` where rounding has left a little more than one."""
    return torch.where(log_share < 0, torch.log(-torch.expm1(log_share)), -math.inf)


def from_each_phase(value: Tensor) -> Tensor:
    """Sums from each phase to the last."""
    return value.flip(-1).cumsum(-1).flip(-1)
