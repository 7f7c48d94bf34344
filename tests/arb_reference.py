"""Rigorous log density, survival and cdf of series chains, with derivatives, in Arb ball arithmetic.

Nothing here shares a formula with the package: the value is a corner of a matrix exponential, and all derivatives are
corners of the exponential of a block matrix, [[A, b a], [0, A]], whose upper right block is the directional integral.
"""

from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, ctx

WANTED_BITS = 90


@dataclass(frozen=True)
class Reference:
    """Log of the quantity and its partial derivatives, rounded from balls narrower than 2^-90."""

    value: float
    d_x: float
    d_initial: np.ndarray
    d_rates: np.ndarray


class _ImpreciseError(Exception):
    pass


def log_reference(quantity, x, initial, rates, *, gradients=True):
    """``quantity`` is "density", "survival" or "cdf"; the precision grows until every ball is narrow."""
    before, bits = ctx.prec, 256
    try:
        while True:
            ctx.prec = bits
            try:
                return _evaluate(quantity, x, initial, rates, gradients)
            except _ImpreciseError:
                bits *= 2
                assert bits <= 2**16, "this case needs more precision than a test can pay"
    finally:
        ctx.prec = before


def log_interval_reference(lower, upper, initial, rates):
    """Log of S(lower) - S(upper), with as many bits as the cancellation takes."""
    before, bits = ctx.prec, 256
    try:
        while True:
            ctx.prec = bits
            m = len(rates)
            total = arb(0)
            for x, sign in ((lower, 1), (upper, -1)):
                chain = arb_mat(m, m)
                for k in range(m):
                    chain[k, k] = -arb(float(rates[k])) * arb(float(x))
                    if k + 1 < m:
                        chain[k, k + 1] = arb(float(rates[k])) * arb(float(x))
                exponential = chain.exp()
                reach = [_dot([arb(1)] * m, [exponential[i, j] for j in range(m)]) for i in range(m)]
                total += sign * _dot([arb(float(a)) for a in initial], reach)
            if total.rel_accuracy_bits() >= WANTED_BITS:
                return float(total.log())
            bits *= 2
            assert bits <= 2**16, "this case needs more precision than a test can pay"
    finally:
        ctx.prec = before


def _evaluate(quantity, x, initial, rates, gradients):
    m = len(rates)
    x, alpha, rate = arb(float(x)), [arb(float(a)) for a in initial], [arb(float(r)) for r in rates]
    size = m + 1 if quantity == "cdf" else m
    entered = next(i for i in range(m) if alpha[i] != 0)
    # the mean decay is taken out, or tails below e^-1e6 would need a million bits
    shift = arb(0) if quantity == "cdf" else rate[entered]
    start = alpha + [arb(0)] * (size - m)
    if quantity == "density":
        target = [arb(0)] * (m - 1) + [rate[-1]]
    elif quantity == "survival":
        target = [arb(1)] * m
    else:
        target = [arb(0)] * m + [arb(1)]
    chain = arb_mat(size, size)
    for k in range(m):
        chain[k, k] = (shift - rate[k]) * x
        if k + 1 < size:
            chain[k, k + 1] = rate[k] * x
    if size > m:
        chain[m, m] = shift * x
    if not gradients:
        exponential = chain.exp()
        reach = [_dot(target, [exponential[i, j] for j in range(size)]) for i in range(size)]
        return Reference(_log(_dot(start, reach)) - float(shift * x), None, None, None)
    block = arb_mat(2 * size, 2 * size)
    for i in range(size):
        for j in range(size):
            block[i, j] = chain[i, j]
            block[size + i, size + j] = chain[i, j]
            block[i, size + j] = target[i] * start[j] * x
    exponential = block.exp()
    reach = [_dot(target, [exponential[i, j] for j in range(size)]) for i in range(size)]
    value = _dot(start, reach)
    _require(value)
    # integral[j, i] is the derivative of the value by the entry (i, j) of the generator
    integral = [[exponential[j, size + i] for j in range(size)] for i in range(size)]
    slopes = []
    for k in range(m):
        slope = -integral[k][k]
        if k + 1 < size:
            slope += integral[k][k + 1]
        if quantity == "density" and k == m - 1:
            occupied = _dot(start, [exponential[i, m - 1] for i in range(size)])
            slope += occupied
        slopes.append(slope / value)
    by_x = sum((rate[k] * slopes[k] for k in range(m)), arb(0))
    if quantity == "density":
        by_x -= 1  # the exit rate scales with the rates but is not part of the clock
    by_x /= x
    by_initial = [reach[i] / value for i in range(m)]
    for group in (slopes, by_initial):
        _require_together(group)
    _require_together([by_x * x, arb(1)])
    return Reference(
        _log(value) - float(shift * x),
        float(by_x),
        np.array([float(v) for v in by_initial]),
        np.array([float(v) for v in slopes]),
    )


def _dot(left, right):
    return sum((a * b for a, b in zip(left, right, strict=True)), arb(0))


def _require(ball):
    if ball.rel_accuracy_bits() < WANTED_BITS:
        raise _ImpreciseError


def _require_together(balls):
    """Every ball is narrow beside the largest of the group."""
    largest = max(abs(float(ball.mid())) for ball in balls)
    if max(float(ball.rad()) for ball in balls) > 2.0**-60 * largest:
        raise _ImpreciseError


def _log(ball):
    _require(ball)
    return float(ball.log())
