"""A small training run, also as a process of its own for tests that kill it.

``python training_run.py CHECKPOINT WEIGHTS EPOCHS`` goes on from the checkpoint where there is one.
"""

import os
import sys

import torch
from safetensors.torch import save_file

from phvae import modelfile
from phvae.decoders import PhaseTypeDecoder
from phvae.priors import MixturePrior
from phvae.training import train
from phvae.vae import VAE, GaussianEncoder

UNITS = {"origin": [0.0, 1.0], "scale": [1.0, 0.5]}


def rows(n, seed):
    uniform = torch.rand((n, 2), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.tensor([0.0, 1.0]) + uniform**-0.4


def model():
    generator = torch.Generator().manual_seed(0)
    encoder = GaussianEncoder(2, 2, hidden=(16,), generator=generator, **UNITS)
    decoder = PhaseTypeDecoder(2, n_phases=3, hidden=(16,), generator=generator, **UNITS)
    return VAE(encoder, decoder, MixturePrior(2, 3, generator=generator))


def weights_of(trained):
    return {name: value.clone() for name, value in trained.state_dict().items()}


def same(left, right):
    """Whether two sets of weights agree in every bit."""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


class PowerCut(BaseException):
    """What no part of the package can have prepared for."""


def stop_at_checkpoint(monkeypatch, number, x, **options):
    """Train until the checkpoint with this number is written, and not one statement further."""
    save, count = modelfile.write, 0

    def write(*arguments):
        nonlocal count
        save(*arguments)
        count += 1
        if count == number:
            raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(modelfile, "write", write)
        try:
            train(model(), x, checkpoint_seconds=0.0, **options)
        except PowerCut:
            return
    raise AssertionError(f"the run ended after {count} checkpoints")


def run(checkpoint, weights, epochs, *, resume):
    """Train to the end, writing a checkpoint after every step, and then the weights."""
    torch.set_num_threads(1)
    trained = model()
    train(
        trained,
        rows(300, 1),
        epochs=epochs,
        batch_size=32,
        validation=rows(100, 2),
        patience=epochs,
        kl_warmup=2.0,
        smoothness=1e-3,
        seed=5,
        checkpoint=checkpoint,
        checkpoint_seconds=0.0,
        resume=checkpoint if resume else None,
    )
    save_file(weights_of(trained), weights)


if __name__ == "__main__":
    place, result, epochs = sys.argv[1:]
    run(place, result, int(epochs), resume=os.path.exists(place))
