"""Model files: bit for bit there and back, and no changed byte goes unnoticed."""

import hashlib
import json
import os
import random
import struct

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch

from phvae import PHVAE, modelfile
from phvae.modelfile import ModelFileError


def losses(n=200):
    rng = np.random.default_rng(0)
    common = rng.gamma(1.0, size=n)
    profits = np.where(rng.random(n) < 0.6, 0.0, rng.pareto(2.4, n))
    return pd.DataFrame({"building": 1 + rng.exponential(size=n) / common, "profits": profits})


@pytest.fixture(scope="module")
def model():
    return PHVAE(n_phases=3, hidden=(8,), epochs=2, prior="mixture", origin={"building": 0.5}, random_state=0).fit(
        losses()
    )


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "fire.phvae")
    return tmp_path / "fire.phvae"


def test_a_loaded_model_gives_the_same_numbers(model, path):
    loaded = PHVAE.load(path)
    for name, value in model.vae_.state_dict().items():
        other = loaded.vae_.state_dict()[name]
        assert (other.dtype, other.shape) == (value.dtype, value.shape)
        assert torch.equal(other, value)
    x = losses()
    np.testing.assert_array_equal(loaded.score_samples(x), model.score_samples(x))
    np.testing.assert_array_equal(loaded.transform(x), model.transform(x))
    pd.testing.assert_frame_equal(loaded.sample(100, random_state=1), model.sample(100, random_state=1))
    assert loaded.get_params() == model.get_params()
    assert loaded.settings_ == model.settings_
    assert loaded.history_ == model.history_
    assert loaded.fingerprint_ == model.fingerprint_
    assert loaded.feature_names_in_.tolist() == ["building", "profits"]
    assert loaded.n_features_in_ == 2
    for name in ("origin_", "scale_", "zero_share_"):
        np.testing.assert_array_equal(getattr(loaded.scaler_, name), getattr(model.scaler_, name))


def test_saving_a_loaded_model_gives_the_same_bytes(path, tmp_path):
    again = tmp_path / "again.phvae"
    PHVAE.load(path).save(again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("columns", [None, [10, 20]])
def test_models_of_arrays_and_of_numbered_columns_come_back(columns, tmp_path):
    x = losses().to_numpy() if columns is None else losses().set_axis(columns, axis=1)
    model = PHVAE(
        n_phases=2, epochs=1, hidden=[4], origin=np.array([0.5, 0.0]), random_state=np.random.default_rng(0)
    ).fit(x)
    model.save(tmp_path / "model.phvae")
    loaded = PHVAE.load(tmp_path / "model.phvae")
    np.testing.assert_array_equal(loaded.sample(5, 0), model.sample(5, 0))
    assert not hasattr(loaded, "feature_names_in_")


def test_the_header_is_plain_json_and_the_tensors_are_plain_safetensors(model, path):
    tensors = safetensors.torch.load_file(path)
    assert torch.equal(tensors["vae.prior.means"], model.vae_.prior.means)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    envelope = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["phvae"])
    assert envelope["format"] == modelfile.FORMAT
    assert envelope["model"]["columns"] == ["building", "profits"]
    assert content.count(envelope["sha256"].encode()) == 1
    assert hashlib.sha256(content.replace(envelope["sha256"].encode(), b"0" * 64)).hexdigest() == envelope["sha256"]


def test_saving_replaces_a_file_whole_and_leaves_nothing_beside_it(model, path, tmp_path, monkeypatch):
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        model.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_verify_computes_the_stored_values_again(path):
    values, worst = PHVAE.verify(path)
    assert values == 2 * 4 * 3 * 2  # two quantities at four latent points, three values, two columns
    assert worst == 0


def test_verify_notices_an_installation_that_computes_other_numbers(path, monkeypatch):
    from phvae.distributions import SeriesPhaseType

    exact = SeriesPhaseType._log_density
    monkeypatch.setattr(SeriesPhaseType, "_log_density", lambda law, x: exact(law, x) + 1e-7)
    assert PHVAE.load(path) is not None
    with pytest.raises(ModelFileError, match=r"fire\.phvae: the file is whole, but .* is off by 1\.0e-07"):
        PHVAE.verify(path)


# --- damage: whatever happens to the bytes, one sentence and never another number


def flip_bit(content, draw):
    at = draw.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]


def flip_header_bit(content, draw):
    at = draw.randrange(8 + header_length(content))
    return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]


def truncate(content, draw):
    return content[: draw.randrange(len(content))]


def append(content, draw):
    return content + draw.randbytes(draw.randrange(1, 100))


def cut_out(content, draw):
    start = draw.randrange(len(content))
    return content[:start] + content[start + draw.randrange(1, 64) :]


def insert(content, draw):
    at = draw.randrange(len(content))
    return content[:at] + draw.randbytes(draw.randrange(1, 16)) + content[at:]


def blank(content, draw):
    start = draw.randrange(len(content) - 64)
    return content[:start] + bytes(64) + content[start + 64 :]


def edit_number(content, draw):
    """Another digit in the header."""
    digits = [at for at in range(8, 8 + header_length(content)) if chr(content[at]).isdigit()]
    at = draw.choice(digits)
    other = draw.choice([digit for digit in b"0123456789" if digit != content[at]])
    return content[:at] + bytes([other]) + content[at + 1 :]


def edit_space(content, draw):
    """A header that means the same."""
    at = content.index(b":", 8)
    padded = content[8 : at + 1] + b" " + content[at + 1 : 8 + header_length(content)]
    return struct.pack("<Q", len(padded)) + padded + content[8 + header_length(content) :]


def swap_tensors(content, draw):
    """The bytes of two tensors of one shape, exchanged."""
    header = json.loads(content[8 : 8 + header_length(content)])
    spans = {}
    for name, entry in header.items():
        if name != "__metadata__":
            spans.setdefault((entry["dtype"], *entry["shape"]), []).append(entry["data_offsets"])
    start = 8 + header_length(content)
    pairs = [(a, b) for same in spans.values() for a in same for b in same if a < b]
    (a, b), (c, d) = draw.choice(
        [(a, b) for a, b in pairs if content[start + a[0] : start + a[1]] != content[start + b[0] : start + b[1]]]
    )
    first, second = content[start + a : start + b], content[start + c : start + d]
    return content[: start + a] + second + content[start + b : start + c] + first + content[start + d :]


def swap_offsets(content, draw):
    """Two entries of the header, exchanged."""
    header = json.loads(content[8 : 8 + header_length(content)])
    a, b = draw.sample([name for name in header if name != "__metadata__"], 2)
    header[a], header[b] = header[b], header[a]
    return with_header(content, header)


def claim_length(content, draw):
    """Another length of the header, up to absurd ones."""
    length = draw.choice([0, 1, header_length(content) - 1, header_length(content) + 1, 2**31, 2**63, 2**64 - 1])
    return struct.pack("<Q", length) + content[8:]


def nest(content, draw):
    depth = draw.choice([10, 100_000])
    return struct.pack("<Q", 2 * depth) + b"[" * depth + b"]" * depth


def noise(content, draw):
    return draw.randbytes(draw.randrange(2000))


DAMAGES = [
    flip_bit,
    flip_header_bit,
    truncate,
    append,
    cut_out,
    insert,
    blank,
    edit_number,
    edit_space,
    swap_tensors,
    swap_offsets,
    claim_length,
    nest,
    noise,
]


def header_length(content):
    return struct.unpack("<Q", content[:8])[0]


def with_header(content, header):
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + header_length(content) :]


def require_one_clear_error(path):
    with pytest.raises(ModelFileError) as caught:
        PHVAE.load(path)
    message = str(caught.value)
    assert message.startswith(str(path)), message
    assert "\n" not in message
    assert any(remedy in message for remedy in ("copy it again", "copy the file again", "save the model again")), (
        message
    )


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damaged_file_loads(damage, path):
    content, draw = path.read_bytes(), random.Random(damage.__name__)
    for _ in range(25):
        changed = damage(content, draw)
        if changed != content:
            path.write_bytes(changed)
            require_one_clear_error(path)


@pytest.mark.soak
def test_none_of_ten_thousand_damaged_files_loads(path):
    content, draw = path.read_bytes(), random.Random(0)
    damaged = 0
    while damaged < 10_000:
        changed = DAMAGES[damaged % len(DAMAGES)](content, draw)
        if damaged % 3 == 0 and changed:
            changed = draw.choice([flip_bit, truncate, append, insert])(changed, draw)
        if changed != content:
            path.write_bytes(changed)
            require_one_clear_error(path)
            damaged += 1


# --- files that are sealed, so written by someone, and still wrong


def resealed(path, change):
    header, tensors = modelfile.read(path)
    change(header, tensors)
    modelfile.write(path, tensors, header)


def drop_tensor(header, tensors):
    del tensors["vae.decoder.network.head.bias"]


def add_tensor(header, tensors):
    tensors["vae.extra"] = torch.zeros(2)


def reshape(header, tensors):
    tensors["vae.prior.means"] = tensors["vae.prior.means"].T.contiguous()


def retype(header, tensors):
    tensors["vae.prior.means"] = tensors["vae.prior.means"].double()


def not_a_number(header, tensors):
    tensors["vae.prior.means"][0, 0] = torch.nan


def infinite(header, tensors):
    tensors["vae.decoder.scale"][0] = torch.inf


def negative_scale(header, tensors):
    tensors["vae.decoder.scale"][0] = -1.0


def huge_layer(header, tensors):
    header["settings"]["hidden"] = [10**9, 10**9]


def huge_phases(header, tensors):
    header["settings"]["n_phases"] = 10**12


def text_for_a_number(header, tensors):
    header["settings"]["latent_dim"] = "4"


def no_settings(header, tensors):
    del header["settings"]


def no_history(header, tensors):
    header["history"] = {"records": [{"epoch": 1}]}


def unknown_parameter(header, tensors):
    header["parameters"]["flavour"] = "vanilla"


def other_columns(header, tensors):
    header["columns"] = ["building"]


def twice_the_same_column(header, tensors):
    header["columns"] = ["building", "building"]


def unknown_table(header, tensors):
    header["table_kind"] = 7


def other_kind(header, tensors):
    header["kind"] = "Forest"


def half_a_tail_record(header, tensors):
    del tensors["tail.top"]


def tail_record_of_another_table(header, tensors):
    tensors["tail.counts"] = tensors["tail.counts"][:1]


def rising_tail_record(header, tensors):
    tensors["tail.top"] = tensors["tail.top"].flip(0)


def infinite_tail_record(header, tensors):
    tensors["tail.top"][0] = torch.inf


def more_zeros_than_rows(header, tensors):
    tensors["tail.counts"][0, 1] = 10**6


def tail_record_longer_than_its_values(header, tensors):
    tensors["tail.counts"][0, 2] += 1


@pytest.mark.parametrize(
    "change",
    [
        half_a_tail_record,
        tail_record_of_another_table,
        rising_tail_record,
        infinite_tail_record,
        more_zeros_than_rows,
        tail_record_longer_than_its_values,
        drop_tensor,
        add_tensor,
        reshape,
        retype,
        not_a_number,
        infinite,
        negative_scale,
        huge_layer,
        huge_phases,
        text_for_a_number,
        no_settings,
        no_history,
        unknown_parameter,
        other_columns,
        twice_the_same_column,
        unknown_table,
        other_kind,
    ],
)
def test_a_sealed_file_that_holds_no_model_is_refused(change, path):
    resealed(path, change)
    with pytest.raises(ModelFileError, match=r"fire\.phvae: .*; (save the model again|give a file that save wrote)$"):
        PHVAE.load(path)


def test_a_file_without_a_tail_record_loads_and_does_not_know(path):
    def forget(header, tensors):
        del tensors["tail.counts"], tensors["tail.top"]

    resealed(path, forget)
    loaded = PHVAE.load(path)
    assert loaded.tail_record_ is None
    loaded.save(path)
    assert PHVAE.load(path).tail_record_ is None


def test_the_tail_record_is_that_of_the_training_rows(model, path):
    x = losses()
    for fitted in (model, PHVAE.load(path)):
        building, profits = fitted.tail_record_.columns
        assert (building.n, building.zeros) == (200, 0)
        assert profits.zeros == (x["profits"] == 0).sum()
        assert building.top.tolist() == sorted(x["building"])[: -len(building.top) - 1 : -1]
        assert building.exceedances(building.top[10]) == 10
        assert building.exceedances(x["building"].median()) is None


def test_a_checkpoint_is_not_a_model(tmp_path):
    place = tmp_path / "fit.checkpoint"
    PHVAE(n_phases=2, hidden=(4,), epochs=1, random_state=0).fit(losses(), checkpoint=place)
    with pytest.raises(ModelFileError, match="it holds a checkpoint of a training run, not a fitted PHVAE"):
        PHVAE.load(place)


def test_a_newer_format_says_upgrade(path, monkeypatch):
    header, tensors = modelfile.read(path)
    monkeypatch.setattr(modelfile, "FORMAT", 2)
    modelfile.write(path, tensors, header)
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match="its format is 2 and this phvae reads up to 1; upgrade phvae"):
        PHVAE.load(path)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        PHVAE.load(tmp_path / "nothing.phvae")
