"""Whole turns on real models: drafting changes nothing, a resumed conversation is the same as a fresh one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import localinfer
from localinfer.draft_corpus import corpus
from localinfer.engine.opening import open_engine
from localinfer.engine.params import EngineOptions, SamplingParams

pytestmark = pytest.mark.model

FILES = {
    "smollm2-135m-q4_1": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma-3-270m-q4_k_m": "gemma-3-270m-q4_k_m.gguf",
}
EVERY = 60 // int(os.environ.get("LOCALINFER_TEST_PROMPTS", "3"))  # of the corpus of 60


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALINFER_HOME", str(tmp_path))


def model_path(name):
    folder = os.environ.get("LOCALINFER_TEST_MODELS")
    if not folder:
        pytest.skip("LOCALINFER_TEST_MODELS names no folder with real models")
    path = Path(folder) / FILES[name]
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return path


@pytest.mark.parametrize("params", [{}, *({"temperature": 0.8, "seed": seed} for seed in (1, 2, 3))])
@pytest.mark.parametrize("kv", ["f16", "q8_0"])
def test_drafting_changes_nothing(kv, params):
    drafted = 0
    with localinfer.load(model_path("smollm2-135m-q4_1"), ctx=1024, kv=kv, backend="cpu") as engine:
        for prompt in corpus()[::EVERY]:
            made = [SamplingParams(**{"temperature": 0, "max_tokens": 64, **params}, draft=d) for d in ("off", "auto")]
            off, on = ([*engine.chat(list(prompt.messages), p)][-1] for p in made)
            assert (on.tokens, on.text, on.reason) == (off.tokens, off.text, off.reason)
            drafted += on.stats.draft.proposed
    assert drafted > 0 or params


@pytest.mark.parametrize("name", FILES)
def test_a_second_turn_is_the_same_as_from_an_empty_cache(name):
    """Gemma's window of 512 is crossed."""
    greedy = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    with localinfer.load(model_path(name), ctx=2048, backend="cpu") as engine:
        ids = engine.tokenizer.encode("\n".join(p.text for p in corpus()[10:16]))[:700]
        *_, first = engine.generate(ids, greedy)
        longer = [*ids, *first.tokens, *engine.tokenizer.encode(" And then?", add_special=False)]
        *_, resumed = engine.generate(longer, greedy)
        assert resumed.stats.cached_tokens == len(ids) + 19
        engine.conversation.clear()
        *_, fresh = engine.generate(longer, greedy)
    assert fresh.stats.cached_tokens == 0 and fresh.tokens == resumed.tokens


@pytest.mark.parametrize("name", FILES)
def test_a_chat_through_the_service(name):
    """The child process, the template (or the notice that there is none), and a speed."""
    import asyncio

    from localinfer.engine.events import Notice, TurnDone
    from localinfer.engine.service import ChatMessage, EngineOptions, EngineService

    async def turn():
        service = EngineService()
        try:
            status = await service.open(model_path(name), EngineOptions(ctx=512, backend="cpu"))
            asked = [ChatMessage("user", "What is the capital of France?")]
            events = [e async for e in service.chat(asked, SamplingParams(temperature=0, max_tokens=12))]
            return status, events
        finally:
            await service.close()

    status, events = asyncio.run(turn())
    done = events[-1]
    assert isinstance(done, TurnDone) and done.stats.decode_tok_s > 0
    assert status.plan.total > 0 and done.stats.memory.peak_bytes > 0
    if status.has_template:
        assert "Paris" in done.text
    else:
        assert any(isinstance(e, Notice) and "no chat template" in e.text for e in events)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_short_turn_after_a_long_one_is_quick_and_the_same(name, capsys):
    """The second turn puts its own 21 tokens through. LOCALINFER_TEST_LONG=1: after 2,000 tokens, and the first token
    comes in a tenth of the time; after 400 otherwise."""
    n, times = (2000, 10) if os.environ.get("LOCALINFER_TEST_LONG") else (400, 3)
    greedy = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    with localinfer.load(model_path(name), ctx=4096, backend="cpu") as engine:
        ids = engine.tokenizer.encode("\n".join(p.text for p in corpus()))[:n]
        assert len(ids) == n
        *_, first = engine.generate(ids, greedy)
        longer = [*ids, *first.tokens, *engine.tokenizer.encode(" And then what happened after that day? " * 4)][
            : n + 36
        ]
        *_, second = engine.generate(longer, greedy)
        assert second.stats.cached_tokens == n + 15 and second.stats.prompt_tokens == n + 36
        with capsys.disabled():
            print(f"\n{name}: first token after {first.stats.ttft_s:.2f} s, then {second.stats.ttft_s:.2f} s")
        assert second.stats.ttft_s < first.stats.ttft_s / times
        engine.conversation.clear()
        *_, fresh = engine.generate(longer, greedy)
        assert fresh.stats.cached_tokens == 0 and fresh.tokens == second.tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_saved_cache_of_4k_is_back_in_a_fifth_of_the_prefill(name, capsys):
    """LOCALINFER_TEST_LONG=1: prefilling 4,000 tokens takes up to a minute."""
    if not os.environ.get("LOCALINFER_TEST_LONG"):
        pytest.skip("LOCALINFER_TEST_LONG=1 asks for it")
    options = EngineOptions(ctx=4200, backend="cpu", snapshot_bytes=10**10)
    greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    with open_engine(model_path(name), options) as engine:
        ids = (engine.tokenizer.encode("\n".join(p.text for p in corpus())) * 3)[:4096]
        *_, first = engine.generate(ids, greedy)
        engine._unsaved = "long"
        assert engine.save()
    with open_engine(model_path(name), options) as engine:
        start = time.perf_counter()
        longer = [*ids, *first.tokens, 5]
        assert list(engine._reopen("long", longer, 0)) == []
        restore_s = time.perf_counter() - start
        *_, second = engine.generate(longer, greedy)
        assert second.stats.cached_tokens == 4096 + 7
    prefill_s = 4096 / first.stats.prefill_tok_s
    with capsys.disabled():
        print(f"\n{name}: 4,096 tokens prefilled in {prefill_s:.2f} s, restored in {restore_s:.2f} s")
    assert restore_s < prefill_s / 5
