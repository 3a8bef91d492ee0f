"""localinfer: run a quantized GGUF model on your own machine.

    import localinfer

    with localinfer.load("model.gguf", ctx=4096, kv="f16", backend="cpu", threads=2) as engine:
        ids = engine.tokenizer.encode("The capital of France is")
        for event in engine.generate(ids, localinfer.SamplingParams(temperature=0, max_tokens=32)):
            ...

Importing this package loads no array library: the names below are fetched when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from localinfer.engine.engine import Engine
    from localinfer.engine.params import EngineOptions, SamplingParams
    from localinfer.errors import LocalinferError

__version__ = "0.1.0"
__all__ = ["Engine", "EngineOptions", "LocalinferError", "SamplingParams", "__version__", "load"]

_HOMES = {
    "Engine": "localinfer.engine.engine",
    "EngineOptions": "localinfer.engine.params",
    "SamplingParams": "localinfer.engine.params",
    "LocalinferError": "localinfer.errors",
}


def load(path: str | os.PathLike[str], **options: Any) -> Engine:
    """Load a model in this process; options are the fields of EngineOptions. Use it as a context manager.

    Every call on the engine must come from the thread that loaded it. Raises LocalinferError.
    """
    from localinfer.engine.opening import open_engine
    from localinfer.engine.params import EngineOptions

    return open_engine(path, EngineOptions(**options))


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
