"""How likely rows are under a fitted model, and what it says of the cells that are not there."""

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phvae.cluster import Clustered
from phvae.conditioning import Conditioned
from phvae.fitted import in_double, network_rows
from phvae.imputation import impute
from phvae.observation import log_likelihood
from phvae.observing import acceptance, observed_rows, read_rows
from phvae.preprocessing import column_names
from phvae.priors import even_offsets
from phvae.risk.questions import whole
from phvae.settings import device_of
from phvae.tables import from_matrix
from phvae.vae import VAE
from phvae.weights import sample_weights

__all__ = ["CHUNK", "Scored"]

Array = NDArray[np.float64]

# Laws that are held at once when likelihoods are computed.
CHUNK = 2**18


class Scored(Clustered, Conditioned):
    """The methods of `phvae.PHVAE` that look at rows, here or on a cluster."""

    def score_samples(
        self: Any,
        X: Any,
        *,
        covariates: Any = None,
        lower: Any = None,
        upper: Any = None,
        censored: Any = None,
        entry: Any = None,
        exit: Any = None,
    ) -> Array:
        """Log-likelihood of each row, in nats and in the user's units, shape ``(n,)``.

        Importance weighted with ``n_importance`` latent points; its error shrinks with their number, and on average it
        is a lower bound. An exact zero of a column with an atom counts with its probability. A row below the origin of
        a column has probability zero and scores ``-inf``, which a warning says. Cells that are censored, counts or
        missing count with their probability, and a truncated row with its share of what is seen. Arguments as in
        `fit`; with covariates, a row of them for each row of ``X``, it is the likelihood given these.
        """
        beside = {"lower": lower, "upper": upper, "censored": censored, "entry": entry, "exit": exit}
        rows, layout = observed_rows(self, X, beside)
        self._warn_below_origin(rows[:, layout.n_columns * layout.intervals :][:, : layout.n_columns])
        x = network_rows(self, rows, covariates)
        device = device_of(self.device)
        vae = in_double(self.vae_, device)
        vae.encoder.layout = layout
        noise = even_offsets(self.n_importance, vae.latent_dim).to(device)
        at_once = max(1, CHUNK // (len(noise) * layout.n_columns))
        with torch.no_grad():
            scores = [_log_likelihood(vae, rows.to(device), noise).cpu() for rows in torch.split(x, at_once)]
        return np.asarray(torch.cat(scores).numpy())

    def score(self: Any, X: Any, y: Any = None, sample_weight: Any = None, **beside: Any) -> float:
        """Mean log-likelihood per row, as in `score_samples`; each row counts as often as its weight says."""
        scores = self.score_samples(X, **beside)
        weights = sample_weights(sample_weight, len(scores))
        if weights is None:
            return float(scores.mean())
        # a row of weight zero is no row, however unlikely it is
        return float(np.average(scores[weights > 0], weights=weights[weights > 0]))

    def impute(
        self: Any,
        X: Any,
        n_draws: int | None = None,
        random_state: Any = None,
        *,
        covariates: Any = None,
        lower: Any = None,
        upper: Any = None,
        censored: Any = None,
        entry: Any = None,
        exit: Any = None,
    ) -> Any:
        """The table with its gaps filled, and its censored cells drawn, given all that is known of their rows.

        The law of a cell is that of the model given the other cells of the row and the ends of its own interval; cells
        that are known stay as they are. Several draws show how much is not known.

        Args:
            X: Table like the one of the fit, with missing cells (NaN).
            n_draws: How many tables to draw, as a list; None gives one table.
            random_state: Seed, or a numpy generator to draw one from; None gives others at every call.
            covariates: Those of the rows, for a model fitted with any.
            lower: As in `fit`, like all that follow.
            upper: Upper ends.
            censored: Which values are only known to be exceeded.
            entry: Value from which on a cell is seen.
            exit: Value up to which a cell is seen.

        >>> from phvae import PHVAE
        >>> x = np.random.default_rng(0).exponential(size=(100, 1)) + np.ones((1, 2))
        >>> model = PHVAE(n_phases=2, latent_dim=1, epochs=2, random_state=0).fit(x)
        >>> filled = model.impute([[1.5, np.nan]], random_state=0)
        >>> bool(filled[0, 0] == 1.5), bool(filled[0, 1] > 0)
        (True, True)
        """
        table = read_rows(self, X, gaps=True)
        beside = {"lower": lower, "upper": upper, "censored": censored, "entry": entry, "exit": exit}
        count = whole("n_draws", 1 if n_draws is None else n_draws)
        tables = impute(self, table.values, count, random_state, beside, covariates)
        filled = [from_matrix(values, table.names, table.kind) for values in tables]
        return filled[0] if n_draws is None else filled

    def _warn_below_origin(self: Any, values: Array) -> None:
        below = values < self.scaler_.lower_
        below &= ~((values == 0) & (self.scaler_.zero_share_ > 0))
        for position in np.flatnonzero(below.any(0)):
            column = column_names(below.shape[1], self.columns_)[position]
            warnings.warn(
                f"{int(below[:, position].sum())} of {len(below)} rows lie below the origin "
                f"{self.scaler_.origin_[position]:.6g} of column {column!r} and have probability zero; "
                "fit with a lower origin, such as origin=0, if such values can occur",
                stacklevel=3,
            )


def _log_likelihood(vae: VAE, x: Tensor, noise: Tensor) -> Tensor:
    """``log (1/K) Σ_k p(x | z_k) p(z_k) / q(z_k | x)`` per row, with the same ``K`` offsets for every row."""
    posterior: Any = vae.posterior(x)
    c = vae.layout.covariates(x)
    z = posterior.mean + posterior.stddev * noise
    log_ratio = vae.prior_given(c).log_prob(z) - posterior.log_prob(z).sum(-1)
    fit = log_likelihood(vae.decoder(vae.beside(z, c)), x, vae.layout)
    scores = torch.logsumexp(fit + log_ratio, 0) - math.log(len(noise))
    return scores - acceptance(vae, x) if vae.layout.truncated else scores
