"""Folders in mlx-lm's format through the engine: each model type against mlx-lm itself, plans against what is held."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest

from localinfer.engine.events import PromptProgress, TextDelta, TurnDone
from localinfer.engine.opening import open_engine
from localinfer.engine.params import ChatMessage, EngineOptions, SamplingParams
from localinfer.engine.service import EngineService
from localinfer.errors import UnsupportedModel, UsageError
from localinfer.models.tokenizer.hf import FolderTokenizer
from tests.fakes.checkpoints import CONFIGS, SPECIAL, make_checkpoint

pytestmark = pytest.mark.skipif(not find_spec("mlx_lm"), reason="mlx-lm is not installed")
IDS = [i * 37 % 256 for i in range(60)]
GREEDY = SamplingParams(temperature=0, max_tokens=24)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A checkpoint by model type and settings, made once."""
    made = {}

    def get(model_type, quantize=None, dtype="float32"):
        key = (model_type, str(quantize), dtype)
        if key not in made:
            made[key] = make_checkpoint(tmp_path_factory.mktemp("mlx") / model_type, model_type, quantize, dtype)
        return made[key]

    return get


def logits_of_mlx_lm(folder):
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

    model, _ = load_model(folder)
    return np.array(model(mx.array([IDS]), cache=make_prompt_cache(model))[0].astype(mx.float32))


def held_bytes(engine):
    from mlx.utils import tree_flatten

    return sum(w.nbytes for _, w in tree_flatten(engine._model._module.parameters()))


@pytest.mark.parametrize("model_type", CONFIGS)
def test_each_model_type(folders, model_type):
    """Windows of 24 are crossed; in chunks of 16 and token by token the logits are mlx-lm's own."""
    folder = folders(model_type)
    with open_engine(folder, EngineOptions(ctx=96, chunk=16)) as engine:
        wanted = logits_of_mlx_lm(folder)
        for chunk in (16, 1):
            np.testing.assert_allclose(engine.logits(IDS, chunk=chunk), wanted, atol=1e-4)
        assert engine.plan.parts["weights"] == held_bytes(engine)
        kv = engine.conversation.kv
        slides = any(layer.kind == "window" for layer in engine.config.layers)
        assert engine.plan.parts["kv"] == kv.spec.n_bytes and (engine.drafter is None) == slides
        assert kv.n_bytes <= kv.spec.n_bytes if slides else kv.n_bytes == kv.spec.n_bytes


@pytest.mark.parametrize(
    "quantize",
    [{"group_size": 32, "bits": b, "mode": "affine"} for b in (2, 3, 4, 5, 6, 8)]
    + [{"group_size": 32, "bits": 4, "mode": "mxfp4"}, {"group_size": 32, "bits": 8, "mode": "mxfp8"}],
)
def test_quantized_weights_take_what_the_plan_says(folders, quantize):
    folder = folders("llama", quantize)
    with open_engine(folder, EngineOptions(ctx=64)) as engine:
        assert engine.plan.parts["weights"] == held_bytes(engine)
        np.testing.assert_allclose(engine.logits(IDS), logits_of_mlx_lm(folder), atol=1e-4)


def test_sixteen_bits(folders):
    with open_engine(folders("qwen3", dtype="bfloat16"), EngineOptions(ctx=64)) as engine:
        assert engine.plan.ask.kv_name == "f16" and engine.conversation.kv.n_bytes == engine.plan.parts["kv"]
        assert np.isfinite(engine.logits(IDS)).all()


def test_scratch_is_enough(folders):
    import mlx.core as mx

    for model_type in ("llama", "qwen3_moe", "gpt_oss", "gemma3_text"):
        with open_engine(folders(model_type), EngineOptions(ctx=1024, chunk=256)) as engine:
            engine.conversation.clear()
            before = mx.get_active_memory()
            mx.reset_peak_memory()
            engine.logits(IDS * 16, rows=1)
            planned = engine.plan.parts["scratch"] + engine.plan.parts["logits"]
            assert mx.get_peak_memory() - before <= 1.05 * planned, model_type


def test_a_turn_streams_and_going_back_is_exact(folders):
    with open_engine(folders("llama"), EngineOptions(ctx=256)) as engine:
        events = list(engine.chat([ChatMessage("user", "hé")], GREEDY))
        assert isinstance(events[0], PromptProgress) and isinstance(events[-1], TurnDone)
        done = events[-1]
        assert done.text == "".join(e.text for e in events if isinstance(e, TextDelta)) and len(done.tokens) == 24
        assert done.stats.backend == "mlx" and done.stats.prompt_tokens == len(engine.tokenizer.encode(PROMPT))
        fresh = engine.logits(IDS[:40], rows=1)
        engine.logits(IDS)
        kept = engine.conversation.sync(IDS[:40])
        assert kept == 39
        np.testing.assert_allclose(engine.conversation.extend(IDS[39:40], 1), fresh, atol=1e-5)


PROMPT = "<|im_start|>user\nhé<|im_end|>\n<|im_start|>assistant\n"


def test_drafting_changes_nothing(folders):
    with open_engine(folders("llama"), EngineOptions(ctx=256)) as engine:
        prompt = engine.tokenizer.encode("one two one two one two one two")
        answers = {}
        for draft in ("off", 8):
            events = list(engine.generate(prompt, SamplingParams(temperature=0, max_tokens=40, draft=draft)))
            answers[draft] = events[-1]
        assert answers["off"].tokens == answers[8].tokens and answers[8].stats.draft.accepted > 0


def test_a_full_window_cannot_go_back_and_is_read_again(folders):
    with open_engine(folders("gpt_oss"), EngineOptions(ctx=96, chunk=16)) as engine:
        fresh = engine.logits(IDS[:50], rows=1)
        engine.logits(IDS)
        assert engine.conversation.sync(IDS[:50]) == 0, "24 positions are kept, 11 would have to come back"
        np.testing.assert_allclose(engine.logits(IDS[:50], rows=1), fresh, atol=1e-5)
        assert any("cannot go back" in notice for notice in engine.notices)
        engine.conversation.clear()
        engine.conversation.extend(IDS[:16], 0)
        assert engine.conversation.sync(IDS[:10]) == 9, "a window that is not full can"


async def test_through_the_engine_process_and_cancelled(folders):
    service = EngineService()
    try:
        status = await service.open(str(folders("llama")), EngineOptions(ctx=2048))
        assert (status.backend, status.arch, status.quant, status.has_template) == ("mlx", "llama", "F32", True)
        n = 0
        async for event in service.chat("go on", SamplingParams(temperature=1.0, ignore_eos=True, seed=1)):
            n += isinstance(event, TextDelta)
            if n == 5:
                await service.cancel()
            last = event
        assert isinstance(last, TurnDone) and last.reason == "cancelled" and last.stats.generated_tokens < 2000
    finally:
        await service.close()


def test_tokens(folders):
    with open_engine(folders("llama"), EngineOptions(ctx=64)) as engine:
        t = engine.tokenizer
        assert isinstance(t, FolderTokenizer)
        text = "naïve 🦕 <|im_end|>"
        ids = t.encode(text)
        assert ids == [*"naïve 🦕 ".encode(), 258] and t.decode(ids) == text and t.decode(ids, True) == text[:8]
        assert t.encode("<|im_end|>", parse_special=False) == list(b"<|im_end|>")
        assert t.eog_ids == {256, 258} and t.piece(257) == SPECIAL[1] and t.n_vocab == 320
        assert t.token_bytes(300) == b"", "rows of the embedding beyond the vocabulary"
        with pytest.raises(IndexError):
            t.token_bytes(320)
        stream = t.stream()
        assert [stream.push(i) for i in "é🦕".encode()] == ["", "é", "", "", "", "🦕"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (EngineOptions(ctx=64, backend="cpu"), "runs through mlx, found 'cpu'"),
        (EngineOptions(ctx=64, kv="q8_0"), "mlx-lm keeps this model's keys and values in f32, found q8_0"),
        (EngineOptions(ctx=64, weight_budget=1), "mlx-lm loads all weights"),
    ],
)
def test_options_that_cannot_be_had(folders, options, message):
    with pytest.raises(UsageError, match=message):
        open_engine(folders("llama"), options)


def test_a_folder_that_does_not_hold_the_model_it_describes(folders, tmp_path):
    folder = make_checkpoint(tmp_path / "m", "llama")
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"num_hidden_layers": 4', '"num_hidden_layers": 5'))
    with pytest.raises(UnsupportedModel, match="mlx-lm cannot load it: ValueError"):
        open_engine(folder, EngineOptions(ctx=64))
    (folder / "config.json").write_text(text.replace("{", '{"model_file": "evil.py",', 1))
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(UnsupportedModel, match=r"brings its own program \('evil\.py'\), which is not run"):
        open_engine(folder, EngineOptions(ctx=64))
    (folder / "config.json").write_text(text)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModel, match=r"expected a tokenizer\.json, found none"):
        open_engine(folder, EngineOptions(ctx=64))


def test_sentencepiece_style_tokens(tmp_path):
    """A space is put before the text and taken away again; unknown bytes have tokens of their own."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocab = {"<unk>": 0, **{f"<0x{b:02X}>": 1 + b for b in range(256)}, "▁": 257, "a": 258, "▁a": 259}
    tokenizer = Tokenizer(models.BPE(vocab, [("▁", "a")], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    t = FolderTokenizer(tmp_path, {"vocab_size": 260}, {}, {})
    ids = t.encode("a aé")
    assert ids[:2] == [259, 259] and t.decode(ids) == "a aé" == tokenizer.decode(ids)
    stream = t.stream()
    assert "".join(stream.push(i) for i in ids) == " a aé", "an answer goes on after other text: its space is its own"


def test_chunks_of_the_cache_never_move(folders):
    """Full layers are allocated once: the arrays written to are the ones made at the start, of the same size."""
    with open_engine(folders("llama"), EngineOptions(ctx=512)) as engine:
        sizes = [engine.conversation.kv.n_bytes]
        for start in range(0, 512, 128):
            engine.conversation.extend([(start + i) % 256 for i in range(128)], 0)
            sizes.append(engine.conversation.kv.n_bytes)
        assert all(a == b for a, b in pairwise(sizes))
