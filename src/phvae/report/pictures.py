"""The pictures of a report, drawn from its numbers and from nothing else."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from phvae.report.drawing import COLOURS, canvas, label, legend, log_ticks, number, probability, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["chi_picture", "column_pictures", "pit_picture", "training_picture"]

MODEL: dict[str, Any] = {"color": COLOURS["model"], "lw": 1.6}
BAND: dict[str, Any] = {"color": COLOURS["model"], "alpha": 0.14, "lw": 0}
DATA: dict[str, Any] = {"color": COLOURS["data"], "ls": "none", "marker": "o", "ms": 2.4, "mew": 0, "alpha": 0.85}
GPD: dict[str, Any] = {"color": COLOURS["gpd"], "lw": 1.3, "ls": (0, (5, 2))}
TRUTH: dict[str, Any] = {"color": COLOURS["truth"], "lw": 1.5}
DIAGONAL: dict[str, Any] = {"color": COLOURS["ink"], "lw": 0.9}
BEYOND: dict[str, Any] = {"color": COLOURS["model"], "lw": 1.6, "ls": (0, (1.2, 1.2))}
MARK: dict[str, Any] = {"color": COLOURS["trust"], "lw": 1.0, "ls": (0, (2, 2))}


def column_pictures(curves: Mapping[str, Any], name: str, unit: str) -> dict[str, str]:
    """The five pictures of one tail, by name; those that the rows leave open are left out."""
    column = curves["column"]
    amount = f"{column} [{unit}]" if unit else str(column)
    drawn = {
        "survival": (_survival(curves, amount), "Probability of exceeding x, both axes logarithmic"),
        "excess": (_mean_excess(curves, amount), "Mean excess over thresholds"),
    }
    if len(curves["qq"]["data"]):
        drawn["qq"] = (_quantiles(curves["qq"], amount), "Largest values beside the model's quantiles")
        drawn["pp"] = (_probabilities(curves["pp"]), "Exceedance probabilities by rank beside those of the model")
    if len(curves["hill"]["k"]):
        drawn["hill"] = (_hill(curves["hill"]), "Hill's estimate of the tail index")
    return {kind: svg(ax, f"{name}-{kind}", f"{words}, column {column}") for kind, (ax, words) in drawn.items()}


def _survival(curves: Mapping[str, Any], amount: str) -> "Axes":
    ax, tail = canvas(5.3, 3.6), curves["survival"]
    x, s = _numbers(tail["x"]), _numbers(tail["model"])
    band, data, edge = tail["band"], tail["data"], curves["largest"]
    if len(band["share"]):
        ax.fill_betweenx(_numbers(band["share"]), _numbers(band["low"]), _open_ended(band["high"], x[-1]), **BAND)
    if len(data["x"]):
        ax.plot(data["x"], data["share"], **DATA, label="data")
    if tail["truth"] is not None:
        ax.plot(x, tail["truth"], **TRUTH, label="truth")
    if tail["gpd"] is not None:
        ax.plot(tail["gpd"]["x"], tail["gpd"]["share"], **GPD, label="generalised Pareto")
    inside = np.append(x[x < edge], edge), np.append(s[x < edge], np.exp(np.interp(np.log(edge), np.log(x), np.log(s))))
    ax.plot(*inside, **MODEL, label="model")
    ax.plot(
        np.append(edge, x[x >= edge]), np.append(inside[1][-1], s[x >= edge]), **BEYOND, label="model, extrapolated"
    )
    floor = float(s[-1])
    if (trust := curves["trust_point"]) is not None:
        ax.axvline(trust, **MARK)
        near = trust > 0.6 * edge
        ax.annotate(
            "trust point", (trust, 1), (-4 if near else 4, -2), ("data", "axes fraction"), "offset points",
            ha="right" if near else "left", va="top", fontsize=8, color=COLOURS["trust"],
        )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlim=(x[0], x[-1]), ylim=(floor, min(1.0, 2 * float(s[0]))))
    log_ticks(ax, "x", number)
    log_ticks(ax, "y", probability)
    label(ax, amount, "P(X > x)")
    legend(ax, loc="lower left")
    return ax


def _quantiles(qq: Mapping[str, Any], amount: str) -> "Axes":
    ax = canvas()
    model = _numbers(qq["model"])
    data, low = _numbers(qq["data"]), _numbers(qq["low"])
    highest = 1.6 * _largest(data, model)
    ax.fill_between(model, low, _open_ended(qq["high"], highest), **BAND)
    ax.plot(model, model, **DIAGONAL)
    ax.plot(model, data, **DATA)
    ax.set(xscale="log", yscale="log", ylim=(-0.9 * _largest(-data, -low), highest))
    log_ticks(ax, "x", number)
    log_ticks(ax, "y", number)
    label(ax, "model quantile", f"data, {amount}")
    return ax


def _probabilities(pp: Mapping[str, Any]) -> "Axes":
    ax = canvas()
    expected = _numbers(pp["expected"])
    ax.fill_between(expected, _numbers(pp["low"]), _numbers(pp["high"]), **BAND)
    ax.plot(expected, expected, **DIAGONAL)
    ax.plot(expected, _numbers(pp["model"]), **DATA)
    ax.set(xscale="log", yscale="log")
    log_ticks(ax, "x", probability)
    log_ticks(ax, "y", probability)
    label(ax, "share of the data beyond", "model's probability beyond")
    return ax


def _mean_excess(curves: Mapping[str, Any], amount: str) -> "Axes":
    ax, excess = canvas(), curves["mean_excess"]
    x = excess["x"]
    low, high = _numbers(excess["low"]), _numbers(excess["high"])
    ax.vlines(x, low, high, color=COLOURS["data"], lw=0.8, alpha=0.5)
    ax.plot(x, _numbers(excess["data"]), **{**DATA, "ms": 3})
    if excess["truth"] is not None:
        ax.plot(x, _numbers(excess["truth"]), **TRUTH)
    ax.plot(x, excess["model"], **MODEL)
    ax.set_ylim(0, 1.6 * _largest(_numbers(excess["data"]), _numbers(excess["model"])))
    _plain_ticks(ax)
    label(ax, f"threshold, {amount}", "mean excess")
    return ax


def _hill(curve: Mapping[str, Any]) -> "Axes":
    ax, k = canvas(), curve["k"]
    ax.fill_between(k, _numbers(curve["low"]), _numbers(curve["high"]), color=COLOURS["data"], alpha=0.16, lw=0)
    ax.plot(k, _numbers(curve["data"]), color=COLOURS["data"], lw=1.4)
    ax.plot(k, _numbers(curve["model"]), **MODEL)
    ax.set(xscale="log", xlim=(k[0], k[-1]), ylim=(0, 1.25 * _largest(_numbers(curve["high"])[len(k) // 4 :])))
    log_ticks(ax, "x", number)
    label(ax, "values it rests on", "Hill estimate, 1 / tail exponent")
    return ax


def chi_picture(rows: list[Mapping[str, Any]], name: str, unit: str = "") -> str:
    """The chi curve of one pair: how often one column is beyond its quantile when the other is."""
    ax = canvas()
    level = _numbers([row["level"] for row in rows])
    rarity = 1 - level
    data, low, high = (_numbers([row[part] for row in rows]) for part in ("data", "low", "high"))
    if np.isfinite(data).any():
        ax.vlines(rarity, low, high, color=COLOURS["data"], lw=0.9, alpha=0.6)
        ax.plot(rarity, data, **{**DATA, "ms": 3.6}, label="data")
    ax.plot(rarity, [row["chi"] for row in rows], **MODEL, marker="o", ms=2.5, label="model")
    ax.plot(rarity, rarity, **{**DIAGONAL, "ls": (0, (1, 2))}, label="independent")
    ax.set(xscale="log", xlim=(1.12 * rarity.max(), rarity.min() / 1.12), ylim=(0, 1))
    ax.set_xticks(rarity, [f"{100 * p:.4g}%" for p in level])
    ax.set_xticks([], minor=True)
    label(ax, "level", "chi")
    legend(ax, loc="upper right")
    return svg(ax, name, f"Chi curve of {rows[0]['column']} and {rows[0]['other']}")


def pit_picture(histogram: Mapping[str, Any], name: str) -> str:
    """A histogram of probabilities that is flat where the model is right."""
    ax = canvas(3.7, 2.3)
    counts = _numbers(histogram["counts"])
    bins = len(counts)
    ax.axhspan(histogram["low"], histogram["high"], **BAND)
    ax.bar((np.arange(bins) + 0.5) / bins, counts, 0.86 / bins, color=COLOURS["data"], alpha=0.75)
    ax.axhline(histogram["expected"], color=COLOURS["model"], lw=1.2)
    ax.set(xlim=(0, 1), ylim=(0, 1.15 * max(counts.max(), histogram["high"])))
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    label(ax, "model's probability of less", "rows")
    return svg(ax, name, f"Histogram of the model's probabilities of the rows, column {histogram['column']}")


def training_picture(training: Mapping[str, Any]) -> str:
    """The bound of the mean log-likelihood by epoch."""
    ax = canvas(5.3, 2.4)
    epochs, elbo = training["epoch"], _numbers(training["elbo"])
    ax.plot(epochs, elbo, **MODEL, label="rows trained on")
    held = _numbers(training["validation_elbo"])
    values = elbo
    if np.isfinite(held).any():
        ax.plot(epochs, held, **{**TRUTH, "lw": 1.3}, label="rows held out by the fit")
        values = np.concatenate([elbo, held[np.isfinite(held)]])
    if training["best_epoch"]:
        ax.axvline(training["best_epoch"], **{**MARK, "color": COLOURS["ink"]})
    # the first steps may fall from far away, which would hide the rest
    low, high = np.quantile(values, 0.04), values.max()
    if high > low:
        ax.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
    label(ax, "epoch", "bound, nats per row")
    legend(ax, loc="lower right")
    return svg(ax, "training", "Evidence lower bound by epoch")


def _plain_ticks(ax: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _open_ended(values: Any, end: float) -> NDArray[np.float64]:
    """Numbers, those that lie beyond what is drawn at its end."""
    numbers = _numbers(values)
    return np.where(np.isnan(numbers), end, numbers)


def _largest(*values: NDArray[np.float64]) -> float:
    """The largest number that exists."""
    numbers = np.concatenate(values)
    return float(numbers[np.isfinite(numbers)].max())


def _numbers(values: Any) -> NDArray[np.float64]:
    """Numbers with NaN for those that do not exist."""
    return np.array([np.nan if value is None else float(value) for value in values])
