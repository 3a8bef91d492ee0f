"""A model on the hub as a GGUFFile, by range requests: its headers are fetched, its weights are not.

The headers go to the start of otherwise empty (sparse) files of the real lengths, so everything that reads a header
works on them as on the real files. Of several quantizations of a model, those after the first fetch only what differs:
arrays that start alike (a vocabulary) are taken from the first, and the result is checked against the file's length.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from localinfer.errors import FormatError, LocalinferError, UsageError
from localinfer.formats.gguf import GGUFFile
from localinfer.formats.gguf_header import Header, TensorInfo
from localinfer.formats.gguf_prefix import MoreNeeded, array_bytes, read_prefix
from localinfer.hub import RemoteModel, hub_errors, is_transport_error
from localinfer.units import format_bytes

FIRST_BYTES = 16 * 2**10
STEP_BYTES = 2 * 2**10  # at least so much a request, or
STEP_SHARE = 0.05  # of what is here, so that no more than that is fetched in vain
MAX_HEADER_BYTES = 64 * 2**20
CONFIG_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")  # part of the config
MAX_CONFIG_TENSOR_BYTES = 2**20
TRIES = 4  # requests in a row that bring nothing
TIMEOUT_S = 20.0
AT_ONCE = 4
LONG_ARRAY = 1000  # elements from which an array is worth keeping

Known = dict[tuple[str, bytes], bytes]  # arrays of a header that was read before


class RemoteFile:
    """One file of a repository, read in pieces. `received` counts the bytes that came."""

    def __init__(self, repo: str, name: str, n_bytes: int) -> None:
        from huggingface_hub import hf_hub_url

        self.repo, self.name, self.n_bytes = repo, name, n_bytes
        self.received = 0
        self.takes_ranges = True
        self._url = hf_hub_url(repo, name)

    def read(self, start: int, end: int) -> bytes:
        """Bytes start to end. UsageError where they cannot be had; a connection that is cut is taken up again."""
        got, tries = bytearray(), 0
        with hub_errors(self.repo):
            while len(got) < end - start:
                piece = self._request(start + len(got), end)
                tries = 0 if piece else tries + 1
                if tries == TRIES:
                    raise UsageError(f"{self.repo}: {self.name} breaks off at {start + len(got)} bytes", "try again")
                got += piece
        return bytes(got)

    def _request(self, start: int, end: int) -> bytes:
        """What one request brings of start to end; less where the connection breaks."""
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff

        headers = {**build_hf_headers(), "Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        with http_stream_backoff("GET", self._url, headers=headers, timeout=TIMEOUT_S, max_retries=2) as response:
            hf_raise_for_status(response)
            self.takes_ranges = response.status_code == 206
            skip = 0 if self.takes_ranges else start  # the whole file comes
            got = bytearray()
            try:
                for piece in response.iter_raw():
                    self.received += len(piece)
                    got += piece
                    if len(got) >= skip + end - start:
                        break
            except Exception as error:
                if not is_transport_error(error):
                    raise  # else the connection was cut: read() goes on from here
        return bytes(got[skip : skip + end - start])


def read_header(file: RemoteFile, part: int, known: Known) -> tuple[Header, bytes]:
    """The header and its bytes. What it shares with `known` is not fetched; `known` learns this header's arrays."""
    header, data, borrowed = _read(file, part, known)
    if borrowed and not -(-header.data_end // header.alignment) * header.alignment >= file.n_bytes >= header.data_end:
        header, data, _ = _read(file, part, {})
    entries = sorted(header.entries.values(), key=lambda e: e.offset)
    for entry, following in pairwise(entries):
        if entry.is_array and entry.count >= LONG_ARRAY:
            kind, content = array_bytes(data, entry, following)
            known.setdefault(kind, content)
    return header, data


def _read(file: RemoteFile, part: int, known: Known) -> tuple[Header, bytes, bool]:
    data, borrowed = file.read(0, min(FIRST_BYTES, file.n_bytes)), False
    while True:
        try:
            return read_prefix(data, file.n_bytes, f"hf:{file.repo}/{file.name}", part), data, borrowed
        except MoreNeeded as need:
            if need.array and (content := known.get(need.array.kind)):
                here = data[need.array.start :]
                if len(content) > len(here) and content.startswith(here):
                    data, borrowed = data[: need.array.start] + content, True
                    continue
            data += file.read(len(data), _next_end(file, len(data), need.end))


def _next_end(file: RemoteFile, here: int, needed: int) -> int:
    """How far to read now. A server that sends everything anyway is asked less often."""
    step = max(STEP_BYTES, int(here * (STEP_SHARE if file.takes_ranges else 1)))
    end = max(needed, here + step)
    if needed > MAX_HEADER_BYTES:
        raise FormatError(f"hf:{file.repo}/{file.name}: a header of over {format_bytes(MAX_HEADER_BYTES)}")
    return min(end, MAX_HEADER_BYTES, file.n_bytes)


@contextmanager
def open_remote(model: RemoteModel, known: Known | None = None) -> Iterator[GGUFFile]:
    """The model's header, as a file that is open; `raw` gives zeros."""
    known = {} if known is None else known
    with TemporaryDirectory(prefix="localinfer-header-") as folder:
        place = f"hf:{model.repo}/"
        with ThreadPoolExecutor(AT_ONCE) as pool:
            tasks = [
                pool.submit(_write_header, model.repo, name, n_bytes, part, Path(folder), known)
                for part, (name, n_bytes) in enumerate(zip(model.files, model.sizes, strict=True))
            ]
            paths = [task.result() for task in tasks]
        try:
            file = GGUFFile.open(paths[0])
        except LocalinferError as error:  # where it was written is nobody's business
            raise type(error)(error.message.replace(f"{folder}/", place), error.hint) from None
        with file:
            file.path = Path(place + model.files[0])
            file.paths = tuple(Path(place + name) for name in model.files)
            yield file


def _write_header(repo: str, name: str, n_bytes: int, part: int, folder: Path, known: Known) -> Path:
    """A file of full length with the header, and the few tensors that belong to the config."""
    file = RemoteFile(repo, name, n_bytes)
    header, data = read_header(file, part, known)
    path = folder / Path(name).name
    with path.open("wb") as out:
        out.write(data[: header.data_start])
        out.truncate(n_bytes)
        for info in filter(_is_config, header.tensors):
            out.seek(info.offset)
            out.write(file.read(info.offset, info.offset + info.n_bytes))
    return path


def _is_config(info: TensorInfo) -> bool:
    return info.name in CONFIG_TENSORS and info.n_bytes <= MAX_CONFIG_TENSOR_BYTES
