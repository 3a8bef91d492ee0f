"""The engine process behind its async door, with a scripted engine: turns, cancel, death, reopening, no orphans."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from localinfer.engine.events import LoadProgress, PromptProgress, TextDelta, TurnDone, TurnFailed
from localinfer.engine.service import EngineBug, EngineOptions, EngineService, SamplingParams
from localinfer.errors import DoesNotFit, FormatError
from tests.fakes.scripted import OPENER

ROOT = Path(__file__).parents[2]
GREEDY = SamplingParams(temperature=0)


@pytest.fixture(autouse=True)
def _tests_can_be_imported_by_the_engine_process(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
async def service():
    service = EngineService(OPENER)
    yield service
    await service.close()


def script(**fields):
    return json.dumps(fields)


async def turn(service, text="Who?", params=GREEDY, **settings):
    events = [event async for event in service.chat(text, params, **settings)]
    assert all(event.turn_id == events[0].turn_id for event in events)
    assert [isinstance(e, TurnDone | TurnFailed) for e in events] == [False] * (len(events) - 1) + [True]
    return events


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes() if Path("/proc").is_dir() else True


async def test_tokens_of_a_text_are_counted_by_the_open_model(service):
    assert await service.count_tokens("before") is None
    await service.open(script(answer="Hello."))
    assert await service.count_tokens("é!") == 3  # a byte each, nothing added
    os.kill((await service.status()).pid, signal.SIGKILL)
    assert await service.count_tokens("after") is None


async def test_a_turn(service):
    progress = []
    status = await service.open(script(answer="Hello."), EngineOptions(ctx=64), progress.append)
    assert (status.state, status.ctx, status.backend) == ("ready", 64, "fake") and status.pid != os.getpid()
    assert progress == [LoadProgress(0, 0.5, "half way")]
    events = await turn(service)
    assert isinstance(events[0], PromptProgress)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == events[-1].text == "Hello."
    assert (await service.status()).context_used == events[-1].stats.context_used == 5 + 6
    assert (await turn(service))[-1].turn_id > events[-1].turn_id


async def test_messages_without_a_template_are_continued_and_it_says_so(service):
    await service.open(script(answer="Me."))
    events = await turn(service, [SimpleNamespace(role="user", content="Who?")])
    assert events[0].text.startswith("this model has no chat template")
    assert events[-1].text == "Me."


async def test_cancel_answers_within_200_ms_and_keeps_the_text(service):
    await service.open(script(answer="x" * 200, token_s=0.01))
    text = ""
    async for event in service.chat("?", GREEDY):
        if isinstance(event, TextDelta):
            text += event.text
            if len(text) == 5:
                asked = time.perf_counter()
                await service.cancel()
    assert time.perf_counter() - asked < 0.2
    assert event.reason == "cancelled" and event.text == text and 5 <= len(text) < 30
    assert (await turn(service, params=SamplingParams(temperature=0, max_tokens=3)))[-1].text == "xxx"


async def test_cancel_while_a_long_prompt_is_read(service):
    await service.open(script(answer="x", token_s=0.001), EngineOptions(ctx=4096))
    async for event in service.chat("w" * 3000 + "?", GREEDY):
        if isinstance(event, PromptProgress) and 200 < event.done < 1000:
            asked = time.perf_counter()
            await service.cancel()
    assert time.perf_counter() - asked < 0.2
    assert event.reason == "cancelled" and event.tokens == ()


async def test_leaving_the_stream_early_cancels_the_turn(service):
    await service.open(script(answer="x" * 500, token_s=0.01), EngineOptions(ctx=1024))
    stream = service.chat("?", GREEDY)
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    await stream.aclose()
    assert (await service.status()).state == "ready"
    start = time.perf_counter()
    await turn(service, params=SamplingParams(temperature=0, max_tokens=1))
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(("name", "kind"), [("FormatError", FormatError), ("DoesNotFit", DoesNotFit)])
async def test_an_error_of_the_tree_arrives_as_itself(service, name, kind):
    with pytest.raises(kind, match="planted") as caught:
        await service.open(script(load_error=name))
    assert caught.value.hint == "a hint"
    assert (await service.status()).state == "failed"


async def test_a_bug_arrives_with_its_traceback(service):
    with pytest.raises(EngineBug, match="ZeroDivisionError: a planted bug"):
        await service.open(script(load_error="bug"))


async def test_a_bug_in_a_turn_fails_the_turn_and_not_the_engine(service):
    await service.open(script(answer="abcdef", fails_after=3))
    failed = (await turn(service))[-1]
    assert failed.exit_code == 1 and "a planted bug" in failed.message and "Traceback" in failed.details
    assert (await turn(service, params=SamplingParams(temperature=0, max_tokens=2)))[-1].text == "ab"


async def test_killed_in_mid_answer_and_opened_again(service):
    await service.open(script(answer="abcdef", dies_after=3))
    events = await turn(service)
    failed = events[-1]
    assert isinstance(failed, TurnFailed) and failed.exit_code == 6
    assert "killed (SIGKILL)" in failed.message and "memory ran out" in failed.hint
    assert (await service.status()).state == "failed"
    again = (await turn(service))[-1]
    assert isinstance(again, TurnFailed) and again.exit_code == 6
    await service.open(script(answer="Back."))
    assert (await turn(service))[-1].text == "Back."


async def test_killed_while_idle(service):
    status = await service.open(script())
    os.kill(status.pid, signal.SIGTERM)
    while alive(status.pid):
        await asyncio.sleep(0.01)
    assert "SIGTERM" in (await turn(service))[-1].message


async def test_killed_while_loading(service):
    opening = asyncio.create_task(service.open(script(load_s=30)))
    while not (service._process and service._process._replies):
        await asyncio.sleep(0.01)
    os.kill(service._process.pid, signal.SIGKILL)
    with pytest.raises(Exception, match="SIGKILL"):
        await opening


async def test_close_ends_the_process_even_in_mid_answer(service):
    status = await service.open(script(answer="x" * 500, token_s=0.01), EngineOptions(ctx=1024))
    async for event in service.chat("?", GREEDY):
        if isinstance(event, TextDelta):
            start = time.perf_counter()
            await service.close()
    assert isinstance(event, TurnFailed) and "closed" in event.message
    assert time.perf_counter() - start < 1.0 and not alive(status.pid)


async def test_no_model_is_open():
    assert (await turn(EngineService()))[-1].message == "no model is open"


async def test_what_the_engine_prints_stays_off_the_screen_and_is_kept_for_the_log(service, capfd):
    noisy = script(answer="abc", dies_after=2)
    service = EngineService("tests.fakes.scripted:open_noisy")
    await service.open(noisy)
    failed = (await turn(service))[-1]
    await service.close()
    assert "words on stderr" in failed.details
    assert capfd.readouterr() == ("", "")


PARENT = """
import asyncio, json, sys
from localinfer.engine.service import EngineOptions, EngineService, SamplingParams
async def main():
    service = EngineService("tests.fakes.scripted:open_scripted")
    status = await service.open(json.dumps({"answer": "x" * 900, "token_s": 0.05}), EngineOptions(ctx=1024))
    print(status.pid, flush=True)
    async for event in service.chat("?", SamplingParams(temperature=0)): pass
asyncio.run(main())
"""


def test_no_orphan_when_the_app_is_killed():
    app = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    child = int(app.stdout.readline())
    assert alive(child)
    app.kill()
    app.wait()
    app.stdout.close()
    deadline = time.monotonic() + 2
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)


def test_the_door_loads_no_array_library_and_no_templates():
    heavy = "[m for m in ('numpy', 'jinja2', 'regex', 'mlx') if m in sys.modules]"
    code = f"import sys, localinfer.engine.service; print({heavy})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_engine_process_loads_nothing_that_plain_text_does_not_need():
    """Each of these is 10 to 60 ms of a cold first token."""
    heavy = {"asyncio", "dataclasses", "psutil", "jinja2", "tempfile", "importlib.metadata"}
    modules = ("engine.worker", "engine.opening", "backends.cpu.backend")
    code = f"import sys, {', '.join(f'localinfer.{m}' for m in modules)}; print(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
