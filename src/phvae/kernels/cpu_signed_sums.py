"""Tails of a sum of independent two-sided chains from the product of their transforms, on a path round the gains.

A column is zero, a gain or minus a loss, each a chain or none, and has the transform ``φ(s) = E[exp(-s X)]`` between
minus the slowest rate of the gains and the slowest rate of the losses. For a sum and ``x >= 0``, on a path that
crosses the real axis at ``c`` and leaves to the left round all gains,

    ∫ φ(s) exp(s x) / (-s)^k ds / 2πi = E[(X - x)_+^(k-1)] / (k-1)!  for c < 0,

and with ``s`` for ``-s`` that of ``(x - X)_+`` for ``c > 0``; ``k = 0`` is the density. The path is the hyperbola
``s = c + w (i sinh t - b (cosh t - 1))`` through the saddle ``c``: steps of ``t`` reach over all magnitudes, so that
neither rates that differ by many of them nor an ``x`` near zero, where only powers of ``s`` decay, take many nodes.

Far out in a heavy tail ``φ`` is nearly its Taylor polynomial at zero on all of the path, and that has no part in the
integral. So ``φ`` may be ``E_r(s) (-s)^r`` instead, with ``E_r`` what is left after ``r`` terms: the ``r`` is taken for
which the integrand is smallest where ``exp(s x)`` begins to decay. ``E_r`` follows as that of non-negative sums, from
transforms of the chains' survival functions, the losses' with signs.
"""

import math
from typing import Any

import numba
import numpy as np

__all__ = ["signed_rows"]

# Transforms E_0 ... E_3.
ORDERS = 4
# Relative accuracy that two interleaved sums must reach each; their mean has about its square. A density may be zero
# between gains and losses: it is known beside the sizes of its terms.
AGREE, FAINT = 1e-7, 1e-11
# First step of t, most halvings, most nodes of one sum; terms below this share of their sizes end it.
STEP, HALVINGS, NODES, SMALL = 0.3, 5, 20000, 1e-13
# Bends that are tried, beside that of the saddle, and the sharpest; how much terms may grow from one to the next, and
# sums of sizes beside the whole with which a path is taken at once.
BENDS, MOST_BENT, GROWN, CANCELLED = (1.0, 3.0, 0.3, 0.1, 0.03), 1.0, 1e9, 1e4
# How near to a pole the path may come, in shares of the distance of the saddle.
NEAR = 0.8
# How closely the saddle is found, in the log odds of its place between two poles, and where it is looked for.
CLOSE, FAR = 0.02, 600.0

_jit: Any = numba.njit(nogil=True, cache=True, error_model="numpy")


@_jit
def _prepare(start: Any, rates: Any, share: Any, weight: Any, moment: Any) -> Any:
    """Entry weights of every order and signed moments of every column; the slowest rate on either side."""
    sides, columns, phases = rates.shape
    slowest = np.full(2, math.inf)
    moment[:] = 0.0
    moment[0] = 1.0
    for side in range(sides):
        sign = 1.0
        for j in range(columns):
            for i in range(phases):
                weight[0, side, j, i] = share[side, j] * start[side, j, i]
            if share[side, j] > 0.0 and rates[side, j, 0] < slowest[side]:
                slowest[side] = rates[side, j, 0]
        for k in range(1, ORDERS):
            sign = -sign if side == 1 else sign
            for j in range(columns):
                passed, total = 0.0, 0.0
                for i in range(phases):
                    passed += weight[k - 1, side, j, i]
                    weight[k, side, j, i] = passed / rates[side, j, i]
                    total += weight[k, side, j, i]
                moment[k, j] += sign * total
    return slowest


@_jit
def _place(u: float, lower: bool, slowest: Any) -> tuple[float, float]:
    """A point on the axis between zero and the first pole of a side, and its distance from that pole."""
    first = slowest[1] if lower else slowest[0]
    if first == math.inf:
        return (math.exp(u) if lower else -math.exp(u)), math.inf
    c = first / (1.0 + math.exp(-u))
    return (c if lower else -c), first / (1.0 + math.exp(u))


@_jit
def _gap(side: int, rate: float, c: float, gap: float, lower: bool, slowest: Any) -> float:
    """``rate + c`` of a gain and ``rate - c`` of a loss, without cancellation."""
    found: float = (rate - slowest[side]) + gap if (side == 1) == lower else rate + abs(c)
    return found


@_jit
def _slopes(
    c: float,
    gap: float,
    order: int,
    x: float,
    lower: bool,
    rates: Any,
    share: Any,
    zero: Any,
    weight: Any,
    slowest: Any,
) -> tuple[float, float, float]:
    """Log of the integrand on the axis and its first two derivatives against ``c``."""
    sides, columns, phases = rates.shape
    value, first, second = c * x - order * math.log(abs(c)), x - order / c, order / (c * c)
    for j in range(columns):
        # in units of the largest product there is
        largest = -math.inf
        for side in range(sides):
            if share[side, j] > 0.0:
                log_product = 0.0
                for i in range(phases - 1, -1, -1):
                    rate = rates[side, j, i]
                    log_product += math.log(rate / _gap(side, rate, c, gap, lower, slowest))
                    if weight[0, side, j, i] > 0.0 and log_product > largest:
                        largest = log_product
        if zero[j] > 0.0 and largest < 0.0:
            largest = 0.0
        total, down, curved = zero[j] * math.exp(-largest), 0.0, 0.0
        for side in range(sides):
            if share[side, j] > 0.0:
                log_product, reach, squares = 0.0, 0.0, 0.0
                sign = -1.0 if side == 0 else 1.0
                for i in range(phases - 1, -1, -1):
                    rate = rates[side, j, i]
                    inverse = 1.0 / _gap(side, rate, c, gap, lower, slowest)
                    log_product += math.log(rate * inverse)
                    reach += inverse
                    squares += inverse * inverse
                    term = weight[0, side, j, i] * math.exp(log_product - largest)
                    total += term
                    down += sign * term * reach
                    curved += term * (reach * reach + squares)
        value += math.log(total) + largest
        first += down / total
        second += curved / total - (down / total) ** 2
    return value, first, second


@_jit
def _tilted(
    c: float, gap: float, lower: bool, rates: Any, share: Any, zero: Any, weight: Any, moment: Any, slowest: Any,
    entry: Any, still: Any, carry: Any,
) -> None:  # fmt: skip
    """Terms of every column's transforms at ``c`` in units of its ``φ``: of chains, of the zero, moments before it."""
    sides, columns, phases = rates.shape
    log_before = 0.0
    before, after = np.zeros(ORDERS), np.zeros(ORDERS)
    before[0] = 1.0
    for j in range(columns):
        logs = np.full((sides, phases), -math.inf)
        largest = 0.0 if zero[j] > 0.0 else -math.inf
        for side in range(sides):
            if share[side, j] > 0.0:
                log_product = 0.0
                for i in range(phases - 1, -1, -1):
                    rate = rates[side, j, i]
                    log_product += math.log(rate / _gap(side, rate, c, gap, lower, slowest))
                    logs[side, i] = log_product
                    if weight[0, side, j, i] > 0.0 and log_product > largest:
                        largest = log_product
        total = zero[j] * math.exp(-largest)
        for side in range(sides):
            for i in range(phases):
                if share[side, j] > 0.0:
                    total += weight[0, side, j, i] * math.exp(logs[side, i] - largest)
        log_own = math.log(total) + largest
        still[j] = zero[j] * math.exp(-log_own)
        for k in range(ORDERS):
            carry[k, j] = before[k] * math.exp(-log_before)
            for side in range(sides):
                sign = -1.0 if side == 1 and k % 2 == 1 else 1.0
                for i in range(phases):
                    entry[k, side, j, i] = 0.0
                    if share[side, j] > 0.0:
                        entry[k, side, j, i] = sign * weight[k, side, j, i] * math.exp(logs[side, i] - log_own)
        carry[ORDERS, j] = math.exp(-log_own)
        for k in range(ORDERS):
            after[k] = 0.0
            for i in range(k + 1):
                after[k] += before[i] * moment[k - i, j]
        before[:] = after
        log_before += log_own


@_jit
def _node(
    t: float, bend: float, width: float, terms: int, order: int, x: float, c: float, gap: float, lower: bool,
    rates: Any, share: Any, slowest: Any, entry: Any, still: Any, carry: Any, moment: Any, parts: Any,
    total: Any, own: Any, found: Any,
) -> tuple[float, float]:  # fmt: skip
    """Integrand after ``terms`` terms at a node, in units of ``|c|^(terms - order) φ(c) exp(c x)``, and its size.

    With room in ``parts`` also that of ``E[X_j; X > x]``: with ``Φ`` the transform of all other columns it is
    ``-φ' Φ / (-s)``, or ``Φ (E_2 - E_1') + h_1 E_1`` after one term.
    """
    sides, columns, phases = rates.shape
    down, v = width * bend * (math.cosh(t) - 1.0), width * math.sinh(t)
    wanted = parts.shape[0] > 0
    highest = 2 if wanted and terms == 1 else terms
    total[:] = 0.0
    total[0] = 1.0
    # the product of all transforms less that of all zeros, without a difference
    rest, zeros = complex(0.0, 0.0), 1.0
    for j in range(columns):
        own[:] = 0.0
        slope = complex(0.0, 0.0)
        for side in range(sides):
            if share[side, j] > 0.0:
                product, reach = complex(1.0, 0.0), complex(0.0, 0.0)
                sign = 1.0 if side == 0 else -1.0
                for i in range(phases - 1, -1, -1):
                    there = _gap(side, rates[side, j, i], c, gap, lower, slowest)
                    inverse = 1.0 / complex(there - sign * down, sign * v)
                    product *= there * inverse
                    for k in range(highest + 1):
                        own[k] += entry[k, side, j, i] * product
                    if wanted:
                        reach += inverse
                        # the derivative of a loss's transform has the other sign
                        slope += entry[1 if terms == 1 else 0, side, j, i] * product * reach * sign
        moving = own[0]
        own[0] += still[j]
        rest = rest * own[0] + zeros * moving
        zeros *= still[j]
        if wanted:
            found[0, j], found[1, j] = own[0], own[1]
            found[2, j] = own[2] + slope if terms == 1 else slope
        for k in range(terms, -1, -1):
            value = total[k] * own[0]
            for i in range(k):
                value += carry[i, j] * own[k - i]
            total[k] = value
    outside = complex(math.cos(v * x), math.sin(v * x)) * math.exp(-down * x)
    outside *= width * complex(math.cosh(t), bend * math.sinh(t))
    ratio = complex(c - down, v) / c
    power = terms - order
    for _ in range(abs(power)):
        outside = outside * ratio if power > 0 else outside / ratio
    for j in range(parts.shape[0]):
        zeroth, first, faded = complex(1.0, 0.0), complex(0.0, 0.0), 1.0
        for n in range(columns):
            if n != j:
                first = first * found[0, n] + faded * found[1, n]
                zeroth *= found[0, n]
                faded *= carry[ORDERS, n]
        value = zeroth * found[2, j]
        if terms == 1:
            value += moment[1, j] * carry[ORDERS, j] * first
        parts[j] = (outside * value).real
    result = outside * (total[terms] if terms > 0 else rest)
    return result.real, abs(result)


@_jit
def _sum(
    bend: float, width: float, terms: int, order: int, x: float, c: float, gap: float, lower: bool,
    rates: Any, share: Any, slowest: Any, entry: Any, still: Any, carry: Any, moment: Any, parts: Any, total: Any,
    own: Any, found: Any, sums: Any,
) -> tuple[float, float]:  # fmt: skip
    """Integral over the path, in the units of a node, and that of the sizes; NaN where it has not converged."""
    middle, size = _node(
        0.0, bend, width, terms, order, x, c, gap, lower,
        rates, share, slowest, entry, still, carry, moment, parts, total, own, found,
    )  # fmt: skip
    whole, sizes, step = 0.5 * middle, 0.5 * size, STEP
    for j in range(parts.shape[0]):
        sums[j] = 0.5 * parts[j]
    for halving in range(HALVINGS + 1):
        fresh, quiet, shift = 0.0, 0, 1.0 if halving == 0 else 0.5
        new_sizes = 0.0
        for n in range(NODES):
            term, size = _node(
                (n + shift) * step, bend, width, terms, order, x, c, gap, lower,
                rates, share, slowest, entry, still, carry, moment, parts, total, own, found,
            )  # fmt: skip
            if not size < GROWN * (sizes + new_sizes):
                return math.nan, math.nan
            fresh += term
            new_sizes += size
            for j in range(parts.shape[0]):
                sums[j] += parts[j]
            quiet = quiet + 1 if size < SMALL * (sizes + new_sizes) else 0
            if quiet == 4:
                break
        if quiet < 4:
            return math.nan, math.nan
        apart = abs(fresh - whole)
        whole += fresh
        sizes += new_sizes
        if halving > 0:
            step *= 0.5
            faint = order == 0 and apart <= FAINT * sizes
            if (whole > 0.0 and apart <= AGREE * whole) or faint:
                for j in range(parts.shape[0]):
                    sums[j] *= step / math.pi
                return max(whole, 0.0) * step / math.pi, sizes * step / math.pi
    return math.nan, math.nan


@_jit
def _row(
    order: int, lower: bool, x: float, start: Any, rates: Any, share: Any, zero: Any,
    weight: Any, moment: Any, entry: Any, still: Any, carry: Any, parts: Any, total: Any, own: Any, found: Any,
    sums: Any, shares: Any,
) -> float:  # fmt: skip
    """Log of one integral; with room for them also what the columns have in it, beside its own size."""
    slowest = _prepare(start, rates, share, weight, moment)
    if slowest[0] == math.inf and not lower:
        return -math.inf
    kept = order if order > 0 else 1
    low, high, u, stride = -FAR, FAR, 0.0, 1.0
    for _ in range(200):
        c, gap = _place(u, lower, slowest)
        _, slope, _ = _slopes(c, gap, kept, x, lower, rates, share, zero, weight, slowest)
        # the slope against c grows with c, which u moves away from zero
        outward = slope < 0.0 if lower else slope > 0.0
        if outward:
            low = u
        else:
            high = u
        if high - low < CLOSE:
            break
        if high == FAR:
            u += stride
            stride *= 2.0
        elif low == -FAR:
            u -= stride
            stride *= 2.0
        else:
            u = 0.5 * (low + high)
        u = min(max(u, -FAR), FAR)
    c, gap = _place(u, lower, slowest)
    height, _, second = _slopes(c, gap, kept, x, lower, rates, share, zero, weight, slowest)
    height += kept * math.log(abs(c))
    room = NEAR * min(gap, abs(c))
    width = min(1.0 / math.sqrt(second), room) if second > 0.0 else room
    # blunt where the saddle is narrow beside its distance from the gains: there the terms are those of a normal law
    steep = width / (NEAR * gap)
    _tilted(c, gap, lower, rates, share, zero, weight, moment, slowest, entry, still, carry)
    log_unit = math.log(abs(c))
    best, least_cancelled = math.nan, math.inf
    for n in range(len(BENDS)):
        bend, terms = min(BENDS[n] * steep, MOST_BENT), 0
        if not lower and x > 0.0:
            # where the exponential begins to decay
            at = math.asinh(max(1.0, 1.0 / (width * x)))
            least = math.inf
            for r in range(2 if parts.shape[0] > 0 else ORDERS):
                _, size = _node(
                    at, bend, width, r, order, x, c, gap, lower,
                    rates, share, slowest, entry, still, carry, moment, parts, total, own, found,
                )  # fmt: skip
                size *= math.exp(r * log_unit)
                if size < least:
                    least, terms = size, r
        value, sizes = _sum(
            bend, width, terms, order, x, c, gap, lower,
            rates, share, slowest, entry, still, carry, moment, parts, total, own, found, sums,
        )  # fmt: skip
        if sizes < least_cancelled * value or (math.isnan(best) and value == 0.0):
            best = math.log(value) + height + (terms - order) * log_unit
            least_cancelled = sizes / value if value > 0.0 else math.inf
            for j in range(parts.shape[0]):
                shares[j] = sums[j] / value
        if least_cancelled < CANCELLED:
            break
    return best


@_jit
def signed_rows(
    order: int, lower: bool, x: Any, law: Any, start: Any, rates: Any, share: Any, zero: Any, begin: int, end: int,
    value: Any, shares: Any,
) -> None:  # fmt: skip
    """Fill ``value[begin:end]`` with logs and, where it has columns, ``shares[begin:end]`` with ``E[X_j | X > x]``."""
    sides, columns, phases = rates.shape[1], rates.shape[2], rates.shape[3]
    weight = np.empty((ORDERS, sides, columns, phases))
    moment = np.empty((ORDERS, columns))
    entry = np.empty((ORDERS, sides, columns, phases))
    still = np.empty(columns)
    carry = np.empty((ORDERS + 1, columns))
    parts, sums = np.empty(shares.shape[1]), np.empty(shares.shape[1])
    total, own = np.empty(ORDERS, dtype=np.complex128), np.empty(ORDERS, dtype=np.complex128)
    found = np.empty((3, columns), dtype=np.complex128)
    for r in range(begin, end):
        p = law[r]
        value[r] = _row(
            order, lower, x[r], start[p], rates[p], share[p], zero[p],
            weight, moment, entry, still, carry, parts, total, own, found, sums, shares[r],
        )  # fmt: skip
