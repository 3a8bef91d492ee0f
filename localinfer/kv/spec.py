"""What the KV cache of a model costs, in integer bytes, layer by layer.

The planner prices a cache with this and the backends allocate by it, so the two cannot disagree. Keys and values
live in pages of PAGE_TOKENS tokens. A layer that sees everything holds ceil(n_ctx / page) pages. A sliding-window
layer holds a ring of pages: enough for the window of the first token of a chunk plus the whole chunk, wherever the
chunk starts within a page.
"""

from __future__ import annotations

from collections.abc import Iterable

from localinfer.errors import UsageError
from localinfer.models.config import LayerConfig, LayerKind, ModelConfig
from localinfer.records import dataclass, replace

PAGE_TOKENS = 16

#            values per block, bytes per block (a scale is an f16)
KV_TYPES = {"f32": (1, 4), "f16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18)}


def parse_kv_types(text: str) -> tuple[str, str]:
    """`q8_0` or `q8_0/q4_0` -> (K type, V type)."""
    k, slash, v = text.partition("/")
    v = v if slash else k
    for part in (k, v):
        if part not in KV_TYPES:
            raise UsageError(f"kv: expected one of {', '.join(KV_TYPES)} or KTYPE/VTYPE, found {text!r}")
    return k, v


def kv_row_bytes(kv_type: str, n_values: int) -> int:
    """Bytes of n_values stored as kv_type; n_values must be whole blocks."""
    per_block, n_bytes = KV_TYPES[kv_type]
    assert n_values % per_block == 0, (kv_type, n_values)
    return n_values // per_block * n_bytes


def rotation(kv_type: str, d: int) -> int:
    """Hadamard block that heads of d values are rotated in before they are stored, 0: none. The largest power of two
    that divides d, for types whose values share scales: rotated, no value is so large that the others vanish.

    On SmolLM2-135M (512 tokens) it takes the KL divergence of q8_0 from 2.2e-3 to 3.7e-4 and of q4_0 from 0.23 to 0.08
    (cpu_kernels/PROFILE.md).
    """
    return d & -d if KV_TYPES[kv_type][0] > 1 else 0


def window_pages(window: int, chunk: int) -> int:
    """Pages of a ring that serves `window` positions to every token of a chunk that starts anywhere in a page."""
    return -(-(window - 1 + chunk) // PAGE_TOKENS) + 1


def checkpoint_pages(window: int) -> int:
    """Pages that let a sliding-window layer go on from a length it has left behind, or from the token before it."""
    return window_pages(window, 1) + 1


def layer_pages(n_ctx: int, window: int, chunk: int) -> int:
    """Pages one layer holds for n_ctx tokens: all of them, or a ring where a window is smaller than that."""
    n_pages = -(-n_ctx // PAGE_TOKENS)
    return min(n_pages, window_pages(window, chunk)) if window else n_pages


@dataclass(frozen=True)
class KVLayer:
    """One layer's store. For kind 'state' `state_bytes` is fixed and the rest is 0."""

    kind: LayerKind
    n_kv_heads: int
    d_k: int
    d_v: int
    k_type: str
    v_type: str
    n_pages: int
    window: int = 0
    state_bytes: int = 0
    v_in_k: bool = False  # values are part of the keys and take no room (MLA)
    spare_pages: int = 0  # beside n_pages, for checkpoints of a layer whose pages roll out
    spare_states: int = 0  # copies of the recurrent state, for checkpoints

    @property
    def token_bytes(self) -> int:
        """Bytes one token takes in this layer, K and V together."""
        v_bytes = 0 if self.v_in_k else kv_row_bytes(self.v_type, self.d_v)
        return self.n_kv_heads * (kv_row_bytes(self.k_type, self.d_k) + v_bytes)

    @property
    def n_tokens(self) -> int:
        return self.n_pages * PAGE_TOKENS

    @property
    def n_bytes(self) -> int:
        return self.n_tokens * self.token_bytes + self.state_bytes

    @property
    def spare_bytes(self) -> int:
        return self.spare_pages * PAGE_TOKENS * self.token_bytes + self.spare_states * self.state_bytes


@dataclass(frozen=True)
class KVSpec:
    """The cache of one conversation at n_ctx tokens, written in chunks of at most `chunk` tokens."""

    n_ctx: int
    chunk: int
    layers: tuple[KVLayer, ...]
    notices: tuple[str, ...] = ()  # layers that had to use another type than asked

    @classmethod
    def from_config(
        cls,
        config: ModelConfig,
        n_ctx: int,
        k_type: str,
        v_type: str,
        chunk: int,
        v_beside_k: bool = False,
        checkpoints: int = 0,
    ) -> KVSpec:
        """`v_beside_k`: a backend whose kernels cannot read values inside keys (MLA) stores them once more.
        `checkpoints`: how many earlier lengths windowed and recurrent layers have room to remember."""
        kinds = {id(layer): layer for layer in config.layers}  # equal ones are mostly one object
        made = {
            key: _with_spares(_layer(layer, n_ctx, k_type, v_type, chunk, v_beside_k), n_ctx, checkpoints)
            for key, layer in kinds.items()
        }
        layers = tuple(made[id(layer)] for layer in config.layers)
        return cls(n_ctx, chunk, layers, tuple(_fallback_notices(layers, k_type, v_type)))

    @property
    def n_bytes(self) -> int:
        """Of the running timeline; the pages that it does not need keep others."""
        return sum(layer.n_bytes for layer in self.layers)

    @property
    def checkpoint_bytes(self) -> int:
        """Beside n_bytes: what windowed and recurrent layers need to go back to earlier lengths."""
        return sum(layer.spare_bytes for layer in self.layers)

    @property
    def remembers(self) -> bool:
        """There are layers that could not go back without checkpoints, and room for these."""
        return any(layer.spare_pages or layer.spare_states for layer in self.layers)

    @property
    def has_state(self) -> bool:
        """There are recurrent layers: of their past only checkpoints are left."""
        return any(layer.state_bytes for layer in self.layers)

    @property
    def token_bytes(self) -> int:
        """Bytes one more token takes while no window is full."""
        return sum(layer.token_bytes for layer in self.layers)


def _layer(layer: LayerConfig, n_ctx: int, k_type: str, v_type: str, chunk: int, v_beside_k: bool) -> KVLayer:
    attn = layer.attention
    state_bytes = layer.state_values * 4
    if attn is None:
        return KVLayer(layer.kind, 0, 0, 0, k_type, v_type, 0, 0, state_bytes)
    return KVLayer(
        layer.kind, attn.n_kv_heads, attn.d_k, attn.d_v,
        _usable(k_type, attn.d_k), _usable(v_type, attn.d_v), layer_pages(n_ctx, attn.window, chunk),
        attn.window, state_bytes, attn.v_in_k and not v_beside_k,
    )  # fmt: skip


def _with_spares(layer: KVLayer, n_ctx: int, checkpoints: int) -> KVLayer:
    rolls = layer.window > 0 and 0 < layer.n_pages < -(-n_ctx // PAGE_TOKENS)
    spare_pages = checkpoints * checkpoint_pages(layer.window) if rolls else 0
    return replace(layer, spare_pages=spare_pages, spare_states=checkpoints if layer.state_bytes else 0)


def _usable(kv_type: str, d: int) -> str:
    """A block type needs whole blocks per head; f16 takes any head size."""
    return kv_type if d % KV_TYPES[kv_type][0] == 0 else "f16"


def _fallback_notices(layers: Iterable[KVLayer], k_type: str, v_type: str) -> Iterable[str]:
    n = sum(layer.n_pages > 0 and (layer.k_type, layer.v_type) != (k_type, v_type) for layer in layers)
    if n:
        yield f"{n} layers keep f16 KV: their head size is not a multiple of 32, which {k_type}/{v_type} needs"
