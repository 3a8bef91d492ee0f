from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from localinfer.cli.inspect import inspect_report, json_value
from localinfer.cli.main import main
from localinfer.formats.gguf import GGUFFile
from tests.fakes import gguf_writer as w

META = {
    "general.architecture": "llama",
    "tokenizer.chat_template": "{% for m in messages %}\n\x1b[31m" + "x" * 100 + "END",
    "llama.rms": 1e-6,
    "tokenizer.ggml.tokens": ["<s>", "a\nb", b"\xff", "d", "e"],
    "tokenizer.ggml.scores": w.Typed(w.ARRAY, [0.5, float("-inf")], w.FLOAT32),
    "none": w.Typed(w.ARRAY, [], w.INT32),
}
TENSORS = [
    w.Tensor("token_embd.weight", 8, (5, 64), bytes(5 * 68)),
    w.f32_tensor("output_norm.weight", (64,)),
    w.f32_tensor("blk.0.attn_norm.weight", (64,)),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return w.write_gguf(tmp_path / "m.gguf", META, TENSORS)


def test_json_has_everything(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["metadata"] == {
        "general.architecture": "llama",
        "tokenizer.chat_template": META["tokenizer.chat_template"],
        "llama.rms": pytest.approx(1e-6),
        "tokenizer.ggml.tokens": ["<s>", "a\nb", "\udcff", "d", "e"],
        "tokenizer.ggml.scores": [0.5, None],
        "none": [],
    }
    with GGUFFile.open(path) as f:
        offsets = [info.offset for info in f.tensors.values()]
    fields = ("name", "type", "shape", "bytes", "shard", "offset")
    assert [tuple(t[field] for field in fields) for t in report["tensors"]] == [
        ("token_embd.weight", "Q8_0", [5, 64], 340, 0, offsets[0]),
        ("output_norm.weight", "F32", [64], 256, 0, offsets[1]),
        ("blk.0.attn_norm.weight", "F32", [64], 256, 0, offsets[2]),
    ]
    assert report["shards"] == [{"path": str(path), "bytes": path.stat().st_size}]
    assert report["types"] == {
        "F32": {"tensors": 2, "values": 128, "bytes": 512},
        "Q8_0": {"tensors": 1, "values": 320, "bytes": 340},
    }
    assert (report["version"], report["alignment"], report["tensor_bytes"]) == (3, 32, 852)


def test_table(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0].startswith("m.gguf GGUF 3 ")
    assert "general.architecture string llama" in lines
    assert "llama.rms float32 1e-06" in lines
    assert "tokenizer.ggml.tokens array of 5 string '<s>', 'a\\nb', '\\udcff', 'd', ..." in lines
    assert "tokenizer.ggml.scores array of 2 float32 0.5, -inf" in lines
    assert "none array of 0 int32" in lines
    assert "Q8_0 1 tensors 320 values 340 B 39.9%" in lines
    assert any(line.startswith("token_embd.weight Q8_0 5 x 64 at ") for line in lines)
    assert "shards" not in out
    template = next(line for line in lines if line.startswith("tokenizer.chat_template"))
    assert "END" not in template and "\x1b" not in out


def test_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    paths = w.write_split(tmp_path, "model", META, [TENSORS[:1], TENSORS[1:]])
    assert main(["inspect", str(paths[1])]) == 0
    out = capsys.readouterr().out
    assert "shards (2)" in out and "model-00002-of-00002.gguf" in out
    with GGUFFile.open(paths[1]) as f:
        report = inspect_report(f)
    assert [t["shard"] for t in report["tensors"]] == [0, 1, 1]
    assert report["shards"] == [{"path": str(p), "bytes": p.stat().st_size} for p in paths]


def test_a_file_without_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = w.write_gguf(tmp_path / "vocab.gguf", META)
    assert main(["inspect", str(path)]) == 0
    assert "tensors (0)" in capsys.readouterr().out


def test_one_value_in_full(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(path), "--key", "tokenizer.chat_template"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("{% for m in messages %}\n") and out.endswith("xEND\n") and "\x1b" not in out
    assert main(["inspect", str(path), "--key", "tokenizer.ggml.scores"]) == 0
    assert capsys.readouterr().out == "0.5\n-inf\n"
    assert main(["inspect", str(path), "--key", "tokenizer.chat_template", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == META["tokenizer.chat_template"]


def test_a_key_that_is_not_there(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(path), "--key", "general.architectur"]) == 2
    err = capsys.readouterr().err
    assert err.splitlines() == [
        "error: --key: 'general.architectur' is not in the metadata",
        "hint: there are: general.architecture",
    ]


def test_a_broken_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"<!DOCTYPE html>" + bytes(100))
    assert main(["inspect", str(path)]) == 4
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {path}: expected a GGUF file") and second.startswith("hint: ")


def test_json_values():
    assert json_value(array("f", [1.5, float("nan"), float("inf")])) == [1.5, None, None]
    assert json_value(array("Q", [2**64 - 1])) == [2**64 - 1]
    assert json_value(float("nan")) is None
    assert json_value([True, False]) == [True, False]
