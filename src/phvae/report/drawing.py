"""How pictures are made for a page: axes that say their numbers in words, and SVG that takes its colours from it."""

import math
import re
from collections.abc import Callable, Iterator
from io import StringIO
from typing import TYPE_CHECKING, Any

from phvae.report.wording import power

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "canvas", "legend", "log_ticks", "number", "svg"]

# Colours that pictures are drawn in, and the variable of the page's style that takes the place of each.
COLOURS = {
    "ink": "#4a4f58",
    "grid": "#dcdad3",
    "data": "#6d7581",
    "model": "#2f6fb3",
    "gpd": "#8b5fb0",
    "truth": "#d9822b",
    "trust": "#b0463c",
}
# Most ticks of an axis.
TICKS = 6
FONT = 8.5


def canvas(width: float = 3.7, height: float = 2.75) -> "Axes":
    """Axes on a figure of so many inches, without a window or any global state."""
    from matplotlib.figure import Figure

    ax = Figure(figsize=(width, height), layout="constrained").add_subplot()
    ax.patch.set_visible(False)
    ax.figure.patch.set_visible(False)
    ink = COLOURS["ink"]
    ax.tick_params(colors=ink, labelsize=FONT, length=2.5, width=0.6)
    for spine in ax.spines.values():
        spine.set(color=ink, linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color=COLOURS["grid"], linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def label(ax: "Axes", x: str, y: str) -> None:
    """Name the axes."""
    ax.set_xlabel(x, color=COLOURS["ink"], fontsize=FONT)
    ax.set_ylabel(y, color=COLOURS["ink"], fontsize=FONT)


def legend(ax: "Axes", **options: Any) -> None:
    """A legend without a frame."""
    ax.legend(frameon=False, fontsize=FONT, labelcolor=COLOURS["ink"], handlelength=1.6, borderaxespad=0.2, **options)


def log_ticks(ax: "Axes", axis: str, write: Callable[[float], str]) -> None:
    """Make an axis logarithmic, with few ticks at round numbers inside its limits."""
    low, high = ax.get_xlim() if axis == "x" else ax.get_ylim()
    ticks = list(_round_numbers(low, high))
    getattr(ax, f"set_{axis}ticks")(ticks, [write(tick) for tick in ticks])
    getattr(ax, f"set_{axis}ticks")([], minor=True)


def number(value: float) -> str:
    """A tick of an axis of amounts.

    >>> number(0.05), number(2000.0), number(5e6), number(3e-7)
    ('0.05', '2,000', '5M', '3e-07')
    """
    for size, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if size <= abs(value) < 1000 * size:
            return f"{value / size:.4g}{sign}"
    if value == 0 or not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def probability(value: float) -> str:
    """A tick of an axis of probabilities."""
    return power(value)


def svg(ax: "Axes", name: str, description: str) -> str:
    """A picture as text for the inside of a page: it scales, has a description, and its colours are the page's.

    Args:
        ax: Axes of the picture.
        name: Tells its ids from those of other pictures.
        description: What a reader who cannot see it should know.
    """
    import matplotlib as mpl

    buffer = StringIO()
    drawn = ax.get_figure(root=True)
    assert drawn is not None
    with mpl.rc_context({"svg.hashsalt": "phvae", "svg.fonttype": "none"}):
        drawn.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    used = set(re.findall(r"#([\w-]+)[\")]", text))
    text = re.sub(r'\bid="([\w.-]+)"', lambda m: f'id="{name}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)([\w-]+)', lambda m: f"{m[1]}{name}-{m[2]}", text)
    for colour, code in COLOURS.items():
        text = text.replace(code, f"var(--{colour})")
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    head, rest = text.split(">", 1)
    view = re.search(r'viewBox="[^"]*"', head)
    assert view is not None
    words = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return f'<svg {view[0]} role="img" aria-label="{words}" xmlns:xlink="http://www.w3.org/1999/xlink">{rest}'


def _round_numbers(low: float, high: float) -> Iterator[float]:
    """Numbers 1, 2, 5 times powers of ten between two limits; fewer where these are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for leads, step in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), *(((1,), step) for step in range(2, 40))):
        found = [lead * 10.0**e for e in range(first, last + 1) if e % step == 0 for lead in leads]
        found = [float(f"{value:.1g}") for value in found if low <= value <= high]
        if len(found) <= TICKS:
            yield from found
            return
