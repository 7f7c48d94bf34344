"""Origin and scale of each column: what turns a user's units into the unit-free numbers the networks learn from."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from phvae import defaults, weights
from phvae.supports import ATOM_FROM, Support, fit_signed_column, signed_columns
from phvae.tables import DataError

__all__ = [
    "Origin",
    "PositiveScaler",
    "column_names",
    "endpoints",
    "geometric_start",
    "require_no_origin",
    "require_non_negative",
    "rounded",
]

Array = NDArray[np.float64]
Endpoint = float | Literal["auto"]
Origin = Endpoint | Sequence[Endpoint] | Mapping[str, Endpoint]

# What single precision keeps. Two columns that differ only in their unit agree after rounding to so many bits, so a
# model fitted to either is the same model; statistically the rounding is far below anything a sample can show.
SIGNIFICANT_BITS = 24

# The networks keep unit-free values in single precision, which ends at 3e38, and a rate is one over a value.
WIDEST = 1e30
# Scales in whose units a square, a product of two columns or a rate still is a number of double precision.
EXTREME_SCALE = 1e100


class PositiveScaler:
    """Lower endpoint and typical size of each column: ``u = (x - origin) / scale``, with exact zeros kept at zero.

    The origin of a column is estimated by ``min - (mean - min) / n``, never below 0, taken over its positive values;
    the scale is the median of ``x - origin`` over them. A column with exact zeros has an atom there: its share is in
    ``zero_share_``, and neither origin nor scale look at the zeros. A signed column has its origin at 0, the median of
    ``|x|`` as its scale, and an atom at zero from one exact zero in a hundred rows on.

    Args:
        origin: ``"auto"``, one number for all columns, a number or ``"auto"`` per column, or a dict from column name
            to either (columns that are not named are estimated). 0 puts every lower endpoint at zero.
        support: ``"non-negative"`` or ``"real"``, one of them per column, or a dict from column name.
        atom_from: Share of exact zeros from which on a signed column has an atom at zero.

    Attributes:
        origin_: Lower endpoints, shape ``(D,)``.
        scale_: Scales, shape ``(D,)``, positive.
        zero_share_: Shares of exact zeros, shape ``(D,)``.
        loss_share_: Shares of negative values among those that are no zeros, shape ``(D,)``; above 0 in signed columns.

    >>> x = np.array([[11.0, 0.0], [12.0, 4.0], [17.0, 8.0]])
    >>> scaler = PositiveScaler(origin=[10, "auto"]).fit(x)
    >>> scaler.origin_.tolist(), scaler.scale_.tolist(), scaler.zero_share_.round(2).tolist()
    ([10.0, 3.0], [2.0, 3.0], [0.0, 0.33])
    >>> scaler.transform(x)[:, 0].tolist()
    [0.5, 1.0, 3.5]
    """

    origin_: Array
    scale_: Array
    zero_share_: Array
    loss_share_: Array

    def __init__(
        self, origin: Origin = defaults.ORIGIN, support: Support = defaults.SUPPORT, atom_from: float = ATOM_FROM
    ) -> None:
        self.origin, self.support, self.atom_from = origin, support, atom_from

    def __repr__(self) -> str:
        if not hasattr(self, "origin_"):
            return f"PositiveScaler(origin={self.origin!r})"
        return f"PositiveScaler(origin_={self.origin_}, scale_={self.scale_}, zero_share_={self.zero_share_})"

    @classmethod
    def of(cls, origin: Array, scale: Array, zero_share: Array, loss_share: Array | None = None) -> Self:
        """A fitted scaler with known numbers."""
        losses = np.zeros(len(scale)) if loss_share is None else loss_share
        support = ["real" if share > 0 else defaults.SUPPORT for share in losses]
        scaler = cls([float(endpoint) for endpoint in origin], support)
        scaler.origin_, scaler.scale_, scaler.zero_share_, scaler.loss_share_ = origin, scale, zero_share, losses
        return scaler

    @property
    def lower_(self) -> Array:
        """Where the density of each column begins, shape ``(D,)``: its origin, or ``-inf``."""
        return np.where(self.loss_share_ > 0, -np.inf, self.origin_)

    def fit(
        self,
        x: Array,
        names: Sequence[object] | None = None,
        sample_weight: Array | None = None,
        *,
        used: NDArray[np.bool_] | None = None,
        automatic: Sequence[float | None] | None = None,
    ) -> Self:
        """Learn origin, scale and share of zeros of each column.

        Args:
            x: Finite values, shape ``(n, D)``.
            names: Column names for messages and for ``origin`` given by name; ``x0, x1, ...`` when omitted.
            sample_weight: Positive weights of the rows, shape ``(n,)``.
            used: Which values to look at, shape ``(n, D)``; None for all.
            automatic: What ``"auto"`` stands for in each column, where that is not to be estimated from these values.
        """
        labels = column_names(x.shape[1], names)
        signed = signed_columns(self.support, labels)
        require_non_negative(x, labels, signed)
        given = endpoints(self.origin, labels)
        if automatic is not None:
            given = [end if start is None else start for start, end in zip(given, automatic, strict=True)]
        columns = [
            _fit_part(
                x[:, j],
                None if used is None else used[:, j],
                sample_weight,
                given[j],
                labels[j],
                self.atom_from if signed[j] else None,
            )
            for j in range(x.shape[1])
        ]
        self.origin_, self.scale_, self.zero_share_, self.loss_share_ = (
            np.array([column[part] for column in columns]) for part in range(4)
        )
        return self

    def transform(self, x: Array) -> Array:
        """Unit-free values ``u`` of shape ``(n, D)``; zero where a column with an atom is exactly zero."""
        u: Array = np.where(self._at_atom(x), 0.0, (x - self.origin_) / self.scale_)
        return u

    def inverse_transform(self, u: Array) -> Array:
        """Values in the user's units from unit-free ones."""
        x: Array = np.where(self._at_atom(u), 0.0, self.origin_ + self.scale_ * u)
        return x

    def log_volume(self, x: Array) -> Array:
        """What a log-likelihood in the user's units has less than one of ``u``: shape ``(n,)``.

        ``Σ_j log scale_j`` over the entries that have a density; an exact zero has a probability, free of units.
        """
        total: Array = np.where(self._at_atom(x), 0.0, np.log(self.scale_)).sum(-1)
        return total

    def _at_atom(self, x: Array) -> NDArray[np.bool_]:
        at_atom: NDArray[np.bool_] = (x == 0) & (self.zero_share_ > 0)
        return at_atom


def rounded(u: Array) -> Array:
    """Each value to the 24 significant bits of single precision, in the range of double precision.

    >>> rounded(np.array([1 / 3])) == np.float32(1 / 3)
    array([ True])
    """
    mantissa, exponent = np.frexp(u)
    short: Array = np.ldexp(np.rint(np.ldexp(mantissa, SIGNIFICANT_BITS)), exponent - SIGNIFICANT_BITS)
    return short


def geometric_start(u: Array, n_phases: int, sample_weight: Array | None = None) -> tuple[Array, Array]:
    """Equal start probabilities on rates spread geometrically from ``3 / max`` to ``20 / median`` of each column.

    Args:
        u: Unit-free values, shape ``(n, D)``; exact zeros are left out.
        n_phases: Number of phases ``m``.
        sample_weight: Weights of the rows, shape ``(n,)``.

    Returns:
        ``(initial, rates)``, both of shape ``(D, m)``.

    >>> initial, rates = geometric_start(np.array([[0.0], [1.0], [1.0], [3.0]]), 2)
    >>> initial.tolist(), rates.tolist()
    ([[0.5, 0.5]], [[1.0, 20.0]])
    """
    rates = np.stack([_spread(column, n_phases, sample_weight) for column in u.T])
    return np.full_like(rates, 1 / n_phases), rates


def _spread(u: Array, n_phases: int, mass: Array | None) -> Array:
    middle = weights.median(u[u > 0], None if mass is None else mass[u > 0])
    return np.asarray(np.geomspace(3 / u.max(), 20 / middle, n_phases))


def column_names(n_columns: int, names: Sequence[object] | None) -> list[str]:
    """Names to speak of columns by: those of the frame, or ``x0, x1, ...``."""
    return [f"x{j}" for j in range(n_columns)] if names is None else [str(name) for name in names]


def require_non_negative(x: Array, labels: Sequence[str], signed: NDArray[np.bool_] | None = None) -> None:
    """Say which value is negative, if one is outside the signed columns."""
    wrong = x < 0 if signed is None else (x < 0) & ~signed
    if wrong.any():
        row, column = divmod(int(wrong.argmax()), x.shape[1])
        others = f" and {int(wrong.sum()) - 1} more" if wrong.sum() > 1 else ""
        raise DataError(
            f"Negative values in data: column {labels[column]!r}",
            row,
            f"is {x[row, column]:g}{others}; "
            "values are >= 0 unless they are said to have signs: remove such rows, or fit with support='real' "
            f"(support={{{labels[column]!r}: 'real'}} for this column alone)",
        )


Numbers = tuple[float, float, float, float]


def _fit_signed(x: Array, mass: Array | None, given: float | None, label: str, atom_from: float) -> Numbers:
    """As `_fit_column` for a column with both signs."""
    require_no_origin(given, label)
    scale, zero_share, loss_share = fit_signed_column(x, mass, label, atom_from)
    _require_reasonable(np.abs(x), scale, x, label)
    return 0.0, scale, zero_share, loss_share


def require_no_origin(given: float | None, label: str) -> None:
    """Refuse an origin of a signed column."""
    if given:
        raise ValueError(
            f"origin of column {label!r} is {given:g}, and its support is the whole line, which has no lower end; "
            "leave the origin of this column 'auto'"
        )


def _fit_column(x: Array, mass: Array | None, given: float | None, label: str) -> Numbers:
    """Origin, scale, share of zeros and share of losses of one column; there are none of the last."""
    positive, used = x[x > 0], None if mass is None else mass[x > 0]
    if not positive.size:
        raise DataError(f"column {label!r} is 0 in every row; it has no law to learn: drop it")
    smallest, n = float(positive.min()), positive.size if used is None else float(used.sum())
    if smallest == positive.max():
        which = "row" if positive.size == x.size else "row that is not 0"
        raise DataError(f"column {label!r} is {smallest:g} in every {which}; a constant has no law to learn: drop it")
    if given is None:
        # divided before summing, so that the mean of huge values does not overflow
        gap = float(((positive - smallest) / n * (1.0 if used is None else used)).sum()) / n
        # next below: far from zero the gap may be lost in rounding, and no value may sit on its own lower endpoint
        origin = max(0.0, min(smallest - gap, float(np.nextafter(smallest, 0))))
    elif smallest <= given:
        raise _origin_too_high(x, positive, given, label)
    else:
        origin = given
    excess = positive - origin
    scale = weights.median(excess, used)
    _require_reasonable(excess, scale, x, label)
    return origin, scale, 1 - n / (x.size if mass is None else float(mass.sum())), 0.0


def _require_reasonable(excess: Array, scale: float, x: Array, label: str) -> None:
    """Refuse a unit, or a value beside its median, that double precision has no room for."""
    if not 1 / EXTREME_SCALE <= scale <= EXTREME_SCALE:
        raise DataError(f"column {label!r} has a median excess of {scale:g}; give it in another unit")
    if float(excess.max()) / scale > WIDEST:
        row = int(np.abs(x).argmax())
        raise DataError(
            f"column {label!r}",
            row,
            f"is {x[row]:g}, beyond {WIDEST:g} times the median excess {scale:g}; remove the row or check its unit",
        )


def _fit_part(
    x: Array,
    used: NDArray[np.bool_] | None,
    mass: Array | None,
    given: float | None,
    label: str,
    atom_from: float | None,
) -> Numbers:
    """The same of some values of a column, or of all, which have signs where `atom_from` is given."""
    fit_column = _fit_column if atom_from is None else partial(_fit_signed, atom_from=atom_from)
    if used is None:
        return fit_column(x, mass, given, label)
    rows = np.flatnonzero(used)
    if not len(rows):
        raise DataError(f"column {label!r} has no value in any row; it has no law to learn: drop it")
    try:
        return fit_column(x[rows], None if mass is None else mass[rows], given, label)
    except DataError as error:
        if error.row is None:
            raise
        raise DataError(error.what, int(rows[error.row]), error.fault) from None


def _origin_too_high(x: Array, positive: Array, origin: float, label: str) -> DataError:
    row = int(((x > 0) & (x <= origin)).argmax())
    fault = f"is {x[row]:g}, below its origin {origin:g}; remove the row, lower the origin or use 'auto'"
    if x[row] == origin:
        lower = origin - float(np.median(positive - origin)) / positive.size
        fault = (
            f"is {x[row]:g}, exactly at its origin, where the density is unbounded; "
            f"lower the origin to {lower:.6g} or use 'auto'"
        )
    return DataError(f"column {label!r}", row, fault)


def endpoints(origin: Origin, labels: Sequence[str]) -> list[float | None]:
    """The endpoint asked for, per column; None where it is to be estimated."""
    given: list[Any]
    if isinstance(origin, Mapping):
        unknown = sorted(set(origin) - set(labels))
        if unknown:
            raise ValueError(f"origin names column {unknown[0]!r}, which the data do not have; they have {labels}")
        given = [origin.get(label, "auto") for label in labels]
    elif isinstance(origin, str | float | int) or np.ndim(origin) == 0:
        given = [origin for _ in labels]
    else:
        given = list(origin)
        if len(given) != len(labels):
            raise ValueError(f"origin has {len(given)} entries and the data {len(labels)} columns; give one per column")
    return [_endpoint(value, label) for value, label in zip(given, labels, strict=True)]


def _endpoint(value: Any, label: str) -> float | None:
    if isinstance(value, str):
        if value == "auto":
            return None
    elif np.isreal(value) and 0 <= value < np.inf:
        return float(value)
    raise ValueError(f"origin of column {label!r} is {value!r}; give 'auto' or a number >= 0")
