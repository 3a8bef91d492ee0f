"""A model folder on the hub as a Checkpoint: configuration and headers are fetched, weights are not.

As in remote.py, headers go to the start of otherwise empty (sparse) files of the real lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from localinfer.errors import FormatError, LocalinferError
from localinfer.formats.checkpoint import CONFIG, INDEX, MAX_JSON_BYTES, Checkpoint
from localinfer.hub import RemoteModel
from localinfer.remote import AT_ONCE, FIRST_BYTES, MAX_HEADER_BYTES, RemoteFile
from localinfer.units import format_bytes

READ = (CONFIG, INDEX, "tokenizer_config.json", "chat_template.jinja")  # whole; the tokenizer is not needed


@contextmanager
def open_remote_folder(model: RemoteModel) -> Iterator[Checkpoint]:
    """The folder's configuration and headers. Raises the error tree, with the repository's name for the place."""
    place = f"hf:{model.repo}"
    with TemporaryDirectory(prefix="localinfer-header-") as temporary:
        folder = Path(temporary, model.repo.rpartition("/")[2])
        folder.mkdir()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            files = zip(model.files, model.sizes, strict=True)
            list(pool.map(lambda file: _write(RemoteFile(model.repo, *file), folder), files))
        try:
            checkpoint = Checkpoint.open(folder)
            checkpoint.path = Path(place)
            yield checkpoint
        except LocalinferError as error:  # where it was written is nobody's business
            raise type(error)(error.message.replace(str(folder), place), error.hint) from None


def _write(file: RemoteFile, folder: Path) -> None:
    path = folder / file.name
    if file.name in READ:
        path.write_bytes(file.read(0, min(file.n_bytes, MAX_JSON_BYTES + 1)))
    elif path.suffix == ".safetensors":
        with path.open("wb") as out:
            out.write(_header(file))
            out.truncate(file.n_bytes)


def _header(file: RemoteFile) -> bytes:
    """The length and the table of tensors; a length that cannot be is left for the reader to refuse."""
    data = file.read(0, min(FIRST_BYTES, file.n_bytes))
    end = 8 + int.from_bytes(data[:8], "little")
    if len(data) < end <= file.n_bytes:
        if end > MAX_HEADER_BYTES:
            raise FormatError(f"hf:{file.repo}/{file.name}: a header of over {format_bytes(MAX_HEADER_BYTES)}")
        data += file.read(len(data), end)
    return data[:end]
