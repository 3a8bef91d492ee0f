"""The cpu backend: weights stay in the mapped file, a forward pass is one call into the C kernels."""

from __future__ import annotations

import ctypes
import mmap
from collections import OrderedDict, defaultdict
from collections.abc import Sequence

import numpy as np

from localinfer.backends.base import DeviceInfo, PagingState, Progress
from localinfer.backends.cpu import key_offsets, structs, trace
from localinfer.backends.cpu.cores import default_threads
from localinfer.backends.cpu.kv import CpuKV
from localinfer.backends.cpu.lib import Library, check_level, open_library
from localinfer.backends.cpu.paging import PagedWeights, streamed_sets
from localinfer.backends.cpu.tape import Tape, record_nodes
from localinfer.backends.cpu.weights import CpuWeight
from localinfer.backends.reference.backend import ReferenceBackend, ReferenceModel
from localinfer.device import installed_bytes, processor_name
from localinfer.errors import BackendError, UsageError
from localinfer.formats.fingerprint import model_fingerprint
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig
from localinfer.models.decoder import Decoder
from localinfer.paths import mean_keys_file
from localinfer.planner.paging import Paging

MAX_THREADS = 256
MAX_TAPES = 2  # chunk sizes in use at the same time


def open_cpu(threads: int | None = None) -> CpuBackend | NumpyFallback:
    """The C kernels, or numpy where they could not be built: then `notices` say so, and how to get them."""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"--threads: 1 to {MAX_THREADS} expected, found {threads}")
    try:
        lib = open_library()
        check_level(lib)
        return CpuBackend(lib, threads or default_threads())
    except BackendError as e:
        return NumpyFallback(f"{e.message}: computing with numpy, far slower; {e.hint}")


class NumpyFallback(ReferenceBackend):
    """The reference operations in the place of the kernels."""

    def __init__(self, notice: str) -> None:
        self._notice = notice

    def device_info(self) -> DeviceInfo:
        return DeviceInfo("cpu", processor_name(), installed_bytes(), 1, ("numpy",), (self._notice,))

    def load(
        self, file: GGUFFile, config: ModelConfig, progress: Progress, paging: Paging | None = None
    ) -> ReferenceModel:
        model = super().load(file, config, progress, paging)
        model.notices = (self._notice,)
        return model


class CpuBackend:
    """A pool of threads; it sleeps while nothing runs."""

    def __init__(self, lib: Library, threads: int) -> None:
        self.lib = lib
        self.pool = lib.li_pool_create(threads)
        if not self.pool:
            raise BackendError(f"no memory for a pool of {threads} threads")
        self.threads: int = lib.li_pool_threads(self.pool)
        self._traced = trace.start_if_asked(lib)

    def device_info(self) -> DeviceInfo:
        features = (self.lib.li_cpu_name().decode(),)
        return DeviceInfo("cpu", processor_name(), installed_bytes(), self.threads, features, v_beside_k=True)

    def load(self, file: GGUFFile, config: ModelConfig, progress: Progress, paging: Paging | None = None) -> CpuModel:
        model = CpuModel(self, file, config, progress, paging)
        progress(1.0, "mapped")
        return model

    def close(self) -> None:
        pool, self.pool = self.pool, None
        if pool:
            self.lib.li_pool_destroy(pool)
            if self._traced:
                trace.print_table(self.lib)


class CpuModel:
    """A model in the mapped file, or paged from it. A tape is made for the first cache with a chunk size: a missing
    tensor, a wrong shape or an unknown type shows in `new_kv`, before anything is asked."""

    notices: tuple[str, ...] = ()

    def __init__(
        self, backend: CpuBackend, file: GGUFFile, config: ModelConfig, progress: Progress, paging: Paging | None
    ) -> None:
        self.config = config
        self._backend = backend
        self._file = file
        self._tapes: OrderedDict[int, Tape] = OrderedDict()
        self._attention_scratch: mmap.mmap | None = None
        self._scratch_address = 0
        self._place(progress, paging)

    def _place(self, progress: Progress, paging: Paging | None) -> None:
        tensors = self._file.tensors.items()
        weights = {name: CpuWeight(name, self._file.raw(info), info.type, info.shape) for name, info in tensors}
        self._paged: PagedWeights | None = None
        if paging is not None:
            _, nodes = record_nodes(self._backend.lib, Decoder(self.config, weights), 1)
            sets = streamed_sets(nodes, paging.streamed)
            self._paged = PagedWeights(self._backend.lib, self._file, paging, sets, progress)
            weights = self._paged.weights
        self._weights = weights
        self.decoder = Decoder(self.config, weights)

    def repage(self, paging: Paging, progress: Progress) -> None:
        """Keep other weights in memory from now on; caches stay as they are."""
        self.close()
        self._place(progress, paging)

    @property
    def scratch_bytes(self) -> int:
        return sum(tape.n_bytes for tape in self._tapes.values()) + len(self._attention_scratch or b"")

    @property
    def copied_bytes(self) -> int:
        if self._paged:
            return self._paged.n_bytes
        return sum(w.copied_bytes for w in self._weights.values())

    def new_kv(self, spec: KVSpec) -> CpuKV:
        kv = CpuKV(self._backend.lib, spec)
        self._reserve_attention(self._tape(spec.chunk), kv)
        if any(layer.k_type in key_offsets.TYPES for layer in spec.layers):
            kv.take_from_keys(self._key_offsets(spec))
        return kv

    def _key_offsets(self, spec: KVSpec) -> list[np.ndarray | None]:
        """By layer: (G, Dk), or None where keys are stored as they are."""
        readers: dict[int, list[structs.Attention]] = defaultdict(list)
        for layer, attention in self._tape(spec.chunk).attention:
            readers[layer].append(attention)
        chosen = [i for i, kv in enumerate(spec.layers) if key_offsets.takes_offset(kv, readers[i])]
        offsets: list[np.ndarray | None] = [None] * len(spec.layers)
        for i, mean in zip(chosen, self._mean_keys(chosen, spec), strict=True):
            offsets[i] = key_offsets.common_part(mean, self.config.layers[i].rope, spec.n_ctx)
        return offsets

    def _mean_keys(self, chosen: list[int], spec: KVSpec) -> list[np.ndarray]:
        """Of the chosen layers: as kept, or measured with a small cache of floats, which is gone afterwards."""
        path = mean_keys_file(model_fingerprint(self._file))
        known = key_offsets.known_means(path, [(spec.layers[i].n_kv_heads, spec.layers[i].d_k) for i in chosen])
        if known is not None:
            return known
        n = min(key_offsets.SAMPLE_TOKENS, spec.chunk, spec.n_ctx)
        small = CpuKV(self._backend.lib, KVSpec.from_config(self.config, n, "f32", "f32", spec.chunk, v_beside_k=True))
        self._reserve_attention(self._tape(spec.chunk), small)
        self.forward(key_offsets.sample_tokens(self.config.n_vocab, n), small, 0)
        first = min(key_offsets.SKIPPED, n // 2)
        layers = self.config.layers
        means = [key_offsets.mean_key(small.read_keys(i, first, n), first, layers[i].rope) for i in chosen]
        if n == key_offsets.SAMPLE_TOKENS:
            key_offsets.keep_means(path, means)
        return means

    def forward(self, ids: Sequence[int], kv: CpuKV, rows: int) -> np.ndarray:
        n, spec = len(ids), kv.spec
        if not 1 <= n <= spec.chunk or not 0 <= rows <= n:
            raise BackendError(f"1..{spec.chunk} tokens and 0..{n} rows expected, found {n} and {rows}")
        if kv.length + n > spec.n_ctx:
            raise BackendError(f"context full: {kv.length} + {n} tokens, room for {spec.n_ctx}", "use a larger --ctx")
        tape = self._tape(spec.chunk)
        tokens = np.ascontiguousarray(ids, np.int32)
        logits = tape.run(self._backend.pool, tokens, rows, kv, self._scratch_address)
        if self._paged:
            self._after_pass(self._paged, kv, n)
        kv.extend(n)
        return logits

    def _after_pass(self, paged: PagedWeights, kv: CpuKV, n: int) -> None:
        try:
            paged.check()
        except BackendError:
            if any(kv.states):  # recurrent memory has seen what it should not
                kv.truncate(0)
            raise
        paged.drop_lookups(n)

    @property
    def paging(self) -> PagingState | None:
        return self._paged.state() if self._paged else None

    def close(self) -> None:
        for tape in self._tapes.values():
            tape.close()
        self._tapes.clear()
        self._weights.clear()
        if self._paged:
            self._paged.close()

    def _tape(self, chunk: int) -> Tape:
        if chunk not in self._tapes:
            while len(self._tapes) >= MAX_TAPES:
                self._tapes.popitem(last=False)[1].close()
            self._tapes[chunk] = Tape(self._backend.lib, self.decoder, chunk, self._backend.threads, paged=self._paged)
        self._tapes.move_to_end(chunk)
        return self._tapes[chunk]

    def _reserve_attention(self, tape: Tape, kv: CpuKV) -> None:
        """Room for attention's partial results, shared by all layers and caches; it must start as zeros."""
        lib, spec = self._backend.lib, kv.spec
        n_bytes = max(
            (
                lib.li_attention_scratch_bytes(
                    ctypes.byref(attention),
                    ctypes.byref(kv.layers[layer]),
                    spec.chunk,
                    spec.n_ctx,
                    self._backend.threads,
                )
                for layer, attention in tape.attention
            ),
            default=0,
        )
        if n_bytes > len(self._attention_scratch or b""):
            self._attention_scratch = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._scratch_address = ctypes.addressof(ctypes.c_char.from_buffer(self._attention_scratch))
