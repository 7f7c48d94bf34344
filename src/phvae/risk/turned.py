"""Which tail of a signed column is asked about; the lower one is the upper tail of minus the column."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from phvae.risk.questions import place

__all__ = ["turned"]

Side = Literal["upper", "lower"]
Tail = Side | Mapping[Any, Side]


def turned(tail: Any, positions: Sequence[int], names: Sequence[Any], lower: Sequence[float]) -> list[int]:
    """Columns, by position, that are asked about with the other sign.

    Args:
        tail: ``"upper"``, ``"lower"``, or a dict from column to one of them, ``"upper"`` for those not named.
        positions: Columns that a question is about.
        names: Names of all columns.
        lower: Least possible values of all columns.

    >>> turned({"b": "lower"}, [0, 1], ["a", "b"], [0.0, float("-inf")])
    [1]
    """
    if isinstance(tail, Mapping):
        sides = {place(column, names, "tail"): side for column, side in tail.items()}
    else:
        sides = dict.fromkeys(positions, tail)
    for position, side in sides.items():
        name = names[position]
        if not isinstance(side, str) or side not in ("upper", "lower"):
            where = f"tail[{name!r}]" if isinstance(tail, Mapping) else "tail"
            raise ValueError(f"{where} = {side!r}; give 'upper' or 'lower', or a dict from column to one of them")
        if side == "lower" and lower[position] > float("-inf"):
            raise ValueError(
                f"tail = 'lower': column {name!r} is never below {lower[position]:g} and has one tail, the upper; name "
                "signed columns alone, or fit with support='real' if it has signs"
            )
    return [position for position in positions if sides.get(position) == "lower"]
