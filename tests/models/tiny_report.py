"""Every tiny model on one backend, all ways through it: `python -m tests.models.tiny_report cpu` (or mlx).

LOCALINFER_SHARED names the folder that holds them. What was found goes to tests/docs/tiny_models.json, from which
docs/models.md takes its table. A file passes where its logits are llama.cpp's, prefilled whole, in chunks of 7, token
by token, and after coming back from other tokens.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from localinfer.backends.base import Backend
from localinfer.formats.gguf import GGUFFile
from localinfer.models.config import ModelConfig
from tests.models.tiny import (
    N_CTX,
    QUANTIZED_KL,
    TOLERANCE,
    TinyModel,
    has_quantized_tensors,
    logits_in_chunks,
    mean_kl,
    roll_back,
    shared_models,
)

RESULTS = Path(__file__).parents[1] / "docs" / "tiny_models.json"
CHUNKS = (96, 7, 1)


def open_backend(name: str) -> Backend:
    if name == "cpu":
        from localinfer.backends.cpu.backend import open_cpu

        return open_cpu(2)
    from localinfer.backends.mlx.backend import MLXBackend

    return MLXBackend()


def report(backend: Backend, tiny: TinyModel) -> dict[str, Any]:
    """The worst of all ways: largest |logit - golden|, mean KL divergence; and what rolling back did."""
    logits = [logits_in_chunks(backend, tiny, chunk) for chunk in CHUNKS]
    back = roll_back(backend, tiny)
    error = max(float(np.abs(got - tiny.logits).max()) for got in logits)
    kl = max(mean_kl(tiny.logits, got) for got in logits)
    if backend.device_info().backend == "cpu" and has_quantized_tensors(tiny):
        # Activations are rounded: each logit is off a little, and coming back must not make it worse.
        passed = kl < QUANTIZED_KL and back.back_error <= error
    else:
        passed = max(error, back.back_error) < TOLERANCE
    return {"passed": passed, "error": error, "kl": kl, "windows": _windows(tiny), **asdict(back)}


def _windows(tiny: TinyModel) -> list[int]:
    """Sizes of windows (or chunks of attention) that 96 tokens cross."""
    with GGUFFile.open(tiny.path) as f:
        layers = ModelConfig.from_gguf(f, N_CTX).layers
    sizes = {a.window or a.chunk for layer in layers if (a := layer.attention)}
    return sorted(size for size in sizes if 0 < size < len(tiny.tokens))


def results() -> dict[str, dict[str, dict[str, Any]]]:
    """What was found last, by backend and file."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def write(found: dict[str, dict[str, dict[str, Any]]]) -> None:
    """One line a file."""
    backends = [
        f"{json.dumps(backend)}: {{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in files.items()) + "}"
        for backend, files in sorted(found.items())
    ]
    RESULTS.write_text("{" + ",\n".join(backends) + "}\n")


def main(name: str, say: Callable[[str], None] = print) -> None:
    backend = open_backend(name)
    start = time.perf_counter()
    found = {}
    for file, tiny in shared_models().items():
        found[file] = report(backend, tiny)
        say(f"{file:28} {'passed' if found[file]['passed'] else 'FAILED'} {json.dumps(found[file])}")
    write({**results(), name: found})
    n = sum(f["passed"] for f in found.values())
    say(f"{n} of {len(found)} files passed on {name} in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1])
