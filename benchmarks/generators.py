"""Whole generators of tables beside each other: what a fit costs, and how right its tails are.

    python -m benchmarks.generators

20,000 rows of five dependent columns from a Student copula with known margins. Every model sees the same rows and is
used as its authors ship it, with its own defaults; 200,000 generated rows are scored against the law. Peers that are
not installed are left out, and named: the flow needs ``pip install "phvae[flows]"``, SDV's synthesizers
``pip install sdv``. One seed: this shows costs, the tables of ``docs/results.md`` compare quality over seeds.
"""

import argparse
import importlib.util
import platform
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import committed
from phvae.baselines.baseline import Baseline
from phvae.baselines.decoder_families import GaussianVAE
from phvae.baselines.phase_type import PhaseTypeVAE
from phvae.datasets import PAPER_COPULA
from phvae.metrics import coexceedance_error, kendall_error, quantile_error, tail_distance

Array = np.ndarray
Sampler = Callable[[int], Array]
OURS = "PH-VAE"


def flow(x: Array) -> Sampler:
    from phvae.baselines.tail_flow import LogTailTransformFlow

    return fitted(LogTailTransformFlow())(x)


def fitted(model: Baseline) -> Callable[[Array], Sampler]:
    def fit(x: Array) -> Sampler:
        law = model.fit(x, seed=0)
        return lambda n: law.sample(n, seed=1)

    return fit


def sdv(name: str, **settings: Any) -> Callable[[Array], Sampler]:
    def fit(x: Array) -> Sampler:
        import pandas as pd
        from sdv import single_table
        from sdv.metadata import Metadata

        frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
        model = getattr(single_table, name)(Metadata.detect_from_dataframe(frame), **settings)
        model.fit(frame)
        return lambda n: model.sample(n).to_numpy(dtype=np.float64)

    return fit


# name, the package it needs, and how it is fitted
GENERATORS: tuple[tuple[str, str, Callable[[Array], Sampler]], ...] = (
    (OURS, "phvae", fitted(PhaseTypeVAE())),
    ("Gaussian VAE, same networks and budget", "phvae", fitted(GaussianVAE())),
    ("tail-transform flow of the logarithms", "zuko", flow),
    ("SDV GaussianCopula", "sdv", sdv("GaussianCopulaSynthesizer")),
    ("SDV CTGAN, 100 epochs", "sdv", sdv("CTGANSynthesizer", epochs=100)),
    ("SDV TVAE, 100 epochs", "sdv", sdv("TVAESynthesizer", epochs=100)),
)


def scores(x: Array, generated: Array) -> dict[str, float]:
    """Mean tail errors of the columns, and errors of the dependence against the training rows."""
    margins = list(zip(PAPER_COPULA.margins, generated.T, strict=True))
    return {
        "KS_tail": float(np.mean([tail_distance(law, column) for law, column in margins])),
        "Q99 error": float(np.mean([quantile_error(law, column) for law, column in margins])),
        "Kendall error": kendall_error(x, generated),
        "co-exceedance error": coexceedance_error(x, generated),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.generators", description=__doc__, parents=[committed.argument("generators-cpu.json")]
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--generated", type=int, default=200_000)
    arguments = parser.parse_args()
    x = PAPER_COPULA.sample(arguments.rows, 0)
    found: list[dict[str, Any]] = []
    for name, package, fit in GENERATORS:
        if importlib.util.find_spec(package) is None:
            print(f"{name:42s} left out: {package} is not installed", flush=True)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other packages' advice is not ours to give
            began = time.perf_counter()
            sample = fit(x)
            trained = time.perf_counter() - began
            generated = sample(arguments.generated)
            drawn = time.perf_counter() - began - trained
        row = {"model": name, "fit, seconds": trained, "sampling, rows a second": len(generated) / drawn}
        found.append(row | scores(x, generated))
        text = ", ".join(f"{measure} {value:.2g}" for measure, value in list(found[-1].items())[3:])
        print(f"{name:42s} fit {trained:7.1f} s, {row['sampling, rows a second']:10,.0f} rows/s: {text}", flush=True)
    ours = found[0]["fit, seconds"]
    machine = {"processor": platform.processor() or platform.machine(), "rows": arguments.rows}
    ratios = {f"fit: {OURS} / {row['model']}": ours / row["fit, seconds"] for row in found[1:]}
    committed.store({**machine, "ratios": ratios, "models": found}, arguments.output)


if __name__ == "__main__":
    main()
