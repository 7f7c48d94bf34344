"""Every default of the package, once. Nothing heavy is imported, so the command line can read it and still start fast.

``"auto"`` stands for a value that depends on the size of the data; `for_size` says which.
"""

from typing import Any, Literal, NamedTuple

N_PHASES: None = None  # `phases_for_size` chooses
DECODER_PHASES = 10  # of a decoder on its own, and of small tables
MOST_PHASES = 64  # up to which the likelihood is tested
SMALL_TABLE = 5000  # rows from which on a table can tell more phases apart
PHASE_CHOICES = (5, 10, 20)  # what n_phases="auto" compares by held-out likelihood
LATENT_DIM: Literal["auto"] = "auto"
HIDDEN = (64, 64)
HEAD_RANK: Literal["auto"] = "auto"
PRIOR: Literal["auto"] = "auto"
START = "fitted"
TAIL = "exponential"
ORIGIN: Literal["auto"] = "auto"
SUPPORT = "non-negative"
MISSING = "error"
COUNTS: Literal["auto"] = "auto"
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

MANY_COLUMNS = 100  # beyond so many, what grows with columns is bounded: weights per column, laws held at once
MANY_COLUMNS_RANK = 4  # of the head of a decoder with many columns

REPORT_LEVELS = (0.9, 0.95, 0.99, 0.995, 0.999, 0.9999)
REPORT_PERIODS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)  # return periods
REPORT_RTOL = 1e-2  # below what a few thousand rows leave open, and fast


class Setting(NamedTuple):
    """A setting of the estimator as the command line offers it.

    `form` says how its text is read: ``"value"`` (a number if it is one), ``"widths"``, ``"origin"`` or ``"seed"``.
    """

    name: str
    default: Any
    form: str
    help: str


# What `phvae.PHVAE` takes and `phvae fit` offers, in this order and in these words; tests hold them to it.
SETTINGS = (
    Setting(
        "n_phases",
        N_PHASES,
        "value",
        "Phases per column. None takes 14 for one column and 20 for several, or 10 below 5,000 rows, and what an "
        "information criterion says for other tails; 'auto' compares several by held-out likelihood.",
    ),
    Setting(
        "latent_dim",
        LATENT_DIM,
        "value",
        "Length of z. 0 makes the columns independent; it is the automatic choice for one column.",
    ),
    Setting("hidden", HIDDEN, "widths", "Widths of the hidden layers of encoder and decoder."),
    Setting(
        "head_rank",
        HEAD_RANK,
        "value",
        "Most directions in which z moves the parameters of a column, the same for all columns. 0 leaves every "
        "parameter free, which is the automatic choice up to 100 columns; beyond them it is 4.",
    ),
    Setting("prior", PRIOR, "value", "'normal' or 'mixture' (a learned mixture of normal laws)."),
    Setting(
        "start",
        START,
        "value",
        "'fitted' starts each column at its own maximum likelihood law, 'geometric' at rates spread over its range.",
    ),
    Setting(
        "tail",
        TAIL,
        "value",
        "Kind of tail each column has given z: 'exponential' (a phase-type law), 'weibull', 'lognormal' or 'pareto' (a "
        "power, with an index to estimate).",
    ),
    Setting(
        "origin",
        ORIGIN,
        "origin",
        "Lower end of each column: 'auto' estimates it; or a number, one per column, a dict by name.",
    ),
    Setting(
        "support",
        SUPPORT,
        "origin",
        "Values of each column: 'non-negative', or 'real' for values of both signs, with two tails; one per column, a "
        "dict by name.",
    ),
    Setting(
        "missing",
        MISSING,
        "value",
        "'error' refuses a missing cell; 'model' learns from the cells of its row that are there.",
    ),
    Setting(
        "counts",
        COUNTS,
        "columns",
        "Columns of whole numbers, each the rounding of a value: 'auto' takes those of which half are below 100, and "
        "no signed ones; or their names; None for no column.",
    ),
    Setting("smoothness", SMOOTHNESS, "value", "Weight of the penalty on uneven phases, beside a mean log-likelihood."),
    Setting(
        "beta",
        BETA,
        "value",
        "Weight of the divergence; 1 makes the objective a lower bound of the log-likelihood.",
    ),
    Setting("epochs", EPOCHS, "value", "Passes over the rows; 0 leaves every column at its start."),
    Setting("batch_size", BATCH_SIZE, "value", "Rows per step."),
    Setting("learning_rate", LEARNING_RATE, "value", "Step size of AdamW before the schedule."),
    Setting("weight_decay", WEIGHT_DECAY, "value", "Decay of the weights."),
    Setting("clip_norm", CLIP_NORM, "value", "Largest norm of a gradient."),
    Setting("schedule", SCHEDULE, "value", "'cosine' or 'step' (a tenth every ten epochs)."),
    Setting("kl_warmup", KL_WARMUP, "value", "Epochs over which the weight of the divergence rises from 0."),
    Setting("validation_fraction", VALIDATION_FRACTION, "value", "Share of rows held out to stop early; 0 for none."),
    Setting("patience", PATIENCE, "value", "Epochs without a better held-out bound before stopping."),
    Setting("n_importance", N_IMPORTANCE, "value", "Latent points per row in score_samples."),
    Setting("device", DEVICE, "value", "'auto', or the name of a torch device."),
    Setting("random_state", None, "seed", "Seed; None draws a fresh one, kept in settings_['seed']."),
)

# The configuration of the paper: ten phases, every column from zero, a standard normal prior, no penalty across phases,
# thirteen epochs of Adam with the rate cut tenfold every ten. The paper leaves the sizes of network, batch and step
# open; those here are the customary ones for a model of its size.
PAPER: dict[str, Any] = {
    "n_phases": 10,
    "latent_dim": 2,
    "hidden": (64, 64),
    "head_rank": 0,
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
    n_rows: int,
    n_columns: int,
    *,
    latent_dim: int | None = None,
    epochs: int | None = None,
    start: str = START,
    n_stored: int | None = None,
    n_covariates: int = 0,
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
        n_stored: Rows that an epoch goes through, where weights make them stand for more or for fewer.
        n_covariates: Numbers that the covariates of a row are read as, which the law of one column depends on too.

    >>> [for_size(n, 5)["epochs"] for n in (100, 10_000, 10_000_000)], for_size(10_000, 1)["epochs"]
    ([500, 78, 5], 0)
    """
    if latent_dim is None:
        latent_dim = 0 if n_columns == 1 else min(2 * n_columns, 16)
    trained = latent_dim > 0 or n_covariates > 0 or start != "fitted"
    many = n_columns > MANY_COLUMNS
    largest = rows_at_once(4096, n_columns)
    batch_size = _power_of_two(n_rows / 64, at_least=32, at_most=largest)
    if epochs is None:
        steps = min(n_rows**2 / 5, 6000 + 2 * n_rows**0.5)
        epochs = max(1, round(steps / -(-(n_stored or n_rows) // batch_size))) if trained else 0
    return {
        "n_phases": "auto",
        "smoothness": "auto",
        "latent_dim": latent_dim,
        "head_rank": MANY_COLUMNS_RANK if many else 0,
        "prior": "mixture" if latent_dim and n_rows >= 1000 else "normal",
        "batch_size": batch_size,
        "epochs": epochs,
        "learning_rate": 2e-3,
        "kl_warmup": epochs / 5,
        "validation_fraction": 0.1 if trained and n_rows >= 1000 else 0.0,
        "patience": max(20, epochs // 3),
    }


def rows_at_once(n_rows: int, n_columns: int) -> int:
    """Rows whose laws are held at once where that is ``n_rows`` for a usual table; fewer where columns are many.

    >>> rows_at_once(4096, 5), rows_at_once(4096, 800)
    (4096, 512)
    """
    return n_rows if n_columns <= MANY_COLUMNS else max(32, n_rows * MANY_COLUMNS // n_columns)


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
