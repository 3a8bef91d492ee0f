"""One small file a family: what its metadata means. ARCHITECTURES maps GGUF's general.architecture to it.

To add one: a subclass of Architecture (families/llama.py shows the plain case), its name in ARCHITECTURES, and golden
logits in the tests. What the decoder does follows from the config and from which tensors the file holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localinfer.errors import UnsupportedModel
from localinfer.models.families.base import Architecture
from localinfer.models.families.gemma import Gemma3
from localinfer.models.families.llama import Llama

if TYPE_CHECKING:
    from localinfer.formats.gguf import GGUFFile

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Llama(),
    "gemma3": Gemma3(),
}


def architecture(f: GGUFFile) -> Architecture:
    """The family of a file. UnsupportedModel names an architecture that is not here."""
    name = f.metadata.get_str("general.architecture")
    if name not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{f.path}: architecture {name!r} is not supported (known: {', '.join(sorted(ARCHITECTURES))})",
            "its size can still be checked with `localinfer fit`",
        )
    return ARCHITECTURES[name]
