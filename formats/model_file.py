"""A model on disk, of either kind: a GGUF file, or a folder in mlx-lm's format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from localinfer.formats.gguf import GGUFFile

if TYPE_CHECKING:
    from localinfer.formats.checkpoint import Checkpoint

    ModelFile = GGUFFile | Checkpoint


def open_model_file(path: str | os.PathLike[str]) -> ModelFile:
    """The error tree where it is neither."""
    if os.path.isdir(path):
        from localinfer.formats.checkpoint import Checkpoint, is_checkpoint  # `fit` of a file need not load it

        if is_checkpoint(Path(path)):
            return Checkpoint.open(Path(path))
    return GGUFFile.open(path)
