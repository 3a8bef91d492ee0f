"""What keys and values cost: bytes a token, pages, and requests that share a prefix. Integers throughout.

Letters: a token costs `n_layers * n_kv_heads * (bytes of d_k keys + bytes of d_v values)`. These functions serve
uniform models and back-of-envelope questions; a real model goes layer by layer through localinfer.kv.KVSpec, which
uses the same block sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from localinfer.errors import UsageError
from localinfer.kv.spec import KV_TYPES, PAGE_TOKENS
from localinfer.records import dataclass

# (values per block, bytes per block): the cache's own types, and scale-free ones for comparison with other tools.
PRICED_TYPES: Mapping[str, tuple[int, int]] = {**KV_TYPES, "bf16": (1, 2), "int8": (1, 1), "int4": (2, 1)}


def kv_values_bytes(kv_type: str, n_values: int) -> int:
    """Bytes of n_values stored as kv_type, scales included. UsageError for an unknown type or a broken block."""
    if kv_type not in PRICED_TYPES:
        raise UsageError(f"kv: expected one of {', '.join(PRICED_TYPES)}, found {kv_type!r}")
    per_block, n_bytes = PRICED_TYPES[kv_type]
    if n_values % per_block:
        raise UsageError(f"kv: {kv_type} needs whole blocks of {per_block} values, found {n_values}")
    return n_values // per_block * n_bytes


def kv_bytes_per_token(
    n_layers: int, n_kv_heads: int, head_dim: int, k_type: str = "f16", v_type: str | None = None
) -> int:
    """Bytes that one token's keys and values take over all layers."""
    head_bytes = kv_values_bytes(k_type, head_dim) + kv_values_bytes(v_type or k_type, head_dim)
    return n_layers * n_kv_heads * head_bytes


def kv_bytes(token_bytes: int, n_tokens: int, batch: int = 1) -> int:
    """Bytes of n_tokens for each of `batch` sequences, not rounded to pages."""
    return token_bytes * n_tokens * batch


@dataclass(frozen=True)
class Pages:
    """Pages that a number of tokens takes, and the token slots left empty in the last one."""

    n_pages: int
    waste_tokens: int


def pages_for(n_tokens: int, page: int = PAGE_TOKENS) -> Pages:
    """Round tokens up to whole pages."""
    n_pages = -(-n_tokens // page)
    return Pages(n_pages, n_pages * page - n_tokens)


def page_bytes(token_bytes: int, page: int = PAGE_TOKENS) -> int:
    """Bytes of one page over all layers."""
    return token_bytes * page


def reserve_tokens(prompt: int, output: int, page: int = PAGE_TOKENS) -> int:
    """Token slots a request needs, in whole pages. The last output token is never fed back, so it needs none."""
    return pages_for(prompt + output - 1, page).n_pages * page


def rounded_tokens(
    lengths: Iterable[int], page: int = PAGE_TOKENS, shared_tokens: int = 0, sharers: Sequence[int] = ()
) -> int:
    """Token slots of several sequences, each rounded up to pages; whole pages of a shared prefix are counted once."""
    total = sum(pages_for(n, page).n_pages * page for n in lengths)
    return total - max(0, len(sharers) - 1) * (shared_tokens // page * page)


@dataclass(frozen=True)
class BranchPages:
    """Branches of one conversation: pages that exist, and references to them."""

    physical: int
    references: int


def branch_pages(shared_pages: int, branches: int, own_pages: int) -> BranchPages:
    """`branches` continuations of a shared past, each with pages of its own."""
    return BranchPages(shared_pages + branches * own_pages, branches * (shared_pages + own_pages))


@dataclass(frozen=True)
class TableSharing:
    """Block tables that name the same pages: entries, pages that exist, references to each page."""

    unshared: int
    shared: int
    references: Mapping[int, int]


def table_sharing(tables: Iterable[Sequence[int]]) -> TableSharing:
    """Count what sharing saves over a set of block tables (page numbers per sequence)."""
    references: dict[int, int] = {}
    for table in tables:
        for page in table:
            references[page] = references.get(page, 0) + 1
    return TableSharing(sum(references.values()), len(references), references)


def contiguous_waste(reserved: int, used: int) -> float:
    """Share of a contiguous reservation that stays empty."""
    return 1 - used / reserved


@dataclass(frozen=True)
class PrefixSharing:
    """Many users of one prefix: tokens and bytes with and without sharing it."""

    tokens_plain: int
    tokens_shared: int
    bytes_plain: int
    bytes_shared: int

    @property
    def saving(self) -> float:
        """Share of the memory that sharing saves."""
        return 1 - self.tokens_shared / self.tokens_plain


def prefix_sharing(prefix: int, unique: int, users: int, token_bytes: int) -> PrefixSharing:
    """A prefix of `prefix` tokens held once, and `unique` tokens for each user."""
    plain, shared = users * (prefix + unique), prefix + users * unique
    return PrefixSharing(plain, shared, plain * token_bytes, shared * token_bytes)
