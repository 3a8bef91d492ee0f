"""Saved KV caches: reopened, a conversation goes on without prefilling, to the bit; what differs is refused."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from localinfer import paths
from localinfer.backends.cpu.lib import library_path
from localinfer.engine import snapshots, worker
from localinfer.engine.events import Notice, TurnDone
from localinfer.engine.opening import open_engine
from localinfer.engine.params import ChatMessage, EngineOptions, SamplingParams
from localinfer.engine.service import EngineService
from localinfer.formats.kv_file import UNFINISHED
from localinfer.saved_kv import delete_saved_kv

TINY = Path(__file__).parents[1] / "golden" / "tiny"
GREEDY = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
OPTIONS = EngineOptions(ctx=1024, chunk=32, backend="cpu", template="chatml", snapshot_bytes=10**9)
ASKED = [ChatMessage("system", "Be brief. " * 30), ChatMessage("user", "Who was that?")]
THEN = ChatMessage("user", "And then?")

pytestmark = pytest.mark.skipif(library_path() is None, reason="the C kernels are not built")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALINFER_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(TINY.parents[2]))  # of the child process
    monkeypatch.setattr(snapshots, "WORTHWHILE_S", 0.0)  # tiny models prefill in no time
    monkeypatch.setattr(snapshots, "RESTORE_BYTES_S", 1e15)


@contextmanager
def loaded(name, options=OPTIONS):
    with open_engine(TINY / f"{name}.gguf", options) as engine:
        yield engine


def ask(engine, messages, key="talk"):
    events = list(engine.chat(messages, GREEDY, conversation=key))
    return events[-1], [e.text for e in events if isinstance(e, Notice)]


def saved_conversation(name, options=OPTIONS):
    with loaded(name, options) as engine:
        done, _ = ask(engine, ASKED)
        assert engine.save() and not engine.save()  # once is enough
    return [*ASKED, ChatMessage("assistant", done.text), THEN]


@pytest.mark.parametrize("name", ["llama", "gemma3", "falcon-h1"])
@pytest.mark.parametrize("kv", ["f16", "q8_0"])
def test_reopened_it_goes_on_as_if_never_closed(name, kv):
    options = replace(OPTIONS, kv=kv)
    with loaded(name, options) as engine:
        ids = engine.tokenizer.encode("Once upon a time there was a small thing. " * 8)
        *_, done = engine.generate(ids, GREEDY)
        engine._unsaved = "talk"
        assert engine.save()
        longer = [*ids, *done.tokens, 5, 6, 7]
    with loaded(name, options) as engine:
        assert list(engine._reopen("talk", longer, 0)) == []
        *_, resumed = engine.generate(longer, GREEDY)
        assert resumed.stats.cached_tokens == len(ids) + len(done.tokens) - 1
        engine.conversation.clear()
        *_, fresh = engine.generate(longer, GREEDY)
        assert fresh.stats.cached_tokens == 0 and fresh.tokens == resumed.tokens


def test_a_chat_that_is_opened_again_reads_its_last_words_only():
    messages = saved_conversation("llama")
    with loaded("llama") as engine:
        again, notices = ask(engine, messages)
    assert notices == [] and again.stats.cached_tokens > 0.7 * again.stats.prompt_tokens


@pytest.mark.parametrize(
    "options,what",
    [({"ctx": 2048}, "context"), ({"kv": "q8_0"}, "KV types"), ({"kv": "f16/q8_0"}, "KV types")],
)
def test_what_was_saved_with_other_options_is_refused(options, what):
    messages = saved_conversation("llama")
    with loaded("llama", replace(OPTIONS, **options)) as engine:
        done, notices = ask(engine, messages)
        assert len(notices) == 1 and f"saved with another {what}" in notices[0]
        assert done.stats.cached_tokens == 0
        _, notices = ask(engine, [*messages, ChatMessage("assistant", "x"), THEN])
        assert notices == []  # said once


def test_another_model_file_has_files_of_its_own():
    """And one that is put in the place of the other is refused."""
    messages = saved_conversation("llama")
    with loaded("gemma3") as engine:
        (found,) = paths.kv_dir().iterdir()
        assert engine.snapshots.path("talk") != found
        os.rename(found, engine.snapshots.path("talk"))
        done, notices = ask(engine, messages)
    assert "saved with another model file" in notices[0] and done.stats.cached_tokens == 0


def test_a_damaged_file_is_refused_and_the_prompt_read():
    messages = saved_conversation("llama")
    (path,) = paths.kv_dir().iterdir()
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    path.write_bytes(data)
    with loaded("llama") as engine:
        done, notices = ask(engine, messages)
        assert "damaged" in notices[0] and done.stats.cached_tokens == 0
        engine.conversation.clear()
        assert ask(engine, messages, "")[0].tokens == done.tokens


def test_the_file_used_longest_ago_goes_first():
    with loaded("llama") as engine:
        for i, key in enumerate(("a", "b", "c")):
            ask(engine, ASKED, key)
            assert engine.save()
            os.utime(engine.snapshots.path(key), (i, i))
        size = engine.snapshots.path("a").stat().st_size
        ask(engine, ASKED, "a")  # used again
        os.utime(engine.snapshots.path("a"), (9, 9))
        engine.snapshots._limit = int(3.5 * size)
        ask(engine, ASKED, "d")
        assert engine.save()
        assert sorted(p.name[0] for p in paths.kv_dir().iterdir()) == ["a", "c", "d"]


def test_what_died_in_writing_is_swept_away():
    folder = paths.kv_dir()
    folder.mkdir(parents=True)
    old, new = folder / f"x{UNFINISHED}", folder / f"y{UNFINISHED}"
    old.write_bytes(b"1")
    new.write_bytes(b"1")
    long_ago = time.time() - 10_000
    os.utime(old, (long_ago, long_ago))
    saved_conversation("llama")
    assert new.exists() and not old.exists()


def test_a_full_disk_fails_no_turn(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshots, "write_kv_file", full)
    with loaded("llama") as engine:
        ask(engine, ASKED)
        assert not engine.save()


def test_deleting_a_conversation_deletes_its_files():
    saved_conversation("llama")
    delete_saved_kv(paths.kv_dir(), "tal")
    assert len(list(paths.kv_dir().iterdir())) == 1
    delete_saved_kv(paths.kv_dir(), "talk")
    assert not list(paths.kv_dir().iterdir())


def test_nothing_is_written_unless_asked():
    with loaded("llama", replace(OPTIONS, snapshot_bytes=0)) as engine:
        ask(engine, ASKED)
        assert not engine.save() and not paths.kv_dir().exists()


def open_eager(path, options, progress):
    """An engine in a child process that saves and restores however little that gains."""
    snapshots.WORTHWHILE_S, snapshots.RESTORE_BYTES_S = 0.0, 1e15
    return open_engine(path, options, progress)


def test_through_the_service_a_cache_is_saved_when_the_model_is_closed():
    async def session(messages):
        service = EngineService("tests.engine.test_snapshots:open_eager")
        try:
            await service.open(TINY / "llama.gguf", OPTIONS)
            events = [e async for e in service.chat(messages, GREEDY, conversation="talk")]
            assert isinstance(events[-1], TurnDone)
            return events[-1]
        finally:
            await service.close()

    done = asyncio.run(session(ASKED))
    again = asyncio.run(session([*ASKED, ChatMessage("assistant", done.text), THEN]))
    assert again.stats.cached_tokens > 0.7 * again.stats.prompt_tokens


def test_a_cache_is_saved_when_nothing_else_is_to_do(monkeypatch):
    """And a request that comes meanwhile is not kept waiting."""
    asked = []

    class Engine:
        def save(self, go_on):
            asked.append(go_on())
            served._requests.put(("stop", 1))
            asked.append(go_on())

    class Stop(Exception):
        pass

    def stop(request_id):
        raise Stop

    monkeypatch.setattr(worker, "SAVE_AFTER_S", 0.01)
    served = worker.Worker(None, None)
    served._engine, served._do_stop = Engine(), stop
    with pytest.raises(Stop):
        served._serve()
    assert asked == [True, False]
