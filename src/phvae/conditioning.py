"""A fitted model given covariates: the rows that networks read, and the model of one row, which has none left."""

import copy
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from phvae.blocks import Shard, blocks_of, draw
from phvae.covariates import Covariates
from phvae.each_row import EachRow
from phvae.fitted import covariates_of, in_double, unconditional
from phvae.observing import whole_counts
from phvae.risk.answers import TailAnswers
from phvae.risk.questions import whole
from phvae.risk.sources import Splice
from phvae.settings import seed_of
from phvae.vae import VAE

__all__ = ["Conditioned"]

Array = NDArray[np.float64]


class Conditioned(TailAnswers):
    """The methods of `phvae.PHVAE` that are about covariates."""

    covariates_: Covariates | None = None
    settings_: dict[str, Any]
    tail_record_: Any
    vae_: VAE

    def at(self, covariates: Any) -> Self:
        """The model of rows that have these covariates: a fitted model without any, to which all questions can be put.

        Its chains are those of the networks with the covariates put in, so that samples, scores, tail answers and files
        cost what they cost for a model without covariates. What a model remembers of the largest rows it was fitted to
        is not of these covariates and left out: an answer is ``extrapolated`` where fewer than one of as many rows as
        the fit had would lie beyond it, and there are no spliced tails.

        Args:
            covariates: One row of them: a dict from name to value, or a table with one row.

        >>> from phvae import PHVAE
        >>> rng = np.random.default_rng(0)
        >>> size = rng.uniform(1, 3, 200)
        >>> model = PHVAE(n_phases=2, epochs=5, random_state=0)
        >>> model = model.fit(size[:, None] * rng.exponential(size=(200, 1)), covariates={"size": size})
        >>> small = model.at({"size": 1.5})
        >>> small.quantile(0, 0.99)["value"].shape, small.sample(3, random_state=0).shape, small.settings_["given"]
        ((1,), (3, 1), {'size': 1.5})
        """
        how = covariates_of(self)
        # a row of a pandas frame is a series, of which the names are the index
        named = covariates.to_dict() if hasattr(covariates, "index") and hasattr(covariates, "items") else covariates
        row = how.one_row(covariates if hasattr(covariates, "columns") else named)
        held: Any = copy.copy(self)
        held.vae_ = in_double(self.vae_).given(torch.from_numpy(how.read(row)[0]))
        for parameter in held.vae_.parameters():
            # single precision as in every model, so that a file holds all of it
            parameter.data = parameter.data.float()
        left_out = ("layout", "tail_index", "tail_index_losses")
        held.settings_ = {name: value for name, value in self.settings_.items() if name not in left_out}
        layout = {**self.settings_["layout"], "n_covariates": 0}
        if any(layout.values()):
            held.settings_["layout"] = layout
        if self.settings_["latent_dim"] and self.settings_["prior"] == "normal":
            # moved and stretched it is one normal law of any mean and deviation
            held.settings_ |= {"prior": "mixture", "n_components": 1}
        held.settings_["given"] = {str(name): value for name, value in row.items()}
        held.covariates_ = held.tail_record_ = None
        return held  # type: ignore[no-any-return]

    def at_each(self: Any, covariates: Any) -> EachRow:
        """The models of several rows of covariates: tail questions put to it are answered for all, in one frame.

        Args:
            covariates: Table of them.
        """
        how = covariates_of(self)
        rows = how.rows(covariates)
        models = [self.at(row) for row in rows]
        return EachRow(models, [{str(name): value for name, value in row.items()} for row in rows], self.table_kind_)

    def _draw(
        self: Any,
        n_samples: int,
        random_state: Any,
        splice: Splice,
        shard: Shard | None = None,
        covariates: Any = None,
    ) -> Iterator[Array]:
        """Rows of a sample, block by block; ``n_samples`` for every row of covariates."""
        check_is_fitted(self)
        n = whole("n_samples", n_samples)
        if covariates is None:
            vae, move = unconditional(self), self._mover(splice)
            rows = draw(vae, seed_of(random_state), n, blocks_of(n, shard), move)
            return (whole_counts(self, block) for block in rows)
        numbers = covariates_of(self).read(covariates)
        if len(numbers) == 1:
            of_one: Iterator[Array] = self.at(covariates)._draw(n, random_state, splice, shard)
            return of_one
        if splice is not None:
            raise ValueError(f"splice = {splice!r} is not for rows with covariates; leave it out")
        c = torch.from_numpy(np.repeat(numbers, n, 0))
        rows = draw(in_double(self.vae_), seed_of(random_state), len(c), blocks_of(len(c), shard), covariates=c)
        return (whole_counts(self, block) for block in rows)
