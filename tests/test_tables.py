"""Tables of every kind in, the same kind out; what is no number is named by column and row."""

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from phvae.tables import from_matrix, to_matrix

COLUMNS = {"building": [1.5, 2.0, 3.25], "contents": [0.0, 4.0, 5.5]}
VALUES = np.array(list(COLUMNS.values())).T
MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_frame_comes_back_as_it_went_in(kind):
    frame = MAKERS[kind](COLUMNS)
    table = to_matrix(frame)
    assert (table.names, table.kind) == (["building", "contents"], kind)
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.values.dtype == np.float64
    back = from_matrix(table.values, table.names, table.kind)
    assert type(back) is type(frame)
    assert back.equals(frame)


@pytest.mark.parametrize("data", [VALUES, VALUES.tolist(), np.asfortranarray(VALUES), VALUES.astype(object)])
def test_arrays_come_back_as_arrays(data):
    table = to_matrix(data)
    assert (table.names, table.kind) == (None, "numpy")
    np.testing.assert_array_equal(from_matrix(table.values, None, "numpy"), VALUES)


def test_a_float64_array_is_not_copied():
    assert to_matrix(VALUES).values is VALUES


def test_names_that_are_numbers_stay_numbers_in_pandas():
    frame = pd.DataFrame(VALUES, columns=[10, 20])
    table = to_matrix(frame)
    assert from_matrix(table.values, table.names, table.kind).columns.tolist() == [10, 20]


def test_whole_numbers_booleans_decimals_and_objects_are_numbers():
    frame = pd.DataFrame(
        {
            "small": np.array([1, 2], dtype=np.int8),
            "nullable": pd.array([3, 4], dtype="Int64"),
            "flag": [True, False],
            "decimal": [Decimal("1.5"), Decimal("2.5")],
            "arrow": pd.array([5.5, 6.5], dtype="float64[pyarrow]"),
            "object": np.array([7, 8.5], dtype=object),
        }
    )
    expected = [[1, 3, 1, 1.5, 5.5, 7], [2, 4, 0, 2.5, 6.5, 8.5]]
    np.testing.assert_array_equal(to_matrix(frame).values, expected)
    money = pa.table({"paid": pa.array([Decimal("1.25"), Decimal("3.5")])})
    np.testing.assert_array_equal(to_matrix(money).values, [[1.25], [3.5]])


def test_chunked_arrow_columns_are_read_whole():
    table = pa.table({"a": pa.chunked_array([[1.0], [2.0, 3.0]])})
    np.testing.assert_array_equal(to_matrix(table).values, [[1], [2], [3]])


def with_cell(kind, value):
    return MAKERS[kind]({"loss": [1.0, 2.0, value, value], "days": [1, 2, 3, 4]})


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_missing_value_is_named(kind, value):
    with pytest.raises(ValueError, match=r"^column 'loss', row 2 is missing \(NaN\) and 1 more; remove the row"):
        to_matrix(with_cell(kind, value))


@pytest.mark.parametrize("kind", MAKERS)
def test_an_infinite_value_is_named(kind):
    with pytest.raises(ValueError, match=r"^column 'loss', row 2 is inf and 1 more; remove the row"):
        to_matrix(with_cell(kind, float("inf")))


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("cells", [["Oslo", "Bergen"], [datetime(2020, 1, 1), datetime(2020, 1, 2)]])
def test_a_column_that_holds_no_numbers_is_named(kind, cells):
    with pytest.raises(ValueError, match=r"^column 'where' .*; (drop it or )?turn it into numbers"):
        to_matrix(MAKERS[kind]({"loss": [1.0, 2.0], "where": cells}))


def test_text_among_objects_is_named():
    with pytest.raises(ValueError, match=r"^column 'loss', row 1 is the text 'n/a'; "):
        to_matrix(pd.DataFrame({"loss": np.array([1.0, "n/a"], dtype=object)}))
    with pytest.raises(ValueError, match=r"^column 'x1', row 0 is the text 'n/a'; "):
        to_matrix(np.array([[1.0, "n/a"], [2.0, 3.0]], dtype=object))


def test_an_object_that_is_no_number_is_named():
    with pytest.raises(TypeError, match=r"^column 'when', row 0 is datetime\.date\(2020, 1, 1\) \(.*\); remove"):
        to_matrix(pd.DataFrame({"when": [date(2020, 1, 1)]}))
    with pytest.raises(TypeError, match=r"^column 'x1', row 1 is \{\} \(.*\); remove"):
        to_matrix(np.array([[1.0, 2.0], [2.0, {}]], dtype=object))


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame(VALUES, columns=["loss", "loss"]),
        pa.table([pa.array([1.0]), pa.array([2.0])], names=["loss", "loss"]),
    ],
)
def test_two_columns_of_one_name_are_named(data):
    with pytest.raises(ValueError, match=r"^X has two columns 'loss', at positions 0 and 1; rename one$"):
        to_matrix(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.ones(3), r"^X has shape \(3,\)\. Expected 2D .*Reshape your data"),
        (np.ones((3, 2, 1)), r"^X has shape \(3, 2, 1\)"),
        (np.float64(3), r"^X has shape \(\)"),
        (pd.Series([1.0, 2.0]), "^X is a single column"),
        (pl.LazyFrame(COLUMNS), r"^X is a lazy frame; give X\.collect\(\)$"),
        (sparse.csr_array(VALUES), r"^X is sparse.*X\.toarray\(\)$"),
        (np.ones((3, 1)) * 1j, "^Complex data not supported"),
        (np.array([["a"], ["b"]]), r"^X holds <U1 \(such as a\), not numbers"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), r"^X holds datetime64\[D\]"),
        (np.ones((0, 3)), r"^X has 0 sample\(s\) \(shape=\(0, 3\)\)"),
        (np.ones((3, 0)), r"^X has 0 feature\(s\) \(shape=\(3, 0\)\)"),
        (pl.DataFrame({"a": []}, schema={"a": pl.Float64}), r"^X has 0 sample\(s\)"),
        (pd.DataFrame(index=[0, 1]), r"^X has 0 feature\(s\)"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_in_one_sentence(data, message):
    with pytest.raises(ValueError, match=message):
        to_matrix(data)


def test_huge_finite_values_are_numbers():
    values = np.full((4, 2), 1.7e308)
    assert to_matrix(values).values is values


def test_a_kind_that_is_not_installed_says_what_to_do():
    with pytest.raises(ValueError, match="modin is not installed; install it"):
        from_matrix(VALUES, ["a", "b"], "modin")
