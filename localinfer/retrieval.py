"""Can a model still find one line in a long text? A check of quantized KV caches that an average does not replace.

A document is a list of numbered records, each a six-digit number; the text then begins one record once more, and its
number must come back exactly. Greedy, without the chat template, so that base models can be asked too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from localinfer.records import dataclass

if TYPE_CHECKING:
    from localinfer.engine.engine import Engine

DOCUMENTS = 4  # of each length
DIGITS = 6
ANSWER_TOKENS = 10  # a tokenizer may take a digit each


@dataclass(frozen=True)
class Question:
    text: str
    answer: str


def questions(n_records: int) -> Iterator[Question]:
    """DOCUMENTS of them, the same at each call; what is asked for lies in another quarter of each."""
    for document in range(DOCUMENTS):
        rng = random.Random(f"{n_records} {document}")
        numbers = [f"{rng.randrange(10**DIGITS):0{DIGITS}}" for _ in range(n_records)]
        asked = (n_records * document + rng.randrange(n_records)) // DOCUMENTS
        lines = "".join(f"The code of item {i} is {number}.\n" for i, number in enumerate(numbers))
        yield Question(f"{lines}\nThe code of item {asked} is", numbers[asked])


def context_for(engine: Engine, n_records: int) -> int:
    """Tokens of context that the longest of these documents and its answer take."""
    longest = max(len(engine.tokenizer.encode(q.text)) for q in questions(n_records))
    return longest + ANSWER_TOKENS


def found(engine: Engine, n_records: int, progress: Callable[[], None] = lambda: None) -> int:
    """How many of DOCUMENTS answers are exact."""
    from localinfer.engine.events import TurnDone
    from localinfer.engine.params import SamplingParams

    greedy, right = SamplingParams(temperature=0, max_tokens=ANSWER_TOKENS), 0
    for question in questions(n_records):
        for event in engine.generate(engine.tokenizer.encode(question.text), greedy):
            if isinstance(event, TurnDone):
                right += event.text.strip().startswith(question.answer)
        engine.conversation.clear()
        progress()
    return right
