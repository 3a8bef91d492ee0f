"""Weights larger than memory: which tensor lies where, and the threads that read ahead.

What stays is read once into anonymous memory, which the system cannot drop behind our back. What is streamed gets a
fixed place in a ring, in the order in which the instructions of a pass use it (cpu_kernels/pager.h). Experts lie in
slots (cpu_kernels/experts.h). Embedding rows are read where they lie in the mapped file.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from math import prod

from localinfer.backends.base import PagingState, Progress
from localinfer.backends.cpu import structs
from localinfer.backends.cpu.lib import Library
from localinfer.backends.cpu.nodes import ExpertHint, HeadLinear, Linear, Moe, Node, OutputSpec, Page
from localinfer.backends.cpu.storage import READ_BYTES, Files, Room
from localinfer.backends.cpu.weights import CpuWeight
from localinfer.errors import BackendError, FormatError
from localinfer.formats.gguf import GGUFFile, TensorInfo
from localinfer.models.program import Buffer, Value
from localinfer.planner.paging import LOOKUP_BYTES, PAGE, Paging, expert_matrix_bytes, paged_bytes, shelves, slots_for
from localinfer.records import dataclass

ENDED = -1  # LI_STORAGE_ENDED of storage.h
HALF_LIFE_TOKENS = 256.0  # after so many tokens an expert's use counts half


class PagedWeights:
    """All tensors of a file as the plan places them: `weights` for the decoder, `insert` for a tape's nodes."""

    def __init__(
        self, lib: Library, file: GGUFFile, plan: Paging, sets: Sequence[Sequence[str]], progress: Progress
    ) -> None:
        """sets: names of the streamed tensors that each instruction of a pass reads, in order."""
        self._lib = lib
        self._file = file
        self._plan = plan
        self._pager: int | None = None
        self._experts: int | None = None
        self._files = Files(file.paths)
        self._rooms: list[Room] = []
        self.weights: dict[str, CpuWeight] = {}
        self._moe_layers: dict[str, int] = {}  # name of the up matrix -> layer of the experts' pager
        self._units: list[str] = []
        self._looked_up_bytes = 0
        self._lookup_bytes = sum(paged_bytes(self.weights_row(name)) for name in plan.looked_up)
        try:
            self._read_resident(progress)
            self._place_streamed(sets)
            self._place_experts()
        except BaseException:
            self.close()
            raise

    # -- placing --

    def _add(self, info: TensorInfo, raw: memoryview) -> None:
        rows = self._file.raw(info) if info.name in self._plan.looked_up else None
        self.weights[info.name] = CpuWeight(info.name, raw, info.type, info.shape, rows)

    def _new_room(self, n_bytes: int) -> Room:
        self._rooms.append(Room(n_bytes))
        return self._rooms[-1]

    def _read_resident(self, progress: Progress) -> None:
        infos = [self._file.tensors[name] for name in self._plan.resident]
        runs = _runs(infos)
        total = sum(run.n_bytes for run in runs)
        if not total:
            return
        room, at = self._new_room(total), 0
        for run in runs:
            self._read(run, room, at)
            progress((at + run.n_bytes) / total, "reading weights")
            for info in run.infos:
                start = at + info.offset - run.first
                self._add(info, room.view[start : start + info.n_bytes])
            at += run.n_bytes

    def _read(self, run: _Run, room: Room, at: int) -> None:
        last = max(run.infos, key=lambda info: info.offset + info.n_bytes)
        for done in range(0, run.n_bytes, READ_BYTES):
            first = run.first + done
            end = min(first + READ_BYTES, last.offset + last.n_bytes)
            ns = ctypes.c_int64(0)
            extent = self._files.extent(run.part, first, end - first)
            status = self._lib.li_storage_read(ctypes.byref(extent), room.address + at + done, ctypes.byref(ns))
            if status:
                raise self._read_error(last.name, status)

    def _place_streamed(self, sets: Sequence[Sequence[str]]) -> None:
        """Each streamed tensor's place in the ring, and the file extents that the thread reads into it."""
        self._units = [name for names in sets for name in names]
        missing = self._plan.streamed - set(self._units)
        assert not missing, missing  # the plan and the tape are made from one recording
        if not self._units:
            return
        sizes = [paged_bytes(self._file.tensors[name].n_bytes) for name in self._units]
        set_of = [i for i, names in enumerate(sets) for _ in names]
        ring = lay_out_ring(sizes, set_of, self._plan.buffer_bytes)
        room = self._new_room(ring.n_bytes)
        units = (structs.Unit * len(sizes))()
        for i, name in enumerate(self._units):
            info = self._file.tensors[name]
            extent = self._files.extent(info.part, info.offset, info.n_bytes)
            units[i] = structs.Unit(extent, room.address + ring.offsets[i], set_of[i], ring.after[i])
            start = ring.offsets[i] + info.offset % PAGE
            self._add(info, room.view[start : start + info.n_bytes])
        self._pager = self._lib.li_pager_create(units, len(sizes), len(sets))
        if not self._pager:
            raise BackendError("no memory for the thread that reads weights ahead")

    def _place_experts(self) -> None:
        for name in self._plan.looked_up:
            self._file.expect_single_rows(self._file.tensors[name])
        for name in self._plan.looked_up - self._plan.streamed | self._plan.cached:
            info = self._file.tensors[name]
            self._add(info, self._file.raw(info))
        if not self._plan.cached:
            return
        layers = sorted({name.rpartition(".ffn_")[0] for name in self._plan.cached}, key=lambda p: int(p.split(".")[1]))
        n_experts = max(self._file.tensors[name].shape[0] for name in self._plan.cached)
        sizes = shelves(sorted(self._plan.cached), self._file.tensors, n_experts)
        slots = slots_for(sizes, self._plan.expert_bytes)
        kinds = {size: i for i, size in enumerate(sizes)}
        shelf_array = (structs.Shelf * len(sizes))()
        for size, i in kinds.items():
            shelf_array[i] = structs.Shelf(self._new_room(size * slots[size]).address, size, slots[size], 0)
        matrices = (structs.ExpertMatrix * (3 * len(layers)))()
        for i, prefix in enumerate(layers):
            for m, part in enumerate(("gate", "up", "down")):
                name = f"{prefix}.ffn_{part}_exps.weight"
                if name in self._plan.cached:
                    matrices[3 * i + m] = self._expert_matrix(self._file.tensors[name], n_experts, kinds)
            self._moe_layers[f"{prefix}.ffn_up_exps.weight"] = i
        self._layers = layers
        self._experts = self._lib.li_experts_create(
            matrices, len(layers), n_experts, shelf_array, len(sizes), HALF_LIFE_TOKENS
        )
        if not self._experts:
            raise BackendError("no memory for the thread that loads experts")

    def _expert_matrix(self, info: TensorInfo, n_experts: int, kinds: dict[int, int]) -> structs.ExpertMatrix:
        n_bytes = expert_matrix_bytes(info, n_experts)
        fd, drops = self._files.fd(info.part), self._files.drops(info.part)
        return structs.ExpertMatrix(fd, drops, info.offset, n_bytes, kinds[paged_bytes(n_bytes)], 0)

    # -- running --

    def insert(self, nodes: list[Node]) -> list[Node]:
        """The nodes with a boundary around each that reads streamed weights; experts know their pager."""
        out: list[Node] = []
        open_set = False
        for node in self._with_hints(nodes):
            streams = any(name in self._plan.streamed for name in matrix_names(node))
            if self._pager and (streams or open_set):
                out.append(Page(self._pager, open_set, streams))
            open_set = streams
            out.append(node)
        if self._pager and open_set:
            out.append(Page(self._pager, True, False))
        return out

    def _with_hints(self, nodes: list[Node]) -> list[Node]:
        """Experts' instructions know their pager; before each, the next layer's router is asked about this layer's
        input: what it says mostly holds a layer later, and its favourites load while this layer computes."""
        if not self._experts:
            return nodes
        routers = {id(o.y.buffer): (node, o) for node in nodes if isinstance(node, Linear) for o in node.outputs}
        moes = [node for node in nodes if isinstance(node, Moe) and node.weights.up.name in self._moe_layers]
        following = dict(zip(map(id, moes), moes[1:], strict=False))
        out: list[Node] = []
        for node in nodes:
            if isinstance(node, Moe) and node.weights.up.name in self._moe_layers:
                node.experts, node.paged_layer = self._experts, self._moe_layers[node.weights.up.name]
                if id(node) in following:
                    out += self._hint(node, following[id(node)], routers)
            out.append(node)
        return out

    def _hint(self, moe: Moe, later: Moe, routers: dict[int, tuple[Linear, OutputSpec]]) -> list[Node]:
        here, there = routers[id(moe.logits.buffer)][0], routers[id(later.logits.buffer)]
        linear, router = there
        if router.w.name not in self._plan.resident or here.x.cols != linear.x.cols:
            return []
        if (here.norm is None) != (linear.norm is None):
            return []
        shape = (moe.logits.shape[0], later.config.n_experts)
        guess = Value(moe.logits.program, Buffer(*shape, 0, 0), shape)
        ask = Linear(here.x, [OutputSpec(router.w, guess, router.bias)], linear.norm)
        assert self._experts
        layer = self._moe_layers[later.weights.up.name]
        hint = ExpertHint(guess, self._experts, layer, later.config)
        ask.last = hint.last = moe.last
        return [ask, hint]

    def weights_row(self, name: str) -> int:
        """Bytes of one row of a tensor."""
        info = self._file.tensors[name]
        return info.n_bytes * info.shape[-1] // prod(info.shape)

    @property
    def n_bytes(self) -> int:
        """Memory that weights and buffers may take here."""
        return sum(room.n_bytes for room in self._rooms)

    def state(self) -> PagingState:
        """Counted since loading."""
        stream, experts = self._states()
        return PagingState(
            read_bytes=stream.bytes + experts.bytes,
            read_s=(stream.read_ns + experts.read_ns) / 1e9,
            wait_s=(stream.wait_ns + experts.wait_ns) / 1e9,
            lookups=experts.lookups,
            hits=experts.hits,
            hinted=experts.hinted,
            hints_used=experts.hints_used,
        )

    def check(self) -> None:
        """BackendError where a read failed since the last call; the next pass tries again."""
        stream, experts = self._states()
        if self._pager and stream.failed >= 0:
            self._lib.li_pager_forgive(self._pager)
        if self._experts and experts.failed_layer >= 0:
            self._lib.li_experts_forgive(self._experts)
        if self._pager and stream.failed >= 0:
            raise self._read_error(self._units[stream.failed], stream.status)
        if self._experts and experts.failed_layer >= 0:
            part = ("gate", "up", "down")[experts.failed_matrix]
            name = f"{self._layers[experts.failed_layer]}.ffn_{part}_exps.weight"
            raise self._read_error(f"{name}, expert {experts.failed_expert}", experts.status)

    def drop_lookups(self, n_tokens: int) -> None:
        """n_tokens rows of every embedding were read: give the pages back before they are more than was planned."""
        self._looked_up_bytes += n_tokens * self._lookup_bytes
        if self._looked_up_bytes <= LOOKUP_BYTES:
            return
        self._looked_up_bytes = 0
        for name in self._plan.looked_up:
            self._file.forget(self._file.tensors[name])

    def _states(self) -> tuple[structs.PagerState, structs.ExpertsState]:
        stream, experts = structs.PagerState(), structs.ExpertsState()
        if self._pager:
            self._lib.li_pager_read_state(self._pager, ctypes.byref(stream))
        if self._experts:
            self._lib.li_experts_read_state(self._experts, ctypes.byref(experts))
        return stream, experts

    def _read_error(self, name: str, status: int) -> BackendError:
        path = self._file.paths[self._file.tensors[name.split(",")[0]].part]
        if status == ENDED:
            return BackendError(
                f"{path.name}: the file ends within tensor {name}: it was cut or replaced while in use",
                "load the model again; if that fails, download it again",
            )
        return BackendError(
            f"{path.name}: tensor {name} cannot be read: {os.strerror(status)}",
            "is the disk still there?",
        )

    def close(self) -> None:
        pager, self._pager = self._pager, None
        experts, self._experts = self._experts, None
        if pager:
            self._lib.li_pager_destroy(pager)
        if experts:
            self._lib.li_experts_destroy(experts)
        self._files.close()
        self.weights.clear()
        self._rooms.clear()


def matrix_names(node: Node) -> list[str]:
    """Names of the dense matrices that an instruction reads whole."""
    if isinstance(node, Linear):
        parts = [p for o in node.outputs for p in (o, o.partner) if p is not None]
        return list(dict.fromkeys(p.w.name for p in parts))
    return [node.w.name] if isinstance(node, HeadLinear) else []


def streamed_sets(nodes: list[Node], streamed: frozenset[str]) -> list[list[str]]:
    """Streamed tensors by the instruction that reads them."""
    sets = ([name for name in matrix_names(node) if name in streamed] for node in nodes)
    return [names for names in sets if names]


@dataclass
class Ring:
    """Places of units; `after[i]`: how many sets before unit i's the last one lies that used any of its room."""

    n_bytes: int
    offsets: list[int]
    after: list[int]


def lay_out_ring(sizes: Sequence[int], set_of: Sequence[int], n_bytes: int) -> Ring:
    """Units one behind the other, from the start again where the end is near. FormatError where one does not fit."""
    if max(sizes) > n_bytes:
        raise FormatError(f"a buffer of {max(sizes)} bytes for the largest tensor expected, {n_bytes} bytes planned")
    offsets, at = [], 0
    for size in sizes:
        at = at if at + size <= n_bytes else 0
        offsets.append(at)
        at += size
    n_sets = set_of[-1] + 1
    places = [(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True)]
    after = [_sets_since(i, places, set_of, n_sets) for i in range(len(sizes))]
    if 0 in after:
        raise FormatError(f"buffers of {n_bytes} bytes do not hold all tensors of one instruction")
    return Ring(n_bytes, offsets, after)


def _sets_since(i: int, places: Sequence[tuple[int, int]], set_of: Sequence[int], n_sets: int) -> int:
    """Back through the passes to the nearest earlier unit in the same room; at the latest the unit itself."""
    start, end = places[i]
    n = len(places)
    for back in range(1, n + 1):
        j = (i - back) % n
        if places[j][0] < end and start < places[j][1]:
            return (set_of[i] - set_of[j]) % n_sets if j < i else set_of[i] - set_of[j] + n_sets
    raise AssertionError("a unit overlaps itself")


@dataclass
class _Run:
    """Tensors whose pages touch: read as one."""

    part: int
    first: int  # offset in the file, a whole page
    n_bytes: int
    infos: list[TensorInfo]


def _runs(infos: Sequence[TensorInfo]) -> list[_Run]:
    runs: list[_Run] = []
    for info in sorted(infos, key=lambda i: (i.part, i.offset)):
        first, end = info.offset // PAGE * PAGE, -(-(info.offset + info.n_bytes) // PAGE) * PAGE
        if runs and runs[-1].part == info.part and first <= runs[-1].first + runs[-1].n_bytes:
            runs[-1].infos.append(info)
            runs[-1].n_bytes = max(runs[-1].n_bytes, end - runs[-1].first)
        else:
            runs.append(_Run(info.part, first, end - first, [info]))
    return runs
