"""What a file that is no GGUF is instead: most are downloads gone wrong, and a name for it saves a search."""

from __future__ import annotations

from localinfer.errors import FormatError

_AGAIN = "download the model file again"
_CONVERT = "download a GGUF of this model, or convert it with llama.cpp's convert_hf_to_gguf.py"

# First bytes -> what that is, what to do. Order matters only where one prefix contains another.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "a Git-LFS pointer, not the file it points to", "run `git lfs pull`, or download it"),
    (b"GGUF"[::-1], "a big-endian GGUF", "download the little-endian file of this model"),
    (b"lmgg", "a GGML file from before GGUF", _CONVERT),
    (b"fmgg", "a GGMF file from before GGUF", _CONVERT),
    (b"tjgg", "a GGJT file from before GGUF", _CONVERT),
    (b"algg", "a GGLA adapter from before GGUF", _CONVERT),
    (b"PK\x03\x04", "a zip archive (or a PyTorch checkpoint)", "unpack it, or " + _CONVERT),
    (b"\x80\x02", "a Python pickle (a PyTorch checkpoint)", _CONVERT),
    (b"\x89HDF", "an HDF5 file", _CONVERT),
    (b"\x1f\x8b", "gzip data", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd data", "unpack it first"),
    (b"\xfd7zXZ\x00", "xz data", "unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first"),
    (b"Entry not found", "an error message of a download server", _AGAIN),
    (b"Repository not found", "an error message of a download server", _AGAIN),
    (b"Invalid username or password", "an error message of a download server", _AGAIN),
    (b"Access to model", "an error message of a download server: the model asks for a login", _AGAIN),
)


def not_a_gguf(path: str, head: bytes) -> FormatError:
    """The error for a file whose first bytes are `head` (some 512 of them) and not GGUF's magic."""
    found, hint = _identify(head)
    return FormatError(f"{path}: expected a GGUF file (magic 'GGUF' at offset 0), found {found}", hint)


def _identify(head: bytes) -> tuple[str, str]:
    for prefix, found, hint in _SIGNATURES:
        if head.startswith(prefix):
            return found, hint
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head")):
        return "an HTML page", "the link led to a web page, not to the file: " + _AGAIN
    if text.startswith(b"<"):
        return "an XML document", "probably a server's error message: " + _AGAIN
    if _is_safetensors(head):
        return "a safetensors file", _CONVERT
    if text.startswith((b"{", b"[")):
        return "a JSON document", _AGAIN
    if not head.strip(b"\0"):
        return "only zero bytes", "the download was not finished: " + _AGAIN
    return f"bytes {head[:4].hex(' ')}", "check that this is the model file"


def _is_safetensors(head: bytes) -> bool:
    """An 8-byte length, then a JSON object."""
    return len(head) > 9 and int.from_bytes(head[:8], "little") < 2**32 and head[8:16].lstrip()[:1] == b"{"
