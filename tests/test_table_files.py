"""Tables from files and to files: every format gives the same numbers, and a mistake is named by file and line."""

import gzip
import io
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from phvae.files import PARTIAL, whole_file
from phvae.tables import to_matrix
from phvae.tables.read import read_table
from phvae.tables.write import ROWS_AT_ONCE, table_writer

NAMES = ["loss", "days, until paid", 'said "so"']


def numbers(n=1000):
    """Numbers of every size, with zeros, denormals and the largest there is."""
    rng = np.random.default_rng(0)
    values = np.ldexp(rng.random((n, 3)), rng.integers(-1060, 1020, (n, 3)))
    values[0] = 0.0, 5e-324, np.finfo(float).max
    values[1] = 0.1, 1 / 3, 1e22
    return values


def write(path, values, names=NAMES):
    with table_writer(path, names) as add:
        for block in np.array_split(values, 7):
            add(block)


def text_file(tmp_path, text, name="claims.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".pq", ".arrow", ".feather", ".ipc", ".CSV"])
def test_what_is_written_is_read_bit_for_bit(tmp_path, ending, monkeypatch):
    values = numbers()
    path = tmp_path / f"claims{ending}"
    write(path, values)
    assert os.listdir(tmp_path) == [path.name]
    sheet = read_table(path)
    assert (sheet.table.column_names, sheet.notices, sheet.weights) == (NAMES, [], None)
    np.testing.assert_array_equal(to_matrix(sheet.table).values, values)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    np.testing.assert_array_equal(to_matrix(read_table("-").table).values, values)


def test_the_same_rows_make_the_same_file(tmp_path):
    for ending in (".csv", ".csv.gz", ".parquet", ".arrow"):
        contents = set()
        for attempt, pieces in enumerate((1, 5)):
            path = tmp_path / f"{attempt}{ending}"
            with table_writer(path, NAMES) as add:
                for block in np.array_split(numbers(), pieces):
                    add(block)
            contents.add(path.read_bytes())
        assert len(contents) == 1


def test_files_of_other_programs_are_read(tmp_path):
    frame = pd.DataFrame(
        {
            "loss": [1.5, 2.5, 4.0],
            "n": np.array([1, 2, 2**60 + 1], dtype=np.int64),
            "kind": pd.Categorical(["a", "b", "a"]),
            "day": pd.date_range("2020-01-01", periods=3),
            "flag": [True, False, True],
        },
        index=[5, 6, 8],
    )
    frame.to_parquet(tmp_path / "frame.parquet")
    frame.reset_index(drop=True).to_feather(tmp_path / "frame.feather")
    with (
        pa.OSFile(str(tmp_path / "stream.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, pa.table(frame).schema) as out,
    ):
        out.write_table(pa.table(frame))
    for name in ("frame.parquet", "frame.feather", "stream.arrow"):
        sheet = read_table(tmp_path / name, where="kind == 'a' and day < '2020-02-01'")
        assert sheet.table.to_pydict() == {"loss": [1.5, 4.0], "n": [1.0, float(2**60)]}
        assert "'kind' (text), 'day' (dates), 'flag' (true or false)" in sheet.notices[0]
    assert "__index_level_0__' (the index of a data frame)" in read_table(tmp_path / "frame.parquet").notices[0]
    frame.to_csv(tmp_path / "frame.csv")
    sheet = read_table(tmp_path / "frame.csv", columns=["n", "loss"])
    assert (sheet.table.column_names, sheet.notices) == (["n", "loss"], [])


def test_the_contents_decide_not_the_name(tmp_path):
    write(tmp_path / "a.parquet", numbers(10))
    (tmp_path / "a.parquet").rename(tmp_path / "a.csv")
    np.testing.assert_array_equal(to_matrix(read_table(tmp_path / "a.csv").table).values, numbers(10))
    (tmp_path / "b.csv").write_bytes(gzip.compress(b"a\n1\n2\n"))
    assert read_table(tmp_path / "b.csv").table.to_pydict() == {"a": [1, 2]}


def test_a_folder_and_a_pattern_are_their_files_in_order(tmp_path):
    folder = tmp_path / "parts"
    (folder / "year=2021").mkdir(parents=True)
    for place, name in enumerate(["a.parquet", "b.csv", "year=2021/c.arrow"]):
        with table_writer(folder / name, ["x"]) as add:
            add(np.array([[place], [place + 10.0]]))
    (folder / "_SUCCESS").touch()
    (folder / ".b.csv.1234.part").write_text("half")
    (folder / "notes.md").write_text("no table")
    sheet = read_table(folder, where="x > 0.5")
    assert sheet.table["x"].to_pylist() == [10, 1, 11, 2, 12]
    assert sheet.place(0) == (str(folder / "a.parquet"), "row 2 (counted from 1)")
    assert sheet.place(2) == (str(folder / "b.csv"), "line 3")
    assert sheet.place(4)[0] == str(folder / "year=2021" / "c.arrow")
    assert read_table(str(folder / "?.*")).table["x"].to_pylist() == [0, 10, 1, 11]
    (folder / "d.csv").write_text("y\n1\n")
    with pytest.raises(ValueError, match=r"d\.csv: there is no column 'x'; it has 'y'"):
        read_table(folder)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_end_as_they_like_and_are_counted_as_editors_do(tmp_path, newline, mark):
    text = 'loss,"said, twice",day\n1,"two\nlines",2020-01-01\n\n3,x,2020-01-02\n-4,"a ""b""",2020-01-03\n'
    path = text_file(tmp_path, mark + text.replace("\n", newline).encode())
    sheet = read_table(path)
    assert sheet.table.to_pydict() == {"loss": [1, 3, -4]}
    assert sheet.notices == ["columns that hold no numbers are left out: 'said, twice' (text), 'day' (dates)"]
    assert [sheet.place(row)[1] for row in range(3)] == ["line 2", "line 5", "line 6"]


@pytest.mark.parametrize(("delimiter", "decimal"), [(",", "."), (";", ","), ("\t", "."), ("|", ".")])
def test_the_line_of_names_shows_the_delimiter(tmp_path, delimiter, decimal):
    lines = [["a", "b"], ["1.5", "2"], ["2.5", "3e-2"]]
    text = "\n".join(delimiter.join(cell.replace(".", decimal) for cell in line) for line in lines)
    sheet = read_table(text_file(tmp_path, text), decimal=decimal)
    assert sheet.table.to_pydict() == {"a": [1.5, 2.5], "b": [2, 0.03]}


def test_decimal_commas_that_were_not_announced_are_noticed(tmp_path):
    sheet = read_table(text_file(tmp_path, "n;loss\n1;2,5\n2;3,5\n"))
    assert sheet.table.column_names == ["n"]
    assert sheet.notices[0].endswith("'loss' (text); if some are numbers with a decimal comma, give decimal = ','")


def test_text_that_is_no_utf_8_may_stand_in_columns_nobody_needs(tmp_path):
    sheet = read_table(text_file(tmp_path, "loss,ort\n1,Malm\xf6\n2,Oslo\n".encode("latin-1")))
    assert sheet.table.to_pydict() == {"loss": [1, 2]}


def test_a_column_of_numbers_is_told_by_most_of_its_cells(tmp_path):
    rows = "".join(f"{k},{k}.5\n" for k in range(1, 2000))
    path = text_file(tmp_path, f"a,b\n{rows}7,oops\n{rows}")
    with pytest.raises(ValueError, match=r"claims\.csv: column 'b', line 2001 holds the text 'oops'; write a number"):
        read_table(path)
    assert read_table(path, columns=["a"]).table.num_rows == 3999


def test_a_fault_far_behind_what_was_judged_is_found(tmp_path):
    rows = "12345.678,2020-01-01\n" * 300_000
    path = text_file(tmp_path, f"loss,day\n{rows}")
    assert read_table(path).table.num_rows == 300_000
    for last, message in [
        ("x,y\n", "column 'loss', line 300002 holds the text 'x'"),
        ("1\n", "line 300002 has 1 cell "),
    ]:
        with pytest.raises(ValueError, match=message):
            read_table(text_file(tmp_path, f"loss,day\n{rows}{last}"))


def test_missing_cells_are_null_and_their_rows_can_be_dropped(tmp_path):
    path = text_file(tmp_path, "a,b,c\n1,NA,x\n2,3,\n,4,y\n5,6,z\n")
    sheet = read_table(path)
    assert sheet.table.to_pydict() == {"a": [1, 2, None, 5], "b": [None, 3, 4, 6]}
    with pytest.raises(ValueError, match=r"claims\.csv: column 'a', line 4 is missing"), sheet.named():
        to_matrix(sheet.table)
    sheet = read_table(path, missing="drop")
    assert sheet.table.to_pydict() == {"a": [2, 5], "b": [3, 6]}
    assert sheet.notices[-1] == "2 of 4 rows have a missing cell and are left out"
    assert sheet.place(1)[1] == "line 5"
    table = pa.table({"a": [1.0, float("nan"), None, 2.0]})
    pq.write_table(table, tmp_path / "nan.parquet")
    assert read_table(tmp_path / "nan.parquet", missing="drop").table["a"].to_pylist() == [1, 2]


def test_weights_are_a_column_of_their_own(tmp_path):
    path = text_file(tmp_path, "a,w\n1,0\n2,2.5\n3,1\n")
    sheet = read_table(path, weights="w", where="a < 3")
    assert sheet.table.to_pydict() == {"a": [1, 2]}
    assert sheet.weights.tolist() == [0, 2.5]
    with pytest.raises(ValueError, match="every weight in column 'w' is 0"):
        read_table(path, weights="w", where="a < 2")
    for cell, what in [("-1", "-1"), ("inf", "inf"), ("", "missing")]:
        with pytest.raises(ValueError, match=f"column 'w', line 3 is {what}; a weight is a finite number >= 0"):
            read_table(text_file(tmp_path, f"a,w\n1,0\n2,{cell}\n"), weights="w")


def test_progress_counts_rows(tmp_path):
    seen = []
    read_table(text_file(tmp_path, "a\n" + "1\n" * 1000), progress=seen.append)
    assert seen[-1] == 1000


def test_an_empty_block_or_no_rows_make_a_table_with_names(tmp_path):
    for ending in (".csv", ".parquet", ".arrow"):
        path = tmp_path / f"none{ending}"
        with table_writer(path, ["a"]) as add:
            add(np.empty((0, 1)))
        with pytest.raises(ValueError, match="names of columns and no rows"):
            read_table(path)


def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Rows wait in batches: what arrow holds after many rows is what it held after a few."""
    held = []
    block = np.ones((ROWS_AT_ONCE // 4, 2))
    for ending in (".csv", ".parquet", ".arrow"):
        with table_writer(tmp_path / f"many{ending}", ["a", "b"]) as add:
            for turn in range(40):
                add(block)
                if turn in (8, 39):
                    held.append(pa.total_allocated_bytes())
    for few, many in zip(held[::2], held[1::2], strict=True):
        assert many - few < 2 * block.nbytes


def add_and_fail(add):
    add(np.ones((2 * ROWS_AT_ONCE, 3)))
    raise RuntimeError("stop")


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".arrow"])
def test_a_write_that_fails_leaves_nothing_and_keeps_the_old_file(tmp_path, ending):
    path = tmp_path / f"out{ending}"
    write(path, numbers())
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="stop"), table_writer(path, NAMES) as add:
        add_and_fail(add)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


WRITER = """
import sys
import numpy as np
from phvae.tables.write import ROWS_AT_ONCE, table_writer
with table_writer(sys.argv[1], ["a", "b"]) as add:
    while True:
        add(np.ones((ROWS_AT_ONCE, 2)))
"""


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_killed_writer_leaves_nothing_under_the_final_name(tmp_path, ending):
    path = tmp_path / f"out{ending}"
    process = subprocess.Popen([sys.executable, "-c", WRITER, path])
    try:
        while not any(entry.stat().st_size > 10**6 for entry in tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(f".out{ending}.")
    assert left.name.endswith(PARTIAL)
    with pytest.raises(ValueError, match="holds no tables"):
        read_table(tmp_path)


def test_a_link_is_followed_and_a_device_is_written_to(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write(tmp_path / "link.csv", numbers(10))
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("loss,")
    write("/dev/null", numbers(10))
    assert not os.path.isfile("/dev/null")
    with pytest.raises(OSError, match="No space left") as caught:
        write("/dev/full", numbers(10))
    assert caught.value.filename == "/dev/full"


def test_a_fifo_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(["/bin/sh", "-c", f"printf 'a\\n1\\n2\\n' > {tmp_path}/pipe"])
    assert read_table(tmp_path / "pipe").table["a"].to_pylist() == [1, 2]
    assert process.wait() == 0


def test_an_error_of_the_body_keeps_its_own_file(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, whole_file(tmp_path / "out"):
        open(tmp_path / "other")  # noqa: SIM115
    assert caught.value.filename == str(tmp_path / "other")
    assert os.listdir(tmp_path) == []


def test_names_must_differ(tmp_path):
    with pytest.raises(ValueError, match="two columns are called 'a'"), table_writer(tmp_path / "a.csv", ["a", "a"]):
        pass
    assert not os.listdir(tmp_path)
