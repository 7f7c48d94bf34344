"""Which columns have both signs, and their scale: signed columns have no lower end, their losses are a tail too."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phvae import defaults, weights
from phvae.tables import DataError

__all__ = ["Support", "any_signed", "fit_signed_column", "require_values", "signed_columns", "signed_settings"]

Array = NDArray[np.float64]
Support = str | Sequence[str] | Mapping[str, str]

SUPPORTS = (defaults.SUPPORT, "real")
# Fewest different values on either side of zero.
FEWEST = 5
# Share of exact zeros from which on a signed column has an atom there; fewer are values that were rounded.
ATOM_FROM = 0.01


def any_signed(support: Support) -> bool:
    """Whether some column may be negative.

    >>> any_signed("non-negative"), any_signed({"return": "real"})
    (False, True)
    """
    if isinstance(support, Mapping):
        return "real" in support.values()
    return support == "real" if isinstance(support, str) else isinstance(support, Sequence) and "real" in support


def signed_columns(support: Support, labels: Sequence[str]) -> NDArray[np.bool_]:
    """Which columns may be negative, shape ``(D,)``.

    Args:
        support: ``"non-negative"`` or ``"real"`` for all columns, one of them per column, or a dict from column name
            (columns that are not named are non-negative).
        labels: Names of the columns.

    >>> signed_columns({"return": "real"}, ["return", "volume"]).tolist()
    [True, False]
    """
    given: list[Any]
    if isinstance(support, Mapping):
        unknown = sorted(set(support) - set(labels))
        if unknown:
            raise ValueError(
                f"support names column {unknown[0]!r}, which the data do not have; they have {list(labels)}"
            )
        given = [support.get(label, defaults.SUPPORT) for label in labels]
    elif isinstance(support, str) or not isinstance(support, Sequence | np.ndarray):
        given = [support for _ in labels]
    else:
        given = list(support)
        if len(given) != len(labels):
            raise ValueError(
                f"support has {len(given)} entries and the data {len(labels)} columns; give one per column"
            )
    for kind, label in zip(given, labels, strict=True):
        if not isinstance(kind, str) or kind not in SUPPORTS:
            raise ValueError(f"support of column {label!r} is {kind!r}; give {' or '.join(map(repr, SUPPORTS))}")
    return np.array([kind == "real" for kind in given], dtype=bool)


def signed_settings(loss_share: Array, tail: str) -> dict[str, Any]:
    """What the settings of a fit say of signed columns: their shares of losses; nothing where there are none."""
    if not (loss_share > 0).any():
        return {}
    if tail != defaults.TAIL:
        raise ValueError(
            f"tail = {tail!r} with support 'real': the two tails of a signed column are {defaults.TAIL} given the "
            "latent vector; leave tail out, and ask with splice='gpd' for power tails"
        )
    return {"loss_share": loss_share.tolist()}


def require_values(support: Support) -> None:
    """Refuse signed columns in a table of which some cells are no values."""
    if any_signed(support):
        raise ValueError(
            f"support = {support!r} with cells that are no values: signed columns are learned from values alone; leave "
            "out missing cells, bounds and counts, or fit the other columns by themselves"
        )


def fit_signed_column(x: Array, mass: Array | None, label: str) -> tuple[float, float, float]:
    """Scale, share of exact zeros and share of losses of a signed column: the median size, ``n_0 / n``, ``n_- / n_±``.

    Args:
        x: Values, shape ``(n,)``.
        mass: Their weights, shape ``(n,)``.
        label: Name of the column, for messages.

    >>> fit_signed_column(np.arange(-6.0, 7.0), None, "return")
    (3.5, 0.07692307692307687, 0.5)
    """
    for side, sign in ((x[x < 0], "negative"), (x[x > 0], "positive")):
        if (found := len(np.unique(side))) < FEWEST:
            remedy = "give it with the other sign" if sign == "positive" else "leave its support non-negative"
            raise DataError(
                f"column {label!r} has {found} different {sign} values and its support is 'real', which takes at least "
                f"{FEWEST} on either side of zero; {remedy}, or drop it"
            )
    scale = weights.median(np.abs(x[x != 0]), None if mass is None else mass[x != 0])
    total, counted, losses = (
        float(part.size if mass is None else mass[where].sum())
        for where in (slice(None), x != 0, x < 0)
        for part in (x[where],)
    )
    zero_share = 1 - counted / total
    return scale, zero_share if zero_share >= ATOM_FROM else 0.0, losses / counted
