"""An epoch of training on a CUDA device, beside a Gaussian VAE of the same width in the same loop; and sampling.

    make bench-gpu

Both sides of a ratio run through `phvae.training.train`: same rows, batch, optimiser and networks, no held-out rows. An
epoch is timed by the wall from one record to the next, order of the rows and reading of the numbers included; the
median of all epochs but the first two, in which kernels are compiled and graphs captured. Runs from the source tree
with the torch and triton of the machine; writes a JSON file beside the printed table.
"""

import argparse
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.training import HIDDEN, LATENT, MatrixExponentialDecoder, model
from phvae.decoders import Decoder, GaussianDecoder, PhaseTypeDecoder
from phvae.training import train
from phvae.vae import VAE

# name, rows, columns, rows of a batch, epochs to time
SIZES = (
    ("10,000 x 1, batch 256", 10_000, 1, 256, 20),
    ("1,000,000 x 5, batch 4,096", 1_000_000, 5, 4096, 4),
    ("1,000,000 x 100, batch 4,096", 1_000_000, 100, 4096, 2),
)
NOT_TIMED = 2


class Uncaptured(VAE):
    """The same model, each kernel launched by the host."""

    @property
    def capturable(self) -> bool:
        return False


def rows(n_rows: int, n_columns: int) -> Tensor:
    """Pareto columns with a common factor, from zero, median about one; float64 on the device."""
    generator = torch.Generator("cuda").manual_seed(0)
    uniform = torch.rand((n_rows, n_columns + 1), dtype=torch.float64, generator=generator, device="cuda")
    excess = (1 - uniform) ** (-1 / 2.4) - 1
    return excess[:, :-1] / 0.33 + excess[:, -1:]


def on_device(x: Tensor, decoder: type[Decoder], *, captured: bool = True) -> VAE:
    fresh = model(x[:10_000].cpu(), decoder, 10)
    if not captured:
        fresh = Uncaptured(fresh.encoder, fresh.decoder, fresh.prior)
    return fresh.to("cuda")


def epoch_seconds(trained: VAE, x: Tensor, batch_size: int, epochs: int) -> float:
    """Median time of an epoch by the wall."""
    ends = [time.perf_counter()]
    train(
        trained,
        x,
        epochs=NOT_TIMED + epochs,
        batch_size=batch_size,
        progress=False,
        callback=lambda record: ends.append(time.perf_counter()),
    )
    return statistics.median(after - before for before, after in pairwise(ends[NOT_TIMED:]))


def epochs_of(name: str, n_rows: int, n_columns: int, batch_size: int, epochs: int) -> dict[str, Any]:
    x = rows(n_rows, n_columns)
    sides = {
        "PH-VAE": on_device(x, PhaseTypeDecoder),
        "Gaussian VAE": on_device(x, GaussianDecoder),
        "PH-VAE, not captured": on_device(x, PhaseTypeDecoder, captured=False),
        "Gaussian VAE, not captured": on_device(x, GaussianDecoder, captured=False),
    }
    if n_columns == 1:
        sides["PH-VAE on matrix_exp, not captured"] = on_device(x, MatrixExponentialDecoder, captured=False)
    taken = {side: epoch_seconds(trained, x, batch_size, epochs) for side, trained in sides.items()}
    ratio = taken["PH-VAE"] / taken["Gaussian VAE"]
    print(f"{name}: PH-VAE / Gaussian VAE {ratio:.3f}")
    for side, seconds in taken.items():
        print(f"  {side:36s} {1e3 * seconds:10.2f} ms an epoch, {n_rows / seconds:12,.0f} rows/s", flush=True)
    # the same law on rows as it was trained for: the share of rows for squaring grows in training
    return {
        "name": name, "rows": n_rows, "columns": n_columns, "batch": batch_size,
        "milliseconds an epoch": {side: 1e3 * seconds for side, seconds in taken.items()},
        "PH-VAE / Gaussian VAE": ratio,
    }  # fmt: skip


def sampling(n_columns: int, n_rows: int, repeats: int = 9) -> dict[str, Any]:
    """Values drawn per second: latent point, networks, entry phase and times, in the user's units."""
    x = rows(10_000, n_columns)
    trained = on_device(x, PhaseTypeDecoder)
    generator = torch.Generator("cuda").manual_seed(0)
    times = []
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        trained.generate(n_rows, generator=generator)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    rate = n_rows * n_columns / statistics.median(times[2:])
    print(f"sampling {n_rows:,} x {n_columns}: {rate:.3g} values/s", flush=True)
    return {"rows": n_rows, "columns": n_columns, "values per second": rate}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_gpu", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/training-gpu.json"))
    output = parser.parse_args().output
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.training_gpu: no CUDA device here; run it on a machine that has one")
    versions = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    print(versions, f"networks {HIDDEN}, latent {LATENT}, 10 phases", flush=True)
    report: dict[str, Any] = {**versions, "hidden": HIDDEN, "latent": LATENT, "phases": 10, "epochs": []}
    output.parent.mkdir(parents=True, exist_ok=True)
    for size in SIZES:
        report["epochs"].append(epochs_of(*size))
        torch.cuda.empty_cache()
        output.write_text(json.dumps(report, indent=1) + "\n")
    report["sampling"] = [sampling(1, 2_000_000), sampling(5, 1_000_000), sampling(100, 50_000)]
    output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
