"""Log density with gradients on the CPU, against the textbook methods: one process, ratios, medians of repeats.

    make bench

Two kinds of chains, as an initialised and as a trained decoder emits them; points from a Pareto law. The largest clock
L x and the share of rows sent to squaring are printed, and so are the cost of a million times larger points and the
memory that an evaluation adds to its inputs.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import chains, committed, peers
from phvae.kernels import backends, series
from phvae.kernels.quantities import DENSITY

Likelihood = Callable[[Tensor, Tensor, Tensor], Tensor]
# method, name, and the share of the rows it gets: all report time a row
METHODS: tuple[tuple[Likelihood, str, float], ...] = (
    (peers.fused, "fused", 1.0),
    (peers.torch_contour, "contour in torch, autograd", 1.0),
    (peers.matrix_exponential, "matrix_exp, autograd", 1.0),
    (peers.uniformization, "uniformization, autograd", 0.1),
    (peers.scipy_matrix_exponential, "scipy.linalg.expm, no gradients", 0.1),
)


def seconds_a_row(likelihood: Likelihood, x: Tensor, initial: Tensor, rates: Tensor) -> float:
    """Median time of three evaluations of log density and, where the method has them, both gradients, a row."""
    parameters = [initial.clone().requires_grad_(), rates.clone().requires_grad_()]
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        value = likelihood(x, *parameters)
        if value.requires_grad:
            torch.autograd.grad(value.sum(), parameters)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) / len(x)


def table(rows: int, phases: int, repeats: int) -> list[dict[str, Any]]:
    """One record per kind of chain and method."""
    found = []
    for kind in ("initialised", "trained"):
        x, initial, rates = chains.rows(kind, rows, phases)
        squared = backends.shares(DENSITY, x, initial, rates)["squaring"]
        largest = float((rates[:, -1] * x).max())
        work: dict[str, tuple[Likelihood, Tensor, Tensor, Tensor]] = {}
        for likelihood, name, share in METHODS:
            count = max(100, int(rows * share))
            work[name] = (likelihood, x[:count], initial[:count], rates[:count])
        work["fused, x and 1/rates times 1e6"] = (peers.fused, x * 1e6, initial, rates / 1e6)
        work["fused, x times 1e6"] = (peers.fused, x * 1e6, initial, rates)
        # the methods take turns, so that a busy spell of a shared machine slows them alike
        rounds = [{name: seconds_a_row(*job) for name, job in work.items()} for _ in range(repeats + 1)][1:]
        costs = {name: statistics.median(each[name] for each in rounds) for name in work}
        print(f"{kind}: {rows:,} rows, {phases} phases, largest L x {largest:.3g}, sent to squaring {squared:.2%}")
        for name, cost in costs.items():
            ratio = cost / costs["fused"]
            print(f"  {name:34s} {1e6 * cost:10.2f} us a row, {1 / cost:12,.0f} rows/s, {ratio:8.1f} x fused")
            found.append(
                {"rates": kind, "rows": rows, "phases": phases, "method": name, "microseconds a row": 1e6 * cost,
                 "times fused": ratio, "largest L x": largest, "share to squaring": squared}
            )  # fmt: skip
    return found


def peak_bytes() -> int:
    """Largest resident memory of this process since the peak was last cleared (Linux)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def added_memory(method: str, phases: int, rows: int) -> float:
    """Peak resident memory added by one evaluation with gradients, in units of its inputs; run in a fresh process."""
    x, initial, rates = chains.rows("trained", rows, phases)
    parameters = [initial.requires_grad_(), rates.requires_grad_()]
    small = [p[:100].detach().requires_grad_() for p in parameters]
    torch.autograd.grad(series.log_density(x[:100], *small, method=method).sum(), small)  # type: ignore[arg-type]
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = peak_bytes()
    torch.autograd.grad(series.log_density(x, *parameters, method=method).sum(), parameters)  # type: ignore[arg-type]
    return (peak_bytes() - before) / (8 * (x.numel() + initial.numel() + rates.numel()))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.likelihood", description=__doc__, parents=[committed.argument("likelihood-cpu.json")]
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--phases", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        method, phases, rows = arguments.memory_of
        print(added_memory(method, int(phases), int(rows)))
        return
    torch.set_num_threads(1)
    machine = {"processor": platform.processor() or platform.machine(), "torch": torch.__version__, "threads": 1}
    speed = table(arguments.rows, arguments.phases, arguments.repeats)
    memory = {}
    for method, phases, rows in (("auto", 10, 500_000), ("squaring", 64, 20_000)):
        command = [sys.executable, "-m", "benchmarks.likelihood", "--memory-of", method, str(phases), str(rows)]
        memory[f"{method}, {phases} phases"] = float(subprocess.run(command, capture_output=True, check=True).stdout)
    for name, share in memory.items():
        print(f"memory added, {name}: {share:.2f} times the inputs")
    ratios = {
        f"{row['rates']}: fused / {row['method']}": 1 / row["times fused"] for row in speed if row["method"] != "fused"
    }
    committed.store({**machine, "ratios": ratios, "speed": speed, "memory": memory}, arguments.output)


if __name__ == "__main__":
    main()
