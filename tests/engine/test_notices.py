"""What a user must hear about a load, once and in one line."""

from __future__ import annotations

from pathlib import Path

import localinfer
from localinfer.engine.engine import NO_DRAFTS, NO_PAGING

TINY = Path(__file__).parents[1] / "golden" / "tiny"


def test_a_weight_budget_is_said_to_be_a_plan_only() -> None:
    with localinfer.load(TINY / "llama.gguf", ctx=64, weight_budget=10**9) as engine:
        assert NO_PAGING in engine.notices
    with localinfer.load(TINY / "llama.gguf", ctx=64) as engine:
        assert NO_PAGING not in engine.notices


def test_recurrent_layers_are_said_to_switch_drafting_off() -> None:
    with localinfer.load(TINY / "falcon-h1.gguf", ctx=64) as engine:
        assert NO_DRAFTS in engine.notices
