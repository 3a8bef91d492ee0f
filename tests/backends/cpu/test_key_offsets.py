"""What keys have in common: found through the rotation, left out where softmax does not see it, worth the trouble."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import localinfer
from localinfer.backends.cpu import key_offsets, structs
from localinfer.backends.cpu.key_offsets import common_part, keep_means, known_means, mean_key, takes_offset
from localinfer.backends.reference.ops import ReferenceOps
from localinfer.draft_corpus import corpus
from localinfer.eval import log_softmax
from localinfer.kv.spec import KVLayer
from localinfer.models.rope import rope_config

TINY = Path(__file__).parents[2] / "golden" / "tiny"
REAL = ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf")


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_the_part_that_all_positions_of_the_context_share(style) -> None:
    rope, rng = rope_config(32, 10000.0, style), np.random.default_rng(1)
    common = rng.normal(0, 2, (2, 48)).astype(np.float32)  # 32 of 48 values rotate
    keys = common + rng.normal(0, 1e-3, (64, 2, 48)).astype(np.float32)
    turned = ReferenceOps().rope(keys, 16, rope)
    everywhere = ReferenceOps().rope(np.repeat(common[None], 4096, axis=0), 0, rope).mean(axis=0)
    assert np.allclose(mean_key(turned, 16, rope), common, atol=2e-3)
    assert np.allclose(common_part(mean_key(turned, 16, rope), rope, 4096), everywhere, atol=2e-3)
    assert np.allclose(common_part(mean_key(keys, 16, None), None, 4096), common, atol=2e-3)


def test_only_where_softmax_does_not_see_it() -> None:
    kv = KVLayer("full", 1, 32, 32, "q4_0", "q4_0", 1)
    plain, capped, sunk = structs.Attention(), structs.Attention(softcap=30.0), structs.Attention(sinks=1)
    assert takes_offset(kv, [plain])
    assert not takes_offset(kv, [plain, capped]) and not takes_offset(kv, [sunk])
    assert not takes_offset(KVLayer("full", 1, 32, 32, "q8_0", "q4_0", 1), [plain])
    assert not takes_offset(KVLayer("mla", 1, 32, 32, "q4_0", "q4_0", 1, v_in_k=True), [plain])


def test_kept_means_come_back_whole_or_not_at_all(tmp_path) -> None:
    path, shapes = tmp_path / "cache" / "means.f32", [(2, 8), (1, 4)]
    assert known_means(path, shapes) is None
    means = [np.arange(16, dtype=np.float32).reshape(2, 8), np.ones((1, 4), np.float32)]
    keep_means(path, means)
    found = known_means(path, shapes)
    assert found is not None and all(np.array_equal(a, b) for a, b in zip(found, means, strict=True))
    assert known_means(path, [(2, 8)]) is None
    path.write_bytes(path.read_bytes()[:-4] + b"\xff\xff\xff\xff")
    assert known_means(path, shapes) is None


def test_measured_once_for_a_file_and_never_mixed(monkeypatch) -> None:
    """The second load does not measure. A cache saved with other offsets is of another layout."""
    made, real = [], key_offsets.sample_tokens
    monkeypatch.setattr(key_offsets, "sample_tokens", lambda *a: made.append(1) or real(*a))
    layouts, logits = [], []
    for _ in range(2):
        with localinfer.load(TINY / "llama.gguf", ctx=256, kv="q4_0", backend="cpu") as engine:
            layouts.append(engine.conversation.kv.layout)
            logits.append(engine.logits(range(40), rows=40))
    assert made == [1] and layouts[0] == layouts[1] and np.array_equal(*logits)
    monkeypatch.setattr(key_offsets, "common_part", lambda mean, rope, n_ctx: 0 * mean + 1)
    with localinfer.load(TINY / "llama.gguf", ctx=256, kv="q4_0", backend="cpu") as engine:
        assert engine.conversation.kv.layout != layouts[0]


@pytest.mark.model
@pytest.mark.parametrize("name", REAL)
def test_a_real_model_loses_less(name, monkeypatch) -> None:
    """KL divergence from f16 over 256 tokens; on 1,024 it falls from 0.072 to 0.049 and from 0.134 to 0.070."""
    path = Path(os.environ.get("LOCALINFER_TEST_MODELS", "")) / name
    if not path.is_file():
        pytest.skip(f"LOCALINFER_TEST_MODELS has no {name}")
    text = "\n".join(prompt.text for prompt in corpus())

    def log_p(kv: str) -> np.ndarray:
        with localinfer.load(path, ctx=256, kv=kv, backend="cpu") as engine:
            return log_softmax(engine.logits(engine.tokenizer.encode(text)[:256], rows=128))

    exact, with_offsets = log_p("f16"), log_p("q4_0")
    monkeypatch.setattr(key_offsets, "TYPES", ())
    without = log_p("q4_0")
    apart = [(np.exp(exact) * (exact - other)).sum(axis=1).mean() for other in (with_offsets, without)]
    assert apart[0] < 0.85 * apart[1]
