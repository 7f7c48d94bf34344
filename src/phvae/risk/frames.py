"""Answers as frames: one row per question, with its value, the error of the integration and a flag."""

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

__all__ = ["frame"]


def frame(columns: Mapping[str, Sequence[Any] | NDArray[Any]], kind: Any) -> Any:
    """A table of the given kind; for a model of arrays, which know no names, a structured array.

    >>> answer = frame({"column": ["a", "b"], "value": [1.0, 2.0]}, "numpy")
    >>> answer["value"].tolist(), answer[0]["column"]
    ([1.0, 2.0], 'a')
    """
    arrays = {name: _array(values) for name, values in columns.items()}
    if kind != "numpy":
        lists = {name: values.tolist() if values.dtype == object else values for name, values in arrays.items()}
        return nw.from_dict(lists, backend=kind).to_native()
    table = np.empty(len(next(iter(arrays.values()))), dtype=[(name, part.dtype) for name, part in arrays.items()])
    for name, part in arrays.items():
        table[name] = part
    return table


def _array(values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Numbers and truth values as such; names as objects, whatever their length."""
    if isinstance(values, np.ndarray):
        return values
    numeric = all(isinstance(value, int | float | np.number | np.bool_) for value in values)
    return np.array(values) if numeric else np.array([*values, None], dtype=object)[:-1]
