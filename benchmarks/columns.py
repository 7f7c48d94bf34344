"""What an epoch of training costs as columns grow, with a full and with a low-rank head: ``-m benchmarks.columns``.

Both heads train the same model on the same rows through `phvae.training.train`. They take turns; a side's time is the
shortest epoch of its turns in seconds of one processor, the first epoch of a turn not counted. What a step of the head
itself takes, there and back, is measured beside it. Ratios travel between machines, seconds do not.
"""

import argparse
import platform
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.committed import argument, store
from benchmarks.training import rows, start
from phvae import defaults
from phvae.decoders import PhaseTypeDecoder
from phvae.priors import StandardNormal
from phvae.training import train
from phvae.vae import VAE, GaussianEncoder

COLUMNS = (8, 64, 256, 784)
N_ROWS, BATCH_SIZE, N_PHASES, LATENT, HIDDEN = 512, 256, 20, 16, (128, 128)
EPOCHS, TURNS = 3, 3


def model(x: Tensor, head_rank: int) -> VAE:
    """A model of the columns of ``x``, at the same start laws whatever the rank."""
    generator = torch.Generator().manual_seed(0)
    units = {"origin": torch.zeros(x.shape[1]), "scale": torch.ones(x.shape[1])}
    encoder = GaussianEncoder(x.shape[1], LATENT, hidden=HIDDEN, generator=generator, **units)
    encoder.standardise(x)
    decoder = PhaseTypeDecoder(
        LATENT, n_phases=N_PHASES, hidden=HIDDEN, head_rank=head_rank, generator=generator, **units
    )
    decoder.set_start(*start(x, N_PHASES))
    return VAE(encoder, decoder, StandardNormal(LATENT))


def multiplications(decoder: PhaseTypeDecoder) -> int:
    """Multiplications of the head for one row."""
    head = decoder.network.head
    inputs, outputs = head.weight.shape[1], decoder.n_columns * decoder.width
    if isinstance(head, nn.Linear):
        return inputs * outputs
    return head.rank * (inputs * head.groups + outputs)


def epoch(x: Tensor, head_rank: int) -> float:
    """Seconds of the shortest epoch of a turn."""
    ends: list[float] = []
    train(
        model(x, head_rank),
        x,
        epochs=EPOCHS + 1,
        batch_size=BATCH_SIZE,
        progress=False,
        callback=lambda record: ends.append(time.process_time()),
    )
    return min(end - begin for begin, end in pairwise(ends))


def head_alone(decoder: PhaseTypeDecoder) -> float:
    """Seconds that the head takes in an epoch, there and back."""
    head = decoder.network.head
    hidden = torch.randn((BATCH_SIZE, HIDDEN[-1]), generator=torch.Generator().manual_seed(0)).requires_grad_()
    slopes = torch.randn_like(head(hidden))
    times = []
    for _ in range(EPOCHS * TURNS):
        hidden.grad = None
        head.zero_grad()
        began = time.process_time()
        head(hidden).backward(slopes)
        times.append(time.process_time() - began)
    return min(times) * N_ROWS / BATCH_SIZE


def measured() -> Iterator[dict[str, Any]]:
    """One entry for every number of columns, printed as it is made."""
    rank = defaults.MANY_COLUMNS_RANK
    names = ("columns", "full", "its head", f"rank {rank}", "its head", "full/rank", "weights", f"rank {rank}")
    print("  ".join(f"{name:>10s}" for name in names))
    for n_columns in COLUMNS:
        x = rows(N_ROWS, n_columns)
        turns = [(epoch(x, 0), epoch(x, rank)) for _ in range(TURNS)]
        full, low = (min(times) for times in zip(*turns, strict=True))
        decoders = [model(x, each).decoder for each in (0, rank)]
        alone = [head_alone(decoder) for decoder in decoders]
        weights = [sum(value.numel() for value in decoder.network.head.parameters()) for decoder in decoders]
        print(f"{n_columns:10d}  {full:8.3f} s  {alone[0]:8.3f} s  {low:8.3f} s  {alone[1]:8.3f} s  "
              f"{full / low:10.2f}  {weights[0]:10,d}  {weights[1]:10,d}", flush=True)  # fmt: skip
        yield {
            "columns": n_columns,
            "full_seconds": full,
            "full_head_seconds": alone[0],
            "low_rank_seconds": low,
            "low_rank_head_seconds": alone[1],
            "full_over_low_rank": full / low,
            "weights_of_the_heads": weights,
            "multiplications_per_row_of_the_heads": [multiplications(decoder) for decoder in decoders],
        }


def main() -> None:
    output = argparse.ArgumentParser(description=__doc__, parents=[argument("columns-cpu.json")]).parse_args().output
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {platform.processor() or platform.machine()}")
    results = list(measured())
    ratios = {f"{entry['columns']} columns: rank / full": 1 / entry["full_over_low_rank"] for entry in results}
    least, most = results[1], results[-1]
    growth = most["low_rank_seconds"] / least["low_rank_seconds"] / (most["columns"] / least["columns"])
    ratios |= {"784 columns / 64 columns, per column": growth}
    setting = {
        "rows": N_ROWS,
        "batch_size": BATCH_SIZE,
        "n_phases": N_PHASES,
        "latent_dim": LATENT,
        "hidden": HIDDEN,
        "rank": defaults.MANY_COLUMNS_RANK,
    }
    store({"torch": torch.__version__, "threads": 1, **setting, "ratios": ratios, "results": results}, output)


if __name__ == "__main__":
    main()
