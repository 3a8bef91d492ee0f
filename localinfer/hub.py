"""Models on the Hugging Face hub: `hf:OWNER/REPO[:QUANT]` or `hf:OWNER/REPO/FILE.gguf` -> files of a repository.

Listing, access and the cache are huggingface_hub's, with its variables (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, ...);
there is no second cache. A repository is a choice of GGUF files or, without any, one folder in mlx-lm's format. A file
that the hub stores by content has its SHA-256 as the name of its blob in that cache: after a download the bytes are
hashed, and what does not match is deleted.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from localinfer.errors import FormatError, UsageError
from localinfer.hub_folder import check_folder, folder_files
from localinfer.store import SHARD
from localinfer.units import format_bytes

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REFERENCE = re.compile(rf"hf:({_PART})/({_PART})(?::([A-Za-z0-9_.-]+)|/(.+\.gguf))?")
_QUANT = re.compile(r"(?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|F16|F32)(?=$|[-._])", re.IGNORECASE)
PREFERRED = ("Q4_K_M", "Q4_K_S", "Q5_K_M", "Q4_0", "Q8_0", "MXFP4", "F16", "BF16")  # when a reference names none
SPARE_BYTES = 256 * 2**20  # disk space to leave free
HASH_BLOCK = 2**22
_HTTP_LIBRARIES = ("httpx", "httpx2", "httpcore", "httpcore2")  # huggingface_hub 1 and 2 let their errors through

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Reference:
    """owner/repo, and what of it was asked for: a quantization, a file, or neither."""

    repo: str
    quant: str = ""
    file: str = ""


@dataclass(frozen=True)
class RemoteModel:
    """One quantization in a repository: its files (shards in order), sizes in bytes; or all files of a folder."""

    repo: str
    quant: str
    files: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return sum(self.sizes)

    @property
    def is_folder(self) -> bool:
        return not self.files[0].endswith(".gguf")

    @property
    def reference(self) -> str:
        if self.is_folder:
            return f"hf:{self.repo}"
        return f"hf:{self.repo}:{self.quant}" if self.quant else f"hf:{self.repo}/{self.files[0]}"


def parse_reference(text: str) -> Reference:
    match = _REFERENCE.fullmatch(text)
    if not match or ".." in text:
        raise UsageError(f"expected hf:OWNER/REPO, hf:OWNER/REPO:QUANT or hf:OWNER/REPO/FILE.gguf, found {text!r}")
    return Reference(f"{match[1]}/{match[2]}", match[3] or "", match[4] or "")


def list_models(repo: str) -> list[RemoteModel]:
    """The quantizations of a repository, smallest first. One request; offline (HF_HUB_OFFLINE) what the cache has."""
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        return _cached_models(repo)
    with hub_errors(repo):
        info = HfApi().model_info(repo, files_metadata=True)
    return group_files(repo, {s.rfilename: s.size or 0 for s in info.siblings or ()})


def _cached_models(repo: str) -> list[RemoteModel]:
    """Models of the newest snapshot in the cache. UsageError where there is none."""
    from huggingface_hub import constants

    snapshots = Path(constants.HF_HUB_CACHE, f"models--{repo.replace('/', '--')}", "snapshots")
    newest = max(snapshots.glob("*"), key=lambda p: p.stat().st_mtime, default=None)
    files = [p for p in newest.rglob("*") if p.is_file()] if newest else []
    models = group_files(repo, {p.relative_to(newest).as_posix(): p.stat().st_size for p in files}) if newest else []
    if not models:
        raise UsageError(f"{repo}: not in the cache, and HF_HUB_OFFLINE is set", "unset it to download")
    return models


def cached_path(model: RemoteModel) -> Path | None:
    """The first file or the folder, where the cache has all files."""
    found = [_in_cache(model.repo, name) for name in model.files]
    return _place(model, found[0]) if found[0] and all(found) else None


def _place(model: RemoteModel, first: Path) -> Path:
    return first.parent if model.is_folder else first


def _in_cache(repo: str, name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repo, name)
    return Path(path) if isinstance(path, str) else None


def group_files(repo: str, sizes: dict[str, int]) -> list[RemoteModel]:
    """File names and sizes -> models: shards together, vision towers and other files left out. Without any GGUF file
    the folder in mlx-lm's format, if the repository is one."""
    groups: dict[str, list[str]] = {}
    for name in sorted(sizes):
        path = PurePosixPath(name)
        if path.suffix == ".gguf" and not path.name.startswith("mmproj") and ".." not in path.parts:
            groups.setdefault(SHARD.sub("", str(path.with_suffix(""))), []).append(name)
    found = [
        RemoteModel(repo, quant_of(base), tuple(files), tuple(sizes[f] for f in files))
        for base, files in groups.items()
    ]
    if not found and (files := folder_files(sizes)):
        found = [RemoteModel(repo, "", tuple(files), tuple(sizes[f] for f in files))]
    return sorted(found, key=lambda m: (m.n_bytes, m.files))


def quant_of(name: str) -> str:
    """`Qwen3-8B-Q4_K_M` -> `Q4_K_M`; empty where the name tells none."""
    found = _QUANT.findall(PurePosixPath(name).name)
    return found[-1].upper() if found else ""


def choose(models: list[RemoteModel], reference: Reference) -> RemoteModel:
    """The one model meant. UsageError lists ready-to-paste references where it is not clear which."""
    if not models:
        raise UsageError(
            f"{reference.repo}: no GGUF file in this repository, and no model folder (config.json, model*.safetensors)",
            "look for one with GGUF or MLX in its name",
        )
    if reference.file:
        fitting = [m for m in models if reference.file in m.files]
    elif reference.quant:
        fitting = [m for m in models if m.quant == reference.quant.upper()]
    else:
        by_quant = {m.quant: m for m in reversed(models)}
        fitting = models if len(models) == 1 else [by_quant[q] for q in PREFERRED if q in by_quant][:1]
    if len(fitting) == 1:
        return fitting[0]
    offered = fitting or models
    choices = ", ".join(f"{ref} ({format_bytes(m.n_bytes)})" for ref, m in unique_references(offered).items())
    wanted = reference.file or reference.quant
    if not wanted:
        asked = f"{len(models)} different"
    else:
        asked = f"{wanted}: {len(fitting)} such" if fitting else f"{wanted}: none of the {len(models)}"
    raise UsageError(
        f"{reference.repo}: {asked} models in this repository",
        f"one of {choices}; which of them fit: localinfer fit hf:{reference.repo}",
    )


def unique_references(models: list[RemoteModel]) -> dict[str, RemoteModel]:
    """What to type for each: by quantization, or by file where several files have the same."""
    times = Counter(m.quant for m in models)
    return {m.reference if times[m.quant] == 1 else f"hf:{m.repo}/{m.files[0]}": m for m in models}


def download(model: RemoteModel, progress: Progress = lambda done, total: None) -> Path:
    """Fetch all files into the hub's cache, check their hashes; the path of the first, or the folder. Resumes what was
    cut. Of a folder that could not be opened no weights are fetched."""
    from huggingface_hub import constants, hf_hub_download

    done, first = 0, None
    _check_space(model, Path(constants.HF_HUB_CACHE))
    for name in model.files:
        before = done

        class Bar(_Bar):
            report = staticmethod(lambda n, before=before: progress(before + n, model.n_bytes))

        with hub_errors(model.repo):
            path = Path(hf_hub_download(model.repo, name, tqdm_class=Bar))
        check_hash(path)
        if first is None and model.is_folder:
            check_folder(model.repo, path, model.files)
        done += path.stat().st_size
        first = first or path
    progress(model.n_bytes, model.n_bytes)
    assert first is not None
    return _place(model, first)


def check_hash(path: Path) -> None:
    """Compare a cached file with its blob's name, where that is a SHA-256; delete and say so on a mismatch."""
    blob = path.resolve()
    if not re.fullmatch(r"[0-9a-f]{64}", blob.name):
        return  # a small file that the hub keeps in git, named by another hash
    digest = hashlib.sha256()
    with blob.open("rb") as f:
        while block := f.read(HASH_BLOCK):
            digest.update(block)
    if digest.hexdigest() != blob.name:
        blob.unlink()
        path.unlink(missing_ok=True)
        raise FormatError(
            f"{path.name}: expected SHA-256 {blob.name[:16]}..., found {digest.hexdigest()[:16]}...",
            "the file was deleted; pull again",
        )


def _check_space(model: RemoteModel, folder: Path) -> None:
    missing = sum(n for name, n in zip(model.files, model.sizes, strict=True) if _in_cache(model.repo, name) is None)
    there = next(p for p in (folder, *folder.parents) if p.is_dir())
    free = shutil.disk_usage(there).free
    if missing and missing + SPARE_BYTES > free:
        raise UsageError(
            f"{model.reference}: needs {format_bytes(missing)}, {format_bytes(free)} are free at {there}",
            "free some space, or set HF_HOME to a larger disk",
        )


class _Bar:
    """What hf_hub_download wants of a tqdm, reduced to counting."""

    report: Callable[[int], None]

    def __init__(self, *args: Any, total: float | None = None, initial: float = 0, **kwargs: Any) -> None:
        self.n = initial
        self.total = total

    def update(self, n: float = 1) -> None:
        self.n += n
        self.report(int(self.n))

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *args: object) -> None:
        """Nothing to close."""

    def close(self) -> None:
        """Nothing to close."""

    def refresh(self) -> None:
        """Drawing is the caller's."""

    def set_description(self, *args: Any, **kwargs: Any) -> None:
        """Drawing is the caller's."""

    set_postfix_str = set_description_str = set_description


def is_transport_error(error: Exception) -> bool:
    """Of the system or of the HTTP library, and not a mistake of ours."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _HTTP_LIBRARIES


@contextmanager
def hub_errors(repo: str) -> Iterator[None]:
    """The hub's many exceptions as one line each that says what to do."""
    from huggingface_hub import errors, logging

    logging.set_verbosity_error()  # retries need no line each; what fails in the end is said below
    try:
        yield
    except errors.GatedRepoError:
        raise UsageError(
            f"{repo}: access has to be asked for", f"open https://huggingface.co/{repo}, agree, then: hf auth login"
        ) from None
    except errors.RepositoryNotFoundError:
        raise UsageError(f"{repo}: no such repository, or a private one", "check the name, or: hf auth login") from None
    except errors.EntryNotFoundError:
        raise UsageError(f"{repo}: no such file in this repository", f"localinfer pull hf:{repo}") from None
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError):
        raise UsageError(f"{repo}: not in the cache, and the hub cannot be reached", "is the network there?") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no answer"
        hint = {
            401: "hf auth login",
            403: "is the token allowed to read this?",
            429: "too many requests: wait a little",
        }
        raise UsageError(f"{repo}: the hub answered {status}", hint.get(status, "try again later")) from None
    except Exception as error:
        if not is_transport_error(error):
            raise
        reason = str(error).strip()[:200] or type(error).__name__
        raise UsageError(f"{repo}: the hub does not answer: {reason}", "try again; what has arrived is kept") from None
