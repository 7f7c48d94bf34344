"""What a person can get wrong on the command line is one line on standard error, status 2, and no traceback."""

import gzip
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from installed_command import SCRIPT, InstalledCommand
from pyarrow import feather, parquet

from phvae.cli import run

QUICK = ("--epochs", "1", "--hidden", "4", "--n-phases", "2", "--seed", "0")
GOOD = "loss,cost\n" + "".join(f"{1 + i * 0.37:.4g},{2 + i % 7}.5\n" for i in range(40))


def text(content, encoding="utf-8"):
    return content.encode(encoding)


def rows(*lines, head="loss,cost", before=10):
    """A table whose last lines are the given ones, after so many good ones: the first of them is line 12."""
    good = [f"{i + 1}.5,{i % 3 + 1}" for i in range(before)]
    return text("\n".join([head, *good, *lines, ""]))


def parquet_bytes(**columns):
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def arrow_bytes(**columns):
    sink = pa.BufferOutputStream()
    feather.write_feather(pa.table(columns), sink, compression="uncompressed")
    return sink.getvalue().to_pybytes()


X = np.linspace(1, 9, 30)

# Contents of the file `bad` plus its ending, and what the line must say: the place and the remedy.
FILES = {
    # values
    "negative": (".csv", rows("-3,1"), r"'loss', line 12 is -3; .*>= 0"),
    "negative in the last column": (".csv", rows("3,-0.5"), r"'cost', line 12 is -0.5; "),
    "negative, gzip": (".csv.gz", gzip.compress(rows("-3,1")), r"'loss', line 12 is -3; "),
    "negative, Parquet": (".parquet", parquet_bytes(a=X, b=-X), r"'b', row 1 .*is -1 and 29 more; "),
    "negative, Arrow": (".arrow", arrow_bytes(a=X, b=X - 5), r"'b', row 1 .*is -4 and 14 more; "),
    "minus infinity": (".csv", rows("-inf,1"), r"'loss', line 12 is -inf; "),
    "infinite": (".csv", rows("inf,1"), r"'loss', line 12 is inf; "),
    "infinite by overflow": (".csv", rows("1e999,1"), r"'loss', line 12 is inf; "),
    "infinite, Parquet": (".parquet", parquet_bytes(a=[*X, np.inf]), r"'a', row 31 .*is inf; "),
    "gap": (".csv", rows("5,"), r"'cost', line 12 is missing.*; "),
    "gap as NA": (".csv", rows("NA,5"), r"'loss', line 12 is missing.*; "),
    "gap as nan": (".csv", rows("nan,5"), r"'loss', line 12 is missing.*; "),
    "gap, Parquet": (".parquet", parquet_bytes(a=[*X, None]), r"'a', row 31 .*is missing.*; "),
    "NaN, Parquet": (".parquet", parquet_bytes(a=[*X, np.nan]), r"'a', row 31 .*is missing.*; "),
    "text": (".csv", rows("many,1"), r"'loss', line 12 holds the text 'many'; write a number"),
    "text after a number": (".csv", rows("12 kr,1"), r"'loss', line 12 holds the text '12 kr'; write a number"),
    "thousands separators": (".csv", rows('"1,234.5",1'), r"'loss', line 12 holds the text '1,234.5'; write a number"),
    "a number in words of a spreadsheet": (
        ".csv",
        rows("#DIV/0!,1"),
        r"'loss', line 12 holds the text '#DIV/0!'; write a number",
    ),
    "hexadecimal": (".csv", rows("0x1F,1"), r"'loss', line 12 holds the text '0x1F'; write a number"),
    "a date among numbers": (
        ".csv",
        rows("2024-01-01,1"),
        r"'loss', line 12 holds the text '2024-01-01'; write a number",
    ),
    # shape of the table
    "a cell too many": (".csv", rows("1,2,3"), r"line 12.*; "),
    "a cell too few": (".csv", rows("1"), r"line 12.*; "),
    "ragged everywhere": (".csv", text("a,b\n1\n1,2,3\n"), r"line 2.*; "),
    "a quote that never ends": (".csv", rows('"1,2'), r"line 12.*; "),
    "empty": (".csv", b"", r"empty.*; "),
    "empty, gzip": (".csv.gz", gzip.compress(b""), r"empty.*; "),
    "empty, Parquet": (".parquet", b"", r"empty; "),
    "empty, Arrow": (".arrow", b"", r"; "),
    "blank lines alone": (".csv", b"\n\n\n", r"; "),
    "spaces alone": (".csv", b"   \n", r"; "),
    "names alone": (".csv", b"a,b\n", r"no rows; give it rows"),
    "names alone, Parquet": (".parquet", parquet_bytes(a=pa.array([], pa.float64())), r"no rows; give it rows"),
    "one row": (".csv", text("a,b\n1,2\n"), r"one sample.*; give more rows|give more rows"),
    "one row, Parquet": (".parquet", parquet_bytes(a=[1.0]), r"give more rows"),
    "no numeric column": (".csv", text("a,b\nx,y\nz,w\n"), r"no column holds numbers: .*'a' \(text\).*; "),
    "dates alone": (".csv", text("day\n2024-01-01\n2024-01-02\n"), r"no column holds numbers: .*dates.*; "),
    "no numeric column, Parquet": (".parquet", parquet_bytes(a=["x", "y"]), r"no column holds numbers: .*; "),
    "nested columns, Parquet": (".parquet", parquet_bytes(a=[[1.0], [2.0]]), r"no column holds numbers: .*; "),
    "decimal commas": (".csv", text('a;b\n"1,5";"2,5"\n"3,5";"4,5"\n'), r"no column holds numbers.*decimal"),
    "constant": (".csv", text("a,b\n1,2\n1,3\n1,4\n"), r"'a' is 1 in every row; .*drop"),
    "constant zero": (".csv", text("a,b\n0,2\n0,3\n0,4\n"), r"'a' is 0 in every row; .*drop"),
    "constant but for zeros": (".csv", text("a,b\n0,2\n5,3\n5,4\n0,1\n"), r"'a'.*; "),
    "duplicate names": (".csv", text("a,a\n1,2\n3,4\n"), r"both called 'a'; rename one"),
    "no names": (".csv", text("1.5,2.5\n3.5,4.5\n"), r"first line.*names.*; "),
    # numbers at the edge of what a computer holds
    "1e308": (".csv", rows("1e308,1"), r"'loss', line 12 is 1e\+308, beyond 1e\+30 times .*; "),
    "every value near 1e308": (
        ".csv",
        text("a\n" + "".join(f"{1 + i / 40}e308\n" for i in range(30))),
        r"'a' has a median excess of 3.*e\+307; give it in another unit",
    ),
    "every value a denormal": (
        ".csv",
        text("a\n" + "".join(f"{i + 1}e-320\n" for i in range(30))),
        r"'a' has a median excess of .*e-319; give it in another unit",
    ),
    "from denormals to 1e308": (
        ".csv",
        text("a\n" + "".join(f"1e{10 * i - 320}\n" for i in range(60))),
        r"'a', line 61 is 1e\+270, beyond 1e\+30 times .*; ",
    ),
    # bytes
    "UTF-16": (".csv", GOOD.encode("utf-16"), r"UTF-16.*; "),
    "UTF-32": (".csv", GOOD.encode("utf-32"), r"UTF-(16|32).*; "),
    "Latin-1 in a name": (".csv", text("brånd,b\n1,2\n3,4\n", "latin-1"), r"UTF-8.*; "),
    "a zero byte": (".csv", rows("1\0,2"), r"neither text nor Parquet nor Arrow; "),
    "a picture": (".csv", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), r"; "),
    "truncated Parquet": (".parquet", parquet_bytes(a=X)[:-30], r"cut short or damaged .*; copy it again"),
    "Parquet without its end": (".parquet", parquet_bytes(a=X)[:200], r"cut short or damaged .*; copy it again"),
    "Parquet by name alone": (".parquet", text(GOOD), r"no Parquet file.*; "),
    "truncated Arrow": (".arrow", arrow_bytes(a=X)[:-40], r"cut short or damaged .*; copy it again"),
    "Arrow by name alone": (".feather", text(GOOD), r"; "),
    "truncated gzip": (".csv.gz", gzip.compress(text(GOOD * 50))[:-20], r"cut short or damaged .*; copy it again"),
    "gzip with a wrong sum": (
        ".csv.gz",
        gzip.compress(text(GOOD))[:-8] + bytes(8),
        r"cut short or damaged .*; copy it again",
    ),
    "a zip archive": (".csv", b"PK\x03\x04" + bytes(60), r"; "),
    "a spreadsheet": (".xlsx", b"PK\x03\x04" + bytes(60), r"; "),
}

# Numbers at the edge of what a computer holds are numbers: the command answers, or says in one line why not.
EDGES = {
    "1e20": rows("1e20,1"),
    "denormals": rows("5e-324,1"),
    "from 1e-15 to 1e15": text("a\n" + "".join(f"1e{i - 15}\n" for i in range(30))),
}


@pytest.fixture(scope="module")
def command():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "good.csv").write_text(GOOD)
        assert run(["fit", str(folder / "good.csv"), "-o", str(folder / "model"), *QUICK, "--quiet"]) == 0
        with InstalledCommand(folder) as installed:
            yield installed


def is_one_line(said, pattern, *, names=None):
    assert said.status == 2, said
    assert said.out == ""
    lines = [line for line in said.err.splitlines() if not line.startswith("phvae: note: ")]
    assert len(lines) == 1, said.err
    assert lines[0].startswith("phvae: ")
    assert "Traceback" not in said.err
    assert re.search(pattern, lines[0]), lines[0]
    if names is not None:
        assert names in lines[0]


@pytest.mark.parametrize("case", FILES)
def test_a_bad_table_is_one_line_that_names_file_place_and_remedy(command, case):
    ending, content, pattern = FILES[case]
    path = command.folder / f"bad{ending}"
    path.write_bytes(content)
    is_one_line(command("fit", path, "-o", "new", *QUICK), pattern, names=str(path))
    assert not (command.folder / "new").exists()


@pytest.mark.parametrize("case", EDGES)
def test_numbers_at_the_edge_are_fitted_or_refused_in_one_line(command, case):
    (command.folder / "edge.csv").write_bytes(EDGES[case])
    said = command("fit", "edge.csv", "-o", "edge", *QUICK)
    if said.status:
        is_one_line(said, "edge.csv.*; ")
    else:
        assert "Traceback" not in said.err
        assert command("verify", "edge").status == 0


PLACES = {
    # words after `phvae`, what the line says, and how it is run
    "a missing file": (("fit", "none.csv", "-o", "new"), r"none.csv: .*; check the name", {}),
    "a pattern that matches nothing": (("fit", "none-*.csv", "-o", "new"), r"no file matches this pattern; ", {}),
    "an empty folder": (("fit", "empty", "-o", "new"), r"holds no tables; ", {}),
    "a folder without permission": (
        ("fit", "locked", "-o", "new"),
        r"locked: .*; ask for permission",
        {"as_anybody": True},
    ),
    "a file without permission": (
        ("fit", "own.csv", "-o", "new"),
        r"own.csv: .*; ask for permission",
        {"as_anybody": True},
    ),
    "nothing on standard input": (("fit", "-", "-o", "new"), r"standard input.*empty.*; ", {"stdin": b""}),
    "text on standard input": (("fit", "-", "-o", "new"), r"standard input.*; ", {"stdin": b"a,b\nx,y\n"}),
    "no such column": (("fit", "good.csv", "-o", "new", "-c", "los"), r"no column 'los'; did you mean 'loss'", {}),
    "a column named twice": (("fit", "good.csv", "-o", "new", "-c", "loss,loss"), r"'loss' twice; ", {}),
    "a filter that is no filter": (
        ("fit", "good.csv", "-o", "new", "--where", "loss >"),
        r"--where 'loss >' .*needs a column, a number or text",
        {},
    ),
    "a filter nobody meets": (
        ("fit", "good.csv", "-o", "new", "--where", "loss > 1e9"),
        r"none of its 40 rows.*; ",
        {},
    ),
    "an unknown setting": (("fit", "good.csv", "-o", "new", "--epoch", "3"), r"--epoch.*; see phvae fit --help", {}),
    "a setting that is no number": (("fit", "good.csv", "-o", "new", "--epochs", "many"), r"--epochs 'many'; ", {}),
    "a setting out of range": (("fit", "good.csv", "-o", "new", "--beta", "-1"), r"--beta -1; ", {}),
    "an origin above the data": (
        ("fit", "good.csv", "-o", "new", "--origin", "5"),
        r"good.csv: column 'loss', line 2 is 1, ",
        {},
    ),
    "an unknown command": (("fitt", "good.csv"), r"; see phvae --help", {}),
    "a place that is a folder": (("fit", "good.csv", "-o", "empty"), r"empty: is a folder; ", {}),
    "a place in no folder": (("fit", "good.csv", "-o", "no/where"), r"folder does not exist; ", {}),
    "a place without permission": (("fit", "good.csv", "-o", "locked/new"), r"locked/new: .*; ", {"as_anybody": True}),
    "a full disk under a model": (
        ("fit", "good.csv", "-o", "new", *QUICK),
        r"new.*; make room",
        {"largest_file": 1000},
    ),
    "a full disk under a table": (
        ("sample", "model", "-n", "1e5", "-o", "new.csv"),
        r"new.csv: .*; make room",
        {"largest_file": 10**5},
    ),
    "a full disk under Parquet": (
        ("sample", "model", "-n", "1e5", "-o", "new.parquet"),
        r"new.parquet: .*; make room",
        {"largest_file": 10**5},
    ),
    "a full device": (
        ("sample", "model", "-n", "1e5", "-o", "/dev/full"),
        r"/dev/full: No space left on device; make room",
        {},
    ),
    "an ending nobody knows": (("sample", "model", "-n", "5", "-o", "new.docx"), r"new.docx.*; ", {}),
    "no rows to draw": (("sample", "model", "-n", "0"), r"--n-samples 0; ", {}),
    "rows that are no number": (("sample", "model", "-n", "ten"), r"--n-samples 'ten'; ", {}),
    "a table as a model": (("info", "good.csv"), r"good.csv.*; ", {}),
    "an empty model": (("info", "nothing"), r"nothing.*; ", {}),
    "a model cut short": (("verify", "short"), r"short.*; ", {}),
    "a model with one byte changed": (("verify", "changed"), r"changed.*; ", {}),
    "a model that is not there": (("sample", "gone", "-n", "5"), r"gone: .*; check the name", {}),
    "a table without a column of the model": (
        ("evaluate", "model", "half.csv"),
        r"half.csv: there is no column 'cost'; ",
        {},
    ),
    "a report of no table": (("report", "model"), r"--data.*; see phvae report --help", {}),
    "a report of a missing file": (("report", "model", "--data", "none.csv"), r"none.csv: .*; check the name", {}),
    "a report without a column of the model": (
        ("report", "model", "--data", "half.csv"),
        r"half.csv: there is no column 'cost'; ",
        {},
    ),
    "a report in the place of its numbers": (
        ("report", "model", "--data", "good.csv", "-o", "page.json"),
        r"--output 'page.json': .*; end the name of the page in .html",
        {},
    ),
    "a report in no folder": (
        ("report", "model", "--data", "good.csv", "-o", "no/page.html"),
        r"folder does not exist; ",
        {},
    ),
    "a report at no level": (
        ("report", "model", "--data", "good.csv", "--level", "99"),
        r"levels\[0\] = 99; ",
        {},
    ),
    "a layer that is none": (
        ("report", "model", "--data", "good.csv", "--layer", "ten"),
        r"layer = 'ten'; ",
        {},
    ),
    "a level out of range": (("risk", "model", "--level", "1.5"), r"level\[0\] = 1.5; ", {}),
    "a column that the model has not": (("risk", "model", "-c", "los"), r"no such column; ", {}),
    "a splice nobody knows": (("risk", "model", "--splice", "pareto"), r"--splice 'pareto'; ", {}),
    "a checkpoint that is a model": (
        ("fit", "good.csv", "-o", "new", "--resume", "model"),
        r"--resume.*not a checkpoint",
        {},
    ),
    "a checkpoint that is not there": (("fit", "good.csv", "-o", "new", "--resume", "gone"), r"--resume.*; ", {}),
}


@pytest.fixture(scope="module")
def place(command):
    folder: Path = command.folder
    for name in ("empty", "locked"):
        (folder / name).mkdir()
    (folder / "own.csv").write_text(GOOD)
    (folder / "own.csv").chmod(0)
    (folder / "locked").chmod(0)
    (folder / "half.csv").write_text("loss\n2\n3\n")
    (folder / "nothing").write_bytes(b"")
    whole = (folder / "model").read_bytes()
    (folder / "short").write_bytes(whole[:-10])
    (folder / "changed").write_bytes(whole[:-10] + bytes([whole[-10] ^ 1]) + whole[-9:])
    return command


@pytest.mark.parametrize("case", PLACES)
def test_what_cannot_be_read_written_or_meant_is_one_line(place, case):
    words, pattern, options = PLACES[case]
    before = sorted(os.listdir(place.folder))
    is_one_line(place(*words, **options), pattern)
    assert sorted(os.listdir(place.folder)) == before, "nothing is left behind"


def test_the_command_is_the_installed_one(command):
    assert SCRIPT.is_file()
    assert command("--version").out.startswith("phvae ")
    assert len(FILES) + len(PLACES) >= 60
