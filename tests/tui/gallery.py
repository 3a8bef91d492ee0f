"""Pictures of the app for the documentation: `python -m tests.tui.gallery [FOLDER [NAME ...]]` (docs/pictures).

The screens are the real ones; the engine is scripted and the clock of the conversations is fixed, so that a picture
only changes when the app does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.widgets import Input, OptionList

from localinfer.engine.params import EngineOptions
from localinfer.history_store import HistoryStore
from localinfer.settings import Settings
from localinfer.tui.app import LocalinferApp
from localinfer.tui.bench_runs import BenchRow, SavedRun
from localinfer.tui.models import ModelRow, add_plan
from localinfer.tui.screens.bench import BenchScreen
from localinfer.tui.screens.models import ModelsScreen
from localinfer.tui.themes import DARK, LIGHT
from tests.fakes.scripted_service import READY, Answer, ScriptedService
from tests.tui import plans

QUESTION = "Why does a long context make a local model slower? Show me the arithmetic."
ANSWER = """Each new token has to **read everything the model keeps**: its weights, and the KV cache
of all earlier tokens.

| what is read per token | at 512 tokens | at 8192 tokens |
|:--|--:|--:|
| weights | 92 MiB | 92 MiB |
| KV cache, f16 | 11 MiB | 180 MiB |

So the bound falls with the depth of the context:

```python
def bound(bandwidth: float, weights: int, kv_per_token: int, depth: int) -> float:
    \"\"\"Tokens per second, at best.\"\"\"
    return bandwidth / (weights + kv_per_token * depth)
```

1. A smaller KV type (`q8_0`) halves what a token adds.
2. A shorter context keeps *less* of the past.
"""
THOUGHTS = "They ask for a reason and for numbers.\n\nThe decode step is bound by memory bandwidth."
MODELS = (
    ("gemma-3-12b-q4_k", "huggingface"), ("llama-3.1-8b-q4_k", "lmstudio"), ("qwen3-0.6b-q8_0", "localinfer"),
    ("qwen3-30b-a3b-q4_k", "localinfer"), ("qwen3-8b-bf16", "ollama"), ("llama-3.3-70b-q4_k", "huggingface"),
)  # fmt: skip
NOON = 1_735_732_800  # of the first day of 2025, UTC
WIDE, NORMAL, SMALL = (120, 36), (96, 30), (40, 12)
Act = Callable[[Any], Awaitable[None]]


async def settle(pilot: Any) -> None:
    """Until what is drawn no longer depends on how fast this machine is."""
    await pilot.pause()
    transcript = pilot.app.chat.transcript
    for view in transcript.views:
        view.thinking_s = 0.0
        transcript.relabel(view)
    before = ""
    for _ in range(50):
        await pilot.pause(0.1)
        now = pilot.app.export_screenshot()
        if now == before:
            return
        before = now


async def ready(pilot: Any) -> None:
    """Until the model is open."""
    app = pilot.app
    while not app.chat.is_mounted or app.chat.status_bar.line.state != "ready":
        await asyncio.sleep(0.01)


async def chat(pilot: Any) -> None:
    app = pilot.app
    app.chat.composer.put(QUESTION)
    app.chat.composer.action_send()
    while app.session.turn is not None or not app.session.conversation.messages or app.chat.answering.view:
        await asyncio.sleep(0.01)
    await settle(pilot)


async def branches(pilot: Any) -> None:
    await chat(pilot)
    app = pilot.app
    app.chat.command_regenerate("")
    while app.session.turn is not None:
        await asyncio.sleep(0.01)
    app.chat.send("And with q4_0?")
    while app.session.turn is not None:
        await asyncio.sleep(0.01)
    app.chat.command_tree("")
    await settle(pilot)


async def thinking(pilot: Any) -> None:
    await chat(pilot)
    pilot.app.chat.transcript.toggle_all_thinking()
    pilot.app.chat.transcript.action_top()
    await settle(pilot)


async def palette_of_commands(pilot: Any) -> None:
    await chat(pilot)
    pilot.app.chat.composer.put("/")
    await settle(pilot)


async def plan(pilot: Any) -> None:
    pilot.app.options = EngineOptions(ctx=65536)
    pilot.app.show_plan("/models/Qwen3-30B-A3B-Q4_K_M.gguf")
    while getattr(pilot.app.screen, "plan", None) is None:
        await asyncio.sleep(0.01)
    for box in pilot.app.screen.query(Input):
        box.cursor_blink = False
    await settle(pilot)


async def models(pilot: Any) -> None:
    app = pilot.app
    screen = ModelsScreen()
    await app.push_screen(screen)
    screen.workers.cancel_group(screen, "list")
    rows = [ModelRow(name, f"/models/{name}.gguf", plans.facts(name).file_bytes, source) for name, source in MODELS]
    for row in rows:
        add_plan(row, plans.plan(row.name, app.options))
    screen.rows = rows
    screen._show()
    await settle(pilot)


async def conversations(pilot: Any) -> None:
    store = pilot.app.session.store
    titles = ("Sourdough at 24 degrees", "Rust lifetimes, once more", "Letter to the landlord", "Orbital mechanics")
    for day, title in enumerate(titles):
        saved = store.new()
        saved.add(0, "user", title)
        saved.add(1, "assistant", "…", state="eos")
        saved.pin(title.startswith("Rust"))
        saved.close()
        os.utime(saved.file_path, (NOON + day * 86_400,) * 2)
    pilot.app.chat.command_chats("")
    while not any(options.option_count for options in pilot.app.screen.query(OptionList)):
        await asyncio.sleep(0.01)
    for box in pilot.app.screen.query(Input):
        box.cursor_blink = False
    await settle(pilot)


async def help_screen(pilot: Any) -> None:
    pilot.app.chat.command_help("")
    await settle(pilot)


async def bench(pilot: Any) -> None:
    screen = BenchScreen("/models/Qwen3-0.6B-Q8_0.gguf")
    await pilot.app.push_screen(screen)
    rows = measured(1.0)
    screen.earlier, screen.rows = SavedRun("2026-01-05 09:30", tuple(measured(0.8))), rows
    screen._show()
    screen._say("Done: s saves this run.")
    await settle(pilot)


def measured(share: float) -> list[BenchRow]:
    """Rates that fall with the depth, as measured on two cores."""
    rates = {"decode": (512, 41.0, 9000), "prefill": (256, 128.0, 14000)}
    return [
        BenchRow(kind, n, depth, "f16", *(3 * [round(share * rate / (1 + depth / half), 1)]))
        for kind, (n, rate, half) in rates.items()
        for depth in (0, 512, 1024, 2048, 4096)
    ]


async def welcome(pilot: Any) -> None:
    await settle(pilot)


PICTURES: dict[str, tuple[tuple[int, int], str, Act]] = {
    "chat": (WIDE, DARK.name, chat),
    "chat-light": (WIDE, LIGHT.name, chat),
    "chat-small": (SMALL, DARK.name, chat),
    "welcome": (NORMAL, DARK.name, welcome),
    "branches": (WIDE, DARK.name, branches),
    "thinking": (NORMAL, LIGHT.name, thinking),
    "commands": (NORMAL, DARK.name, palette_of_commands),
    "plan": (NORMAL, DARK.name, plan),
    "models": (NORMAL, DARK.name, models),
    "conversations": (NORMAL, LIGHT.name, conversations),
    "bench": (WIDE, DARK.name, bench),
    "help": (NORMAL, LIGHT.name, help_screen),
}


def make_app(folder: Path, theme: str) -> LocalinferApp:
    ready = replace(READY, quant="Q8_0", ctx=4096, plan=plans.small(""))
    service = ScriptedService([Answer(ANSWER, thinking=THOUGHTS)], ready=ready, planner=plans.large)
    return LocalinferApp(
        service, "/models/Qwen3-0.6B-Q8_0.gguf", store=HistoryStore(folder), settings=Settings(theme=theme)
    )


async def picture(name: str, folder: Path) -> Path:
    size, theme, act = PICTURES[name]
    with tempfile.TemporaryDirectory() as saved:
        app = make_app(Path(saved), theme)
        async with app.run_test(size=size) as pilot:
            await ready(pilot)
            await act(pilot)
            path = folder / f"{name}.svg"
            path.write_text(app.export_screenshot(title="localinfer"), encoding="utf-8")
    return path


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["LOCALINFER_HOME"] = home
        for name in sys.argv[2:] or PICTURES:
            print(asyncio.run(picture(name, folder)))


if __name__ == "__main__":
    main()
