"""Public data sets of the field: Danish fire losses, word counts, daily returns of five equities.

No file is part of the package. Each loader takes a path, else looks in the folder named by the environment variable
``PHVAE_DATA``, else downloads a public copy once where a stable one exists.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from phvae.datasets.copulas import CLAIMS
from phvae.datasets.sources import VARIABLE, find, read_rows
from phvae.tables import from_matrix

__all__ = ["Dataset", "claims", "danish_fire", "danish_fire_parts", "equity_returns", "word_counts"]

Array = NDArray[np.float64]
Place = str | os.PathLike[str]

DANISH_URL = (
    "https://raw.githubusercontent.com/vincentarelbundock/Rdatasets/"
    "1c97ab8a1df2469762e635481ba27cf4e80e3e51/csv/evir/danish.csv"
)
# Copies of the losses differ in the digits they print, so the data are checked: how many, their sum, the largest.
DANISH_LOSSES, DANISH_SUM, DANISH_LARGEST = 2167, 7335.4864, 263.250366
WORDS_URL = "https://norvig.com/ngrams/count_1w.txt"
WORDS_SHA256 = "51df159fd3de12b20e403c108f526e96dbd723d9cabdd5f17955cdc16059e690"
EQUITIES = ("AAPL", "MSFT", "AMZN", "GOOGL", "META")


@dataclass(frozen=True)
class Dataset:
    """A matrix with names, labels and a line that says what it is.

    Args:
        values: One row per observation, ``(n, D)``.
        names: Name of each column.
        description: What the numbers are, their unit and range.
        labels: One text per row, such as a date or a word; may be empty.
    """

    values: Array
    names: tuple[str, ...]
    description: str
    labels: tuple[str, ...] = field(default=(), repr=False)

    def table(self, kind: str = "pandas") -> Any:
        """The values as a ``pandas``, ``polars`` or ``pyarrow`` table.

        >>> claims(3, seed=0).table("pyarrow").column_names
        ['building', 'contents', 'interruption']
        """
        return from_matrix(self.values, list(self.names), kind)


def claims(n: int = 5000, seed: Any = 0) -> Dataset:
    """Synthetic fire losses with a known law, `phvae.datasets.CLAIMS`: three dependent columns, one mostly zero.

    >>> data = claims(1000, seed=1)
    >>> data.values.shape, bool((data.values[:, 2] == 0).mean() > 0.6)
    ((1000, 3), True)
    """
    return Dataset(
        CLAIMS.sample(n, seed),
        ("building", "contents", "interruption"),
        f"synthetic fire losses of {n:,} events [thousand], drawn from phvae.datasets.CLAIMS",
    )


def danish_fire(path: Place | None = None) -> Dataset:
    """Danish fire losses of at least a million kroner, 1980-1990, in millions of kroner at 1985 prices: 2,167 rows.

    Args:
        path: A CSV file with a column ``loss`` (or ``dat``, ``x``), and perhaps ``date``.
    """
    name = "danish_fire"
    file = find(name, path, files=("danishuni.csv", "danish.csv"), url=DANISH_URL)
    header, rows = read_rows(file, name=name)
    losses = _columns(name, file, header, rows, [("loss", "dat", "x")])
    if path is None and not _are_the_danish_losses(losses):
        raise ValueError(f"{name}: {file} does not hold the 2,167 known losses; delete it, or give path= to your file")
    dates = _labels(header, rows, "date")
    return Dataset(losses, ("loss",), _fire("Danish fire losses", losses, dates), dates)


def danish_fire_parts(path: Place | None = None) -> Dataset:
    """The Danish fire losses split into building, contents and profits; an exact 0 is no loss of that kind.

    Args:
        path: A CSV file with columns ``building``, ``contents`` and ``profits``, and perhaps ``date``.
    """
    name = "danish_fire_parts"
    advice = (
        "export it from R with write.csv(fitdistrplus::danishmulti, 'danishmulti.csv', row.names = FALSE) "
        "and give path= to that file, or put it into a folder named by PHVAE_DATA"
    )
    file = find(name, path, files=("danishmulti.csv",), advice=advice)
    header, rows = read_rows(file, name=name)
    losses = _columns(name, file, header, rows, [("building",), ("contents", "content"), ("profits", "profit")])
    dates = _labels(header, rows, "date")
    return Dataset(
        losses, ("building", "contents", "profits"), _fire("Danish fire losses by part", losses, dates), dates
    )


def word_counts(path: Place | None = None) -> Dataset:
    """How often each of the 333,333 most frequent words occurs in the Google Web corpus; counts from 12,711 to 2.3e10.

    Args:
        path: A table of words and counts, tab or comma separated, gzipped or not.
    """
    name = "word_counts"
    files = ("count_1w.txt", "count_1w.txt.gz", "count_1w.csv", "count_1w.csv.gz", "unigram_freq.csv")
    file = find(name, path, files=files, url=WORDS_URL, sha256=WORDS_SHA256)
    header, rows = read_rows(file, name=name)
    counts = _columns(name, file, header, rows, [("count", "frequency")])
    words = tuple(row[0] for row in rows)
    description = f"counts of {len(counts):,} words, {counts.min():.0f} to {counts.max():.3g}"
    return Dataset(counts, ("count",), description, words)


def equity_returns(
    path: Place | None = None,
    *,
    tickers: tuple[str, ...] = EQUITIES,
    unit: Literal["fraction", "percent"] = "fraction",
    first: str | None = None,
    last: str | None = None,
    zeros: bool = False,
    signed: bool = False,
) -> Dataset:
    """Absolute daily returns ``|p_t / p_(t-1) - 1|`` from a file of daily prices, on days where all tickers trade.

    Vendors revise past prices and no public copy is stable, so any file will do: one column per ticker, or one row per
    date and ticker. The description states the range the numbers cover.

    Args:
        path: A CSV file of daily (adjusted) closing prices.
        tickers: Columns wanted.
        unit: ``"fraction"`` or ``"percent"``; a correlation of log(1 + x) depends on it.
        first: First date used, as ``"2010-01-01"``.
        last: Last date used.
        zeros: Keep days where a price did not move; by default they are left out.
        signed: Returns with their signs, ``p_t / p_(t-1) - 1``.
    """
    name = "equity_returns"
    if unit not in ("fraction", "percent"):
        raise ValueError(f"unit={unit!r} is unknown; choose 'fraction' or 'percent'")
    advice = "give path= to a CSV file of daily adjusted closing prices, a column per ticker and a column date"
    file = find(name, path, files=_price_files(), advice=advice)
    dates, prices = _prices(name, file, tickers)
    inside = np.array([(first is None or day >= first) and (last is None or day <= last) for day in dates])
    dates, prices = dates[inside], prices[inside]
    with np.errstate(divide="ignore", invalid="ignore"):
        returns = prices[1:] / prices[:-1] - 1
    returns = returns if signed else np.abs(returns)
    keep = np.isfinite(returns).all(axis=1)
    if not zeros:
        keep &= (returns != 0).all(axis=1)
    values, days = returns[keep] * (100.0 if unit == "percent" else 1.0), dates[1:][keep]
    if len(values) == 0:
        raise ValueError(f"{name}: {file} has no two days in a row with prices of {', '.join(tickers)}")
    left_out = "" if zeros else ", days without a move left out"
    span = f"{len(values):,} days, {days[0]} to {days[-1]}{left_out}"
    description = f"{'' if signed else 'absolute '}daily returns [{unit}] of {', '.join(tickers)}: {span}"
    return Dataset(values, tickers, description, tuple(days.tolist()))


def _fire(what: str, losses: Array, dates: tuple[str, ...]) -> str:
    span = f", {min(dates)} to {max(dates)}" if dates else ""
    return f"{what} [million kroner at 1985 prices]: {len(losses):,} rows{span}"


def _are_the_danish_losses(losses: Array) -> bool:
    return (
        len(losses) == DANISH_LOSSES
        and abs(losses.sum() - DANISH_SUM) < 0.01
        and abs(losses.max() - DANISH_LARGEST) < 1e-5
    )


def _columns(name: str, file: Path, header: list[str], rows: list[list[str]], wanted: list[tuple[str, ...]]) -> Array:
    """Columns by any of their names; the last ones of a file without a header."""
    if header:
        places = [next((header.index(n) for n in names if n in header), None) for names in wanted]
        if None in places:
            missing = wanted[places.index(None)][0]
            raise ValueError(f"{name}: {file} has no column {missing!r}, only {', '.join(header)}; rename one")
    else:
        places = list(range(len(rows[0]) - len(wanted), len(rows[0])))
    values = np.empty((len(rows), len(wanted)))
    for i, row in enumerate(rows):
        try:
            values[i] = [float(row[place]) for place in places if place is not None]
        except (ValueError, IndexError):
            raise ValueError(
                f"{name}: {file}, line {i + 1 + bool(header)} has no number there: {','.join(row)}"
            ) from None
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError(f"{name}: {file} holds negative or missing values; remove those rows")
    return values


def _labels(header: list[str], rows: list[list[str]], column: str) -> tuple[str, ...]:
    return tuple(row[header.index(column)] for row in rows) if column in header else ()


def _price_files() -> tuple[str, ...]:
    """Files of the data folder that may hold prices, by name."""
    folder = os.environ.get(VARIABLE)
    names = sorted(p.name for p in Path(folder).glob("*.csv*")) if folder else []
    return tuple(n for n in names if "equit" in n or "price" in n) or ("equities.csv",)


def _prices(name: str, file: Path, tickers: tuple[str, ...]) -> tuple[NDArray[np.str_], Array]:
    """Sorted dates and a matrix of prices, nan where a ticker has none."""
    header, rows = read_rows(file, name=name)
    day = next((column for column in ("date", "day", "timestamp") if column in header), None)
    if day is None:
        raise ValueError(f"{name}: {file} has no column date, only {', '.join(header) or 'numbers'}; rename one")
    symbol = next((column for column in ("ticker", "symbol") if column in header), None)
    price = next((c for c in ("adj close", "adj_close", "adjclose", "adjusted", "close", "price") if c in header), None)
    at = header.index(day)
    dates = sorted({row[at][:10] for row in rows})
    row_of = {date: i for i, date in enumerate(dates)}
    prices = np.full((len(dates), len(tickers)), np.nan)
    if symbol is not None and price is not None:
        column_of = {ticker.lower(): j for j, ticker in enumerate(tickers)}
        cells = [(row[at], column_of.get(row[header.index(symbol)].lower()), row[header.index(price)]) for row in rows]
    else:
        places = [header.index(t.lower()) if t.lower() in header else None for t in tickers]
        if None in places:
            raise ValueError(
                f"{name}: {file} has no column {tickers[places.index(None)]}, only {', '.join(header)}; "
                "give tickers= that it has"
            )
        cells = [(row[at], j, row[place]) for row in rows for j, place in enumerate(places) if place is not None]
    for date, j, cell in cells:
        if j is not None and cell:
            try:
                prices[row_of[date[:10]], j] = float(cell)
            except ValueError:
                raise ValueError(
                    f"{name}: {file}, {date} has the price {cell!r} of {tickers[j]}; give numbers"
                ) from None
    return np.array(dates), prices
