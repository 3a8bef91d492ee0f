"""One answer over a scripted model: what ends it, what it reports, what the cache holds afterwards."""

from __future__ import annotations

import pytest

from localinfer.engine.events import PromptProgress, TextDelta, TurnDone
from localinfer.engine.params import EngineOptions, SamplingParams
from localinfer.errors import BackendError, UsageError
from tests.fakes.scripted import EOS, engine, noise, says

GREEDY = SamplingParams(temperature=0)


def answer(eng, prompt="Who?", params=GREEDY, **kwargs):
    events = list(eng.generate(eng.tokenizer.encode(prompt), params, **kwargs))
    assert isinstance(events[-1], TurnDone)
    assert sum(isinstance(e, TurnDone) for e in events) == 1
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == events[-1].text
    return events[-1]


def test_ends_at_the_end_token():
    done = answer(engine(says("It is me.")))
    assert (done.text, done.reason) == ("It is me.", "eos")
    assert done.tokens == tuple(b"It is me.")  # the end token is not part of it
    assert done.stats.prompt_tokens == 5 and done.stats.generated_tokens == 9


def test_goes_on_after_the_end_token_when_told_to():
    done = answer(engine(says("ab")), params=SamplingParams(temperature=0, ignore_eos=True, max_tokens=5))
    assert done.tokens == (*b"ab", EOS, EOS, EOS) and done.text == "ab"


@pytest.mark.parametrize("n", [0, 1, 3])
def test_max_tokens(n):
    eng = engine(says("abcdef"))
    done = answer(eng, params=SamplingParams(temperature=0, max_tokens=n))
    assert (done.text, done.reason) == ("abcdef"[:n], "max_tokens")
    assert len(eng._model.calls) == max(1, n)  # nothing is computed that nobody reads


def test_stop_string_across_tokens():
    done = answer(engine(says("one two END three")), params=SamplingParams(temperature=0, stop=("END",)))
    assert (done.text, done.reason) == ("one two ", "stop")


def test_text_that_only_begins_like_a_stop_string_is_shown():
    done = answer(engine(says("EN EN")), params=SamplingParams(temperature=0, stop=("END",)))
    assert (done.text, done.reason) == ("EN EN", "eos")


def test_characters_of_several_tokens_come_whole():
    eng = engine(says("naïve 🙂"))
    deltas = [e for e in eng.generate(eng.tokenizer.encode("?"), GREEDY) if isinstance(e, TextDelta)]
    assert [d.text for d in deltas] == list("naïve 🙂")
    assert [len(d.tokens) for d in deltas] == [1, 1, 2, 1, 1, 1, 4]


def test_context_full_names_its_numbers():
    eng = engine(says("x" * 100), EngineOptions(ctx=32))
    done = answer(eng)
    assert done.reason == "context_full"
    assert (done.stats.context_used, done.stats.context_limit) == (32, 32)
    assert len(done.text) == 32 - 5 + 1  # the last token was drawn, and has no room to be stored


def test_a_prompt_of_exactly_the_context_is_answered_with_one_token():
    eng = engine(says("xyz"), EngineOptions(ctx=8))
    done = answer(eng, prompt="123456?")
    assert (done.text, done.reason) == ("x", "context_full")


def test_a_prompt_longer_than_the_context_is_refused():
    with pytest.raises(UsageError, match="33 tokens do not fit in a context of 32"):
        answer(engine(says("x"), EngineOptions(ctx=32)), prompt="?" * 32)


def test_an_empty_prompt_is_refused():
    with pytest.raises(UsageError, match="expected a text"):
        list(engine(says("x")).generate([], GREEDY))


def test_cancel_between_tokens_keeps_the_text_and_the_cache():
    eng = engine(says("abcdefgh"))
    ids = eng.tokenizer.encode("Who?")
    seen = []
    events = eng.generate(ids, GREEDY, cancelled=lambda: len(seen) == 3)
    for event in events:
        if isinstance(event, TextDelta):
            seen.append(event.text)
    assert event.reason == "cancelled" and event.text == "abc" and seen == list("abc")
    assert eng.conversation.tokens == eng.conversation.kv.tokens == [*ids, *b"abc"]
    assert answer(eng).text == "abcdefgh"


def test_cancel_while_the_prompt_is_read():
    eng = engine(says("abc"), EngineOptions(ctx=256, chunk=16))
    seen = []
    for event in eng.generate(eng.tokenizer.encode("w" * 99 + "?"), GREEDY, cancelled=lambda: len(seen) == 3):
        if isinstance(event, PromptProgress):
            seen.append(event.done)
    assert event.reason == "cancelled" and event.tokens == ()
    assert eng.conversation.length == len(eng.conversation.kv.tokens) == seen[-1] == 32


def test_leaving_the_iteration_early_leaves_a_true_cache():
    eng = engine(says("abcdef"))
    ids = eng.tokenizer.encode("Who?")
    for event in (stream := eng.generate(ids, GREEDY)):
        if isinstance(event, TextDelta) and event.text == "b":
            break
    stream.close()
    assert eng.conversation.tokens == eng.conversation.kv.tokens
    assert answer(eng).text == "abcdef"


def test_a_second_turn_computes_only_what_is_new():
    eng = engine(says("Me."))
    first = answer(eng, "Who?")
    done = answer(eng, "Who?" + first.text + " Really?")
    # 4 characters and the start token, and of the answer all but its last token, which was never put through
    assert (done.stats.cached_tokens, done.stats.prompt_tokens) == (5 + 3, 5 + 3 + 8)
    assert done.text == "Me."


def test_resumed_equals_fresh():
    params = SamplingParams(seed=5, max_tokens=40, temperature=1.0)
    eng = engine(noise())
    for prompt in ("abcdef", "abcxyz", "abc", "abcxyz!"):
        assert answer(eng, prompt, params).tokens == answer(engine(noise()), prompt, params).tokens


def test_a_cache_that_cannot_rewind_is_filled_again():
    params = SamplingParams(seed=5, max_tokens=10)
    eng = engine(noise(), rewinds=2)
    for prompt in ("abcdef", "abcxyz", "abcxy"):
        done = answer(eng, prompt, params)
        assert done.tokens == answer(engine(noise()), prompt, params).tokens
        assert done.stats.cached_tokens == 0


@pytest.mark.parametrize("chunk", [1, 7, 64, 256])
def test_any_chunk_size_gives_the_same_text(chunk):
    params = SamplingParams(seed=3, max_tokens=20)
    eng = engine(noise(), EngineOptions(ctx=256, chunk=chunk))
    assert answer(eng, "w" * 150, params).tokens == answer(engine(noise()), "w" * 150, params).tokens
    assert max(t for t, _ in eng._model.calls) <= chunk


def test_progress_starts_at_what_was_cached_and_reaches_the_end():
    eng = engine(says("abc"), EngineOptions(ctx=256, chunk=16))
    answer(eng, "w" * 40 + "?")
    ids = eng.tokenizer.encode("w" * 40 + "and" * 20 + "?")
    steps = [e for e in eng.generate(ids, GREEDY) if isinstance(e, PromptProgress)]
    assert (steps[0].done, steps[0].cached) == (41, 41)
    assert steps[-1].done == steps[-1].total == len(ids)
    assert [s.done for s in steps] == sorted({s.done for s in steps})


def test_one_token_has_no_decode_speed():
    assert answer(engine(says("abc")), params=SamplingParams(max_tokens=1)).stats.decode_tok_s == 0


def test_the_same_seed_gives_the_same_text_and_is_named():
    first = answer(engine(noise()), params=SamplingParams(max_tokens=30))
    again = answer(engine(noise()), params=SamplingParams(max_tokens=30, seed=first.stats.seed))
    other = answer(engine(noise()), params=SamplingParams(max_tokens=30, seed=first.stats.seed + 1))
    assert first.tokens == again.tokens != other.tokens


def test_output_that_is_not_a_number_is_an_error():
    with pytest.raises(BackendError, match="not a number"):
        answer(engine(lambda prefix: says("x")(prefix) * float("nan")))


def test_logits_of_all_rows_in_any_chunks():
    eng = engine(noise())
    ids = list(b"The whole prompt")
    every = eng.logits(ids)
    assert every.shape == (len(ids), 258) and every.dtype == "float32"
    assert (eng.logits(ids, chunk=3) == every).all()
    assert (eng.logits(ids, rows=1) == every[-1:]).all()
    assert (eng.logits(ids, rows=5, chunk=4) == every[-5:]).all()
