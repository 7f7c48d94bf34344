"""Figures: one function per figure, axes in, axes out."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from phvae.distributions.phase_type import PhaseType, SeriesPhaseType

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["phase_diagram", "tail_plot"]

INK = "#4a4f58"
MODEL = "#2f6fb3"
TRUTH = "#d9822b"
DATA = "#8a9099"


def phase_diagram(law: SeriesPhaseType | PhaseType, ax: "Axes | None" = None) -> "Axes":
    """Draw the chain: phases as circles, arrows labelled with rates, the darker a phase the likelier the start there.

    A series law is drawn from left to right in rows; a general one on a circle, with its exits pointing outwards.

    Args:
        law: one law (no batch).
        ax: axes to draw on; new ones by default.

    >>> ax = phase_diagram(SeriesPhaseType([0.3, 0.7], [0.5, 4.0]))
    >>> [text.get_text() for text in ax.texts if text.get_text()]
    ['1', '30%', '0.5', '2', '70%', '4', 'exit']
    """
    if law.batch_shape:
        raise ValueError(f"law has batch shape {tuple(law.batch_shape)}; pick one law to draw")
    initial = law.initial.detach().double().cpu().numpy()
    if isinstance(law, SeriesPhaseType):
        return _series_diagram(initial, law.rates.detach().double().cpu().numpy(), ax)
    return _circle_diagram(initial, law.generator.detach().double().cpu().numpy(), ax)


def tail_plot(
    law: Any,
    x: npt.ArrayLike | None = None,
    truth: Any = None,
    ax: "Axes | None" = None,
    *,
    unit: str = "",
    lowest: float | None = None,
) -> "Axes":
    """Draw P(X > x) on logarithmic axes: the data, the law, and the truth where it is known.

    Beyond the largest observation the law is dashed: there it extrapolates.

    Args:
        law: anything with `isf` and `log_sf` on tensors, such as a `SeriesPhaseType`.
        x: observations.
        truth: the true law, with the same two methods.
        ax: axes to draw on; new ones by default.
        unit: of x, for the axis label.
        lowest: smallest probability drawn; by default a hundredth of 1/n, or 1e-6 without data.

    >>> ax = tail_plot(SeriesPhaseType([0.3, 0.7], [0.5, 4.0]), x=[0.1, 0.4, 3.0])
    >>> ax.get_xscale(), ax.get_yscale(), [text.get_text() for text in ax.get_legend().get_texts()]
    ('log', 'log', ['data (3 rows)', 'phase-type law', 'extrapolated'])
    """
    ax = _axes(ax, (6.4, 4.2))
    data = None if x is None else np.sort(np.asarray(x, dtype=np.float64).reshape(-1))
    floor = lowest if lowest is not None else (1e-6 if data is None else 1e-2 / data.size)
    left, right = (float(law.isf(torch.tensor(p, dtype=torch.float64))) for p in (0.99, floor))
    if data is not None:
        exceeding = np.arange(data.size, 0, -1) / data.size
        ax.plot(data, exceeding, ".", ms=4, color=DATA, alpha=0.7, label=f"data ({data.size:,} rows)", rasterized=True)
        left = min(left, float(np.quantile(data, 0.01)))
    if truth is not None:
        ax.plot(*_survival(truth, left, right), color=TRUTH, lw=1.8, label="true law")
    edge = right if data is None else min(float(data[-1]), right)
    ax.plot(*_survival(law, left, edge), color=MODEL, lw=1.8, label="phase-type law")
    if edge < right:
        ax.plot(*_survival(law, edge, right), color=MODEL, lw=1.8, ls=(0, (3, 1.6)), label="extrapolated")
        ax.axvline(edge, color=DATA, lw=0.8, ls=":")
        ax.annotate(
            "largest\nobservation", (edge, 0.96), (4, 0), ("data", "axes fraction"), "offset points",
            va="top", fontsize=8, color=DATA,
        )  # fmt: skip
    ax.set(xscale="log", yscale="log", ylim=(floor, 1.3), xlim=(left, right))
    ax.set_xlabel(f"x [{unit}]" if unit else "x")
    ax.set_ylabel("P(X > x)")
    ax.grid(True, which="major", color=DATA, alpha=0.25, lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower left")
    return ax


def _series_diagram(initial: npt.NDArray[np.float64], rates: npt.NDArray[np.float64], ax: "Axes | None") -> "Axes":
    m = len(rates)
    rows = -(-m // 6)
    columns = -(-m // rows)
    step, height = 2.0, 2.3
    ax = _axes(ax, (1.05 * step * (columns + 0.6) / 1.55, 1.25 * height * rows / 1.55))
    places = [(step * (i % columns), -height * (i // columns)) for i in range(m)]
    for i, (place, rate) in enumerate(zip(places, rates, strict=True)):
        _phase(ax, place, i, initial[i])
        ax.text(place[0], place[1] + 0.66, _percent(initial[i]), ha="center", va="bottom", fontsize=9, color=MODEL)
        if i + 1 < m and places[i + 1][1] == place[1]:
            _arrow(ax, (place[0] + 0.5, place[1]), (places[i + 1][0] - 0.5, place[1]))
        elif i + 1 < m:
            _wrap(ax, place, places[i + 1], step, height)
        else:
            _arrow(ax, (place[0] + 0.5, place[1]), (place[0] + step - 0.5, place[1]))
        ax.text(place[0] + step / 2, place[1] + 0.12, _number(rate), ha="center", va="bottom", fontsize=8.5, color=INK)
    ax.text(places[-1][0] + step - 0.42, places[-1][1], "exit", va="center", fontsize=9, color=INK)
    ax.set(xlim=(-0.9, step * columns - 0.1), ylim=(-height * (rows - 1) - 0.9, 1.2), aspect="equal")
    ax.axis("off")
    return ax


def _circle_diagram(initial: npt.NDArray[np.float64], generator: npt.NDArray[np.float64], ax: "Axes | None") -> "Axes":
    m = len(initial)
    radius = max(1.5, 0.42 * m)
    ax = _axes(ax, (2.2 + 0.95 * radius, 2.2 + 0.95 * radius))
    angles = np.pi / 2 - 2 * np.pi * np.arange(m) / m
    outward = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    places = radius * outward
    exits = -generator.sum(axis=1)
    rounding = m * np.finfo(np.float64).eps * -generator.diagonal()
    for i in range(m):
        _phase(ax, places[i], i, initial[i], start=_percent(initial[i]))
        for j in np.flatnonzero(generator[i] > 0):
            along = (places[j] - places[i]) / np.linalg.norm(places[j] - places[i])
            side = np.array([along[1], -along[0]])
            bend = 0.18 if generator[j, i] > 0 else 0.0
            _arrow(ax, places[i] + 0.5 * along, places[j] - 0.5 * along, bend=bend)
            gap = np.linalg.norm(places[j] - places[i]) - 1
            # Off the middle, where the arrows between opposite phases would cross their labels.
            label = places[i] + (0.5 if bend else 0.3) * (places[j] - places[i]) + side * (bend * gap / 2 + 0.22)
            ax.text(label[0], label[1], _number(generator[i, j]), ha="center", va="center", fontsize=8.5, color=INK)
        if exits[i] > rounding[i]:
            _arrow(ax, places[i] + 0.5 * outward[i], places[i] + 1.15 * outward[i])
            label = places[i] + (1.3 + 0.35 * abs(outward[i][0])) * outward[i]
            ax.text(label[0], label[1], f"exit {_number(exits[i])}", ha="center", va="center", fontsize=8.5, color=INK)
    ax.set(xlim=(-radius - 2, radius + 2), ylim=(-radius - 1.6, radius + 1.7), aspect="equal")
    ax.axis("off")
    return ax


def _axes(ax: "Axes | None", size: tuple[float, float]) -> "Axes":
    if ax is not None:
        return ax
    # A bare Figure: no window, no global state, nothing to close.
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").add_subplot()


def _phase(ax: "Axes", place: npt.ArrayLike, index: int, probability: float, *, start: str = "") -> None:
    from matplotlib.patches import Circle

    x, y = np.asarray(place, dtype=np.float64)
    # The square root separates a phase that starts 1% of the time from one that never does.
    shade = float(np.sqrt(probability))
    ax.add_patch(Circle((x, y), 0.42, facecolor=(*_rgb(MODEL), 0.85 * shade), edgecolor=INK, lw=1.2, zorder=3))
    ink = "white" if shade > 0.55 else INK
    ax.text(x, y + (0.11 if start else 0), str(index + 1), ha="center", va="center", fontsize=10, color=ink, zorder=4)
    if start:
        ax.text(x, y - 0.18, start, ha="center", va="center", fontsize=7, color=ink, zorder=4)


def _arrow(ax: "Axes", start: npt.ArrayLike, end: npt.ArrayLike, *, bend: float = 0.0) -> None:
    style = {"arrowstyle": "-|>", "color": INK, "lw": 1.1, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11,
             "connectionstyle": f"arc3,rad={bend}"}  # fmt: skip
    (x0, y0), (x1, y1) = np.asarray(start, dtype=np.float64), np.asarray(end, dtype=np.float64)
    ax.annotate("", (x1, y1), (x0, y0), arrowprops=style)


def _wrap(ax: "Axes", place: tuple[float, float], following: tuple[float, float], step: float, height: float) -> None:
    """The way from the end of one row to the start of the next."""
    right, between = place[0] + step - 0.45, place[1] - 0.42 * height
    left = following[0] - 0.8
    ax.plot(
        [place[0] + 0.5, right, right, left, left, following[0] - 0.6],
        [place[1], place[1], between, between, following[1], following[1]],
        color=INK, lw=1.1, solid_joinstyle="round",
    )  # fmt: skip
    _arrow(ax, (following[0] - 0.62, following[1]), (following[0] - 0.5, following[1]))


def _survival(law: Any, low: float, high: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    x = np.geomspace(low, high, 300)
    return x, np.exp(law.log_sf(torch.as_tensor(x)).detach().cpu().numpy())


def _rgb(colour: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(colour)


def _number(value: float) -> str:
    return f"{value:.3g}" if 1e-2 <= abs(value) < 1e3 else f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")


def _percent(share: float) -> str:
    if share == 0:
        return "0"
    return f"{100 * share:.0f}%" if share >= 0.01 else (f"{100 * share:.1f}%" if share >= 1e-3 else "<0.1%")
