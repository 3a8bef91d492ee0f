"""MODEL, as a user types it -> a path. `demo` and `hf:` references are downloaded when they are not there yet."""

from __future__ import annotations

from pathlib import Path

from localinfer.cli.progress import byte_progress
from localinfer.errors import UsageError


def resolve(reference: str) -> Path:
    """UsageError, with what is there, when nothing answers to the reference."""
    if reference == "demo":
        return _demo()
    if reference.startswith("hf:"):
        return _hub(reference)
    path = Path(reference).expanduser()
    if path.exists():
        return path
    return _by_name(reference)


def _demo() -> Path:
    from localinfer.demo_model import fetch_demo, is_there

    if is_there():
        return fetch_demo()
    with byte_progress("demo: SmolLM2-135M-Instruct") as progress:
        return fetch_demo(progress)


def _hub(reference: str) -> Path:
    from localinfer.cli.pull import pull_hub

    return pull_hub(reference)


def _by_name(reference: str) -> Path:
    from localinfer.store import find_model, find_models, how_to_delete_it

    if model := find_model(reference):
        if model.trouble:
            repair = f"{how_to_delete_it(model)}, then pull again"
            raise UsageError(f"{reference}: {model.trouble} at {model.path}", repair)
        return model.path
    names = list(dict.fromkeys(["demo", *(m.name for m in find_models())]))
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    raise UsageError(f"{reference}: no such file, and no local model of that name", f"there are: {shown}")
