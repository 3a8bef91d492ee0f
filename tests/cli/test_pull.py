"""Hub references: what they mean in a repository, and what is done about wrong bytes. No network."""

from __future__ import annotations

import hashlib

import pytest

from localinfer.errors import FormatError, UsageError
from localinfer.hub import check_hash, choose, group_files, parse_reference, quant_of

FILES = {
    "README.md": 10,
    "Model-Q4_K_M.gguf": 40,
    "Model-Q8_0.gguf": 80,
    "mmproj-Model-f16.gguf": 5,
    "F16/Model-F16-00001-of-00002.gguf": 100,
    "F16/Model-F16-00002-of-00002.gguf": 60,
    "../../evil.gguf": 1,
}


@pytest.mark.parametrize(
    ("text", "repo", "quant", "file"),
    [
        ("hf:a/b", "a/b", "", ""),
        ("hf:a/b-GGUF:Q4_K_M", "a/b-GGUF", "Q4_K_M", ""),
        ("hf:a/b/c.gguf", "a/b", "", "c.gguf"),
        ("hf:a/b/dir/c.gguf", "a/b", "", "dir/c.gguf"),
    ],
)
def test_references(text, repo, quant, file):
    found = parse_reference(text)
    assert (found.repo, found.quant, found.file) == (repo, quant, file)


@pytest.mark.parametrize(
    "text", ["hf:a", "hf:/a/b", "hf:a/b/../c.gguf", "hf:a/..", "hf:a/b:", "hf:a b/c", "hf:a/b/c.bin"]
)
def test_what_is_no_reference(text):
    with pytest.raises(UsageError, match="expected hf:OWNER/REPO"):
        parse_reference(text)


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen3-8B-Q4_K_M", "Q4_K_M"), ("model.Q8_0", "Q8_0"), ("x-IQ2_XXS", "IQ2_XXS"), ("x-bf16", "BF16"),
        ("gpt-oss-20b-mxfp4", "MXFP4"), ("x-UD-Q4_K_XL", "UD-Q4_K_XL"), ("x-TQ1_0", "TQ1_0"), ("plain", ""),
        ("Q4-named-model-Q6_K", "Q6_K"),
    ],
)  # fmt: skip
def test_quantization_in_a_name(name, quant):
    assert quant_of(name) == quant


def test_files_become_models_with_their_shards_together():
    models = group_files("a/b", FILES)
    assert [(m.quant, len(m.files), m.n_bytes) for m in models] == [("Q4_K_M", 1, 40), ("Q8_0", 1, 80), ("F16", 2, 160)]


def chosen(text, files=FILES):
    reference = parse_reference(text)
    return choose(group_files(reference.repo, files), reference)


def test_choosing():
    assert chosen("hf:a/b:q8_0").quant == "Q8_0"
    assert chosen("hf:a/b:F16").files[0].endswith("00001-of-00002.gguf")
    assert chosen("hf:a/b/F16/Model-F16-00002-of-00002.gguf").n_bytes == 160
    assert chosen("hf:a/b").quant == "Q4_K_M"  # the usual one
    assert chosen("hf:a/b", {"only-IQ1_S.gguf": 1}).quant == "IQ1_S"


@pytest.mark.parametrize("text", ["hf:a/b:Q5_0", "hf:a/b/none.gguf"])
def test_what_is_not_there_lists_what_is_ready_to_paste(text):
    with pytest.raises(UsageError) as caught:
        chosen(text)
    assert caught.value.hint == (
        "one of hf:a/b:Q4_K_M (40 B), hf:a/b:Q8_0 (80 B), hf:a/b:F16 (160 B); which of them fit: localinfer fit hf:a/b"
    )


def test_two_models_of_one_quantization_are_told_apart_by_file():
    with pytest.raises(UsageError) as caught:
        chosen("hf:a/b:Q8_0", {"one-Q8_0.gguf": 1, "two-Q8_0.gguf": 2})
    assert caught.value.hint == (
        "one of hf:a/b/one-Q8_0.gguf (1 B), hf:a/b/two-Q8_0.gguf (2 B); which of them fit: localinfer fit hf:a/b"
    )


def test_a_repository_without_gguf():
    with pytest.raises(UsageError, match="no GGUF file"):
        chosen("hf:a/b", {"model.safetensors": 1})


def test_wrong_bytes_are_deleted_and_right_ones_kept(tmp_path):
    good = tmp_path / hashlib.sha256(b"good").hexdigest()
    good.write_bytes(b"good")
    check_hash(good)
    assert good.exists()
    blob = tmp_path / ("0" * 64)
    blob.write_bytes(b"bad")
    link = tmp_path / "model.gguf"
    link.symlink_to(blob)
    with pytest.raises(FormatError, match="expected SHA-256 0000"):
        check_hash(link)
    assert not blob.exists() and not link.is_symlink()


FOLDER = {
    "model.safetensors.index.json": 9, "model-00002-of-00002.safetensors": 70, "model-00001-of-00002.safetensors": 80,
    "tokenizer.json": 5, "config.json": 3, "chat_template.jinja": 2, "README.md": 1, "modeling.py": 4,
    "original/config.json": 3, "original/model.safetensors": 150, "consolidated.safetensors": 150,
}  # fmt: skip


def test_a_folder_is_a_model_where_there_is_no_gguf_file():
    (model,) = group_files("a/b", FOLDER)
    assert model.is_folder and model.reference == "hf:a/b" and model.n_bytes == 169
    assert model.files[0] == "config.json" and model.files[-1] == "model-00002-of-00002.safetensors"
    assert chosen("hf:a/b", FOLDER) == model
    assert [m.is_folder for m in group_files("a/b", FOLDER | FILES)] == [False] * 3
    with pytest.raises(UsageError, match="Q8_0: none of the 1 models") as caught:
        chosen("hf:a/b:Q8_0", FOLDER)
    assert caught.value.hint.startswith("one of hf:a/b (169 B)")
    assert group_files("a/b", {"config.json": 3, "tokenizer.json": 5}) == []
