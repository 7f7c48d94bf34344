"""The contour fused for the CPU: values, closed-form gradients and the trust test of eight rows in one pass (Numba).

Every lane of a vector register holds one row, so a sum over nodes or phases adds whole registers and no number ever
crosses lanes. All is computed with time in units of x: in y = λ x, d = (λ - shift) x and the fixed nodes z.
"""

import math
from typing import Any

import numba
import numpy as np

from phvae.kernels.lanes import LANES, greater, load, magnitude, root, spread, store
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
from phvae.kernels.quantities import BOUNDARY, CDF, DENSITY, DOUBTFUL, INVALID, SURVIVAL, TRUSTED

_SHORT, _LONG, _PROBES = (np.array(rows) for rows in (SHORT, LONG, PROBES))

# Work space, in lanes. For every phase: y, d, start weight, 1 / y and sums over the nodes; then, for the two nodes at
# work, the phase's factor q and the product p up to it.
_Y, _D, _ALPHA, _INVERSE, _FLOW, _ANSWER, _TERMS, _SLOPE, _SLOPE_TERMS = range(0, 9 * LANES, LANES)
_Q1R, _Q1I, _Q2R, _Q2I, _P1R, _P1I, _P2R, _P2I = range(9 * LANES, 17 * LANES, LANES)
_STEP = 17 * LANES
# After the phases: what is known of a row in the end.
_X, _TOTAL, _TOTAL_TERMS, _START, _START_TERMS, _BEND, _BEND_TERMS = range(0, 7 * LANES, LANES)
_D_X, _EARLY, _VALUE_ERROR, _START_ERROR, _BEND_ERROR = range(7 * LANES, 12 * LANES, LANES)
_FIELDS = 12 * LANES
# Numbers below this one have lost digits, or may have come from some that did.
_SMALLEST = 1e-140

_jit: Any = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})


@_jit
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
def _take(
    quantity: int, gradients: bool, x: float, initial: np.ndarray, rates: np.ndarray, p: int, w: np.ndarray, lane: int
) -> bool:
    """Put one row into a lane; whether the contour can answer it."""
    m = rates.shape[1]
    first = 0
    while first < m - 1 and initial[p, first] == 0.0:
        first += 1
    shift = 0.0 if quantity == CDF else rates[p, first]
    for i in range(m):
        # a phase that is never visited has the rate of the first that is, which keeps its factor bounded
        rate = rates[p, max(i, first)]
        at = i * _STEP + lane
        w[at + _Y] = rate * x
        w[at + _D] = (rate - shift) * x
        w[at + _ALPHA] = initial[p, i]
    w[m * _STEP + _X + lane] = x
    # phases before the first entry are slower than the shift: only squaring sees their gradients
    return w[lane + _Y] > _SMALLEST and not (gradients and first > 0)


@_jit
def _factors(y: Any, d: Any, z1r: float, z1i: float, z2r: float, z2i: float) -> tuple[Any, ...]:
    """Conjugate of y / (z + d) for two nodes, by one division, and what it took: 1 / |z + d|²."""
    a1, a2 = d + z1r, d + z2r
    n1, n2 = a1 * a1 + z1i * z1i, a2 * a2 + z2i * z2i
    both = 1.0 / (n1 * n2)
    n1, n2 = both * n2, both * n1
    t1, t2 = y * n1, y * n2
    return t1 * a1, t1 * z1i, t2 * a2, t2 * z2i, n1, n2


@_jit
def _times(pr: Any, pi: Any, qr: Any, qi: Any) -> tuple[Any, Any]:
    """``p`` times the conjugate of ``q``."""
    return pr * qr + pi * qi, pi * qr - pr * qi


@_jit
def _size(real: Any, imaginary: Any) -> Any:
    return magnitude(real) + magnitude(imaginary)


@_jit
def _inverse(zr: float, zi: float) -> tuple[float, float]:
    """Conjugate of 1 / z."""
    norm = 1.0 / (zr * zr + zi * zi)
    return zr * norm, zi * norm


@_jit
def _sums_over_nodes(quantity: int, gradients: bool, m: int, table: np.ndarray, w: np.ndarray) -> None:
    """For every phase the sums over the nodes of p, of the answer's terms, and of the terms of the rate's slope."""
    zero = spread(0.0)
    for i in range(m):
        at = i * _STEP
        store(w, at + _INVERSE, 1.0 / load(w, at + _Y))
        for k in range(_FLOW, _FLOW + 5 * LANES, LANES):
            store(w, at + k, zero)
    for n in range(0, table.shape[0], 2):
        z1r, z1i, w1r, w1i = table[n, 0], table[n, 1], table[n, 2], table[n, 3]
        z2r, z2i, w2r, w2i = table[n + 1, 0], table[n + 1, 1], table[n + 1, 2], table[n + 1, 3]
        g1r, g1i = _inverse(z1r, z1i)
        g2r, g2i = _inverse(z2r, z2i)
        p1r, p1i, p2r, p2i = spread(w1r), spread(w1i), spread(w2r), spread(w2i)
        b1r, b1i, b2r, b2i = zero, zero, zero, zero
        for i in range(m - 1, -1, -1):
            at = i * _STEP
            q1r, q1i, q2r, q2i, _, _ = _factors(load(w, at + _Y), load(w, at + _D), z1r, z1i, z2r, z2i)
            p1r, p1i = _times(p1r, p1i, q1r, q1i)
            p2r, p2i = _times(p2r, p2i, q2r, q2i)
            store(w, at + _FLOW, load(w, at + _FLOW) + (p1r + p2r))
            if gradients:
                store(w, at + _Q1R, q1r)
                store(w, at + _Q1I, q1i)
                store(w, at + _Q2R, q2r)
                store(w, at + _Q2I, q2i)
                store(w, at + _P1R, p1r)
                store(w, at + _P1I, p1i)
                store(w, at + _P2R, p2r)
                store(w, at + _P2I, p2i)
            if quantity == SURVIVAL:
                unit = load(w, at + _INVERSE)
                b1r, b1i = _times(b1r + w1r * unit, b1i + w1i * unit, q1r, q1i)
                b2r, b2i = _times(b2r + w2r * unit, b2i + w2i * unit, q2r, q2i)
            elif quantity == CDF:
                b1r, b1i = _times(p1r, p1i, g1r, g1i)
                b2r, b2i = _times(p2r, p2i, g2r, g2i)
            else:
                b1r, b1i, b2r, b2i = p1r, p1i, p2r, p2i
            if quantity != DENSITY:
                store(w, at + _ANSWER, load(w, at + _ANSWER) + (b1r + b2r))
            store(w, at + _TERMS, load(w, at + _TERMS) + (_size(b1r, b1i) + _size(b2r, b2i)))
        if gradients:
            c1r, c1i, c2r, c2i = zero, zero, zero, zero
            for i in range(m):
                at = i * _STEP
                alpha = load(w, at + _ALPHA)
                c1r, c1i = c1r + alpha * load(w, at + _P1R), c1i + alpha * load(w, at + _P1I)
                c2r, c2i = c2r + alpha * load(w, at + _P2R), c2i + alpha * load(w, at + _P2I)
                s1 = c1r * load(w, at + _Q1R) + c1i * load(w, at + _Q1I)
                s2 = c2r * load(w, at + _Q2R) + c2i * load(w, at + _Q2I)
                store(w, at + _SLOPE, load(w, at + _SLOPE) + (s1 + s2))
                store(w, at + _SLOPE_TERMS, load(w, at + _SLOPE_TERMS) + _size(s1, s2))


@_jit
def _sums_over_phases(quantity: int, gradients: bool, m: int, w: np.ndarray) -> None:
    """The answer and its derivatives, and the sizes that tell how much of them is rounding."""
    known = m * _STEP
    zero = spread(0.0)
    total, flow, terms = zero, zero, zero
    for i in range(m):
        at = i * _STEP
        alpha, own = load(w, at + _ALPHA), load(w, at + _FLOW)
        if quantity == DENSITY:
            store(w, at + _ANSWER, own)
        flow = flow + alpha * own
        total = total + alpha * load(w, at + _ANSWER)
        terms = terms + alpha * load(w, at + _TERMS)
    store(w, known + _TOTAL, total)
    store(w, known + _TOTAL_TERMS, terms)
    if not gradients:
        return
    x, unit = load(w, known + _X), 1.0 / total
    started, euler = zero, zero
    start, start_terms, bend, bend_terms = zero, zero, zero, zero
    for i in range(m):
        at = i * _STEP
        answer, inverse = load(w, at + _ANSWER), load(w, at + _INVERSE)
        slope, terms = load(w, at + _SLOPE), load(w, at + _SLOPE_TERMS) * inverse
        if quantity == DENSITY:
            # slope / y is the density times the expected time in the phase, in units of x
            started = started + load(w, at + _ALPHA) * answer
            slope = started - slope
            euler = euler + slope
        else:
            slope, terms = slope * inverse, terms * inverse
            if quantity == SURVIVAL:
                slope = 0.0 - slope
        slope = slope * inverse
        start, start_terms = greater(magnitude(answer), start), greater(load(w, at + _TERMS), start_terms)
        bend, bend_terms = greater(magnitude(slope), bend), greater(terms, bend_terms)
        store(w, at + _ANSWER, answer * unit)
        store(w, at + _SLOPE, slope * unit * x)
    store(w, known + _START, start)
    store(w, known + _START_TERMS, start_terms)
    store(w, known + _BEND, bend)
    store(w, known + _BEND_TERMS, bend_terms)
    if quantity == DENSITY:
        # Euler's identity, x f' = Σ λ_k df/dλ_k - f
        d_x = euler * unit - 1.0
    elif quantity == SURVIVAL:
        d_x = 0.0 - flow * unit
    else:
        d_x = flow * unit
    store(w, known + _D_X, d_x / x)


@_jit
def _early_slope(m: int, table: np.ndarray, w: np.ndarray) -> None:
    """d log f / dx as inflow over stock of the last phase, minus its rate: keeps its digits as x goes to zero."""
    known = m * _STEP
    inflow = spread(0.0)
    for n in range(0, table.shape[0], 2):
        z1r, z1i, z2r, z2i = table[n, 0], table[n, 1], table[n + 1, 0], table[n + 1, 1]
        p1r, p1i, p2r, p2i = spread(table[n, 2]), spread(table[n, 3]), spread(table[n + 1, 2]), spread(table[n + 1, 3])
        for i in range(m - 2, -1, -1):
            at = i * _STEP
            q1r, q1i, q2r, q2i, _, _ = _factors(load(w, at + _Y), load(w, at + _D), z1r, z1i, z2r, z2i)
            p1r, p1i = _times(p1r, p1i, q1r, q1i)
            p2r, p2i = _times(p2r, p2i, q2r, q2i)
            inflow = inflow + load(w, at + _ALPHA) * (p1r + p2r)
    last = load(w, (m - 1) * _STEP + _Y)
    store(w, known + _EARLY, last * (inflow / load(w, known + _TOTAL) - 1.0) / load(w, known + _X))


@_jit
def _probe_bounds(quantity: int, gradients: bool, m: int, w: np.ndarray) -> None:
    """Truncation bounds of the value, of the start-vector gradient and of the rate gradient, not yet relative."""
    known = m * _STEP
    zero = spread(0.0)
    by_value, by_start, by_bend = zero, zero, zero
    for n in range(0, _PROBES.shape[0], 2):
        z1r, z1i, bound1 = _PROBES[n, 0], _PROBES[n, 1], _PROBES[n, 2]
        z2r, z2i, bound2 = _PROBES[n + 1, 0], _PROBES[n + 1, 1], _PROBES[n + 1, 2]
        g1r, g1i = _inverse(z1r, z1i)
        g2r, g2i = _inverse(z2r, z2i)
        p1r, p1i, p2r, p2i = spread(1.0), zero, spread(1.0), zero
        b1r, b1i, b2r, b2i = zero, zero, zero, zero
        v1r, v1i, v2r, v2i = zero, zero, zero, zero
        top1, top2 = zero, zero
        for i in range(m - 1, -1, -1):
            at = i * _STEP
            q1r, q1i, q2r, q2i, n1, n2 = _factors(load(w, at + _Y), load(w, at + _D), z1r, z1i, z2r, z2i)
            p1r, p1i = _times(p1r, p1i, q1r, q1i)
            p2r, p2i = _times(p2r, p2i, q2r, q2i)
            if gradients:
                store(w, at + _Q1R, n1)
                store(w, at + _Q2R, n2)
                store(w, at + _P1R, p1r)
                store(w, at + _P1I, p1i)
                store(w, at + _P2R, p2r)
                store(w, at + _P2I, p2i)
            if quantity == SURVIVAL:
                unit = load(w, at + _INVERSE)
                b1r, b1i = _times(b1r + unit, b1i, q1r, q1i)
                b2r, b2i = _times(b2r + unit, b2i, q2r, q2i)
            elif quantity == CDF:
                b1r, b1i = _times(p1r, p1i, g1r, g1i)
                b2r, b2i = _times(p2r, p2i, g2r, g2i)
            else:
                b1r, b1i, b2r, b2i = p1r, p1i, p2r, p2i
            alpha = load(w, at + _ALPHA)
            v1r, v1i, v2r, v2i = v1r + alpha * b1r, v1i + alpha * b1i, v2r + alpha * b2r, v2i + alpha * b2i
            top1, top2 = greater(_size(b1r, b1i), top1), greater(_size(b2r, b2i), top2)
        by_value = by_value + (bound1 * _size(v1r, v1i) + bound2 * _size(v2r, v2i))
        by_start = by_start + (bound1 * top1 + bound2 * top2)
        if gradients:
            v1r, v1i, v2r, v2i = zero, zero, zero, zero
            top1, top2 = zero, zero
            for i in range(m):
                at = i * _STEP
                alpha = load(w, at + _ALPHA)
                v1r, v1i = v1r + alpha * load(w, at + _P1R), v1i + alpha * load(w, at + _P1I)
                v2r, v2i = v2r + alpha * load(w, at + _P2R), v2i + alpha * load(w, at + _P2I)
                s1, s2 = _size(v1r, v1i), _size(v2r, v2i)
                if quantity != DENSITY:
                    unit = load(w, at + _INVERSE)
                    s1, s2 = s1 * unit, s2 * unit
                top1 = greater(s1 * s1 * load(w, at + _Q1R), top1)
                top2 = greater(s2 * s2 * load(w, at + _Q2R), top2)
            by_bend = by_bend + (bound1 * root(top1) + bound2 * root(top2))
    store(w, known + _VALUE_ERROR, by_value)
    store(w, known + _START_ERROR, by_start)
    store(w, known + _BEND_ERROR, by_bend)


@_jit
def _trusted(gradients: bool, m: int, w: np.ndarray, lane: int) -> bool:
    """Whether rounding and truncation of one row are as small as promised."""
    at = m * _STEP + lane
    total = w[at + _TOTAL]
    trusted: bool = total > _SMALLEST and w[at + _TOTAL_TERMS] < VALUE_CANCELLATION * total
    if gradients:
        trusted = (
            trusted
            and w[at + _START_TERMS] < GRADIENT_CANCELLATION * w[at + _START]
            and w[at + _BEND_TERMS] < GRADIENT_CANCELLATION * w[at + _BEND]
        )
    if m > RESOLVED_PHASES:
        accepted = VALUE_TRUNCATION if m <= MANY_PHASES else MANY_VALUE_TRUNCATION
        trusted = trusted and w[at + _VALUE_ERROR] < accepted * total
        if gradients:
            trusted = (
                trusted
                and w[at + _START_ERROR] < GRADIENT_TRUNCATION * w[at + _START]
                and w[at + _BEND_ERROR] < GRADIENT_TRUNCATION * w[at + _BEND]
            )
    return trusted


@_jit
def _log_answer(quantity: int, total: float, x: float, slowest: float) -> float:
    """The logarithm that is asked for; ``slowest`` is y of the first phase, by which the sum was shifted."""
    if quantity == CDF:
        return math.log(total)
    if quantity == SURVIVAL:
        return math.log(total) - slowest
    density = total / x
    return (math.log(density) if 1e-300 < density < 1e300 else math.log(total) - math.log(x)) - slowest


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
    known = m * _STEP
    table = _SHORT if m <= RESOLVED_PHASES else _LONG
    memory = np.zeros(known + _FIELDS + LANES)
    # registers are read fastest from places that are multiples of their size
    w = memory[-(memory.ctypes.data // 8) % LANES :]
    possible = np.empty(LANES, dtype=np.bool_)
    for block in range(begin, end, LANES):
        filled = min(LANES, end - block)
        for lane in range(filled):
            r = block + lane
            status[r] = row_status(x[r], initial, rates, rows[r])
            possible[lane] = status[r] == DOUBTFUL and _take(
                quantity, gradients, x[r], initial, rates, rows[r], w, lane
            )
        _sums_over_nodes(quantity, gradients, m, table, w)
        _sums_over_phases(quantity, gradients, m, w)
        if m > RESOLVED_PHASES:
            _probe_bounds(quantity, gradients, m, w)
        last = (m - 1) * _STEP + _Y
        if quantity == DENSITY and gradients and w[last : last + filled].min() < 1.0:
            _early_slope(m, table, w)
        for lane in range(filled):
            if not possible[lane] or not _trusted(gradients, m, w, lane):
                continue
            r = block + lane
            status[r] = TRUSTED
            value[r] = _log_answer(quantity, w[known + _TOTAL + lane], x[r], w[_Y + lane])
            if gradients:
                early = quantity == DENSITY and w[last + lane] < 1.0
                d_x[r] = w[known + (_EARLY if early else _D_X) + lane]
                for i in range(m):
                    d_initial[r, i] = w[i * _STEP + _ANSWER + lane]
                    d_rates[r, i] = w[i * _STEP + _SLOPE + lane]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def classify_rows(
    x: np.ndarray, initial: np.ndarray, rates: np.ndarray, rows: np.ndarray, begin: int, end: int, status: np.ndarray
) -> None:
    """Only the status of each row, where another method answers."""
    for r in range(begin, end):
        status[r] = row_status(x[r], initial, rates, rows[r])
