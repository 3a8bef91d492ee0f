"""A model on disk, of either kind: a GGUF file, or a folder in mlx-lm's format."""

from __future__ import annotations

import os
from pathlib import Path

from localinfer.formats.checkpoint import Checkpoint, is_checkpoint
from localinfer.formats.gguf import GGUFFile

ModelFile = GGUFFile | Checkpoint


def open_model_file(path: str | os.PathLike[str]) -> ModelFile:
    """The error tree where it is neither."""
    folder = Path(path)
    return Checkpoint.open(folder) if is_checkpoint(folder) else GGUFFile.open(path)
