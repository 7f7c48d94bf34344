"""A worked example on data whose law is known: dependent claims are drawn, fitted, and held against the truth."""

from dataclasses import dataclass
from typing import Any

from phvae.datasets import CLAIMS, claims
from phvae.datasets.laws import Law

__all__ = ["Demo", "run_demo"]

UNIT = "thousand"
# Few numbers to learn, and so a model within seconds.
SETTINGS: dict[str, Any] = {"n_phases": 10, "latent_dim": 2, "epochs": 30, "batch_size": 128, "random_state": 0}


@dataclass(frozen=True)
class Demo:
    """Claims of a known law, a model of them, and new rows that the model has not seen.

    truth: Law of each column by name.
    """

    data: Any
    held_out: Any
    truth: dict[str, Law]
    model: Any
    unit: str


def run_demo(*, n_rows: int = 5000, n_held_out: int = 2000, verbose: bool = False, **changes: Any) -> Demo:
    """Draw fire losses of three dependent columns, the last one exactly zero in seven rows of ten, and fit them.

    Args:
        n_rows: Rows to fit.
        n_held_out: New rows of the same law.
        verbose: Show a progress bar.
        changes: Settings of `phvae.PHVAE` other than those of the demo.

    >>> demo = run_demo(n_rows=200, n_held_out=10, epochs=1)
    >>> list(demo.truth), demo.model.settings_["n_rows"]
    (['building', 'contents', 'interruption'], 200)
    """
    from phvae.estimator import PHVAE

    data, held_out = claims(n_rows, seed=0), claims(n_held_out, seed=1)
    model = PHVAE(**{**SETTINGS, **changes}, verbose=verbose).fit(data.table("pyarrow"))
    return Demo(
        data.table("pyarrow"),
        held_out.table("pyarrow"),
        dict(zip(data.names, CLAIMS.margins, strict=True)),
        model,
        UNIT,
    )
