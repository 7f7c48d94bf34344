"""Which columns have both signs, and their scale: signed columns have no lower end, their losses are a tail too."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phvae import defaults, weights
from phvae.tables import DataError

__all__ = [
    "ATOM_FROM",
    "Support",
    "any_signed",
    "atom_from",
    "fit_signed_column",
    "require_sides",
    "signed_columns",
    "signed_settings",
]

Array = NDArray[np.float64]
Support = str | Sequence[str] | Mapping[str, str]

SUPPORTS = (defaults.SUPPORT, "real")
# Fewest different values on either side of zero.
FEWEST = 5
# Share of exact zeros from which on a signed column has an atom there; fewer are values that were rounded.
ATOM_FROM = 0.01


def atom_from(tail: str) -> float:
    """The share of exact zeros from which on a signed column has an atom there, for laws with such tails.

    A law in a bent time has no finite density at zero: there every zero is one of an atom.
    """
    return ATOM_FROM if tail == defaults.TAIL else 0.0


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


def signed_settings(loss_share: Array) -> dict[str, Any]:
    """What the settings of a fit say of signed columns: their shares of losses; nothing where there are none."""
    return {"loss_share": loss_share.tolist()} if (loss_share > 0).any() else {}


def fit_signed_column(
    x: Array, mass: Array | None, label: str, atom_from: float = ATOM_FROM
) -> tuple[float, float, float]:
    """Scale, share of exact zeros and share of losses of a signed column: the median size, ``n_0 / n``, ``n_- / n_±``.

    Args:
        x: Values, shape ``(n,)``.
        mass: Their weights, shape ``(n,)``.
        label: Name of the column, for messages.
        atom_from: Share of exact zeros from which on there is an atom; 0 for every zero.

    >>> fit_signed_column(np.arange(-6.0, 7.0), None, "return")
    (3.5, 0.07692307692307687, 0.5)
    """
    require_sides(len(np.unique(x[x > 0])), len(np.unique(x[x < 0])), label)
    scale = weights.median(np.abs(x[x != 0]), None if mass is None else mass[x != 0])
    total, counted, losses = (
        float(part.size if mass is None else mass[where].sum())
        for where in (slice(None), x != 0, x < 0)
        for part in (x[where],)
    )
    zero_share = 1 - counted / total
    return scale, zero_share if zero_share >= atom_from else 0.0, losses / counted


def require_sides(n_gains: int, n_losses: int, label: str) -> None:
    """Refuse a signed column with too few different values on a side of zero."""
    for found, sign in ((n_losses, "negative"), (n_gains, "positive")):
        if found < FEWEST:
            remedy = "give it with the other sign" if sign == "positive" else "leave its support non-negative"
            raise DataError(
                f"column {label!r} has {found} different {sign} values and its support is 'real', which takes at least "
                f"{FEWEST} on either side of zero; {remedy}, or drop it"
            )
