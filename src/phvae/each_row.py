"""Tail answers for many rows of covariates, in one frame."""

from collections.abc import Callable, Sequence
from typing import Any

import narwhals as nw
import numpy as np

from phvae.risk.answers import TailAnswers
from phvae.risk.frames import frame

__all__ = ["EachRow"]


class EachRow:
    """The questions of a model, put to the models of several rows of covariates: all answers in one frame.

    Every method that gives a frame is here under its name. The frame begins with the covariates of the row that an
    answer belongs to.

    Args:
        models: The model of each row.
        rows: The covariates of each, by name.
        kind: Kind of table that answers are.

    >>> from phvae import PHVAE
    >>> rng = np.random.default_rng(0)
    >>> size = rng.uniform(1, 3, 200)
    >>> model = PHVAE(n_phases=2, epochs=5, random_state=0)
    >>> model = model.fit(size[:, None] * rng.exponential(size=(200, 1)), covariates={"size": size})
    >>> answer = model.at_each({"size": [1.0, 2.0]}).sf(0, [1, 10])
    >>> answer["size"].tolist(), answer["x"].tolist()
    ([1.0, 1.0, 2.0, 2.0], [1.0, 10.0, 1.0, 10.0])
    """

    def __init__(self, models: Sequence[TailAnswers], rows: Sequence[dict[str, Any]], kind: str) -> None:
        self._models, self._rows, self._kind = models, rows, kind

    def __getattr__(self, question: str) -> Callable[..., Any]:
        if question.startswith("_") or not callable(getattr(TailAnswers, question, None)):
            raise AttributeError(f"{question!r} is no question about tails; ask the model of one row, at")

        def ask(*arguments: Any, **settings: Any) -> Any:
            return self._together(
                question, [getattr(model, question)(*arguments, **settings) for model in self._models]
            )

        return ask

    def __dir__(self) -> list[str]:
        return [name for name in dir(TailAnswers) if not name.startswith("_")]

    def _together(self, question: str, answers: Sequence[Any]) -> Any:
        """One frame of the answers, each line beside its covariates."""
        parts = [_columns(answer) for answer in answers]
        if any(part is None for part in parts):
            raise ValueError(f"{question} gives no frame for a row; ask the model of one row at a time, at")
        known = [part for part in parts if part is not None]
        lengths = [len(next(iter(part.values()))) for part in known]
        columns: dict[str, list[Any]] = {}
        for name in self._rows[0]:
            label = f"covariate {name}" if name in known[0] else name
            columns[label] = [row[name] for row, n in zip(self._rows, lengths, strict=True) for _ in range(n)]
        columns |= {name: [value for part in known for value in part[name]] for name in known[0]}
        return frame(columns, self._kind)


def _columns(answer: Any) -> dict[str, list[Any]] | None:
    """The columns of a frame or of a structured array; None for what is neither."""
    if isinstance(answer, np.ndarray) and answer.dtype.names:
        return {name: answer[name].tolist() for name in answer.dtype.names}
    if nw.dependencies.is_into_dataframe(answer):
        columns: dict[str, list[Any]] = nw.from_native(answer, eager_only=True).to_dict(as_series=False)
        return columns
    return None
