"""Where a training run stands, on disk: enough to go on as if it had never stopped."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from phvae import modelfile
from phvae.files import Place
from phvae.history import EpochRecord, History

__all__ = ["Place", "Position", "fingerprint", "restore", "save"]


@dataclass
class Position:
    """Where a run stands between two steps; everything else follows from the seed.

    `epoch` counts finished epochs, `batch` and `n_rows` what is done of the current one, `step` the steps of the whole
    run. Log-likelihood and divergence are sums over the rows of this epoch so far, `seconds` is its time. `best` holds
    the weights of the best epoch on held-out rows.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    n_rows: int = 0
    log_likelihood: float = 0.0
    kl: float = 0.0
    seconds: float = 0.0
    records: list[EpochRecord] = field(default_factory=list)
    best_epoch: int | None = None
    stopped_early: bool = False
    best: dict[str, Tensor] = field(default_factory=dict)

    def advance(self, n_rows: int, *, log_likelihood: float, kl: float, seconds: float) -> None:
        """Count a batch of ``n_rows`` with these means."""
        self.batch += 1
        self.step += 1
        self.n_rows += n_rows
        self.log_likelihood += n_rows * log_likelihood
        self.kl += n_rows * kl
        self.seconds += seconds

    def close_epoch(self, held_out: float | None, *, learning_rate: float, seconds: float) -> EpochRecord:
        """Turn the sums into the record of an epoch, and begin the next."""
        self.epoch += 1
        log_likelihood, kl = self.log_likelihood / self.n_rows, self.kl / self.n_rows
        elbo = log_likelihood - kl
        record = EpochRecord(self.epoch, elbo, log_likelihood, kl, held_out, learning_rate, self.seconds + seconds)
        self.records.append(record)
        self.batch = self.n_rows = 0
        self.log_likelihood = self.kl = self.seconds = 0.0
        if held_out is not None:
            best = None if self.best_epoch is None else self.records[self.best_epoch - 1].validation_elbo
            if best is None or held_out > best:
                self.best_epoch = self.epoch
        return record

    def history(self) -> History:
        """The finished epochs."""
        return History(tuple(self.records), self.best_epoch, self.stopped_early)


def fingerprint(*tensors: Tensor | None) -> str:
    """Digest of the values, shapes and order of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        array = np.zeros(0) if tensor is None else tensor.detach().cpu().numpy()
        digest.update(f"{array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def save(path: Place, model: nn.Module, optimiser: Optimizer, position: Position, settings: Mapping[str, Any]) -> None:
    """Write a checkpoint; it replaces an older one whole or not at all.

    Args:
        path: Where to.
        model: Model in training.
        optimiser: Its optimiser.
        position: Where the run stands.
        settings: What `restore` must find again; compared by ``repr``.
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in position.best.items()}
    for index, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{index}.{name}": value for name, value in moments.items()}
    plain = {name: value for name, value in asdict(position).items() if name != "best"}
    modelfile.write(path, tensors, {"checkpoint": plain, "settings": _written(settings)})


def restore(path: Place, model: nn.Module, optimiser: Optimizer, settings: Mapping[str, Any]) -> Position:
    """Bring model and optimiser back to a checkpoint of the same run.

    Args:
        path: File written by `save`.
        model: Model of the same structure; its weights are replaced.
        optimiser: Optimiser of this model; its state is replaced.
        settings: Those of this call; a difference is a ValueError that names it.
    """
    if not os.path.exists(path):
        raise ValueError(f"resume = {os.fspath(path)!r}: there is no such file; leave resume out to start anew")
    header, tensors = modelfile.read(path)
    if "checkpoint" not in header:
        raise ValueError(f"resume = {os.fspath(path)!r} is a model, not a checkpoint of a training run")
    _require_same(path, header["settings"], _written(settings))
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimiser": {}}
    for name, value in tensors.items():
        group, _, rest = name.partition(".")
        groups[group][rest] = value
    model.load_state_dict(groups["model"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in groups["optimiser"].items():
        index, _, moment = name.partition(".")
        state.setdefault(int(index), {})[moment] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    plain = dict(header["checkpoint"])
    plain["records"] = [EpochRecord(**record) for record in plain["records"]]
    device = next(iter(model.state_dict().values())).device
    return Position(**plain, best={name: value.to(device) for name, value in groups["best"].items()})


def _written(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in settings.items()}


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _require_same(path: Place, stored: Mapping[str, str], given: Mapping[str, str]) -> None:
    for name, now in given.items():
        was = stored.get(name, "nothing")
        if was != now:
            brief = f"with {name} = {_cut(was)}, this call has {_cut(now)}"
            brief = "on other rows" if name == "data" else "for another model" if name == "model" else brief
            raise ValueError(f"resume = {os.fspath(path)!r} was made {brief}; repeat that call, or start anew")
