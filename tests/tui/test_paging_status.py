"""What the status line says of weights that come from the disk."""

from __future__ import annotations

from localinfer.backends.base import PagingState
from localinfer.tui.widgets.status_bar import paging_words


def test_bytes_a_token_experts_and_a_slow_disk() -> None:
    assert paging_words(None, 10, 1e9) == ("", False)
    fast = PagingState(read_bytes=12 * 10**9, read_s=6.0)
    assert paging_words(fast, 10, 2e9) == ("pages 1.2 GB a token", False)
    experts = PagingState(read_bytes=10**9, read_s=9.0, lookups=100, hits=97)
    assert paging_words(experts, 10, 0.0) == ("pages 0.1 GB a token, 97% of experts in memory", False)
    words, slow = paging_words(PagingState(read_bytes=12 * 10**9, read_s=12.0), 10, 2e9)
    assert slow and words.endswith("disk 1 GB/s, 2 forecast")
