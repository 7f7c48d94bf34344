"""Images as tables of pixels: the figures of ``howto/images.md``, and its picture. ``python docs/images.py``.

The 8 x 8 images of handwritten digits that scikit-learn brings are rows of 64 columns. A pixel is a whole number from 0
to 16; one that is not 0 is moved down by a uniform number below 1, so that it is continuous, and one that is 0 stays
an exact zero. Pixels that are 0 in nearly all images are left out of the table and drawn as 0.

Every model sees the same images, has the same widths and the same probability of an exact zero given z, and is trained
by the same loop; three quarters of the images are there to learn from, the rest to judge. The rank of the head is the
one with the highest likelihood of a fifth of the images to learn from, by models of the other four: the images to judge
by have no part in it.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from phvae import PHVAE, defaults
from phvae.assembly import split
from phvae.decoders import GaussianDecoder
from phvae.metrics import classifier_test
from phvae.priors import MixturePrior, even_offsets
from phvae.training import train
from phvae.vae import VAE, GaussianEncoder

HERE = Path(__file__).parent
SHARE, FEWEST = 0.75, 20
SETTINGS: dict[str, Any] = {"latent_dim": 16, "hidden": (128, 128), "epochs": 80, "origin": 0.0, "random_state": 0}
PHASES, RANKS = 10, (2, 4, 8)
# Share of the images to learn from that the rank is chosen by.
CHOOSING = 0.2
DRAWN, ACROSS, DOWN = 1000, 10, 6

Array = NDArray[np.float64]


class Digits(NamedTuple):
    """Pixels of the images to learn from and of those held out, and which of the 64 they are."""

    known: Array
    held_out: Array
    pixels: NDArray[np.int64]

    def images(self, rows: Array) -> Array:
        """Rows as images, shape ``(n, 8, 8)``."""
        images = np.zeros((len(rows), 64))
        images[:, self.pixels] = whole(rows)
        return images.reshape(-1, 8, 8)


def digits() -> Digits:
    """The images as tables of continuous pixels with exact zeros."""
    rng = np.random.default_rng(0)
    pixels = load_digits().data[rng.permutation(1797)]
    moved = np.where(pixels > 0, pixels - rng.uniform(size=pixels.shape), 0.0)
    known = round(SHARE * len(moved))
    used = np.flatnonzero((moved[:known] > 0).sum(0) >= FEWEST)
    return Digits(moved[:known, used], moved[known:, used], used)


def whole(rows: Array) -> Array:
    """Pixels as the data have them: whole numbers from 0 to 16."""
    return np.clip(np.ceil(rows), 0.0, 16.0)


class GaussianImages:
    """The same model with a Gaussian law per pixel: encoder, prior, sizes, budget and held-out rows are those of PHVAE.

    Its law of a pixel is 0 with a probability and normal otherwise, so that likelihoods compare with those of `PHVAE`.
    """

    def fit(self, x: Array) -> "GaussianImages":
        """Train on rows of pixels."""
        torch.set_num_threads(1)
        n, width = x.shape
        sizes = defaults.for_size(n, width, latent_dim=SETTINGS["latent_dim"], epochs=SETTINGS["epochs"])
        positive = [column[column > 0] for column in x.T]
        generator = torch.Generator().manual_seed(0)
        units = {"origin": np.zeros(width), "scale": np.array([np.median(column) for column in positive])}
        common = {**units, "hidden": SETTINGS["hidden"], "generator": generator}
        encoder = GaussianEncoder(width, SETTINGS["latent_dim"], **common)
        decoder = GaussianDecoder(SETTINGS["latent_dim"], zero_share=(x == 0).mean(0), **common)
        decoder.set_start(
            [column.mean() / scale for column, scale in zip(positive, units["scale"], strict=True)],
            [column.std() / scale for column, scale in zip(positive, units["scale"], strict=True)],
        )
        prior = MixturePrior(SETTINGS["latent_dim"], defaults.N_COMPONENTS, generator=generator)
        rows, held_out = (torch.from_numpy(x[part]) for part in split(n, sizes["validation_fraction"], 0))
        encoder.standardise(rows)
        self.vae = VAE(encoder, decoder, prior)
        names = ("epochs", "batch_size", "learning_rate", "kl_warmup", "patience")
        budget = {name: sizes[name] for name in names}
        train(self.vae, rows, validation=held_out, progress=False, **budget)
        return self

    def score(self, x: Array) -> float:
        """Mean log-likelihood per image, as `PHVAE.score` has it."""
        noise = even_offsets(defaults.N_IMPORTANCE, SETTINGS["latent_dim"])
        exact, rows = self.vae.double(), torch.from_numpy(x)
        with torch.no_grad():
            posterior = exact.posterior(rows)
            z = posterior.mean + posterior.stddev * noise
            log_ratio = exact.prior.log_prob(z) - posterior.log_prob(z).sum(-1)
            log_means = torch.logsumexp(exact.decoder(z).log_prob(rows) + log_ratio, 0) - np.log(len(noise))
        return float(log_means.mean())

    def sample(self, n: int, random_state: int) -> Array:
        """New rows of pixels."""
        generator = torch.Generator().manual_seed(random_state)
        return np.asarray(self.vae.double().generate(n, generator=generator).numpy())


def phase_types(rank: int) -> PHVAE:
    """The model with a head of this rank; 0 for the full one."""
    return PHVAE(**SETTINGS, n_phases=PHASES, head_rank=rank)


def best_rank(known: Array) -> int:
    """The rank that is best on images held out of those to learn from."""
    learnt, held_out = split(len(known), CHOOSING, 1)
    scores = {rank: phase_types(rank).fit(known[learnt]).score(known[held_out]) for rank in RANKS}
    print(json.dumps({"held_out_of_those_to_learn_from": scores}), flush=True)
    return max(RANKS, key=scores.__getitem__)


def judged(name: str, model: Any, data: Digits, seconds: float, weights: int) -> dict[str, Any]:
    """What is said of a model."""
    real, drawn = whole(data.held_out), whole(model.sample(len(data.held_out), random_state=1))
    test = classifier_test(real, drawn)
    # a pixel that is 0 in all held-out images is correlated with nothing
    seen = (real > 0).sum(0) > 1
    correlation = np.corrcoef(real[:, seen].T) - np.corrcoef(drawn[:, seen].T)
    found = {
        "model": name,
        "held_out_nats_per_image": model.score(data.held_out),
        "classifier_auc": test.auc,
        "classifier_error": test.standard_error,
        "mean_error_of_a_correlation": float(np.nanmean(np.abs(correlation))),
        "error_of_the_share_of_zeros": float(np.abs((real == 0).mean(0) - (drawn == 0).mean(0)).mean()),
        "weights_of_the_decoder": weights,
        "seconds": seconds,
    }
    print(json.dumps(found), flush=True)
    return found


def picture(parts: dict[str, Array]) -> Figure:
    """Blocks of images side by side."""
    figure = Figure(figsize=(3.1 * len(parts), 2.25), layout="constrained")
    for place, (name, images) in enumerate(parts.items()):
        axes = figure.add_subplot(1, len(parts), place + 1)
        tiles = images[: ACROSS * DOWN].reshape(DOWN, ACROSS, 8, 8)
        sheet = np.full((DOWN * 9 - 1, ACROSS * 9 - 1), np.nan)
        for row in range(DOWN):
            for column in range(ACROSS):
                sheet[row * 9 : row * 9 + 8, column * 9 : column * 9 + 8] = tiles[row, column]
        colours = mpl.colormaps["gray_r"].with_extremes(bad="#d8dde3")
        axes.imshow(sheet, cmap=colours, vmin=0, vmax=16, interpolation="nearest")
        axes.set_title(name, fontsize=10, loc="left")
        axes.set_axis_off()
    return figure


def main() -> None:
    """Fit, judge and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=HERE / "figures" / "digits.png", help="Where to draw")
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    given = parser.parse_args()
    data = digits()
    results: list[dict[str, Any]] = []
    began = time.process_time()
    gaussian = GaussianImages().fit(data.known)
    seconds = time.process_time() - began
    weights = sum(value.numel() for value in gaussian.vae.decoder.parameters())
    results.append(judged("Gaussian, full head", gaussian, data, seconds, weights))
    # the last one is drawn
    for rank in (0, best_rank(data.known)):
        began = time.process_time()
        model = phase_types(rank).fit(data.known)
        seconds = time.process_time() - began
        weights = sum(value.numel() for value in model.vae_.decoder.parameters())
        name = f"{PHASES} phases, {f'rank {rank}' if rank else 'full head'}"
        results.append(judged(name, model, data, seconds, weights))
    parts = {
        "real, not learned from": data.images(data.held_out),
        f"PHVAE, {name}": data.images(model.sample(DRAWN, random_state=2)),
        "Gaussian VAE": data.images(gaussian.sample(DRAWN, random_state=2)),
    }
    given.picture.parent.mkdir(parents=True, exist_ok=True)
    picture(parts).savefig(given.picture, dpi=160, facecolor="white")
    if given.output is not None:
        given.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
