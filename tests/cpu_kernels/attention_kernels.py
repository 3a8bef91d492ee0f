"""The attention kernels through ctypes: a paged store, and calls whose items run in any order on any thread numbers."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from localinfer.backends.cpu.lib import library_path
from localinfer.kv.spec import PAGE_TOKENS, kv_row_bytes

TYPE_IDS = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}

Floats = NDArray[np.float32]


class KVLayerStruct(ctypes.Structure):
    """li_kv_layer."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("k_type", "v_type", "n_kv_heads", "d_k", "d_v")),
        *((name, ctypes.c_int32) for name in ("page_tokens", "n_pages", "window", "k_rotate", "v_rotate")),
        ("pages", ctypes.c_void_p),
        ("page_bytes", ctypes.c_int64),
        ("table", ctypes.c_void_p),
        ("k_offset", ctypes.c_void_p),
    )


class AttentionStruct(ctypes.Structure):
    """li_attention."""

    _fields_ = (
        ("n_heads", ctypes.c_int32),
        ("chunk", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
        ("sinks", ctypes.c_void_p),
        ("slopes", ctypes.c_void_p),
    )


class CallStruct(ctypes.Structure):
    """li_attention_call."""

    _fields_ = (
        ("attention", ctypes.POINTER(AttentionStruct)),
        ("kv", ctypes.POINTER(KVLayerStruct)),
        ("start", ctypes.c_int64),
        ("n_tokens", ctypes.c_int32),
        ("n_threads", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out")),
        *((name, ctypes.c_int64) for name in ("q_ld", "k_ld", "v_ld", "out_ld")),
        ("scratch", ctypes.c_void_p),
    )


@cache
def library() -> ctypes.CDLL:
    """The package's kernels (LOCALINFER_KERNELS names another build, with sanitizers for one)."""
    path = library_path()
    if path is None:
        pytest.skip("the CPU kernels are not built")
    return declare(ctypes.CDLL(str(path)))


def declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    """Argument and result types of attention.h and cpu.h."""
    call, layer, attention = ctypes.POINTER(CallStruct), ctypes.POINTER(KVLayerStruct), ctypes.POINTER(AttentionStruct)
    i32, i64 = ctypes.c_int32, ctypes.c_int64
    signatures = {
        "li_kv_page_bytes": (i64, [layer]),
        "li_attention_scratch_bytes": (i64, [attention, layer, i32, i64, i32]),
        "li_attention_append_items": (i64, [call]),
        "li_attention_append_item": (None, [call, i64]),
        "li_attention_items": (i64, [call]),
        "li_attention_item": (None, [call, i64, i32]),
        "li_kv_read": (None, [layer, i64, i32, ctypes.c_void_p, ctypes.c_void_p]),
        "li_cpu_select": (ctypes.c_int, [ctypes.c_char_p]),
        "li_cpu_name": (ctypes.c_char_p, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


@cache
def levels() -> tuple[str, ...]:
    """Instruction sets of this machine for which attention has kernels; scalar first."""
    lib = library()
    found = tuple(n for n in ("scalar", "avx2", "avx512", "neon", "neondot") if lib.li_cpu_select(n.encode()) == 0)
    lib.li_cpu_select(None)
    return found


@dataclass(frozen=True)
class Shape:
    """One layer: its store and its attention."""

    n_heads: int = 4
    n_kv_heads: int = 2
    d_k: int = 64
    d_v: int = 64
    k_type: str = "f32"
    v_type: str = "f32"
    window: int = 0
    chunk: int = 0
    scale: float = 0.125
    softcap: float = 0.0
    sinks: bool = False
    alibi: bool = False
    k_rotate: int = 0
    v_rotate: int = 0

    def but(self, **changes: object) -> Shape:
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass
class Store:
    """A layer's pages and table. Pages that nothing was written to hold 0xff: NaN as any float type."""

    shape: Shape
    n_positions: int
    ring_pages: int = 0
    seed: int = 0
    max_tokens: int = 64
    n_threads: int = 2
    kv: KVLayerStruct = field(init=False)

    def __post_init__(self) -> None:
        s, rng = self.shape, np.random.default_rng(self.seed)
        n_pages = self.ring_pages or -(-self.n_positions // PAGE_TOKENS)
        head = PAGE_TOKENS * (kv_row_bytes(s.k_type, s.d_k) + kv_row_bytes(s.v_type, s.d_v))
        page_bytes = s.n_kv_heads * head
        n_physical = n_pages + 3
        self.pages = np.full(n_physical * page_bytes + 64, 0xFF, np.uint8)
        self.table = rng.permutation(n_physical)[:n_pages].astype(np.int32)
        aligned = -(-self.pages.ctypes.data // 64) * 64
        self.kv = KVLayerStruct(
            TYPE_IDS[s.k_type], TYPE_IDS[s.v_type], s.n_kv_heads, s.d_k, s.d_v, PAGE_TOKENS, n_pages, s.window,
            s.k_rotate, s.v_rotate, aligned, page_bytes, self.table.ctypes.data,
        )  # fmt: skip
        heads = np.random.default_rng(17)
        self.sinks = heads.normal(0, 2, s.n_heads).astype(np.float32)
        self.slopes = (2.0 ** -np.arange(1, s.n_heads + 1)).astype(np.float32)
        self.attention = AttentionStruct(
            s.n_heads, s.chunk, s.scale, s.softcap,
            self.sinks.ctypes.data if s.sinks else None, self.slopes.ctypes.data if s.alibi else None,
        )  # fmt: skip
        self.lib = library()
        assert self.lib.li_kv_page_bytes(self.kv) == page_bytes
        self.scratch_bytes = self.lib.li_attention_scratch_bytes(
            self.attention, self.kv, self.max_tokens, self.n_positions, self.n_threads
        )
        self.scratch = np.zeros(self.scratch_bytes + 192, np.uint8)
        self.scratch[self.scratch_bytes + 128 :] = 0xA5  # a fence: nobody may write beyond what was asked for

    def run(self, start: int, q: Floats, k: Floats, v: Floats, order: np.random.Generator | None = None) -> Floats:
        """Append k, v and attend from q (T, H, Dk); `order` shuffles items and threads."""
        n = q.shape[0]
        s = self.shape
        assert n <= self.max_tokens and start + n <= self.n_positions
        # rows with something between them, as a fused projection leaves them
        width = s.n_heads * s.d_k + s.n_kv_heads * (s.d_k + s.d_v) + 5
        rows = np.full((n, width), np.nan, np.float32)
        at = np.cumsum([0, s.n_heads * s.d_k, s.n_kv_heads * s.d_k])
        for a, part in zip(at, (q, k, v), strict=True):
            rows[:, a : a + part[0].size] = part.reshape(n, -1)
        out = np.full((n, s.n_heads * s.d_v + 3), 7.0, np.float32)
        call = CallStruct(
            ctypes.pointer(self.attention), ctypes.pointer(self.kv), start, n, self.n_threads,
            *(rows.ctypes.data + 4 * int(a) for a in at), out.ctypes.data, width, width, width, out.shape[1],
            -(-self.scratch.ctypes.data // 64) * 64,
        )  # fmt: skip
        for items, item in (
            (self.lib.li_attention_append_items(call), lambda i: self.lib.li_attention_append_item(call, i)),
            (self.lib.li_attention_items(call), lambda i: self.lib.li_attention_item(call, i, self._thread(order))),
        ):
            for i in range(items) if order is None else order.permutation(items):
                item(int(i))
        assert (out[:, -3:] == 7).all() and (self.scratch[self.scratch_bytes + 128 :] == 0xA5).all()
        return out[:, :-3].reshape(n, s.n_heads, s.d_v)

    def _thread(self, order: np.random.Generator | None) -> int:
        return 0 if order is None else int(order.integers(self.n_threads))

    def read(self, first: int, n: int) -> tuple[Floats, Floats]:
        """Stored k and v of n positions as floats."""
        s = self.shape
        k = np.empty((n, s.n_kv_heads, s.d_k), np.float32)
        v = np.empty((n, s.n_kv_heads, s.d_v), np.float32)
        self.lib.li_kv_read(self.kv, first, n, k.ctypes.data, v.ctypes.data)
        return k, v


def random_qkv(shape: Shape, n: int, seed: int) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    return (
        rng.normal(0, 1, (n, shape.n_heads, shape.d_k)).astype(np.float32),
        rng.normal(0, 1, (n, shape.n_kv_heads, shape.d_k)).astype(np.float32),
        rng.normal(0, 1, (n, shape.n_kv_heads, shape.d_v)).astype(np.float32),
    )


def reference(shape: Shape, first: int, q: Floats, k: Floats, v: Floats, store: Store) -> NDArray[np.float64]:
    """Attention in float64 of queries at positions first.. over keys and values of positions 0.. (or NaN: unseen)."""
    ratio = shape.n_heads // shape.n_kv_heads
    out = np.empty((len(q), shape.n_heads, shape.d_v))
    for t in range(len(q)):
        position = first + t
        lo = max(0, position - shape.window + 1) if shape.window else 0
        if shape.chunk:
            lo = max(lo, position // shape.chunk * shape.chunk)
        for h in range(shape.n_heads):
            keys = k[lo : position + 1, h // ratio].astype(np.float64)
            x = keys @ q[t, h].astype(np.float64) * shape.scale
            if shape.softcap:
                x = shape.softcap * np.tanh(x / shape.softcap)
            if shape.alibi:
                x = x + float(store.slopes[h]) * (np.arange(lo, position + 1) - position)
            top = max(x.max(), float(store.sinks[h])) if shape.sinks else x.max()
            e = np.exp(x - top)
            total = e.sum() + (np.exp(float(store.sinks[h]) - top) if shape.sinks else 0.0)
            out[t, h] = e @ v[lo : position + 1, h // ratio].astype(np.float64) / total
    return out
