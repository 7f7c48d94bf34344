"""Check the contour's tables in high precision, and print the probe bounds of the long one.

    python -m benchmarks.contour_design

A rational function r(p) = Re Σ w_n / (z_n - p) stands in for exp(p). Printed are its largest error on the negative
axis, the relative error of its derivatives at 0 (what m equal rates need, up to order m - 1), and the bounds
(1/π) |r - exp| |dz| along the probe curve between the poles and the nodes.
"""

import math

import mpmath as mp
import numpy as np

from phvae.kernels.nodes import LONG, LONG_SCALE, PROBES, SHORT, TALBOT

POINTS = len(PROBES)


def rational(table: tuple[tuple[float, ...], ...], p: mp.mpc) -> mp.mpc:
    """r(p) with the rounded nodes and weights that are used."""
    total = mp.mpf(0)
    for zr, zi, wr, wi in table:
        node, weight = mp.mpc(zr, zi), mp.mpc(wr, wi)
        total += (weight / (node - p) + mp.conj(weight) / (mp.conj(node) - p)) / 2
    return total


def probe_curve(points: int) -> tuple[np.ndarray, np.ndarray]:
    """The node contour shrunk to a fifth at its tip and to a half far left; midpoints and lengths of its pieces."""
    a, b, c, d = TALBOT
    step = 0.985 * math.pi / points

    def at(t: np.ndarray) -> np.ndarray:
        t = np.maximum(t, 1e-9)
        shrunk = 0.2 + 0.3 * (t / math.pi) ** 3
        return shrunk * LONG_SCALE * (a * t / np.tan(b * t) - c + 1j * d * t)

    middle = (np.arange(points) + 0.5) * step
    return at(middle), np.abs(at(middle + step / 2) - at(middle - step / 2))


def main() -> None:
    mp.mp.dps = 50
    for name, table in (("short", SHORT), ("long", LONG)):
        axis = [mp.mpf(0), *[-(mp.mpf(10) ** (mp.mpf(k) / 10)) for k in range(-30, 60)]]
        worst = max(abs(rational(table, p) - mp.exp(p)) for p in axis)
        print(f"{name}: {len(table)} nodes, largest error on the negative axis {float(worst):.1e}")
        for order in (1, 2, 5, 9, 10, 15, 20, 31):
            total = mp.mpf(0)
            for zr, zi, wr, wi in table:
                total += mp.re(mp.mpc(wr, wi) / mp.mpc(zr, zi) ** (order + 1))
            print(f"   derivative {order:2d} at 0: relative error {float(abs(total * mp.factorial(order) - 1)):.1e}")
    points, lengths = probe_curve(POINTS)
    print("probes of the long contour: Re z, Im z, bound")
    for z, length in zip(points, lengths, strict=True):
        gap = abs(rational(LONG, mp.mpc(z.real, z.imag)) - mp.exp(mp.mpc(z.real, z.imag)))
        print(f"    ({z.real:.4f}, {z.imag:.4f}, {float(gap) * length / math.pi:.1e}),")


if __name__ == "__main__":
    main()
