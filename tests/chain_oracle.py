"""Phase-type functions in ball arithmetic: every answer comes with a proof of its digits.

The exponential is built from a matrix with non-negative entries only, so that the balls stay small at any depth. The
diagonal is taken from the jump and exit rates, which is what a generator means before it is rounded.
"""

import torch
from flint import arb, arb_mat, ctx

ENOUGH_BITS = 80


def exact(value):
    """A float, or a nested list of floats, as exact balls."""
    return [exact(entry) for entry in value] if isinstance(value, list) else arb(float(value))


def matrix(rows):
    return arb_mat(len(rows), len(rows[0]), [entry for row in rows for entry in row])


def bidiagonal(rates):
    """Jump rates and exit rates of a series chain."""
    size = len(rates)
    jumps = [[rates[i] if j == i + 1 else 0.0 for j in range(size)] for i in range(size)]
    return jumps, [0.0] * (size - 1) + [rates[-1]]


def arrays(law):
    """Entry weights, jump rates with a zero diagonal, exit rates: lists of floats."""
    law = law.to_phase_type()
    jumps = law.generator.detach() - torch.diag_embed(law.generator.detach().diagonal(dim1=-2, dim2=-1))
    return law.initial.detach().tolist(), jumps.tolist(), law.exit_rates.detach().tolist()


def _settled(compute):
    """Repeat with more bits until every ball is narrow."""
    before = ctx.prec
    try:
        for bits in (400, 1600, 6400, 25600):
            ctx.prec = bits
            answer = compute()
            balls = answer if isinstance(answer, list) else [answer]
            if all(ball.is_exact() or ball.rel_accuracy_bits() >= ENOUGH_BITS for ball in balls):
                return answer
        raise AssertionError("the oracle ran out of bits")
    finally:
        ctx.prec = before


def _flow(generator, x):
    """``exp(generator x)`` without subtraction."""
    size = generator.nrows()
    shift = max((-generator[i, i] for i in range(size)), key=lambda rate: float(rate.mid()))
    positive = arb_mat(
        size, size, [generator[i, j] + (shift if i == j else 0) for i in range(size) for j in range(size)]
    )
    depth = shift * x
    doublings = max(0, int(float(depth.log().mid()) / 0.6931) + 1) if depth > 0 else 0
    power = (positive * (x / 2**doublings)).exp()
    for _ in range(doublings):
        power = power * power
    return power * (-depth).exp()


def _generator(jumps, exits):
    """Exact generator whose rows are balanced by construction."""
    jumps, exits = exact(jumps), exact(exits)
    size = len(exits)
    rows = [[jumps[i][j] if i != j else -(sum(jumps[i], exits[i])) for j in range(size)] for i in range(size)]
    return matrix(rows)


def _form(initial, jumps, exits, x, target):
    flow = _flow(_generator(jumps, exits), arb(float(x)))
    return (matrix([exact(initial)]) * flow * matrix([[entry] for entry in target]))[0, 0]


def density(initial, jumps, exits, x):
    return _settled(lambda: _form(initial, jumps, exits, x, exact(exits)))


def survival(initial, jumps, exits, x):
    return _settled(lambda: _form(initial, jumps, exits, x, [arb(1)] * len(exits)))


def cdf(initial, jumps, exits, x):
    """Mass of an added absorbing state."""
    size = len(exits)
    wider = [[*row, leave] for row, leave in zip(jumps, exits, strict=True)] + [[0.0] * (size + 1)]
    target = [arb(0)] * size + [arb(1)]
    return _settled(lambda: _form([*initial, 0.0], wider, [0.0] * (size + 1), x, target))


def log(ball):
    before, ctx.prec = ctx.prec, 400
    try:
        return float(ball.log().mid())
    finally:
        ctx.prec = before


def log_density(*args):
    return log(density(*args))


def log_survival(*args):
    return log(survival(*args))


def log_cdf(*args):
    return log(cdf(*args))


def log_form_gradients(initial, jumps, exits, x, target):
    """Derivatives of ``log(initial · exp(generator x) · target)`` by entry weight and by generator entry.

    By generator entry (i, j): the integral of ``(initial exp(A u))_i (exp(A (x - u)) target)_j``, which is a block of
    the exponential of ``[[A, target · initial], [0, A]]``.
    """
    size = len(initial)

    def compute():
        start, final = exact(initial), [arb(float(t)) for t in target]
        single = _generator(jumps, exits)
        double = arb_mat(
            2 * size,
            2 * size,
            [
                single[i % size, j % size]
                if i // size == j // size
                else (final[i] * start[j - size] if i < size else arb(0))
                for i in range(2 * size)
                for j in range(2 * size)
            ],
        )
        flow = _flow(double, arb(float(x)))
        reach = [sum((flow[i, j] * final[j] for j in range(size)), arb(0)) for i in range(size)]
        total = sum((a * r for a, r in zip(start, reach, strict=True)), arb(0))
        by_entry = [r / total for r in reach]
        by_flow = [flow[j, size + i] / total for i in range(size) for j in range(size)]
        return by_entry + by_flow

    found = [float(ball.mid()) for ball in _settled(compute)]
    by_flow = torch.tensor(found[size:], dtype=torch.float64).reshape(size, size)
    return torch.tensor(found[:size], dtype=torch.float64), by_flow


def log_form_slope(initial, jumps, exits, x, target):
    """Derivative of ``log(initial · exp(generator x) · target)`` by x."""

    def compute():
        size = len(initial)
        generator, final = _generator(jumps, exits), [arb(float(t)) for t in target]
        drift = generator * matrix([[entry] for entry in final])
        over = matrix([exact(initial)]) * _flow(generator, arb(float(x)))
        rise = sum((over[0, i] * drift[i, 0] for i in range(size)), arb(0))
        return rise / sum((over[0, i] * final[i] for i in range(size)), arb(0))

    return float(_settled(compute).mid())
