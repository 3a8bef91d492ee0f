"""Where other programs keep their models: LM Studio's folders, Ollama's manifests and blobs. Read, never changed.

LM Studio: PUBLISHER/REPOSITORY/FILE.gguf in the folder that its settings name. Ollama: a manifest a name, under
manifests/HOST/NAMESPACE/MODEL/TAG; its layer of media type `...image.model` is a GGUF file under blobs/, which several
names may share.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = {"huggingface": "Hugging Face", "lmstudio": "LM Studio", "ollama": "Ollama"}  # as people call them
OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")  # of the user that its Linux installer makes


def program_name(source: str) -> str:
    """`lmstudio` -> `LM Studio`; what is no other program's stays as it is."""
    return PROGRAMS.get(source, source)


def how_to_delete(source: str, name: str) -> str:
    """What its own program calls for."""
    return f"ollama rm {name}" if source == "ollama" else f"delete it in {program_name(source)}"


def lmstudio_folders() -> list[Path]:
    """The folder that was chosen in its settings, and those that its versions take by default."""
    home = _lmstudio_home()
    try:
        chosen = json.loads((home / "settings.json").read_bytes()).get("downloadsFolder")
    except (OSError, ValueError, AttributeError):
        chosen = None
    folders = [Path(chosen)] if isinstance(chosen, str) and chosen else []
    folders += [home / "models", Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"]
    return list({os.path.realpath(folder): folder for folder in reversed(folders)}.values())[::-1]


def _lmstudio_home() -> Path:
    """What ~/.lmstudio-home-pointer says, where that is a folder."""
    default = Path.home() / ".lmstudio"
    try:
        home = Path((Path.home() / ".lmstudio-home-pointer").read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return default
    return home if home.is_absolute() and os.path.isdir(home) else default


def ollama_folders() -> list[Path]:
    """OLLAMA_MODELS alone where it is set, else the user's own and the one of the system's service."""
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return [Path(chosen).expanduser()]
    own = Path.home() / ".ollama" / "models"
    return [own, OLLAMA_SERVICE] if sys.platform == "linux" else [own]


def ollama_models() -> Iterator[tuple[str, Path, os.stat_result]]:
    """Name as `ollama list` prints it, file, the file's size and time; what is no model's manifest is passed over."""
    for folder in ollama_folders():
        manifests = folder / "manifests"
        for manifest in sorted(manifests.glob("*/*/*/*")) if os.path.isdir(manifests) else ():
            try:
                blob = folder / "blobs" / _model_digest(json.loads(manifest.read_bytes())).replace(":", "-")
                yield _ollama_name(*manifest.relative_to(manifests).parts), blob, blob.stat()
            except (OSError, ValueError, LookupError, StopIteration, TypeError, AttributeError):
                continue


def ollama_name(blob: Path) -> str:
    """What Ollama calls the model in a file of its store; '' for one that is not of it."""
    return next((name for name, path, _ in ollama_models() if path == blob), "")


def _model_digest(manifest: Any) -> str:
    return str(next(x["digest"] for x in manifest["layers"] if x["mediaType"].endswith("image.model")))


def _ollama_name(host: str, namespace: str, model: str, tag: str) -> str:
    """`llama3.2:3b`, `user/model:tag`, `hf.co/user/model:tag`."""
    if host != "registry.ollama.ai":
        return f"{host}/{namespace}/{model}:{tag}"
    return f"{model}:{tag}" if namespace == "library" else f"{namespace}/{model}:{tag}"
