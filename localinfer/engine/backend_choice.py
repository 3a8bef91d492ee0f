"""Which backend runs a model: a name as the user gave it -> a Backend. Only the chosen one is imported."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from localinfer.device import mlx_uses_cuda
from localinfer.errors import BackendError, UsageError
from localinfer.formats.gguf import GGUFFile

if TYPE_CHECKING:
    from localinfer.backends.base import Backend
    from localinfer.formats.model_file import ModelFile


def open_backend(name: str, threads: int | None = None) -> Backend:
    """`auto`: mlx where it has a GPU, else cpu. BackendError when what was asked for is not there."""
    return _OPENERS[choose(name)](threads)


def backend_for(file: ModelFile, name: str) -> str:
    """The backend that can run this kind of file: mlx for a folder in mlx-lm's format, else what was asked for."""
    if isinstance(file, GGUFFile):
        return name
    if name not in ("auto", "mlx"):
        raise UsageError(
            f"backend: a folder in mlx-lm's format runs through mlx, found {name!r}",
            "leave --backend out, or give a .gguf file",
        )
    return "mlx"


def open_backend_for(file: ModelFile, name: str, threads: int | None = None) -> Backend:
    """As open_backend, for a file of either kind."""
    name = backend_for(file, name)
    return open_backend(name, threads) if isinstance(file, GGUFFile) else _open_mlx_lm()


def choose(name: str) -> str:
    return ("mlx" if mlx_has_gpu() else "cpu") if name == "auto" else name


def mlx_has_gpu() -> bool:
    """Looks before it imports: MLX takes a while to load, and on Linux it is mostly there for checking."""
    if find_spec("mlx") is None or (sys.platform == "linux" and find_spec("mlx.lib") is None):
        return False
    if sys.platform == "linux" and not mlx_uses_cuda():
        return False
    import mlx.core as mx

    return bool(mx.metal.is_available()) or bool(getattr(mx, "cuda", None) and mx.cuda.is_available())


def _open_cpu(threads: int | None) -> Any:
    from localinfer.backends.cpu.backend import open_cpu

    return open_cpu(threads)


def _open_mlx(threads: int | None) -> Any:
    if find_spec("mlx") is None:
        raise BackendError(
            "backend mlx: the package mlx is not installed", "pip install 'localinfer[mlx]', or --backend cpu"
        )
    from localinfer.backends.mlx.backend import MLXBackend

    return MLXBackend()


def _open_mlx_lm() -> Any:
    if find_spec("mlx") is None or find_spec("mlx_lm") is None:
        raise BackendError("a folder in mlx-lm's format needs the package mlx-lm", "pip install 'localinfer[mlx]'")
    from localinfer.backends.mlx.checkpoint import MLXLMBackend

    return MLXLMBackend()


def _open_reference(threads: int | None) -> Any:
    from localinfer.backends.reference.backend import ReferenceBackend

    return ReferenceBackend()


_OPENERS = {"cpu": _open_cpu, "mlx": _open_mlx, "reference": _open_reference}
