"""A chat longer than the context, where the user chose to drop its oldest turns."""

from __future__ import annotations

from itertools import pairwise

import pytest

from localinfer.engine.chat_prompt import Prompt
from localinfer.engine.dropping import OldestTurns
from localinfer.engine.events import Notice
from localinfer.engine.params import ChatMessage, EngineOptions, SamplingParams
from localinfer.errors import UsageError
from tests.fakes.scripted import engine, says


def chat(n_turns, size=10, system="S" * 10):
    """A system prompt, n turns of question and answer, and a last question; a letter a token."""
    head = [ChatMessage("system", system)] if system else []
    turns = [ChatMessage(role, f"{i:02}" + "x" * (size - 2)) for i in range(n_turns) for role in ("user", "assistant")]
    return [*head, *turns, ChatMessage("user", "last")]


def make(messages):
    return Prompt(list("".join(m.content for m in messages).encode()))


def text(prompt):
    return bytes(prompt.ids).decode()


def test_nothing_is_dropped_while_there_is_room():
    prompt, told = OldestTurns(200).fit(chat(3), make, None)
    assert len(prompt.ids) == 74 and told == ""


def test_the_oldest_go_and_the_system_prompt_and_question_stay():
    prompt, told = OldestTurns(100).fit(chat(4), make, None)
    kept = text(prompt)
    assert kept.startswith("S" * 10) and kept.endswith("last")
    assert "00" not in kept and "02" not in kept and "03" in kept and len(kept) <= 50
    assert told.startswith("context full: the oldest 3 turns of this conversation (60 tokens) are left out")


def test_it_is_known_how_many_messages_are_left_out():
    oldest, messages = OldestTurns(100), chat(6)
    oldest.fit(messages, make, None)
    first_kept = messages[1 + oldest.left_out].content  # behind the system prompt
    assert text(oldest.fit(messages, make, None)[0])[10:].startswith(first_kept)
    oldest.fit(chat(1), make, None)
    assert oldest.left_out == 0


def test_what_is_left_out_stays_out_so_that_the_beginning_stays():
    """Over a long chat, the prompt's beginning changes seldom."""
    oldest, starts, notices = OldestTurns(200), [], 0
    for n in range(40):
        prompt, told = oldest.fit(chat(n), make, None)
        assert len(prompt.ids) <= 150
        starts.append(text(prompt)[10:12])
        notices += told != ""
    changes = sum(a != b for a, b in pairwise(starts))
    assert notices == changes - 1 <= 40 // 3  # the first change is the first turn after the question


def test_another_conversation_starts_afresh():
    oldest = OldestTurns(100)
    assert oldest.fit(chat(6), make, None)[1]
    prompt, told = oldest.fit([*chat(1, system="T" * 10)], make, None)
    assert told == "" and "00" in text(prompt)


def test_an_edited_old_turn_is_not_taken_for_the_dropped_one():
    oldest = OldestTurns(100)
    messages = chat(6)
    oldest.fit(messages, make, None)
    messages[1] = ChatMessage("user", "edited")
    assert "left out" in oldest.fit(messages, make, None)[1]


def test_a_short_answer_needs_less_room():
    assert OldestTurns(100).fit(chat(3), make, 4)[1] == ""
    assert OldestTurns(80).fit(chat(3), make, None)[1] != ""


def test_through_the_engine():
    stays = engine(says("ok", after="?"), EngineOptions(ctx=64, context_full="stop"))
    drops = engine(says("ok", after="?"), EngineOptions(ctx=64, context_full="drop"))
    messages = [ChatMessage("user", "a" * 50), ChatMessage("assistant", "b" * 30), ChatMessage("user", "what?")]
    greedy = SamplingParams(temperature=0)
    with pytest.raises(UsageError, match="do not fit in a context of 64") as refused:
        list(stays.chat(messages, greedy))
    assert "--context-full drop" in refused.value.hint
    events = list(drops.chat(messages, greedy))
    assert events[-1].text == "ok" and events[-1].stats.prompt_tokens < 10
    assert any(isinstance(e, Notice) and "the oldest 1 turn of this" in e.text for e in events)


def test_a_question_longer_than_the_context_is_refused_all_the_same():
    drops = engine(says("ok"), EngineOptions(ctx=32, context_full="drop"))
    with pytest.raises(UsageError, match="do not fit"):
        list(drops.chat([ChatMessage("user", "x" * 40)]))
