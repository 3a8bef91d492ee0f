"""config.json of a model in mlx-lm's format -> ModelConfig, as far as a plan needs it: layers, heads, windows, sizes.

mlx-lm runs the model, so what counts here is the cache that it makes: a few model types keep a window only in sliding
layers, all others everything. A model type is listed once a test has compared its plan with what mlx-lm allocates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localinfer.errors import FormatError, UnsupportedModel
from localinfer.models.config import AttentionConfig, LayerConfig, ModelConfig, MoEConfig

if TYPE_CHECKING:
    from localinfer.formats.checkpoint import Checkpoint

TEXT_ONLY = "only the text part of this model is used: its vision and audio parts are not loaded"


@dataclass(frozen=True)
class CacheRules:
    """What mlx-lm's model class does where config.json leaves a key out. `slides(config, layer)`: keeps a window."""

    slides: Callable[[dict[str, Any], int], bool] = lambda config, i: False
    window: int = 0
    head_size: int = 0  # 0: hidden_size / heads


def _by_type(default: Callable[[int], bool]) -> Callable[[dict[str, Any], int], bool]:
    def slides(config: dict[str, Any], i: int) -> bool:
        kinds = config.get("layer_types")
        return kinds[i] == "sliding_attention" if isinstance(kinds, list) and i < len(kinds) else default(i)

    return slides


def _by_period(default: int) -> Callable[[dict[str, Any], int], bool]:
    def slides(config: dict[str, Any], i: int) -> bool:
        period = config.get("sliding_window_pattern", default)
        return isinstance(period, int) and period > 0 and i % period != period - 1

    return slides


_FULL = CacheRules()
_LLAMA = CacheRules(_by_type(lambda i: False))
_GEMMA3 = CacheRules(_by_period(6), 512, 256)
MODEL_TYPES: dict[str, CacheRules] = {
    "cohere": _FULL,
    "cohere2": CacheRules(_by_period(4), 4096, 128),
    "gemma": _FULL,
    "gemma2": _FULL,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "glm4": _FULL,
    "gpt_oss": CacheRules(_by_type(lambda i: i % 2 == 0), 128, 64),
    "granite": _FULL,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _FULL,
    "olmo2": _FULL,
    "olmo3": CacheRules(_by_type(lambda i: i % 4 != 3)),
    "phi3": _FULL,
    "qwen2": _FULL,
    "qwen2_moe": _FULL,
    "qwen3": _FULL,
    "qwen3_moe": _FULL,
    "seed_oss": _FULL,
    "smollm3": _FULL,
    "stablelm": _FULL,
    "starcoder2": _FULL,
}


def checkpoint_config(checkpoint: Checkpoint) -> ModelConfig:
    """UnsupportedModel for a model type that is not listed, FormatError for a missing or senseless number."""
    kind = checkpoint.model_type
    if kind not in MODEL_TYPES:
        raise UnsupportedModel(
            f"{checkpoint.path}: model type {kind[:40]!r} is not supported in mlx-lm's format "
            f"(known: {', '.join(MODEL_TYPES)})",
            "a GGUF file of the same model may be",
        )
    return _Reader(checkpoint, MODEL_TYPES[kind]).config()


class _Reader:
    def __init__(self, checkpoint: Checkpoint, rules: CacheRules) -> None:
        self._folder = checkpoint
        self._config = checkpoint.config
        self._rules = rules

    def config(self) -> ModelConfig:
        n_layers = self._count("num_hidden_layers", at_most=4096)
        n_heads = self._count("num_attention_heads")
        return ModelConfig(
            arch=self._folder.model_type,
            name=self._folder.path.name,
            n_layers=n_layers,
            n_embd=self._count("hidden_size"),
            n_vocab=self._vocabulary(),
            n_ctx_train=self._count("max_position_embeddings", 0, at_least=0, at_most=1 << 40),
            norm="rms",
            norm_eps=1e-6,
            layers=tuple(self._layer(i, n_heads) for i in range(n_layers)),
            notices=(TEXT_ONLY,) if self._folder.text_only else (),
        )

    def _layer(self, i: int, n_heads: int) -> LayerConfig:
        n_kv_heads = self._count("num_key_value_heads", n_heads)
        if n_heads % n_kv_heads:
            raise self._error("num_key_value_heads", f"a divisor of the {n_heads} heads", n_kv_heads)
        d = self._count("head_dim", self._rules.head_size or self._count("hidden_size") // n_heads, at_most=1 << 16)
        window = self._count("sliding_window", self._rules.window) if self._rules.slides(self._config, i) else 0
        attention = AttentionConfig(n_heads, n_kv_heads, d, d, d**-0.5, window)
        n_ff = self._count("intermediate_size", 0, at_least=0)
        return LayerConfig(
            "window" if window else "full", ("attention",), attention, None, n_ff, moe=self._experts(n_ff)
        )

    def _experts(self, n_ff: int) -> MoEConfig | None:
        n_experts = self._count("num_experts", self._count("num_local_experts", 0, at_least=0), at_least=0)
        if not n_experts:
            return None
        width = self._count("moe_intermediate_size", n_ff or None)
        return MoEConfig(n_experts, self._count("num_experts_per_tok", 4, at_most=n_experts), width)

    def _vocabulary(self) -> int:
        """Rows of the embedding: config.json's number may be that of a larger model around this one."""
        for name, info in self._folder.tensors.items():
            if name.endswith("embed_tokens.weight") and len(info.shape) == 2:
                return info.shape[0]
        return self._count("vocab_size")

    def _count(self, key: str, default: int | None = None, at_least: int = 1, at_most: int = 1 << 24) -> int:
        value = self._config.get(key)
        value = default if value is None else value
        if type(value) is not int or not at_least <= value <= at_most:
            raise self._error(key, f"a whole number in {at_least}..{at_most}", value)
        return value

    def _error(self, key: str, expected: str, found: object) -> FormatError:
        return FormatError(f"{self._folder.path}: config.json: {key}: expected {expected}, found {found!r}"[:300])
