"""What drafting gains on the fixed corpus: every prompt answered with and without it, turn by turn, same text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localinfer.draft_corpus import COPY_HEAVY, DraftPrompt, corpus
from localinfer.engine.engine import Engine
from localinfer.engine.events import TurnDone
from localinfer.engine.opening import open_engine
from localinfer.engine.params import EngineOptions, SamplingParams

ANSWER_TOKENS = 96


@dataclass(frozen=True)
class DraftResult:
    """One prompt. `gain`: decoding time without drafting over the time with it."""

    kind: str
    gain: float
    generated: int
    rounds: int
    proposed: int
    accepted: int
    same: bool
    off_tok_s: float  # of the last pair
    on_tok_s: float


def measure_drafting(
    path: Path,
    options: EngineOptions,
    progress: Callable[[str], None],
    draft: str | int = "auto",
    reps: int = 1,
    prompts: Sequence[DraftPrompt] | None = None,
) -> dict[str, Any]:
    """Greedy answers, `reps` with and without drafting in turn. Rows by kind; `same` must be true everywhere."""
    prompts = corpus() if prompts is None else prompts
    results = []
    with open_engine(path, options) as engine:
        _answer(engine, prompts[0], "off")  # warms up
        for i, prompt in enumerate(prompts):
            progress(f"drafting {i + 1}/{len(prompts)}: {prompt.kind}")
            results.append(compare(engine, prompt, draft, reps, first=i % 2))
    return summary(results)


def compare(
    engine: Engine, prompt: DraftPrompt, draft: str | int = "auto", reps: int = 1, first: int = 0
) -> DraftResult:
    """The median of pairs, each in the other order than the one before."""
    gains, same = [], True
    for rep in range(reps):
        if (first + rep) % 2:
            on, off = (_answer(engine, prompt, d) for d in (draft, "off"))
        else:
            off, on = (_answer(engine, prompt, d) for d in ("off", draft))
        gains.append(on.stats.decode_tok_s / off.stats.decode_tok_s if off.stats.decode_tok_s else 1.0)
        same &= on.tokens == off.tokens
    d = on.stats.draft
    return DraftResult(
        prompt.kind, statistics.median(gains), len(on.tokens), d.rounds, d.proposed, d.accepted, same,
        off.stats.decode_tok_s, on.stats.decode_tok_s,
    )  # fmt: skip


def _answer(engine: Engine, prompt: DraftPrompt, draft: str | int) -> TurnDone:
    params = SamplingParams(temperature=0, max_tokens=ANSWER_TOKENS, draft=draft)
    event = None
    for event in engine.chat(list(prompt.messages) if engine.has_template else prompt.text, params):  # noqa: B007
        pass  # only the last event counts
    assert isinstance(event, TurnDone)
    return event


def summary(results: Sequence[DraftResult]) -> dict[str, Any]:
    kinds = list(dict.fromkeys(r.kind for r in results))
    rows = [_row(kind, [r for r in results if r.kind == kind]) for kind in kinds]
    copying = [r.gain for r in results if r.kind in COPY_HEAVY]
    creative = [r.gain for r in results if r.kind not in COPY_HEAVY]
    return {
        "rows": rows,
        "copy_heavy_gain": statistics.median(copying) if copying else None,
        "other_gain": statistics.median(creative) if creative else None,
        "worst_gain": min(r.gain for r in results),
        "same_text": all(r.same for r in results),
    }


def _row(kind: str, results: Sequence[DraftResult]) -> dict[str, Any]:
    generated, accepted = sum(r.generated for r in results), sum(r.accepted for r in results)
    return {
        "name": kind,
        "gain": statistics.median(r.gain for r in results),
        "gains": [r.gain for r in results],
        "worst": min(r.gain for r in results),
        "proposed": sum(r.proposed for r in results),
        "accepted": accepted,
        "tokens_per_round": generated / max(1, generated - accepted),
        "off_tok_s": statistics.median(r.off_tok_s for r in results),
        "on_tok_s": statistics.median(r.on_tok_s for r in results),
        "same": all(r.same for r in results),
    }
