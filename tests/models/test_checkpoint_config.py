"""config.json -> ModelConfig: which layers keep a window, sizes, and what is missing or senseless."""

from __future__ import annotations

import pytest

from localinfer.errors import FormatError, UnsupportedModel
from localinfer.formats.checkpoint import Checkpoint
from localinfer.models.checkpoint_config import MODEL_TYPES, checkpoint_config
from localinfer.planner.facts import ModelFacts
from tests.fakes.safetensors_writer import write_folder

MIXED = ["full_attention", "sliding_attention"] * 4
NORM = {"model.norm.weight": ("F32", (64,))}


def config_of(folder, **fields):
    return checkpoint_config(Checkpoint.open(write_folder(folder, NORM, **fields)))


def windows(config):
    return [layer.attention.window for layer in config.layers]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model_type": "llama", "sliding_window": 100}, [0] * 8),
        ({"model_type": "mistral", "sliding_window": 9, "layer_types": MIXED}, [0, 9] * 4),
        ({"model_type": "qwen2", "sliding_window": 100, "use_sliding_window": True}, [0] * 8),
        ({"model_type": "gemma2", "sliding_window": 100}, [0] * 8),  # mlx-lm keeps everything
        ({"model_type": "gemma3_text", "sliding_window": 77}, [77] * 5 + [0, 77, 77]),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 2}, [512, 0] * 4),
        ({"model_type": "cohere2"}, [4096, 4096, 4096, 0] * 2),
        ({"model_type": "gpt_oss"}, [128, 0] * 4),
        ({"model_type": "olmo3", "sliding_window": 5}, [5, 5, 5, 0] * 2),
    ],
)  # fmt: skip
def test_layers_that_keep_a_window_only(tmp_path, fields, expected):
    assert windows(config_of(tmp_path / "m", num_hidden_layers=8, **fields)) == expected


def test_the_language_model_of_a_larger_one(tmp_path):
    text = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 9,
    }
    config = config_of(tmp_path / "m", model_type="gemma3", text_config=text)
    a = config.layers[0].attention
    assert (config.n_layers, config.n_embd, config.n_vocab, a.d_k, a.n_kv_heads) == (1, 32, 9, 256, 1)


def test_experts(tmp_path):
    moe = config_of(
        tmp_path / "m", model_type="qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48
    )
    assert (moe.layers[0].moe.n_experts, moe.layers[0].moe.n_used, moe.layers[0].moe.n_ff) == (8, 2, 48)


def test_an_unknown_type_still_has_weights_that_can_be_counted(tmp_path):
    folder = write_folder(tmp_path / "m", NORM, model_type="mamba2")
    with pytest.raises(UnsupportedModel, match="model type 'mamba2' is not supported in mlx-lm's format"):
        checkpoint_config(Checkpoint.open(folder))
    facts = ModelFacts.from_file(Checkpoint.open(folder))
    assert facts.config is None and facts.tensor_bytes == 256 and "mamba2" in facts.unknown


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hidden_layers": "two"}, "num_hidden_layers: expected a whole number in 1..4096, found 'two'"),
        ({"num_hidden_layers": 10**9}, "found 1000000000"),
        ({"num_attention_heads": None}, "num_attention_heads: expected a whole number"),
        ({"num_key_value_heads": 3}, "expected a divisor of the 4 heads, found 3"),
        ({"head_dim": True}, "head_dim: expected a whole number"),
    ],
)
def test_senseless_numbers_are_named(tmp_path, fields, message):
    with pytest.raises(FormatError, match=message):
        config_of(tmp_path / "m", **fields)


def test_every_listed_type_is_compared_with_mlx_lm():
    from tests.fakes.checkpoints import CONFIGS

    assert set(CONFIGS) == set(MODEL_TYPES)
