"""Which weights stay in memory when not all can, which are read again for every pass, and through how much room.

A byte that stays saves reading it again: all of a dense matrix, every token; of an expert, as often as it is chosen; of
an embedding, one row. So vectors, routers, attention, the output and shared experts stay first, then whole layers of
the rest, spread evenly so that the disk is never idle for long; single experts fill what is left. Embedding rows are
read where they lie in the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from localinfer.formats.direct import PAGE
from localinfer.models.decoder import Decoder
from localinfer.planner.weights import group_of
from localinfer.records import dataclass
from localinfer.units import MIB

if TYPE_CHECKING:
    from localinfer.formats.gguf import TensorInfo
    from localinfer.models.config import ModelConfig
    from localinfer.planner.facts import ModelFacts

LEAST_SLOTS = 4  # of each size of expert matrix: cpu_kernels/experts.h
SLOTS_A_CHOICE = 2  # experts that are in memory at least, for each one that a token uses: these work, those load
LOOKUP_BYTES = 8 * MIB  # of embedding rows that may lie in the page cache
_SPREAD = 0.6180339887498949  # multiples of it, modulo 1, are spread evenly however many are taken


@dataclass(frozen=True)
class Paging:
    """What becomes of each tensor; a tied embedding may be streamed (as output) and looked up. Bytes: whole pages."""

    resident: frozenset[str]
    streamed: frozenset[str]  # read again for every pass, in the order of their use
    cached: frozenset[str]  # all experts of a layer: single ones are in memory
    looked_up: frozenset[str]  # rows are read from the mapped file
    resident_bytes: int
    streamed_bytes: int  # a pass
    buffer_bytes: int  # what the streamed ones pass through
    expert_bytes: int  # room for single experts
    all_expert_bytes: int
    routed_bytes: int  # that a token's experts have
    chunk_bytes: int = 0  # the most that one pass may read: streamed and every expert

    @property
    def kept_bytes(self) -> int:
        return self.resident_bytes + self.expert_bytes

    @property
    def token_bytes(self) -> int:
        """Read from storage for a token, if experts are chosen evenly; a router with favourites reads less."""
        if not self.all_expert_bytes:
            return self.streamed_bytes
        missing = max(0, self.all_expert_bytes - self.expert_bytes)
        return self.streamed_bytes + self.routed_bytes * missing // self.all_expert_bytes


def paged_bytes(n_bytes: int) -> int:
    """Room for n_bytes that may start anywhere in a page."""
    return -(-(n_bytes + PAGE - 1) // PAGE) * PAGE


@dataclass(frozen=True)
class Uses:
    """How one pass uses the tensors."""

    sets: tuple[tuple[str, ...], ...]  # dense matrices by the instruction that reads them, in order
    experts: tuple[str, ...]
    lookups: frozenset[str]  # single rows are read, as an embedding
    shared: frozenset[str]  # matrices that more than one instruction reads


def uses_of(config: ModelConfig, tensors: Mapping[str, TensorInfo]) -> Uses:
    """From the recorded pass: what reads one value is one set, as backends multiply it together."""
    sets: dict[tuple[int, int, int], dict[str, None]] = {}
    seen: dict[str, int] = defaultdict(int)
    experts: dict[str, None] = {}
    lookups: set[str] = set()
    for i in Decoder(config, tensors).record(1, 1).instructions:
        if i.op in ("embed", "embed_positions"):
            lookups.add(i.weights[0].name)
        for w in _matrices(i, experts):
            x = i.inputs[0]
            sets.setdefault((id(x.buffer), x.row, x.col), {})[w.name] = None
            seen[w.name] += 1
    shared = frozenset(name for name, n in seen.items() if n > 1)
    return Uses(tuple(tuple(names) for names in sets.values()), tuple(experts), frozenset(lookups), shared)


def _matrices(instruction: Any, experts: dict[str, None]) -> Iterator[TensorInfo]:
    """Dense matrices of an instruction; experts' matrices are noted."""
    if instruction.op == "moe":
        w = instruction.weights[0]
        experts.update((m.name, None) for m in (w.gate, w.up, w.down) if m is not None)
        yield w.router
    elif instruction.op in ("linear", "head_linear"):
        yield instruction.weights[0]


def make_paging(model: ModelFacts, weight_budget: int) -> Paging:
    """The best use of `weight_budget` bytes. What cannot be paged is kept even where it is more than that."""
    uses, tensors, n_experts, n_used = model.uses, model.tensors, model.n_experts, model.n_experts_used
    room = {name: paged_bytes(info.n_bytes) for name, info in tensors.items()}
    matrices = {name for names in uses.sets for name in names} - uses.shared
    only_looked_up = uses.lookups - matrices - uses.shared
    kept = set(tensors) - matrices - set(uses.experts) - only_looked_up
    all_experts = sum(room[name] for name in uses.experts)
    least = _least_expert_bytes(uses.experts, tensors, n_experts, n_used)
    lookups = min(LOOKUP_BYTES, sum(room[n] for n in only_looked_up))
    left = weight_budget - sum(room[n] for n in kept) - least - lookups
    parts = _by_benefit(matrices)
    for names in (*parts, *([name] for part in parts for name in part)):  # what is left takes single matrices
        n_bytes = sum(room[n] for n in names if n not in kept)
        if n_bytes <= left:
            kept.update(names)
            left -= n_bytes
    expert_bytes = min(least + max(0, left), _slot_bytes(uses.experts, tensors, n_experts)) if uses.experts else 0
    left -= expert_bytes - least
    left += lookups
    for name in sorted(only_looked_up):
        if room[name] <= left:
            kept.add(name)
            left -= room[name]
    looked_up = uses.lookups - kept
    streamed = matrices - kept
    stream_sets = [sum(room[n] for n in names if n in streamed) for names in uses.sets]
    largest = max((room[n] for n in streamed), default=0)
    resident_bytes = sum(room[n] for n in kept) + min(LOOKUP_BYTES, sum(room[n] for n in looked_up))
    return Paging(
        resident=frozenset(kept),
        streamed=frozenset(streamed),
        cached=frozenset(uses.experts),
        looked_up=looked_up,
        resident_bytes=resident_bytes,
        streamed_bytes=sum(room[n] for n in streamed),
        buffer_bytes=2 * max(stream_sets, default=0) + largest,
        expert_bytes=expert_bytes,
        all_expert_bytes=all_experts,
        routed_bytes=all_experts * n_used // n_experts if n_experts else 0,
        chunk_bytes=sum(room[n] for n in streamed) + all_experts,
    )


def expert_matrix_bytes(info: TensorInfo, n_experts: int) -> int:
    """Of one expert."""
    return info.n_bytes // max(1, info.shape[0] if len(info.shape) == 3 else n_experts)


def shelves(experts: Iterable[str], tensors: Mapping[str, TensorInfo], n_experts: int) -> dict[int, int]:
    """Slot sizes, and how many matrices of single experts have that size."""
    sizes: dict[int, int] = defaultdict(int)
    for name in experts:
        sizes[paged_bytes(expert_matrix_bytes(tensors[name], n_experts))] += n_experts
    return dict(sorted(sizes.items()))


def slots_for(sizes: Mapping[int, int], n_bytes: int) -> dict[int, int]:
    """Slots of each size within n_bytes, in proportion to what there is; at least LEAST_SLOTS."""
    total = sum(size * n for size, n in sizes.items())
    share = min(1.0, n_bytes / total) if total else 0.0
    return {size: max(LEAST_SLOTS, int(n * share)) for size, n in sizes.items()}


def _slot_bytes(experts: Iterable[str], tensors: Mapping[str, TensorInfo], n_experts: int) -> int:
    return sum(size * n for size, n in shelves(experts, tensors, n_experts).items())


def _least_expert_bytes(
    experts: tuple[str, ...], tensors: Mapping[str, TensorInfo], n_experts: int, n_used: int
) -> int:
    """Room for a layer's chosen experts twice, and LEAST_SLOTS of each size."""
    sizes = shelves(experts, tensors, n_experts)
    if not sizes:
        return 0
    wanted = max(sizes) * 3 * SLOTS_A_CHOICE * n_used
    all_bytes = sum(size * n for size, n in sizes.items())
    return min(all_bytes, max(wanted, sum(size * LEAST_SLOTS for size in sizes) * max(1, len(sizes))))


def _by_benefit(names: Iterable[str]) -> list[list[str]]:
    """Dense matrices in the order in which they deserve memory: by part, and spread over the layers within a part.
    The matrices of one layer's part stay or go together."""
    parts: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name in sorted(names):
        parts[_rank(name), _layer(name)].append(name)
    return [parts[key] for key in sorted(parts, key=lambda key: (key[0], key[1] * _SPREAD % 1))]


def _rank(name: str) -> int:
    if "ffn_gate_inp" in name:
        return 0
    if "_shexp" in name:
        return 3
    return {"attention": 1, "output": 2, "embedding": 2}.get(group_of(name), 4)


def _layer(name: str) -> int:
    return int(name.split(".")[1]) if name.startswith("blk.") else 0
