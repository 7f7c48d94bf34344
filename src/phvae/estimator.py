"""`PHVAE`: the model with the face of a scikit-learn estimator."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from phvae import defaults, modelfile
from phvae.blocks import BLOCK, Shard
from phvae.checkpoint import Place
from phvae.fitted import in_double, network_rows
from phvae.history import EpochRecord, History, warn_of_short_training
from phvae.in_memory import fit_table
from phvae.inspection import phase_type
from phvae.observing import observe, observed_rows, refuse_beside_stream
from phvae.persistence import Verification, pack, require_same_numbers, unpack
from phvae.preprocessing import Origin, PositiveScaler
from phvae.risk.record import TailRecord
from phvae.risk.sources import Splice
from phvae.scoring import CHUNK, Scored
from phvae.settings import device_of
from phvae.streaming.fitting import ParquetStream, fit_stream, table_or_stream
from phvae.supports import Support, any_signed
from phvae.tables import Table, from_matrix, to_matrix
from phvae.tail_index import tail_index
from phvae.vae import VAE
from phvae.weights import sample_weights

__all__ = ["PHVAE"]

Array = NDArray[np.float64]


class PHVAE(Scored, ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator):  # type: ignore[misc]
    """Phase-type variational autoencoder: the joint law of heavy-tailed columns.

    ``p(x) = ∫ Π_j p(x_j | z) p(z) dz`` with a series phase-type law of ``x_j - origin_j`` for every column ``j`` given
    the latent vector ``z``, and an atom at zero for a column with exact zeros. A signed column has one such law for its
    gains, one for its losses, and a probability of a loss, all given ``z``. Settings that are ``"auto"`` adapt to the
    size of the data; the values used are in ``settings_``.

    Args:
        n_phases: Phases per column. None takes 14 for one column and 20 for several, or 10 below 5,000 rows, and what
            an information criterion says for other tails; ``"auto"`` compares several by held-out likelihood.
        latent_dim: Length of ``z``. 0 makes the columns independent; it is the automatic choice for one column.
        hidden: Widths of the hidden layers of encoder and decoder.
        head_rank: Most directions in which ``z`` moves the parameters of a column, the same for all columns. 0 leaves
            every parameter free, which is the automatic choice up to 100 columns; beyond them it is 4.
        prior: ``"normal"`` or ``"mixture"`` (a learned mixture of normal laws).
        start: ``"fitted"`` starts each column at its own maximum likelihood law, ``"geometric"`` at rates spread over
            its range.
        tail: Kind of tail each column has given ``z``: ``"exponential"`` (a phase-type law), ``"weibull"``,
            ``"lognormal"`` or ``"pareto"`` (a power, with an index to estimate).
        origin: Lower end of each column: ``"auto"`` estimates it; or a number, one per column, a dict by name.
        support: Values of each column: ``"non-negative"``, or ``"real"`` for values of both signs, with two tails; one
            per column, a dict by name.
        missing: ``"error"`` refuses a missing cell; ``"model"`` learns from the cells of its row that are there.
        counts: Columns of whole numbers, each the rounding of a value: ``"auto"`` takes those of which half are below
            100, and no signed ones; or their names; None for no column.
        smoothness: Weight of the penalty on uneven phases, beside a mean log-likelihood.
        beta: Weight of the divergence; 1 makes the objective a lower bound of the log-likelihood.
        epochs: Passes over the rows; 0 leaves every column at its start.
        batch_size: Rows per step.
        learning_rate: Step size of AdamW before the schedule.
        weight_decay: Decay of the weights.
        clip_norm: Largest norm of a gradient.
        schedule: ``"cosine"`` or ``"step"`` (a tenth every ten epochs).
        kl_warmup: Epochs over which the weight of the divergence rises from 0.
        validation_fraction: Share of rows held out to stop early; 0 for none.
        patience: Epochs without a better held-out bound before stopping.
        n_importance: Latent points per row in `score_samples`.
        device: ``"auto"``, or the name of a torch device.
        random_state: Seed; None draws a fresh one, kept in ``settings_["seed"]``.
        verbose: Show a progress bar where standard error is a terminal.

    Attributes:
        settings_: Every setting with the value used, and the seed.
        scaler_: Origin, scale and share of exact zeros of each column.
        vae_: The trained model, in the user's units.
        history_: One record per epoch; log-likelihoods are in the user's units.
        n_features_in_, feature_names_in_: Columns seen in `fit`; names if the table had any.
        columns_: Names of the columns as that table has them, not all of them text perhaps; None for an array.
        tail_record_: Counts and largest values of each column, at most 1,001, of signed columns also the lowest; None
            in files of older versions.
        covariates_: How the covariates are read, with their names, kinds and levels; None without any.
        table_kind_: Kind of table seen in `fit`, which `sample` gives back.

    >>> x = np.random.default_rng(0).pareto(2.4, size=(200, 1)) + 1
    >>> model = PHVAE(n_phases=4, random_state=0).fit(x)
    >>> model.sample(3, random_state=1).shape, bool(model.score(x) > -1)
    ((3, 1), True)
    """

    settings_: dict[str, Any]
    scaler_: PositiveScaler
    vae_: VAE
    history_: History
    tail_record_: TailRecord | None
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    table_kind_: str
    fingerprint_: str
    columns_: list[Any] | None

    tail_index = tail_index
    phase_type = phase_type

    def __init__(
        self,
        *,
        n_phases: int | Literal["auto"] | None = defaults.N_PHASES,
        latent_dim: int | Literal["auto"] = defaults.LATENT_DIM,
        hidden: Sequence[int] = defaults.HIDDEN,
        head_rank: int | Literal["auto"] = defaults.HEAD_RANK,
        prior: str = defaults.PRIOR,
        start: str = defaults.START,
        tail: str = defaults.TAIL,
        origin: Origin = defaults.ORIGIN,
        support: Support = defaults.SUPPORT,
        missing: str = defaults.MISSING,
        counts: Sequence[str | int] | str | None = defaults.COUNTS,
        smoothness: float | Literal["auto"] = defaults.SMOOTHNESS,
        beta: float = defaults.BETA,
        epochs: int | Literal["auto"] = defaults.EPOCHS,
        batch_size: int | Literal["auto"] = defaults.BATCH_SIZE,
        learning_rate: float | Literal["auto"] = defaults.LEARNING_RATE,
        weight_decay: float = defaults.WEIGHT_DECAY,
        clip_norm: float = defaults.CLIP_NORM,
        schedule: str = defaults.SCHEDULE,
        kl_warmup: float | Literal["auto"] = defaults.KL_WARMUP,
        validation_fraction: float | Literal["auto"] = defaults.VALIDATION_FRACTION,
        patience: int | Literal["auto"] = defaults.PATIENCE,
        n_importance: int = defaults.N_IMPORTANCE,
        device: str = defaults.DEVICE,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_phases = n_phases
        self.latent_dim = latent_dim
        self.hidden = hidden
        self.head_rank = head_rank
        self.prior = prior
        self.start = start
        self.tail = tail
        self.origin = origin
        self.support = support
        self.missing = missing
        self.counts = counts
        self.smoothness = smoothness
        self.beta = beta
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.schedule = schedule
        self.kl_warmup = kl_warmup
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.n_importance = n_importance
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The paper's configuration (`phvae.defaults.PAPER`), with changes.

        >>> PHVAE.paper(random_state=0).epochs
        13
        """
        return cls(**{**defaults.PAPER, **changes})

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        covariates: Any = None,
        lower: Any = None,
        upper: Any = None,
        censored: Any = None,
        entry: Any = None,
        exit: Any = None,
        checkpoint: Place | None = None,
        resume: Place | None = None,
        callback: Callable[[EpochRecord], Any] | None = None,
    ) -> Self:
        """Learn the joint law of the columns.

        Args:
            X: Table of numbers, >= 0 in columns that are not signed, shape ``(n, D)``: pandas, polars, Arrow or numpy.
                Or the path of files of one, read in pieces where large; or a `phvae.streaming.ParquetStream`, always
                read in pieces.
            y: Ignored.
            sample_weight: Weight of each row, shape ``(n,)``: how many rows it stands for, so that 2 counts it twice.
            covariates: Table with a row for each row of ``X``, of numbers and levels (text, categories, truth values),
                on which the law of the columns is conditioned: given, not modelled. Then give them in `score` and
                `sample` too, and ask `at` for the model of one row.
            lower: Lower ends of cells that are intervals: an array or frame like ``X``, a frame or dict of some of its
                columns, or one number. NaN leaves a cell as it is; ``-inf`` is for signed columns.
            upper: Upper ends, likewise; ``inf`` where a value is only known to be at least the lower end.
            censored: Which values are only known to be exceeded, True or False, likewise.
            entry: Value from which on a cell is seen at all, such as a deductible; likewise, NaN for none, and 0 where
                a column is not signed.
            exit: Value up to which a cell is seen at all; ``inf`` for none.
            checkpoint: File to keep the state of training in, from which an interrupted fit can go on.
            resume: Such a file of the same fit; the result is that of a fit that was never interrupted.
            callback: Called with the record of every epoch.
        """
        X = table_or_stream(X)
        beside = {"lower": lower, "upper": upper, "censored": censored, "entry": entry, "exit": exit}
        if isinstance(X, ParquetStream):
            refuse_beside_stream({"sample_weight": sample_weight, "covariates": covariates, **beside})
            self.covariates_ = None
            fit_stream(self, X, checkpoint=checkpoint, resume=resume, callback=callback)
            warn_of_short_training(self)
            return self
        table, cells, counts = observe(self, X, beside)
        weights = sample_weights(sample_weight, len(table.values))
        fit_table(
            self,
            table,
            weights,
            covariates=covariates,
            cells=cells,
            counts=counts,
            checkpoint=checkpoint,
            resume=resume,
            callback=callback,
        )
        warn_of_short_training(self)
        return self

    def sample(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        given: Any = None,
        splice: Splice = None,
        covariates: Any = None,
    ) -> Any:
        """New rows from the fitted law, as the kind of table seen in `fit`.

        The rows follow from the seed alone: the first 1,000 of 10,000 are the sample of 1,000.

        Args:
            n_samples: Number of rows; with a table of covariates, for each row of it.
            random_state: Seed, or a numpy generator to draw one from; None gives other rows at every call.
            given: Conditions that every row meets, such as ``{"a": (">", 100)}``; see `conditional_sample`.
            splice: ``"gpd"`` for generalised Pareto tails beyond the trust points.
            covariates: Those of the rows, for a model fitted with any; one row of them stands for all.
        """
        if given is not None:
            model = self if covariates is None else self.at(covariates)
            return model.conditional_sample(n_samples, given, random_state, splice=splice).rows
        values = np.concatenate(list(self._draw(n_samples, random_state, splice, covariates=covariates)))
        return from_matrix(values, self.columns_, self.table_kind_)

    def sample_blocks(
        self,
        n_samples: int,
        random_state: Any = None,
        *,
        splice: Splice = None,
        shard: Shard | None = None,
        covariates: Any = None,
    ) -> Iterator[Any]:
        """The rows of `sample` in turn, as tables of up to 4,096 rows: any number of rows in little memory.

        Args:
            n_samples: Number of rows.
            random_state: As in `sample`, whose rows these are.
            splice: As in `sample`.
            covariates: As in `sample`.
            shard: ``(i, n)`` for the part with number ``i``, counted from 1, of ``n`` parts that follow each other.

        >>> x = np.random.default_rng(0).exponential(size=(100, 1))
        >>> model = PHVAE(n_phases=1, epochs=0, random_state=0).fit(x)
        >>> [len(rows) for rows in model.sample_blocks(5000, random_state=0)]
        [4096, 904]
        """
        blocks = self._draw(n_samples, random_state, splice, shard, covariates)
        return (from_matrix(rows, self.columns_, self.table_kind_) for rows in blocks)

    def transform(self, X: Any, *, covariates: Any = None) -> Array:
        """Mean of the latent vector given each row and its covariates, shape ``(n, latent_dim)``."""
        rows, layout = observed_rows(self, X, {})
        x = network_rows(self, rows, covariates)
        device = device_of(self.device)
        vae, at_once = in_double(self.vae_, device), defaults.rows_at_once(CHUNK, self.n_features_in_)
        vae.encoder.layout = layout
        with torch.no_grad():
            means = [vae.posterior(rows.to(device)).mean.cpu() for rows in torch.split(x, at_once)]
        return np.asarray(torch.cat(means).numpy())

    def inverse_transform(self, Z: Any, *, covariates: Any = None) -> Any:
        """Expected row at each latent vector, in the user's units and as the kind of table given.

        Args:
            Z: Latent vectors, shape ``(n, latent_dim)``.
            covariates: A row of them for each, for a model fitted with any.
        """
        check_is_fitted(self)
        latent_dim = self.settings_["latent_dim"]
        # without latent dimensions a table has rows but no columns, which no check of numbers can read
        table = to_matrix(Z, name="Z") if latent_dim else Table(np.zeros((len(Z), 0)), None, "numpy")
        if table.values.shape[1] != latent_dim:
            raise ValueError(f"Z has {table.values.shape[1]} columns and the model {latent_dim} latent dimensions")
        device = device_of(self.device)
        vae, inputs = in_double(self.vae_, device), network_rows(self, table.values, covariates, "Z")
        with torch.no_grad():
            means = [vae.decoder(z.to(device)).mean for z in inputs.split(defaults.rows_at_once(BLOCK, vae.n_columns))]
        return from_matrix(torch.cat(means).cpu().numpy(), self.columns_, table.kind)

    def save(self, path: Place) -> None:
        """Write the fitted model to one file: a safetensors file with a JSON header, sealed by a digest."""
        check_is_fitted(self)
        tensors, header = pack(self)
        modelfile.write(path, tensors, header)

    @classmethod
    def load(cls, path: Place) -> Self:
        """The fitted model in a file; one that was changed or damaged is a `ModelFileError`."""
        header, tensors = modelfile.read(path)
        model = cls()
        unpack(model, path, header, tensors)
        return model

    @classmethod
    def verify(cls, path: Place) -> Verification:
        """Load a model file and compute its self-test values again, which must agree to 1e-9."""
        return require_same_numbers(cls.load(path), path, modelfile.read(path)[0])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = not any_signed(self.support)
        tags.input_tags.allow_nan = self.missing == "model"
        tags.transformer_tags.preserves_dtype = []
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.settings_["latent_dim"])
