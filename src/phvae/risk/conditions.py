"""Conditions on columns: their probability given a latent point, and draws that meet them exactly."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phvae.distributions.tails import TailedLaw
from phvae.risk.questions import place
from phvae.vae import VAE

__all__ = ["Range", "log_chance", "read_conditions"]

# Latent points whose laws are evaluated in one go.
POINTS_AT_ONCE = 2**16


class Range(NamedTuple):
    """The event ``low < X <= high`` of one column."""

    column: int
    low: float
    high: float

    def of_count(self) -> "Range":
        """The same event of a count, in terms of the value that is rounded to it.

        >>> Range(0, 5.0, math.inf).of_count(), Range(0, -math.inf, 2.0).of_count()
        (Range(column=0, low=5.5, high=inf), Range(column=0, low=-inf, high=1.5))
        """
        if self.low == -math.inf:
            return self._replace(high=math.ceil(self.high) - 0.5)
        high = self.high if self.high == math.inf else math.floor(self.high) + 0.5
        return self._replace(low=math.floor(self.low) + 0.5, high=high)

    def log_probability(self, law: TailedLaw) -> Tensor:
        """Log of its probability under every law of a batch."""
        if self.low == -math.inf:
            return law.log_cdf(self.high)
        survival = law.log_sf(self.low)
        if self.high == math.inf:
            return survival
        # the smaller of the two tails keeps the digits of a difference
        below = law.log_cdf(self.high)
        upper = log_difference(survival, law.log_sf(self.high))
        return torch.where(survival < below, upper, log_difference(below, law.log_cdf(self.low)))

    def draw(self, law: TailedLaw, uniform: Tensor) -> Tensor:
        """Draws of the law given the event: its inverse at uniform levels between those of the ends."""
        survival = law.log_sf(self.low).exp() if self.low > -math.inf else torch.ones_like(uniform)
        rest = law.log_sf(self.high).exp() if self.high < math.inf else torch.zeros_like(uniform)
        below = law.log_cdf(self.low).exp() if self.low > -math.inf else torch.zeros_like(uniform)
        above = law.log_cdf(self.high).exp() if self.high < math.inf else torch.ones_like(uniform)
        upper = survival < above
        level = torch.where(upper, rest + uniform * (survival - rest), below + uniform * (above - below))
        x = torch.where(upper, law.isf(torch.where(upper, level, 0.5)), law.icdf(torch.where(upper, 0.5, level)))
        # the inversion's last digits must not carry a draw over an end that it is close to
        return self.within(x)

    def within(self, x: Tensor) -> Tensor:
        """Points moved to the nearest one in the range."""
        first = torch.nextafter(torch.tensor(self.low, dtype=x.dtype), torch.tensor(math.inf, dtype=x.dtype))
        return torch.minimum(torch.maximum(x, first), torch.tensor(self.high, dtype=x.dtype))


def read_conditions(given: Any, names: Sequence[Any], lower: Sequence[float], atoms: Sequence[bool]) -> list[Range]:
    """Conditions as people write them: ``{"a": (">", 5), "b": ("<", 2), "c": ("between", 1, 3)}``.

    Args:
        given: A dict from column to condition.
        names: Names of the columns.
        lower: Their lower ends.
        atoms: Whether they have an atom at zero.

    >>> read_conditions({"b": ("between", 1, 3)}, ["a", "b"], [0.0, 0.0], [False, False])
    [Range(column=1, low=1.0, high=3.0)]
    """
    if not isinstance(given, Mapping) or not given:
        raise ValueError(f'given = {given!r:.80}; give a dict of conditions, such as {{{names[0]!r}: (">", 100)}}')
    ranges: list[Range] = []
    for column, condition in given.items():
        position = place(column, names, "given")
        found = _range(column, position, condition)
        if any(position == other.column for other in ranges):
            raise ValueError(f"given has two conditions on column {names[position]!r}; write one, such as between")
        least = min(0.0, lower[position]) if atoms[position] else lower[position]
        if found.high <= least:
            raise ValueError(
                f"given[{column!r}] = {condition!r} is impossible: the column is never below {least:g}; "
                "give a higher bound"
            )
        ranges.append(found)
    return ranges


def _range(column: Any, position: int, condition: Any) -> Range:
    remedy = 'give (">", a), ("<", b) or ("between", a, b)'
    if isinstance(condition, str) or not isinstance(condition, Sequence) or not condition:
        raise ValueError(f"given[{column!r}] = {condition!r:.80}; {remedy}")
    sign, *ends = condition
    wanted = {">": 1, "<": 1, "between": 2}
    if sign not in wanted or len(ends) != wanted[sign]:
        raise ValueError(f"given[{column!r}] = {condition!r:.80}; {remedy}")
    for end in ends:
        # a truth value is a number to Python
        if isinstance(end, bool) or not isinstance(end, Real) or not math.isfinite(end):
            raise ValueError(f"given[{column!r}] = {condition!r:.80}: {end!r:.40} is no finite number; {remedy}")
    if sign == "between" and not ends[0] < ends[1]:
        raise ValueError(f"given[{column!r}] = {condition!r} is impossible: give the smaller end first")
    if sign == ">":
        return Range(position, float(ends[0]), math.inf)
    if sign == "<":
        return Range(position, -math.inf, float(ends[0]))
    return Range(position, float(ends[0]), float(ends[1]))


def log_chance(vae: VAE, ranges: Sequence[Range], z: Tensor) -> Tensor:
    """Log of the probability of all events given latent points ``(n, d)``, shape ``(n,)``."""
    with torch.no_grad():
        parts = []
        for points in z.split(POINTS_AT_ONCE):
            parts.append(
                sum(
                    (event.log_probability(vae.decoder.column(points, event.column))[:, 0] for event in ranges),
                    torch.zeros(len(points), dtype=torch.float64),
                )
            )
        return torch.cat(parts)


def log_difference(larger: Tensor, smaller: Tensor) -> Tensor:
    """``log(exp(larger) - exp(smaller))``; ``-inf`` where nothing is left."""
    return torch.where(smaller < larger, larger + torch.log1p(-torch.exp(smaller - larger)), -math.inf)
