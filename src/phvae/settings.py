"""What a user's settings stand for: every value checked, "auto" replaced by a value that suits the data."""

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch

from phvae import defaults, distributed
from phvae.tables import DataError

__all__ = ["batch_size_of", "resolve", "seed_of"]

SCHEDULES = ("cosine", "step")
PRIORS = ("normal", "mixture")
STARTS = ("fitted", "geometric")
MISSING = ("error", "model")
TAILS = ("exponential", "weibull", "lognormal", "pareto")
AUTOMATIC = (
    "n_phases",
    "latent_dim",
    "head_rank",
    "prior",
    "smoothness",
    "epochs",
    "batch_size",
    "learning_rate",
    "kl_warmup",
    "validation_fraction",
    "patience",
)


def resolve(
    given: Mapping[str, Any], n_rows: int, n_columns: int, n_stored: int | None = None, n_covariates: int = 0
) -> dict[str, Any]:
    """Settings for a table of this size: JSON values, none of them "auto" but the number of phases and smoothness.

    The number of phases stays None where the data are to say it: for tails that are not exponential.

    Args:
        given: What the user gave, by name; see `phvae.PHVAE`.
        n_rows: Rows of the table.
        n_columns: Columns of the table.
        n_stored: Rows that an epoch goes through, where they are not so many.
        n_covariates: Numbers that the covariates of a row are read as.
    """
    if n_rows < 2:
        raise DataError(
            f"the data have one sample (n_samples = {n_rows}); no law can be learned from it, give more rows"
        )
    for name, (holds, remedy) in _RULES.items():
        if not (holds(given[name]) or (name in AUTOMATIC and _is_auto(given[name]))):
            choices = f"{remedy} or 'auto'" if name in AUTOMATIC else remedy
            raise ValueError(f"{name} = {given[name]!r}; give {choices}")
    sizes = {name: None if _is_auto(given[name]) else int(given[name]) for name in ("latent_dim", "epochs")}
    automatic = defaults.for_size(
        n_rows, n_columns, **sizes, start=given["start"], n_stored=n_stored, n_covariates=n_covariates
    )
    if given["n_phases"] is None:
        exponential = given["tail"] == "exponential"
        automatic["n_phases"] = defaults.phases_for_size(n_rows, n_columns) if exponential else None
    settings = {
        name: automatic[name] if given[name] is None or _is_auto(given[name]) else _plain(given[name])
        for name in _RULES
    }
    return {
        **settings,
        "n_components": defaults.N_COMPONENTS,
        "checkpoint_seconds": defaults.CHECKPOINT_SECONDS,
        "device": device_of(given["device"]),
        "seed": seed_of(given["random_state"], shared=True),
        "n_rows": n_rows,
        **({"layout": {"n_covariates": n_covariates}} if n_covariates else {}),
    }


def batch_size_of(given: Mapping[str, Any], n_rows: int, n_columns: int) -> int:
    """Rows per step for a table of this size; 0 where the user's is none."""
    wanted = given["batch_size"]
    if _is_auto(wanted):
        return int(defaults.for_size(n_rows, n_columns)["batch_size"])
    return int(wanted) if _is_whole(wanted) else 0


def device_of(device: str) -> str:
    """The device by its own name; "auto" is a GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return str(torch.empty(0, device=device).device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device = {device!r} is not available here; give 'auto' or 'cpu'") from error


def seed_of(random_state: Any, *, shared: bool = False) -> int:
    """A seed from what scikit-learn calls a random state; a fresh one from None.

    Args:
        random_state: None, a whole number or a generator.
        shared: Where several processes train one model, give all of them the fresh one of the first.

    >>> seed_of(7)
    7
    """
    if random_state is None:
        fresh = int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
        world = distributed.current() if shared else None
        return fresh if world is None else int(world.of_first(torch.tensor(fresh)))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if _is_whole(random_state) and 0 <= random_state < 2**63:
        return int(random_state)
    raise ValueError(f"random_state = {random_state!r}; give a whole number from 0, a numpy generator or None")


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    numeric = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return numeric and bool(np.isfinite(value))


def _plain(value: Any) -> Any:
    """The same value as JSON knows it."""
    if isinstance(value, str):
        return value
    if _is_whole(value):
        return int(value)
    return float(value) if _is_number(value) else [int(width) for width in value]


Rule = tuple[Callable[[Any], bool], str]


def _at_least(least: int) -> Rule:
    return lambda value: _is_whole(value) and value >= least, f"a whole number of at least {least}"


def _one_of(choices: tuple[str, ...]) -> Rule:
    return lambda value: isinstance(value, str) and value in choices, " or ".join(map(repr, choices))


_POSITIVE: Rule = (lambda value: _is_number(value) and value > 0, "a number above 0")
_NON_NEGATIVE: Rule = (lambda value: _is_number(value) and value >= 0, "a number of at least 0")
_SHARE: Rule = (lambda value: _is_number(value) and 0 <= value <= 0.5, "a share from 0 to 0.5")
_WIDTHS: Rule = (
    lambda value: not isinstance(value, str) and np.ndim(value) == 1 and all(_is_whole(w) and w > 0 for w in value),
    "the widths of the layers, such as (64, 64)",
)

_RULES: dict[str, Rule] = {
    "n_phases": (
        lambda value: value is None or (_is_whole(value) and 1 <= value <= defaults.MOST_PHASES),
        f"a whole number from 1 to {defaults.MOST_PHASES}, None",
    ),
    "latent_dim": _at_least(0),
    "hidden": _WIDTHS,
    "head_rank": _at_least(0),
    "prior": _one_of(PRIORS),
    "start": _one_of(STARTS),
    "tail": _one_of(TAILS),
    "missing": _one_of(MISSING),
    "smoothness": _NON_NEGATIVE,
    "beta": _NON_NEGATIVE,
    "epochs": _at_least(0),
    "batch_size": _at_least(1),
    "learning_rate": _POSITIVE,
    "weight_decay": _NON_NEGATIVE,
    "clip_norm": _POSITIVE,
    "schedule": _one_of(SCHEDULES),
    "kl_warmup": _NON_NEGATIVE,
    "validation_fraction": _SHARE,
    "patience": _at_least(1),
    "n_importance": _at_least(1),
}
