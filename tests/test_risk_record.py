"""What is remembered of tails: how much is kept, that it comes back, and that nothing else is taken for it."""

import numpy as np
import pytest

from phvae.risk.record import FEWEST_KEPT, MOST_KEPT, ColumnRecord, TailRecord


def arrays(n, zeros, top):
    return {"counts": np.array([[n, zeros, len(top)]]), "top": np.asarray(top, dtype=float)}


@pytest.mark.parametrize(
    ("n", "kept"),
    [(1, 1), (FEWEST_KEPT, 50), (FEWEST_KEPT + 1, 51), (500, 51), (600, 61), (10_000, 1001), (20_000, MOST_KEPT + 1)],
)
def test_the_largest_tenth_is_kept_within_bounds_and_the_threshold_below_it(n, kept):
    x = 1.0 + np.random.default_rng(0).permutation(n)
    record = ColumnRecord.of(x)
    assert (record.n, record.zeros, record.top.tolist()) == (n, 0, sorted(x)[: n - kept - 1 : -1] or sorted(x)[::-1])
    assert record.exceedances(float(n - kept + 1)) == kept - 1
    # below its threshold a record knows something only if nothing was left out
    assert record.exceedances(0.5) == (n if kept == n else None)


def test_a_record_comes_back_from_its_arrays():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((700, 3)) ** 3
    x[:, 1] = np.abs(x[:, 1])
    x[rng.random(700) < 0.3, 2] = 0.0
    signed = np.array([True, False, True])
    record = TailRecord.of(x, signed=signed)
    again = TailRecord.from_arrays(record.arrays(), 3, signed)
    for ours, theirs in zip((*record.columns, *record.losses), (*again.columns, *again.losses), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert (ours.n, ours.zeros, ours.top.tolist()) == (theirs.n, theirs.zeros, theirs.top.tolist())
    # the losses of a column are the gains of minus the column
    assert again.losses[2] is not None
    assert again.losses[2].top.tolist() == ColumnRecord.of(-x[:, 2]).top.tolist()


def test_every_count_may_reach_its_bound():
    for n, zeros, top in ((1, 0, [1.0]), (3, 2, [1.0]), (2, 0, [1.0, 1.0]), (5000, 0, np.ones(MOST_KEPT + 1))):
        (record,) = TailRecord.from_arrays(arrays(n, zeros, top), 1).columns
        assert (record.n, record.zeros, len(record.top)) == (n, zeros, len(top))


@pytest.mark.parametrize(
    ("n", "zeros", "top", "message"),
    [
        (5, 0, [], "do not agree"),
        (5000, 0, np.ones(MOST_KEPT + 2), "do not agree"),
        (5, -1, [1.0], "do not agree"),
        (3, 2, [2.0, 1.0], "do not agree"),
        (5, 0, [1.0, 2.0], "descending"),
        (5, 0, [1.0, 0.0], "positive"),
        (5, 0, [np.inf, 1.0], "finite"),
        (5, 0, [np.nan, 1.0], "finite"),
    ],
)
def test_arrays_that_are_no_record_are_refused(n, zeros, top, message):
    with pytest.raises(ValueError, match=message):
        TailRecord.from_arrays(arrays(n, zeros, top), 1)


def test_arrays_of_another_kind_are_refused():
    good = arrays(5, 1, [2.0, 1.0])
    for name, part, message in (
        ("counts", good["counts"].astype(np.int32), "counts"),
        ("counts", good["counts"][:, :2], "counts"),
        ("top", good["top"].astype(np.float32), "do not agree"),
        ("top", good["top"][:1], "do not agree"),
    ):
        with pytest.raises(ValueError, match=message):
            TailRecord.from_arrays(good | {name: part}, 1)
    with pytest.raises(ValueError, match="for 2 columns"):
        TailRecord.from_arrays(good, 2)
