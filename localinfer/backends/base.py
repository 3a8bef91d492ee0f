"""What the engine asks of a device. One Backend class a device; everything above knows only these protocols.

All calls come from one thread (the engine's worker). A backend knows nothing of text, chat or policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from localinfer.kv.prefix import common_prefix
from localinfer.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from localinfer.formats.gguf import GGUFFile
    from localinfer.kv.spec import KVSpec
    from localinfer.models.config import ModelConfig
    from localinfer.planner.paging import Paging

Progress = Callable[[float, str], None]  # fraction 0..1, what is being done


@dataclass(frozen=True)
class DeviceInfo:
    """The device as the backend sees it once opened."""

    backend: str  # cpu, mlx, reference
    name: str
    memory_bytes: int
    threads: int
    features: tuple[str, ...] = ()  # instruction sets or GPU family, for doctor
    notices: tuple[str, ...] = ()  # slow or lossy paths in use, one line each
    v_beside_k: bool = False  # its KVSpec must store values that are part of keys (MLA) once more


@dataclass(frozen=True)
class PagingState:
    """What paging did since a model was loaded. Seconds of reads and of waiting may overlap with computing."""

    read_bytes: int = 0
    read_s: float = 0.0
    wait_s: float = 0.0  # that compute waited for weights
    lookups: int = 0  # experts that tokens chose, counted once a layer and pass
    hits: int = 0  # of these, in memory
    hinted: int = 0  # matrices loaded before the router had spoken
    hints_used: int = 0  # of these, asked for then

    def since(self, earlier: PagingState) -> PagingState:
        """What happened after `earlier`."""
        return PagingState(**{name: getattr(self, name) - getattr(earlier, name) for name in self.__annotations__})


SLOW_SHARE = 0.7  # of the forecast speed of a disk: below, the user should know
LEAST_READ_S = 0.5  # shorter than this says nothing about a disk


def disk_is_slow(p: PagingState, forecast_bytes_s: float) -> bool:
    """Did these reads fall clearly behind the forecast?"""
    return p.read_s >= LEAST_READ_S and p.read_bytes < SLOW_SHARE * forecast_bytes_s * p.read_s


class KVCache(Protocol):
    """Stored keys and values: those of a running timeline of tokens, and of earlier ones as far as there is room."""

    spec: KVSpec

    @property
    def length(self) -> int:
        """Tokens stored of the running timeline."""

    @property
    def shared(self) -> int:
        """Tokens that the last `switch` had in common with any timeline, even if one cannot go on from there."""

    @property
    def n_bytes(self) -> int:
        """Bytes allocated: spec.n_bytes, and up to spec.checkpoint_bytes more."""

    def truncate(self, length: int) -> int:
        """Forget all tokens after `length`; returns the length that could be kept (0: prefill again)."""

    def switch(self, tokens: Sequence[int], ids: Sequence[int]) -> int:
        """Leave the timeline `tokens`, which is stored, for one that begins with `ids`; returns how many of ids are
        stored, in whatever timeline that may be."""

    def mark(self, tokens: Sequence[int]) -> None:
        """Remember how to go back to the length of now, where windows or recurrent state would forget."""

    def clear(self) -> None:
        """Forget everything."""


class OneTimeline:
    """For caches that hold the running timeline and nothing else. Brings what KVCache asks beside `truncate`."""

    length: int
    shared = 0

    def truncate(self, length: int) -> int:
        raise NotImplementedError

    def switch(self, tokens: Sequence[int], ids: Sequence[int]) -> int:
        return self.truncate(common_prefix(tokens, ids))

    def mark(self, tokens: Sequence[int]) -> None:
        """Nothing is remembered."""

    def clear(self) -> None:
        self.truncate(0)


class LoadedModel(Protocol):
    """A model on a device."""

    config: ModelConfig
    scratch_bytes: int  # activations and tables allocated so far, as the plan's scratch row
    copied_bytes: int  # weights copied or repacked beside the mapped file
    notices: tuple[str, ...]

    @property
    def paging(self) -> PagingState | None:
        """None where all weights are in memory."""

    def new_kv(self, spec: KVSpec) -> KVCache:
        """Allocate a cache. BackendError when memory is gone."""

    def forward(self, ids: Sequence[int], kv: KVCache, rows: int) -> np.ndarray:
        """Append ids (T <= kv.spec.chunk) at kv.length and return float32 (rows, V) logits of the last rows.

        rows = 0 runs for the cache only and returns (0, V). kv.length grows by T.
        """

    def close(self) -> None: ...


class Backend(Protocol):
    def device_info(self) -> DeviceInfo: ...

    def load(
        self, file: GGUFFile, config: ModelConfig, progress: Progress, paging: Paging | None = None
    ) -> LoadedModel:
        """Make the model ready to run. The file stays open as long as the model. With `paging` only what it says stays
        in memory."""

    def close(self) -> None: ...
