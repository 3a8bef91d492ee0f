"""The models on this machine as the model list shows them: found, planned, deleted, pulled. Runs in threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localinfer.errors import LocalinferError, UsageError
from localinfer.other_programs import PROGRAMS, how_to_delete, program_name
from localinfer.tui.markdown.rows import visible
from localinfer.units import format_bytes

TEMPLATE = "tokenizer.chat_template"


@dataclass
class ModelRow:
    """One local model; the fields of its plan are filled in later. `verdict` '' means: not looked at yet."""

    name: str
    path: str
    n_bytes: int
    source: str
    trouble: str = ""
    quant: str = ""
    ctx_train: int = 0
    verdict: str = ""
    plan: Any = None

    @property
    def deletable(self) -> bool:
        from localinfer.store import OURS_TO_DELETE

        return self.source in OURS_TO_DELETE

    @property
    def owner(self) -> str:
        """The program or the folder that it belongs to, as people call it."""
        return program_name(self.source)


def local_models(opened: str = "") -> list[ModelRow]:
    """Names, sizes and where they come from; opens no model. What lies beside the `opened` one belongs to the list."""
    from localinfer.store import find_models, models_beside

    beside = models_beside(Path(opened)) if opened else []
    rows: dict[str, ModelRow] = {}
    for m in find_models():
        row = rows.setdefault(str(m.path), ModelRow("", str(m.path), m.n_bytes, m.source, m.trouble))
        row.name += f", {m.name}" if row.name else m.name  # Ollama keeps one file for several names
    for m in beside:
        rows.setdefault(str(m.path), ModelRow(m.name, str(m.path), m.n_bytes, m.source, m.trouble))
    return sorted(rows.values(), key=lambda row: row.name.lower())


def unreadable_stores() -> list[str]:
    """A line for each store of another program that this user may not look into."""
    from localinfer.store import unreadable_folders

    return [f"{program_name(source)}'s models cannot be read: {folder}" for source, folder in unreadable_folders()]


def add_plan(row: ModelRow, plan: Any) -> None:
    """What the planner says about a model."""
    row.plan, row.verdict = plan, plan.verdict
    row.quant, row.ctx_train = plan.model.quant, plan.model.n_ctx_train or 0


def delete_question(row: ModelRow) -> str:
    """What is asked before a model is deleted; where it lies in a cache of several programs, that too."""
    question = f"Delete {visible(row.name)}, {format_bytes(row.n_bytes)}?"
    if row.source == "huggingface":
        question += "\nIt lies in the Hugging Face cache, which other programs use too."
    return question


def delete_refusal(row: ModelRow) -> str:
    """Whose model it is and how it is deleted there."""
    names = row.name.split(", ") if row.source == "ollama" else [row.name]
    how = how_to_delete(row.source, " ".join(names)) if row.source in PROGRAMS else f"delete {row.path} yourself"
    return f"It belongs to {visible(row.owner)}: {visible(how)}."


def delete_model(row: ModelRow) -> int:
    """Bytes freed. UsageError for a model that belongs to another program."""
    from localinfer.store import find_models, remove

    model = next((m for m in find_models() if str(m.path) == row.path), None)
    if model is None:
        raise UsageError(f"{row.name} is gone already")
    try:
        return remove(model)
    except OSError as error:
        raise UsageError(f"cannot delete {row.path}: {error.strerror}") from error


class PullStopped(Exception):
    """The user stopped a download; what is there stays, and the next try goes on from it."""


def pull(reference: str, progress: Callable[[int, int], None]) -> Path:
    """Download `demo` or an hf: reference. `progress(done, total)` may raise PullStopped."""
    if reference == "demo":
        from localinfer.demo_model import fetch_demo

        return fetch_demo(progress)
    from localinfer.hub import choose, download, list_models, parse_reference

    wanted = parse_reference(reference if reference.startswith("hf:") else f"hf:{reference}")
    return download(choose(list_models(wanted.repo), wanted), progress)


def details(path: str) -> list[tuple[str, str]]:
    """What the file says about itself: metadata, layers, template. LocalinferError when it is no sound model."""
    from localinfer.formats.model_file import open_model_file

    with open_model_file(path) as file:
        rows = [("", "File"), ("path", path), ("size", format_bytes(file.file_bytes))]
        rows += [("", "Metadata"), *((key, _value(file, key)) for key in file.metadata if key != TEMPLATE)]
        rows += [("", "Weights"), *_weights(file)]
        if TEMPLATE in file.metadata:
            rows += [("", "Chat template"), (TEMPLATE, _value(file, TEMPLATE) + "\n")]
    return rows


def _weights(file: Any) -> list[tuple[str, str]]:
    """How many tensors of which type, and the shapes of one layer: the others are as it is, or nearly."""
    types: dict[str, list[int]] = {}
    for tensor in file.tensors.values():
        types.setdefault(tensor.type.name, []).append(tensor.n_bytes)
    rows = [(name, f"{len(sizes)} tensors, {format_bytes(sum(sizes))}") for name, sizes in types.items()]
    for tensor in file.tensors.values():
        if not re.match(r"blk\.[1-9]", tensor.name):
            rows.append((tensor.name, f"{tensor.type.name}  {' × '.join(map(str, tensor.shape))}"))
    return rows


def _value(file: Any, key: str) -> str:
    """A number or text as it is; of an array only its type and length, for a vocabulary takes long to decode."""
    if isinstance(file.metadata, dict):  # a folder in mlx-lm's format
        return str(file.metadata[key])[:2000]
    entry = file.metadata.entry(key)
    try:
        return str(entry.type_name if entry.is_array else file.metadata[key])
    except LocalinferError as error:
        return f"({error.message})"


def progress_text(done: int, total: int) -> str:
    """`120 of 512 MiB, 23 %`."""
    share = f", {100 * done // total} %" if total else ""
    return f"{format_bytes(done)} of {format_bytes(total) if total else '?'}{share}"
