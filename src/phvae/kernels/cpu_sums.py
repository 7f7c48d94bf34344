"""Tails of a sum of independent chains from the product of their transforms, on a path through its saddle (Numba).

A chain that enters at phase i with weight ``a_i`` has the transform ``Σ a_i P_i(s)``, where ``P_i`` is the product of
``λ_k / (s + λ_k)`` for ``k >= i``. With ``a`` its start law this is that of the density; with ``cumsum(a) / λ`` that of
the survival function, and so on for the stop-loss moments ``E[(X - x)_+^k] / k!``. For a sum these transforms, ``E_0,
E_1, ...``, and the moments ``h_k = E[X^k] / k!`` follow column by column from positive terms,

    E_k(X + Y) = E_k(X) E_0(Y) + Σ_{i<k} h_i(X) E_{k-i}(Y).

Below the mean ``E_0(s) / s^(k+1)`` gives ``E[(x - X)_+^k] / k!`` instead. Each is inverted on ``c + iv - κ v²``, where
``c`` is the saddle on the real axis: there the integrand is largest, and the sum cancels little however far out ``x``
is. ``κ`` begins with that of steepest descent and shrinks where the integrand would grow; the trapezoidal rule, whose
error shrinks geometrically, is refined until two interleaved sums agree.
"""

import math
from typing import Any

import numba
import numpy as np

__all__ = ["ORDERS", "contour_rows"]

# Transforms E_0 ... E_3.
ORDERS = 4
# Relative accuracy that two interleaved sums must reach each; their mean has about its square.
AGREE = 1e-5
# First step, in widths of the saddle; most halvings; most nodes of one sum; terms below this share end a sum.
STEP, HALVINGS, NODES, SMALL = 0.6, 4, 3000, 1e-12
# Bends that are tried, each a quarter of the one before; a path is left where the integrand grows so much.
BENDS, GROWN = 7, 3.0
# Products beyond these sizes are rescaled.
LARGE = 1e100
# Step of the differences that the saddle is found with, in the logarithm of the distance from the pole.
APART = 0.02

_jit: Any = numba.njit(nogil=True, cache=True, error_model="numpy")


@_jit
def _prepare(order: int, start: Any, rates: Any, zero: Any, weight: Any, moment: Any) -> float:
    """Entry weights of every order and moments of every column; the slowest rate there is."""
    columns, phases = rates.shape
    slowest = math.inf
    for j in range(columns):
        for i in range(phases):
            weight[0, j, i] = (1.0 - zero[j]) * start[j, i]
        moment[0, j] = 1.0
        for k in range(1, order + 1):
            passed, total = 0.0, 0.0
            for i in range(phases):
                passed += weight[k - 1, j, i]
                weight[k, j, i] = passed / rates[j, i]
                total += weight[k, j, i]
            moment[k, j] = total
        if zero[j] < 1.0 and rates[j, 0] < slowest:
            slowest = rates[j, 0]
    return slowest


@_jit
def _on_axis(
    order: int, delta: float, slowest: float, rates: Any, zero: Any, weight: Any, moment: Any,
    entry: Any, carry: Any, work: Any, highest: int,
) -> float:  # fmt: skip
    """Log of ``E_order`` at the real point ``s = delta - slowest``.

    Fills, up to order ``highest`` and in units of each column's own scale, ``entry[k, j, i] = a_i P_i(s)``, the zero in
    ``entry[k, j, phases]``, ``carry[k, j]``, the moments of the columns before ``j``, and the unit of scale itself.
    """
    columns, phases = rates.shape
    # far to the right a transform of order 0 is tiny and the others are not: only there nothing needs a scale
    scaled = highest == 0 or delta < slowest
    before, after, total, own = work[0], work[1], work[2], work[3]
    before[:] = 0.0
    before[0] = 1.0
    total[:] = 0.0
    total[0] = 1.0
    log_scale = 0.0
    for j in range(columns):
        product, log_product = 1.0, 0.0
        own[:] = 0.0
        for i in range(phases - 1, -1, -1):
            if zero[j] == 1.0:
                product = 0.0
            else:
                product *= rates[j, i] / (delta + (rates[j, i] - slowest))
            for k in range(highest + 1):
                entry[k, j, i] = weight[k, j, i] * product
                own[k] += entry[k, j, i]
            # beside an atom a tiny product may vanish
            if product > LARGE or (product < 1.0 / LARGE and zero[j] == 0.0):
                log_product += math.log(product)
                for k in range(highest + 1):
                    own[k] /= product
                    for n in range(i, phases):
                        entry[k, j, n] /= product
                product = 1.0
        atom = zero[j] * math.exp(-log_product)
        own[0] += atom
        scale, log_own = math.exp(log_product), 0.0
        if scaled:
            scale, log_own = 1.0 / own[0], math.log(own[0]) + log_product
        for k in range(highest + 1):
            own[k] *= scale
            entry[k, j, phases] = 0.0
            for i in range(phases):
                entry[k, j, i] *= scale
            carry[k, j] = before[k] * math.exp(-log_scale)
        carry[ORDERS, j] = math.exp(-log_own)
        entry[0, j, phases] = atom * scale
        for k in range(highest, -1, -1):
            value, fresh = total[k] * own[0], before[k]
            for i in range(k):
                value += carry[i, j] * own[k - i]
                fresh += before[i] * moment[k - i, j]
            total[k], after[k] = value, fresh
        before[:] = after
        log_scale += log_own
    return math.log(total[order]) + log_scale


@_jit
def _height(
    u: float, order: int, power: int, x: float, slowest: float, rates: Any, zero: Any, weight: Any, moment: Any,
    entry: Any, carry: Any, work: Any, highest: int,
) -> float:  # fmt: skip
    """Log of the integrand on the real axis, ``exp(u)`` from its first singularity: zero with a power, or a pole."""
    gap = math.exp(u)
    delta = gap + slowest if power else gap
    place = gap if power else gap - slowest
    value: float = _on_axis(order, delta, slowest, rates, zero, weight, moment, entry, carry, work, highest)
    return value + place * x - (power * u if power else 0.0)


@_jit
def _node(
    v: float, curve: float, order: int, power: int, x: float, delta: float, c: float, slowest: float,
    rates: Any, entry: Any, carry: Any, moment: Any, share: Any, path: Any, found: Any,
) -> tuple[float, float]:  # fmt: skip
    """Integrand at a node in units of that on the real axis, times the slope of the path: real part and size.

    With room in ``share`` also that of the integrals that give the columns' parts of the tail: with ``E_0`` and ``E_1``
    of all other columns, ``h_1`` of the own one and ``-E_1'`` its derivative, ``E_0 (E_2 - E_1') + h_1 E_1``.
    """
    columns, phases = rates.shape
    down = curve * v * v
    real, imaginary = delta - down, v
    wanted = share.shape[0] > 0
    highest = 2 if wanted else order
    own, total = path[4], path[5]
    total[0] = complex(1.0, 0.0)
    for k in range(1, highest + 1):
        total[k] = complex(0.0, 0.0)
    for j in range(columns):
        p, reach, slope = complex(1.0, 0.0), complex(0.0, 0.0), complex(0.0, 0.0)
        for k in range(highest + 1):
            own[k] = complex(entry[k, j, phases], 0.0)
        for i in range(phases - 1, -1, -1):
            gap = rates[j, i] - slowest
            above = real + gap
            inverse = 1.0 / (above * above + imaginary * imaginary)
            q = complex(above * inverse, -imaginary * inverse)
            p *= (delta + gap) * q
            for k in range(highest + 1):
                own[k] += entry[k, j, i] * p
            if wanted:
                reach += q
                slope += entry[1, j, i] * p * reach
        if wanted:
            found[0, j], found[1, j], found[2, j] = own[0], own[1], own[2] + slope
        for k in range(order, -1, -1):
            value = total[k] * own[0]
            for i in range(k):
                value += carry[i, j] * own[k - i]
            total[k] = value
    outside = complex(math.cos(v * x), math.sin(v * x)) * math.exp(-down * x) * complex(1.0, 2.0 * curve * v)
    if power:
        ratio = c / complex(c - down, v)
        for _ in range(power):
            outside *= ratio
    for j in range(share.shape[0]):
        zeroth, first, faded = complex(1.0, 0.0), complex(0.0, 0.0), 1.0
        for n in range(columns):
            if n != j:
                first = first * found[0, n] + faded * found[1, n]
                zeroth *= found[0, n]
                faded *= carry[ORDERS, n]
        share[j] = (outside * (zeroth * found[2, j] + moment[1, j] * carry[ORDERS, j] * first)).real
    result = outside * total[order]
    return result.real, abs(result)


@_jit
def _sum(
    curve: float, width: float, order: int, power: int, x: float, delta: float, c: float, slowest: float,
    rates: Any, entry: Any, carry: Any, moment: Any, share: Any, path: Any, found: Any, shares: Any,
) -> tuple[float, bool]:  # fmt: skip
    """Integral over the path in units of the integrand on the real axis, and whether it has converged."""
    wanted = share.shape[0]
    middle, _ = _node(0.0, curve, order, power, x, delta, c, slowest, rates, entry, carry, moment, share, path, found)
    total, step = 0.5 * middle, STEP * width
    for j in range(wanted):
        shares[j] = 0.5 * share[j]
    # first the whole steps, then the points between those there are
    for halving in range(HALVINGS + 1):
        fresh, quiet, shift = 0.0, 0, 1.0 if halving == 0 else 0.5
        for n in range(NODES):
            term, size = _node(
                (n + shift) * step, curve, order, power, x, delta, c, slowest,
                rates, entry, carry, moment, share, path, found,
            )  # fmt: skip
            if not size < GROWN * abs(middle):
                return math.nan, False
            fresh += term
            for j in range(wanted):
                shares[j] += share[j]
            quiet = quiet + 1 if size < SMALL * abs(total + fresh) else 0
            if quiet == 3:
                break
        if quiet < 3:
            return math.nan, False
        gap = abs(fresh - total)
        total += fresh
        if halving > 0:
            step *= 0.5
            if total > 0.0 and gap <= AGREE * total:
                for j in range(wanted):
                    shares[j] /= total
                return total / middle * step / math.pi, True
    return total / middle * step / math.pi, False


@_jit
def _row(
    order: int, power: int, x: float, start: Any, rates: Any, zero: Any, shares: Any,
    weight: Any, moment: Any, entry: Any, carry: Any, work: Any, share: Any, path: Any, found: Any,
) -> float:  # fmt: skip
    """Log of one integral, and the shares of the columns in it where there is room for them."""
    highest = 2 if share.shape[0] > 0 else order
    slowest: float = _prepare(highest, start, rates, zero, weight, moment)
    # nearer to the first singularity the integrand on the axis would gain less than a factor e
    lowest = -math.log(x)
    u, low, high, stride = lowest, lowest, math.inf, 1.0
    slope, bend, at = 0.0, 0.0, np.empty(5)
    for _ in range(60):
        for n in range(1, 4):
            at[n] = _height(
                u + (n - 2) * APART, order, power, x, slowest, rates, zero, weight, moment, entry, carry, work, highest
            )
        slope = (at[3] - at[1]) / (2.0 * APART)
        bend = (at[3] - 2.0 * at[2] + at[1]) / APART**2
        if slope > 0.0:
            high = u
        else:
            low = u
        if high == lowest:
            break
        curved = bend if bend > 0.0 else 0.0
        moved = u - slope / curved if curved > 0.0 else u + stride
        if not (moved > low and moved < high and abs(moved - u) <= 3.0):
            moved = u + stride if high == math.inf else 0.5 * (low + high)
            stride *= 1.5
        done = abs(moved - u) < 0.02
        if done:
            break
        u = moved
    for n in range(0, 5, 4):
        at[n] = _height(
            u + (n - 2) * APART, order, power, x, slowest, rates, zero, weight, moment, entry, carry, work, highest
        )
    third = (at[4] - 2.0 * at[3] + 2.0 * at[1] - at[0]) / (2.0 * APART**3)
    gap = math.exp(u)
    delta = gap + slowest if power else gap
    c = gap if power else gap - slowest
    height: float = _height(u, order, power, x, slowest, rates, zero, weight, moment, entry, carry, work, highest)
    second = (bend - slope) / (gap * gap)
    width = min(1.0 / math.sqrt(second) if second > 0.0 else gap, gap)
    # steepest descent bends by a sixth of the third derivative over the second
    curve = -(third - 3.0 * bend + 2.0 * slope) / gap**3 * width * width / 6.0
    curve = min(max(curve, 0.05 / (width * width * x)), 0.5 / gap)
    value = math.nan
    for _ in range(BENDS):
        value, converged = _sum(
            curve, width, order, power, x, delta, c, slowest,
            rates, entry, carry, moment, share, path, found, shares,
        )  # fmt: skip
        if converged:
            break
        curve *= 0.25
    return math.log(value) + height


@_jit
def contour_rows(
    order: int, power: int, x: Any, law: Any, start: Any, rates: Any, zero: Any, begin: int, end: int,
    value: Any, shares: Any,
) -> None:  # fmt: skip
    """Fill ``value[begin:end]`` with logs and, where it has columns, ``shares[begin:end]`` with the columns' parts."""
    columns, phases = rates.shape[1], rates.shape[2]
    weight = np.empty((ORDERS, columns, phases))
    moment = np.empty((ORDERS, columns))
    entry = np.empty((ORDERS, columns, phases + 1))
    carry = np.empty((ORDERS + 1, columns))
    work = np.empty((4, ORDERS))
    share = np.empty(shares.shape[1])
    path = np.empty((6, ORDERS), dtype=np.complex128)
    found = np.empty((3, columns), dtype=np.complex128)
    for r in range(begin, end):
        p = law[r]
        value[r] = _row(
            order, power, x[r], start[p], rates[p], zero[p], shares[r],
            weight, moment, entry, carry, work, share, path, found,
        )  # fmt: skip
