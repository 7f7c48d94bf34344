"""Loaders: every way a file can be found, read and missed; and the real files where they are at hand."""

import gzip
import hashlib
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from phvae.datasets import DataNotFound, danish_fire, danish_fire_parts, equity_returns, public, word_counts

PRICES = "Date,AAA,BBB\n2020-01-02,100,50\n2020-01-03,110,50\n2020-01-06,99,\n2020-01-07,99,60\n2020-01-08,100,57\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, an empty cache, and no way out."""
    monkeypatch.setenv("PHVAE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    place = tmp_path / "served"
    place.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(place))) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield place, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_a_path_comes_before_the_folder(folder):
    (folder / "danishuni.csv").write_text("date,loss\n1980-01-03,7\n")
    own = folder / "own.csv"
    own.write_text("Loss\n1.5\n2.5\n")
    assert danish_fire(own).values.tolist() == [[1.5], [2.5]]


def test_the_folder_is_searched_and_its_data_checked(folder):
    losses = np.full(2167, 1.0)
    losses[0], losses[1] = public.DANISH_LARGEST, public.DANISH_SUM - public.DANISH_LARGEST - 2165
    (folder / "danishuni.csv").write_text("date,loss\n" + "".join(f"1980-01-03,{x!r}\n" for x in losses.tolist()))
    with pytest.raises(ValueError, match="does not hold the 2,167 known losses"):
        danish_fire()  # one claim is larger than the largest
    losses[1:] = (public.DANISH_SUM - public.DANISH_LARGEST) / 2166
    text = "rownames,dat\n" + "".join(f"{i},{x!r}\n" for i, x in enumerate(losses.tolist()))
    (folder / "danishuni.csv").write_text(text)
    data = danish_fire()
    assert data.values.shape == (2167, 1)
    assert data.description == "Danish fire losses [million kroner at 1985 prices]: 2,167 rows"


def test_parts_are_read_as_r_exports_them(folder):
    (folder / "danishmulti.csv").write_text(
        '"","Date","Building","Contents","Profits","Total"\n"1",1980-01-03,1.1,0.6,0,1.7\n"2",1980-01-04,1.8,0,0.2,2\n'
    )
    data = danish_fire_parts()
    assert data.names == ("building", "contents", "profits")
    assert data.values.tolist() == [[1.1, 0.6, 0], [1.8, 0, 0.2]]
    assert data.labels == ("1980-01-03", "1980-01-04")
    assert data.description.endswith("2 rows, 1980-01-03 to 1980-01-04")


@pytest.mark.parametrize("suffix", [".txt", ".csv.gz"])
def test_words_with_or_without_a_header_zipped_or_not(folder, suffix):
    text = "the\t300\nnull\t20\n" if suffix == ".txt" else "word,count\nthe,300\nnull,20\n"
    content = gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode()
    (folder / f"count_1w{suffix}").write_bytes(content)
    data = word_counts()
    assert data.values.tolist() == [[300], [20]]
    assert data.labels == ("the", "null")
    assert data.description == "counts of 2 words, 20 to 300"


def test_returns_are_absolute_and_taken_between_days_that_trade(folder):
    (folder / "my-prices.csv").write_text(PRICES)
    data = equity_returns(tickers=("AAA", "BBB"), zeros=True)
    # 2020-01-03: 10% and no move; the 6th and 7th lack a price of BBB on one side
    np.testing.assert_allclose(data.values, [[0.1, 0.0], [1 / 99, 0.05]])
    assert data.labels == ("2020-01-03", "2020-01-08")
    moved = equity_returns(tickers=("AAA", "BBB"), unit="percent")
    np.testing.assert_allclose(moved.values, [[100 / 99, 5.0]])
    assert "[percent] of AAA, BBB: 1 days, 2020-01-08 to 2020-01-08, days without a move left out" in moved.description
    assert len(equity_returns(tickers=("AAA",), first="2020-01-06", last="2020-01-08", zeros=True).values) == 2


def test_prices_may_come_as_one_row_per_date_and_ticker(folder):
    path = folder / "long.csv"
    path.write_text(
        "date,symbol,open,close\n2020-01-02,AAA,1,100\n2020-01-02,BBB,1,50\n2020-01-03,BBB,1,55\n2020-01-03,AAA,1,90\n"
    )
    np.testing.assert_allclose(equity_returns(path, tickers=("AAA", "BBB")).values, [[0.1, 0.1]])


@pytest.mark.parametrize(
    ("load", "text", "message"),
    [
        (danish_fire, "date,amount\n1980-01-03,7\n", "no column 'loss', only date, amount; rename one"),
        (danish_fire, "loss\n7\nseven\n", "line 3 has no number there: seven"),
        (danish_fire, "loss\n7\n-7\n", "negative or missing"),
        (danish_fire, "", "is empty"),
        (equity_returns, PRICES, "no column AAPL, only date, aaa, bbb; give tickers="),
        (equity_returns, "AAPL\n1\n2\n", "no column date"),
        (equity_returns, "date,AAPL,MSFT,AMZN,GOOGL,META\n2020-01-02,1,2,3,4,x\n", "price 'x' of META"),
        (equity_returns, "date,AAPL,MSFT,AMZN,GOOGL,META\n2020-01-02,1,2,3,4,5\n", "no two days in a row"),
    ],
)
def test_files_that_cannot_be_read_are_named_in_one_line(tmp_path, load, text, message):
    path = tmp_path / "file.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "file.csv.gz"
    path.write_bytes(b"no gzip at all")
    with pytest.raises(ValueError, match="is no text table"):
        word_counts(path)


def test_an_unknown_unit_is_named():
    with pytest.raises(ValueError, match="unit='basis points' is unknown; choose 'fraction' or 'percent'"):
        equity_returns(unit="basis points")


@pytest.mark.parametrize("load", [danish_fire, danish_fire_parts, word_counts, equity_returns])
def test_a_missing_path_says_so(load):
    with pytest.raises(DataNotFound, match="is no file; name the file itself"):
        load("nowhere.csv")


@pytest.mark.parametrize(("load", "remedy"), [(danish_fire_parts, "write.csv"), (equity_returns, "closing prices")])
def test_data_without_a_public_copy_say_how_to_come_by_them(folder, load, remedy):
    with pytest.raises(DataNotFound, match=remedy) as caught:
        load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("load", "constant"), [(danish_fire, "DANISH_URL"), (word_counts, "WORDS_URL")])
def test_offline_is_one_line_with_a_remedy(folder, monkeypatch, load, constant):
    monkeypatch.setattr(public, constant, "http://127.0.0.1:9/nothing.txt")
    with pytest.raises(DataNotFound, match="cannot be reached") as caught:
        load()
    assert "PHVAE_DATA" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_public_copy_is_downloaded_once_and_checked(folder, server, monkeypatch):
    place, url = server
    (place / "count_1w.txt").write_text("the\t300\nof\t20\n")
    monkeypatch.setattr(public, "WORDS_URL", f"{url}/count_1w.txt")
    with pytest.raises(DataNotFound, match="its checksum differs"):
        word_counts()

    digest = hashlib.sha256((place / "count_1w.txt").read_bytes()).hexdigest()
    monkeypatch.setattr(public, "WORDS_SHA256", digest)
    assert word_counts().values.tolist() == [[300], [20]]
    (place / "count_1w.txt").unlink()
    assert word_counts().labels == ("the", "of")


real = pytest.mark.skipif(
    "PHVAE_DATA" not in os.environ, reason="needs the public files: set PHVAE_DATA to their folder"
)


@real
def test_danish_fire_losses_are_the_known_ones():
    data = danish_fire()
    assert data.values.shape == (2167, 1)
    assert data.values.max() == pytest.approx(263.250366, abs=1e-6)
    assert np.median(data.values) == pytest.approx(1.778154, abs=1e-6)


@real
def test_danish_fire_parts_sum_to_the_losses():
    parts = danish_fire_parts().values
    assert (parts > 0).sum(axis=0).tolist() == [1990, 1679, 616]
    np.testing.assert_allclose(parts.sum(axis=1), danish_fire().values[:, 0], atol=1e-4)


@real
def test_word_counts_are_the_known_ones():
    data = word_counts()
    assert (len(data.values), data.values.max(), data.values.min()) == (333_333, 23135851162, 12711)
    assert (np.diff(data.values[:, 0]) <= 0).all()


@real
def test_equity_returns_cover_days_on_which_all_five_moved():
    data = equity_returns(first="2010-01-01", last="2024-12-31")
    assert data.values.shape[1] == 5
    assert len(data.values) > 3000
    assert (data.values > 0).all()
    np.testing.assert_allclose(equity_returns(unit="percent", last="2024-12-31").values, 100 * data.values, rtol=1e-12)
