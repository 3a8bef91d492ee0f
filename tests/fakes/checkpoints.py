"""Small models in mlx-lm's format with random weights: built by mlx-lm itself, saved as it saves them."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
N_VOCAB = 256 + len(SPECIAL)
_COMMON = {
    "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "head_dim": 16,
}  # fmt: skip
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_GRANITE = {
    "logits_scaling": 8.0, "attention_multiplier": 0.1, "embedding_multiplier": 12.0, "residual_multiplier": 0.2,
}  # fmt: skip
_BIASES = {"attention_bias": False, "mlp_bias": False}
# What each model type asks for beside _COMMON.
CONFIGS: dict[str, dict[str, Any]] = {
    "cohere": {"layer_norm_eps": 1e-5},
    "cohere2": {"layer_norm_eps": 1e-5, "sliding_window": 24, "sliding_window_pattern": 4},
    "gemma": {},
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3": {},
    "gemma3_text": {"sliding_window": 24, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16},
    "glm4": {"attention_bias": True, "partial_rotary_factor": 0.5},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 24},
    "granite": _GRANITE | _BIASES,
    "llama": {},
    "mistral": {"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 24},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo2": {},
    "olmo3": {"sliding_window": 24},
    "phi3": {},
    "qwen2": {},
    "qwen2_moe": _EXPERTS | {"shared_expert_intermediate_size": 64},
    "qwen3": {},
    "qwen3_moe": _EXPERTS | {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True},
    "seed_oss": {},
    "smollm3": {},
    "stablelm": {"layer_norm_eps": 1e-5, "use_qkv_bias": True, "partial_rotary_factor": 0.25},
    "starcoder2": {"norm_epsilon": 1e-5},
}


def make_checkpoint(
    folder: Path, model_type: str = "llama", quantize: dict[str, Any] | None = None, dtype: str = "float32", **more: Any
) -> Path:
    """A folder as mlx-lm writes it. `quantize`: group_size, bits and mode."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten, tree_map
    from mlx_lm.utils import MODEL_REMAPPING, save_config, save_model

    config: dict[str, Any] = _COMMON | CONFIGS[model_type] | more | {"model_type": model_type}
    if model_type == "gemma3":
        text = _COMMON | CONFIGS["gemma3_text"] | more | {"model_type": "gemma3_text"}
        config = {"model_type": "gemma3", "vocab_size": 320, "text_config": text}
    config["eos_token_id"] = 256
    module = import_module(f"mlx_lm.models.{MODEL_REMAPPING.get(model_type, model_type)}")
    mx.random.seed(7)
    model = module.Model(module.ModelArgs.from_dict(config))

    def random(w: Any) -> Any:
        return (mx.random.normal(w.shape) * 0.1 + (w.ndim == 1)).astype(getattr(mx, dtype))

    model.update(tree_map(random, model.parameters()))
    if quantize:
        nn.quantize(model, **quantize)
        config["quantization"] = quantize
    mx.eval([w for _, w in tree_flatten(model.parameters())])
    save_model(folder, model)
    save_config(config, folder / "config.json")
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """Bytes as tokens, and the chat format's three special ones."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from localinfer.models.tokenizer.byte_chars import BYTE_TO_CHAR

    tokenizer = Tokenizer(models.BPE({char: byte for byte, char in enumerate(BYTE_TO_CHAR)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "bos_token": None, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
