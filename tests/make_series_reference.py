"""Write tests/series_reference.npz: rigorous values and gradients on a fixed grid, for CPU and GPU tests alike.

    python tests/make_series_reference.py

Every case is a chain (phases, rates, start vector), a point and a quantity; L x runs from 1e-12 to 1e8 and the tail
down to log S = -1e6. It takes some minutes, which is why the result is kept.
"""

from pathlib import Path

import numpy as np
from arb_reference import log_reference

FILE = Path(__file__).with_name("series_reference.npz")
QUANTITIES = ("density", "survival", "cdf")
PHASES = (1, 2, 3, 6, 10, 12, 20, 33, 64)
CLOCKS = (1e-12, 1e-5, 0.3, 3.0, 40.0, 1e3, 1e5, 1e8)
DEEPEST = 1e6


def chains(m, rng):
    """Names, rates and start vectors: equal, nearly equal, spread, stiff, and as a decoder emits them."""
    even = np.full(m, 1 / m)
    yield "equal", np.full(m, 2.0), even
    yield "nearly equal", 1 + 1e-9 * np.arange(m), rng.dirichlet(np.ones(m))
    yield "clustered", np.sort(np.repeat([1.0, 1e3, 1e8], -(-m // 3))[:m] * (1 + 1e-5 * rng.random(m))), even
    yield "stiff", np.geomspace(1e-4, 1e4, m), rng.dirichlet(np.full(m, 0.3))
    yield "decoder", np.cumsum(rng.gamma(0.5, 1.0, m) + 1e-3), rng.dirichlet(np.ones(m))
    if m > 1:
        late = np.zeros(m)
        late[0] = 1.0
        yield "first phase only", np.geomspace(0.5, 5, m), late


def main():
    rng = np.random.default_rng(0)
    cases = []
    for m in PHASES:
        for name, rates, initial in chains(m, rng):
            for clock in CLOCKS if m <= 20 else CLOCKS[::2]:
                x = min(clock / rates[-1], DEEPEST / rates[0])
                for code, quantity in enumerate(QUANTITIES):
                    found = log_reference(quantity, x, initial, rates)
                    cases.append((code, x, initial, rates, found))
            print(m, name, len(cases), flush=True)
    width = max(PHASES)

    def padded(vectors):
        return np.array([np.pad(v, (0, width - len(v)), constant_values=np.nan) for v in vectors])

    codes, x, initial, rates, found = zip(*cases, strict=True)
    np.savez_compressed(
        FILE,
        quantity=np.array(codes, dtype=np.int8),
        phases=np.array([len(r) for r in rates], dtype=np.int8),
        x=np.array(x),
        initial=padded(initial),
        rates=padded(rates),
        value=np.array([f.value for f in found]),
        d_x=np.array([f.d_x for f in found]),
        d_initial=padded([f.d_initial for f in found]),
        d_rates=padded([f.d_rates for f in found]),
    )


if __name__ == "__main__":
    main()
