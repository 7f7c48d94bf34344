"""From the evidence about a tail to a verdict, a sentence to act on and notes."""

import math
from typing import TYPE_CHECKING, Any, Literal

from phvae.risk.exceedances import Clustering, ExceedanceTest
from phvae.risk.trust import FEWEST
from phvae.tail_index import TailIndex

if TYPE_CHECKING:
    from phvae.risk.certificate import ParetoTail

__all__ = ["Verdict", "judge"]

Verdict = Literal["supported", "caution", "unsupported"]

# Exceedances are at odds with the model where a p-value is below this share, split among the levels tested; and far
# from it where they are also off by more than the factor, for with enough rows every model is at odds.
SIGNIFICANT, FACTOR = 0.01, 2.0
# Large values in clusters: p-value below which rows are said to depend on each other.
CLUSTERED = 1e-3
# A column whose data support less than this level has few rows for questions about its tail.
MODEST_LEVEL = 0.95
REMEDY = 'ask with splice="gpd" or fit with tail="pareto"'


def judge(
    *,
    name: Any,
    n: int,
    largest: float,
    support: tuple[tuple[float, int], ...],
    supported_level: float,
    threshold: float,
    trust_point: float,
    trust_probability: float,
    turn: float,
    gpd: "ParetoTail | None",
    tests: tuple[ExceedanceTest, ...],
    clusters: Clustering | None,
    tail_index: TailIndex | None,
    cut: bool = False,
    selected: bool = False,
) -> tuple[Verdict, str, tuple[str, ...]]:
    """Verdict, words and notes; the arguments are the fields of `phvae.risk.certificate.ColumnCertificate`.

    Notes say so where the fit has seen cells of the column that were cut, or where bounds of other columns select the
    rows given.

    A tail is unsupported where too few values are known to compare it with, where it leaves the data's tail as soon as
    that begins, or where exceedances at a supported level are significantly off and by more than a factor of 2. It
    calls for caution where they are off by less, where the tail turns into extrapolation before the largest
    observation, or where the data support no level of 0.95. Otherwise it is supported, up to the trust point.
    """
    off, off_beyond = _most_off(tests, supported_level)
    notes = _notes(gpd, clusters, tail_index, off_beyond, cut, selected)
    if gpd is None:
        counted = support[0][1]
        words = f"Only {counted} values exceed {threshold:.4g}, too few to judge the tail by: collect more rows."
        return "unsupported", words, notes
    rows = f"one row in {1 / trust_probability:,.0f}" if trust_probability > 0 else "no row"
    if turn <= threshold:
        words = (
            f"The model's tail falls off faster than the data's from {threshold:.4g} on, where that begins: do not use "
            f"quantiles beyond level {_level(support)}; {REMEDY}."
        )
        return "unsupported", words, notes
    trusted = f"Quantiles up to level {supported_level:g} rest on at least {FEWEST} values"
    if not supported_level:
        trusted = f"No quantile from level {_level(support)} on rests on {FEWEST} values"
    if off is not None:
        far = not 1 / FACTOR <= off.nearest / off.expected <= FACTOR
        risk = "underestimates" if off.nearest > off.expected else "overestimates"
        words = (
            f"{_count(off)}: the model {risk} this tail, so fit it again to newer rows or state the gap with every "
            "figure."
        )
        return "unsupported" if far else "caution", words, notes
    if turn < largest:
        words = (
            f"{trusted}, but beyond {trust_point:.4g} ({rows}) the model's tail falls off faster than the data's, "
            f"whose largest value is {largest:.4g}: for rarer events {REMEDY}."
        )
        return "caution", words, notes
    if supported_level < MODEST_LEVEL:
        words = f"With {n:,} rows no level of {MODEST_LEVEL:g} rests on {FEWEST} values: read quantiles with intervals."
        return "caution", words, notes
    beyond = f"beyond the largest of them, {largest:.4g} ({rows}), every answer is extrapolated"
    return "supported", f"{trusted} of {n:,}, and the model's tail follows them; {beyond}.", notes


def _most_off(
    tests: tuple[ExceedanceTest, ...], supported_level: float
) -> tuple[ExceedanceTest | None, ExceedanceTest | None]:
    """The tests that reject most clearly, if any do: up to the supported level (or the lowest one), and beyond it."""
    off = sorted((t for t in tests if t.p_value < SIGNIFICANT / len(tests)), key=lambda test: test.p_value)
    within = [test for test in off if test.level <= max(supported_level, tests[0].level)]
    beyond = [test for test in off if test not in within]
    return (within[0] if within else None), (beyond[0] if beyond else None)


def _count(test: ExceedanceTest) -> str:
    """What was counted, as the beginning of a sentence."""
    chance = "p < 0.0001" if test.p_value < 1e-4 else f"p = {test.p_value:.1g}"
    bound = "" if not test.undecided else "At least " if test.observed > test.expected else "At most "
    return (
        f"{bound}{test.nearest:,.0f} of the rows given exceed the quantile at level {test.level:g} where "
        f"{test.expected:,.1f} are expected ({chance})"
    )


def _level(support: tuple[tuple[float, int], ...]) -> str:
    """The lowest of the levels, below which the tail does not matter."""
    return f"{support[0][0]:g}"


def _notes(
    gpd: "ParetoTail | None",
    clusters: Clustering | None,
    tail_index: TailIndex | None,
    off_beyond: ExceedanceTest | None,
    cut: bool,
    selected: bool,
) -> tuple[str, ...]:
    notes = []
    if cut:
        notes.append(
            "The fit has seen values of this column cut, or rows within bounds: the largest value, the tail beyond a "
            "threshold and the trust point are those of the values that are known, which may be smaller; a generalised "
            "Pareto tail of these would be too light, so none is named."
        )
    if selected:
        notes.append(
            "Rows were seen or not by other columns, which hang together with this one: its exceedances decide nothing "
            "and were not tested."
        )
    if gpd is not None and not cut:
        sure = f" ± {1.96 * gpd.shape_error:.2g}" if math.isfinite(gpd.shape_error) else ""
        tail = f"Values beyond {gpd.threshold:.4g} have a generalised Pareto tail of shape {gpd.shape:.2g}{sure}"
        if gpd.shape >= 1:
            tail += ", whose mean is infinite: ask for quantiles and layers with a limit"
        elif gpd.shape >= 0.5:
            tail += ", whose variance is infinite"
        notes.append(f"{tail}.")
    if tail_index is not None:
        notes.append(f"{str(tail_index)[0].upper()}{str(tail_index)[1:]}.")
    if off_beyond is not None:
        notes.append(f"{_count(off_beyond)}, beyond what the data of the fit support.")
    if clusters is not None and clusters.p_value < CLUSTERED:
        notes.append(
            f"Large values come in runs of {clusters.size:.1f} rows on average, so rows depend on those before them: "
            "p-values are too small and intervals too short; give block_length to phvae.risk.bootstrap."
        )
    return tuple(notes)
