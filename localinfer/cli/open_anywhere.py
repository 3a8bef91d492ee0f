"""MODEL, opened for its header: a file or folder here, or on the hub, where only the header is fetched."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from localinfer.formats.model_file import open_model_file

if TYPE_CHECKING:
    from localinfer.formats.model_file import ModelFile


def open_anywhere(text: str) -> AbstractContextManager[ModelFile]:
    """Use it in a `with` statement. Raises the error tree."""
    if text.startswith("hf:"):
        from localinfer.hub import cached_path, choose, list_models, parse_reference
        from localinfer.remote import open_remote
        from localinfer.remote_folder import open_remote_folder

        reference = parse_reference(text)
        model = choose(list_models(reference.repo), reference)
        cached = cached_path(model)
        if cached:
            return open_model_file(cached)
        return open_remote_folder(model) if model.is_folder else open_remote(model)
    path = Path(text).expanduser()
    if path.exists():
        return open_model_file(path)
    from localinfer.cli.resolve import resolve  # names: more to import than a header takes to read

    return open_model_file(resolve(text))
