"""The tail certificate: how far each column's tail can be trusted, with the evidence and a verdict in words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from phvae.checkpoint import fingerprint
from phvae.history import training_note
from phvae.risk.column import ColumnLaw
from phvae.risk.exceedances import Clustering, ExceedanceTest, clustering, kupiec
from phvae.risk.frames import frame
from phvae.risk.law import Pooled
from phvae.risk.record import ColumnRecord, TailRecord
from phvae.risk.sources import STEADY, Fitted, tensor
from phvae.risk.trust import FEWEST, RARER, Trust, trust_point
from phvae.risk.turned import Tail
from phvae.risk.verdict import Verdict, judge
from phvae.tail_index import TailIndex, tail_index

__all__ = ["LEVELS", "ColumnCertificate", "ParetoTail", "TailCertificate", "certify"]

Array = NDArray[np.float64]

# Levels whose support is counted.
LEVELS = (0.9, 0.95, 0.99, 0.995, 0.999, 0.9999)
TESTED = {
    "none": "no rows given, so neither exceedances nor the order of rows were tested",
    "training rows": "exceedances tested on the rows of the fit, which are not held out",
    "given rows": "exceedances tested on {:,} given rows",
}


class ParetoTail(NamedTuple):
    """A generalised Pareto law fitted to what the largest values exceed a threshold by, for comparison.

    shape: Tail index: above 0 a power tail, at 0 an exponential one.
    shape_error: Its standard error; NaN at shapes of -1/2 and below.
    scale: Scale of the excess.
    threshold: What the excesses are over.
    """

    shape: float
    shape_error: float
    scale: float
    threshold: float


@dataclass(frozen=True)
class ColumnCertificate:
    """How far the tail of one column can be trusted.

    name: Column.
    n: Rows of the fit with a value.
    largest: Largest of them.
    support: For each level how many of them exceed the model's quantile, counted up to the 1,000 a model remembers.
    supported_level: Highest of these levels whose quantile ten values exceed and the trust point covers; 0 if none.
    threshold: Where the data's tail begins.
    trust_point: The smaller of `turn` and `largest`; see `phvae.risk.trust`.
    trust_probability: Probability under the model to exceed it.
    turn: Where the model's tail turns from that of the data into extrapolation; ``inf`` where it never does.
    gpd: Generalised Pareto law of the largest values; None where there are too few.
    tests: Kupiec's exceedance tests on the rows given; none without them.
    clusters: Whether large values follow each other in the rows given; None without them.
    tail_index: Index of the model's own power tail, for ``tail="pareto"``.
    verdict: ``"supported"``, ``"caution"`` or ``"unsupported"``.
    words: What that means, in one sentence.
    notes: What else to know, a sentence each.
    """

    name: Any
    n: int
    largest: float
    support: tuple[tuple[float, int], ...]
    supported_level: float
    threshold: float
    trust_point: float
    trust_probability: float
    turn: float
    gpd: ParetoTail | None
    tests: tuple[ExceedanceTest, ...]
    clusters: Clustering | None
    tail_index: TailIndex | None
    verdict: Verdict
    words: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.verdict}. {self.words}", *(f"  {note}" for note in self.notes)])


@dataclass(frozen=True)
class TailCertificate:
    """Certificates of all columns: readable as text, as a frame (`frame`) and as JSON values (`to_dict`).

    columns: One certificate per column.
    tested: Which rows the exceedance tests are of.
    n_tested: How many rows these are.
    kind: Kind of table that `frame` is.
    training: A sentence where the fit was trained too short for the errors of answers to be all there is; else None.
    """

    columns: tuple[ColumnCertificate, ...]
    tested: Literal["none", "training rows", "given rows"]
    n_tested: int
    kind: str
    training: str | None = None

    @property
    def frame(self) -> Any:
        """One row per column, of the kind of table seen in `fit`; a number that does not exist is NaN."""
        rows = [_row(column) for column in self.columns]
        return frame({name: [row[name] for row in rows] for name in rows[0]}, self.kind)

    def to_dict(self) -> dict[str, Any]:
        """The certificate as JSON values; None stands for a number that does not exist or is infinite."""
        columns = [_plain({**vars(column)}) for column in self.columns]
        return {"tested": self.tested, "n_tested": self.n_tested, "training": self.training, "columns": columns}

    def __str__(self) -> str:
        lines = [f"Tail certificate; {TESTED[self.tested].format(self.n_tested)}.", *map(str, self.columns)]
        return "\n".join(lines if self.training is None else [*lines, self.training])


def certify(model: Any, X: Any = None, tail: Tail = "upper") -> TailCertificate:
    """The certificate of a fitted `phvae.PHVAE`.

    Args:
        model: Fitted estimator.
        X: Rows the fit has not seen, in their order, to count exceedances in.
        tail: ``"lower"`` for the losses of signed columns.
    """
    fitted = Fitted.of(model)
    fitted = fitted.asked(tail, range(len(fitted.names)))
    values = None if X is None else model._read(X, reset=False).values
    tested: Literal["none", "training rows", "given rows"] = "none"
    if values is not None:
        rows = torch.from_numpy(np.require(values, requirements=["C", "W"]))
        tested = "training rows" if fingerprint(rows) == model.fingerprint_ else "given rows"
        values = np.where([j in fitted.minus for j in range(values.shape[1])], -values, values)
    records = fitted.records
    if records is None:
        if values is None:
            raise ValueError(
                "X = None: this model keeps no record of the largest values: it is one given covariates, or was "
                "saved by an older version; give the rows of the fit as X, or rows with these covariates"
            )
        records = TailRecord.of(values).columns
    columns = [
        _certify_column(model, fitted, j, record, None if values is None else values[:, j])
        for j, record in enumerate(records)
    ]
    n_tested = 0 if values is None else len(values)
    return TailCertificate(tuple(columns), tested, n_tested, fitted.kind, training_note(model))


def _certify_column(
    model: Any, fitted: Fitted, position: int, record: ColumnRecord, x: Array | None
) -> ColumnCertificate:
    rarest = min(1 - LEVELS[-1], 1 / (RARER * record.n))
    own = ColumnLaw(fitted.vae, position, fitted.proposal(position, probability=rarest), STEADY)
    law, trust = Pooled(own), _trust(own, record)
    quantiles = law.icdf(tensor(LEVELS))[0]
    # beyond a quantile that falls into an atom there is less than the level leaves
    beyond = law.log_sf(quantiles).exp()[0].numpy()
    support = tuple((level, int((record.top > q).sum())) for level, q in zip(LEVELS, quantiles.tolist(), strict=True))
    threshold, point, turn = (
        (float(record.top[-1]), float(record.top[-1]), math.nan)
        if trust is None
        else (trust.threshold, trust.point, trust.turn)
    )
    covered = [
        level
        for (level, count), q in zip(support, quantiles.tolist(), strict=True)
        if count >= FEWEST and q <= point and trust is not None
    ]
    seen = None if x is None else x[~np.isnan(x)]
    evidence: dict[str, Any] = {
        "name": fitted.title(position),
        "n": record.n,
        "largest": record.largest,
        "support": support,
        "supported_level": max(covered, default=0.0),
        "threshold": threshold,
        "trust_point": point,
        "trust_probability": float(law.log_sf(tensor([point])).exp()),
        "turn": turn,
        "gpd": None if trust is None else _pareto(trust),
        "tests": () if seen is None else _tests(seen, quantiles.numpy(), beyond),
        "clusters": None if seen is None else clustering(seen),
        "tail_index": _index(model, position, position in fitted.minus),
    }
    verdict, words, notes = judge(**evidence)
    return ColumnCertificate(**evidence, verdict=verdict, words=words, notes=notes)


def _index(model: Any, position: int, losses: bool) -> TailIndex | None:
    """The index of the model's own tail, for laws that have one."""
    if "tail_index" not in model.settings_:
        return None
    return tail_index(model, position, tail="lower" if losses else "upper")


def _trust(law: ColumnLaw, record: ColumnRecord) -> Trust | None:
    """How far the tail can be trusted; None where too few values exceed the threshold to fit a tail to."""
    if len(np.unique(record.top)) <= FEWEST:
        return None
    return trust_point(law, record)


def _pareto(trust: Trust) -> ParetoTail:
    return ParetoTail(trust.fit.shape, trust.fit.shape_error, trust.fit.scale, trust.threshold)


def _tests(x: Array, quantiles: Array, probabilities: Array) -> tuple[ExceedanceTest, ...]:
    tests = []
    for level, quantile, probability in zip(LEVELS, quantiles, probabilities, strict=True):
        observed = int((x > quantile).sum())
        p_value = kupiec(observed, len(x), float(probability))
        tests.append(ExceedanceTest(level, len(x) * float(probability), observed, p_value))
    return tuple(tests)


def _row(column: ColumnCertificate) -> dict[str, Any]:
    """The figures of a column as one row."""
    gpd = column.gpd or ParetoTail(math.nan, math.nan, math.nan, math.nan)
    index = column.tail_index
    return {
        "column": column.name,
        "verdict": column.verdict,
        "n": column.n,
        "largest": column.largest,
        "supported_level": column.supported_level,
        "threshold": column.threshold,
        "trust_point": column.trust_point,
        "trust_probability": column.trust_probability,
        "turn": column.turn,
        "gpd_shape": gpd.shape,
        "gpd_shape_error": gpd.shape_error,
        "gpd_scale": gpd.scale,
        "tail_index": math.nan if index is None else index.estimate,
        "tail_index_low": math.nan if index is None else index.low,
        "tail_index_high": math.nan if index is None else index.high,
        **{f"exceedances_{level}": count for level, count in column.support},
        "lowest_p_value": min((test.p_value for test in column.tests), default=math.nan),
        "cluster_size": math.nan if column.clusters is None else column.clusters.size,
        "words": column.words,
        "notes": "; ".join(column.notes),
    }


def _plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
