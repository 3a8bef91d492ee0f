"""What the keys of a head have in common, measured once for a model: left out of q4_0 keys, their steps are smaller.

Half of a key's square is the same in every token (SmolLM2-135M 61 %, Gemma-3-270M 52 %), and what is added to all keys
alike adds the same to all scores of a query, which softmax does not see. So keys are stored without it: exact, and no
byte more. It is measured on a few tokens of no meaning, before rotation by position; of what rotates, the part stays
that all positions of the context have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from localinfer.backends.cpu import structs
from localinfer.kv.spec import KVLayer, KVSpec
from localinfer.models.config import LayerConfig, RopeConfig

SAMPLE_TOKENS = 96
SKIPPED = 16  # the first tokens' keys are unlike all others
TYPES = ("q4_0",)

Keys = Callable[[int, int, int], np.ndarray]  # layer, first position, end -> (T, G, Dk)


def takes_offset(kv: KVLayer, readers: Sequence[structs.Attention]) -> bool:
    """Where softmax does not see it for any of the layers that read these keys, and the type is coarse enough for it to
    matter."""
    return kv.k_type in TYPES and not kv.v_in_k and not any(a.softcap or a.sinks for a in readers)


def sample_tokens(n_vocab: int, n: int) -> list[int]:
    """n ids spread over the vocabulary, always the same."""
    return [int(i) for i in np.random.default_rng(0).integers(0, n_vocab, n)]


def common_part(keys: np.ndarray, first: int, rope: RopeConfig | None, n_ctx: int) -> np.ndarray:
    """keys (T, G, D) of positions first.. -> (G, D) float32: their mean, over all positions of the context."""
    if rope is None:
        return keys.mean(axis=0, dtype=np.float64).astype(np.float32)
    mean = keys.mean(axis=0, dtype=np.float64)
    half = rope.n_dims // 2
    interleaved = rope.style == "interleaved"
    pairs = (slice(0, rope.n_dims, 2), slice(1, rope.n_dims, 2)), (slice(0, half), slice(half, rope.n_dims))
    a, b = pairs[0 if interleaved else 1]
    angles = np.asarray(rope.inv_freq)
    turned = np.exp(-1j * np.arange(first, first + len(keys))[:, None, None] * angles)
    still = ((keys[..., a] + 1j * keys[..., b]) * turned).mean(axis=0)  # as at position 0
    shared = still * np.exp(1j * np.arange(n_ctx)[:, None] * angles).mean(axis=0)
    mean[..., a], mean[..., b] = shared.real, shared.imag
    return mean.astype(np.float32)


def key_offsets(
    layers: Sequence[LayerConfig], spec: KVSpec, readers: Mapping[int, Sequence[structs.Attention]], keys: Keys, n: int
) -> list[np.ndarray | None]:
    """By layer: (G, Dk), or None where keys are stored as they are. `keys` reads n sampled tokens back."""
    first = min(SKIPPED, n // 2)
    return [
        common_part(keys(i, first, n), first, layer.rope, spec.n_ctx) if takes_offset(kv, readers.get(i, ())) else None
        for i, (layer, kv) in enumerate(zip(layers, spec.layers, strict=True))
    ]
