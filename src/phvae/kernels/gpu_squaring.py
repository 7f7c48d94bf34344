"""Scaling and squaring fused for CUDA: the arithmetic of `cpu_squaring`, one program a row (Triton).

The matrices of a row are tiles in registers and their products run on the float64 tensor cores. The rows are those a
contour kernel put on a list in device memory, so that the host need not know how many there are; rows at the ends of
the half-line get the limits of `limits` here, and rows that are no law get NaN.
"""

import triton
import triton.language as tl

# Up to so many phases a row's matrices fit the registers of one program.
MOST_PHASES = tl.constexpr(64)
# Below this an entry of V nears the denormal range; its phases are computed again with a shift of their own.
_TINY, _LOG_TINY = tl.constexpr(1e-290), tl.constexpr(-667.7496767682732)
# Sums above this were not spoiled by shares that underflowed.
_SAFE = tl.constexpr(1e-270)
_NEGLIGIBLE = tl.constexpr(-45.0)  # log of a share that changes no digit


@triton.jit
def _log_sum(terms):
    top = tl.max(terms, 0)
    top = tl.where(top > -float("inf"), top, 0.0)
    return top + tl.log(tl.sum(tl.exp(terms - top), 0))


@triton.jit
def _chain(x, rate, begin, shift, phases, k):
    """Balanced chain of the phases from ``begin`` on; those before it stand still."""
    member = (k >= begin) & (k < phases)
    delta = tl.where(member, (rate - shift) * x, 0.0)
    jump = tl.where(member, tl.maximum(delta, 1.0), 1.0)
    step = tl.where(member, tl.log(rate * x / jump), 0.0)
    through = tl.cumsum(step, 0)
    return delta, tl.where(member, jump, 0.0), through - step, tl.sum(step, 0)


@triton.jit
def _exponential(delta, jump, entry, phases, k, ABSORBED: tl.constexpr, TIME: tl.constexpr, P: tl.constexpr):
    """V = exp(B), with TIME the lower triangle of K(1), with ABSORBED the column of the absorbing state."""
    i, j = k[:, None], k[None, :]
    last = phases - 1
    largest = tl.max(jump, 0)
    levels = tl.ceil(tl.log2(largest)).to(tl.int32) + 1
    one = largest * 0.0 + 1.0
    t = one
    for _ in range(levels):
        t *= 0.5
    top = tl.max(delta, 0) * t
    stay = top - delta * t
    move = tl.where(k < last, jump, 0.0) * t
    leave = tl.sum(tl.where(k == last, jump, 0.0), 0) * t
    left = tl.maximum(k - 1, 0)
    into = tl.where(k > 0, tl.gather(move, left, 0), 0.0)
    lefts = tl.broadcast_to(left[None, :], (P, P))
    below = tl.broadcast_to(tl.minimum(k + 1, P - 1)[:, None], (P, P))
    V = tl.where(i == j, 1.0, tl.zeros([P, P], tl.float64))
    term = V
    absorbed = tl.zeros([P], tl.float64)
    fed = absorbed
    row = entry * t
    fresh = tl.where(i == last, row[None, :], tl.zeros([P, P], tl.float64))
    K = fresh
    # an entry d jumps off the diagonal starts at order d; sixteen orders more reach the last bit, as t * B is below 1/2
    for order in range(1, phases + 17):
        share = 1.0 / (one * order)
        if ABSORBED:
            fed = (fed * top + tl.sum(tl.where(j == last, term, 0.0), 1) * leave) * share
            absorbed += fed
        term = (term * stay[None, :] + tl.gather(term, lefts, 1) * into[None, :]) * share
        V += term
        if TIME:
            # fresh = sum_j N^j b a N^(order-j) / (order + 1)!, kept below the diagonal
            row = (row * stay + tl.gather(row, left, 0) * into) * share
            moved = fresh * stay[:, None] + tl.gather(fresh, below, 0) * move[:, None]
            moved += tl.where(i == last, row[None, :], 0.0)
            fresh = tl.where(j <= i, moved * (1.0 / (one * order + 1.0)), 0.0)
            K += fresh
    shrink = tl.exp(-top)
    V = tl.where(i == j, tl.exp(-delta * t)[None, :], V * shrink)
    K *= shrink
    absorbed *= shrink
    for _ in range(levels):
        if TIME:
            K = tl.where(j <= i, tl.dot(V, K, tl.dot(K, V, out_dtype=tl.float64), out_dtype=tl.float64), 0.0)
        if ABSORBED:
            absorbed += tl.sum(V * absorbed[None, :], 1)
        t *= 2.0
        # the diagonal is known exactly: put back, it keeps errors proportional to the number of squarings
        V = tl.where(i == j, tl.exp(-delta * t)[None, :], tl.dot(V, V, out_dtype=tl.float64))
    return V, K, absorbed


@triton.jit
def _limit(x, alpha, rate, phases, k, status, QUANTITY: tl.constexpr):
    """Value and derivatives at zero and at infinity, NaN for what is no law."""
    last = phases - 1
    none = alpha * 0.0 + float("nan")
    mass = tl.sum(alpha, 0)
    exits = tl.sum(tl.where(k == last, alpha * rate, 0.0), 0)
    value, d_x = exits * 0.0 + float("nan"), exits * 0.0 + float("nan")
    d_initial, d_rates = none, none
    if status == 2:
        if x > 0.0:
            value = exits * 0.0 - float("inf")
            first = tl.min(tl.where(alpha > 0.0, k, phases), 0)
            d_x = -tl.sum(tl.where(k == first, rate, 0.0), 0)
        elif QUANTITY == 1:
            value = tl.log(mass)
            d_x = -exits / mass
            d_initial, d_rates = alpha * 0.0 + 1.0 / mass, alpha * 0.0
        else:
            final = tl.max(tl.where(alpha > 0.0, k, -1), 0)
            d_initial = tl.where(k > final, float("inf"), tl.where(k == final, 1.0 / alpha, 0.0))
            d_rates = tl.where(k >= final, 1.0 / rate, 0.0)
            value = tl.log(exits)
            before = tl.sum(tl.where(k == last - 1, alpha * rate, 0.0), 0)
            slope = before / tl.sum(tl.where(k == last, alpha, 0.0), 0)
            slope -= tl.sum(tl.where(k == last, rate, 0.0), 0)
            d_x = tl.where(final == last, slope, float("inf"))
    return value, d_x, d_initial, d_rates


@triton.jit
def _row(x, alpha, rate, phases, k, QUANTITY: tl.constexpr, GRADIENTS: tl.constexpr, P: tl.constexpr):
    """Value and derivatives of one row strictly inside the half-line."""
    i, j = k[:, None], k[None, :]
    last = phases - 1
    log_alpha = tl.log(alpha)
    nothing = alpha * 0.0
    never = nothing - float("inf")
    log_density, log_answer, log_inflow = never, never, never
    resolved = k * 0 - 1
    last_rate = tl.sum(tl.where(k == last, rate, 0.0), 0)
    rate_before = tl.sum(tl.where(k == last - 1, rate, 0.0), 0)
    begin = last * 0
    if not GRADIENTS:
        begin = tl.min(tl.where(alpha > 0.0, k, phases), 0)
    total = x * 0.0 - float("inf")
    whole = begin < 0
    time = nothing
    while begin < phases:
        shift = tl.sum(tl.where(k == begin, rate, 0.0), 0) * (0.0 if QUANTITY == 2 else 1.0)
        delta, jump, log_ratio, to_absorption = _chain(x, rate, begin, shift, phases, k)
        # entries no larger than one: where no row of V is tiny, the sum they weigh cannot underflow
        weight = tl.where(alpha > 0.0, log_alpha - log_ratio, -float("inf"))
        entry = tl.exp(weight - tl.max(weight, 0))
        V, K, absorbed = _exponential(delta, jump, entry, phases, k, QUANTITY == 2, GRADIENTS, P)
        reach = tl.sum(tl.where(j == last, V, 0.0), 1)
        ratio_of_last = tl.sum(tl.where(k == last, log_ratio, 0.0), 0)
        base = tl.log(last_rate) - shift * x + ratio_of_last
        density = base - log_ratio + tl.log(reach)
        if QUANTITY == 1:
            reached = tl.log(V) + tl.where(k < phases, log_ratio, -float("inf"))[None, :]
            reached = tl.where(j >= i, reached, -float("inf"))
            top = tl.max(reached, 1)
            mass = tl.max(V, 1)
            answer = top + tl.log(tl.sum(tl.exp(reached - top[:, None]), 1)) - log_ratio - shift * x
            ahead = tl.where((j >= i) & (j < phases), log_ratio[None, :], -float("inf"))
            ceiling = tl.max(ahead, 1) + tl.log(last_rate * 0.0 + phases) - shift * x
        elif QUANTITY == 2:
            mass = absorbed
            answer = tl.log(absorbed) + to_absorption - log_ratio
            ceiling = nothing + base
        else:
            mass = reach
            answer = density
            ceiling = nothing + base
            ratio_before = tl.sum(tl.where(k == last - 1, log_ratio, 0.0), 0)
            inflow = tl.log(rate_before) - shift * x + ratio_before - log_ratio
            inflow += tl.log(tl.sum(tl.where(j == last - 1, V, 0.0), 1))
        member = (k >= begin) & (k < phases)
        tiny = member & (mass < _TINY)
        found = member & (mass >= _TINY)
        resolved = tl.where(found, begin, resolved)
        log_density = tl.where(found, density, log_density)
        log_answer = tl.where(found, answer, log_answer)
        if QUANTITY == 0:
            log_inflow = tl.where(found, inflow, log_inflow)
        total = _log_sum(tl.where(alpha > 0.0, log_alpha + log_answer, -float("inf")))
        missed = tl.where(tiny & (alpha > 0.0), log_alpha + ceiling - log_ratio + _LOG_TINY, -float("inf"))
        if GRADIENTS:
            stock = tl.sum(tl.where(found, entry * reach, 0.0), 0)
            whole = (begin == 0) & (tl.sum(tiny.to(tl.int32), 0) == 0) & (stock > _SAFE)
            time = tl.where(whole, x / stock, 0.0) * tl.sum(tl.where((i == j) & member[:, None], K, 0.0), 1)
        following = tl.min(tl.where(tiny, k, phases), 0)
        begin = tl.where(tl.max(missed, 0) > total + _NEGLIGIBLE, following, phases)

    d_x, d_initial, d_rates = x * 0.0, nothing, nothing
    if GRADIENTS:
        entered = tl.where(alpha > 0.0, log_alpha + log_density, -float("inf"))
        total_density = _log_sum(entered)
        # the usual row is done; otherwise the time is counted segment by segment of the entry phase
        begin = tl.min(tl.where((resolved >= 0) & ~whole, resolved, phases), 0)
        while begin < phases:
            shift = tl.sum(tl.where(k == begin, rate, 0.0), 0) * (0.0 if QUANTITY == 2 else 1.0)
            delta, jump, log_ratio, to_absorption = _chain(x, rate, begin, shift, phases, k)
            base = tl.log(last_rate) - shift * x + tl.sum(tl.where(k == last, log_ratio, 0.0), 0)
            matters = (resolved == begin) & (entered - total_density > 2.0 * _NEGLIGIBLE)
            entry = tl.where(matters, tl.exp(log_alpha + base - log_ratio - total_density), 0.0)
            if tl.max(entry, 0) > 0.0:
                _reach, K, _absorbed = _exponential(delta, jump, entry, phases, k, False, True, P)
                time += tl.sum(tl.where((i == j) & (i < phases), K, 0.0), 1) * x
            begin = tl.min(tl.where(resolved > begin, resolved, phases), 0)
        d_initial = tl.exp(log_answer - total)
        odds = tl.exp(total_density - total)
        if QUANTITY == 0:
            started = tl.cumsum(tl.where(alpha > 0.0, tl.exp(entered - total), 0.0), 0)
            balance = started - rate * time
            d_rates = balance / rate
            # inflow over stock of the last phase; Euler's identity loses its digits as x goes to zero
            arrived = (alpha > 0.0) & (k < last)
            early = tl.sum(tl.where(arrived, tl.exp(log_alpha + log_inflow - total), 0.0), 0)
            euler = tl.sum(tl.where(k < phases, balance, 0.0), 0)
            d_x = tl.where(last_rate * x < 1.0, (early - 1.0) * last_rate, (euler - 1.0) / x)
        elif QUANTITY == 1:
            d_rates = -time * odds / rate
            d_x = -odds
        else:
            d_rates = time * odds / rate
            d_x = odds
    return total, d_x, d_initial, d_rates


@triton.jit
def squaring_listed(
    x_at, initial_at, rates_at, law_at, value_at, d_x_at, d_initial_at, d_rates_at, status_at, list_at, count_at,
    phases,
    QUANTITY: tl.constexpr, GRADIENTS: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """The rows on the list, shared out among the programs."""
    k = tl.arange(0, P)
    for at in range(tl.program_id(0), tl.load(count_at), tl.num_programs(0)):
        r = tl.load(list_at + at).to(tl.int64)
        status = tl.load(status_at + r).to(tl.int32)
        x = tl.load(x_at + r)
        law = tl.load(law_at + r) * phases
        alpha = tl.load(initial_at + law + k, mask=k < phases, other=0.0)
        rate = tl.load(rates_at + law + k, mask=k < phases, other=1.0)
        if status == 1:
            value, d_x, d_initial, d_rates = _row(x, alpha, rate, phases, k, QUANTITY, GRADIENTS, P)
        else:
            value, d_x, d_initial, d_rates = _limit(x, alpha, rate, phases, k, status, QUANTITY)
        tl.store(value_at + r, value)
        if GRADIENTS:
            tl.store(d_x_at + r, d_x)
            tl.store(d_initial_at + r * phases + k, d_initial, mask=k < phases)
            tl.store(d_rates_at + r * phases + k, d_rates, mask=k < phases)
