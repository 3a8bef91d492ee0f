"""Write a model of random weights, as large as asked for: to try what happens when weights do not fit in memory.

    python benchmarks/make_large_model.py dense 1.5 dense.gguf
    python benchmarks/make_large_model.py moe 2.0 moe.gguf

The answers mean nothing, but they are always the same. The mixture of experts has favourites, as trained ones do: each
router prefers some experts, the more the earlier they come in a shuffled order.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

GB = 10**9
Q8_0, F32 = 8, 0
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5
VOCABULARY = 4096


@dataclass(frozen=True)
class Shape:
    n_embd: int
    n_ff: int  # of one expert where there are several
    n_heads: int
    n_kv_heads: int
    d_head: int
    n_experts: int = 0
    n_used: int = 0


DENSE = Shape(n_embd=2048, n_ff=6144, n_heads=16, n_kv_heads=4, d_head=128)
MOE = Shape(n_embd=1024, n_ff=512, n_heads=8, n_kv_heads=2, d_head=128, n_experts=64, n_used=4)


def write_model(path: Path, shape: Shape, n_bytes: int, seed: int = 0, vocabulary: int = VOCABULARY) -> None:
    """A llama or (with experts) qwen3moe of about n_bytes."""
    rng = np.random.default_rng(seed)
    tensors = list(_tensors(shape, _layers(shape, n_bytes, vocabulary), vocabulary))
    with path.open("wb") as f:
        f.write(_header(shape, tensors, vocabulary))
        f.write(bytes(-f.tell() % 32))
        for name, kind, dims in tensors:
            f.write(_values(rng, shape, name, kind, dims))


def _layers(shape: Shape, n_bytes: int, vocabulary: int) -> int:
    one = sum(_size(kind, dims) for _, kind, dims in _layer_tensors(shape, 0))
    fixed = 2 * _size(Q8_0, (vocabulary, shape.n_embd))
    return max(2, round((n_bytes - fixed) / one))


def _size(kind: int, dims: tuple[int, ...]) -> int:
    n = int(np.prod(dims))
    return n // 32 * 34 if kind == Q8_0 else 4 * n


def _tensors(shape: Shape, n_layers: int, vocabulary: int) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    yield "token_embd.weight", Q8_0, (vocabulary, shape.n_embd)
    for layer in range(n_layers):
        yield from _layer_tensors(shape, layer)
    yield "output_norm.weight", F32, (shape.n_embd,)
    yield "output.weight", Q8_0, (vocabulary, shape.n_embd)


def _layer_tensors(s: Shape, layer: int) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    p = f"blk.{layer}."
    yield p + "attn_norm.weight", F32, (s.n_embd,)
    for name, heads in (("q", s.n_heads), ("k", s.n_kv_heads), ("v", s.n_kv_heads)):
        yield f"{p}attn_{name}.weight", Q8_0, (heads * s.d_head, s.n_embd)
    if s.n_experts:
        yield p + "attn_q_norm.weight", F32, (s.d_head,)
        yield p + "attn_k_norm.weight", F32, (s.d_head,)
    yield p + "attn_output.weight", Q8_0, (s.n_embd, s.n_heads * s.d_head)
    yield p + "ffn_norm.weight", F32, (s.n_embd,)
    if s.n_experts:
        yield p + "ffn_gate_inp.weight", F32, (s.n_experts, s.n_embd)
    exps, experts = ("_exps", (s.n_experts,)) if s.n_experts else ("", ())
    yield f"{p}ffn_gate{exps}.weight", Q8_0, (*experts, s.n_ff, s.n_embd)
    yield f"{p}ffn_up{exps}.weight", Q8_0, (*experts, s.n_ff, s.n_embd)
    yield f"{p}ffn_down{exps}.weight", Q8_0, (*experts, s.n_embd, s.n_ff)


def _values(rng: np.random.Generator, shape: Shape, name: str, kind: int, dims: tuple[int, ...]) -> bytes:
    """Matrices of unit gain, but for a small residual branch; norms of ones; routers with favourites."""
    if "ffn_gate_inp" in name:
        return _router(rng, *dims)
    if kind == F32:
        return np.ones(dims, "<f4").tobytes()
    n_blocks = int(np.prod(dims)) // 32
    blocks = np.empty((n_blocks, 34), np.uint8)
    scale = 1.0 / (73.0 * dims[-1] ** 0.5) * (0.3 if name.endswith(("output.weight", "ffn_down_exps.weight")) else 1.0)
    blocks[:, :2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    blocks[:, 2:] = rng.integers(0, 256, (n_blocks, 32), np.uint8)
    return blocks.tobytes()


def _router(rng: np.random.Generator, n_experts: int, n_embd: int) -> bytes:
    """Rows of falling length: an expert with a longer row has larger logits of either sign, so it wins more often."""
    rows = rng.standard_normal((n_experts, n_embd)) / n_embd**0.5
    length = 3.0 * (1.0 + np.arange(n_experts)) ** -0.6
    return (rows * rng.permutation(length)[:, None]).astype("<f4").tobytes()


def _header(s: Shape, tensors: list[tuple[str, int, tuple[int, ...]]], vocabulary: int) -> bytes:
    arch = "qwen3moe" if s.n_experts else "llama"
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    pieces += [f"\u2581w{i}" for i in range(vocabulary - len(pieces))]
    n_layers = sum(name.endswith("attn_norm.weight") for name, _, _ in tensors)
    metadata: dict[str, Any] = {
        "general.architecture": arch, "general.name": f"random {arch}", "general.file_type": 7,
        f"{arch}.block_count": n_layers, f"{arch}.context_length": 8192, f"{arch}.embedding_length": s.n_embd,
        f"{arch}.feed_forward_length": s.n_ff, f"{arch}.attention.head_count": s.n_heads,
        f"{arch}.attention.head_count_kv": s.n_kv_heads, f"{arch}.attention.key_length": s.d_head,
        f"{arch}.attention.value_length": s.d_head, f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.rope.freq_base": 10000.0, f"{arch}.vocab_size": vocabulary,
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [0.0] * 3 + [-1.0] * (vocabulary - 3),
        "tokenizer.ggml.token_type": (INT32, [2, 3, 3] + [6] * 256 + [1] * (vocabulary - 259)),
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
    }  # fmt: skip
    if s.n_experts:
        metadata |= {
            f"{arch}.expert_count": s.n_experts, f"{arch}.expert_used_count": s.n_used,
            f"{arch}.expert_feed_forward_length": s.n_ff,
        }  # fmt: skip
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata)), *_metadata(metadata)]
    offset = 0
    for name, kind, dims in tensors:
        out += [_string(name), struct.pack(f"<I{len(dims)}QIQ", len(dims), *reversed(dims), kind, offset)]
        offset += _size(kind, dims)
    return b"".join(out)


def _metadata(values: Mapping[str, Any]) -> Iterator[bytes]:
    for key, value in values.items():
        yield _string(key)
        element, value = value if isinstance(value, tuple) else (None, value)
        match value:
            case str():
                yield struct.pack("<I", STRING) + _string(value)
            case float():
                yield struct.pack("<If", FLOAT32, value)
            case int():
                yield struct.pack("<II", UINT32, value)
            case list() if isinstance(value[0], str):
                yield struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(_string, value))
            case list():
                kind, code = (INT32, "i") if element == INT32 else (FLOAT32, "f")
                yield struct.pack(f"<IIQ{len(value)}{code}", ARRAY, kind, len(value), *value)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("dense", "moe"))
    parser.add_argument("gigabytes", type=float)
    parser.add_argument("path", type=Path)
    args = parser.parse_args()
    write_model(args.path, DENSE if args.kind == "dense" else MOE, int(args.gigabytes * GB))
    print(json.dumps({"path": str(args.path), "bytes": args.path.stat().st_size}))


if __name__ == "__main__":
    main()
