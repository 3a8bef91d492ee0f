"""How many requests, and how much context, a memory holds beside the weights."""

from __future__ import annotations

from localinfer.kv.spec import PAGE_TOKENS
from localinfer.planner.kv_cost import reserve_tokens
from localinfer.records import dataclass


@dataclass(frozen=True)
class RequestShape:
    """Equal requests: prompt, output, and how many leading prompt tokens all of them share."""

    prompt: int
    output: int
    shared_prefix: int = 0

    def shared_tokens(self, page: int = PAGE_TOKENS) -> int:
        """Slots held once for all requests: whole pages of the prefix only."""
        return self.shared_prefix // page * page

    def own_tokens(self, page: int = PAGE_TOKENS) -> int:
        """Slots each request holds beside the shared ones."""
        return reserve_tokens(self.prompt, self.output, page) - self.shared_tokens(page)


def requests_kv_bytes(shape: RequestShape, requests: int, token_bytes: int, page: int = PAGE_TOKENS) -> int:
    """KV bytes that `requests` equal requests reserve, a shared prefix counted once."""
    return token_bytes * (shape.shared_tokens(page) + requests * shape.own_tokens(page))


def max_requests(shape: RequestShape, token_bytes: int, kv_budget: int, page: int = PAGE_TOKENS) -> int:
    """How many equal requests a KV budget holds."""
    free = kv_budget - token_bytes * shape.shared_tokens(page)
    return max(0, free // (token_bytes * shape.own_tokens(page)))


def kv_pool_bytes(total: int, weights: int, overhead: int = 0, pool_fraction: float = 1.0) -> int:
    """Bytes for KV: what weights and overhead leave of a memory, of which a fraction is used."""
    return max(0, int((total - weights - overhead) * pool_fraction))


def max_sequences(total: int, weights: int, overhead: int, sequence_bytes: float, pool_fraction: float = 1.0) -> int:
    """Sequences of `sequence_bytes` KV each that a memory holds beside weights and overhead."""
    return int(kv_pool_bytes(total, weights, overhead, pool_fraction) // sequence_bytes)


def max_context(total: int, weights: int, overhead: int, token_bytes: int, pool_fraction: float = 1.0) -> int:
    """Tokens of context that a memory holds beside weights and overhead, not rounded to pages."""
    return kv_pool_bytes(total, weights, overhead, pool_fraction) // token_bytes
