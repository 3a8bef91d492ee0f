"""Which model file is this? An answer that reads little of a large file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localinfer.formats.gguf import GGUFFile

SAMPLE_BYTES = 64  # of each tensor


def model_fingerprint(file: GGUFFile) -> str:
    """Names, types, shapes, places and first bytes of all tensors: it differs between quantizations and fine-tunes."""
    import hashlib  # `fit` reads this file and seldom asks

    h = hashlib.sha256()
    for name, info in file.tensors.items():
        h.update(repr((name, info.type.name, info.shape, info.offset)).encode())
        h.update(file.raw(info)[:SAMPLE_BYTES])
    return h.hexdigest()[:32]
