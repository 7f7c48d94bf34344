"""The contour fused for the CPU: values, closed-form gradients and the trust test of a row in one pass (Numba)."""

import math
from typing import Any

import numba
import numpy as np

from phvae.kernels.nodes import (
    GRADIENT_CANCELLATION,
    GRADIENT_TRUNCATION,
    LONG,
    PROBES,
    RESOLVED_PHASES,
    SHORT,
    VALUE_CANCELLATION,
    VALUE_TRUNCATION,
)
from phvae.kernels.quantities import BOUNDARY, CDF, DOUBTFUL, INVALID, SURVIVAL, TRUSTED

_SHORT, _LONG, _PROBES = (np.ascontiguousarray(np.array(rows).T) for rows in (SHORT, LONG, PROBES))
_NO_PROBES = np.empty((3, 0))
_MOST_NODES = max(len(SHORT), len(LONG))

# Reassociation lets the sums over nodes use vector registers; NaN and infinity keep their meaning.
_jit: Any = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")


@numba.njit(nogil=True, cache=True, error_model="numpy")
def row_status(x: float, initial: np.ndarray, rates: np.ndarray) -> int:
    """Whether a row can be computed at all, and whether x is one of the two ends of the half-line."""
    if not x >= 0.0:
        return INVALID
    before = 0.0
    mass = 0.0
    for k in range(rates.shape[0]):
        if not (initial[k] >= 0.0 and initial[k] < math.inf) or not (rates[k] >= before and rates[k] < math.inf):
            return INVALID
        before = rates[k]
        mass += initial[k]
    if rates[0] <= 0.0 or mass == 0.0:
        return INVALID
    return BOUNDARY if x in (0.0, math.inf) else DOUBTFUL


@_jit
def _probe_bounds(
    quantity: int, probes: np.ndarray, scale: float, shift: float, first: int, initial: np.ndarray, rates: np.ndarray
) -> tuple[float, float, float]:
    """Truncation bounds of the value, of the start-vector gradient and of the rate gradient, not yet relative."""
    m = rates.shape[0]
    tail_r, tail_i = np.empty(m), np.empty(m)
    by_value, by_start, by_slope = 0.0, 0.0, 0.0
    for j in range(probes.shape[1]):
        sr, si = probes[0, j] * scale, probes[1, j] * scale
        pr, pi, br, bi, lr, li = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
        largest = 0.0
        for i in range(m - 1, first - 1, -1):
            a = sr + (rates[i] - shift)
            inverse = rates[i] / (a * a + si * si)
            u, v = a * inverse, -si * inverse
            pr, pi = pr * u - pi * v, pr * v + pi * u
            tail_r[i], tail_i[i] = pr, pi
            cr, ci = pr, pi
            if quantity == SURVIVAL:
                br += 1.0 / rates[i]
                br, bi = br * u - bi * v, br * v + bi * u
                cr, ci = br, bi
            elif quantity == CDF:
                norm = sr * sr + si * si
                cr, ci = (pr * sr + pi * si) / norm, (pi * sr - pr * si) / norm
            lr += initial[i] * cr
            li += initial[i] * ci
            largest = max(largest, abs(cr) + abs(ci))
        by_value += probes[2, j] * (abs(lr) + abs(li))
        by_start += probes[2, j] * largest
        cr, ci = 0.0, 0.0
        largest = 0.0
        for i in range(first, m):
            cr += initial[i] * tail_r[i]
            ci += initial[i] * tail_i[i]
            a = sr + (rates[i] - shift)
            largest = max(largest, (abs(cr) + abs(ci)) / math.sqrt(a * a + si * si))
        by_slope += probes[2, j] * largest
    return by_value, by_start, by_slope


@_jit
def _early_slope(
    table: np.ndarray, scale: float, shift: float, alpha: np.ndarray, rate: np.ndarray, density: float
) -> float:
    """d log f / dx as inflow over stock of the last phase, minus its rate: keeps its digits as x goes to zero.

    Elsewhere Euler's identity, x f' = Σ λ_k df/dλ_k - f, gives the slope from numbers at hand.
    """
    m = rate.shape[0]
    inflow = 0.0
    for n in range(table.shape[1]):
        cr, ci = table[2, n], table[3, n]
        for i in range(m - 2, -1, -1):
            a, b = table[0, n] * scale + (rate[i] - shift), table[1, n] * scale
            inverse = rate[i] / (a * a + b * b)
            u, v = a * inverse, -b * inverse
            cr, ci = cr * u - ci * v, cr * v + ci * u
            inflow += alpha[i] * cr
    slope: float = inflow * scale * rate[m - 1] / density - rate[m - 1]
    return slope


@_jit
def _attempt(
    quantity: int,
    gradients: bool,
    table: np.ndarray,
    probes: np.ndarray,
    x: float,
    alpha: np.ndarray,
    rate: np.ndarray,
    first: int,
    work: np.ndarray,
    phase_work: np.ndarray,
    answers: np.ndarray,
    d_initial: np.ndarray,
    d_rates: np.ndarray,
) -> bool:
    """One row by one contour: value and x-slope into ``answers``; False where its own estimates do not trust it."""
    m = rate.shape[0]
    lanes = table.shape[1]
    zr, zi, wr, wi = table[0], table[1], table[2], table[3]
    qr, qi, pr, pi = work[:m], work[m : 2 * m], work[2 * m : 3 * m], work[3 * m : 4 * m]
    sr, si = work[4 * m], work[4 * m + 1]
    cr, ci = work[4 * m + 2], work[4 * m + 3]
    br, bi = work[4 * m + 4], work[4 * m + 5]
    density, answer = phase_work[0], phase_work[1]
    shift = 0.0 if quantity == CDF else rate[first]
    scale = 1.0 / x
    for n in range(lanes):
        sr[n], si[n] = zr[n] * scale, zi[n] * scale
        cr[n], ci[n] = wr[n], wi[n]
        br[n], bi[n] = 0.0, 0.0
    largest_slope = 0.0
    unit = 1.0 if quantity == CDF else scale
    total, total_density, largest, largest_terms, kappa = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(m - 1, first - 1, -1):
        lam = rate[i]
        distance = lam - shift
        reciprocal = 1.0 / lam
        acc, acc_answer, terms = 0.0, 0.0, 0.0
        for n in range(lanes):
            a, b = sr[n] + distance, si[n]
            inverse = lam / (a * a + b * b)
            u, v = a * inverse, -b * inverse
            qr[i, n], qi[i, n] = u, v
            c, e = cr[n] * u - ci[n] * v, cr[n] * v + ci[n] * u
            cr[n], ci[n] = c, e
            pr[i, n], pi[i, n] = c, e
            acc += c
            terms += abs(c) + abs(e)
        if quantity == SURVIVAL:
            terms = 0.0
            for n in range(lanes):
                u, v = qr[i, n], qi[i, n]
                c, e = br[n] + wr[n] * reciprocal, bi[n] + wi[n] * reciprocal
                br[n], bi[n] = c * u - e * v, c * v + e * u
                acc_answer += br[n]
                terms += abs(br[n]) + abs(bi[n])
        elif quantity == CDF:
            terms = 0.0
            for n in range(lanes):
                norm = 1.0 / (zr[n] * zr[n] + zi[n] * zi[n])
                c = (pr[i, n] * zr[n] + pi[i, n] * zi[n]) * norm
                acc_answer += c
                terms += abs(c) + abs(pi[i, n] * zr[n] - pr[i, n] * zi[n]) * norm
        else:
            acc_answer = acc
        density[i] = acc * scale
        answer[i] = acc_answer * unit
        total += alpha[i] * answer[i]
        total_density += alpha[i] * density[i]
        kappa += alpha[i] * terms * unit
        largest = max(largest, abs(answer[i]))
        largest_terms = max(largest_terms, terms * unit)
    answers[0] = math.log(total) - shift * x if total > 0.0 else math.nan
    trusted = kappa < VALUE_CANCELLATION * total
    if gradients and trusted:
        trusted = largest_terms < GRADIENT_CANCELLATION * largest
        for n in range(lanes):
            cr[n], ci[n] = 0.0, 0.0
        started, largest_slope, largest_terms, euler = 0.0, 0.0, 0.0, 0.0
        for i in range(m):
            weight = alpha[i]
            acc, terms = 0.0, 0.0
            for n in range(lanes):
                c, e = cr[n] + weight * pr[i, n], ci[n] + weight * pi[i, n]
                cr[n], ci[n] = c, e
                c = c * qr[i, n] - e * qi[i, n]
                acc += c
                terms += abs(c)
            started += weight * density[i]
            # acc * scale / rate is the density times the expected time in phase i
            slope = (started - acc * scale) if quantity < SURVIVAL else acc * scale
            if quantity >= SURVIVAL:
                slope /= rate[i]
                terms /= rate[i]
            if quantity == SURVIVAL:
                slope = -slope
            slope /= rate[i]
            largest_slope = max(largest_slope, abs(slope))
            largest_terms = max(largest_terms, terms * scale / rate[i])
            euler += rate[i] * slope
            d_rates[i] = slope / total
            d_initial[i] = answer[i] / total
        trusted = trusted and largest_terms < GRADIENT_CANCELLATION * largest_slope
        if quantity == SURVIVAL:
            answers[1] = -total_density / total
        elif quantity == CDF:
            answers[1] = total_density / total
        elif rate[m - 1] * x < 1.0:
            answers[1] = _early_slope(table, scale, shift, alpha, rate, total)
        else:
            answers[1] = (euler / total - 1.0) * scale
    if trusted and probes.shape[1] > 0:
        value_error, start_error, slope_error = _probe_bounds(quantity, probes, scale, shift, first, alpha, rate)
        trusted = value_error * scale < VALUE_TRUNCATION * total
        if gradients and trusted:
            trusted = (
                start_error * scale < GRADIENT_TRUNCATION * largest
                and slope_error * scale < GRADIENT_TRUNCATION * largest_slope
            )
    return trusted


@_jit
def contour_rows(
    quantity: int,
    gradients: bool,
    x: np.ndarray,
    initial: np.ndarray,
    rates: np.ndarray,
    rows: np.ndarray,
    begin: int,
    end: int,
    value: np.ndarray,
    d_x: np.ndarray,
    d_initial: np.ndarray,
    d_rates: np.ndarray,
    status: np.ndarray,
) -> None:
    """Evaluate rows begin..end of a flat batch; row r has parameters ``initial[rows[r]], rates[rows[r]]``."""
    m = rates.shape[1]
    few = m <= RESOLVED_PHASES
    work, phase_work, answers = np.empty((4 * m + 6, _MOST_NODES)), np.empty((2, m)), np.empty(2)
    spare = np.empty(m)
    for r in range(begin, end):
        alpha, rate = initial[rows[r]], rates[rows[r]]
        state = row_status(x[r], alpha, rate)
        status[r] = state
        if state != DOUBTFUL:
            continue
        first = 0
        while alpha[first] == 0.0:
            first += 1
        if first > 0 and gradients:
            continue  # phases before the first entry are slower than the shift: only squaring sees them
        by_initial, by_rates = (d_initial[r], d_rates[r]) if gradients else (spare, spare)
        table = _SHORT if few else _LONG
        probes = _NO_PROBES if few else _PROBES
        trusted = _attempt(
            quantity, gradients, table, probes, x[r], alpha, rate, first, work, phase_work, answers, by_initial, by_rates
        )  # fmt: skip
        if trusted:
            status[r] = TRUSTED
            value[r] = answers[0]
            if gradients:
                d_x[r] = answers[1]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def classify_rows(
    quantity: int,
    gradients: bool,
    x: np.ndarray,
    initial: np.ndarray,
    rates: np.ndarray,
    rows: np.ndarray,
    begin: int,
    end: int,
    value: np.ndarray,
    d_x: np.ndarray,
    d_initial: np.ndarray,
    d_rates: np.ndarray,
    status: np.ndarray,
) -> None:
    """Only the status of each row: the contour that trusts nothing, with the arguments of `contour_rows`."""
    for r in range(begin, end):
        status[r] = row_status(x[r], initial[rows[r]], rates[rows[r]])
