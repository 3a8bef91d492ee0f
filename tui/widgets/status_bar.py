"""StatusBar: one line that says what the model is doing, how full its context is and how fast it goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from rich.text import Text
from textual.reactive import reactive

from localinfer.records import dataclass
from localinfer.tui.bridge import PagingState, disk_is_slow
from localinfer.tui.widgets.line import Line
from localinfer.units import format_bytes

GAUGE, SHORT_GAUGE = 10, 3  # cells; the short one where the bar is narrow
NARROW = 60  # cells
LIMIT_IS_NEAR = 0.6  # of the context


@dataclass(frozen=True)
class StatusLine:
    """What the bar shows; zero and empty fields are left out."""

    state: str = "closed"  # closed, loading, ready, reading, writing, stopping, failed
    detail: str = ""  # beside the state: progress, failure
    fraction: float = 0.0  # of loading or reading
    model: str = ""
    quant: str = ""
    backend: str = ""
    context_used: int = 0
    context_limit: int = 0
    when_full: str = ""  # what happens at the limit; shown when it comes near
    cached_tokens: int = 0
    prompt_tokens: int = 0
    prefill_tok_s: float = 0.0
    decode_tok_s: float = 0.0
    ttft_s: float = 0.0
    draft_gain: float = 1.0  # speed of decoding by drafting
    paging: str = ""  # how weights come from the disk, where they do
    disk_is_slow: bool = False  # slower than forecast, or memory is less than planned: shown as a warning
    memory_bytes: int = 0  # the engine's peak
    unsaved: str = ""  # why the disk refuses the conversation


def paging_words(p: PagingState | None, tokens: int, forecast_bytes_s: float) -> tuple[str, bool]:
    """A turn's paging in a few words, and whether the disk was slower than forecast. Empty where nothing is paged."""
    if p is None or not tokens:
        return "", False
    words = [f"pages {p.read_bytes / tokens / 1e9:.2g} GB a token"]
    if p.lookups:
        words.append(f"{p.hits / p.lookups:.0%} of experts in memory")
    slow = disk_is_slow(p, forecast_bytes_s)
    if slow:
        words.append(f"disk {p.read_bytes / p.read_s / 1e9:.2g} GB/s, {forecast_bytes_s / 1e9:.2g} forecast")
    return ", ".join(words), slow


def limit_words(plan: Any) -> str:
    """The memory limit was lowered in the middle of something, until a turn tells how its paging went."""
    return f"memory limit now {format_bytes(plan.budget.budget_bytes)}, weights are paged"


_SIGNS = {"ready": ("●", "success"), "loading": ("◌", "accent"), "reading": ("◐", "accent"), "writing": ("◉", "accent"),
          "stopping": ("◌", "warning"), "failed": ("✕", "error"), "closed": ("○", "muted")}  # fmt: skip


# What the bar says, the most needed first: the least needed gives way where the bar is narrow. The speed of reading
# the prompt goes before its tokens and its time, which give it.
NEEDS = ("state", "unsaved", "slow disk", "context", "decode", "when full", "paging", "first", "cached", "prompt",
         "draft", "peak")  # fmt: skip


class StatusBar(Line):
    """Parts are dropped as the bar gets narrow, in the order of NEEDS; those that stay keep their places."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "status--success", "status--accent", "status--warning", "status--error", "status--muted", "status--text",
        "status--full", "status--faint",
    }  # fmt: skip

    PART = "status"

    line = reactive(StatusLine())

    def render(self) -> Text:
        wide = self.size.width >= NARROW
        gap = 3 if wide else 2
        parts = longer = self._parts(self.line, GAUGE if wide else SHORT_GAUGE)
        if self._width(parts, gap) > self.size.width:
            parts = self._parts(self.line, SHORT_GAUGE)
            while len(parts) > 1 and self._width(parts, gap) > self.size.width:
                del parts[max(parts, key=NEEDS.index)]
            longer = {name: longer[name] for name in parts}
            parts = longer if self._width(longer, gap) <= self.size.width else parts
        return Text(" " * gap).join(parts.values())

    def _why_unsaved(self, line: StatusLine) -> str:
        """As much of it as there is room for beside the state: it is said at any width."""
        text, room = f"not saved: {line.unsaved}", self.size.width - len(f"● {line.state}") - 2
        return text if len(text) <= room else text[: max(room - 1, 9)].rstrip(" :") + "…"

    @staticmethod
    def _width(parts: dict[str, Text], gap: int) -> int:
        return sum(part.cell_len + gap for part in parts.values()) - gap

    def _parts(self, line: StatusLine, gauge: int) -> dict[str, Text]:
        """By their names in NEEDS, from left to right; those that have nothing to say are not there."""
        text = self._text
        sign, colour = _SIGNS[line.state]
        state = text((sign + " ", colour), (line.state, colour))
        if line.fraction and line.state in ("loading", "reading"):
            state += text((" ", "muted")) + self._gauge(line.fraction, gauge)
        if line.detail:
            state += text((" " + line.detail, "muted"))
        near = line.context_limit and line.context_used >= LIMIT_IS_NEAR * line.context_limit
        used = f" {line.context_used}/{line.context_limit}"
        new = line.prompt_tokens - line.cached_tokens
        said: list[tuple[str, Any, Callable[[], Text]]] = [
            ("unsaved", line.unsaved, lambda: text((self._why_unsaved(line), "error"))),
            ("decode", line.decode_tok_s, lambda: text((f"{line.decode_tok_s:.1f}", "text"), (" tok/s", "muted"))),
            ("slow disk", line.disk_is_slow and line.paging, lambda: text((line.paging, "warning"))),
            ("paging", not line.disk_is_slow and line.paging, lambda: text((line.paging, "muted"))),
            ("context", line.context_limit,
             lambda: self._gauge(line.context_used / line.context_limit, gauge) + text((used, "muted"))),
            ("when full", near and line.when_full, lambda: text((line.when_full, "warning"))),
            ("prompt", line.prefill_tok_s,
             lambda: text(("prompt ", "muted"), (f"{line.prefill_tok_s:.0f}", "text"), (" tok/s", "muted"))),
            ("first", line.ttft_s, lambda: text(("first ", "muted"), (f"{line.ttft_s:.2f}", "text"), (" s", "muted"))),
            ("cached", line.prompt_tokens,
             lambda: text((f"{line.cached_tokens}", "text"), (f" cached +{new} new", "muted"))),
            ("draft", line.draft_gain >= 1.05, lambda: text(("draft ×", "muted"), (f"{line.draft_gain:.1f}", "text"))),
            ("peak", line.memory_bytes, lambda: text(("peak ", "muted"), (format_bytes(line.memory_bytes), "text"))),
        ]  # fmt: skip
        return {"state": state} | {name: part() for name, there, part in said if there}

    def _text(self, *runs: tuple[str, str]) -> Text:
        return Text.assemble(*((text, self.style(name)) for text, name in runs))

    def _gauge(self, fraction: float, cells: int) -> Text:
        n = round(min(max(fraction, 0.0), 1.0) * cells)
        n = max(n, 1) if fraction > 0 else n
        colour = "error" if fraction >= 0.95 else "warning" if fraction >= 0.8 else "full"
        return self._text(("━" * n, colour), ("━" * (cells - n), "faint"))
