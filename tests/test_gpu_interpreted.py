"""The CUDA kernel's arithmetic on a machine without a GPU, by Triton's interpreter, against rigorous values."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed (the optional gpu extra)")

CHECK = """
import sys
import numpy as np, torch
from phvae.kernels import gpu
table = dict(np.load(sys.argv[1]))
for phases in (2, 10, 12, 20):
    for quantity in (0, 1, 2):
        rows = np.flatnonzero((table["phases"] == phases) & (table["quantity"] == quantity))
        if quantity == 2:
            rows = rows[table["value"][rows] < -0.7]  # above the median F is the complement of S
        x, initial, rates = (torch.as_tensor(table[name][rows][..., :phases] if name != "x" else table[name][rows])
                             for name in ("x", "initial", "rates"))
        found = gpu.evaluate(quantity, x, initial, rates, torch.arange(len(x)), "auto", True)
        value, wanted = table["value"][rows], table["d_rates"][rows][:, :phases]
        error = np.abs(found.value.numpy() - value) / np.maximum(1, np.abs(value))
        assert error.max() < 1e-10, (phases, quantity, error.max())
        size = np.maximum(np.abs(wanted).max(1, keepdims=True), 1e-6 / rates.numpy()[:, -1:])
        slope = np.linalg.norm((found.d_rates.numpy() - wanted) / size, axis=1)
        assert slope.max() < 1e-7, (phases, quantity, slope.max())
        assert (found.status == 0).double().mean() > 0.25, (phases, quantity)
"""


def test_the_triton_kernel_meets_the_promise_under_the_interpreter():
    reference = Path(__file__).with_name("series_reference.npz")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHECK, str(reference)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
