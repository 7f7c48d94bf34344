"""What a fitted estimator computes with: its model in double precision, and the rows that its networks read."""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from phvae.covariates import Covariates
from phvae.vae import VAE

__all__ = ["covariates_of", "in_double", "network_rows", "unconditional"]

Array = NDArray[np.float64]


def in_double(vae: VAE, device: str = "cpu") -> VAE:
    """A copy in double precision, where the result for a row does not depend on the rows beside it."""
    return copy.deepcopy(vae).double().to(device)


def unconditional(model: Any) -> VAE:
    """The model in double precision, for a question about the model alone: one with covariates has no answer."""
    check_is_fitted(model)
    if model.covariates_ is not None:
        raise ValueError(
            f"this model has the covariates {_listed(model.covariates_)}; give covariates=, or ask the "
            "model of one row of them, model.at({name: value, ...}), or phvae at"
        )
    return in_double(model.vae_)


def covariates_of(model: Any) -> Covariates:
    """How a model reads the covariates that a user gives; a mistake of theirs where it has none."""
    check_is_fitted(model)
    if model.covariates_ is None:
        raise ValueError("covariates: this model was fitted without any; leave them out, or fit with covariates")
    found: Covariates = model.covariates_
    return found


def network_rows(model: Any, values: Array, covariates: Any, name: str = "X") -> Tensor:
    """Rows as the networks read them: values, shape ``(n, ...)``, and the covariates that belong to them.

    Args:
        model: Fitted estimator.
        values: Rows of values, or of latent vectors.
        covariates: As the user gives them; None for none.
        name: What the user calls the values.
    """
    if covariates is not None:
        numbers = covariates_of(model).read(covariates)
        if len(numbers) != len(values):
            raise ValueError(
                f"covariates has {len(numbers)} rows and {name} {len(values)}; give one row of covariates for each"
            )
        values = np.concatenate((values, numbers), 1)
    elif model.covariates_ is not None:
        raise ValueError(
            f"covariates = None, and this model has {_listed(model.covariates_)}; give a table of them with a row "
            f"for each row of {name}"
        )
    # copied only if torch cannot use the memory of a read-only or reversed array
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))


def _listed(covariates: Covariates) -> str:
    return ", ".join(map(repr, covariates.names))
