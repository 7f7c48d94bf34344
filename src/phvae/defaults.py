"""Every default of the package, once. Nothing heavy is imported, so the command line can read it and still start fast.

``"auto"`` stands for a value that depends on the size of the data; `for_size` says which.
"""

from typing import Any, Literal

N_PHASES: None = None  # `phases_for_size` chooses
DECODER_PHASES = 10  # of a decoder on its own, and of small tables
MOST_PHASES = 64  # up to which the likelihood is tested
SMALL_TABLE = 5000  # rows from which on a table can tell more phases apart
PHASE_CHOICES = (5, 10, 20)  # what n_phases="auto" compares by held-out likelihood
LATENT_DIM: Literal["auto"] = "auto"
HIDDEN = (64, 64)
PRIOR: Literal["auto"] = "auto"
START = "fitted"
ORIGIN: Literal["auto"] = "auto"
SMOOTHNESS: Literal["auto"] = "auto"

BETA = 1.0
EPOCHS: Literal["auto"] = "auto"
BATCH_SIZE: Literal["auto"] = "auto"
LEARNING_RATE: Literal["auto"] = "auto"
WEIGHT_DECAY = 1e-4
CLIP_NORM = 5.0
SCHEDULE = "cosine"
KL_WARMUP: Literal["auto"] = "auto"
VALIDATION_FRACTION: Literal["auto"] = "auto"
PATIENCE: Literal["auto"] = "auto"
CHECKPOINT_SECONDS = 30.0

N_COMPONENTS = 32  # of the mixture prior
STRENGTH = 10.0  # smoothness times rows, where no fit of the columns says better
N_IMPORTANCE = 64
DEVICE = "auto"

# The configuration of the paper: ten phases, every column from zero, a standard normal prior, no penalty across phases,
# thirteen epochs of Adam with the rate cut tenfold every ten. The paper leaves the sizes of network, batch and step
# open; those here are the customary ones for a model of its size.
PAPER: dict[str, Any] = {
    "n_phases": 10,
    "latent_dim": 2,
    "hidden": (64, 64),
    "prior": "normal",
    "start": "geometric",
    "origin": 0.0,
    "smoothness": 0.0,
    "beta": 1.0,
    "epochs": 13,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "weight_decay": 1e-5,
    "clip_norm": 5.0,
    "schedule": "step",
    "kl_warmup": 0.0,
    "validation_fraction": 0.0,
}


def for_size(
    n_rows: int, n_columns: int, *, latent_dim: int | None = None, epochs: int | None = None, start: str = START
) -> dict[str, Any]:
    """What ``"auto"`` means for a table of ``n_rows`` and ``n_columns``.

    The work is counted in steps: few for a handful of rows, six thousand from 200 rows on, then growing slowly, and
    never less than one epoch. The divergence warms up over a fifth of the run, without which the latent variable is
    given up before it is used; patience is longer than that. One column needs no latent variable: its law is a single
    phase-type law, and a fitted start is its maximum likelihood already, so there is nothing to train.

    Args:
        n_rows: Rows of the table.
        n_columns: Columns of the table.
        latent_dim: Length of the latent vector, if it is given.
        epochs: Passes over the rows, if they are given.
        start: Start of the columns, ``"fitted"`` or ``"geometric"``.

    >>> [for_size(n, 5)["epochs"] for n in (100, 10_000, 10_000_000)], for_size(10_000, 1)["epochs"]
    ([500, 78, 5], 0)
    """
    if latent_dim is None:
        latent_dim = 0 if n_columns == 1 else min(2 * n_columns, 16)
    trained = latent_dim > 0 or start != "fitted"
    batch_size = _power_of_two(n_rows / 64, at_least=32, at_most=4096)
    if epochs is None:
        steps = min(n_rows**2 / 5, 6000 + 2 * n_rows**0.5)
        epochs = max(1, round(steps / -(-n_rows // batch_size))) if trained else 0
    return {
        "n_phases": "auto",
        "smoothness": "auto",
        "latent_dim": latent_dim,
        "prior": "mixture" if latent_dim and n_rows >= 1000 else "normal",
        "batch_size": batch_size,
        "epochs": epochs,
        "learning_rate": 2e-3,
        "kl_warmup": epochs / 5,
        "validation_fraction": 0.1 if trained and n_rows >= 1000 else 0.0,
        "patience": max(20, epochs // 3),
    }


def phases_for_size(n_rows: int, n_columns: int) -> int:
    """Phases per column where none are asked for.

    More phases make a column sharper given the latent variable, which strong dependence needs, and cost little in one
    column, where the fitted start keeps them smooth; a small table cannot tell them apart.

    >>> phases_for_size(500, 3), phases_for_size(10_000, 1), phases_for_size(10_000, 3)
    (10, 14, 20)
    """
    if n_rows < SMALL_TABLE:
        return DECODER_PHASES
    return 14 if n_columns == 1 else 20


def _power_of_two(target: float, *, at_least: int, at_most: int) -> int:
    size = at_least
    while size * 2 <= min(target, at_most):
        size *= 2
    return size
