"""The contour fused for CUDA, few phases: one thread a row, everything of a node in registers (Triton).

The phases are unrolled, the nodes are a loop. In units of x, with y_k = λ_k x and δ_k = y_k less the slowest, a node z
contributes its products p_i = w Π_{k>=i} y_k / (z + δ_k) on the way from the exit to the entry, and the time in every
phase, from h_i = Σ_{j<=i} α_j p_j, on the way back; only sums over nodes outlive it.
"""

import triton
import triton.language as tl


@triton.jit
def reciprocal(d, FUSED: tl.constexpr):
    """1 / d without the branches of an IEEE division: a 20-bit start and one cubic Newton step."""
    if FUSED:
        y = tl.inline_asm_elementwise("rcp.approx.ftz.f64 $0, $1;", "=d,d", [d], tl.float64, True, 1)
        e = tl.fma(-d, y, 1.0)
        y = tl.fma(y, tl.fma(e, e, e), y)
    else:
        y = 1.0 / d
    return y


@triton.jit
def enlist(r, status, live, list_at, count_at):
    """Append the rows that are not trusted to the list of the kernel that comes next."""
    left = (live & (status > 0)).to(tl.int32)
    many = tl.sum(left, 0)
    if many > 0:
        begin = tl.atomic_add(count_at, many)
        tl.store(list_at + begin + tl.cumsum(left, 0) - left, r.to(tl.int32), mask=left > 0)


@triton.jit
def contour_few(
    x_at, initial_at, rates_at, law_at, nodes_at,
    value_at, d_x_at, d_initial_at, d_rates_at, status_at, list_at, count_at,
    rows, nodes,
    PHASES: tl.constexpr, QUANTITY: tl.constexpr, GRADIENTS: tl.constexpr, BLOCK: tl.constexpr, FUSED: tl.constexpr,
    VALUE_KAPPA: tl.constexpr, GRADIENT_KAPPA: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """A block of rows, one a thread; those not trusted, limits among them, go on the list."""
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = r < rows
    x = tl.load(x_at + r, mask=live, other=1.0)
    law = tl.load(law_at + r, mask=live, other=0) * PHASES

    alpha, rate = (), ()
    sound = x >= 0.0
    mass = tl.zeros([BLOCK], tl.float64)
    before = tl.zeros([BLOCK], tl.float64)
    shift = tl.zeros([BLOCK], tl.float64)
    for i in tl.static_range(PHASES):
        a = tl.load(initial_at + law + i, mask=live, other=1.0)
        k = tl.load(rates_at + law + i, mask=live, other=1.0)
        sound = sound & (a >= 0.0) & (a < float("inf")) & (k > 0.0) & (k >= before) & (k < float("inf"))
        if QUANTITY != 2:
            shift = tl.where((mass == 0.0) & (a > 0.0), k, shift)
        before = k
        mass += a
        alpha = alpha + (a,)
        rate = rate + (k,)
    sound = sound & (mass > 0.0)
    inside = sound & (x > 0.0) & (x < float("inf"))
    x = tl.where(inside, x, 1.0)
    clock, gap, answer, terms, occupied, spread = (), (), (), (), (), ()
    for i in tl.static_range(PHASES):
        clock = clock + (rate[i] * x,)
        # phases before the first entry never matter to a value; gradients leave such rows to squaring
        gap = gap + (tl.maximum(rate[i] - shift, 0.0) * x,)
        answer = answer + (tl.zeros([BLOCK], tl.float64),)
        terms = terms + (tl.zeros([BLOCK], tl.float64),)
        occupied = occupied + (tl.zeros([BLOCK], tl.float64),)
        spread = spread + (tl.zeros([BLOCK], tl.float64),)
    density = tl.zeros([BLOCK], tl.float64)
    inflow = tl.zeros([BLOCK], tl.float64)

    for n in range(nodes):
        zr, zi = tl.load(nodes_at + 6 * n), tl.load(nodes_at + 6 * n + 1)
        wr, wi = tl.load(nodes_at + 6 * n + 2), tl.load(nodes_at + 6 * n + 3)
        square = zi * zi
        cr, ci = tl.zeros([BLOCK], tl.float64) + wr, tl.zeros([BLOCK], tl.float64) + wi
        br, bi = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
        pr, pi, inverse, sums, sizes = (), (), (), (), ()
        for i in tl.static_range(PHASES - 1, -1, -1):
            a = gap[i] + zr
            near = reciprocal(tl.fma(a, a, square), FUSED)
            q = near * clock[i]
            u, v = a * q, zi * q  # the factor is u - v i
            cr, ci = tl.fma(ci, v, cr * u), tl.fma(ci, u, -(cr * v))
            if QUANTITY == 1:
                u, v = a * near, zi * near
                er, ei = tl.fma(br, clock[i], wr), tl.fma(bi, clock[i], wi)
                br, bi = tl.fma(ei, v, er * u), tl.fma(ei, u, -(er * v))
                gr, gi = br, bi
            elif QUANTITY == 2:
                fr, fi = tl.load(nodes_at + 6 * n + 4), tl.load(nodes_at + 6 * n + 5)
                gr, gi = cr * fr - ci * fi, cr * fi + ci * fr
            else:
                gr, gi = cr, ci
            if QUANTITY != 0:
                density = tl.fma(alpha[i], cr, density)
            sums = (answer[i] + gr,) + sums
            sizes = (terms[i] + tl.abs(gr) + tl.abs(gi),) + sizes
            pr, pi, inverse = (cr,) + pr, (ci,) + pi, (q,) + inverse
        answer, terms = sums, sizes
        if GRADIENTS:
            hr, hi = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
            sums, sizes = (), ()
            for i in tl.static_range(PHASES):
                a = gap[i] + zr
                if QUANTITY == 0 and i == PHASES - 1:
                    inflow += hr * a - hi * zi
                hr, hi = tl.fma(alpha[i], pr[i], hr), tl.fma(alpha[i], pi[i], hi)
                er = (hr * a + hi * zi) * inverse[i]
                sums = sums + (occupied[i] + er,)
                sizes = sizes + (spread[i] + tl.abs(er),)
            occupied, spread = sums, sizes

    total, kappa, largest, widest = density * 0.0, density * 0.0, density * 0.0, density * 0.0
    for i in tl.static_range(PHASES):
        total += alpha[i] * answer[i]
        kappa += alpha[i] * terms[i]
        largest = tl.maximum(largest, tl.abs(answer[i]))
        widest = tl.maximum(widest, terms[i])
    trusted = inside & (kappa < VALUE_KAPPA * total) & (total > SMALLEST)
    value = tl.log(total) if QUANTITY == 2 or QUANTITY == 1 else tl.log(total / x)
    tl.store(value_at + r, value - shift * x, mask=live)
    if GRADIENTS:
        trusted = trusted & (alpha[0] > 0.0) & (widest < GRADIENT_KAPPA * largest)
        per_total = 1.0 / total
        started, euler = density * 0.0, density * 0.0
        largest, widest = density * 0.0, density * 0.0
        for i in tl.static_range(PHASES):
            tl.store(d_initial_at + r * PHASES + i, answer[i] * per_total, mask=live)
            per_clock = 1.0 / clock[i]
            if QUANTITY == 0:
                started += alpha[i] * answer[i]
                slope = (started - occupied[i]) * per_clock
                euler += started - occupied[i]
                size = spread[i] * per_clock
            else:
                size = spread[i] * per_clock * per_clock
                slope = occupied[i] * per_clock * per_clock
                if QUANTITY == 1:
                    slope = -slope
            largest = tl.maximum(largest, tl.abs(slope))
            widest = tl.maximum(widest, size)
            tl.store(d_rates_at + r * PHASES + i, slope * per_total * x, mask=live)
        trusted = trusted & (widest < GRADIENT_KAPPA * largest)
        if QUANTITY == 0:
            # inflow over stock of the last phase keeps its digits as x goes to zero
            early = (inflow * per_total / clock[PHASES - 1] - 1.0) * rate[PHASES - 1]
            d_x = tl.where(clock[PHASES - 1] < 1.0, early, (euler * per_total - 1.0) / x)
        elif QUANTITY == 1:
            d_x = -density * per_total / x
        else:
            d_x = density * per_total / x
        tl.store(d_x_at + r, d_x, mask=live)
    status = tl.where(sound, tl.where(inside, tl.where(trusted, 0, 1), 2), 3)
    tl.store(status_at + r, status.to(tl.int8), mask=live)
    enlist(r, status, live, list_at, count_at)
