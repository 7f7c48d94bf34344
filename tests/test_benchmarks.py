"""Benchmarks: a ratio that has worsened is said, and the textbook peers compute the law that is measured."""

import json

import pytest
import torch

from benchmarks import chains, committed, peers


def test_only_ratios_that_worsened_by_more_than_the_noise_are_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(committed, "RESULTS", tmp_path)
    (tmp_path / "x.json").write_text(json.dumps({"ratios": {"a": 1.0, "b": 1.0, "gone": 1.0}}))
    output = tmp_path / "new" / "x.json"
    committed.store({"ratios": {"a": 1.29, "b": 1.31, "fresh": 9.0}}, output)
    assert capsys.readouterr().out == "worse than committed: b is 1.31, was 1\n"
    assert json.loads(output.read_text())["ratios"]["b"] == 1.31


def test_every_committed_result_has_ratios_or_was_measured_on_a_gpu():
    for path in committed.RESULTS.glob("*.json"):
        found = json.loads(path.read_text())
        assert "cuda" in found or all(value > 0 for value in found["ratios"].values()), path.name


@pytest.mark.parametrize("kind", ["initialised", "trained"])
@pytest.mark.parametrize(
    "peer", [peers.matrix_exponential, peers.scipy_matrix_exponential, peers.uniformization, peers.torch_contour]
)
def test_peers_compute_the_same_law(peer, kind):
    x, initial, rates = chains.rows(kind, 50, 6)
    # uniformization drops 1e-8 of its sum; a dense exponential loses digits with the size of L x
    torch.testing.assert_close(peer(x, initial, rates), peers.fused(x, initial, rates), rtol=0, atol=1e-7)
