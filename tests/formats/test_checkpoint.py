"""Folders in mlx-lm's format: headers, quantized matrices as one tensor, and what is wrong with a folder."""

from __future__ import annotations

import json

import pytest

from localinfer.errors import FormatError, UnsupportedModel, UsageError
from localinfer.formats.checkpoint import Checkpoint, gguf_name
from localinfer.formats.gguf import GGUFFile
from localinfer.formats.model_file import open_model_file
from tests.fakes.gguf_writer import write_gguf
from tests.fakes.safetensors_writer import write_folder, write_safetensors

Q = "model.layers.0.self_attn.q_proj"
QUANTIZED = {
    f"{Q}.weight": ("U32", (64, 8)), f"{Q}.scales": ("BF16", (64, 2)), f"{Q}.biases": ("BF16", (64, 2)),
    f"{Q}.bias": ("BF16", (64,)), "model.norm.weight": ("BF16", (64,)),
}  # fmt: skip


def test_a_quantized_matrix_is_one_tensor_with_its_scales_and_biases(tmp_path):
    with open_model_file(write_folder(tmp_path / "m", QUANTIZED, quantization={"group_size": 32, "bits": 4})) as c:
        assert isinstance(c, Checkpoint)
        q = c.tensors[f"{Q}.weight"]
        assert (q.type.name, q.shape, q.n_bytes) == ("4-bit", (64, 64), 64 * (32 + 4 + 4))
        assert (q.type.block_values, q.type.block_bytes) == (32, 20) and q.n_bytes == 64 * 64 // 32 * 20
        assert list(c.tensors) == [f"{Q}.weight", f"{Q}.bias", "model.norm.weight"]
        assert c.tensor_bytes == q.n_bytes + 256 and c.float_type.name == "BF16"


def test_a_module_may_have_settings_of_its_own(tmp_path):
    own = {"group_size": 64, "bits": 4, Q: {"group_size": 32, "bits": 8}}
    tensors = QUANTIZED | {f"{Q}.weight": ("U32", (64, 16))}
    assert Checkpoint.open(write_folder(tmp_path / "m", tensors, quantization=own)).tensors[f"{Q}.weight"].shape == (
        64,
        64,
    )


def test_one_byte_scales(tmp_path):
    tensors = {f"{Q}.weight": ("U32", (64, 8)), f"{Q}.scales": ("U8", (64, 2))}
    settings = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    q = Checkpoint.open(write_folder(tmp_path / "m", tensors, quantization=settings)).tensors[f"{Q}.weight"]
    assert (q.type.name, q.type.block_bytes, q.n_bytes) == ("mxfp4", 17, 64 * 34)


def test_parts_for_other_senses_are_left_out(tmp_path):
    tensors = {"vision_tower.a": ("F32", (8,)), "language_model.model.norm.weight": ("F32", (4,))}
    c = Checkpoint.open(write_folder(tmp_path / "m", tensors))
    assert c.text_only and list(c.tensors) == ["language_model.model.norm.weight"] and c.tensor_bytes == 16


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("language_model.model.embed_tokens.weight", "token_embd.weight"),
        ("lm_head.weight", "output.weight"),
        ("model.layers.12.self_attn.q_proj.weight", "blk.12.attn_q_proj.weight"),
        ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down_proj.weight"),
        ("model.layers.3.mlp.switch_mlp.up_proj.weight", "blk.3.ffn_mlp_switch_mlp_up_proj_exps.weight"),
        ("model.layers.3.input_layernorm.weight", "blk.3.input_layernorm.weight"),
    ],
)
def test_names_that_the_planner_groups_by(name, expected):
    assert gguf_name(name) == expected


def test_a_gguf_file_is_opened_as_one(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama"}, {})
    with open_model_file(path) as f:
        assert isinstance(f, GGUFFile)


def cut(path):
    path.write_bytes(path.read_bytes()[:-8])


def header(text):
    return lambda path: path.write_bytes(len(text).to_bytes(8, "little") + text.encode())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "expected 128 bytes within"),
        (lambda path: path.write_bytes(b"\0" * 4), "expected a safetensors header of 2 to"),
        (lambda path: path.write_bytes(b"\xff" * 64), "found 18446744073709551615"),
        (header("[1]"), "expected a table of tensors, found list"),
        (header("{nonsense"), "expected a header in JSON"),
        (header('{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}'), "expected dtype, shape and"),
        (header('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}'), "expected dtype, shape and"),
        (header('{"a": {"dtype": "Q7", "shape": [1], "data_offsets": [0, 4]}}'), "type 'Q7' is not known"),
        (header('{"a": 3}'), "expected dtype, shape and"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, damage, message):
    folder = write_folder(tmp_path / "m", QUANTIZED, quantization={"group_size": 32, "bits": 4})
    damage(folder / "model.safetensors")
    with pytest.raises(FormatError, match=message) as error:
        Checkpoint.open(folder)
    assert str(folder / "model.safetensors") in error.value.message


def test_a_missing_shard_is_named(tmp_path):
    folder = write_folder(tmp_path / "m", QUANTIZED, quantization={"group_size": 32, "bits": 4})
    shards = {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(FormatError, match=r"model-00002-of-00002\.safetensors is missing"):
        Checkpoint.open(folder)
    write_safetensors(folder / shards["b"], {"lm_head.weight": ("BF16", (320, 64))})
    assert Checkpoint.open(folder).tensors["lm_head.weight"].part == 0, (
        "sorted by name: -00002 comes before .safetensors"
    )


def test_folders_without_a_model(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="found a folder"):
        open_model_file(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"expected model\*.safetensors, found none"):
        open_model_file(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text("[]")
    with pytest.raises(FormatError, match="expected a JSON table, found list"):
        open_model_file(tmp_path / "empty")


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"quantization_config": {"quant_method": "awq"}}, UnsupportedModel, "quantized by 'awq', which is not MLX's"),
        ({"quantization": {"group_size": 32, "bits": 4, "mode": "turbo"}}, UnsupportedModel, "'turbo' is not known"),
        ({"quantization": {"group_size": 33, "bits": 4}}, UnsupportedModel, "4 bits in groups of 33 is not known"),
        ({"quantization": {"group_size": 32, "bits": 3}}, FormatError, "3-bit words .* do not fit together"),
        ({}, FormatError, "has scales, but config.json names no quantization"),
    ],
)
def test_quantizations_that_are_not_mlx(tmp_path, config, error, message):
    with pytest.raises(error, match=message):
        Checkpoint.open(write_folder(tmp_path / "m", QUANTIZED, **config))
