"""Repositories in mlx-lm's format: which files make the folder, and what can be said before gigabytes are fetched."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from localinfer.errors import UnsupportedModel, UsageError
from localinfer.formats.checkpoint import CONFIG, mlx_quantization, read_json
from localinfer.models.checkpoint_config import MODEL_TYPES

WEIGHTS = "model*.safetensors"
TEXTS = ("*.json", "*.jinja")  # configuration, tokenizer, template: small


def folder_files(names: Iterable[str]) -> list[str]:
    """Those of a repository's files that make a model folder, the configuration first and the weights last; none where
    it holds no such folder. What lies in subfolders (other formats, training states) is left out."""
    top = sorted(name for name in names if "/" not in name)
    weights = [name for name in top if fnmatchcase(name, WEIGHTS)]
    if CONFIG not in top or not weights:
        return []
    texts = [name for name in top if name != CONFIG and any(fnmatchcase(name, pattern) for pattern in TEXTS)]
    return [CONFIG, *texts, *weights]


def check_folder(repo: str, config_path: Path, files: Iterable[str]) -> None:
    """UnsupportedModel or UsageError where the folder could not be opened: asked before the weights are fetched."""
    config = read_json(config_path)
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise UnsupportedModel(
            f"{repo}: model type {str(kind)[:60]!r} is not supported in mlx-lm's format",
            f"known: {', '.join(sorted(MODEL_TYPES))}; a GGUF file of the same model may be supported",
        )
    mlx_quantization(f"hf:{repo}", config)
    if "tokenizer.json" not in files:
        raise UsageError(f"{repo}: no tokenizer.json in this repository", "look for another conversion of the model")
