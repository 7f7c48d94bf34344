"""What one maximum likelihood fit costs: ``python -m benchmarks.fitting``.

A thousand lognormal values, one thread. The aim is five phases in two seconds of CPU time with a mean log-likelihood of
at least -1.1315, and ten phases with at least -1.1292. The first fit compiles the kernels and is not counted.
"""

import argparse
import platform
import time
from typing import Any, Literal

import numpy as np
import torch

from benchmarks import committed
from phvae.distributions.fitting import fit_series

Starts = Literal["nested", "geometric"]

# phases, where the search starts, least mean log-likelihood, most seconds
AIMS: tuple[tuple[int, Starts, float, float], ...] = (
    (5, "nested", -1.1315, 2.0),
    (10, "geometric", -1.1292, float("inf")),
    (10, "nested", -1.1292, float("inf")),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fitting", description=__doc__, parents=[committed.argument("fitting-cpu.json")]
    )
    output = parser.parse_args().output
    torch.set_num_threads(1)
    x = np.random.default_rng(0).lognormal(0, 0.8, 1000)
    fit_series(x, 2)
    rows: list[dict[str, Any]] = []
    for phases, starts, least, most in AIMS:
        began = time.process_time()
        fit = fit_series(x, phases, starts=starts)
        seconds = time.process_time() - began
        reached = fit.mean_log_likelihood >= least and fit.converged and seconds <= most
        rows.append(
            {
                "phases": phases,
                "starts": starts,
                "mean_log_likelihood": fit.mean_log_likelihood,
                "gradient_norm": fit.gradient_norm,
                "evaluations": fit.evaluations,
                "cpu_seconds": seconds,
                "reached": reached,
            }
        )
        print(
            f"{phases:3d} phases, {starts:9s}  {seconds:6.2f} s CPU  mean log-likelihood {fit.mean_log_likelihood:.6f}"
            f" (at least {least})  gradient norm {fit.gradient_norm:.0e}  {'reached' if reached else 'MISSED'}"
        )
    nested, geometric = (
        next(row["cpu_seconds"] for row in rows if row["phases"] == 10 and row["starts"] == starts)
        for starts in ("nested", "geometric")
    )
    committed.store(
        {
            "machine": platform.processor() or platform.machine(),
            "ratios": {"10 phases: nested / geometric starts": nested / geometric},
            "fits": rows,
        },
        output,
    )


if __name__ == "__main__":
    main()
