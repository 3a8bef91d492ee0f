"""The check that a record is still found in a long text."""

from __future__ import annotations

import numpy as np
import pytest

from localinfer import retrieval
from localinfer.engine.params import EngineOptions
from tests.fakes.scripted import EOS, N_VOCAB, engine


def reader(wrong=()):
    """A model that reads the record which the text ends with; `wrong` numbers of documents it misreads."""
    asked = []

    def rule(prefix):
        text = bytes(t for t in prefix if t < 256).decode()
        head, _, begun = text.rpartition("\n\n")
        key, _, answered = begun.partition(" is")
        if key not in asked:
            asked.append(key)
        line = next(line for line in head.splitlines() if line.startswith(f"{key} is"))
        answer = line.removeprefix(f"{key} is")
        if asked.index(key) in wrong:
            answer = answer[::-1]
        token = answer.encode()[len(answered)] if len(answered) < len(answer) else EOS
        logits = np.zeros(N_VOCAB, np.float32)
        logits[token] = 20.0
        return logits

    return engine(rule, EngineOptions(ctx=2048))


def test_questions_are_the_same_every_time_and_of_every_quarter():
    asked = [q.text.rsplit("\n", 1)[1] for q in retrieval.questions(128)]
    assert asked == [q.text.rsplit("\n", 1)[1] for q in retrieval.questions(128)]
    numbers = [int(text.split()[4]) for text in asked]
    assert [n // 32 for n in numbers] == [0, 1, 2, 3]
    for question in retrieval.questions(128):
        assert question.text.count("\n") == 129 and f"is {question.answer}." in question.text


@pytest.mark.parametrize("wrong,right", [((), 4), ((1,), 3), ((0, 1, 2, 3), 0)])
def test_exact_answers_are_counted(wrong, right):
    assert retrieval.found(reader(wrong), 16) == right


def test_the_context_has_room_for_the_longest_document():
    eng = reader()
    need = retrieval.context_for(eng, 16)
    longest = max(len(q.text) for q in retrieval.questions(16))
    assert need == longest + 1 + retrieval.ANSWER_TOKENS  # a token a byte, and the start
