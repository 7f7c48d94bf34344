"""Training as a function: the same seed gives the same weights, and a run that was killed goes on bit for bit."""

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from phvae import checkpoint as checkpoints
from phvae import defaults, distributed
from phvae.adam import FusedAdam
from phvae.batches import Batch, RowsInMemory, RowSource, stream
from phvae.checkpoint import Place, Position
from phvae.history import EpochRecord, History
from phvae.interrupt import undivided
from phvae.launched import LaunchedSteps, hold_back
from phvae.layout import Layout
from phvae.objective import objective
from phvae.progress import TrainingBar
from phvae.threads import one_thread
from phvae.vae import GenerativeModel

__all__ = ["Schedule", "TrainingError", "cosine_schedule", "step_schedule", "train"]

Schedule = Callable[[float, int], float]

# Entries of the widest layer of a batch up to which one thread is as fast as several.
SMALL_LAYER = 2**15
# Held-out rows that are evaluated at once.
HELD_OUT_ROWS = 4096


class TrainingError(ValueError):
    """A loss or gradient that is no number: which rows gave it. The model keeps the weights it had before them."""


def step_schedule(epoch: float, epochs: int) -> float:
    """A tenth of the step size every ten epochs.

    >>> step_schedule(9.9, 30), step_schedule(10.0, 30)
    (1.0, 0.1)
    """
    return 1.0 / 10.0 ** int(epoch // 10)


def cosine_schedule(epoch: float, epochs: int) -> float:
    """Linear rise over the first twentieth of the run, then half a cosine down to zero.

    >>> cosine_schedule(0.5, 20), cosine_schedule(1.0, 20), round(cosine_schedule(20.0, 20), 9)
    (0.5, 1.0, 0.0)
    """
    warm_up = epochs / 20
    if epoch < warm_up:
        return epoch / warm_up
    return (1 + math.cos(math.pi * (epoch - warm_up) / (epochs - warm_up))) / 2


def train(
    model: GenerativeModel,
    x: Tensor | RowSource,
    *,
    epochs: int = 50,
    batch_size: int = 256,
    learning_rate: float = 2e-3,
    rate_factors: Mapping[str, float] | None = None,
    weight_decay: float = defaults.WEIGHT_DECAY,
    clip_norm: float = defaults.CLIP_NORM,
    schedule: Schedule = cosine_schedule,
    beta: float = defaults.BETA,
    kl_warmup: float = 0.0,
    smoothness: float | Tensor = 0.0,
    validation: Tensor | None = None,
    patience: int | None = None,
    seed: int = 0,
    weights: Tensor | None = None,
    validation_weights: Tensor | None = None,
    checkpoint: Place | None = None,
    checkpoint_seconds: float = defaults.CHECKPOINT_SECONDS,
    resume: Place | None = None,
    callback: Callable[[EpochRecord], Any] | None = None,
    progress: bool | None = None,
) -> History:
    """Maximise the evidence lower bound of a model by AdamW on mini-batches, in place.

    The loss of a batch is ``-mean(log-likelihood) + beta mean(KL) + Σ_j smoothness_j roughness_j``. The order of the
    rows follows from (seed, epoch), the noise from (seed, step); no global generator is read or changed.

    Args:
        model: Model to train, on any device; rows are moved there.
        x: Rows, shape ``(n, width)`` of the model's layout; or a source of them that gives batches on its device.
        epochs: Passes over the rows.
        batch_size: Rows per step; the last batch of an epoch may be smaller.
        learning_rate: Step size of AdamW before the schedule.
        rate_factors: Factor on the step size of the parameters whose name begins with a key; 1 for all others.
        weight_decay: Decay of the weight matrices; biases are left alone, for they hold the start laws.
        clip_norm: Largest norm of a gradient.
        schedule: Factor on the step size, a function of the epoch as a real number and of ``epochs``.
        beta: Weight of the divergence.
        kl_warmup: Epochs over which the weight of the divergence rises from 0 to ``beta``.
        smoothness: Weight of the decoder's roughness, one number or one per column, shape ``(D,)``.
        validation: Held-out rows, shape ``(v, width)``; their ELBO is evaluated after every epoch.
        patience: Epochs without a better held-out ELBO after which to stop; the best weights are then restored, also
            when all epochs were used. None trains to the end and keeps the last weights.
        seed: Seed of row order and noise.
        weights: Non-negative weights of the rows, shape ``(n,)``; only their ratios matter. A source has its own.
        validation_weights: The same of the held-out rows, shape ``(v,)``.
        checkpoint: File to write checkpoints to, at the end of the run at the latest.
        checkpoint_seconds: Least time between two checkpoints.
        resume: Checkpoint of the same call to go on from.
        callback: Called with the record of every epoch.
        progress: Show a bar on standard error; None shows it when that is a terminal.

    Returns:
        One record per epoch.
    """
    if epochs < 1 or batch_size < 1:
        raise ValueError(f"epochs = {epochs!r} and batch_size = {batch_size!r} must both be at least 1")
    if patience is not None and validation is None:
        raise ValueError(f"patience = {patience!r} needs held-out rows; give validation, or patience=None")
    device = next(model.parameters()).device
    n_columns = model.n_columns
    validation = None if validation is None else _table("validation", validation, model.layout).to(device)
    if validation_weights is not None and validation is not None:
        validation_weights = _shares(validation_weights, len(validation), "validation_weights").to(device)
    if isinstance(x, Tensor):
        x = _table("x", x, model.layout).to(device)
        table: RowSource = RowsInMemory(x, None if weights is None else _shares(weights, len(x)).to(device))
    else:
        table = x
    world = distributed.current()
    penalties = torch.as_tensor(smoothness, dtype=torch.float64, device=device).expand(n_columns)
    rough = bool((penalties != 0).any())
    factors = dict(rate_factors or {})
    optimiser = FusedAdam(_groups(model, weight_decay, factors), lr=learning_rate)
    settings: dict[str, Any] = {}
    if checkpoint is not None or resume is not None or world is not None:
        settings = {
            "seed": seed,
            "data": (table.fingerprint(), checkpoints.fingerprint(validation, validation_weights)),
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": float(learning_rate),
            "rate_factors": factors,
            "weight_decay": float(weight_decay),
            "clip_norm": float(clip_norm),
            "schedule": [float(schedule(float(epoch), epochs)) for epoch in range(epochs)],
            "beta": float(beta),
            "kl_warmup": float(kl_warmup),
            "smoothness": penalties.tolist(),
            "patience": patience,
            "model": [(name, *value.shape) for name, value in model.state_dict().items()],
        }
    position = Position() if resume is None else checkpoints.restore(resume, model, optimiser, settings)
    if world is not None:
        world.require_same({**settings, "the step to go on from": position.step})
    means_of = objective(model, world)
    first = world is None or world.rank == 0
    n_batches = -(-table.shape[0] // batch_size)
    bar = TrainingBar(epochs * n_batches, batch_size=batch_size, done=position.step, shown=progress if first else False)
    written = time.monotonic()

    def write() -> None:
        nonlocal written
        if checkpoint is not None and first:
            checkpoints.save(checkpoint, model, optimiser, position, settings)
            written = time.monotonic()

    def rate_at(step: int) -> float:
        return learning_rate * schedule(step / n_batches, epochs)

    def warmth_at(step: int) -> float:
        return min(1.0, step / (n_batches * kl_warmup)) if kl_warmup > 0 else 1.0

    def take_step(batch: Batch) -> None:
        started = time.monotonic()
        for group in optimiser.param_groups:
            group["lr"] = group["factor"] * rate_at(position.step)
        means = means_of(batch, generator=stream(device, seed, "noise", position.step), penalty=rough)
        loss = beta * warmth_at(position.step) * means.kl - means.log_likelihood
        if rough:
            loss = loss + penalties @ means.roughness
        optimiser.clear()
        loss.backward()
        norm = hold_back(optimiser, clip_norm)
        numbers = _numbers((loss, norm, means.log_likelihood, means.kl), world)
        if not all(map(math.isfinite, numbers)):
            noise = stream(device, seed, "noise", position.step)
            raise TrainingError(_complaint(model, batch, noise, position))
        with changes:
            optimiser.advance()
            position.advance(len(batch.x), log_likelihood=numbers[2], kl=numbers[3], seconds=time.monotonic() - started)
        if bar.due:
            bar.update(position.step, epoch=position.epoch + 1, loss=numbers[0], kl=numbers[3])

    launched = None
    if _launches_ahead(device) and isinstance(table, RowsInMemory) and world is None:
        launched = LaunchedSteps(
            model, optimiser, table, batch_size=batch_size, clip_norm=clip_norm, penalties=penalties if rough else None
        )

    def settle(steps: LaunchedSteps, started: float) -> None:
        """Count the steps that were launched; their time is shared out evenly."""
        with changes:
            found = steps.read()
            seconds = (time.monotonic() - started) / max(1, len(found))
            for numbers in found:
                if not all(map(math.isfinite, numbers)):
                    noise = stream(device, seed, "noise", position.step)
                    raise TrainingError(_complaint(model, steps.batch(position.batch), noise, position))
                position.advance(steps.size(position.batch), log_likelihood=numbers[2], kl=numbers[3], seconds=seconds)
        if found and bar.due:
            bar.update(position.step, epoch=position.epoch + 1, loss=found[-1][0], kl=found[-1][3])

    def launch_epoch(steps: LaunchedSteps) -> None:
        started = time.monotonic()
        left = range(position.step, position.step + n_batches - position.batch)
        factors = [group["factor"] for group in optimiser.param_groups]
        rates = [[factor * rate_at(step) for factor in factors] for step in left]
        assert isinstance(table, RowsInMemory)
        order = table.order(position.epoch, seed=seed)
        steps.begin(order, position.batch, [beta * warmth_at(step) for step in left], rates)
        try:
            for step in left:
                with changes:
                    steps.launch(stream("cpu", seed, "noise", step).initial_seed())
                if time.monotonic() - written >= checkpoint_seconds or bar.due:
                    settle(steps, started)
                    started = time.monotonic()
                    if started - written >= checkpoint_seconds:
                        write()
        finally:
            # also when Ctrl-C ends it: then the last checkpoint has every step that was launched
            settle(steps, started)

    def close_epoch() -> None:
        started = time.monotonic()
        held_out = None
        if validation is not None:
            held_out = _held_out_elbo(model, validation, validation_weights, seed, position.epoch, world)
        with changes:
            record = position.close_epoch(
                held_out, learning_rate=rate_at(position.step - 1), seconds=time.monotonic() - started
            )
            if patience is not None and position.best_epoch == record.epoch:
                position.best = {name: value.clone() for name, value in model.state_dict().items()}
            position.stopped_early = patience is not None and record.epoch - (position.best_epoch or 0) >= patience
        bar.validated(held_out)
        if callback is not None and first:
            callback(record)

    try:
        with bar, one_thread(wanted=_small_layers(model, batch_size)), undivided() as changes:
            while position.epoch < epochs and not position.stopped_early:
                if launched is not None:
                    if position.batch < n_batches:
                        launch_epoch(launched)
                    close_epoch()
                    continue
                for batch in table.epoch(position.epoch, seed=seed, batch_size=batch_size, first=position.batch):
                    take_step(batch)
                    if time.monotonic() - written >= checkpoint_seconds:
                        write()
                close_epoch()
    except KeyboardInterrupt as interrupt:
        if checkpoint is not None and not changes.broken:
            write()
        if checkpoint is not None and os.path.exists(checkpoint):
            interrupt.add_note(f"stopped in epoch {position.epoch + 1}; go on with resume={os.fspath(checkpoint)!r}")
        raise
    write()
    if position.best:
        model.load_state_dict(position.best)
    return position.history()


def _numbers(values: tuple[Tensor, ...], world: distributed.World | None) -> list[float]:
    """What tensors of one entry hold, with several processes their mean, by one transfer from the device."""
    if world is None and not any(value.is_cuda for value in values):
        return [value.item() for value in values]
    stacked = torch.stack([value.detach().double() for value in values])
    numbers: list[float] = (stacked if world is None else world.mean(stacked)).tolist()
    return numbers


def _launches_ahead(device: torch.device) -> bool:
    """Whether waiting for the numbers of every step would cost more than the step."""
    return device.type == "cuda"


def _small_layers(model: nn.Module, batch_size: int) -> bool:
    """Whether the layers of a batch are too small for several threads; then weights do not depend on the cores."""
    widest = max((max(module.weight.shape) for module in model.modules() if isinstance(module, nn.Linear)), default=0)
    return batch_size * widest <= SMALL_LAYER


def _groups(model: nn.Module, weight_decay: float, factors: Mapping[str, float]) -> list[dict[str, Any]]:
    """Parameters for the optimiser: weight matrices decay, the rest does not; some have steps of their own size."""
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {(True, 1.0): [], (False, 1.0): []}
    unused = set(factors)
    for name, parameter in model.named_parameters():
        keys = [key for key in factors if name.startswith(key)]
        unused -= set(keys)
        factor = math.prod(factors[key] for key in keys)
        groups.setdefault((id(parameter) in matrices, factor), []).append(parameter)
    if unused:
        raise ValueError(f"rate_factors names {sorted(unused)[0]!r}, with which no parameter of the model begins")
    return [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0, "factor": factor}
        for (decays, factor), parameters in groups.items()
    ]


@torch.no_grad()
def _held_out_elbo(
    model: GenerativeModel,
    validation: Tensor,
    weights: Tensor | None,
    seed: int,
    epoch: int,
    world: distributed.World | None,
) -> float:
    rank, size = (0, 1) if world is None else (world.rank, world.size)
    values = validation.new_zeros(len(validation))
    at_once = defaults.rows_at_once(HELD_OUT_ROWS, model.n_columns)
    for chunk, first in enumerate(range(0, len(values), at_once)):
        if chunk % size == rank:
            rows = slice(first, first + at_once)
            # the first chunk has the key of old
            noise = stream(values.device, seed, "held out", epoch, *([chunk] if chunk else []))
            values[rows] = model.elbo(validation[rows], generator=noise)
    if world is not None:
        values = world.mean(values) * size
    if not bool(values.isfinite().all()):
        bad = (~values.isfinite()).nonzero()[:, 0].tolist()
        raise TrainingError(
            f"epoch {epoch + 1}: the ELBO of held-out {_listed(bad)} is {float(values[bad[0]])}; "
            "are their values below the origin of a column, or far outside the training rows?"
        )
    return float(values.mean() if weights is None else (weights * values).mean())


def _complaint(model: GenerativeModel, batch: Batch, noise: torch.Generator, position: Position) -> str:
    """Which rows made a loss or its gradient no number."""
    elbo = model.elbo(batch.x, generator=noise)
    bad = ~elbo.detach().isfinite()
    what = "loss"
    if not bool(bad.any()):
        what = "gradient of the loss"
        parameters = list(model.parameters())
        for row, value in enumerate(elbo):
            gradients = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
            bad[row] = not all(bool(part.isfinite().all()) for part in gradients if part is not None)
    numbers = batch.rows.to(bad.device)
    bad = bad if bool(bad.any()) else torch.ones_like(bad)
    culprits, values = numbers[bad].tolist(), batch.x[bad][0].tolist()
    return (
        f"epoch {position.epoch + 1}, batch {position.batch + 1}: the {what} is not finite for {_listed(culprits)} "
        f"of x, the first being {values}; check these values, or lower learning_rate. "
        "The model has the weights from before this batch"
    )


def _listed(rows: list[int]) -> str:
    more = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
    return f"row{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows[:10]))}{more}"


def _table(name: str, x: Tensor, layout: Layout) -> Tensor:
    if x.ndim != 2 or x.shape[1] != layout.width or not len(x):
        raise ValueError(f"{name} has shape {tuple(x.shape)}; give at least one row of {layout.width} columns")
    bad = ~layout.usable(x)
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        value = float(x[row, column])
        raise ValueError(f"{name}[{row}, {column}] = {value!r} is not finite; drop or impute such rows first")
    return x.detach().double()


def _shares(weights: Tensor, n_rows: int, name: str = "weights") -> Tensor:
    """Weights with mean one."""
    if weights.shape != (n_rows,):
        raise ValueError(f"{name} has shape {tuple(weights.shape)}; give one weight per row, shape ({n_rows},)")
    if not bool(((weights >= 0) & weights.isfinite()).all()) or not bool((weights > 0).any()):
        raise ValueError(f"{name} must be finite, non-negative and not all zero")
    return weights.detach().double() / weights.double().mean()
