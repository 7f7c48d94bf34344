"""Log density with gradients on a CUDA device: first right against rigorous values, then how fast, and what bounds it.

    make bench-gpu

Runs from the source tree with the torch and triton of the machine; writes a JSON file beside the printed table.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import chains, peers
from phvae.kernels import backends, series
from phvae.kernels.quantities import DENSITY

REFERENCE = Path(__file__).parent.parent / "tests" / "series_reference.npz"

# Ten phases, log density with gradients: floating-point operations of a row in the contour kernel, counted in its
# machine code (12 nodes of 111 fused multiply-adds and 124 other operations, and about 400 around them), and the bytes
# it must move: x, law and status, initial and rates read and their slopes written, value and slope of x.
OPERATIONS = 12 * (2 * 111 + 124) + 400
BYTES = 8 + 8 + 1 + 4 * 80 + 16


def seconds(work: Callable[[], Any], repeats: int) -> float:
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


def accuracy(phases_of_cases: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """Largest errors against Arb by number of phases and method, all quantities and cases of one in one call each."""
    table = np.load(REFERENCE)
    functions = (series.log_density, series.log_survival, series.log_cdf)
    found = []
    for phases in np.unique(table["phases"]) if phases_of_cases is None else phases_of_cases:
        for method in ("auto", "squaring"):
            worst = {"log value": 0.0, "d_x": 0.0, "d_initial": 0.0, "d_rates": 0.0, "float32 rows that differ": 0.0}
            cases, trusted = 0, 0.0
            for code, function in enumerate(functions):
                rows = np.flatnonzero((table["phases"] == phases) & (table["quantity"] == code))
                inputs = [
                    torch.as_tensor(table[name][rows][..., :phases] if name != "x" else table[name][rows]).cuda()
                    for name in ("x", "initial", "rates")
                ]
                cases += len(rows)
                trusted += len(rows) * backends.shares(code, *inputs)["contour"]
                for tensor in inputs:
                    tensor.requires_grad_()
                value = function(*inputs, method=method)
                slopes = [slope.cpu().numpy() for slope in torch.autograd.grad(value.sum(), inputs)]
                expected = table["value"][rows]
                errors = {"log value": np.abs(value.detach().cpu().numpy() - expected) / np.maximum(1, abs(expected))}
                x, rates = table["x"][rows], table["rates"][rows][:, :phases]
                size = np.maximum(np.abs(table["d_x"][rows]), np.minimum(rates[:, -1], 1 / x))
                errors["d_x"] = np.abs(slopes[0] - table["d_x"][rows]) / size
                for name, slope in zip(("d_initial", "d_rates"), slopes[1:], strict=True):
                    want = table[name][rows][:, :phases]
                    size = np.abs(want).max(1, keepdims=True)
                    finite = (size[:, 0] < 1e300) & (size[:, 0] > 0)
                    errors[name] = np.linalg.norm((slope[finite] - want[finite]) / size[finite], axis=1)
                # a float32 input is the law it rounds to, evaluated in float64
                rounded = [tensor.detach().float() for tensor in inputs]
                again = function(*[tensor.double() for tensor in rounded], method=method)
                apart = ~torch.isclose(function(*rounded, method=method), again, rtol=0, atol=0, equal_nan=True)
                errors["float32 rows that differ"] = apart.sum(0, keepdim=True).cpu().numpy()
                worst = {name: float(np.max([worst[name], *error])) for name, error in errors.items()}
            found.append({"phases": int(phases), "method": method, "cases": cases, **worst})
            if method == "auto":
                found[-1]["share by contour"] = trusted / cases
            print(
                f"m {phases:2d} {method:8s} {cases:4d} cases, largest errors: "
                + ", ".join(f"{name} {worst[name]:.1e}" for name in ("log value", "d_x", "d_initial", "d_rates")),
                flush=True,
            )
    return found


def forward_and_backward(function: Any, inputs: list[torch.Tensor]) -> Callable[[], None]:
    def work() -> None:
        torch.autograd.grad(function(*inputs).sum(), inputs[1:])

    return work


def ceilings() -> dict[str, float]:
    """What this device does at most: bytes per second of a large copy, float64 operations per second of a product."""
    source = torch.randn(2**28, dtype=torch.float64, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * 8 * len(source) / seconds(lambda: target.copy_(source), 9)
    matrix = source[: 2**26].reshape(2**13, 2**13)
    product = 2 * 2.0**39 / seconds(lambda: matrix @ matrix, 3)
    vector_units = torch.cuda.get_device_properties(0).multi_processor_count * 64 * 2 * 1.98e9
    return {
        "copy, bytes per second": copied,
        "float64 matrix product (tensor cores), operations per second": product,
        "float64 vector units at 1.98 GHz, operations per second": vector_units,
    }


def kernel(rows: int, kind: str, repeats: int) -> dict[str, Any]:
    """Value and all slopes without autograd, ten phases, beside what the device allows."""
    x, initial, rates = chains.rows(kind, rows, 10, device="cuda")
    law = torch.arange(rows, device="cuda")
    taken = seconds(lambda: backends.evaluate(DENSITY, x, initial, rates, law, "auto", gradients=True), repeats)
    return {
        "rates": kind, "rows": rows, "rows per second": rows / taken,
        "operations per second": OPERATIONS * rows / taken, "bytes per second": BYTES * rows / taken,
    }  # fmt: skip


def speed(rows: int, phases: int, repeats: int) -> list[dict[str, Any]]:
    found = []
    for kind in ("initialised", "trained"):
        x, initial, rates = chains.rows(kind, rows, phases, device="cuda")
        clock = rates[:, -1] * x
        facts = {
            "rates": kind, "phases": phases, "L x": [float(clock.min()), float(clock.median()), float(clock.max())],
            "share of rows": backends.shares(DENSITY, x, initial, rates),
        }  # fmt: skip
        print(f"{kind}: L x {clock.min():.3g} to {clock.max():.3g}, shares {facts['share of rows']}", flush=True)
        for scale in (1.0, 1e6):
            inputs = [x * scale, initial.clone().requires_grad_(), (rates / scale).requires_grad_()]
            for name, function, count in (
                ("fused (Triton)", peers.fused, rows),
                ("fused (Triton), squaring alone", squaring_alone, rows // 10),
                ("contour in torch, autograd", peers.torch_contour, rows // 10),
                # dense matrices: with many phases fewer of them fit into memory
                ("matrix_exp, autograd", peers.matrix_exponential, min(rows // 10, rows * 10 // phases**2)),
                ("uniformization, 200 terms, autograd", peers.plain_uniformization, rows // 100),
            ):
                if scale != 1.0 and function is not peers.fused:
                    continue
                part = [inputs[0][:count], *[p[:count].detach().requires_grad_() for p in inputs[1:]]]
                work = forward_and_backward(function, part)
                work()
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                taken = seconds(work, repeats)
                peak = torch.cuda.max_memory_allocated() - before
                size = sum(tensor.numel() * 8 for tensor in part)
                row = {
                    **facts, "x scaled by": scale, "method": name, "rows": count,
                    "evaluations per second": count / taken, "extra memory / inputs": peak / size,
                }  # fmt: skip
                found.append(row)
                print(
                    f"{kind:12s} x*{scale:<7g} {name:36s} {row['evaluations per second']:10.3g} /s"
                    f"  memory {row['extra memory / inputs']:6.2f} x inputs", flush=True,
                )  # fmt: skip
    return found


def squaring_alone(x: torch.Tensor, initial: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
    return series.log_density(x, initial, rates, method="squaring")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.likelihood_gpu", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--phases", type=int, nargs="+", default=[10, 20, 64])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path, default=Path("build/likelihood-gpu.json"))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.likelihood_gpu: no CUDA device here; run it on a machine that has one")
    versions = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    print(versions, flush=True)
    errors = accuracy()
    limits = ceilings()
    for name, limit in limits.items():
        print(f"{name}: {limit:.3g}")
    bare = [kernel(arguments.rows, kind, arguments.repeats) for kind in ("initialised", "trained")]
    for row in bare:
        print("without autograd", {name: f"{v:.3g}" if isinstance(v, float) else v for name, v in row.items()})
    report: dict[str, Any] = {**versions, "ceilings": limits, "errors": errors, "without autograd": bare, "speed": []}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    for phases in arguments.phases:
        # most rows of a chain of 64 nearly equal rates go to squaring, whose cost grows with the cube
        rows = arguments.rows if phases <= 20 else arguments.rows // 10
        report["speed"] += speed(rows, phases, arguments.repeats)
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
