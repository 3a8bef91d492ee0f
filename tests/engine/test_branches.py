"""Turns that leave the running timeline: few tokens go through again, and the text is that of an empty cache, to the
bit. On tiny models of the three kinds: all positions kept, sliding windows, recurrent state."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from localinfer.backends.cpu.lib import library_path
from localinfer.engine.opening import open_engine
from localinfer.engine.params import ChatMessage, EngineOptions, SamplingParams

TINY = Path(__file__).parents[1] / "golden" / "tiny"
MODELS = ("llama", "gemma3", "falcon-h1")  # windows of 16 in gemma3; falcon-h1 has attention and mamba in each layer
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)

pytestmark = pytest.mark.skipif(library_path() is None, reason="the C kernels are not built")


@pytest.fixture(params=MODELS)
def engine(request, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALINFER_HOME", str(tmp_path))
    options = EngineOptions(ctx=512, chunk=16, backend="cpu", template="chatml")
    with open_engine(TINY / f"{request.param}.gguf", options) as opened:
        yield opened


class Turns:
    """Runs prompts; `done` remembers what came of each."""

    def __init__(self, engine):
        self.engine = engine
        self.done = []
        self._random = random.Random(7)

    def words(self, n):
        return [self._random.randrange(300) for _ in range(n)]

    def run(self, ids):
        *_, done = self.engine.generate(ids, GREEDY)
        self.done.append((list(ids), done))
        return done

    def check_all_against_an_empty_cache(self):
        for ids, done in self.done:
            self.engine.conversation.clear()
            *_, fresh = self.engine.generate(ids, GREEDY)
            assert fresh.stats.cached_tokens == 0
            assert (fresh.tokens, fresh.text) == (done.tokens, done.text)


def test_every_way_to_leave_a_timeline(engine):
    turns = Turns(engine)
    question = turns.words(150)
    answer = turns.run(question)
    history = [*question, *answer.tokens]

    second = [*history, *turns.words(20)]
    resumed = turns.run(second)
    assert resumed.stats.cached_tokens == len(history) - 1  # the last token drawn was never stored

    again = turns.run(second)  # regenerated
    assert again.stats.cached_tokens == len(second) - 1 and again.tokens == resumed.tokens

    edited = turns.run([*history, *turns.words(25)])
    assert edited.stats.cached_tokens in (len(history) - 1, len(history))

    back = turns.run([*second, *resumed.tokens, *turns.words(3)])  # the first branch goes on
    assert back.stats.cached_tokens == len(second) + len(resumed.tokens) - 1

    without_thinking = turns.run([*question, *turns.words(30)])  # a template drops what came after the question
    assert without_thinking.stats.cached_tokens >= len(question) - 1
    turns.check_all_against_an_empty_cache()


def test_a_beginning_that_was_seen_twice_is_found_the_third_time(engine):
    turns = Turns(engine)
    beginning = turns.words(100)
    cached = [turns.run([*beginning, *turns.words(40)]).stats.cached_tokens for _ in range(3)]
    assert cached[2] >= 100
    turns.check_all_against_an_empty_cache()


def test_a_new_chat_with_the_same_system_prompt(engine):
    def ask(text):
        messages = [ChatMessage("system", "You are a helpful thing. " * 8), ChatMessage("user", text)]
        *_, done = engine.chat(messages, GREEDY)
        return done

    first = ask("Who?")
    second = ask("Where is that?")
    assert second.stats.cached_tokens > 0.6 * first.stats.prompt_tokens
    engine.conversation.clear()
    assert ask("Where is that?").tokens == second.tokens


def test_many_turns_and_branches_leave_memory_as_it_was(engine):
    """Ten times the context goes through; pages come from what is worth least."""
    turns = Turns(engine)
    history = turns.words(60)
    allocated = engine.conversation.kv.n_bytes
    for turn in range(40):
        done = turns.run(history)
        history = [*history, *done.tokens, *turns.words(20)]
        if len(history) > 440:
            history = history[: 60 + turn]
    assert engine.conversation.kv.n_bytes == allocated == engine.kv_spec.n_bytes + engine.kv_spec.checkpoint_bytes
    turns.done = turns.done[-2:]
    turns.check_all_against_an_empty_cache()
