"""Conditions on rows: what they mean, and that whatever else is typed is refused with the place of the mistake."""

import datetime
import random

import pyarrow as pa
import pytest

from phvae.tables.filters import parse

BATCH = pa.RecordBatch.from_pydict(
    {
        "loss": pa.array([5.0, 20.0, None, 40.0, float("nan")]),
        "days": pa.array([1, 2, 3, 4, 5]),
        "kind": pa.array(["a", "x", "b", None, "it's"]),
        "on": pa.array([datetime.date(2020, month, 1) for month in range(1, 6)]),
        "net loss": pa.array([1.0, 2.0, 3.0, 4.0, 5.0]),
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("loss > 10", [1, 3]),
        ("loss>=20", [1, 3]),
        ("loss != 20", [0, 3]),
        ("not loss > 10", [0]),
        ("10 < loss", [1, 3]),
        ("1 < days <= 3", [1, 2]),
        ("1 < days < 3 < loss", [1]),
        ("loss == days or kind == 'b'", [2]),
        ("loss > days", [0, 1, 3]),
        ("loss is missing", [2, 4]),
        ("loss is not missing and kind is not missing", [0, 1]),
        ('kind != "x"', [0, 2, 4]),
        ('kind == "it\'s"', [4]),
        ("kind in ('a', \"b\")", [0, 2]),
        ("kind not in ('a', 'b')", [1, 4]),
        ("days in (1, 5)", [0, 4]),
        ("on >= '2020-03-01'", [2, 3, 4]),
        ("'2020-02-01' <= on < '2020-04-01'", [1, 2]),
        ("`net loss` < 2.5e0", [0, 1]),
        ("days > -1", [0, 1, 2, 3, 4]),
        ("days == 1 or days == 2 and loss > 100", [0]),
        ("(days == 1 or days == 2) and loss > 10", [1]),
        ("not not (days == .1e1)", [0]),
        ("loss > 10 or days > 0", [0, 1, 2, 3, 4]),
    ],
)
def test_a_condition_chooses_its_rows(text, rows):
    mask = parse(text, BATCH.schema.names).mask(BATCH)
    assert [row for row, chosen in enumerate(mask.to_pylist()) if chosen] == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has its end where it needs a column"),
        ("loss >", "has its end where it needs a column, a number or text in quotes"),
        ("loss = 3", r"not understood from '= 3' on \(character 6\); equality is =="),
        ("(loss > 1", r"has its end where it needs '\)'"),
        ("loss > 1)", r"has '\)' \(character 9\) where it needs 'and', 'or' or the end"),
        ("loss", "its end where it needs a comparison"),
        ("3 > 2", "compares two constants; one side must be a column"),
        ("lass > 2", "there is no column 'lass'; there are loss, days"),
        ("kind == x", "there is no column 'x'.*text stands in quotes"),
        ("kind == 'x", 'not understood from "\'x"'),
        ("loss > 1 andd days > 1", "has 'andd'"),
        ("loss is 3", "needs 'missing'"),
        ("loss in ()", r"has '\)' .* needs a number or text"),
        ("loss in (days)", "has 'days' .* needs a number or text"),
        ("not", "has its end where"),
        ("loss > 1_000", "not understood from '1_000'"),
        ("__import__('os').system('true')", r"not understood from .\.system\("),
        ("loss.real > 1", "not understood from '.real > 1'"),
        ("loss > 1; days > 2", "not understood from '; days > 2'"),
        ("(" * 60 + "loss > 1" + ")" * 60, "nested deeper than 50"),
        ("not " * 60 + "loss > 1", "nested deeper than 50"),
        ("loss > 1 or " * 300 + "loss > 1", "has 3608 characters"),
    ],
)
def test_what_is_no_condition_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse(text, BATCH.schema.names)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss > 'x'", "column 'loss' holds numbers and 'x' is text; leave the quotes out"),
        ("kind > 3", "column 'kind' holds string, not numbers; compare it with text in quotes, as in `kind` > '3'"),
        ("on > 'yesterday'", "column 'on' holds date32.* and 'yesterday' is none; write it like 2024-12-31"),
        ("kind == loss", r"column 'kind' \(string\) and column 'loss' \(double\) cannot be compared"),
    ],
)
def test_a_comparison_of_different_kinds_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text, BATCH.schema.names).mask(BATCH)


def test_any_sequence_of_tokens_is_a_condition_or_a_value_error():
    chance = random.Random(0)
    tokens = ["loss", "days", "and", "or", "not", "is", "missing", "(", ")", "<", "==", "1", "'x'"]
    understood = 0
    for _ in range(20_000):
        text = " ".join(chance.choices(tokens, k=chance.randint(1, 7)))
        try:
            mask = parse(text, BATCH.schema.names).mask(BATCH)
        except ValueError:
            continue
        understood += 1
        assert len(mask) == len(BATCH)
        assert mask.null_count == 0
    assert understood > 10
