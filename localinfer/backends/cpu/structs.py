"""The structs of cpu_kernels/localinfer_kernels.h and the headers it includes, field by field for ctypes."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_void_p

ABI = 4  # LI_ABI of the header that these structs mirror
MAX_PREPARATIONS = 4

OP_NAMES = (
    "none", "embed", "norm", "linear", "rope_table", "rope", "attention", "glu", "unary", "binary", "moe",
    "embed_positions", "head_copy", "head_linear", "conv", "scan", "delta", "page", "expert_hint",
)  # fmt: skip
OPS = {name: i for i, name in enumerate(OP_NAMES)}

NORM_KINDS = {"rms": 1, "layer": 2}
ACTIVATIONS = {"silu": 1, "gelu": 2, "relu2": 3, "swiglu_oai": 4, "sigmoid": 5, "relu": 6}
UNARY_KINDS = {"activate": 1, "scale": 2, "softcap": 3, "position_scale": 4}
BINARY_KINDS = {"add": 1, "mul": 2}
ROPE_STYLES = {"interleaved": 0, "half": 1}
GATINGS = {"softmax": 0, "sigmoid": 1, "softmax_after_topk": 2}
KV_TYPE_IDS = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}


class Matrix(Structure):
    _fields_ = (
        ("blocks", c_void_p),
        ("type", c_int32),
        ("reserved", c_int32),
        ("n_in", c_int64),
        ("n_out", c_int64),
        ("row_bytes", c_int64),
    )


class View(Structure):
    _fields_ = (
        ("offset", c_int64),
        ("ld", c_int32),
        ("n", c_int32),
        ("last_rows", c_int32),
        ("skip", c_int32),
        ("external", c_int32),
        ("reserved", c_int32),
    )


class Norm(Structure):
    _fields_ = (
        ("kind", c_int32),
        ("group", c_int32),
        ("eps", c_float),
        ("step", c_int32),
        ("w", c_void_p),
        ("b", c_void_p),
    )


class EmbedArgs(Structure):
    _fields_ = (("table", Matrix), ("scale", c_float), ("reserved", c_int32), ("out", View))


class NormArgs(Structure):
    _fields_ = (("norm", Norm), ("x", View), ("out", View))


class Output(Structure):
    _fields_ = (
        ("w", Matrix),
        ("bias", c_void_p),
        ("scale", c_float),
        ("softcap", c_float),
        ("act", c_int32),
        ("paired", c_int32),
        ("preparation", c_int32),
        ("reserved", c_int32),
        ("y", View),
        ("add", View),
    )


class LinearArgs(Structure):
    _fields_ = (
        ("x", View),
        ("norm", Norm),
        ("n_outputs", c_int32),
        ("n_preparations", c_int32),
        ("preparation_type", c_int32 * MAX_PREPARATIONS),
        ("outputs", POINTER(Output)),
    )


class RopeTableArgs(Structure):
    _fields_ = (("inv_freq", POINTER(c_double)), ("n_pairs", c_int32), ("magnitude", c_float), ("out", View))


class Rotation(Structure):
    _fields_ = (
        ("table", View),
        ("head", c_int32),
        ("n_pairs", c_int32),
        ("style", c_int32),
        ("reserved", c_int32),
    )


class RopeArgs(Structure):
    _fields_ = (("rotation", Rotation), ("x", View), ("out", View))


class Attention(Structure):
    """li_attention of attention.h."""

    _fields_ = (
        ("n_heads", c_int32),
        ("chunk", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("sinks", c_void_p),
        ("slopes", c_void_p),
    )


class AttentionArgs(Structure):
    _fields_ = (
        ("q", View),
        ("k", View),
        ("v", View),
        ("out", View),
        ("q_norm", Norm),
        ("k_norm", Norm),
        ("rotation", Rotation),
        ("attention", Attention),
        ("layer", c_int32),
        ("reserved", c_int32),
    )


class GluArgs(Structure):
    _fields_ = (("gate", View), ("up", View), ("out", View), ("act", c_int32), ("reserved", c_int32))


class UnaryArgs(Structure):
    _fields_ = (
        ("x", View),
        ("out", View),
        ("kind", c_int32),
        ("act", c_int32),
        ("factor", c_float),
        ("every", c_int32),
    )


class BinaryArgs(Structure):
    _fields_ = (("a", View), ("b", View), ("out", View), ("kind", c_int32), ("reserved", c_int32))


class MoeArgs(Structure):
    _fields_ = (
        ("x", View),
        ("logits", View),
        ("out", View),
        ("gate", Matrix),
        ("up", Matrix),
        ("down", Matrix),
        ("selection_bias", c_void_p),
        ("gate_bias", c_void_p),
        ("up_bias", c_void_p),
        ("down_bias", c_void_p),
        ("n_experts", c_int32),
        ("n_used", c_int32),
        ("gating", c_int32),
        ("normalize", c_int32),
        ("n_groups", c_int32),
        ("n_groups_used", c_int32),
        ("act", c_int32),
        ("scale", c_float),
        ("weigh_input", c_int32),
        ("paged_layer", c_int32),
        ("experts", c_void_p),
    )


class EmbedPositionsArgs(Structure):
    _fields_ = (("table", Matrix), ("out", View))


class HeadCopyArgs(Structure):
    _fields_ = (
        ("x", View),
        ("out", View),
        ("n_heads", c_int32),
        ("x_head", c_int32),
        ("out_head", c_int32),
        ("x_first", c_int32),
        ("out_first", c_int32),
        ("n", c_int32),
    )


class HeadLinearArgs(Structure):
    _fields_ = (("x", View), ("out", View), ("w", Matrix), ("n_heads", c_int32), ("reserved", c_int32))


class ConvArgs(Structure):
    _fields_ = (
        ("x", View),
        ("out", View),
        ("taps", c_void_p),
        ("bias", c_void_p),
        ("n_taps", c_int32),
        ("layer", c_int32),
    )


class ScanArgs(Structure):
    _fields_ = (
        ("x", View),
        ("dt", View),
        ("b", View),
        ("c", View),
        ("beta", View),
        ("out", View),
        ("a", c_void_p),
        ("dt_bias", c_void_p),
        ("d", c_void_p),
        ("n_heads", c_int32),
        ("d_head", c_int32),
        ("d_state", c_int32),
        ("n_groups", c_int32),
        ("tiled", c_int32),
        ("a_values", c_int32),
        ("layer", c_int32),
        ("eps", c_float),
        ("state_offset", c_int64),
    )


class Instruction(Structure):
    _fields_ = (("op", c_int32), ("reserved", c_int32), ("args", c_void_p))


class KVLayer(Structure):
    """li_kv_layer of attention.h."""

    _fields_ = (
        ("k_type", c_int32),
        ("v_type", c_int32),
        ("n_kv_heads", c_int32),
        ("d_k", c_int32),
        ("d_v", c_int32),
        ("page_tokens", c_int32),
        ("n_pages", c_int32),
        ("window", c_int32),
        ("k_rotate", c_int32),
        ("v_rotate", c_int32),
        ("pages", c_void_p),
        ("page_bytes", c_int64),
        ("table", POINTER(c_int32)),
        ("k_offset", c_void_p),
    )


class RunArgs(Structure):
    _fields_ = (
        ("ids", c_void_p),
        ("n_tokens", c_int32),
        ("n_rows", c_int32),
        ("start", c_int64),
        ("kv", POINTER(KVLayer)),
        ("state", POINTER(c_void_p)),
        ("attention_scratch", c_void_p),
        ("output", c_void_p),
    )


class Extent(Structure):
    """li_extent of storage.h."""

    _fields_ = (("fd", c_int32), ("drop", c_int32), ("offset", c_int64), ("bytes", c_int64), ("least", c_int64))


class Unit(Structure):
    """li_unit of pager.h."""

    _fields_ = (("source", Extent), ("to", c_void_p), ("set", c_int32), ("after", c_int32))


class PagerState(Structure):
    """li_pager_state of pager.h."""

    _fields_ = (
        ("bytes", c_int64),
        ("read_ns", c_int64),
        ("wait_ns", c_int64),
        ("failed", c_int32),
        ("status", c_int32),
    )


class ExpertMatrix(Structure):
    """li_expert_matrix of experts.h."""

    _fields_ = (
        ("fd", c_int32),
        ("drop", c_int32),
        ("offset", c_int64),
        ("bytes", c_int64),
        ("shelf", c_int32),
        ("reserved", c_int32),
    )


class Shelf(Structure):
    """li_shelf of experts.h."""

    _fields_ = (("base", c_void_p), ("slot_bytes", c_int64), ("n_slots", c_int32), ("reserved", c_int32))


class ExpertsState(Structure):
    """li_experts_state of experts.h."""

    _fields_ = (
        ("bytes", c_int64),
        ("read_ns", c_int64),
        ("wait_ns", c_int64),
        ("lookups", c_int64),
        ("hits", c_int64),
        ("hinted", c_int64),
        ("hints_used", c_int64),
        ("failed_layer", c_int32),
        ("failed_matrix", c_int32),
        ("failed_expert", c_int32),
        ("status", c_int32),
    )


class PageArgs(Structure):
    _fields_ = (("pager", c_void_p), ("done", c_int32), ("need", c_int32))


class ExpertHintArgs(Structure):
    _fields_ = (
        ("logits", View),
        ("experts", c_void_p),
        ("layer", c_int32),
        ("n_experts", c_int32),
        ("n_used", c_int32),
        ("reserved", c_int32),
    )
