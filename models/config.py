"""What a model is, read from GGUF metadata: one frozen ModelConfig with a LayerConfig per layer.

Every layer says for itself how many heads, which window, which rope and which feed-forward it has, so mixed
models need no flags. The config is plain values: no arrays, no backend. Families (models/families/) fill it in.

Letters: T tokens, E model width, H query heads, G key/value heads, D head size, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from localinfer.records import dataclass

if TYPE_CHECKING:
    from localinfer.formats.gguf import GGUFFile

RopeStyle = Literal["interleaved", "half"]
LayerKind = Literal["full", "window", "chunked", "mla", "state", "none"]
Mixer = Literal["attention", "mla", "mamba", "mamba2", "shortconv", "delta"]
Gating = Literal["softmax", "sigmoid", "softmax_after_topk"]
Activation = Literal["silu", "gelu", "relu", "relu2", "sigmoid", "swiglu_oai"]


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding of one layer, all scaling schemes reduced to frequencies and a magnitude."""

    n_dims: int  # leading values of each head that are rotated; even
    style: RopeStyle  # interleaved: pairs (2i, 2i+1); half: pairs (i, i + n_dims/2)
    inv_freq: tuple[float, ...]  # n_dims/2 angles in radians per position, scaling already applied
    magnitude: float = 1.0  # cos and sin are multiplied by it (yarn, longrope)

    @property
    def pairs(self) -> tuple[slice, slice]:
        """Where the two values of each rotated pair stand in a head."""
        if self.style == "interleaved":
            return slice(0, self.n_dims, 2), slice(1, self.n_dims, 2)
        return slice(0, self.n_dims // 2), slice(self.n_dims // 2, self.n_dims)


@dataclass(frozen=True)
class MoEConfig:
    """Routing of one mixture-of-experts feed-forward."""

    n_experts: int
    n_used: int
    n_ff: int  # width of one expert
    gating: Gating = "softmax"
    normalize: bool = True  # chosen probabilities are divided by their sum
    scale: float = 1.0  # and then multiplied by this
    weigh_input: bool = False  # the weight multiplies an expert's input instead of its output (llama4)
    n_groups: int = 1  # deepseek: experts are chosen within the best n_groups_used groups
    n_groups_used: int = 1


@dataclass(frozen=True)
class AttentionConfig:
    """One attention layer. The KV cache stores n_kv_heads * (d_k + d_v) values a token."""

    n_heads: int
    n_kv_heads: int
    d_k: int
    d_v: int
    scale: float  # multiplies q.k
    window: int = 0  # a token sees this many positions including itself; 0: all of them
    chunk: int = 0  # llama4: a token sees only its own chunk of this many positions
    softcap: float = 0.0  # cap * tanh(score / cap); 0: off
    alibi_max_bias: float = 0.0
    temperature_every: int = 0  # llama4: queries grow by a factor with each so many positions; 0: off
    temperature_scale: float = 0.0
    v_in_k: bool = False  # a value is the first d_v numbers of its key and is not stored again (MLA)


@dataclass(frozen=True)
class MLAConfig:
    """Multi-head latent attention (DeepSeek V2, arXiv 2405.04434): keys and values share one compressed row."""

    kv_rank: int  # width of the compressed row
    n_rope: int  # rotated values that follow it, shared by all heads
    d_k: int  # a head's key once expanded, rotated part included
    d_v: int
    absorbed: bool  # attends over the compressed rows; otherwise keys and values are expanded and stored


@dataclass(frozen=True)
class StateConfig:
    """Fixed-size memory of a recurrent mixer: the last inputs of its convolution, and what its scan keeps."""

    conv_kernel: int  # taps; conv_kernel - 1 rows are remembered
    conv_channels: int
    n_heads: int = 0
    d_head: int = 0  # rows of a head's scan state: values of x
    d_state: int = 0  # columns of a head's scan state
    n_groups: int = 1  # heads share b and c (mamba), or queries and keys (delta), in so many groups
    tiled_groups: bool = False  # head h belongs to group h % n_groups instead of h // (n_heads / n_groups)

    @property
    def conv_values(self) -> int:
        return (self.conv_kernel - 1) * self.conv_channels

    @property
    def scan_values(self) -> int:
        return self.n_heads * self.d_head * self.d_state


@dataclass(frozen=True)
class LayerConfig:
    """One layer: which mixers see other tokens (their outputs add up; none in a pure feed-forward layer), what it
    keeps per token (kind), how it is fed forward (n_ff 0 and no moe: not at all)."""

    kind: LayerKind
    mixers: tuple[Mixer, ...]
    attention: AttentionConfig | None
    rope: RopeConfig | None
    n_ff: int
    activation: Activation = "silu"
    moe: MoEConfig | None = None
    mla: MLAConfig | None = None
    state: StateConfig | None = None

    @property
    def state_values(self) -> int:
        """float32 values of recurrent state of one sequence."""
        return self.state.conv_values + self.state.scan_values if self.state else 0


@dataclass(frozen=True)
class ModelConfig:
    """The whole model. `arch` is GGUF's general.architecture."""

    arch: str
    name: str
    n_layers: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    norm: Literal["rms", "layer"]
    norm_eps: float
    layers: tuple[LayerConfig, ...]
    embedding_scale: float = 1.0  # multiplies the embedding rows
    residual_scale: float = 1.0  # multiplies each block's output before it is added
    logit_scale: float = 1.0  # multiplies the logits
    logit_softcap: float = 0.0
    parallel_residual: bool = False  # attention and feed-forward read the same input
    ffn_norm: str = "ffn_norm"  # GGUF name of the norm before the feed-forward
    head_norm: Literal["before_rope", "after_rope", "after_rope_unweighted"] = "before_rope"  # of queries and keys
    rope_scaling: str = "none"  # as the file names it; for people, already inside RopeConfig
    notices: tuple[str, ...] = ()  # what a user should know about this model

    @classmethod
    def from_gguf(cls, f: GGUFFile, n_ctx: int | None = None) -> ModelConfig:
        """Read the config; `n_ctx` is the context to be allocated, by which a few models choose their rope.

        UnsupportedModel (exit 5) names an architecture we lack; FormatError a missing or broken key.
        """
        from localinfer.models.families import architecture

        return architecture(f).config(f, n_ctx)
