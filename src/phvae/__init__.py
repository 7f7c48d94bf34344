"""Phase-type models of heavy-tailed data, with exact tails.

The package is imported lazily: ``import phvae`` loads neither torch nor numba.

>>> from phvae import SeriesPhaseType
>>> law = SeriesPhaseType([0.3, 0.7], [0.5, 4.0])
>>> round(float(law.mean), 3)
0.85
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from phvae.distributions import PhaseType as PhaseType
    from phvae.distributions import SeriesPhaseType as SeriesPhaseType
    from phvae.estimator import PHVAE as PHVAE

_LAZY = {
    "PHVAE": "phvae.estimator",
    "PhaseType": "phvae.distributions",
    "SeriesPhaseType": "phvae.distributions",
}

__all__ = ["PHVAE", "PhaseType", "SeriesPhaseType", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("datasets", "distributed", "distributions", "metrics", "plots"):
        return import_module(f"phvae.{name}")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'phvae' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
