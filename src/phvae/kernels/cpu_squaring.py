r"""Scaling and squaring in non-negative arithmetic, one row at a time (Numba): right everywhere.

With unit time x, slowest rate shifted to zero (delta_k = (rate_k - slowest) x) and each jump rescaled by a similarity
to c_k = max(1, delta_k), the chain is the bidiagonal matrix B = bidiag(-delta_k, c_k). Its row sums are at most one, so
every entry of V = exp(B) is at most e, and T_ij(x) = exp(-slowest x) V_ij prod_{i<=k<j} (rate_k x / c_k) is read off in
logs. V is squared up from a short time; its diagonal is known exactly at every level and is put back, which keeps the
relative error of an entry proportional to (jumps * levels) instead of 2**levels. Nothing is ever subtracted.

The gradient to a rate needs the time spent in a phase, x K_kk, where K(t) = int_0^t exp(B(t-u)) b a exp(Bu) du doubles
as K(2t) = V(t) K(t) + K(t) V(t); its lower triangle is closed under that rule.
"""

import math
from typing import Any

import numba
import numpy as np

from phvae.kernels.quantities import CDF, DENSITY, SURVIVAL

# Below this an entry of V nears the denormal range; its phases are computed again with a shift of their own.
_TINY = 1e-290
_NEGLIGIBLE = -45.0  # log of a share that changes no digit

_jit: Any = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")


@_jit
def _short_time(
    n: int, delta: np.ndarray, jump: np.ndarray, t: float, V: np.ndarray, K: np.ndarray, entry: np.ndarray, exits: int
) -> None:
    """Taylor series of exp(tB) and, where ``exits`` >= 0, of the lower triangle of K(t)."""
    top = 0.0
    for k in range(n):
        top = max(top, delta[k] * t)
    term, fresh = np.zeros((n, n)), np.zeros((n, n))
    row = entry * t
    for i in range(n):
        term[i, i] = 1.0
        for j in range(n):
            V[i, j] = 1.0 if i == j else 0.0
    if exits >= 0:
        for i in range(n):
            for j in range(n):
                fresh[i, j] = 0.0
                K[i, j] = 0.0
        for j in range(exits + 1):
            fresh[exits, j] = row[j]
            K[exits, j] = row[j]
    # an entry d jumps off the diagonal starts at order d; sixteen orders more reach the last bit, as t * B is below 1/2
    for order in range(1, n + 16):
        for i in range(n):
            for j in range(n - 1, i, -1):
                term[i, j] = (term[i, j] * (top - delta[j] * t) + term[i, j - 1] * (jump[j - 1] * t)) / order
                V[i, j] += term[i, j]
            term[i, i] *= (top - delta[i] * t) / order
        if exits >= 0:
            # fresh = sum_j N^j b a N^(order-j) / (order + 1)!, kept below the diagonal
            for j in range(n - 1, 0, -1):
                row[j] = row[j] * (top - delta[j] * t) + row[j - 1] * (jump[j - 1] * t)
            row[0] *= top - delta[0] * t
            for j in range(n):
                row[j] /= order
            for i in range(exits + 1):
                for j in range(i + 1):
                    moved = fresh[i, j] * (top - delta[i] * t)
                    if i + 1 < n:
                        moved += fresh[i + 1, j] * (jump[i] * t)
                    if i == exits:
                        moved += row[j]
                    fresh[i, j] = moved / (order + 1)
                    K[i, j] += fresh[i, j]
    shrink = math.exp(-top)
    for i in range(n):
        for j in range(i + 1, n):
            V[i, j] *= shrink
        V[i, i] = math.exp(-delta[i] * t)
        for j in range(i + 1):
            K[i, j] *= shrink


@_jit
def _double_time(n: int, V: np.ndarray, K: np.ndarray, t: float) -> None:
    """K(2t) = V(t) K(t) + K(t) V(t), lower triangle, in place."""
    row = np.empty(n)
    for i in range(n):
        for j in range(i + 1):
            row[j] = 0.0
        for p in range(i, n):
            v = V[i, p]
            for j in range(i + 1):
                row[j] += v * K[p, j]
        for q in range(i + 1):
            v = K[i, q]
            for j in range(q, i + 1):
                row[j] += v * V[q, j]
        for j in range(i + 1):
            K[i, j] = row[j]


@_jit
def _square(n: int, delta: np.ndarray, V: np.ndarray, t: float) -> None:
    """V(2t) = V(t)^2 in place, with the diagonal exp(-2 t delta) put back exactly."""
    row = np.empty(n)
    for i in range(n):
        for j in range(i, n):
            row[j] = 0.0
        for k in range(i, n):
            v = V[i, k]
            for j in range(k, n):
                row[j] += v * V[k, j]
        for j in range(i, n):
            V[i, j] = row[j]
        V[i, i] = math.exp(-2.0 * t * delta[i])


@_jit
def _exponential(
    n: int, delta: np.ndarray, jump: np.ndarray, V: np.ndarray, K: np.ndarray, entry: np.ndarray, exits: int
) -> None:
    """V = exp(B); with ``exits`` >= 0 also the lower triangle of K(1)."""
    largest = 1.0
    for k in range(n):
        largest = max(largest, jump[k])
    levels = math.ceil(math.log2(largest)) + 1
    t = 2.0**-levels
    _short_time(n, delta, jump, t, V, K, entry, exits)
    for _ in range(levels):
        if exits >= 0:
            _double_time(n, V, K, t)
        _square(n, delta, V, t)
        t *= 2.0


@_jit
def _log_add(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


@_jit
def _prepare(
    m: int,
    n: int,
    segment: int,
    shift: float,
    x: float,
    rate: np.ndarray,
    delta: np.ndarray,
    jump: np.ndarray,
    log_ratio: np.ndarray,
) -> None:
    """Balanced chain of the phases from ``segment`` on; a last phase of rate zero collects what is absorbed."""
    log_ratio[segment] = 0.0
    for at in range(n):
        k = segment + at
        delta[at] = (rate[k] - shift) * x if k < m else 0.0
        jump[at] = max(1.0, delta[at])
        if k < m:
            log_ratio[k + 1] = log_ratio[k] + math.log(rate[k] * x) - math.log(jump[at])


@_jit
def _log_row_mass(row: np.ndarray, log_ratio: np.ndarray) -> float:
    """log sum_j row_j exp(log_ratio_j)."""
    top = -math.inf
    for j in range(row.shape[0]):
        if row[j] > 0.0:
            top = max(top, math.log(row[j]) + log_ratio[j])
    total = 0.0
    for j in range(row.shape[0]):
        if row[j] > 0.0:
            total += math.exp(math.log(row[j]) + log_ratio[j] - top)
    return top + math.log(total)


@_jit
def squaring_rows(
    quantity: int,
    gradients: bool,
    x: np.ndarray,
    initial: np.ndarray,
    rates: np.ndarray,
    rows: np.ndarray,
    chosen: np.ndarray,
    begin: int,
    end: int,
    value: np.ndarray,
    d_x: np.ndarray,
    d_initial: np.ndarray,
    d_rates: np.ndarray,
) -> None:
    """Evaluate rows ``chosen[begin:end]`` of a flat batch (see `cpu.contour_rows`)."""
    m = rates.shape[1]
    size = m + 1 if quantity == CDF else m
    V, K = np.zeros((size, size)), np.zeros((size, size))
    delta, jump, entry = np.empty(size), np.empty(size), np.zeros(size)
    log_ratio = np.zeros(size + 1)
    log_density, log_answer, time = np.empty(m), np.empty(m), np.empty(m)
    log_inflow = np.empty(m)
    resolved = np.empty(m, dtype=np.int64)
    for c in range(begin, end):
        r = chosen[c]
        alpha, rate = initial[rows[r]], rates[rows[r]]
        for k in range(m):
            log_density[k], log_answer[k], time[k], resolved[k] = -math.inf, -math.inf, 0.0, -1
            log_inflow[k] = -math.inf
        total, total_density = -math.inf, -math.inf
        segment = 0
        if not gradients:
            while alpha[segment] == 0.0:
                segment += 1
        while segment < m:
            n = size - segment
            shift = 0.0 if quantity == CDF else rate[segment]
            _prepare(m, n, segment, shift, x[r], rate, delta, jump, log_ratio)
            _exponential(n, delta[:n], jump[:n], V, K, entry[:n], -1)
            base = math.log(rate[m - 1]) - shift * x[r] + log_ratio[m - 1]
            following, doubt = m, -math.inf
            for i in range(segment, m):
                row = V[i - segment, i - segment : n]
                reach = V[i - segment, m - 1 - segment]
                mass = reach
                if quantity == SURVIVAL:
                    mass = row.max()
                elif quantity == CDF:
                    mass = V[i - segment, m - segment]
                if mass < _TINY:
                    following = min(following, i)
                    if alpha[i] > 0.0:
                        ceiling = base
                        if quantity == SURVIVAL:
                            ceiling = log_ratio[i:m].max() + math.log(float(m)) - shift * x[r]
                        doubt = max(doubt, math.log(alpha[i]) + ceiling - log_ratio[i] + math.log(_TINY))
                    continue
                resolved[i] = segment
                if reach > 0.0:
                    log_density[i] = base - log_ratio[i] + math.log(reach)
                if quantity == DENSITY:
                    log_answer[i] = log_density[i]
                    if i < m - 1 and V[i - segment, m - 2 - segment] > 0.0:
                        before = math.log(rate[m - 2]) + math.log(V[i - segment, m - 2 - segment])
                        log_inflow[i] = before - shift * x[r] + log_ratio[m - 2] - log_ratio[i]
                elif quantity == CDF:
                    log_answer[i] = math.log(V[i - segment, m - segment]) + log_ratio[m] - log_ratio[i]
                else:
                    log_answer[i] = _log_row_mass(row, log_ratio[i:]) - log_ratio[i] - shift * x[r]
                if alpha[i] > 0.0:
                    total = _log_add(total, math.log(alpha[i]) + log_answer[i])
                    total_density = _log_add(total_density, math.log(alpha[i]) + log_density[i])
            segment = following if doubt > total + _NEGLIGIBLE else m
        value[r] = total
        if not gradients:
            continue
        # Now that the density is known, the time spent in each phase, segment by segment of the entry phase.
        segment = -1
        for first in range(m):
            if resolved[first] <= segment:
                continue
            segment = resolved[first]
            n = size - segment
            shift = 0.0 if quantity == CDF else rate[segment]
            _prepare(m, n, segment, shift, x[r], rate, delta, jump, log_ratio)
            base = math.log(rate[m - 1]) - shift * x[r] + log_ratio[m - 1]
            needed = False
            for at in range(n):
                i = segment + at
                entry[at] = 0.0
                if i < m and resolved[i] == segment and alpha[i] > 0.0:
                    log_alpha = math.log(alpha[i])
                    if log_alpha + log_density[i] - total_density > 2.0 * _NEGLIGIBLE:
                        entry[at] = math.exp(log_alpha + base - log_ratio[i] - total_density)
                        needed = True
            if needed:
                _exponential(n, delta[:n], jump[:n], V, K, entry[:n], m - 1 - segment)
                for i in range(segment, m):
                    time[i] += x[r] * K[i - segment, i - segment]
        odds = math.exp(total_density - total)
        started, euler = 0.0, 0.0
        for k in range(m):
            d_initial[r, k] = math.exp(log_answer[k] - total)
            if quantity == DENSITY:
                if alpha[k] > 0.0:
                    started += math.exp(math.log(alpha[k]) + log_density[k] - total)
                d_rates[r, k] = started / rate[k] - time[k]
                euler += started - rate[k] * time[k]
            else:
                slope = time[k] * odds / rate[k]
                d_rates[r, k] = -slope if quantity == SURVIVAL else slope
        if quantity == DENSITY and rate[m - 1] * x[r] < 1.0:
            # inflow over stock of the last phase, minus its rate; Euler's identity loses its digits as x goes to zero
            inflow = 0.0
            for k in range(m - 1):
                if alpha[k] > 0.0:
                    inflow += math.exp(math.log(alpha[k]) + log_inflow[k] - total)
            d_x[r] = (inflow - 1.0) * rate[m - 1]
        elif quantity == DENSITY:
            d_x[r] = (euler - 1.0) / x[r]
        else:
            d_x[r] = -odds if quantity == SURVIVAL else odds
