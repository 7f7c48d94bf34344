"""Tail tables, and the self-contained page that shows them with their pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from phvae import __version__
from phvae.plots import phase_diagram, tail_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from phvae.demo import Demo

__all__ = ["QuantileRow", "TailRow", "quantile_table", "tail_table", "write_report"]

LEVELS = (0.5, 0.1, 0.05, 0.01, 0.005, 1e-3, 1e-4)
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 5.0)
COVERAGE = 0.9


@dataclass(frozen=True)
class QuantileRow:
    """The value exceeded with probability `level`: true, fitted with its range over refits, and in the data."""

    level: float
    true: float
    fitted: float
    low: float
    high: float
    empirical: float | None
    extrapolated: bool

    @property
    def relative_error(self) -> float:
        """Of the fitted value against the true one."""
        return self.fitted / self.true - 1


@dataclass(frozen=True)
class TailRow:
    """Log10 of the probability to exceed `threshold`: true, fitted with its range over refits, and in the data."""

    threshold: float
    true: float
    fitted: float
    low: float
    high: float
    empirical: float | None
    extrapolated: bool


def quantile_table(
    law: Any, x: npt.ArrayLike, truth: Any, refits: Sequence[Any], levels: Sequence[float] = LEVELS
) -> list[QuantileRow]:
    """Quantiles at exceedance levels; a row beyond the largest observation says so.

    Args:
        law: the fitted law, with `isf` on tensors.
        x: the observations.
        truth: the true law, with `isf`.
        refits: laws fitted to resampled data.
        levels: exceedance probabilities, largest first.

    >>> from phvae.demo import Lomax
    >>> row = quantile_table(Lomax(2.0, 3.0), [1.0, 2.0], Lomax(2.0, 3.0), [Lomax(2.0, 3.0)], [0.25])[0]
    >>> row.fitted, row.empirical, row.relative_error, row.extrapolated
    (3.0, None, 0.0, True)
    """
    data = np.sort(np.asarray(x, dtype=np.float64))
    p = torch.tensor(levels, dtype=torch.float64)
    true, fitted = truth.isf(p).tolist(), law.isf(p).tolist()
    low, high = _ranges([refit.isf(p).tolist() for refit in refits])
    rows = []
    for i, level in enumerate(levels):
        # The empirical quantile exists while at least one observation lies above it.
        above = int(np.floor(level * data.size + 1e-9))
        empirical = float(data[-above - 1]) if 1 <= above < data.size else None
        rows.append(QuantileRow(level, true[i], fitted[i], low[i], high[i], empirical, bool(fitted[i] > data[-1])))
    return rows


def tail_table(
    law: Any, x: npt.ArrayLike, truth: Any, refits: Sequence[Any], thresholds: Sequence[float]
) -> list[TailRow]:
    """Log10 exceedance probabilities, through log survival: far tails do not round to zero.

    Args:
        law: the fitted law, with `log_sf` on tensors.
        x: the observations.
        truth: the true law, with `log_sf`.
        refits: laws fitted to resampled data.
        thresholds: in the unit of the data.

    >>> from phvae.demo import Lomax
    >>> row = tail_table(Lomax(2.0, 1.0), [1.0, 2.0], Lomax(2.0, 1.0), [Lomax(2.0, 1.0)], [99.0])[0]
    >>> round(row.fitted, 9), row.empirical, row.extrapolated
    (-4.0, None, True)
    """
    data = np.asarray(x, dtype=np.float64)
    at = torch.tensor(thresholds, dtype=torch.float64)
    true, fitted = (_log10_sf(each, at) for each in (truth, law))
    low, high = _ranges([_log10_sf(refit, at) for refit in refits])
    rows = []
    for i, threshold in enumerate(thresholds):
        share = float((data > threshold).mean())
        empirical = float(np.log10(share)) if share > 0 else None
        rows.append(TailRow(threshold, true[i], fitted[i], low[i], high[i], empirical, bool(threshold > data.max())))
    return rows


def thresholds(x: npt.ArrayLike) -> list[float]:
    """Round multiples of the largest observation, up to five times beyond it."""
    largest = float(np.max(np.asarray(x)))
    return [float(f"{multiple * largest:.2g}") for multiple in MULTIPLES]


def write_report(demo: "Demo", quantiles: list[QuantileRow], tails: list[TailRow], path: Path) -> None:
    """Write one HTML file with everything in it: tables, pictures, style; nothing is loaded from elsewhere."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    page = Environment(loader=PackageLoader("phvae"), undefined=StrictUndefined, autoescape=True, trim_blocks=True)
    page.filters["level"] = level
    page.filters["figure"] = figure
    page.filters["power"] = power
    text = page.get_template("report.html").render(
        demo=demo,
        fit=demo.fit,
        quantiles=quantiles,
        tails=tails,
        coverage=f"{COVERAGE:.0%}",
        tail_svg=_svg(tail_plot(demo.fit.law, demo.x, demo.truth, unit=demo.unit)),
        chain_svg=_svg(phase_diagram(demo.fit.law)),
        version=__version__,
    )
    path.write_text(text, encoding="utf-8")


def level(p: float) -> str:
    """An exceedance probability as people say it.

    >>> level(0.01), level(1e-4)
    ('1%', '0.01%')
    """
    return f"{100 * p:.4g}%"


def figure(value: float) -> str:
    """Three significant digits, without an exponent.

    >>> figure(1234.5), figure(3.5), figure(0.01234)
    ('1,230', '3.50', '0.0123')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:#.3g}"


def power(exponent: float) -> str:
    """A probability from its base-10 logarithm.

    >>> power(-2.0), power(-412.3)
    ('1.0e-2', '5.0e-413')
    """
    whole = int(np.floor(exponent))
    lead = f"{10 ** (exponent - whole):.1f}"
    return f"1.0e{whole + 1}" if lead == "10.0" else f"{lead}e{whole}"


def _ranges(values: list[list[float]]) -> tuple[list[float], list[float]]:
    low, high = np.quantile(np.array(values), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], axis=0)
    return low.tolist(), high.tolist()


def _log10_sf(law: Any, x: torch.Tensor) -> list[float]:
    logs: list[float] = (law.log_sf(x).detach() / np.log(10)).tolist()
    return logs


def _svg(ax: "Axes") -> str:
    import matplotlib

    buffer = StringIO()
    drawn = ax.get_figure(root=True)
    assert drawn is not None
    with matplotlib.rc_context({"svg.hashsalt": "phvae", "svg.fonttype": "path"}):
        drawn.savefig(buffer, format="svg", dpi=200, metadata={"Date": None})
    drawing = buffer.getvalue()
    return drawing[drawing.index("<svg") :]
