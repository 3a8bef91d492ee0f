"""What the planner needs to know of a model file: ModelFacts, read from an open file in milliseconds.

A model of an architecture that we lack still has weights that can be counted: then `config` is None and
`unknown` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from localinfer.errors import UnsupportedModel, UsageError
from localinfer.formats.gguf import GGUFFile
from localinfer.models.config import ModelConfig
from localinfer.planner.weights import Touched, dominant_type, total_values, touched_weights
from localinfer.records import dataclass, field, replace

if TYPE_CHECKING:
    from localinfer.formats.checkpoint import Checkpoint
    from localinfer.formats.gguf import TensorInfo
    from localinfer.formats.model_file import ModelFile
    from localinfer.planner.paging import Uses

NOT_PAGED = "weight-budget: mlx-lm loads all weights of a model, none are paged"

# general.file_type of a GGUF: what the file as a whole is called. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS",
    20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M",
    28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip


@dataclass(frozen=True)
class KVCost:
    """What a KV type costs a model, as measured: mean KL divergence from f16 in nats a token, share of tokens whose
    best guess stays, tokens measured, date."""

    kl: float
    top1: float
    tokens: int
    when: str = ""


@dataclass(frozen=True)
class ModelFacts:
    """A model as the planner sees it."""

    name: str
    arch: str
    quant: str  # as people call the file: Q4_K_M
    weight_type: str  # of most bytes: Q4_K
    file_bytes: int
    tensor_bytes: int
    params: int
    n_ctx_train: int  # 0 where the file does not say
    tensors: Mapping[str, TensorInfo]
    config: ModelConfig | None
    touched: Touched
    tokenizer_bytes: int = 0  # of the vocabulary and its merges once they are read
    n_experts: int = 0
    n_experts_used: int = 0
    unknown: str = ""  # why config is None
    kv_type: str = ""  # the one that keys and values are kept in; "": the user chooses
    kv_cost: Mapping[str, KVCost] = field(default_factory=dict)  # by KV type, where it was measured on this file
    mapped: bool = True  # weights are read from the mapped file; False: mlx-lm loads them

    @classmethod
    def from_file(cls, f: ModelFile, n_ctx: int | None = None) -> ModelFacts:
        """Of either kind of model."""
        return cls.from_gguf(f, n_ctx) if isinstance(f, GGUFFile) else cls.from_checkpoint(f)

    @classmethod
    def from_checkpoint(cls, f: Checkpoint) -> ModelFacts:
        """The facts of a folder in mlx-lm's format."""
        from localinfer.formats.checkpoint import gguf_name
        from localinfer.models.checkpoint_config import checkpoint_config

        tensors = {gguf_name(t.name): replace(t, name=gguf_name(t.name)) for t in f.tensors.values()}
        try:
            config, unknown = checkpoint_config(f), ""
        except UnsupportedModel as error:
            config, unknown = None, error.message
        moe = next((layer.moe for layer in config.layers if layer.moe), None) if config else None
        n_experts, n_used = (moe.n_experts, moe.n_used) if moe else (0, 0)
        return cls(
            name=f.path.name,
            arch=f.model_type,
            quant=(weight_type := dominant_type(tensors)),
            weight_type=weight_type,
            file_bytes=f.file_bytes,
            tensor_bytes=f.tensor_bytes,
            params=total_values(tensors),
            n_ctx_train=config.n_ctx_train if config else 0,
            tensors=tensors,
            config=config,
            touched=touched_weights(tensors, n_experts, n_used),
            tokenizer_bytes=MERGED_TOKEN_BYTES * config.n_vocab * 2 if config else 0,
            n_experts=n_experts,
            n_experts_used=n_used,
            unknown=unknown,
            kv_type="f32" if f.float_type.name == "F32" else "f16",
            mapped=False,
        )

    @classmethod
    def from_gguf(cls, f: GGUFFile, n_ctx: int | None = None) -> ModelFacts:
        """Read the facts. FormatError for broken metadata; an unknown architecture is not an error here."""
        arch, weight_type = f.metadata.get_str("general.architecture", "unknown"), dominant_type(f.tensors)
        config, unknown = _config(f, n_ctx)
        n_experts = f.metadata.get_int(f"{arch}.expert_count", 0)
        n_used = f.metadata.get_int(f"{arch}.expert_used_count", 0)
        return cls(
            name=f.metadata.get_str("general.name", "") or f.path.stem,
            arch=arch,
            quant=FILE_TYPES.get(f.metadata.get_int("general.file_type", -1), "") or weight_type,
            weight_type=weight_type,
            file_bytes=f.file_bytes,
            tensor_bytes=f.tensor_bytes,
            params=total_values(f.tensors),
            n_ctx_train=config.n_ctx_train if config else f.metadata.get_int(f"{arch}.context_length", 0),
            tensors=f.tensors,
            config=config,
            touched=touched_weights(f.tensors, n_experts, n_used),
            tokenizer_bytes=_tokenizer_bytes(f),
            n_experts=n_experts,
            n_experts_used=n_used,
            unknown=unknown,
        )

    @cached_property
    def uses(self) -> Uses:
        """How one pass uses the tensors: what paging is decided by. Only of a model whose config is known."""
        from localinfer.planner.paging import uses_of

        assert self.config is not None
        return uses_of(self.config, self.tensors)

    def kv_types(self, k: str, v: str) -> tuple[str, str]:
        """The types asked for, if this model leaves a choice. UsageError where what was asked for cannot be had."""
        if self.kv_type and (k, v) not in (("f16", "f16"), (self.kv_type, self.kv_type)):
            raise UsageError(
                f"kv: mlx-lm keeps this model's keys and values in {self.kv_type}, found {k}/{v}", "leave --kv out"
            )
        return (self.kv_type, self.kv_type) if self.kv_type else (k, v)


# Measured on twelve real vocabularies: 222 to 232 bytes a token without merges, 153 to 162 for each token or merge.
TOKEN_BYTES, MERGED_TOKEN_BYTES = 232, 162


def _tokenizer_bytes(f: GGUFFile) -> int:
    """Python objects of the tokenizer; the file's own strings are not decoded for this."""
    counts = [
        f.metadata.entry(key).count if key in f.metadata else 0
        for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
    ]
    return sum(counts) * (MERGED_TOKEN_BYTES if counts[1] else TOKEN_BYTES)


def _config(f: GGUFFile, n_ctx: int | None) -> tuple[ModelConfig | None, str]:
    try:
        return ModelConfig.from_gguf(f, n_ctx), ""
    except UnsupportedModel as error:
        return None, error.message
