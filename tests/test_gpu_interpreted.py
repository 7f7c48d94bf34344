"""The CUDA kernels' arithmetic on a machine without a GPU, by Triton's interpreter, against rigorous values."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed (the optional gpu extra)")

INDEXED = """
import triton.runtime.interpreter as interpreter

def indexed(tensor, scope, original=interpreter._patch_lang_tensor):
    # NumPy 2.4 makes no integer of an array of one element, as Triton 3.6 expects of it
    original(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

interpreter._patch_lang_tensor = indexed
"""

CHECK = """
import sys
import numpy as np, torch
from phvae.kernels import gpu, limits
from phvae.kernels.quantities import Evaluation

table = dict(np.load(sys.argv[1]))
method = sys.argv[2]
for phases in map(int, sys.argv[3:]):
    for quantity in (0, 1, 2):
        rows = np.flatnonzero((table["phases"] == phases) & (table["quantity"] == quantity))
        if quantity == 2:
            rows = rows[table["value"][rows] < -0.7]  # above the median F is the complement of S
        x, initial, rates = (torch.as_tensor(table[name][rows][..., :phases] if name != "x" else table[name][rows])
                             for name in ("x", "initial", "rates"))
        found = gpu.evaluate(quantity, x, initial, rates, torch.arange(len(x)), method, True)
        value, slope = table["value"][rows], table["d_x"][rows]
        error = np.abs(found.value.numpy() - value) / np.maximum(1, np.abs(value))
        assert error.max() < 1e-10, (phases, quantity, error.max())
        size = np.maximum(np.abs(slope), np.minimum(rates.numpy()[:, -1], 1 / x.numpy()))
        error = np.abs(found.d_x.numpy() - slope) / size
        assert error.max() < 1e-7, ("d_x", phases, quantity, error.max())
        for name in ("d_initial", "d_rates"):
            wanted = table[name][rows][:, :phases]
            size = np.abs(wanted).max(1, keepdims=True)
            some = (size[:, 0] > 0) & (size[:, 0] < 1e300)
            error = np.linalg.norm((getattr(found, name).numpy() - wanted)[some] / size[some], axis=1)
            assert not some.any() or error.max() < 1e-7, (name, phases, quantity, error.max())
        trusted = (found.status == 0).double().mean()
        assert trusted > 0.25 if method == "auto" else trusted == 0, (phases, quantity, trusted)
        if method == "auto":
            plain = gpu.evaluate(quantity, x, initial, rates, torch.arange(len(x)), method, False)
            error = np.abs(plain.value.numpy() - value) / np.maximum(1, np.abs(value))
            assert error.max() < 1e-10 and not len(plain.d_rates), (phases, quantity, error.max())

# the ends of the half-line, and rows that are no law
x = torch.tensor([0.0, 0.0, 0.0, np.inf, np.inf, np.nan, -1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
initial = torch.full((10, 3), 1 / 3, dtype=torch.float64)
initial[1, 2], initial[3, 0], initial[7], initial[8, 1] = 0.0, 0.0, 0.0, -0.1
rates = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64).repeat(10, 1)
rates[9, 2] = 1.0
for quantity in (0, 1):
    found = gpu.evaluate(quantity, x, initial, rates, torch.arange(10), method, True)
    wanted = Evaluation(*[field.clone() for field in found[:5]], regular=False)
    limits.fill(quantity, x, initial, rates, torch.arange(10), wanted)
    assert found.status.tolist() == [2] * 5 + [3] * 5, found.status
    for name, field, limit in zip(found._fields[:4], found, wanted):
        assert torch.allclose(field, limit, rtol=1e-14, atol=0, equal_nan=True), (name, field, limit)
"""


@pytest.mark.parametrize(("method", "phases"), [("auto", (2, 10, 12)), ("squaring", (3,))], ids=["auto", "squaring"])
def test_the_triton_kernels_meet_the_promise_under_the_interpreter(method, phases):
    reference = Path(__file__).with_name("series_reference.npz")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INDEXED + CHECK, str(reference), method, *map(str, phases)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        timeout=900,
    )
    assert done.returncode == 0, done.stderr


HEADS = """
import torch
from phvae.kernels import gpu_heads

generator = torch.Generator().manual_seed(0)
for rows, columns, phases, kind in ((7, 3, 10, torch.float32), (5, 1, 1, torch.float64), (3, 2, 64, torch.float64)):
    outputs = (8 * torch.randn((rows, columns, 2 * phases), generator=generator, dtype=torch.float64)).to(kind)
    outputs[0, 0, phases:], outputs[1, 0, phases] = -300.0, 60.0
    scale = 1e3 * torch.rand(columns, generator=generator, dtype=torch.float64)
    whole = outputs.double().requires_grad_()
    start, steps = whole.chunk(2, -1)
    wanted = start.softmax(-1), torch.nn.functional.softplus(steps, threshold=40.0).cumsum(-1) / scale[:, None]
    weights = [torch.rand(part.shape, generator=generator, dtype=torch.float64) for part in wanted]
    slope, = torch.autograd.grad(sum((w * part).sum() for w, part in zip(weights, wanted)), whole)
    flat = outputs.view(-1, 2 * phases)
    found = gpu_heads.chains_of(flat, scale)
    for part, right in zip(found, wanted):
        torch.testing.assert_close(part.view_as(right), right.detach(), rtol=1e-14, atol=0)
    given = [w.view(-1, phases) for w in weights]
    slopes = gpu_heads.slopes_of(flat, scale, found[0], *given).view_as(outputs)
    assert slopes.dtype == kind
    close = {"rtol": 1e-12, "atol": 1e-14} if kind == torch.float64 else {"rtol": 1e-6, "atol": 1e-8}
    torch.testing.assert_close(slopes.double(), slope, **close)
"""


def test_start_vectors_and_rates_of_the_triton_kernels_are_those_of_their_definition():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INDEXED + HEADS],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
