#!/usr/bin/env python3
"""Makes the tiny models that no other source has: random weights, and llama.cpp's logits for them.

    python make.py        (needs gguf and llama-cpp-python 0.3.36)

Weights are float32, so nothing is rounded but by the order of sums. Of the logits every eighth row is kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np

HERE = Path(__file__).parent
WIDTH, FF, VOCAB, LAYERS, HEADS, KV_HEADS, HEAD, EXPERTS = 32, 32, 320, 2, 4, 2, 8, 4
TOKENS, EVERY = 96, 8

Shapes = dict[str, tuple[int, ...]]


def attention(kv_heads: int = KV_HEADS, norms: str = "", biases: bool = False) -> Shapes:
    n_q, n_k = HEADS * HEAD, kv_heads * HEAD
    found: Shapes = {"attn_norm.weight": (WIDTH,), "attn_q.weight": (n_q, WIDTH), "attn_k.weight": (n_k, WIDTH)}
    found |= {"attn_v.weight": (n_k, WIDTH), "attn_output.weight": (WIDTH, n_q), "ffn_norm.weight": (WIDTH,)}
    if norms:
        found |= {f"attn_{x}_norm.weight": (HEAD if norms == "head" else n,) for x, n in (("q", n_q), ("k", n_k))}
    if biases:
        found |= {"attn_q.bias": (n_q,), "attn_k.bias": (n_k,), "attn_v.bias": (n_k,)}
    return found


def dense(gate: bool = True) -> Shapes:
    found: Shapes = {"ffn_up.weight": (FF, WIDTH), "ffn_down.weight": (WIDTH, FF)}
    return found | ({"ffn_gate.weight": (FF, WIDTH)} if gate else {})


def experts(shared: bool = False, choice_bias: bool = False) -> Shapes:
    found: Shapes = {"ffn_gate_inp.weight": (EXPERTS, WIDTH), "ffn_down_exps.weight": (EXPERTS, WIDTH, FF)}
    found |= {f"ffn_{x}_exps.weight": (EXPERTS, FF, WIDTH) for x in ("gate", "up")}
    if shared:
        found |= {"ffn_gate_shexp.weight": (FF, WIDTH), "ffn_up_shexp.weight": (FF, WIDTH)}
        found |= {"ffn_down_shexp.weight": (WIDTH, FF)}
    return found | ({"exp_probs_b.bias": (EXPERTS,)} if choice_bias else {})


MOE = {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": FF}
SHARED = {**MOE, "expert_shared_count": 1, "leading_dense_block_count": 1}
SECTIONS = {"rope.dimension_sections": [2, 1, 1, 0]}
#       architecture: (tensors of each layer, further metadata)
MODELS: dict[str, tuple[list[Shapes], dict[str, Any]]] = {
    "arcee": ([attention() | dense(gate=False)] * 2, {}),
    "deepseek": ([attention() | dense(), attention() | experts(shared=True)], {**SHARED, "expert_weights_scale": 1.5}),
    "dots1": ([attention(HEADS, "head") | dense(), attention(HEADS, "head") | experts(True, True)],
              {**SHARED, "expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_gating_func": 2}),
    "minimax-m2": ([attention(norms="row") | experts(choice_bias=True)] * 2,
                   {**MOE, "expert_gating_func": 2, "rope.dimension_count": HEAD // 2}),
    "qwen2vl": ([attention(biases=True) | dense()] * 2, SECTIONS),
    "qwen3vl": ([attention(norms="head") | dense()] * 2, SECTIONS),
    "qwen3vlmoe": ([attention(norms="head") | experts()] * 2, {**MOE, **SECTIONS}),
    "xverse": ([attention() | dense()] * 2, {}),
}  # fmt: skip


def write(name: str, path: Path, rng: np.random.Generator) -> None:
    layers, extra = MODELS[name]
    writer = gguf.GGUFWriter(path, name)
    kv_heads = HEADS if name == "dots1" else KV_HEADS
    keys = {"block_count": LAYERS, "context_length": 512, "embedding_length": WIDTH, "feed_forward_length": FF}
    keys |= {"attention.head_count": HEADS, "attention.head_count_kv": kv_heads, "rope.dimension_count": HEAD, **extra}
    for key, value in keys.items():
        if isinstance(value, bool):
            writer.add_bool(f"{name}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{name}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{name}.{key}", value)
        else:
            writer.add_array(f"{name}.{key}", value)
    writer.add_float32(f"{name}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{name}.rope.freq_base", 10000.0)
    add_tokenizer(writer)
    shapes = {"token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,), "output.weight": (VOCAB, WIDTH)}
    shapes |= {f"blk.{i}.{tensor}": shape for i, layer in enumerate(layers) for tensor, shape in layer.items()}
    for tensor, shape in shapes.items():
        writer.add_tensor(tensor, values(tensor, shape, rng))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def values(tensor: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(shape).astype(np.float32)
    if "norm" in tensor:
        return 1 + 0.2 * noise
    if tensor.endswith("bias"):
        return 0.3 * noise
    return noise * (1.0 if tensor == "token_embd.weight" else 1.5 * shape[-1] ** -0.5)


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    tokens += [f"w{i}" for i in range(VOCAB - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (VOCAB - 259)])


def logits_of(path: Path, tokens: list[int]) -> np.ndarray:
    """(TOKENS, VOCAB) by llama.cpp: one thread, F32 cache, no flash attention, the tokens as one batch."""
    llm = llama_cpp.Llama(
        str(path), n_ctx=512, n_batch=512, n_threads=1, n_threads_batch=1, logits_all=True, type_k=0, type_v=0,
        flash_attn=False, verbose=False,
    )  # fmt: skip
    llm.eval(tokens)
    return np.array(llm.scores[: len(tokens)], np.float32)


def main() -> None:
    rng = np.random.default_rng(1)
    all_tokens = {}
    for name in MODELS:
        path = HERE / f"{name}.gguf"
        write(name, path, rng)
        tokens = [int(t) for t in rng.integers(3, VOCAB, TOKENS)]
        logits = logits_of(path, tokens)
        np.savez_compressed(HERE / f"{name}.npz", logits=logits[EVERY - 1 :: EVERY])
        all_tokens[name] = tokens
        print(name, path.stat().st_size, logits.std())
    (HERE / "every_eighth.json").write_text(json.dumps(all_tokens) + "\n")


if __name__ == "__main__":
    main()
