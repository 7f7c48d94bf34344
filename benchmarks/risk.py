"""Far quantiles by integration over the latent space, beside reading them off rows: ``python -m benchmarks.risk``.

The 99.9% quantile and expected shortfall of five columns of a fitted model, asked to a standard error of 0.1%, and the
same from 10 million rows drawn in blocks, of which only the largest are kept; the error of the rows is that of ten
parts of them. CPU seconds of one thread, which a busy machine does not change much. Sampling to the error of the
integral takes the square of the ratio of errors times longer; that time is the one the aim of 1/100 is about.
"""

import argparse
import platform
import time

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import committed
from phvae import PHVAE

Array = NDArray[np.float64]

LEVEL, TOLERANCE, AIM = 0.999, 1e-3, 0.01
COLUMNS, FIT_ROWS, PARTS = 5, 3000, 10


def fitted() -> PHVAE:
    """A model of five dependent columns with power tails; the question is what its answers cost, not how good it is."""
    rng = np.random.default_rng(0)
    common = np.exp(0.5 * rng.standard_normal((FIT_ROWS, 1)))
    rows = common * (1 + rng.pareto(2.5, (FIT_ROWS, COLUMNS)))
    settings = {"n_phases": 10, "latent_dim": 4, "hidden": (32, 32), "epochs": 20, "batch_size": 128}
    return PHVAE(**settings, random_state=0).fit(rows)


def exact(model: PHVAE) -> tuple[Array, Array, float]:
    """Values and standard errors ``(2, D)`` of quantile and shortfall, and CPU seconds for all of them."""
    began = time.process_time()
    answers = [model.var(LEVEL, rtol=TOLERANCE), model.cvar(LEVEL, rtol=TOLERANCE)]
    seconds = time.process_time() - began
    value, error = (np.stack([answer[name] for answer in answers]) for name in ("value", "standard_error"))
    return value, error, seconds


def sampled(model: PHVAE, n_rows: int) -> tuple[Array, Array, float]:
    """The same from rows."""
    part, parts = n_rows // PARTS, []
    kept = round(part * (1 - LEVEL))
    began = time.process_time()
    largest = np.zeros((0, COLUMNS))
    done = 0
    for block in model.sample_blocks(part * PARTS, random_state=1):
        # a part ends within a block: its rows beyond belong to the next
        while len(block):
            own, block = block[: part - done], block[part - done :]
            largest, done = np.concatenate([largest, own]), done + len(own)
            if len(largest) > 4 * kept + len(own) or done == part:
                largest = np.partition(largest, len(largest) - kept - 1, axis=0)[-kept - 1 :]
            if done == part:
                # the row that so many exceed, and the mean of these
                quantile = largest.min(0)
                parts.append([quantile, (largest.sum(0) - quantile) / kept])
                largest, done = np.zeros((0, COLUMNS)), 0
    seconds = time.process_time() - began
    values = np.array(parts)
    return values.mean(0), values.std(0, ddof=1) / PARTS**0.5, seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.risk", description=__doc__, parents=[committed.argument("risk-cpu.json")]
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = fitted()
    # the kernels are compiled or read on first use, which is no time of an answer
    exact(model)
    value, error, seconds = exact(model)
    rough, rough_error, rough_seconds = sampled(model, arguments.rows)
    lines = []
    print(f"{'':24s} {'integrated':>12s} {'error':>8s}   {f'{arguments.rows:,} rows':>18s} {'error':>8s}")
    for k, name in enumerate(("quantile", "shortfall")):
        for j in range(COLUMNS):
            line = {
                "measure": f"{LEVEL:.1%} {name}",
                "column": f"x{j}",
                "value": value[k, j],
                "relative error": error[k, j] / value[k, j],
                "value from rows": rough[k, j],
                "relative error of rows": rough_error[k, j] / rough[k, j],
            }
            lines.append({key: entry if isinstance(entry, str) else float(entry) for key, entry in line.items()})
            print(
                f"{line['measure']:>18s}, x{j:<3d} {value[k, j]:12.5g} {line['relative error']:8.2%} "
                f"{rough[k, j]:19.5g} {line['relative error of rows']:8.2%}"
            )
    longer = float(np.median(((rough_error / rough) / (error / value)) ** 2))
    ratios = {
        "integration / 10 million rows": seconds / rough_seconds * (arguments.rows / 10_000_000),
        "integration / rows to the same error": seconds / (rough_seconds * longer),
    }
    print(f"{seconds:.2f} s of CPU time beside {rough_seconds:.0f} s: {rough_seconds / seconds:,.0f} times faster")
    last = ratios["integration / rows to the same error"]
    print(
        f"rows to the same error would take {longer:,.0f} times as many: {1 / last:,.0f} times faster, "
        f"aim >= {1 / AIM:.0f}: {'met' if last <= AIM else 'MISSED'}"
    )
    machine = {"processor": platform.processor() or platform.machine(), "torch": torch.__version__, "threads": 1}
    times = {"seconds": seconds, "seconds of rows": rough_seconds, "rows": arguments.rows}
    committed.store({**machine, "ratios": ratios, **times, "answers": lines}, arguments.output)


if __name__ == "__main__":
    main()
