"""What the cache allocates, and how far it can go back."""

from __future__ import annotations

import pytest

from localinfer.backends.cpu.kv import CpuKV
from localinfer.errors import BackendError
from localinfer.kv.spec import KVLayer, KVSpec, window_pages


def write(kv: CpuKV, n: int) -> None:
    kv.reserve(n)
    kv.extend(n)


def windowed(n_ctx: int, window: int, chunk: int) -> KVSpec:
    layer = KVLayer("window", 1, 32, 32, "f16", "f16", window_pages(window, chunk), window)
    return KVSpec(n_ctx, chunk, (layer,))


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
def test_bytes_are_the_specs(lib, kv_type: str) -> None:
    spec = KVSpec(
        1000, 64, (KVLayer("full", 3, 64, 64, kv_type, kv_type, 63), KVLayer("none", 0, 0, 0, "f16", "f16", 0))
    )
    assert CpuKV(lib, spec).n_bytes == spec.n_bytes


def test_full_layers_go_back_anywhere(lib) -> None:
    kv = CpuKV(lib, KVSpec(256, 64, (KVLayer("full", 1, 32, 32, "f16", "f16", 16),)))
    write(kv, 200)
    assert [kv.truncate(n) for n in (300, 150, 150, 1, 0)] == [200, 150, 150, 1, 0]


@pytest.mark.parametrize("window,chunk", [(16, 1), (16, 8), (512, 64), (100, 33)])
def test_a_draft_as_long_as_a_chunk_can_always_be_refused(lib, window: int, chunk: int) -> None:
    kv = CpuKV(lib, windowed(10_000, window, chunk))
    while kv.length < 3 * window:
        before = kv.length
        write(kv, chunk)
        assert kv.truncate(before) == before
        write(kv, 1)


def test_ring_remembers_what_was_written_before_a_cut(lib) -> None:
    """Cut and refilled, the ring's older pages are still gone."""
    spec = windowed(10_000, 16, 16)  # 3 pages: 48 positions
    kv = CpuKV(lib, spec)
    for _ in range(6):
        write(kv, 16)  # 96: pages 3, 4, 5 are there, positions 48..95
    assert kv.truncate(64) == 64  # the token at 64 sees 49..64
    write(kv, 1)
    assert kv.truncate(63) == 63  # 48 is still there
    assert kv.truncate(62) == 0  # 47 is not
    write(kv, 16)
    assert kv.truncate(4) == 4  # started over: nothing was lost


def test_memory_refused_is_one_line(lib) -> None:
    with pytest.raises(BackendError, match="no memory for a KV cache"):
        CpuKV(lib, KVSpec(1 << 50, 64, (KVLayer("full", 1, 32, 32, "f16", "f16", 1 << 46),)))
