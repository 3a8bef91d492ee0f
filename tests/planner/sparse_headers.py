"""Header-only files of ten real models: true metadata and tensor tables, full length on a sparse disk, no weights.

The sizes are the models' published ones (their config.json files). A vocabulary of placeholders stands in for the real
one, so a file can be planned and not run. Q2_K mixture and header size of the 235B file: those of the 85,691,002,112
byte file on the Hub.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from localinfer.formats.ggml_types import GGMLType
from tests.fakes.gguf_writer import string, value

ALIGN = 32


@dataclass(frozen=True)
class Sizes:
    """A decoder's sizes; `types` gives the type of each tensor by its name's last part, `w` for the rest."""

    arch: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    ffn: int
    ctx: int
    types: dict[str, str]
    experts: int = 0
    used: int = 0
    qk_norm: bool = False
    post_norm: bool = False
    window: int = 0
    header_bytes: int = 0  # pad the header to this


Q4 = {"w": "Q4_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q4_K", "output": "Q6_K"}
TIED = {"w": "Q4_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q6_K"}
QWEN3 = {"vocab": 151936, "head": 128, "qk_norm": True, "ctx": 40960}
LLAMA3 = {"arch": "llama", "vocab": 128256, "kv_heads": 8, "head": 128, "ctx": 131072}
GEMMA3 = {"arch": "gemma3", "vocab": 262144, "qk_norm": True, "post_norm": True, "ctx": 131072, "window": 1024}
EXPERTS = {"arch": "qwen3moe", "kv_heads": 4, "experts": 128, "used": 8}
Q2 = {"w": "Q2_K", "attn_v": "Q4_K", "attn_output": "Q3_K", "ffn_down_exps": "Q3_K", "output": "Q6_K"}
BF16 = {"w": "BF16", "output": "BF16"}
MOE_Q4 = {**Q4, "ffn_down_exps": "Q6_K"}

MODELS = {
    "qwen3-235b-a22b-q2_k": Sizes(
        hidden=4096, layers=94, heads=64, ffn=1536, types=Q2, header_bytes=6006016, **QWEN3, **EXPERTS
    ),
    "qwen3-30b-a3b-q4_k": Sizes(hidden=2048, layers=48, heads=32, ffn=768, types=MOE_Q4, **QWEN3, **EXPERTS),
    "qwen3-8b-bf16": Sizes("qwen3", hidden=4096, layers=36, heads=32, kv_heads=8, ffn=12288, types=BF16, **QWEN3),
    "qwen3-8b-q4_k": Sizes("qwen3", hidden=4096, layers=36, heads=32, kv_heads=8, ffn=12288, types=Q4, **QWEN3),
    "qwen3-0.6b-q8_0": Sizes(
        "qwen3", hidden=1024, layers=28, heads=16, kv_heads=8, ffn=3072, types={"w": "Q8_0"}, **QWEN3
    ),
    "llama-3.1-8b-q4_k": Sizes(hidden=4096, layers=32, heads=32, ffn=14336, types=Q4, **LLAMA3),
    "llama-3.3-70b-q4_k": Sizes(hidden=8192, layers=80, heads=64, ffn=28672, types=Q4, **LLAMA3),
    "gemma-3-12b-q4_k": Sizes(hidden=3840, layers=48, heads=16, kv_heads=8, head=256, ffn=15360, types=TIED, **GEMMA3),
    "gemma-3-27b-q4_k": Sizes(hidden=5376, layers=62, heads=32, kv_heads=16, head=128, ffn=21504, types=TIED, **GEMMA3),
    "phi-3-mini-q4_k": Sizes(
        "phi3", vocab=32064, hidden=3072, layers=32, heads=32, kv_heads=32, head=96, ffn=8192, ctx=4096,
        types={"w": "Q4_K", "output": "Q6_K"},
    ),
}  # fmt: skip


def tensor_table(s: Sizes) -> list[tuple[str, tuple[int, ...], GGMLType]]:
    """(name, shape in numpy order, type) in file order."""

    def matrix(name: str, *shape: int) -> tuple[str, tuple[int, ...], GGMLType]:
        return f"{name}.weight", shape, GGMLType[s.types.get(name.split(".")[-1], s.types["w"])]

    def vector(name: str, n: int) -> tuple[str, tuple[int, ...], GGMLType]:
        return f"{name}.weight", (n,), GGMLType.F32

    q, kv, e = s.heads * s.head, s.kv_heads * s.head, s.experts
    table = [matrix("token_embd", s.vocab, s.hidden)]
    for i in range(s.layers):
        b = f"blk.{i}."
        table += [vector(b + "attn_norm", s.hidden), vector(b + "ffn_norm", s.hidden)]
        table += [matrix(b + "attn_q", q, s.hidden), matrix(b + "attn_k", kv, s.hidden)]
        table += [matrix(b + "attn_v", kv, s.hidden), matrix(b + "attn_output", s.hidden, q)]
        if s.qk_norm:
            table += [vector(b + "attn_q_norm", s.head), vector(b + "attn_k_norm", s.head)]
        if s.post_norm:
            table += [vector(b + "post_attention_norm", s.hidden), vector(b + "post_ffw_norm", s.hidden)]
        if e:
            table.append((b + "ffn_gate_inp.weight", (e, s.hidden), GGMLType.F32))
            table += [matrix(b + f"ffn_{m}_exps", e, s.ffn, s.hidden) for m in ("gate", "up")]
            table.append(matrix(b + "ffn_down_exps", e, s.hidden, s.ffn))
        else:
            table += [matrix(b + f"ffn_{m}", s.ffn, s.hidden) for m in ("gate", "up")]
            table.append(matrix(b + "ffn_down", s.hidden, s.ffn))
    table.append(vector("output_norm", s.hidden))
    return [*table, matrix("output", s.vocab, s.hidden)] if "output" in s.types else table


def metadata(name: str, s: Sizes) -> dict[str, Any]:
    """What the files say of themselves; head sizes only where they differ from hidden / heads, as converters do."""
    keys: dict[str, Any] = {
        "block_count": s.layers, "context_length": s.ctx, "embedding_length": s.hidden, "feed_forward_length": s.ffn,
        "attention.head_count": s.heads, "attention.head_count_kv": s.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6,
    }  # fmt: skip
    if s.heads * s.head != s.hidden:
        keys |= {"attention.key_length": s.head, "attention.value_length": s.head}
    if s.experts:
        keys |= {"expert_count": s.experts, "expert_used_count": s.used, "expert_feed_forward_length": s.ffn}
    if s.window:
        keys["attention.sliding_window"] = s.window
    n_tokens = s.vocab if s.header_bytes else 1000  # the whole vocabulary only where the header's size matters
    tokens = [f"<{i}>" for i in range(n_tokens)]
    return {
        "general.architecture": s.arch, "general.name": name, "general.quantization_version": 2,
        **{f"{s.arch}.{k}": v for k, v in keys.items()},
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * n_tokens, "tokenizer.ggml.merges": ["< 0"],
    }  # fmt: skip


def write_header(folder: Path, name: str, sizes: Sizes | None = None) -> Path:
    """A sparse file of the model's full length."""
    s = sizes or MODELS[name]
    table = tensor_table(s)
    keys = metadata(name, s)
    if s.header_bytes:
        keys["general.description"] = ""
        keys["general.description"] = "-" * (s.header_bytes - len(_header(keys, table)))
    head = _header(keys, table)
    head += bytes(-len(head) % ALIGN)
    path = folder / f"{name}.gguf"
    with path.open("wb") as f:
        f.write(head)
        f.truncate(len(head) + sum(_padded(n_bytes(shape, t)) for _, shape, t in table))
    return path


def n_bytes(shape: tuple[int, ...], t: GGMLType) -> int:
    return prod(shape) // t.block_values * t.block_bytes


def _padded(n: int) -> int:
    return -(-n // ALIGN) * ALIGN


def _header(keys: dict[str, Any], table: list[tuple[str, tuple[int, ...], GGMLType]]) -> bytes:
    out = [b"GGUF", struct.pack("<IQQ", 3, len(table), len(keys))]
    out += [string(k) + value(v) for k, v in keys.items()]
    offset = 0
    for name, shape, t in table:
        dims = tuple(reversed(shape))
        out += [string(name), struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, t.value, offset)]
        offset += _padded(n_bytes(shape, t))
    return b"".join(out)
