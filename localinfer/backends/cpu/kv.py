"""Keys and values of one conversation: pages in one anonymous mapping, found through a block table per layer.

Pages that were never written cost address space only. What a page holds is the business of cpu_kernels/attention.h.
Recurrent layers keep a fixed block of float32 behind their pages.
"""

from __future__ import annotations

import ctypes
import mmap

from localinfer.backends.cpu import structs
from localinfer.backends.cpu.lib import Library
from localinfer.errors import BackendError
from localinfer.kv.spec import KV_TYPES, PAGE_TOKENS, KVLayer, KVSpec, kv_row_bytes


class CpuKV:
    """`length` tokens are stored. Windowed layers are rings: logical page p lies at table[p % n_pages]."""

    def __init__(self, lib: Library, spec: KVSpec) -> None:
        self.spec = spec
        self.length = 0
        self._written = 0  # the most tokens stored since the cache was empty: rings have lost what lies a ring before
        self.n_bytes = sum(map(_layer_bytes, spec.layers))
        self._memory = _allocate(self.n_bytes)
        self._tables = [(ctypes.c_int32 * max(1, layer.n_pages))(*range(layer.n_pages)) for layer in spec.layers]
        self.layers = (structs.KVLayer * len(spec.layers))()
        self.states = (ctypes.c_void_p * len(spec.layers))()  # recurrent memory of each layer, or NULL
        self._place(lib)

    def _place(self, lib: Library) -> None:
        """Lay the layers out one after the other."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for i, (layer, table) in enumerate(zip(self.spec.layers, self._tables, strict=True)):
            slot = self.layers[i]
            _fill(slot, layer, table, address)
            assert layer.n_pages == 0 or lib.li_kv_page_bytes(ctypes.byref(slot)) == slot.page_bytes
            address += _layer_bytes(layer)
            self.states[i] = address - layer.state_bytes if layer.state_bytes else None

    def extend(self, n: int) -> None:
        """n tokens were stored."""
        self.length += n
        self._written = max(self._written, self.length)

    def truncate(self, length: int) -> int:
        """Forget all tokens after `length`. Returns 0 (prefill again) where a recurrent layer would have to go back,
        or a ring no longer holds the window before that length."""
        length = min(length, self.length)
        if length < self.length and any(self._lost(layer, length) for layer in self.spec.layers):
            length = 0
        self.length = length
        if length == 0:
            self._written = 0
            self._clear_states()
        return length

    def _lost(self, layer: KVLayer, length: int) -> bool:
        """Is something gone that the token at position `length` needs?"""
        if layer.state_bytes:
            return True
        if not layer.window or length == 0:
            return False
        newest_page = (self._written - 1) // PAGE_TOKENS
        oldest_token = (newest_page - layer.n_pages + 1) * PAGE_TOKENS
        return max(0, length - layer.window + 1) < oldest_token

    def _clear_states(self) -> None:
        for address, layer in zip(self.states, self.spec.layers, strict=True):
            if address:
                ctypes.memset(address, 0, layer.state_bytes)


def _page_bytes(layer: KVLayer) -> int:
    """A spec made without `v_beside_k` does not price the values of such layers; the kernels need them all the same,
    since they read keys and values in different layouts."""
    values = kv_row_bytes(layer.v_type, layer.d_v) * layer.n_kv_heads if layer.v_in_k else 0
    return PAGE_TOKENS * (layer.token_bytes + values)


def _layer_bytes(layer: KVLayer) -> int:
    return layer.n_pages * _page_bytes(layer) + layer.state_bytes


def _allocate(n_bytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, max(1, n_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as e:
        raise BackendError(
            f"no memory for a KV cache of {n_bytes} bytes: {e}", "use a shorter --ctx or a smaller --kv type"
        ) from None


def _fill(slot: structs.KVLayer, layer: KVLayer, table: ctypes.Array[ctypes.c_int32], address: int) -> None:
    slot.k_type, slot.v_type = structs.KV_TYPE_IDS[layer.k_type], structs.KV_TYPE_IDS[layer.v_type]
    slot.n_kv_heads, slot.d_k, slot.d_v = layer.n_kv_heads, layer.d_k, layer.d_v
    slot.page_tokens, slot.n_pages, slot.window = PAGE_TOKENS, layer.n_pages, layer.window
    slot.pages, slot.page_bytes = address, _page_bytes(layer)
    slot.table = ctypes.cast(table, ctypes.POINTER(ctypes.c_int32))
    slot.k_rotate, slot.v_rotate = _rotation(layer.k_type, layer.d_k), _rotation(layer.v_type, layer.d_v)


def _rotation(kv_type: str, d: int) -> int:
    """Hadamard block of a head of d values: the largest power of two that divides d, for types that share scales.

    On SmolLM2-135M (512 tokens) it takes the KL divergence of q8_0 from 2.2e-3 to 3.7e-4 and of q4_0 from 0.23 to 0.08
    (cpu_kernels/PROFILE.md).
    """
    return d & -d if KV_TYPES[kv_type][0] > 1 else 0
