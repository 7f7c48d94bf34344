"""Log density with gradients on a CUDA device: first right against rigorous values, then how fast.

    make bench-gpu

Runs from the source tree with the torch and triton of the machine; writes a JSON file beside the printed table.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import chains, peers
from phvae.kernels import backends, series
from phvae.kernels.quantities import DENSITY

REFERENCE = Path(__file__).parent.parent / "tests" / "series_reference.npz"


def seconds(work: Any, repeats: int) -> float:
    """Median device time of one call, by events."""
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def accuracy() -> dict[str, float]:
    """Largest errors against Arb, all cases of one number of phases in one call."""
    table = np.load(REFERENCE)
    functions = (series.log_density, series.log_survival, series.log_cdf)
    worst = {"log value": 0.0, "d_x": 0.0, "d_initial": 0.0, "d_rates": 0.0, "float32 inputs, rows that differ": 0.0}
    for phases in np.unique(table["phases"]):
        for code, function in enumerate(functions):
            rows = np.flatnonzero((table["phases"] == phases) & (table["quantity"] == code))
            inputs = [
                torch.as_tensor(table[name][rows][..., :phases] if name != "x" else table[name][rows], device="cuda")
                for name in ("x", "initial", "rates")
            ]
            for tensor in inputs:
                tensor.requires_grad_()
            value = function(*inputs)
            slopes = [slope.cpu().numpy() for slope in torch.autograd.grad(value.sum(), inputs)]
            expected = table["value"][rows]
            error = np.abs(value.detach().cpu().numpy() - expected) / np.maximum(1, np.abs(expected))
            worst["log value"] = max(worst["log value"], float(error.max()))
            x, rates = table["x"][rows], table["rates"][rows][:, :phases]
            size = np.maximum(np.abs(table["d_x"][rows]), np.minimum(rates[:, -1], 1 / x))
            worst["d_x"] = max(worst["d_x"], float((np.abs(slopes[0] - table["d_x"][rows]) / size).max()))
            for name, slope in zip(("d_initial", "d_rates"), slopes[1:], strict=True):
                want = table[name][rows][:, :phases]
                size = np.abs(want).max(1, keepdims=True)
                finite = (size[:, 0] < 1e300) & (size[:, 0] > 0)
                gap = np.linalg.norm((slope[finite] - want[finite]) / size[finite], axis=1)
                worst[name] = max(worst[name], float(gap.max()))
            # a float32 input is the law it rounds to, evaluated in float64
            rounded = [tensor.detach().float() for tensor in inputs]
            again = function(*[tensor.double() for tensor in rounded])
            apart = ~torch.isclose(function(*rounded), again, rtol=0, atol=0, equal_nan=True)
            worst["float32 inputs, rows that differ"] += float(apart.sum())
    return worst


def forward_and_backward(function: Any, inputs: list[torch.Tensor]) -> Any:
    def work() -> None:
        torch.autograd.grad(function(*inputs).sum(), inputs[1:])

    return work


def speed(rows: int, phases: int, repeats: int) -> list[dict[str, Any]]:
    found = []
    for kind in ("initialised", "trained"):
        x, initial, rates = chains.rows(kind, rows, phases, device="cuda")
        shares = backends.shares(DENSITY, x, initial, rates)
        for scale in (1.0, 1e6):
            inputs = [x * scale, initial.clone().requires_grad_(), (rates / scale).requires_grad_()]
            for name, function, count in (
                ("fused (Triton)", peers.fused, rows),
                ("contour in torch, autograd", peers.torch_contour, rows // 10),
                ("matrix_exp, autograd", peers.matrix_exponential, rows // 10),
                ("uniformization, 200 terms, autograd", peers.plain_uniformization, rows // 100),
            ):
                if scale != 1.0 and function is not peers.fused:
                    continue
                part = [inputs[0][:count], *[p[:count].detach().requires_grad_() for p in inputs[1:]]]
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                taken = seconds(forward_and_backward(function, part), repeats)
                peak = torch.cuda.max_memory_allocated() - before
                size = sum(tensor.numel() * 8 for tensor in part)
                found.append(
                    {"rates": kind, "x scaled by": scale, "method": name, "rows": count, "phases": phases,
                     "evaluations per second": count / taken, "extra memory / inputs": peak / size,
                     "largest L x": float((rates[:, -1] * x).max()), "share to squaring": shares["squaring"]}
                )  # fmt: skip
                row = found[-1]
                print(
                    f"{kind:12s} x*{scale:<7g} {name:36s} {row['evaluations per second']:10.3g} /s"
                    f"  memory {row['extra memory / inputs']:6.2f} x inputs", flush=True,
                )  # fmt: skip
        print(f"{kind}: largest L x {found[-1]['largest L x']:.3g}, to squaring {shares['squaring']:.2%}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.likelihood_gpu", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--phases", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path, default=Path("build/likelihood-gpu.json"))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.likelihood_gpu: no CUDA device here; run it on a machine that has one")
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    errors = accuracy()
    for name, error in errors.items():
        print(f"largest error, {name:28s} {error:.1e}")
    rows = speed(arguments.rows, arguments.phases, arguments.repeats)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    device = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    arguments.output.write_text(json.dumps({**device, "errors": errors, "speed": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
