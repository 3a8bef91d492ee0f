"""The models on this machine: our own folder, and what other programs have already downloaded (read, never copied).

A model is known by a short name: its file name without `.gguf`, of a split model without the shard's number; a folder
in mlx-lm's format by the folder's name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localinfer import paths
from localinfer.errors import UsageError
from localinfer.models.checkpoint_config import MODEL_TYPES

SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
OURS_TO_DELETE = ("localinfer", "huggingface")  # where `pull` puts models
PARTIAL_SUFFIX = ".part"  # a download that is under way or was cut


@dataclass(frozen=True)
class LocalModel:
    """One model file, the first shard of a split one, or a folder in mlx-lm's format. `trouble` says what is wrong
    with it, or is empty."""

    name: str
    path: Path
    n_bytes: int  # of all shards present
    source: str  # localinfer, huggingface, lmstudio, ollama
    modified: float  # seconds since the epoch
    trouble: str = ""

    @property
    def ours(self) -> bool:
        return self.source == "localinfer"


def find_models() -> list[LocalModel]:
    """All local models by name; of two with one name, our own folder's comes first. Reads folders, opens no model."""
    found = [model for source, folder in _folders() if folder.is_dir() for model in _models_in(folder, source)]
    return sorted([*found, *_ollama_models()], key=lambda m: (m.name.lower(), not m.ours, str(m.path)))


def models_beside(path: Path) -> list[LocalModel]:
    """The .gguf files in the folder of one that lies elsewhere, named after the folder."""
    try:
        names = sorted(p for p in path.parent.glob("*.gguf") if not p.name.startswith("mmproj"))
    except OSError:
        return []
    found = []
    for name in names:
        match = SHARD.search(name.stem)
        with suppress(OSError):
            if not match or match[1] == "00001":
                found.append(_describe(name, path.parent.name, match))
    return found


def find_model(name: str) -> LocalModel | None:
    """The model with this name, letter case aside, or None. UsageError where several files have it."""
    known = find_models()
    same = [m for m in known if m.name == name] or [m for m in known if m.name.lower() == name.lower()]
    own = [m for m in same if m.ours] or same
    if len({m.path.resolve() for m in own}) > 1:
        raise UsageError(f"{name}: {len(own)} local models have this name", "give the path: " + str(own[0].path))
    return own[0] if own else None


@dataclass(frozen=True)
class PartialDownload:
    """Bytes of a download that was cut (or is under way), and the command that goes on with it."""

    path: Path
    repair: str


def partial_downloads() -> list[PartialDownload]:
    """In our own folder and in the hub's cache."""
    found = [PartialDownload(p, "localinfer pull demo") for p in sorted(paths.models_dir().rglob("*" + PARTIAL_SUFFIX))]
    for path in sorted(_hub_cache().glob("models--*/blobs/*.incomplete")):
        repo = path.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
        found.append(PartialDownload(path, f"localinfer pull hf:{repo}"))
    return found


def remove(model: LocalModel) -> int:
    """Delete a model that `pull` brought, all its shards; returns the bytes freed. UsageError for others' files."""
    if model.source not in OURS_TO_DELETE:
        raise UsageError(f"{model.name}: belongs to {model.source}, localinfer deletes only its own", str(model.path))
    if model.path.is_dir() and model.path.parent.name == "snapshots":
        return _delete_folder(model.path)
    if model.path.is_dir():
        raise UsageError(f"{model.name}: is a folder, localinfer deletes only what it downloaded", str(model.path))
    return sum(_delete(path) for path in shards_of(model.path))


def _delete_folder(path: Path) -> int:
    """A repository in the hub's cache: its files but for other models, and the folder where nothing is left in it."""
    freed = sum(_delete(p) for p in sorted(path.iterdir()) if p.is_file() and p.suffix != ".gguf")
    with suppress(OSError):
        path.rmdir()
    return freed


def _delete(path: Path) -> int:
    """A file; of a link in the hub's cache the bytes too, where no other link leads to them."""
    blob, n_bytes = path.resolve(), path.stat().st_size
    path.unlink()
    if blob == path.absolute() or blob.parent.name != "blobs":
        return n_bytes
    snapshots = blob.parent.parent / "snapshots"
    if any(other.is_symlink() and other.resolve() == blob for other in snapshots.rglob("*")):
        return 0
    blob.unlink()
    return n_bytes


def shards_of(path: Path) -> list[Path]:
    """The file itself, or those shards of its split model that are there."""
    match = SHARD.search(path.stem)
    if not match:
        return [path]
    base = path.stem[: match.start()]
    return sorted(p for p in path.parent.glob("*.gguf") if SHARD.search(p.stem) and p.stem[:-15] == base)


def _folders() -> Iterator[tuple[str, Path]]:
    yield "localinfer", paths.models_dir()
    yield "huggingface", _hub_cache()
    home = Path.home()
    yield "lmstudio", home / ".lmstudio" / "models"
    yield "lmstudio", home / ".cache" / "lm-studio" / "models"


def _hub_cache() -> Path:
    """Where huggingface_hub keeps its files, by the variables that it reads itself."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface")
    return Path(home).expanduser() / "hub"


def _models_in(folder: Path, source: str) -> Iterator[LocalModel]:
    yield from _checkpoints_in(folder, source)
    for path in sorted(folder.rglob("*.gguf")):
        if path.name.startswith("mmproj"):
            continue  # a vision tower, no model by itself
        match = SHARD.search(path.stem)
        if match and match[1] != "00001":
            continue
        try:
            yield _describe(path, source, match)
        except OSError:
            continue  # a dangling link, or gone since the folder was read


def _checkpoints_in(folder: Path, source: str) -> Iterator[LocalModel]:
    """Folders that mlx-lm can open and we can plan. In the hub's cache they are called by the repository's name."""
    for config in sorted(folder.rglob("config.json")):
        path = config.parent
        try:
            kind = json.loads(config.read_bytes()).get("model_type")
            weights = list(path.glob("model*.safetensors"))
            if kind not in MODEL_TYPES or not weights or not (path / "tokenizer.json").is_file():
                continue
            n_bytes = sum(p.stat().st_size for p in weights)
            trouble = _missing_shards(path, {p.name for p in weights})
            yield LocalModel(_folder_name(path), path, n_bytes, source, config.stat().st_mtime, trouble)
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            continue  # not a model's, or gone since the folder was read


def _missing_shards(path: Path, there: set[str]) -> str:
    """What the folder's index names and a cut download has not brought; empty where all is there."""
    index = path / "model.safetensors.index.json"
    named = set(json.loads(index.read_bytes())["weight_map"].values()) if index.is_file() else there
    return f"{len(named & there)} of {len(named)} shards" if named - there else ""


def _folder_name(path: Path) -> str:
    """Of models--OWNER--NAME/snapshots/HASH: NAME."""
    repository = path.parent.parent.name
    return repository.rpartition("--")[2] if path.parent.name == "snapshots" and "--" in repository else path.name


def _describe(path: Path, source: str, match: re.Match[str] | None) -> LocalModel:
    parts = shards_of(path)
    trouble = "" if match is None or len(parts) == int(match[2]) else f"{len(parts)} of {int(match[2])} shards"
    name = path.stem[: match.start()] if match else path.stem
    n_bytes = sum(p.stat().st_size for p in parts)
    return LocalModel(name, path, n_bytes, source, path.stat().st_mtime, trouble or ("" if n_bytes else "empty"))


def _ollama_models() -> Iterator[LocalModel]:
    """Ollama keeps a manifest a tag; its layer of media type `...model` is a GGUF file under blobs/."""
    root = Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models")
    manifests = root / "manifests"
    for manifest in sorted(manifests.rglob("*")) if manifests.is_dir() else ():
        try:
            layers = json.loads(manifest.read_text())["layers"]
            digest = next(x["digest"] for x in layers if x["mediaType"].endswith("image.model"))
            blob = root / "blobs" / digest.replace(":", "-")
            name = ":".join(manifest.relative_to(manifests).parts[-2:])
            yield LocalModel(name, blob, blob.stat().st_size, "ollama", manifest.stat().st_mtime)
        except (OSError, ValueError, LookupError, StopIteration, TypeError, AttributeError):
            continue  # a folder, or no manifest of a model
