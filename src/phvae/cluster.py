"""Samples, scores and fits of many groups as lazy Dask collections, which run on any Dask cluster.

Every part of a collection follows from the model, a seed and its place: a part that is lost with its worker is made
again as it was. Models travel as the bytes of a model file, sealed and checked like one.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from phvae.blocks import BLOCK, blocks_of, draw
from phvae.fitted import unconditional
from phvae.modelfile import as_bytes, from_bytes
from phvae.observing import whole_counts
from phvae.persistence import pack, unpack
from phvae.settings import seed_of
from phvae.tables import from_matrix

if TYPE_CHECKING:
    from phvae.estimator import PHVAE

__all__ = ["Clustered"]

Array = NDArray[np.float64]

# Rows of a part of a sample, where the user names no other number.
PART_ROWS = 64 * BLOCK
# Column that holds the place of a row while the rows of a Dask frame are brought together by group.
PLACE = "__phvae_place__"


class Clustered:
    """The methods of `phvae.PHVAE` that give Dask collections."""

    def sample_dask(self: Any, n_samples: int, random_state: Any = None, *, part_rows: int = PART_ROWS) -> Any:
        """The rows of `sample` as a lazy Dask collection: a frame of pandas, or an array for a model of an array.

        Args:
            n_samples: Number of rows.
            random_state: As in `sample`, whose rows these are.
            part_rows: Rows of a part, rounded up to a multiple of 4,096; the rows do not depend on it.
        """
        dask, frames, arrays = _dask()
        if not isinstance(n_samples, int | np.integer) or n_samples < 1 or part_rows < 1:
            raise ValueError(
                f"n_samples = {n_samples!r} and part_rows = {part_rows!r}; give whole numbers of at least 1"
            )
        shared = _shared(dask, self)
        seed = seed_of(random_state)
        blocks, at_once = blocks_of(int(n_samples)), -(-part_rows // BLOCK)
        starts = range(0, len(blocks), at_once)
        parts = [dask.delayed(_sample)(shared, int(n_samples), seed, start, start + at_once) for start in starts]
        if self.table_kind_ == "numpy":
            lengths = [min(at_once * BLOCK, int(n_samples) - start * BLOCK) for start in starts]
            shapes = [(length, self.n_features_in_) for length in lengths]
            return arrays.concatenate([arrays.from_delayed(*pair, float) for pair in zip(parts, shapes, strict=True)])
        meta = from_matrix(np.zeros((0, self.n_features_in_)), self.columns_, "pandas")
        return frames.from_delayed(parts, meta=meta, verify_meta=False)

    def score_dask(self: Any, X: Any) -> Any:
        """`score_samples` of a Dask frame or array: a lazy Dask series or array with a log-likelihood for each row.

        Args:
            X: Dask frame, or Dask array of shape ``(n, D)``.
        """
        dask, frames, arrays = _dask()
        shared = _shared(dask, self)
        if isinstance(X, arrays.Array):
            whole = X.rechunk({1: -1})
            pairs = zip(whole.to_delayed().ravel(), whole.chunks[0], strict=True)
            scores = [arrays.from_delayed(dask.delayed(_score)(shared, part), (n,), float) for part, n in pairs]
            return arrays.concatenate(scores)
        if not isinstance(X, frames.DataFrame):
            raise ValueError(f"X is a {type(X).__name__}; give a Dask frame or array, or use score_samples")
        import pandas as pd

        parts = [dask.delayed(_score_frame)(shared, part) for part in X.to_delayed()]
        meta = pd.Series(np.zeros(0), name="log_likelihood", index=X._meta.index)
        return frames.from_delayed(parts, meta=meta, divisions=X.divisions, verify_meta=False)

    def fit_groups(self: Any, frame: Any, by: str | Sequence[str]) -> Any:
        """One model per group, each fitted with these settings: a lazy Dask bag of pairs ``(group, model)``.

        The model of a group is that of a fit to its rows alone, in the order they have in the frame. All groups have
        the same seed, drawn here where none is given.

        Args:
            frame: Dask frame, or a pandas, polars or Arrow table.
            by: Column that names the group, or several of them; all other columns are fitted.

        >>> import pandas as pd
        >>> from phvae import PHVAE
        >>> losses = np.random.default_rng(0).pareto(2.4, 100) + 1
        >>> claims = pd.DataFrame({"line": ["fire", "motor"] * 50, "loss": losses})
        >>> models = PHVAE(n_phases=3, random_state=0).fit_groups(claims, by="line")
        >>> {line: model.n_features_in_ for line, model in models.compute(scheduler="sync")}
        {'fire': 1, 'motor': 1}
        """
        dask, frames, _ = _dask()
        bags: Any = import_module("dask.bag")

        parameters = {**self.get_params(), "random_state": seed_of(self.random_state), "verbose": False}
        keys = [by] if isinstance(by, str) else list(by)
        if isinstance(frame, frames.DataFrame):
            _require_columns(keys, list(frame.columns))
            counted = frame.assign(**{PLACE: 1})
            numbered = counted.assign(**{PLACE: counted[PLACE].cumsum()})
            together = numbered.shuffle(on=keys, shuffle_method="tasks")
            fits = [dask.delayed(_fit_part)(type(self), parameters, part, by) for part in together.to_delayed()]
        else:
            groups = _groups(nw.from_native(frame, eager_only=True), by)
            fits = [dask.delayed(_fit_group)(type(self), parameters, key, rows) for key, rows in groups.items()]
        return bags.from_delayed(fits)


def _dask() -> tuple[Any, Any, Any]:
    try:
        import dask
        import dask.array as arrays
        import dask.dataframe as frames
    except ImportError as error:
        raise ValueError("Dask is not installed; install phvae[dask]") from error
    return dask, frames, arrays


def _shared(dask: Any, model: Any) -> Any:
    """The bytes of a fitted model as one node of a graph, which all parts look at."""
    unconditional(model)  # says so where there is no fit yet
    content = as_bytes(*pack(model))
    return dask.delayed(content, name=f"phvae-{dask.base.tokenize(content)}", pure=True)


@lru_cache(maxsize=4)
def _model(content: bytes) -> "PHVAE":
    from phvae.estimator import PHVAE

    header, tensors = from_bytes("model", content)
    model = PHVAE()
    unpack(model, "model", header, tensors)
    return model


def _sample(content: bytes, n_samples: int, seed: int, first: int, last: int) -> Any:
    """Rows of some blocks of a sample, as pandas or as an array."""
    model = _model(content)
    vae = unconditional(model)
    blocks = range(first, min(last, len(blocks_of(n_samples))))
    values = whole_counts(model, np.concatenate(list(draw(vae, seed, n_samples, blocks))))
    return from_matrix(values, model.columns_, "numpy" if model.table_kind_ == "numpy" else "pandas")


def _score(content: bytes, rows: Any) -> Array:
    return _model(content).score_samples(rows) if len(rows) else np.zeros(0)


def _score_frame(content: bytes, rows: Any) -> Any:
    import pandas as pd

    return pd.Series(_score(content, rows), index=rows.index, name="log_likelihood")


def _fit_part(kind: type, parameters: Mapping[str, Any], part: Any, by: str | Sequence[str]) -> list[tuple[Any, Any]]:
    """The models of all groups in a part, which has all their rows."""
    rows = part.sort_values(PLACE).drop(columns=PLACE)
    pairs = []
    for key, group in _groups(nw.from_native(rows, eager_only=True), by).items() if len(rows) else ():
        pairs += _fit_group(kind, parameters, key, group)
    return pairs


def _fit_group(kind: type, parameters: Mapping[str, Any], key: Any, rows: Any) -> list[tuple[Any, Any]]:
    try:
        return [(key, kind(**parameters).fit(rows))]
    except ValueError as error:
        raise ValueError(f"group {key!r}: {error}") from error


def _groups(frame: Any, by: str | Sequence[str]) -> dict[Any, Any]:
    """The rows of each group without the columns that name it, groups in ascending order."""
    keys = [by] if isinstance(by, str) else list(by)
    _require_columns(keys, frame.columns)
    places: dict[Any, list[int]] = {}
    for place, names in enumerate(frame.select(keys).rows()):
        for key, name in zip(keys, names, strict=True):
            if name is None or name != name:
                raise ValueError(f"column {key!r}, row {place} is missing; drop the row or name its group")
        places.setdefault(names[0] if isinstance(by, str) else names, []).append(place)
    rest = frame.drop(keys)
    return {key: rest[places[key]].to_native() for key in sorted(places)}


def _require_columns(keys: Sequence[str], columns: Sequence[str]) -> None:
    for key in keys:
        if key not in columns:
            raise ValueError(f"by = {key!r}; give one of the columns {list(columns)}")
    if not keys or len(set(keys)) == len(columns):
        raise ValueError(f"by = {list(keys)!r} leaves no column to fit; name fewer columns, and at least one")
