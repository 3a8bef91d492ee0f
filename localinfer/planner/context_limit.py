"""The largest context that fits: KV bytes as a function of context, searched over whole pages.

Layers of the same shape are one KVGroup, so a question costs a few multiplications and not a walk over 94 layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localinfer.kv.spec import PAGE_TOKENS, KVLayer, KVSpec, layer_pages
from localinfer.records import dataclass

MOST_TOKENS = 1 << 30  # where nothing grows with context (windows, recurrent state) a search ends here


@dataclass(frozen=True)
class KVGroup:
    """`count` equal layers. `ring`: they hold a window and not the whole context."""

    layer: KVLayer
    count: int
    ring: bool
    n_pages: int
    page_tokens: int = PAGE_TOKENS

    @property
    def label(self) -> str:
        """`full layers`, `layers, window 1024`."""
        window = self.layer.window
        return f"layers, window {window}" if window else f"{self.layer.kind} layers"

    @property
    def n_tokens(self) -> int:
        return self.n_pages * self.page_tokens

    @property
    def page_bytes(self) -> int:
        """One page in all layers of the group."""
        return self.count * self.page_tokens * self.layer.token_bytes

    @property
    def n_bytes(self) -> int:
        return self.n_pages * self.page_bytes + self.count * self.layer.state_bytes


def group_layers(spec: KVSpec) -> list[KVGroup]:
    """Equal layers together, in order of first appearance."""
    counts: dict[KVLayer, int] = {}
    for layer in spec.layers:
        counts[layer] = counts.get(layer, 0) + 1
    return [KVGroup(layer, n, bool(layer.window), layer.n_pages) for layer, n in counts.items()]


def kv_bytes_at(groups: Sequence[KVGroup], n_ctx: int, chunk: int) -> int:
    """KV bytes of the same layers at another context."""
    total = 0
    for group in groups:
        pages = layer_pages(n_ctx, group.layer.window if group.ring else 0, chunk) if group.n_pages else 0
        total += pages * group.page_bytes + group.count * group.layer.state_bytes
    return total


def largest_context(
    groups: Sequence[KVGroup], chunk: int, beside: Callable[[int], int], room: int, requests: int
) -> int:
    """The most tokens, in whole pages, that `requests` caches of them and beside(tokens) fit into `room`; 0: none."""

    def fits(n_pages: int) -> bool:
        n_ctx = n_pages * PAGE_TOKENS
        return requests * kv_bytes_at(groups, n_ctx, chunk) + beside(n_ctx) <= room

    low, high = 0, MOST_TOKENS // PAGE_TOKENS  # low fits (or is nothing), high may not
    if fits(high):
        return MOST_TOKENS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * PAGE_TOKENS
