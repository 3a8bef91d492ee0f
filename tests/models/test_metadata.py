"""Metadata that cannot be used ends in one line naming file and key, before anything is sized by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localinfer.errors import FormatError, UnsupportedModel
from localinfer.formats.gguf import GGUFFile
from localinfer.models.config import ModelConfig
from localinfer.models.decoder import check_tensors
from localinfer.planner.budget import MemoryBudget
from localinfer.planner.facts import ModelFacts
from localinfer.planner.plan import Ask, make_plan
from localinfer.planner.report import plan_notes
from localinfer.units import GIB
from tests.fakes.gguf_writer import FLOAT32, Tensor, Typed, header

E, F, V, LAYERS = 32, 48, 40, 2

PLAIN: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": LAYERS,
    "llama.context_length": 128,
    "llama.embedding_length": E,
    "llama.feed_forward_length": F,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": Typed(FLOAT32, 1e-5),
}


def tensors(extra: dict[str, tuple[int, ...]] | None = None, without: str = "") -> list[Tensor]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (V, E), "output_norm.weight": (E,)}
    for i in range(LAYERS):
        p = f"blk.{i}."
        shapes |= {p + "attn_norm.weight": (E,), p + "ffn_norm.weight": (E,)}
        shapes |= {p + f"attn_{n}.weight": (r, E) for n, r in (("q", E), ("k", E // 2), ("v", E // 2), ("output", E))}
        shapes |= {p + "ffn_gate.weight": (F, E), p + "ffn_up.weight": (F, E), p + "ffn_down.weight": (E, F)}
    shapes |= extra or {}
    shapes.pop(without, None)
    return [Tensor(n, 0, s, np.zeros(s, np.float32).tobytes()) for n, s in shapes.items()]


def write(path: Path, changes: dict[str, Any] | None = None, **kw: Any) -> GGUFFile:
    metadata = {k: v for k, v in {**PLAIN, **(changes or {})}.items() if v is not None}
    parts = tensors(**kw)
    head = header(metadata, parts)
    data = b"".join(t.data + bytes(-len(t.data) % 32) for t in parts)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return GGUFFile.open(path)


def test_plain_file_reads(tmp_path: Path) -> None:
    config = ModelConfig.from_gguf(write(tmp_path / "m.gguf"))
    assert (config.n_layers, config.n_embd, config.n_vocab) == (LAYERS, E, V)
    attention = config.layers[0].attention
    assert attention is not None
    assert (attention.n_heads, attention.n_kv_heads, attention.d_k) == (4, 2, 8)
    assert config.layers[0].rope.inv_freq[0] == 1.0


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"llama.block_count": None}, "llama.block_count"),
        ({"llama.block_count": 0}, "llama.block_count"),
        ({"llama.block_count": 10**9}, "llama.block_count"),
        ({"llama.block_count": "two"}, "llama.block_count"),
        ({"llama.embedding_length": 0}, "llama.embedding_length"),
        ({"llama.attention.head_count": 0}, "head_count"),
        ({"llama.attention.head_count_kv": 3}, "head_count_kv"),
        ({"llama.attention.head_count_kv": [2]}, "head_count_kv"),
        ({"llama.rope.dimension_count": 7}, "rope.dimension_count"),
        ({"llama.rope.dimension_count": 64}, "rope.dimension_count"),
        ({"llama.rope.freq_base": Typed(FLOAT32, 0.0)}, "rope.freq_base"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon"),
    ],
)
def test_broken_metadata_names_the_key(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(FormatError, match=word) as caught:
        ModelConfig.from_gguf(write(tmp_path / "m.gguf", changes))
    assert "\n" not in caught.value.message and "m.gguf" in caught.value.message


def test_unknown_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="'llama99'") as caught:
        ModelConfig.from_gguf(write(tmp_path / "m.gguf", {"general.architecture": "llama99"}))
    assert caught.value.exit_code == 5 and "fit" in caught.value.hint


def test_unknown_rope_scaling_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="'spiral'"):
        ModelConfig.from_gguf(write(tmp_path / "m.gguf", {"llama.rope.scaling.type": "spiral"}))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    f = write(tmp_path / "m.gguf", without="blk.1.ffn_down.weight")
    with pytest.raises(FormatError, match=r"blk\.1\.ffn_down\.weight"):
        check_tensors(ModelConfig.from_gguf(f), f.tensors)


def test_a_tensor_that_would_stay_unread_is_named(tmp_path: Path) -> None:
    """A variant we do not know must not answer nonsense in silence."""
    f = write(tmp_path / "m.gguf", extra={"blk.0.attn_magic.weight": (E,), "blk.1.attn_magic.weight": (E,)})
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.attn_magic\.weight and 1 more"):
        check_tensors(ModelConfig.from_gguf(f), f.tensors)


def test_blocks_for_multi_token_prediction_do_not_run(tmp_path: Path) -> None:
    f = write(tmp_path / "m.gguf", {"llama.nextn_predict_layers": 1})
    assert ModelConfig.from_gguf(f).n_layers == LAYERS - 1


@pytest.mark.parametrize("name", ["blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight"])
def test_a_missing_norm_is_named(tmp_path: Path, name: str) -> None:
    f = write(tmp_path / "m.gguf", without=name)
    with pytest.raises(FormatError, match=name.replace(".", r"\.")):
        check_tensors(ModelConfig.from_gguf(f), f.tensors)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.0.attn_q.weight", (E + 8, E)),
        ("blk.0.attn_k.weight", (E, E)),
        ("blk.1.ffn_up.weight", (F, E - 8)),
        ("blk.1.ffn_down.weight", (E, F + 8)),
        ("blk.1.ffn_gate.weight", (F + 8, E)),
        ("blk.0.attn_norm.weight", (E + 1,)),
        ("output.weight", (V, E + 8)),
        ("blk.0.attn_output.weight", (E - 8, E)),
    ],
)
def test_shapes_that_do_not_fit_are_the_files_fault(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    f = write(tmp_path / "m.gguf", extra={name: shape})
    with pytest.raises(FormatError, match="do not fit together"):
        check_tensors(ModelConfig.from_gguf(f), f.tensors)


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    """Phi 3's sliding window, and blocks for multi-token prediction; a window that is applied or never full is not."""
    own = {k.replace("llama.", "phi3."): v for k, v in PLAIN.items()} | {"general.architecture": "phi3"}
    with write(tmp_path / "m.gguf", own | {"phi3.attention.sliding_window": 100}) as f:
        config = ModelConfig.from_gguf(f)
    assert len(config.notices) == 1 and "sliding window of 100 tokens is not applied" in config.notices[0]
    with write(tmp_path / "n.gguf", own | {"phi3.attention.sliding_window": 128}) as f:
        assert ModelConfig.from_gguf(f).notices == ()
    gemma = {k.replace("llama.", "gemma2."): v for k, v in PLAIN.items()} | {"general.architecture": "gemma2"}
    with write(tmp_path / "g.gguf", gemma | {"gemma2.attention.sliding_window": 100}) as f:
        assert ModelConfig.from_gguf(f).notices == ()
    with write(tmp_path / "p.gguf", {"llama.nextn_predict_layers": 1}) as f:
        config = ModelConfig.from_gguf(f)
        assert config.n_layers == LAYERS - 1 and "1 block for guessing further tokens" in config.notices[0]
        facts = ModelFacts.from_gguf(f)
    plan = make_plan(facts, MemoryBudget("x", "cpu", GIB, GIB, 0, "test"), Ask(ctx=128))
    assert config.notices[0] in plan_notes(plan), "fit shows it"
