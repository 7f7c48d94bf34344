r"""Nodes and weights of the contour, and the thresholds that decide whether its answer is trusted.

The density of a chain whose slowest rate has been shifted to zero is a divided difference of the exponential at the
points -d_k x <= 0 (d_k: rate minus slowest rate). Replacing exp by a rational function with poles at the nodes,

    r(p) = Re sum_n w_n / (z_n - p)  ~  exp(p)     for p <= 0,

turns it into  f(x) = (1/x) Re sum_n w_n L(z_n / x),  L the Laplace transform. What matters is not only the error of r
but of its derivatives, since rates that lie together act as one pole of high order.

`SHORT`, for few phases, has weights fitted so that r reproduces exp on the whole negative axis and its first ten
derivatives at 0: ten phases or fewer are always resolved, and only rounding can spoil the sum. `LONG`, for more phases,
is the trapezoidal rule on Weideman's modified Talbot contour ("Optimizing Talbot's contours for the inversion of the
Laplace transform", SIAM J. Numer. Anal. 44, 2006); there the probes say whether it resolves the chain.
`benchmarks/contour_design.py` checks both tables in high precision.
"""

import numpy as np

SHORT: tuple[tuple[float, float, float, float], ...] = (
    # Re z, Im z, Re w, Im w
    (7.974625828076133, 0.9856118632107258, 891.6616108402922, 1596.736924865567),
    (7.673683467775432, 2.9568355896321776, -1383.6892208857223, -57.046706646610204),
    (7.0647346877744805, 4.928059316053629, 436.18739025747703, -655.9617986913495),
    (6.1330485635651275, 6.899283042475081, 142.74169423259445, 298.7962421854913),
    (4.854918404047755, 8.870506768896533, -99.92835546704066, -8.398501285506633),
    (3.1954105302364617, 10.841730495317984, 11.980171951798571, -17.363585298004516),
    (1.1047292837239366, 12.812954221739435, 1.290760083825893, 2.631021347899417),
    (-1.4875976163764881, 14.784177948160888, -0.2503231079134069, -0.011459103674259122),
    (-4.6821691458963555, 16.755401674582338, 0.006132096004061999, -0.010245746142583233),
    (-8.625561210997525, 18.72662540100379, 0.00014244640233088645, 0.00023465956770586863),
    (-13.53811254250745, 20.697849127425243, -2.4503693522439032e-06, 1.665135677319895e-07),
    (-19.765499272145693, 22.669072853846693, 2.6512033468895945e-09, -5.539557603159881e-09),
)

LONG_SCALE = 40
TALBOT = (0.5017, 0.6407, 0.6122, 0.2645)


def _trapezoidal(scale: int, parameters: tuple[float, float, float, float]) -> tuple[tuple[float, ...], ...]:
    a, b, c, d = parameters
    t = (2 * np.arange(scale // 2) + 1) * np.pi / scale
    z = scale * (a * t / np.tan(b * t) - c + 1j * d * t)
    slope = scale * (a / np.tan(b * t) - a * b * t / np.sin(b * t) ** 2 + 1j * d)
    w = np.exp(z) * slope * 2 / (1j * scale)
    return tuple(map(tuple, np.stack((z.real, z.imag, w.real, w.imag), 1).tolist()))


LONG = _trapezoidal(LONG_SCALE, TALBOT)

# The error of a trapezoidal sum is the integral of (r - exp) L over a curve between poles and nodes. A probe is a point
# of that curve with a bound on its share; the sum of bound * |L(probe)| estimates the error from above.
PROBES: tuple[tuple[float, float, float], ...] = (
    # Re z, Im z, bound
    (1.3352, 0.4094, 2.5e-13),
    (1.0857, 1.2393, 1.9e-13),
    (0.5677, 2.1357, 2.7e-13),
    (-0.3239, 3.2086, 4.2e-13),
    (-1.8510, 4.6229, 8.5e-13),
    (-4.5408, 6.5986, 1.1e-12),
    (-9.3793, 9.4108, 5.1e-13),
    (-18.2037, 13.3895, 6.1e-14),
)
RESOLVED_PHASES = 10

# A sum of terms kappa times larger than their total has relative error about kappa * 3e-16.
VALUE_CANCELLATION = 1.5e5
GRADIENT_CANCELLATION = 1e6
# The estimate from the probes is above the error, by far for rates spread apart; for more than MANY_PHASES it can fall
# short of it by a factor of three, so less is accepted there.
MANY_PHASES = 40
VALUE_TRUNCATION = 1.5e-10
MANY_VALUE_TRUNCATION = 3e-11
GRADIENT_TRUNCATION = 1e-9


def table(phases: int) -> tuple[tuple[float, ...], ...]:
    """Nodes and weights for a chain of so many phases."""
    return SHORT if phases <= RESOLVED_PHASES else LONG
