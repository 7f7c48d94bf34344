"""The contour fused for CUDA, many phases: a block of rows and all nodes at a time, for any number of phases (Triton).

Nothing is kept between the two sweeps over the phases: the first multiplies the factors λ/(s+λ) up from the exit, the
second takes them off again from the entry, so a row needs a handful of registers per node.
"""

import triton
import triton.language as tl

from phvae.kernels.gpu_few import enlist


@triton.jit
def contour_many(
    x_at, initial_at, rates_at, law_at, nodes_at, probes_at,
    value_at, d_x_at, d_initial_at, d_rates_at, status_at, list_at, count_at,
    rows, phases,
    QUANTITY: tl.constexpr, GRADIENTS: tl.constexpr,
    BLOCK: tl.constexpr, LANES: tl.constexpr, PROBE_LANES: tl.constexpr,
    VALUE_KAPPA: tl.constexpr, GRADIENT_KAPPA: tl.constexpr,
    VALUE_ERROR: tl.constexpr, GRADIENT_ERROR: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """A block of rows; those not trusted, limits among them, go on the list."""
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = r < rows
    x = tl.load(x_at + r, mask=live, other=1.0)
    law = tl.load(law_at + r, mask=live, other=0) * phases
    lane = tl.arange(0, LANES)
    zr, zi = tl.load(nodes_at + lane), tl.load(nodes_at + LANES + lane)
    wr, wi = tl.load(nodes_at + 2 * LANES + lane), tl.load(nodes_at + 3 * LANES + lane)

    # a first look: is this a law, where is it entered first, which rate is the slowest that matters
    sound = x >= 0.0
    mass = tl.zeros([BLOCK], tl.float64)
    shift = tl.zeros([BLOCK], tl.float64)
    after = tl.full([BLOCK], float("inf"), tl.float64)
    entered = tl.zeros([BLOCK], tl.int32)
    slowest_weight = mass
    for back in range(phases):
        i = phases - 1 - back
        rate = tl.load(rates_at + law + i, mask=live, other=1.0)
        alpha = tl.load(initial_at + law + i, mask=live, other=1.0)
        sound = sound & (alpha >= 0.0) & (alpha < float("inf")) & (rate > 0.0) & (rate <= after)
        sound = sound & (rate < float("inf"))
        after = rate
        mass += alpha
        shift = tl.where(alpha > 0.0, rate, shift)
        entered = tl.where(alpha > 0.0, i, entered)
        slowest_weight = alpha
    sound = sound & (mass > 0.0)
    inside = sound & (x > 0.0) & (x < float("inf"))
    if QUANTITY == 2:
        shift = tl.zeros([BLOCK], tl.float64)
    if GRADIENTS:
        inside_trust = inside & (slowest_weight > 0.0)
    else:
        inside_trust = inside
    x = tl.where(inside, x, 1.0)
    scale = 1.0 / x
    if QUANTITY == 2:
        unit = tl.full([BLOCK], 1.0, tl.float64)
    else:
        unit = scale

    sr = zr[None, :] * scale[:, None]
    si = zi[None, :] * scale[:, None]
    cr = tl.zeros([BLOCK, LANES], tl.float64) + wr[None, :]
    ci = tl.zeros([BLOCK, LANES], tl.float64) + wi[None, :]
    br = tl.zeros([BLOCK, LANES], tl.float64)
    bi = tl.zeros([BLOCK, LANES], tl.float64)
    norm = 1.0 / (zr * zr + zi * zi)
    total = tl.zeros([BLOCK], tl.float64)
    total_density = tl.zeros([BLOCK], tl.float64)
    kappa = tl.zeros([BLOCK], tl.float64)
    largest = tl.zeros([BLOCK], tl.float64)
    largest_terms = tl.zeros([BLOCK], tl.float64)
    for back in range(phases):
        i = phases - 1 - back
        rate = tl.load(rates_at + law + i, mask=live, other=1.0)
        alpha = tl.load(initial_at + law + i, mask=live, other=1.0)
        a = sr + (rate - shift)[:, None]
        inverse = rate[:, None] / (a * a + si * si)
        u, v = a * inverse, -si * inverse
        cr, ci = cr * u - ci * v, cr * v + ci * u
        if QUANTITY == 1:
            er, ei = br + wr[None, :] / rate[:, None], bi + wi[None, :] / rate[:, None]
            br, bi = er * u - ei * v, er * v + ei * u
            answer = tl.sum(br, 1)
            terms = tl.sum(tl.abs(br) + tl.abs(bi), 1)
        elif QUANTITY == 2:
            gr = (cr * zr[None, :] + ci * zi[None, :]) * norm[None, :]
            gi = (ci * zr[None, :] - cr * zi[None, :]) * norm[None, :]
            answer = tl.sum(gr, 1)
            terms = tl.sum(tl.abs(gr) + tl.abs(gi), 1)
        else:
            answer = tl.sum(cr, 1)
            terms = tl.sum(tl.abs(cr) + tl.abs(ci), 1)
        answer, terms = answer * unit, terms * unit
        total += alpha * answer
        kappa += alpha * terms
        largest = tl.maximum(largest, tl.abs(answer))
        largest_terms = tl.maximum(largest_terms, terms)
        if GRADIENTS:
            tl.store(d_initial_at + r * phases + i, answer, mask=live)
            if QUANTITY != 0:
                total_density += alpha * tl.sum(cr, 1) * scale
    tl.store(value_at + r, tl.log(total) - shift * x, mask=live)
    trusted = inside_trust & (kappa < VALUE_KAPPA * total)

    largest_slope = tl.zeros([BLOCK], tl.float64)
    if GRADIENTS:
        trusted = trusted & (largest_terms < GRADIENT_KAPPA * largest)
        # a zero product can also be a lane without weight
        size = tl.where(wr[None, :] == 0.0, 1.0, tl.maximum(tl.abs(cr), tl.abs(ci)))
        trusted = trusted & (tl.min(size, 1) > SMALLEST)
        inverse_total = 1.0 / total
        hr = tl.zeros([BLOCK, LANES], tl.float64)
        hi = tl.zeros([BLOCK, LANES], tl.float64)
        started = tl.zeros([BLOCK], tl.float64)
        euler = tl.zeros([BLOCK], tl.float64)
        largest_terms = tl.zeros([BLOCK], tl.float64)
        rate = tl.zeros([BLOCK], tl.float64)
        for i in range(phases):
            rate = tl.load(rates_at + law + i, mask=live, other=1.0)
            alpha = tl.load(initial_at + law + i, mask=live, other=1.0)
            a = sr + (rate - shift)[:, None]
            inverse = rate[:, None] / (a * a + si * si)
            u, v = a * inverse, -si * inverse
            hr += alpha[:, None] * cr
            hi += alpha[:, None] * ci
            er = hr * u - hi * v
            occupied = tl.sum(er, 1) * scale
            terms = tl.sum(tl.abs(er), 1) * scale / rate
            answer = tl.load(d_initial_at + r * phases + i, mask=live, other=0.0)
            if QUANTITY == 0:
                started += alpha * answer
                slope = (started - occupied) / rate
            elif QUANTITY == 1:
                slope = -occupied / (rate * rate)
                terms = terms / rate
            else:
                slope = occupied / (rate * rate)
                terms = terms / rate
            largest_slope = tl.maximum(largest_slope, tl.abs(slope))
            largest_terms = tl.maximum(largest_terms, terms)
            euler += rate * slope
            tl.store(d_rates_at + r * phases + i, slope * inverse_total, mask=live)
            tl.store(d_initial_at + r * phases + i, answer * inverse_total, mask=live)
            # take this phase's factor off: P_{i+1} = P_i (s + λ_i) / λ_i
            a = a / rate[:, None]
            b = si / rate[:, None]
            cr, ci = cr * a - ci * b, cr * b + ci * a
        trusted = trusted & (largest_terms < GRADIENT_KAPPA * largest_slope)
        if QUANTITY == 0:
            d_x = (euler * inverse_total - 1.0) * scale
            # inflow over stock of the last phase keeps its digits as x goes to zero
            early = tl.zeros([BLOCK], tl.float64)
            pr = tl.zeros([BLOCK, LANES], tl.float64) + wr[None, :]
            pi = tl.zeros([BLOCK, LANES], tl.float64) + wi[None, :]
            for back in range(phases - 1):
                i = phases - 2 - back
                before = tl.load(rates_at + law + i, mask=live, other=1.0)
                alpha = tl.load(initial_at + law + i, mask=live, other=1.0)
                a = sr + (before - shift)[:, None]
                inverse = before[:, None] / (a * a + si * si)
                u, v = a * inverse, -si * inverse
                pr, pi = pr * u - pi * v, pr * v + pi * u
                early += alpha * tl.sum(pr, 1)
            d_x = tl.where(rate * x < 1.0, early * scale * rate * inverse_total - rate, d_x)
        elif QUANTITY == 1:
            d_x = -total_density * inverse_total
        else:
            d_x = total_density * inverse_total
        tl.store(d_x_at + r, d_x, mask=live)

    lane = tl.arange(0, PROBE_LANES)
    yr, yi = tl.load(probes_at + lane), tl.load(probes_at + PROBE_LANES + lane)
    bound = tl.load(probes_at + 2 * PROBE_LANES + lane)
    sr = yr[None, :] * scale[:, None]
    si = yi[None, :] * scale[:, None]
    cr = tl.zeros([BLOCK, PROBE_LANES], tl.float64) + 1.0
    ci = tl.zeros([BLOCK, PROBE_LANES], tl.float64)
    br = tl.zeros([BLOCK, PROBE_LANES], tl.float64)
    bi = tl.zeros([BLOCK, PROBE_LANES], tl.float64)
    lr = tl.zeros([BLOCK, PROBE_LANES], tl.float64)
    li = tl.zeros([BLOCK, PROBE_LANES], tl.float64)
    top = tl.zeros([BLOCK, PROBE_LANES], tl.float64)
    for back in range(phases):
        i = phases - 1 - back
        rate = tl.load(rates_at + law + i, mask=live, other=1.0)
        alpha = tl.load(initial_at + law + i, mask=live, other=1.0)
        a = sr + (rate - shift)[:, None]
        inverse = rate[:, None] / (a * a + si * si)
        u, v = a * inverse, -si * inverse
        cr, ci = cr * u - ci * v, cr * v + ci * u
        if QUANTITY == 1:
            er = br + 1.0 / rate[:, None]
            br, bi = er * u - bi * v, er * v + bi * u
            gr, gi = br, bi
        elif QUANTITY == 2:
            far = sr * sr + si * si
            gr, gi = (cr * sr + ci * si) / far, (ci * sr - cr * si) / far
        else:
            gr, gi = cr, ci
        inside_chain = entered[:, None] <= i
        lr += tl.where(inside_chain, alpha[:, None] * gr, 0.0)
        li += tl.where(inside_chain, alpha[:, None] * gi, 0.0)
        top = tl.maximum(top, tl.where(inside_chain, tl.abs(gr) + tl.abs(gi), 0.0))
    trusted = trusted & (tl.sum(bound[None, :] * (tl.abs(lr) + tl.abs(li)), 1) * scale < VALUE_ERROR * total)
    if GRADIENTS:
        hr = tl.zeros([BLOCK, PROBE_LANES], tl.float64)
        hi = tl.zeros([BLOCK, PROBE_LANES], tl.float64)
        steepest = tl.zeros([BLOCK, PROBE_LANES], tl.float64)
        for i in range(phases):
            rate = tl.load(rates_at + law + i, mask=live, other=1.0)
            alpha = tl.load(initial_at + law + i, mask=live, other=1.0)
            a = sr + (rate - shift)[:, None]
            hr += alpha[:, None] * cr
            hi += alpha[:, None] * ci
            steepest = tl.maximum(steepest, (tl.abs(hr) + tl.abs(hi)) * tl.rsqrt(a * a + si * si))
            a = a / rate[:, None]
            b = si / rate[:, None]
            cr, ci = cr * a - ci * b, cr * b + ci * a
        trusted = trusted & (tl.sum(bound[None, :] * top, 1) * scale < GRADIENT_ERROR * largest)
        trusted = trusted & (tl.sum(bound[None, :] * steepest, 1) * scale < GRADIENT_ERROR * largest_slope)
    status = tl.where(sound, tl.where(inside, tl.where(trusted, 0, 1), 2), 3)
    tl.store(status_at + r, status.to(tl.int8), mask=live)
    enlist(r, status, live, list_at, count_at)
