"""The contour fused for the CPU: values, closed-form gradients and the trust test of a row in one pass (Numba)."""

import math
from typing import Any

import numba
import numpy as np

from phvae.kernels.nodes import (
    GRADIENT_CANCELLATION,
    GRADIENT_TRUNCATION,
    LONG,
    MANY_PHASES,
    MANY_VALUE_TRUNCATION,
    PROBES,
    RESOLVED_PHASES,
    SHORT,
    VALUE_CANCELLATION,
    VALUE_TRUNCATION,
)
from phvae.kernels.quantities import BOUNDARY, CDF, DOUBTFUL, INVALID, SURVIVAL, TRUSTED

_SHORT, _LONG, _PROBES = (np.ascontiguousarray(np.array(rows).T) for rows in (SHORT, LONG, PROBES))
_LANES = len(PROBES)
_SR, _SI, _PR, _PI, _BR, _BI, _LR, _LI, _TOP, _TAILS = range(0, 10 * _LANES, _LANES)

# Reassociation lets the sums over nodes use vector registers; NaN and infinity keep their meaning.
_jit: Any = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")


@numba.njit(nogil=True, cache=True, error_model="numpy")
def row_status(x: float, initial: np.ndarray, rates: np.ndarray, p: int) -> int:
    """Whether a row can be computed at all, and whether x is one of the two ends of the half-line."""
    if not x >= 0.0:
        return INVALID
    before = 0.0
    mass = 0.0
    for k in range(rates.shape[1]):
        if not (initial[p, k] >= 0.0 and initial[p, k] < math.inf) or not (
            rates[p, k] >= before and rates[p, k] < math.inf
        ):
            return INVALID
        before = rates[p, k]
        mass += initial[p, k]
    if rates[p, 0] <= 0.0 or mass == 0.0:
        return INVALID
    return BOUNDARY if x in (0.0, math.inf) else DOUBTFUL


@_jit
def _probe_bounds(
    quantity: int, scale: float, shift: float, first: int, initial: np.ndarray, rates: np.ndarray, p: int, v: np.ndarray
) -> tuple[float, float, float]:
    """Truncation bounds of the value, of the start-vector gradient and of the rate gradient, not yet relative.

    ``v`` is work of ``(9 + 2 m) * _LANES`` numbers: for every probe s, the products p and b, the sum l and the largest
    term t, then the product of each phase.
    """
    m = rates.shape[1]
    for j in range(_LANES):
        v[_SR + j], v[_SI + j] = _PROBES[0, j] * scale, _PROBES[1, j] * scale
        v[_PR + j], v[_PI + j] = 1.0, 0.0
        v[_BR + j], v[_BI + j] = 0.0, 0.0
        v[_LR + j], v[_LI + j], v[_TOP + j] = 0.0, 0.0, 0.0
    for i in range(m - 1, first - 1, -1):
        rate, alpha = rates[p, i], initial[p, i]
        distance, reciprocal = rate - shift, 1.0 / rate
        at = _TAILS + 2 * i * _LANES
        for j in range(_LANES):
            a, b = v[_SR + j] + distance, v[_SI + j]
            inverse = rate / (a * a + b * b)
            x, y = a * inverse, -b * inverse
            c, e = v[_PR + j] * x - v[_PI + j] * y, v[_PR + j] * y + v[_PI + j] * x
            v[_PR + j], v[_PI + j] = c, e
            v[at + j], v[at + _LANES + j] = c, e
            if quantity == SURVIVAL:
                c, e = v[_BR + j] + reciprocal, v[_BI + j]
                c, e = c * x - e * y, c * y + e * x
                v[_BR + j], v[_BI + j] = c, e
            elif quantity == CDF:
                norm = 1.0 / (v[_SR + j] * v[_SR + j] + b * b)
                c, e = (c * v[_SR + j] + e * b) * norm, (e * v[_SR + j] - c * b) * norm
            v[_LR + j] += alpha * c
            v[_LI + j] += alpha * e
            v[_TOP + j] = max(v[_TOP + j], abs(c) + abs(e))
    by_value, by_start, by_slope = 0.0, 0.0, 0.0
    for j in range(_LANES):
        by_value += _PROBES[2, j] * (abs(v[_LR + j]) + abs(v[_LI + j]))
        by_start += _PROBES[2, j] * v[_TOP + j]
        v[_LR + j], v[_LI + j], v[_TOP + j] = 0.0, 0.0, 0.0
    for i in range(first, m):
        alpha, distance = initial[p, i], rates[p, i] - shift
        at = _TAILS + 2 * i * _LANES
        for j in range(_LANES):
            v[_LR + j] += alpha * v[at + j]
            v[_LI + j] += alpha * v[at + _LANES + j]
            a, b = v[_SR + j] + distance, v[_SI + j]
            v[_TOP + j] = max(v[_TOP + j], (abs(v[_LR + j]) + abs(v[_LI + j])) / math.sqrt(a * a + b * b))
    for j in range(_LANES):
        by_slope += _PROBES[2, j] * v[_TOP + j]
    return by_value, by_start, by_slope


def _for_nodes(table: np.ndarray) -> Any:
    """The evaluation of one row, compiled for a fixed number of nodes.

    All work lies in one flat array at offsets known to the compiler, so that it can prove the sums over the nodes free
    of overlap and keep them in vector registers. Offsets: nodes z, weights w, s = z / x, running products c and b, and
    for each phase its factor q and its product p; each a real and an imaginary part of `lanes` numbers.
    """
    lanes = table.shape[1]
    zr, zi, wr, wi, sr, si, cr, ci, br, bi = range(0, 10 * lanes, lanes)
    qr, qi, pr, pi = range(10 * lanes, 14 * lanes, lanes)
    step = 4 * lanes

    @_jit
    def early_slope(
        w: np.ndarray, scale: float, shift: float, alpha: np.ndarray, rate: np.ndarray, density: float
    ) -> float:
        """d log f / dx as inflow over stock of the last phase, minus its rate: keeps its digits as x goes to zero.

        Elsewhere Euler's identity, x f' = Σ λ_k df/dλ_k - f, gives the slope from numbers at hand.
        """
        m = rate.shape[0]
        inflow = 0.0
        for n in range(lanes):
            cr, ci = w[wr + n], w[wi + n]
            for i in range(m - 2, -1, -1):
                a, b = w[zr + n] * scale + (rate[i] - shift), w[zi + n] * scale
                inverse = rate[i] / (a * a + b * b)
                u, v = a * inverse, -b * inverse
                cr, ci = cr * u - ci * v, cr * v + ci * u
                inflow += alpha[i] * cr
        slope: float = inflow * scale * rate[m - 1] / density - rate[m - 1]
        return slope

    @_jit
    def attempt(
        quantity: int,
        gradients: bool,
        probe_work: np.ndarray,
        x: float,
        initial: np.ndarray,
        rates: np.ndarray,
        p: int,
        first: int,
        w: np.ndarray,
        phase_work: np.ndarray,
        answers: np.ndarray,
        d_initial: np.ndarray,
        d_rates: np.ndarray,
        r: int,
    ) -> bool:
        """One row by one contour: value and x-slope into ``answers``; False where its own estimates do not trust it."""
        m = rates.shape[1]
        shift = 0.0 if quantity == CDF else rates[p, first]
        scale = 1.0 / x
        for n in range(lanes):
            w[sr + n], w[si + n] = w[zr + n] * scale, w[zi + n] * scale
            w[cr + n], w[ci + n] = w[wr + n], w[wi + n]
            w[br + n], w[bi + n] = 0.0, 0.0
        largest_slope = 0.0
        unit = 1.0 if quantity == CDF else scale
        total, total_density, largest, largest_terms, kappa = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(m - 1, first - 1, -1):
            lam = rates[p, i]
            at = i * step
            distance = lam - shift
            reciprocal = 1.0 / lam
            acc, acc_answer, terms = 0.0, 0.0, 0.0
            for n in range(lanes):
                a, b = w[sr + n] + distance, w[si + n]
                inverse = lam / (a * a + b * b)
                u, v = a * inverse, -b * inverse
                w[at + qr + n], w[at + qi + n] = u, v
                c, e = w[cr + n] * u - w[ci + n] * v, w[cr + n] * v + w[ci + n] * u
                w[cr + n], w[ci + n] = c, e
                w[at + pr + n], w[at + pi + n] = c, e
                acc += c
                terms += abs(c) + abs(e)
            if quantity == SURVIVAL:
                terms = 0.0
                for n in range(lanes):
                    u, v = w[at + qr + n], w[at + qi + n]
                    c, e = w[br + n] + w[wr + n] * reciprocal, w[bi + n] + w[wi + n] * reciprocal
                    w[br + n], w[bi + n] = c * u - e * v, c * v + e * u
                    acc_answer += w[br + n]
                    terms += abs(w[br + n]) + abs(w[bi + n])
            elif quantity == CDF:
                terms = 0.0
                for n in range(lanes):
                    norm = 1.0 / (w[zr + n] * w[zr + n] + w[zi + n] * w[zi + n])
                    c = (w[at + pr + n] * w[zr + n] + w[at + pi + n] * w[zi + n]) * norm
                    acc_answer += c
                    terms += abs(c) + abs(w[at + pi + n] * w[zr + n] - w[at + pr + n] * w[zi + n]) * norm
            else:
                acc_answer = acc
            phase_work[0, i] = acc * scale
            phase_work[1, i] = acc_answer * unit
            total += initial[p, i] * phase_work[1, i]
            total_density += initial[p, i] * phase_work[0, i]
            kappa += initial[p, i] * terms * unit
            largest = max(largest, abs(phase_work[1, i]))
            largest_terms = max(largest_terms, terms * unit)
        answers[0] = math.log(total) - shift * x if total > 0.0 else math.nan
        trusted = kappa < VALUE_CANCELLATION * total
        if gradients and trusted:
            trusted = largest_terms < GRADIENT_CANCELLATION * largest
            for n in range(lanes):
                w[cr + n], w[ci + n] = 0.0, 0.0
            started, largest_slope, largest_terms, euler = 0.0, 0.0, 0.0, 0.0
            for i in range(m):
                weight = initial[p, i]
                at = i * step
                acc, terms = 0.0, 0.0
                for n in range(lanes):
                    c, e = w[cr + n] + weight * w[at + pr + n], w[ci + n] + weight * w[at + pi + n]
                    w[cr + n], w[ci + n] = c, e
                    c = c * w[at + qr + n] - e * w[at + qi + n]
                    acc += c
                    terms += abs(c)
                started += weight * phase_work[0, i]
                # acc * scale / rate is the density times the expected time in phase i
                slope = (started - acc * scale) if quantity < SURVIVAL else acc * scale
                if quantity >= SURVIVAL:
                    slope /= rates[p, i]
                    terms /= rates[p, i]
                if quantity == SURVIVAL:
                    slope = -slope
                slope /= rates[p, i]
                largest_slope = max(largest_slope, abs(slope))
                largest_terms = max(largest_terms, terms * scale / rates[p, i])
                euler += rates[p, i] * slope
                d_rates[r, i] = slope / total
                d_initial[r, i] = phase_work[1, i] / total
            trusted = trusted and largest_terms < GRADIENT_CANCELLATION * largest_slope
            if quantity == SURVIVAL:
                answers[1] = -total_density / total
            elif quantity == CDF:
                answers[1] = total_density / total
            elif rates[p, m - 1] * x < 1.0:
                answers[1] = early_slope(w, scale, shift, initial[p], rates[p], total)
            else:
                answers[1] = (euler / total - 1.0) * scale
        if trusted and m > RESOLVED_PHASES:
            value_error, start_error, slope_error = _probe_bounds(
                quantity, scale, shift, first, initial, rates, p, probe_work
            )
            accepted = VALUE_TRUNCATION if m <= MANY_PHASES else MANY_VALUE_TRUNCATION
            trusted = value_error * scale < accepted * total
            if gradients and trusted:
                trusted = (
                    start_error * scale < GRADIENT_TRUNCATION * largest
                    and slope_error * scale < GRADIENT_TRUNCATION * largest_slope
                )
        return trusted

    return attempt


_short_attempt, _long_attempt = _for_nodes(_SHORT), _for_nodes(_LONG)


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
    table = _SHORT if few else _LONG
    w = np.empty((4 * m + 10) * table.shape[1])
    w[: table.size] = table.ravel()
    phase_work, answers = np.empty((2, m)), np.empty(2)
    probe_work = np.empty(_TAILS + 2 * m * _LANES)
    for r in range(begin, end):
        p = rows[r]
        state = row_status(x[r], initial, rates, p)
        status[r] = state
        if state != DOUBTFUL:
            continue
        first = 0
        while initial[p, first] == 0.0:
            first += 1
        if first > 0 and gradients:
            continue  # phases before the first entry are slower than the shift: only squaring sees them
        if few:
            trusted = _short_attempt(
                quantity,
                gradients,
                probe_work,
                x[r],
                initial,
                rates,
                p,
                first,
                w,
                phase_work,
                answers,
                d_initial,
                d_rates,
                r,
            )
        else:
            trusted = _long_attempt(
                quantity,
                gradients,
                probe_work,
                x[r],
                initial,
                rates,
                p,
                first,
                w,
                phase_work,
                answers,
                d_initial,
                d_rates,
                r,
            )
        if trusted:
            status[r] = TRUSTED
            value[r] = answers[0]
            if gradients:
                d_x[r] = answers[1]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def classify_rows(
    x: np.ndarray, initial: np.ndarray, rates: np.ndarray, rows: np.ndarray, begin: int, end: int, status: np.ndarray
) -> None:
    """Only the status of each row, where another method answers."""
    for r in range(begin, end):
        status[r] = row_status(x[r], initial, rates, rows[r])
