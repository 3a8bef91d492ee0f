"""What the keys of a head have in common, measured once for a model: left out of q4_0 keys, their steps are smaller.

Half of a key's square is the same in every token (SmolLM2-135M 61 %, Gemma-3-270M 52 %), and what is added to all keys
alike adds the same to all scores of a query, which softmax does not see. So keys are stored without it: exact, and no
byte more. It is measured on a few tokens of no meaning when a file is first loaded with such keys, and kept (a large
model takes seconds for them); of what rotates, the part counts that all positions of the context share.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from localinfer.backends.cpu import structs
from localinfer.kv.spec import KVLayer
from localinfer.models.config import RopeConfig
from localinfer.state_file import replace_file

SAMPLE_TOKENS = 96
SKIPPED = 16  # the first tokens' keys are unlike all others
TYPES = ("q4_0",)


def takes_offset(kv: KVLayer, readers: Sequence[structs.Attention]) -> bool:
    """Where softmax does not see it for any of the layers that read these keys, and the type is coarse enough for it to
    matter."""
    return kv.k_type in TYPES and not kv.v_in_k and not any(a.softcap or a.sinks for a in readers)


def sample_tokens(n_vocab: int, n: int) -> list[int]:
    """n ids spread over the vocabulary, always the same."""
    return [int(i) for i in np.random.default_rng(0).integers(0, n_vocab, n)]


def mean_key(keys: np.ndarray, first: int, rope: RopeConfig | None) -> np.ndarray:
    """keys (T, G, D) of positions first.. -> (G, D) float32: their mean, what rotates turned back to position 0."""
    mean = keys.mean(axis=0, dtype=np.float64)
    if rope is not None:
        a, b = rope.pairs
        angles = np.arange(first, first + len(keys))[:, None, None] * np.asarray(rope.inv_freq)
        still = ((keys[..., a] + 1j * keys[..., b]) * np.exp(-1j * angles)).mean(axis=0)
        mean[..., a], mean[..., b] = still.real, still.imag
    return mean.astype(np.float32)


def common_part(mean: np.ndarray, rope: RopeConfig | None, n_ctx: int) -> np.ndarray:
    """A mean key (G, D) -> (G, D) float32: of what rotates, the part that all positions of the context share."""
    common = mean.astype(np.float64)
    if rope is not None:
        a, b = rope.pairs
        turns = np.exp(1j * np.arange(n_ctx)[:, None] * np.asarray(rope.inv_freq)).mean(axis=0)
        shared = (common[..., a] + 1j * common[..., b]) * turns
        common[..., a], common[..., b] = shared.real, shared.imag
    return common.astype(np.float32)


def known_means(path: Path, shapes: Sequence[tuple[int, int]]) -> list[np.ndarray] | None:
    """Mean keys as `keep_means` wrote them; None where they are not there or not whole."""
    try:
        values = np.fromfile(path, "<f4")
    except OSError:
        return None
    ends = np.cumsum([g * d for g, d in shapes], dtype=int)
    if len(values) != (ends[-1] if len(ends) else 0) or not np.isfinite(values).all():
        return None
    return [part.reshape(shape) for part, shape in zip(np.split(values, ends[:-1]), shapes, strict=True)]


def keep_means(path: Path, means: Sequence[np.ndarray]) -> None:
    """They can be measured again: where nothing can be written, nothing is."""
    with suppress(OSError):
        replace_file(path, np.concatenate([m.ravel() for m in means]).astype("<f4").tobytes())
