"""A fit to files that are read in pieces: the sketch keeps its bounds, and the fit is the one in memory."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_run import weights_of

from phvae import PHVAE, assembly
from phvae.batches import Batch, RowsInMemory
from phvae.cli import run
from phvae.preprocessing import PositiveScaler, rounded
from phvae.risk.record import TailRecord
from phvae.settings import resolve
from phvae.streaming import ParquetStream
from phvae.streaming.fitting import fit_stream, held_out_rows, prepared, rows_of, table_or_stream
from phvae.streaming.shuffle import windows
from phvae.streaming.sketch import LEAF, SINGLES, QuantileSketch
from phvae.streaming.survey import survey
from phvae.training import train

NAMES = ["loss", "cost", "days"]
FEW = {
    "n_phases": 3,
    "latent_dim": 2,
    "hidden": (8,),
    "epochs": 3,
    "batch_size": 64,
    "random_state": 1,
    "device": "cpu",
}


def table(n, seed=0):
    """Heavy tails, a far origin, and a column with exact zeros."""
    uniform = np.random.default_rng(seed).random((n, 3))
    x = uniform**-0.4
    x[:, 1] += 1e6
    x[uniform[:, 2] < 0.3, 2] = 0
    return x


def write(folder, x, *, n_files=3, row_group_size=70):
    """Parquet files whose row groups have different sizes."""
    for number, rows in enumerate(np.array_split(x, n_files)):
        columns = dict(zip(NAMES, rows.T, strict=True))
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=row_group_size + number)
    return folder


# The sketch.


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 3 * LEAF), seed=st.integers(0, 99), tail=st.sampled_from([0.1, 1.0, 10.0]), cut=st.integers(1, 9)
)
def test_the_bounds_of_ranks_hold_however_the_values_are_divided(n, seed, tail, cut):
    values = np.random.default_rng(seed).random(n) ** -tail
    parts = [QuantileSketch() for _ in range(cut)]
    for part, some in zip(parts, np.array_split(values, cut), strict=True):
        part.add(some)
    whole = parts[0]
    for part in parts[1:]:
        whole.merge(part)
    known, ordered = whole.cells(), np.sort(values)
    assert known.weight.sum() == n
    for level in (0, 1e-4, 0.01, 0.3, 0.5, 0.9, 0.999, 1):
        x = ordered[round(level * (n - 1))]
        low, high = whole.rank_bounds(x)
        rank = np.searchsorted(ordered, x, side="right")
        assert low <= rank <= high
        nearer = min(high, n - low)
        assert high - low <= whole.relative_rank_error() * nearer + 1e-9
    kept = min(n, SINGLES)
    assert np.array_equal(known.mean[-kept:], ordered[-kept:])
    assert np.array_equal(known.mean[:kept], ordered[:kept])


def test_the_error_of_a_rank_grows_with_the_number_of_doublings_and_not_more():
    """2 / SINGLES for each of the five doublings from a leaf to thirty-two."""
    sketch, generator = QuantileSketch(), np.random.default_rng(3)
    for _ in range(32):
        sketch.add(generator.random(LEAF) ** -0.5)
    assert 0 < sketch.relative_rank_error() < 2 * 5 / SINGLES
    assert len(sketch.cells().mean) < 2 * SINGLES * (1 + np.log(32 * LEAF / 2 / SINGLES)) + 2


def test_few_values_and_few_different_values_are_known_exactly():
    values = np.random.default_rng(0).integers(1, 50, 5 * LEAF).astype(float)
    sketch = QuantileSketch()
    sketch.add(values)
    assert sketch.relative_rank_error() == 0
    distinct, counts = np.unique(values, return_counts=True)
    assert np.array_equal(sketch.cells().mean, distinct)
    assert np.array_equal(sketch.cells().weight, counts)


# The order of the rows.


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    size=st.integers(1, 60),
    lanes=st.integers(2, 5),
    seed=st.integers(0, 9),
)
def test_windows_are_full_and_go_through_every_row_once(counts, size, lanes, seed):
    order = np.random.default_rng(seed).permutation(len(counts)).tolist()
    seen, done = [], dict.fromkeys(range(len(counts)), 0)
    plan = list(windows(counts, order, size, lanes))
    for window in plan:
        unfinished = set()
        for group, first, n in window:
            assert first == done[group], "a row group is read from its beginning to its end"
            done[group] += n
            seen += [(group, row) for row in range(first, first + n)]
            if done[group] < counts[group]:
                unfinished.add(group)
        assert len(unfinished) <= lanes
    assert sorted(seen) == [(group, row) for group, count in enumerate(counts) for row in range(count)]
    assert all(sum(part.n for part in window) == size for window in plan[:-1])


def parts_of(folder, x, **changes):
    """Stream, survey and held-out rows as `fit_stream` has them, and the same unit-free rows in memory."""
    stream = ParquetStream(folder, **changes)
    chosen = resolve(PHVAE(**FEW, validation_fraction=0.1).get_params(), *stream.shape)
    held_out = held_out_rows(len(x), 0.1, chosen["seed"])
    found = survey(stream.row_groups, "auto", held_out)
    rows = torch.from_numpy(np.delete(rounded(found.scaler.transform(x)), held_out, axis=0))
    return stream, chosen, found, held_out, rows


@pytest.mark.parametrize("buffer_rows", [100, 400, 10_000])
def test_every_epoch_has_every_row_once_in_another_order(tmp_path, buffer_rows):
    x = table(1000)
    stream, _, found, held_out, rows = parts_of(write(tmp_path, x), x, buffer_bytes=24 * buffer_rows)
    source = rows_of(stream, found, held_out)
    orders = []
    for epoch in (0, 1):
        batches = list(source.epoch(epoch, seed=3, batch_size=64, first=0))
        assert [len(batch.x) for batch in batches] == [64] * 14 + [4]
        order = torch.cat([batch.rows for batch in batches])
        assert torch.equal(order.sort().values, torch.arange(900))
        assert torch.equal(torch.cat([batch.x for batch in batches]), rows[order])
        orders.append(order)
        for first in (1, 7, 14, 15):
            rest = list(source.epoch(epoch, seed=3, batch_size=64, first=first))
            assert len(rest) == 15 - first
            assert all(torch.equal(a.x, b.x) for a, b in zip(rest, batches[first:], strict=True))
    assert not torch.equal(*orders)
    if buffer_rows >= 900:
        memory = RowsInMemory(rows)
        assert torch.equal(orders[1], torch.cat([b.rows for b in memory.epoch(1, seed=3, batch_size=64, first=0)]))


class InOrder(RowsInMemory):
    """Rows in memory, in the order of a stream."""

    def __init__(self, x, stream):
        super().__init__(x)
        self.stream = stream

    def epoch(self, number, **options):
        for batch in self.stream.epoch(number, **options):
            yield Batch(self.x[batch.rows], batch.rows)


@pytest.mark.parametrize("buffer_rows", [200, 10_000])
def test_a_streamed_fit_is_the_fit_in_memory_bit_for_bit(tmp_path, buffer_rows):
    """Given the same scales and start; with a buffer for all rows the order is that of rows in memory too."""
    x = table(1000)
    stream, chosen, found, held_out, rows = parts_of(write(tmp_path, x), x, buffer_bytes=24 * buffer_rows)
    source = rows_of(stream, found, held_out)
    ends = []
    for data in (source, rows if buffer_rows > 1000 else InOrder(rows, source)):
        vae, smoothness = prepared(found, chosen)
        history = train(vae, data, epochs=2, batch_size=64, smoothness=smoothness, seed=7)
        ends.append((weights_of(vae), [record.elbo for record in history]))
    assert ends[0][1] == ends[1][1]
    assert all(torch.equal(value, ends[1][0][name]) for name, value in ends[0][0].items())


# The survey and the estimator.


def test_one_pass_finds_what_a_look_at_all_rows_finds(tmp_path):
    x = table(1000)
    _, chosen, found, held_out, rows = parts_of(write(tmp_path, x), x)
    scaler = PositiveScaler().fit(x)
    np.testing.assert_allclose(found.scaler.origin_, scaler.origin_, rtol=1e-13)
    # 1e6 less a value about 1e6 has lost six digits
    np.testing.assert_allclose(found.scaler.scale_, scaler.scale_, rtol=1e-9)
    assert found.scaler.zero_share_.tolist() == scaler.zero_share_.tolist()
    assert np.array_equal(found.held_out, x[held_out])
    for ours, theirs in zip(found.tail_record.columns, TailRecord.of(x).columns, strict=True):
        assert ours[:2] == theirs[:2]
        assert np.array_equal(ours.top, theirs.top)
    vae, smoothness = prepared(found, chosen)
    ones = np.ones(3)
    other = assembly.build(chosen, PositiveScaler.of(0 * ones, ones, scaler.zero_share_))
    other.encoder.standardise(rows)
    for name in ("feature_mean", "feature_deviation"):
        ours, theirs = getattr(vae.encoder, name), getattr(other.encoder, name)
        assert torch.allclose(ours, theirs, rtol=1e-6), name
    assert bool((smoothness > 0).all())


def test_many_rows_are_surveyed_within_the_bound_of_the_sketch(tmp_path):
    x = table(3 * LEAF, seed=5)
    write(tmp_path, x, row_group_size=50_000)
    found = survey(ParquetStream(tmp_path).row_groups, 0.0, np.zeros(0, dtype=np.int64))
    for place, column in enumerate(found.columns):
        positive = x[x[:, place] > 0, place]
        share = float((positive <= found.scaler.scale_[place]).mean())
        assert 0 < column.error < 4 / SINGLES
        assert abs(share - 0.5) <= column.error
    for ours, theirs in zip(found.tail_record.columns, TailRecord.of(x).columns, strict=True):
        assert np.array_equal(ours.top, theirs.top)


def test_the_estimator_streams_to_the_model_it_fits_in_memory(tmp_path):
    x = table(3000, seed=2)
    folder = write(tmp_path, x, row_group_size=300)
    options = FEW | {"epochs": 4, "smoothness": 1e-3, "validation_fraction": 0.1}
    streamed = PHVAE(**options).fit(ParquetStream(folder))
    in_memory = PHVAE(**options).fit(str(folder))
    assert streamed.fingerprint_ == in_memory.fingerprint_
    assert streamed.settings_ == in_memory.settings_
    assert list(streamed.feature_names_in_) == NAMES
    assert streamed.sample(5, random_state=1).column_names == NAMES
    # the same rows in the same order, from starts that differ by roundings
    for ours, theirs in zip(streamed.history_, in_memory.history_, strict=True):
        assert ours.elbo == pytest.approx(theirs.elbo, abs=1e-3)
        assert ours.validation_elbo == pytest.approx(theirs.validation_elbo, abs=1e-3)
    path = tmp_path / "model.phvae"
    streamed.save(path)
    PHVAE.verify(path)


def test_a_streamed_fit_that_was_interrupted_goes_on_bit_for_bit(tmp_path):
    stream = ParquetStream(write(tmp_path, table(1000)), buffer_bytes=24 * 200)
    whole = PHVAE(**FEW).fit(stream)
    place = tmp_path / "run.checkpoint"

    def press(record):
        if record.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PHVAE(**FEW).fit(stream, checkpoint=place, callback=press)
    resumed = PHVAE(**FEW).fit(stream, resume=place)
    theirs = whole.vae_.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in resumed.vae_.state_dict().items())
    with pytest.raises(ValueError, match="was made on other rows"):
        PHVAE(**FEW).fit(ParquetStream(tmp_path, buffer_bytes=24 * 300), resume=place)


def test_rows_and_columns_are_chosen_as_for_a_table(tmp_path):
    write(tmp_path, table(1000))
    options = {"columns": ["days", "loss"], "where": "days > 1.5 and cost > 0"}
    stream = ParquetStream(tmp_path, **options)
    from phvae.tables.read import read_table

    sheet = read_table(tmp_path, **options)
    assert stream.shape == sheet.table.shape
    in_memory = np.column_stack([column.to_numpy() for column in sheet.table.columns])
    streamed = [
        piece.values for group in range(len(stream.row_groups.counts)) for piece in stream.row_groups.read(group)
    ]
    assert np.array_equal(np.concatenate(streamed), in_memory)


def test_large_parquet_files_are_streamed_and_others_are_read(tmp_path, monkeypatch):
    write(tmp_path, table(1000))
    assert isinstance(table_or_stream(tmp_path), pa.Table)
    monkeypatch.setattr("phvae.streaming.fitting.STREAMED_FROM", 2999)
    assert isinstance(table_or_stream(tmp_path), ParquetStream)
    (tmp_path / "more.csv").write_text("loss,cost,days\n1,2,3\n")
    assert isinstance(table_or_stream(tmp_path), pa.Table)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, r"1\.parquet: column 'cost', row 12 \(counted from 1\) is missing \(NaN\)"),
        (-1.0, r"1\.parquet: Negative values in data: column 'cost', row 12 \(counted from 1\) is -1"),
        (np.inf, r"1\.parquet: column 'cost', row 12 \(counted from 1\) is inf"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_file_and_row(tmp_path, value, message):
    x = table(300)
    x[111, 1] = value
    write(tmp_path, x)
    with pytest.raises(ValueError, match=message):
        PHVAE(**FEW).fit(ParquetStream(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"origin": 5e6}, "column 'loss' has the value 1[.0-9]*, not above its origin 5e"),
        ({"n_phases": "auto"}, "n_phases = 'auto' compares fits to a table in memory; give a number or None"),
    ],
)
def test_what_a_stream_cannot_be_fitted_with_is_said(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        PHVAE(**FEW | changes).fit(ParquetStream(write(tmp_path, table(300))))


def test_only_parquet_is_streamed(tmp_path):
    (tmp_path / "a.csv").write_text("loss\n1\n2\n")
    with pytest.raises(ValueError, match=r"a\.csv: only Parquet files can be streamed; write it as Parquet, or fit it"):
        fit_stream(PHVAE(), ParquetStream(tmp_path / "a.csv"))
    with pytest.raises(ValueError, match="buffer_bytes = 8 does not hold a row; give at least 24"):
        ParquetStream(write(tmp_path, table(300)) / "0.parquet", buffer_bytes=8)


def test_the_command_line_streams_when_asked_to(tmp_path, capsys):
    folder = write(tmp_path, table(500))
    given = ["fit", str(folder), "--stream", "-c", "loss,cost", "--where", "days > 0", "--epochs", "2", "--seed", "3"]
    assert run([*given, "--n-phases", "3", "--hidden", "8", "-o", str(tmp_path / "out.phvae"), "--json"]) == 0
    assert '"columns": ["loss", "cost"]' in capsys.readouterr().out
    stream = ParquetStream(folder, columns=["loss", "cost"], where="days > 0")
    model = PHVAE(epochs=2, random_state=3, n_phases=3, hidden=(8,)).fit(stream)
    written = PHVAE.load(tmp_path / "out.phvae").vae_.state_dict()
    assert all(torch.equal(value, written[name]) for name, value in model.vae_.state_dict().items())
    (tmp_path / "a.csv").write_text("loss\n1\n")
    assert run(["fit", str(tmp_path / "a.csv"), "--stream", "-o", str(tmp_path / "out.phvae")]) == 2
    assert "only Parquet files can be streamed" in capsys.readouterr().err


def test_signed_columns_are_streamed_to_the_model_in_memory(tmp_path):
    rng = np.random.default_rng(2)
    x = table(600)
    x[:, 0] = 0.01 * rng.standard_t(4, 600)
    x[:3, 0] = 0.0
    x[:, 2] = np.where(x[:, 2] == 0, 0.0, rng.laplace(size=600))
    support = {"loss": "real", "days": "real"}
    few = {**FEW, "support": support}
    streamed = PHVAE(**few).fit(ParquetStream(write(tmp_path, x)))
    rows = pa.table(dict(zip(NAMES, x.T, strict=True)))
    whole = PHVAE(**few).fit(rows)
    for name in ("origin_", "scale_", "zero_share_", "loss_share_"):
        np.testing.assert_allclose(getattr(streamed.scaler_, name), getattr(whole.scaler_, name), rtol=1e-12)
    assert streamed.settings_["loss_share"] == whole.settings_["loss_share"]
    assert streamed.scaler_.zero_share_[0] == 0 < streamed.scaler_.zero_share_[2]
    ours, theirs = streamed.tail_record_.arrays(), whole.tail_record_.arrays()
    assert {name: part.tolist() for name, part in ours.items()} == {
        name: part.tolist() for name, part in theirs.items()
    }
    np.testing.assert_allclose(streamed.score_samples(rows), whole.score_samples(rows), rtol=1e-5)
    elbos = [[record.elbo for record in model.history_] for model in (streamed, whole)]
    assert elbos[0] == pytest.approx(elbos[1], rel=1e-5)
    flipped = ParquetStream(write(tmp_path, x * [1, -1, 1]))
    with pytest.raises(
        ValueError, match=r"0\.parquet: Negative values in data: column 'cost', row 1 .*support={'cost'"
    ):
        PHVAE(**few).fit(flipped)
    sizes = ParquetStream(write(tmp_path, np.abs(x)))
    with pytest.raises(ValueError, match="column 'days' has 0 different negative values"):
        PHVAE(**{**few, "support": {"days": "real"}}).fit(sizes)
