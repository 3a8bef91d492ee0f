"""What the planner needs to know of a model file: ModelFacts, read from an open GGUFFile in milliseconds.

A model of an architecture that we lack still has weights that can be counted: then `config` is None and
`unknown` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localinfer.errors import UnsupportedModel
from localinfer.models.config import ModelConfig
from localinfer.planner.weights import Touched, dominant_type, total_values, touched_weights

if TYPE_CHECKING:
    from localinfer.formats.gguf import GGUFFile, TensorInfo

# general.file_type of a GGUF: what the file as a whole is called. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS",
    20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M",
    28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip


@dataclass(frozen=True)
class ModelFacts:
    """A model as the planner sees it."""

    name: str
    arch: str
    quant: str  # as people call the file: Q4_K_M
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

    @classmethod
    def from_gguf(cls, f: GGUFFile, n_ctx: int | None = None) -> ModelFacts:
        """Read the facts. FormatError for broken metadata; an unknown architecture is not an error here."""
        arch = f.metadata.get_str("general.architecture", "unknown")
        config, unknown = _config(f, n_ctx)
        n_experts = f.metadata.get_int(f"{arch}.expert_count", 0)
        n_used = f.metadata.get_int(f"{arch}.expert_used_count", 0)
        return cls(
            name=f.metadata.get_str("general.name", "") or f.path.stem,
            arch=arch,
            quant=FILE_TYPES.get(f.metadata.get_int("general.file_type", -1), "") or dominant_type(f.tensors),
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
