"""Tail answers: the exact tails of the decoder, integrated over latent space with a known error."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phvae.risk.resampling import Bootstrap as Bootstrap
    from phvae.risk.resampling import bootstrap as bootstrap

__all__ = ["Bootstrap", "bootstrap"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("phvae.risk.resampling"), name)
    raise AttributeError(f"module 'phvae.risk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
