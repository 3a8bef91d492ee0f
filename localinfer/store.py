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
from localinfer.other_programs import how_to_delete, lmstudio_folders, ollama_folders, ollama_models, program_name

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
    found = [model for source, folder in _folders() for model in _models_in(folder, source)]
    return sorted([*found, *_ollama_models()], key=lambda m: (m.name.lower(), not m.ours, str(m.path)))


def models_beside(path: Path) -> list[LocalModel]:
    """The .gguf files in the folder of one that lies elsewhere, named after the folder."""
    found = []
    with suppress(OSError):
        for file in sorted(p for p in path.parent.iterdir() if is_model_file(p)):
            with suppress(OSError):
                found.append(_describe(file, path.parent.name, SHARD.search(file.stem)))
    return found


def unreadable_folders() -> list[tuple[str, Path]]:
    """Those stores of (program, folder) that are there but that this user may not look into."""
    stores = [*_folders(), *(("ollama", folder / "manifests") for folder in ollama_folders())]
    return [(source, folder) for source, folder in stores if _is_refused(folder)]


def _is_refused(folder: Path) -> bool:
    try:
        os.scandir(folder).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


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
        owner = program_name(model.source)
        raise UsageError(f"{model.name}: belongs to {owner}, localinfer deletes only its own", how_to_delete_it(model))
    if model.path.is_dir() and model.path.parent.name == "snapshots":
        return _delete_folder(model.path)
    if model.path.is_dir():
        raise UsageError(f"{model.name}: is a folder, localinfer deletes only what it downloaded", str(model.path))
    return sum(_delete(path) for path in shards_of(model.path))


def how_to_delete_it(model: LocalModel) -> str:
    """The command, or the program that does it."""
    if model.source in OURS_TO_DELETE:
        return f"localinfer rm {model.name}"
    return how_to_delete(model.source, model.name)


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
    for folder in lmstudio_folders():
        yield "lmstudio", folder


def _hub_cache() -> Path:
    """Where huggingface_hub keeps its files, by the variables that it reads itself."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface")
    return Path(home).expanduser() / "hub"


def _models_in(folder: Path, source: str) -> Iterator[LocalModel]:
    for path in _files(folder):
        if path.name == "config.json":
            yield from _checkpoint(path, source)
        elif is_model_file(path):
            try:
                yield _describe(path, source, SHARD.search(path.stem))
            except OSError:
                continue  # a dangling link, or gone since the folder was read


def is_model_file(path: Path) -> bool:
    """A .gguf file, of a split one the first; but no vision tower, which is no model by itself."""
    if path.suffix != ".gguf" or "mmproj" in path.name.lower():
        return False
    match = SHARD.search(path.stem)
    return match is None or match[1] == "00001"


def _checkpoint(config: Path, source: str) -> Iterator[LocalModel]:
    """The folder of a config.json where mlx-lm can open it and we can plan it. In the hub's cache it is called by the
    repository's name."""
    path = config.parent
    try:
        kind = json.loads(config.read_bytes()).get("model_type")
        weights = list(path.glob("model*.safetensors"))
        if kind not in MODEL_TYPES or not weights or not (path / "tokenizer.json").is_file():
            return
        n_bytes = sum(p.stat().st_size for p in weights)
        trouble = _missing_shards(path, {p.name for p in weights})
        yield LocalModel(_folder_name(path), path, n_bytes, source, config.stat().st_mtime, trouble)
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return  # not a model's, or gone since the folder was read


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
    for name, path, stat in ollama_models():
        yield LocalModel(name, path, stat.st_size, "ollama", stat.st_mtime)


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, through links to folders too (each folder once): large models live on other disks."""
    seen: set[str] = set()
    for at, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(at)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from (Path(at, name) for name in sorted(names))
