"""What an epoch of training costs, beside the models people use instead: ``python -m benchmarks.training``.

Both sides of a ratio run in this process through `phvae.training.train`: same rows, batch, optimiser, networks and
threads, no held-out rows. The sides take turns; a side's time is the median epoch of its best turn, the first epoch of
a turn not counted. Ratios travel between machines, seconds do not.
"""

import argparse
import platform
import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks import committed
from phvae.decoders import Decoder, GaussianDecoder, PhaseTypeDecoder
from phvae.distributions import SeriesPhaseType
from phvae.distributions.located import Located
from phvae.priors import StandardNormal
from phvae.training import train
from phvae.vae import VAE, GaussianEncoder

EPOCHS, TURNS = 7, 3
LATENT, HIDDEN = 2, (64, 64)


class Ratio(NamedTuple):
    """One comparison: seconds of an epoch on both sides, and what their ratio should be at most."""

    name: str
    seconds: float
    other_seconds: float
    aim: float

    @property
    def value(self) -> float:
        return self.seconds / self.other_seconds


class MatrixExponential(SeriesPhaseType):
    """The same law with its density as the textbook has it: a dense matrix exponential and autograd."""

    def _log_density(self, x: Tensor) -> Tensor:
        generator = torch.diag_embed(-self.rates) + torch.diag_embed(self.rates[..., :-1], offset=1)
        flow = torch.linalg.matrix_exp(generator * x[..., None, None])
        return ((self.initial[..., None, :] @ flow)[..., 0, -1] * self.rates[..., -1]).log()


class MatrixExponentialDecoder(PhaseTypeDecoder):
    """`PhaseTypeDecoder` with the textbook density."""

    def _columns(self, outputs: Tensor, origin: Tensor, scale: Tensor) -> Located:
        law = super()._columns(outputs, origin, scale).base
        assert isinstance(law, SeriesPhaseType)
        return Located(MatrixExponential._build(law.initial, law.rates, False), origin, validate_args=False)


def rows(n_rows: int, n_columns: int) -> Tensor:
    """Pareto columns with a common factor, from zero, median about one."""
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand((n_rows, n_columns + 1), dtype=torch.float64, generator=generator)
    excess = uniform ** (-1 / 2.4) - 1
    return excess[:, :-1] / 0.33 + excess[:, -1:]


def start(x: Tensor, n_phases: int) -> tuple[Tensor, Tensor]:
    """Equal start probabilities on rates spread geometrically, as `phvae.preprocessing.geometric_start` has them."""
    ends = zip((3 / x.amax(0)).log().tolist(), (20 / x.quantile(0.5, 0)).log().tolist(), strict=True)
    rates = torch.stack([torch.linspace(slow, fast, n_phases, dtype=torch.float64).exp() for slow, fast in ends])
    return torch.full_like(rates, 1 / n_phases), rates


def model(x: Tensor, decoder: type[Decoder], n_phases: int) -> VAE:
    generator = torch.Generator().manual_seed(0)
    units = {"origin": torch.zeros(x.shape[1]), "scale": torch.ones(x.shape[1])}
    encoder = GaussianEncoder(x.shape[1], LATENT, hidden=HIDDEN, generator=generator, **units)
    encoder.standardise(x)
    options = {"n_phases": n_phases} if issubclass(decoder, PhaseTypeDecoder) else {}
    decode = decoder(LATENT, hidden=HIDDEN, generator=generator, **units, **options)
    if isinstance(decode, PhaseTypeDecoder):
        decode.set_start(*start(x, n_phases))
    return VAE(encoder, decode, StandardNormal(LATENT))


def side(
    n_rows: int,
    n_columns: int = 1,
    decoder: type[Decoder] = PhaseTypeDecoder,
    *,
    n_phases: int = 10,
    batch_size: int = 256,
    smoothness: float = 0.0,
) -> Callable[[], float]:
    """One side of a ratio: trains a fresh model and returns the median time of an epoch."""
    x = rows(n_rows, n_columns)

    def turn() -> float:
        fresh = model(x, decoder, n_phases)
        history = train(fresh, x, epochs=EPOCHS + 1, batch_size=batch_size, smoothness=smoothness, progress=False)
        return statistics.median(record.seconds for record in history.records[1:])

    return turn


def compare(name: str, one: Callable[[], float], other: Callable[[], float], aim: float) -> Ratio:
    times = [(one(), other()) for _ in range(TURNS)]
    ratio = Ratio(name, min(a for a, _ in times), min(b for _, b in times), aim)
    verdict = "met" if ratio.value <= aim else "MISSED"
    print(f"{name:58s} {1e3 * ratio.seconds:8.1f} ms  {1e3 * ratio.other_seconds:8.1f} ms  "
          f"{ratio.value:6.3f}  aim <= {aim:g}  {verdict}", flush=True)  # fmt: skip
    return ratio


def comparisons() -> list[Ratio]:
    """Every comparison, printed as it is made."""
    print(f"{'an epoch of training':58s} {'this':>11s}  {'other':>11s}  {'ratio':>6s}")
    gaussian = GaussianDecoder
    return [
        compare("10,000 x 1: PH-VAE / Gaussian VAE", side(10_000), side(10_000, 1, gaussian), 1.3),
        compare(
            "10,000 x 1: PH-VAE with roughness penalty / Gaussian VAE",
            side(10_000, smoothness=1e-3),
            side(10_000, 1, gaussian),
            1.6,
        ),
        compare(
            "10,000 x 1: PH-VAE / same with matrix_exp", side(10_000), side(10_000, 1, MatrixExponentialDecoder), 0.1
        ),
        compare("80,000 x 5: PH-VAE / Gaussian VAE", side(80_000, 5), side(80_000, 5, gaussian), 2.0),
        compare(
            "80,000 x 5, batch 1024: PH-VAE / Gaussian VAE",
            side(80_000, 5, batch_size=1024),
            side(80_000, 5, gaussian, batch_size=1024),
            2.0,
        ),
        compare("10,000 x 1: 32 phases / 2 phases", side(10_000, n_phases=32), side(10_000, n_phases=2), 1.6),
        compare("40,000 rows / 10,000 rows", side(40_000), side(10_000), 4.4),
        compare("8 columns / 2 columns", side(10_000, 8), side(10_000, 2), 4.0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__, parents=[committed.argument("training-cpu.json")]
    )
    output = parser.parse_args().output
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {threads} threads, {platform.processor() or platform.machine()}")
    results = comparisons()
    lines = [ratio._asdict() | {"ratio": ratio.value} for ratio in results]
    ratios = {ratio.name: ratio.value for ratio in results}
    committed.store({"torch": torch.__version__, "threads": threads, "ratios": ratios, "epochs": lines}, output)


if __name__ == "__main__":
    main()
