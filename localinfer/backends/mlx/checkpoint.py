"""A folder in mlx-lm's format behind the engine's Backend seam: mlx-lm builds and runs the model, we keep its cache.

Full layers get mlx-lm's KVCache, allocated once for the whole context, so that it never grows or copies; sliding layers
its RotatingKVCache, which cannot go back once its window is full. Sampling, stopping and templates are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from localinfer.backends.base import DeviceInfo, OneTimeline, Progress
from localinfer.backends.mlx.backend import device_errors
from localinfer.backends.mlx.device import MLXDevice, find_device, set_limits
from localinfer.errors import UnsupportedModel
from localinfer.formats.checkpoint import Checkpoint
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig

SLOW = "mlx-lm on this machine's CPU is a slow path for checking; a GGUF file with --backend cpu is the fast one"
NO_WAY_BACK = (
    "mlx-lm's sliding-window cache cannot go back: no drafting, and an edited conversation is read again from the start"
)


class MLXLMBackend:
    """The engine's Backend for checkpoints."""

    def __init__(self, device: MLXDevice | None = None) -> None:
        self.device = device or find_device()

    def device_info(self) -> DeviceInfo:
        d = self.device
        return DeviceInfo("mlx", d.name, d.memory_bytes, 1, d.features, (SLOW,) if d.target == "cpu" else ())

    def load(self, file: Checkpoint, config: ModelConfig, progress: Progress, paging: None = None) -> MLXLMModel:
        """All weights into memory, and one token through the model: its cache must be the one that was planned."""
        set_limits(self.device, 0)
        with device_errors("loading the weights"):
            module = _load(file)
            model = MLXLMModel(config, module, file.tensor_bytes)
        progress(1.0, "loaded")
        return model

    def close(self) -> None:
        mx.clear_cache()


class MLXLMKV(OneTimeline):
    """One conversation's caches. `n_bytes` is what they hold now: full layers have all their room, windows fill up."""

    def __init__(self, spec: KVSpec, make: Any) -> None:
        self.spec = spec
        self.length = 0
        self._make = make
        self.caches: list[Any] = make()

    @property
    def n_bytes(self) -> int:
        return sum(int(c.nbytes) for c in self.caches)

    def arrays(self) -> list[Any]:
        return [(c.keys, c.values) for c in self.caches if c.keys is not None]

    def truncate(self, length: int) -> int:
        """As KVCache.truncate: 0 once a window has begun to overwrite itself."""
        if length >= self.length:
            return self.length
        if length and all(c.is_trimmable() for c in self.caches):
            for c in self.caches:
                c.trim(self.length - length)
            self.length = length
        else:
            self.caches, self.length = self._make(), 0
        return self.length


class MLXLMModel:
    scratch_bytes = 0  # MLX allocates per operation and keeps a bounded cache
    copied_bytes = 0
    paging = None  # mlx-lm loads all weights

    def __init__(self, config: ModelConfig, module: Any, n_bytes: int) -> None:
        self.config = config
        self.weight_bytes = n_bytes
        slides = any(layer.attention and layer.attention.window for layer in config.layers)
        self.notices: tuple[str, ...] = (NO_WAY_BACK,) if slides else ()
        self._module: Any = module
        self._kinds = _probe(module, config)

    def new_kv(self, spec: KVSpec) -> MLXLMKV:
        return MLXLMKV(spec, lambda: self._caches(spec))

    def forward(self, ids: Sequence[int], kv: MLXLMKV, rows: int) -> np.ndarray:
        """Tokens whose logits nobody wants go through by themselves: mlx-lm computes logits for a whole call."""
        with device_errors("a forward pass"):
            first = len(ids) - rows
            if first:
                self._module(mx.array([list(ids[:first])]), cache=kv.caches)
                mx.eval(kv.arrays())
            logits = np.empty((0, self.config.n_vocab), np.float32)
            if rows:
                out = self._module(mx.array([list(ids[first:])]), cache=kv.caches)[0].astype(mx.float32)
                mx.eval(out, kv.arrays())
                logits = np.array(out)
        kv.length += len(ids)
        return logits

    def _caches(self, spec: KVSpec) -> list[Any]:
        from mlx_lm.models.cache import KVCache, RotatingKVCache

        caches: list[Any] = []
        for layer, dtype in zip(spec.layers, self._kinds, strict=True):
            if layer.window:
                caches.append(RotatingKVCache(max_size=layer.window))
                continue
            cache = KVCache()
            cache.keys = mx.zeros((1, layer.n_kv_heads, layer.n_tokens, layer.d_k), dtype)
            cache.values = mx.zeros((1, layer.n_kv_heads, layer.n_tokens, layer.d_v), dtype)
            caches.append(cache)
        with device_errors("allocating the KV cache"):
            mx.eval([(c.keys, c.values) for c in caches if c.keys is not None])
        return caches

    def close(self) -> None:
        self._module = None
        mx.clear_cache()


def _load(file: Checkpoint) -> Any:
    """mlx-lm's model object. It is never let run code from the folder (config.json's model_file)."""
    from mlx_lm.utils import load_model

    if "model_file" in file.top_config:
        raise UnsupportedModel(
            f"{file.path}: brings its own program ({file.top_config['model_file']!r}), which is not run",
            "use a model type that mlx-lm knows",
        )
    with _as_unsupported(file):
        return load_model(file.path)[0]


@contextmanager
def _as_unsupported(file: Checkpoint) -> Iterator[None]:
    """What mlx-lm raises about a folder is about the folder: missing weights, a model type of another version."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OSError) as error:
        text = " ".join(str(error).split())
        raise UnsupportedModel(
            f"{file.path}: mlx-lm cannot load it: {type(error).__name__}: {text[:200]}",
            "is the download complete, and mlx-lm new enough? pip install -U mlx-lm",
        ) from error


def _probe(module: Any, config: ModelConfig) -> list[mx.Dtype]:
    """Type of each layer's keys. UnsupportedModel where mlx-lm's caches are not those that the plan counted."""
    from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

    caches: list[Any] = make_prompt_cache(module)
    planned = [(layer.attention, bool(layer.attention and layer.attention.window)) for layer in config.layers]
    fits = len(caches) == len(planned) and all(
        type(c) is RotatingKVCache and a and c.max_size == a.window if slides else type(c) is KVCache
        for c, (a, slides) in zip(caches, planned, strict=True)
    )
    if fits:
        module(mx.array([[0]]), cache=caches)
        mx.eval([(c.keys, c.values) for c in caches])
        fits = all(
            a and (c.keys.shape[1], c.keys.shape[3], c.values.shape[3]) == (a.n_kv_heads, a.d_k, a.d_v)
            for c, (a, _) in zip(caches, planned, strict=True)
        )
    if not fits:
        found = ", ".join(sorted({type(c).__name__ for c in caches}))
        raise UnsupportedModel(
            f"model type {config.arch!r}: mlx-lm keeps another cache than planned ({len(caches)} layers of {found})",
            "a GGUF file of the same model may be supported",
        )
    return [c.keys.dtype for c in caches]
