"""Keys and values in pages of one anonymous mapping, found through a block table per layer.

Pages that were never written cost address space only. What a page holds is the business of cpu_kernels/attention.h.
Whose page is whose is decided by localinfer.kv.
"""

from __future__ import annotations

import ctypes
import mmap
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from localinfer.backends.cpu import structs
from localinfer.backends.cpu.lib import Library
from localinfer.errors import BackendError
from localinfer.formats.kv_file import Piece
from localinfer.kv.cache import PagedCache
from localinfer.kv.pages import pages_for
from localinfer.kv.spec import PAGE_TOKENS, KVLayer, KVSpec, kv_row_bytes, rotation

Reader = Callable[[str, int], memoryview]  # name of a piece, its bytes -> the piece


class CpuKV:
    """The bytes of a PagedCache, and the store that it tells what to do.

    A layer's pages follow each other, then come its running recurrent state and the copies kept for checkpoints.
    """

    def __init__(self, lib: Library, spec: KVSpec) -> None:
        self.spec = spec
        self.n_bytes = sum(map(_layer_bytes, spec.layers))
        self._memory = _allocate(self.n_bytes)
        self._tables = [(ctypes.c_int32 * max(1, layer.n_pages))() for layer in spec.layers]
        self.layers = (structs.KVLayer * len(spec.layers))()
        self.states = (ctypes.c_void_p * len(spec.layers))()  # running recurrent memory of each layer, or NULL
        self._offsets: list[np.ndarray | None] = []
        self._lib = lib
        self._place(lib)
        self.cache = PagedCache(spec, self)

    @property
    def length(self) -> int:
        return self.cache.length

    @property
    def shared(self) -> int:
        return self.cache.shared

    @property
    def touched_bytes(self) -> int:
        """Of n_bytes, what was ever written."""
        cache = self.cache
        pages = sum(n * pool.touched for n, pool in zip(cache.page_bytes, cache.pools, strict=True))
        return pages + cache.state_bytes * (1 + cache.states.touched)

    def _place(self, lib: Library) -> None:
        """Lay the layers out one after the other."""
        address = self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for i, (layer, table) in enumerate(zip(self.spec.layers, self._tables, strict=True)):
            slot = self.layers[i]
            _fill(slot, layer, table, address)
            assert layer.n_pages == 0 or lib.li_kv_page_bytes(ctypes.byref(slot)) == slot.page_bytes
            self.states[i] = address + _pages_bytes(layer) if layer.state_bytes else None
            address += _layer_bytes(layer)

    def take_from_keys(self, offsets: Sequence[np.ndarray | None]) -> None:
        """By layer what is taken from every key before it is stored (key_offsets.py); nothing may be stored yet."""
        assert self.length == 0
        self._offsets = [o if o is None else np.ascontiguousarray(o, np.float32) for o in offsets]
        for slot, offset in zip(self.layers, self._offsets, strict=True):
            slot.k_offset = None if offset is None else offset.ctypes.data

    def read_keys(self, layer: int, first: int, end: int) -> np.ndarray:
        """float32 (T, G, Dk) of the positions first..end-1 of the running timeline."""
        kv = self.layers[layer]
        keys = np.empty((end - first, kv.n_kv_heads, kv.d_k), np.float32)
        self._lib.li_kv_read(ctypes.byref(kv), first, end - first, keys.ctypes.data, None)
        return keys

    def reserve(self, n: int) -> None:
        """Called before n tokens are written."""
        self.cache.reserve(n)

    def extend(self, n: int) -> None:
        """n tokens were stored."""
        self.cache.length += n

    def truncate(self, length: int) -> int:
        return self.cache.truncate(length)

    def switch(self, tokens: Sequence[int], ids: Sequence[int]) -> int:
        return self.cache.switch(tokens, ids)

    def mark(self, tokens: Sequence[int]) -> None:
        self.cache.mark(tokens)

    def clear(self) -> None:
        self.cache.clear()

    # saved and restored

    @property
    def layout(self) -> str:
        """attention.h draws it; another number where that changes. Keys less other offsets do not mix with these."""
        taken = b"".join(o.tobytes() for o in self._offsets if o is not None)
        return f"cpu pages 2 {zlib.crc32(taken):08x}" if taken else "cpu pages 2"

    def first_pages(self) -> list[int]:
        return self.cache.first_pages()

    def pieces(self) -> Iterator[Piece]:
        """The running timeline's pages, layer by layer and in order, and its recurrent state."""
        for c, table, first in zip(self.cache.classes, self.cache.tables, self.first_pages(), strict=True):
            pages = [page for p in range(first, pages_for(self.length)) if (page := table.page_of(p)) is not None]
            for i in c.layers:
                yield f"pages {i}", [self._page(i, page) for page in pages]
        for i, (running, layer) in enumerate(zip(self.states, self.spec.layers, strict=True)):
            if running:
                yield f"state {i}", (self._at(running, layer.state_bytes),)

    def restore(self, tokens: Sequence[int], length: int, first_pages: Sequence[int], read: Reader) -> bool:
        """Leave the timeline `tokens`, which is kept, for one of `length` tokens that `read` gives the pieces of.

        False where the pieces are not enough. Where `read` raises, nothing is stored any longer."""
        if len(first_pages) != len(self.cache.classes) or not self.cache.adopt(tokens, length, first_pages):
            return False
        try:
            self._fill(first_pages, read)
        except BaseException:
            self.truncate(0)
            raise
        return True

    def _fill(self, first_pages: Sequence[int], read: Reader) -> None:
        end = pages_for(self.length)
        for c, table, first in zip(self.cache.classes, self.cache.tables, first_pages, strict=True):
            for i in c.layers:
                n_bytes = self.layers[i].page_bytes
                data = read(f"pages {i}", (end - first) * n_bytes)
                for p in range(first, end):
                    page = table.page_of(p)
                    assert page is not None
                    self._page(i, page)[:] = data[(p - first) * n_bytes :][:n_bytes]
        for i, (running, layer) in enumerate(zip(self.states, self.spec.layers, strict=True)):
            if running:
                self._at(running, layer.state_bytes)[:] = read(f"state {i}", layer.state_bytes)

    def _page(self, layer: int, page: int) -> memoryview:
        kv = self.layers[layer]
        return self._at(kv.pages + page * kv.page_bytes, kv.page_bytes)

    def _at(self, address: int, n_bytes: int) -> memoryview:
        first = address - self._address
        return memoryview(self._memory)[first : first + n_bytes]

    # PageStore

    def place(self, page_class: int, slot: int, page: int) -> None:
        for i in self.cache.classes[page_class].layers:
            self._tables[i][slot] = page

    def copy_page(self, page_class: int, source: int, target: int) -> None:
        for i in self.cache.classes[page_class].layers:
            layer = self.layers[i]
            ctypes.memmove(
                layer.pages + target * layer.page_bytes, layer.pages + source * layer.page_bytes, layer.page_bytes
            )

    def keep_state(self, slot: int) -> None:
        for running, kept, n_bytes in self._states_at(slot):
            ctypes.memmove(kept, running, n_bytes)

    def take_state(self, slot: int | None) -> None:
        for running, kept, n_bytes in self._states_at(slot or 0):
            if slot is None:
                ctypes.memset(running, 0, n_bytes)
            else:
                ctypes.memmove(running, kept, n_bytes)

    def _states_at(self, slot: int) -> Iterator[tuple[int, int, int]]:
        """Address of the running state, of its copy in a checkpoint's slot, and their bytes, layer by layer."""
        for running, layer in zip(self.states, self.spec.layers, strict=True):
            if running:
                yield running, running + (1 + slot) * layer.state_bytes, layer.state_bytes


def _page_bytes(layer: KVLayer) -> int:
    """A spec made without `v_beside_k` does not price the values of such layers; the kernels need them all the same,
    since they read keys and values in different layouts."""
    values = kv_row_bytes(layer.v_type, layer.d_v) * layer.n_kv_heads if layer.v_in_k else 0
    return PAGE_TOKENS * (layer.token_bytes + values)


def _pages_bytes(layer: KVLayer) -> int:
    return (layer.n_pages + layer.spare_pages) * _page_bytes(layer)


def _layer_bytes(layer: KVLayer) -> int:
    return _pages_bytes(layer) + (1 + layer.spare_states) * layer.state_bytes


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
    slot.k_rotate, slot.v_rotate = rotation(layer.k_type, layer.d_k), rotation(layer.v_type, layer.d_v)
