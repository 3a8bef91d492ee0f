"""Tiny models with llama.cpp's logits: a few in tests/golden/tiny, all of them in a folder one may have beside."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from localinfer.backends.base import Backend, KVCache, LoadedModel
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig

GOLDEN = Path(__file__).parents[1] / "golden" / "tiny"
N_CTX = 512  # the goldens' context; longrope chooses its factors by it
TOLERANCE = 1e-3  # of the goldens, for float32 arithmetic; a wrong tensor shows as 1e-2 to 10
# Mean KL divergence where activations are rounded to 16 bits before quantized weights. llama.cpp, which rounds them
# to 8 bits, has 1e-3 to 4e-3 on these files; random weights amplify every rounding far more than trained ones.
QUANTIZED_KL = 1e-5


@dataclass(frozen=True)
class TinyModel:
    path: Path
    tokens: tuple[int, ...]
    logits: np.ndarray  # (96, 320) float32


def shared_folder() -> Path | None:
    """The folder named by LOCALINFER_SHARED that holds tiny/, where there is one."""
    folder = Path(os.environ.get("LOCALINFER_SHARED", "")) / "tiny"
    return folder if os.environ.get("LOCALINFER_SHARED") and folder.is_dir() else None


@cache
def golden_models() -> dict[str, TinyModel]:
    tokens = json.loads((GOLDEN / "tokens.json").read_text())
    return {name: _model(GOLDEN / f"{name}.gguf", ids) for name, ids in tokens.items()}


@cache
def sparse_models() -> dict[str, TinyModel]:
    """Those that tests/golden/tiny/make.py made: their logits are every eighth row, `[7::8]`."""
    tokens = json.loads((GOLDEN / "every_eighth.json").read_text())
    return {name: _model(GOLDEN / f"{name}.gguf", ids) for name, ids in tokens.items()}


@cache
def shared_models() -> dict[str, TinyModel]:
    folder = shared_folder()
    paths = [] if folder is None else [*sorted(folder.glob("*.gguf")), *sorted(folder.glob("quant/*.gguf"))]
    return {p.stem: _model(p, json.loads(p.with_suffix(".json").read_text())["tokens"]) for p in paths}


def _model(path: Path, tokens: list[int]) -> TinyModel:
    return TinyModel(path, tuple(tokens), np.load(path.with_suffix(".npz"))["logits"])


def has_quantized_tensors(tiny: TinyModel) -> bool:
    with GGUFFile.open(tiny.path) as f:
        return any(info.type.is_quantized for info in f.tensors.values())


@contextmanager
def loaded(
    backend: Backend, tiny: TinyModel, chunk: int, checkpoints: int = 0
) -> Iterator[tuple[LoadedModel, KVCache]]:
    """The model and a float32 KV cache whose windows hold no more than chunks of `chunk` tokens need."""
    with GGUFFile.open(tiny.path) as f:
        config = ModelConfig.from_gguf(f, N_CTX)
        model = backend.load(f, config, lambda fraction, text: None)
        beside = backend.device_info().v_beside_k
        yield model, model.new_kv(KVSpec.from_config(config, N_CTX, "f32", "f32", chunk, beside, checkpoints))
        model.close()


def forward(model: LoadedModel, kv: KVCache, ids: Sequence[int], chunk: int) -> np.ndarray:
    """(len(ids), V) logits after each of ids, `chunk` tokens at a time."""
    parts = [ids[i : i + chunk] for i in range(0, len(ids), chunk)]
    return np.concatenate([model.forward(part, kv, len(part)) for part in parts])


def logits_in_chunks(backend: Backend, tiny: TinyModel, chunk: int) -> np.ndarray:
    """(96, V) logits after each token, `chunk` tokens at a time."""
    with loaded(backend, tiny, chunk) as (model, kv):
        return forward(model, kv, tiny.tokens, chunk)


@dataclass(frozen=True)
class RolledBack:
    """What came of leaving token 64 for other tokens and coming back to it, twice."""

    back_error: float  # largest |logit - golden| of the tokens computed after coming back
    kept_of_draft: int  # tokens still there when 8 that followed were refused
    kept_of_turn: int  # when 24 others followed and another prompt went on from token 64


def roll_back(backend: Backend, tiny: TinyModel) -> RolledBack:
    """In chunks of 8, so that windows and states have forgotten what they may."""
    ids, wrong, chunk, at = list(tiny.tokens), list(tiny.tokens[:24]), 8, 64
    with loaded(backend, tiny, chunk, checkpoints=2) as (model, kv):
        forward(model, kv, ids[:at], chunk)
        kv.mark(ids[:at])
        forward(model, kv, wrong[:8], chunk)
        kept_of_draft = kv.truncate(at)
        first = forward(model, kv, ids[kept_of_draft : at + 8], chunk)
        kv.mark(ids[: at + 8])
        forward(model, kv, wrong, chunk)
        kept_of_turn = kv.switch([*ids[: at + 8], *wrong], ids)
        second = forward(model, kv, ids[kept_of_turn:], chunk)
    parts = ((first, kept_of_draft), (second, kept_of_turn))
    errors = [np.abs(got - tiny.logits[start : start + len(got)]).max() for got, start in parts]
    return RolledBack(float(max(errors)), kept_of_draft, kept_of_turn)


def errors_by_chunk(backend: Backend, tiny: TinyModel, chunks: tuple[int, ...] = (96, 7, 1)) -> dict[int, float]:
    """Largest |logit - golden| over all positions, for each chunk size."""
    return {chunk: float(np.abs(logits_in_chunks(backend, tiny, chunk) - tiny.logits).max()) for chunk in chunks}


def mean_kl(golden: np.ndarray, logits: np.ndarray) -> float:
    """Mean over positions of KL(golden || logits), in nats."""
    p, q = _log_softmax(golden), _log_softmax(logits)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
