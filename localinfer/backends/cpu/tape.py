"""A forward pass made ready for the kernels: recorded once, run with one call for any T and any number of rows."""

from __future__ import annotations

import ctypes
from weakref import finalize

import numpy as np

from localinfer.backends.cpu import structs
from localinfer.backends.cpu.encode import Encoder
from localinfer.backends.cpu.fuse import fuse, needed_rows
from localinfer.backends.cpu.kv import CpuKV
from localinfer.backends.cpu.lib import Library
from localinfer.backends.cpu.nodes import Node
from localinfer.backends.cpu.paging import PagedWeights
from localinfer.backends.cpu.translate import Translator
from localinfer.errors import BackendError
from localinfer.models.decoder import Decoder
from localinfer.models.program import Program


def record_nodes(lib: Library, decoder: Decoder, max_tokens: int, fused: bool = True) -> tuple[Program, list[Node]]:
    """The decoder's pass as nodes. Which weights a node reads, and in which order, does not depend on max_tokens."""
    program = decoder.record(max_tokens + 1, max_tokens)
    nodes = Translator(program, lib.li_type_supported).nodes()
    if fused:
        nodes = fuse(nodes, program.result)
        needed_rows(nodes, program.n_tokens)
    return program, nodes


class Tape:
    """`max_tokens` is the most that one run takes. `fused=False` interprets the program as it was recorded."""

    def __init__(
        self,
        lib: Library,
        decoder: Decoder,
        max_tokens: int,
        n_threads: int,
        fused: bool = True,
        paged: PagedWeights | None = None,
    ) -> None:
        program, nodes = record_nodes(lib, decoder, max_tokens, fused)
        if paged:
            nodes = paged.insert(nodes)
        encoder = Encoder(lib, program, nodes)
        instructions = encoder.instructions()
        self.max_tokens = max_tokens
        self.n_vocab = program.result.cols if program.result is not None else 0
        self.attention = encoder.attention
        self._lib = lib
        self._keep = (encoder.keep, nodes)  # structs, and through the nodes every weight that they point to
        self._handle = lib.li_tape_create(instructions, len(instructions), encoder.arena_bytes, max_tokens, n_threads)
        if not self._handle:
            raise BackendError(
                f"no memory for {encoder.arena_bytes} bytes of activations", "use a smaller chunk or context"
            )
        self._close = finalize(self, lib.li_tape_destroy, self._handle)

    @property
    def n_bytes(self) -> int:
        """Arena, prepared activations and scratch of all threads."""
        return self._lib.li_tape_bytes(self._handle)

    def run(self, pool: int, ids: np.ndarray, rows: int, kv: CpuKV, scratch: int) -> np.ndarray:
        """ids (T,) int32, stored after kv.length -> logits (rows, V) of the last rows."""
        logits = np.empty((rows, self.n_vocab), np.float32)
        kv.reserve(len(ids))
        args = structs.RunArgs(
            ids.ctypes.data, len(ids), rows, kv.length, kv.layers, kv.states, scratch, logits.ctypes.data
        )
        status = self._lib.li_tape_run(self._handle, pool, ctypes.byref(args))
        if status == -2:
            raise BackendError(f"token ids within the vocabulary expected, found {ids.min()}..{ids.max()}")
        if status == -3:
            raise BackendError(f"position {kv.length + len(ids) - 1} is beyond the model's learned positions")
        assert status == 0, status
        return logits

    def close(self) -> None:
        self._close()
