"""What a user must hear about a load, once and in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

import localinfer
from localinfer.engine.chat_prompt import NO_SWITCH, make_prompt
from localinfer.engine.engine import NO_DRAFTS, NO_PAGING
from localinfer.engine.params import ChatMessage
from localinfer.models.chat_template import ChatTemplate

TINY = Path(__file__).parents[1] / "golden" / "tiny"


@pytest.mark.parametrize(("backend", "said"), [("cpu", False), ("reference", True)])
def test_a_backend_that_does_not_page_says_so(backend: str, said: bool) -> None:
    with localinfer.load(TINY / "llama.gguf", ctx=64, weight_budget=100_000, backend=backend) as engine:
        assert (NO_PAGING in engine.notices) is said
        assert (engine.status().plan.paging is not None) and engine.plan.verdict == "pages"
    with localinfer.load(TINY / "llama.gguf", ctx=64, weight_budget=10**9, backend=backend) as engine:
        assert NO_PAGING not in engine.notices


def test_recurrent_layers_are_said_to_switch_drafting_off() -> None:
    with localinfer.load(TINY / "falcon-h1.gguf", ctx=64) as engine:
        assert NO_DRAFTS in engine.notices


@pytest.mark.parametrize(
    ("source", "thinking", "said"),
    [
        ("{{ messages[0].content }}", True, True),
        ("{{ messages[0].content }}", False, True),
        ("{{ messages[0].content }}", None, False),
        ("{% if enable_thinking %}<think>{% endif %}{{ messages[0].content }}", False, False),
    ],
)
def test_a_template_without_a_switch_for_thinking_says_so_when_asked(
    source: str, thinking: bool | None, said: bool
) -> None:
    with localinfer.load(TINY / "llama.gguf", ctx=64) as engine:
        template = ChatTemplate(source, engine.tokenizer)
        prompt = make_prompt(engine.tokenizer, template, [ChatMessage("user", "hello")], thinking)
    assert (NO_SWITCH in prompt.notices) is said
