"""How numbers are written on the page: one rule per kind of number, so that a cell is its number in ``page.json``."""

import math
from typing import Any

__all__ = ["chance", "count", "figure", "percent", "plain", "power", "short"]

MISSING = "\N{EM DASH}"


def figure(value: float | str | None) -> str:
    """An amount: four significant digits, without an exponent where people can read it.

    >>> figure(12345.6), figure(3.5), figure(0.01234567), figure(None), figure(float("inf"))
    ('12,350', '3.500', '0.01235', '—', '∞')
    """
    value = math.nan if value is None else float(value)  # an infinite one may be the text JSON has for it
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    rounded = float(f"{value:.4g}")
    if rounded == 0:
        return "0"
    if not 1e-5 <= abs(rounded) < 1e12:
        return f"{rounded:.3e}"
    decimals = max(0, 3 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def short(value: float | str | None) -> str:
    """A number that a person chose, as short as it is.

    >>> short(20.0), short(2500000.0), short(12.5), short("inf")
    ('20', '2,500,000', '12.5', '∞')
    """
    value = math.nan if value is None else float(value)
    return f"{value:,.10g}" if math.isfinite(value) else figure(value)


def percent(value: float | None) -> str:
    """A share or a level, with the digits that it has.

    >>> percent(0.995), percent(0.9999), percent(0.69), percent(0.1234567)
    ('99.5%', '99.99%', '69%', '12.35%')
    """
    if value is None or math.isnan(value):
        return MISSING
    shown = 100 * value
    return f"{shown:.6g}%" if abs(shown) > 99 else f"{shown:.4g}%"


def count(value: float | None) -> str:
    """A number of rows; one decimal where it is an expected one.

    >>> count(5000), count(12.34), count(0.5)
    ('5,000', '12.3', '0.5')
    """
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def chance(value: float | None) -> str:
    """A p-value, or a correlation: three decimals.

    >>> chance(0.04999), chance(1e-9), chance(-0.25), chance(-1e-9)
    ('0.050', '< 0.001', '-0.250', '0.000')
    """
    if value is None or math.isnan(value):
        return MISSING
    # nothing that is rounded to zero has a sign
    return "< 0.001" if 0 < value < 0.0005 else f"{round(value, 3) + 0.0:.3f}"


def power(probability: float) -> str:
    """A tick of a probability axis.

    >>> power(0.1), power(1e-3), power(1e-6)
    ('10%', '0.1%', '10⁻⁶')
    """
    if probability >= 9e-5:
        return f"{100 * probability:.4g}%"
    exponent = str(round(math.log10(probability)))
    return "10" + exponent.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def plain(value: Any) -> Any:
    """A value as JSON knows it; None stands for a number that does not exist, and text for one that is infinite.

    >>> import numpy as np
    >>> plain({"a": (np.float64(1.5), float("nan")), "b": np.array([1, 2]), "c": float("inf")})
    {'a': [1.5, None], 'b': [1, 2], 'c': 'inf'}
    """
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
