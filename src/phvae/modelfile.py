"""Fitted models on disk: one safetensors file with a JSON header, sealed by a digest. Nothing is ever unpickled."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from
from safetensors.torch import save as packed
from torch import Tensor

from phvae.files import Place, whole_file

__all__ = ["FORMAT", "ModelFileError", "Place", "as_bytes", "from_bytes", "read", "write"]

FORMAT = 1

# The digest covers every byte of the file; its own place counts as zeros. It stands in JSON within a JSON string.
_SEAL = re.compile(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"')
_UNSEALED = "0" * 64


class ModelFileError(ValueError):
    """A model file that cannot be trusted, and what to do about it."""


def write(path: Place, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a header of plain JSON values; the file appears whole or not at all.

    Args:
        path: Where to; an existing file is replaced.
        tensors: Tensors by name, on any device.
        header: What `read` gives back beside them.
    """
    content = as_bytes(tensors, header, path)
    with whole_file(path) as file:
        file.write(content)


def as_bytes(tensors: Mapping[str, Tensor], header: Mapping[str, Any], path: Place = "model") -> bytes:
    """The bytes of the file that `write` writes; arguments as there."""
    envelope = {"format": FORMAT, "model": header, "sha256": _UNSEALED}
    # one entry only: the order of several would not be the same in every file
    metadata = {"phvae": json.dumps(envelope, allow_nan=False, sort_keys=True, separators=(",", ":"))}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = packed(plain, metadata)
    start, end = _seal(path, content)
    seal = hashlib.sha256(content).hexdigest().encode()
    return content[:start] + seal + content[end:]


def read(path: Place) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of an intact file of this format, or one `ModelFileError` that says what is wrong.

    Args:
        path: File written by `write`.

    Returns:
        ``(header, tensors)``, the tensors on the CPU.
    """
    return from_bytes(path, Path(path).read_bytes())


def from_bytes(path: Place, content: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """`read` of the bytes of a file; messages call it ``path``."""
    envelope = _envelope(path, content)
    _require_format(path, envelope["format"])
    _require_seal(path, content)
    try:
        tensors = tensors_from(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path}: the file is sealed but not readable ({_brief(error)}); save it again") from error
    return envelope["model"], tensors


def _envelope(path: Place, content: bytes) -> dict[str, Any]:
    """What the safetensors header says of format, model and digest, before any of it is trusted."""
    remedy = "it is no phvae model, or damaged: copy it again or save the model again"
    if len(content) < 8:
        raise ModelFileError(f"{path}: {len(content)} bytes are too few for a model file; {remedy}")
    length = _header_length(content)
    if length > len(content) - 8:
        raise ModelFileError(f"{path}: its header claims {length} of the file's {len(content)} bytes; {remedy}")
    try:
        envelope = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["phvae"])
        if not isinstance(envelope["model"], dict):
            raise TypeError("the model is no object")
        return {"format": envelope["format"], "model": envelope["model"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{path}: its header is not that of a phvae model ({_brief(error)}); {remedy}") from error


def _require_format(path: Place, version: Any) -> None:
    if not isinstance(version, int) or version < 1:
        raise ModelFileError(f"{path}: there is no format {version!r:.40}; copy the file again or save the model again")
    if version > FORMAT:
        raise ModelFileError(
            f"{path}: its format is {version!r:.40} and this phvae reads up to {FORMAT}; upgrade phvae, "
            "or copy the file again if it is damaged"
        )


def _require_seal(path: Place, content: bytes) -> None:
    start, end = _seal(path, content)
    digest = hashlib.sha256(content[:start])
    digest.update(_UNSEALED.encode())
    digest.update(memoryview(content)[end:])
    if digest.hexdigest().encode() != content[start:end]:
        raise ModelFileError(
            f"{path}: its contents do not match their digest, so the file was changed or damaged; "
            "copy it again or save the model again"
        )


def _seal(path: Place, content: bytes) -> tuple[int, int]:
    """Where the digest stands."""
    seals = list(_SEAL.finditer(content, 8, 8 + _header_length(content)))
    if len(seals) != 1:
        raise ModelFileError(f"{path}: {len(seals)} digests in its header; copy the file again or save the model again")
    return seals[0].span(1)


def _header_length(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error!s:.80}".replace("\n", " ")
