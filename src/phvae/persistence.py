"""A fitted estimator as tensors and plain JSON values, and back, with nothing taken on trust."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from phvae import __version__
from phvae.assembly import build
from phvae.covariates import Covariates
from phvae.fitted import in_double
from phvae.history import EpochRecord, History
from phvae.modelfile import ModelFileError, Place
from phvae.preprocessing import PositiveScaler
from phvae.risk.record import TailRecord
from phvae.tables import KINDS

if TYPE_CHECKING:
    from phvae.estimator import PHVAE

__all__ = ["Verification", "pack", "require_same_numbers", "unpack"]

# Likelihoods are float64 and their networks are evaluated in float64: two machines differ by roundings only.
TOLERANCE = 1e-9


class Verification(NamedTuple):
    """How many stored values were computed again, and the largest difference, relative to ``max(1, |value|)``."""

    n_values: int
    largest_difference: float


def pack(model: "PHVAE") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header that hold all of a fitted estimator."""
    tensors = {f"vae.{name}": value for name, value in model.vae_.state_dict().items()}
    tensors["scaler.zero_share"] = torch.from_numpy(model.scaler_.zero_share_)
    if model.tail_record_ is not None:
        tensors |= {f"tail.{name}": torch.from_numpy(part) for name, part in model.tail_record_.arrays().items()}
    columns = model.columns_
    header = {
        "kind": type(model).__name__,
        "phvae": __version__,
        "parameters": {name: _plain(value) for name, value in model.get_params().items()},
        "settings": model.settings_,
        "columns": None if columns is None else [_plain(name) for name in columns],
        "table_kind": model.table_kind_,
        "covariates": None if model.covariates_ is None else model.covariates_.header(),
        "fingerprint": model.fingerprint_,
        "history": asdict(model.history_),
        "self_test": _self_test(model),
    }
    return tensors, header


def unpack(model: "PHVAE", path: Place, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Make a new estimator the fitted one that was packed.

    Args:
        model: Estimator to fill.
        path: Where the header and tensors were read, for messages.
        header: Header of the file.
        tensors: Tensors of the file.
    """
    if header.get("kind") != type(model).__name__:
        what = "a checkpoint of a training run" if "checkpoint" in header else f"a {header.get('kind')!r:.40}"
        raise ModelFileError(
            f"{path}: it holds {what}, not a fitted {type(model).__name__}; give a file that save wrote"
        )
    try:
        _fill(model, header, tensors)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}; save the model again") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error!s:.80}".replace("\n", " ")
        raise ModelFileError(f"{path}: its header describes no model ({reason}); save the model again") from error


def require_same_numbers(model: "PHVAE", path: Place, header: Mapping[str, Any]) -> Verification:
    """Compute the self-test values of a loaded estimator again and hold them against those in its file's header."""
    stored, computed = header["self_test"], _self_test(model)
    worst, count = 0.0, 0
    for name in ("log_density", "log_survival"):
        was, now = np.array(stored[name]), np.array(computed[name])
        worst = max(worst, float((np.abs(now - was) / np.maximum(1, np.abs(was))).max()))
        count += was.size
    if not worst <= TOLERANCE:
        raise ModelFileError(
            f"{path}: the file is whole, but this installation computes other numbers from it: a log-likelihood is off "
            f"by {worst:.1e} of its size, above {TOLERANCE:g}; compare the versions of torch and phvae"
        )
    return Verification(count, worst)


def _fill(model: "PHVAE", header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    settings, columns = dict(header["settings"]), header["columns"]
    losses = settings.get("loss_share")
    vae_tensors = {name.removeprefix("vae."): value for name, value in tensors.items() if name.startswith("vae.")}
    scaler = PositiveScaler.of(
        vae_tensors["decoder.origin"].numpy(),
        vae_tensors["decoder.scale"].numpy(),
        tensors["scaler.zero_share"].numpy(),
        None if losses is None else np.array(losses, dtype=np.float64),
    )
    _require_plausible(settings, len(scaler.scale_), sum(value.numel() for value in vae_tensors.values()))
    vae = build(settings, scaler)
    _require_fitting(vae_tensors, vae.state_dict())
    vae.load_state_dict(vae_tensors)
    if columns is not None and (len(columns) != len(scaler.scale_) or len(set(columns)) != len(columns)):
        raise ModelFileError(f"its {len(columns)} column names are not those of {len(scaler.scale_)} columns")
    if header["table_kind"] not in KINDS:
        raise ModelFileError(f"there are no tables of the kind {header['table_kind']!r:.40}")
    model.set_params(**_parameters(header["parameters"]))
    described = header.get("covariates")
    covariates = None if described is None else Covariates.from_header(described)
    if vae.layout.n_covariates != (0 if covariates is None else covariates.width):
        raise ModelFileError("its covariates are not those of its networks")
    model.covariates_ = covariates
    model.settings_ = settings
    model.scaler_ = scaler
    model.vae_ = vae.eval()
    model.history_ = _history(header["history"])
    model.tail_record_ = _tail_record(tensors, scaler)
    model.table_kind_ = header["table_kind"]
    model.fingerprint_ = str(header["fingerprint"])
    model.n_features_in_ = len(scaler.scale_)
    model.columns_ = columns
    if columns and all(isinstance(name, str) for name in columns):
        model.feature_names_in_ = np.array(columns, dtype=object)


def _require_plausible(settings: Mapping[str, Any], n_columns: int, n_numbers: int) -> None:
    """Refuse sizes that the tensors cannot have, before memory is taken for them."""
    hidden, latent_dim, n_phases = settings["hidden"], settings["latent_dim"], settings["n_phases"]
    n_covariates = settings.get("layout", {}).get("n_covariates", 0)
    n_inputs = latent_dim + n_covariates
    # without inputs there are no hidden layers
    chains = (
        [n_columns + n_covariates, *(hidden if latent_dim else []), latent_dim],
        [n_inputs, *(hidden if n_inputs else []), n_columns, n_phases],
    )
    for before, after in (pair for chain in chains for pair in pairwise(chain)):
        if not 0 <= before * after <= n_numbers:
            raise ModelFileError(f"its settings speak of a {before} by {after} matrix and it has {n_numbers} numbers")
    if settings["prior"] == "mixture" and not 0 <= settings["n_components"] * latent_dim <= n_numbers:
        raise ModelFileError(f"its settings speak of {settings['n_components']!r:.40} components of the prior")


def _require_fitting(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for name in sorted({*found, *wanted}):
        if name not in found or name not in wanted:
            raise ModelFileError(f"tensor {name!r} is {'missing' if name in wanted else 'not part of the model'}")
        ours, theirs = wanted[name], found[name]
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise ModelFileError(
                f"tensor {name!r} is {theirs.dtype} of shape {tuple(theirs.shape)}, "
                f"where the settings ask for {ours.dtype} of shape {tuple(ours.shape)}"
            )
        if not bool(theirs.isfinite().all()):
            raise ModelFileError(f"tensor {name!r} has entries that are not finite")


def _history(header: Mapping[str, Any]) -> History:
    return History(**{**header, "records": tuple(EpochRecord(**record) for record in header["records"])})


def _tail_record(tensors: Mapping[str, Tensor], scaler: PositiveScaler) -> TailRecord | None:
    """The record of the training tails; None in a file that was written before there was one."""
    arrays = {name.removeprefix("tail."): part.numpy() for name, part in tensors.items() if name.startswith("tail.")}
    if not arrays:
        return None
    return TailRecord.from_arrays(arrays, len(scaler.scale_), scaler.loss_share_ > 0)


def _parameters(header: Mapping[str, Any]) -> dict[str, Any]:
    return {**header, "hidden": tuple(header["hidden"])}


def _plain(value: Any) -> Any:
    """A parameter as JSON knows it; a generator of random numbers is not kept, for the seed drawn from it is."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, str | int | float | None) else None


def _self_test(model: "PHVAE") -> dict[str, list[Any]]:
    """Log density and log survival of every column at three values for each of four points of the decoder."""
    vae = in_double(model.vae_)
    # with covariates these are points of both
    z = torch.cos(torch.arange(4.0)[:, None] * torch.arange(1.0, vae.decoder.latent_dim + 1)).double()[:, None]
    # a signed column is read on both sides
    signs = np.where((model.scaler_.loss_share_ > 0) & (np.arange(3)[:, None] == 1), -1.0, 1.0)
    x = torch.from_numpy(model.scaler_.origin_ + model.scaler_.scale_ * signs * np.array([[0.1], [1.0], [10.0]]))
    with torch.no_grad():
        law = vae.decoder(z).base_dist
        return {"log_density": law.log_prob(x).tolist(), "log_survival": law.log_sf(x).tolist()}
