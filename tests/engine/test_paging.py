"""Paging as a chat sees it: forecast, faults, limits that change. With LOCALINFER_CGROUP_TESTS=1 and root also models
that are larger than their memory limit, in a control group of their own (minutes, and 4 GB of disk)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import localinfer
from benchmarks.make_large_model import DENSE, MOE, Shape, write_model
from benchmarks.paging_in_cgroup import Limited, forecast, forget_file, group, run_limited, unavailable, warm
from localinfer.backends.base import PagingState
from localinfer.backends.cpu.paging import PagedWeights
from localinfer.engine import engine as engine_module
from localinfer.engine import planning
from localinfer.engine.events import Notice, TextDelta, TurnDone, TurnFailed
from localinfer.engine.paging_watch import PagingWatch
from localinfer.engine.params import EngineOptions, SamplingParams
from localinfer.engine.prefill import ChunkSizer
from localinfer.engine.service import EngineService
from localinfer.errors import BackendError, TooSlow
from tests.fakes import failing_disk

TINY = Path(__file__).parents[1] / "golden" / "tiny"
SMALL = Shape(n_embd=64, n_ff=256, n_heads=2, n_kv_heads=1, d_head=32)
EXPERTS = Shape(n_embd=64, n_ff=64, n_heads=2, n_kv_heads=1, d_head=32, n_experts=16, n_used=2)
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    write_model(path, SMALL, 4_000_000, vocabulary=512)
    return path


async def ask(service: EngineService, text: str) -> list:
    return [event async for event in service.chat(text, GREEDY)]


def text_of(path: Path, **options) -> tuple[str, TurnDone]:
    with localinfer.load(path, ctx=256, **options) as engine:
        events = list(engine.generate(list(range(3, 40)), GREEDY))
    return "".join(e.text for e in events if isinstance(e, TextDelta)), events[-1]


def test_the_same_text_and_what_it_read(small: Path) -> None:
    plain, done = text_of(small)
    paged, done_paged = text_of(small, weight_budget=1_000_000)
    assert paged == plain != "" and done_paged.tokens == done.tokens
    assert done.stats.paging is None and done_paged.stats.paging.read_bytes > 24 * 1_000_000


def test_prompts_go_through_in_whole_chunks() -> None:
    sizer = ChunkSizer(512, whole=True)
    sizer.measured(512, 5.0)
    assert sizer.next(2000) == 512 and ChunkSizer(512).next(2000) == 16


def test_a_slow_forecast_is_refused_where_somebody_can_be_asked(small: Path, monkeypatch) -> None:
    monkeypatch.setattr("localinfer.storage.storage_speed", lambda path: SimpleNamespace(bytes_s=1e6, when=""))
    options = {"ctx": 256, "weight_budget": 1_000_000}
    with pytest.raises(TooSlow, match=r"pages: .* per token over 0\.001 GB/s, at most 0\.\d+ tok/s"):
        localinfer.load(small, **options, least_tok_s=1.0)
    with localinfer.load(small, **options) as engine:
        assert any("at most 0." in notice for notice in engine.notices)
    with localinfer.load(small, ctx=256, least_tok_s=1.0) as engine:  # not paged: nobody is asked
        assert engine.plan.paging is None


def test_what_does_not_fit_here_is_paged(small: Path, monkeypatch) -> None:
    with localinfer.load(small, ctx=256) as engine:
        budget, plan = engine.plan.budget, engine.plan
    less = plan.total - 2 * 2**20
    limited = replace(budget, memory_bytes=less, usable_bytes=less, reserve_bytes=0)
    monkeypatch.setattr(planning, "this_budget", lambda backend="auto": limited)
    with localinfer.load(small, ctx=256) as engine:
        assert engine.plan.verdict == "pages" and engine.plan.total <= less


def test_a_limit_that_is_lowered_while_running(small: Path, monkeypatch) -> None:
    ids = list(range(3, 40))
    with localinfer.load(small, ctx=256) as engine:
        expected = next(e for e in engine.generate(ids, GREEDY) if isinstance(e, TurnDone)).tokens
        less = engine.plan.total - 2 * 2**20
        limited = replace(engine.plan.budget, memory_bytes=less, usable_bytes=less, reserve_bytes=0)
        monkeypatch.setattr(planning, "this_budget", lambda backend="auto": limited)
        events = list(engine.generate(ids, GREEDY))
        assert any("memory limit was lowered" in e.text for e in events if isinstance(e, Notice))
        assert events[-1].tokens == expected and events[-1].stats.paging.read_bytes > 0
        assert not [e for e in engine.generate(ids, GREEDY) if isinstance(e, Notice) and "lowered" in e.text]


@pytest.mark.parametrize("at_first", [None, 2_500_000])
def test_a_limit_that_is_lowered_in_the_middle_of_an_answer(small: Path, monkeypatch, at_first: int | None) -> None:
    """Between two tokens: whole weights become paged ones, and paged ones fewer."""
    ids = list(range(3, 40))
    monkeypatch.setattr(engine_module, "LIMIT_EACH_S", 0.0)
    with localinfer.load(small, ctx=256, weight_budget=at_first) as engine:
        expected = next(e for e in engine.generate(ids, GREEDY) if isinstance(e, TurnDone)).tokens
        engine.conversation.clear()
        less = engine.plan.total - 2**20
        limited = replace(engine.plan.budget, memory_bytes=less, usable_bytes=less, reserve_bytes=0)
        events = []
        for event in engine.generate(ids, GREEDY):
            events.append(event)
            if sum(isinstance(e, TextDelta) for e in events) == 3:
                monkeypatch.setattr(planning, "this_budget", lambda backend="auto": limited)
        told = [e for e in events if isinstance(e, Notice)]
        assert len(told) == 1 and "memory limit was lowered" in told[0].text
        assert told[0].plan.paging.kept_bytes < less and engine.plan.total <= less
        at = events.index(told[0])
        assert any(isinstance(e, TextDelta) for e in events[:at]) and isinstance(events[at + 1], TextDelta)
        assert events[-1].tokens == expected and events[-1].stats.paging.read_bytes > 0
        assert engine.kv_spec.n_bytes == engine.conversation.kv.n_bytes


def test_a_failed_read_takes_a_recurrent_state_and_no_more(tmp_path: Path, monkeypatch) -> None:
    """The cache starts anew, and the conversation goes on from its text."""
    path, ids = Path(shutil.copy(TINY / "falcon-h1.gguf", tmp_path)), list(range(3, 40))
    with localinfer.load(path, ctx=256, weight_budget=100_000) as engine:
        expected = [*engine.generate(ids, GREEDY)][-1].tokens
        engine.conversation.clear()
        right, fails_at = PagedWeights.check, iter([False] * 4 + [True] + [False] * 1000)

        def check(self: PagedWeights) -> None:
            if next(fails_at):
                raise BackendError("tensor x cannot be read: Input/output error")
            right(self)

        monkeypatch.setattr(PagedWeights, "check", check)
        with pytest.raises(BackendError, match="Input/output error"):
            list(engine.generate(ids, GREEDY))
        assert engine.conversation.tokens == [] and engine.conversation.kv.length == 0
        assert [*engine.generate(ids, GREEDY)][-1].tokens == expected


def test_a_disk_slower_than_forecast_is_said_once() -> None:
    streams = SimpleNamespace(streamed_bytes=1)
    watch = PagingWatch(SimpleNamespace(budget=SimpleNamespace(link_bytes_s=2e9), paging=streams))  # type: ignore[arg-type]
    assert watch.notice(PagingState(read_bytes=2 * 10**9, read_s=1.0)) == ""
    assert "0.5 GB/s instead of 2" in watch.notice(PagingState(read_bytes=10**9, read_s=2.0))
    assert watch.notice(PagingState(read_bytes=10**9, read_s=2.0)) == ""
    assert "0.1 GB/s" in watch.notice(PagingState(read_bytes=10**9, read_s=10.0))
    assert watch.notice(PagingState(read_bytes=10**6, read_s=0.1)) == ""


@pytest.mark.skipif(bool(failing_disk.unavailable()), reason=failing_disk.unavailable() or "a disk can fail here")
@pytest.mark.parametrize("experts", [False, True])
async def test_a_disk_that_fails_is_one_line_and_the_chat_goes_on(tmp_path: Path, monkeypatch, experts: bool) -> None:
    """In the child, from the failed read to the event: no hang, the same child, the conversation and its cache kept."""
    path, flag = tmp_path / "model.gguf", tmp_path / "fails"
    write_model(path, EXPERTS if experts else SMALL, 4_000_000, vocabulary=512)
    for name, value in failing_disk.build(tmp_path).items():
        monkeypatch.setenv(name, value)
    service = EngineService()
    turn = partial(ask, service)
    try:
        status = await service.open(path, EngineOptions(ctx=512, backend="cpu", weight_budget=1_500_000))
        first = (await turn("w1 w2 w3"))[-1]
        assert isinstance(first, TurnDone) and first.stats.paging.read_bytes > 0
        question = "w1 w2 w3" + first.text + "w4 w5"
        flag.touch()
        failed = (await turn(question))[-1]
        assert isinstance(failed, TurnFailed) and failed.exit_code == 6
        assert re.fullmatch(
            r"model\.gguf: tensor \S+( expert \d+)? cannot be read: Input/output error", failed.message
        ), failed
        assert failed.hint == "is the disk still there?"
        flag.unlink()
        again = (await turn(question))[-1]
        assert isinstance(again, TurnDone) and again.stats.cached_tokens > 10
        assert (await service.status()).pid == status.pid
        await service.close()
        monkeypatch.delenv("LD_PRELOAD")
        service = EngineService()
        await service.open(path, EngineOptions(ctx=512, backend="cpu"))
        assert (await ask(service, question))[-1].tokens == again.tokens
    finally:
        await service.close()


@pytest.mark.skipif(bool(failing_disk.unavailable()), reason=failing_disk.unavailable() or "a disk can fail here")
async def test_a_disk_that_fails_while_loading_is_one_line(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, SMALL, 4_000_000, vocabulary=512)
    for name, value in failing_disk.build(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "fails").touch()
    service = EngineService()
    try:
        with pytest.raises(BackendError, match="cannot be read: Input/output error"):
            await service.open(path, EngineOptions(ctx=512, backend="cpu", weight_budget=1_500_000))
    finally:
        await service.close()


async def test_a_file_cut_while_mapped_ends_the_child_not_the_chat(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, SMALL, 4_000_000, vocabulary=512)
    whole = path.read_bytes()
    service = EngineService()
    try:
        await service.open(path, EngineOptions(ctx=4096, backend="cpu"))
        endless = SamplingParams(temperature=0, max_tokens=4000, ignore_eos=True, draft="off")
        events = []
        async for event in service.chat("w1 w2 w3", endless):
            events.append(event)
            if sum(isinstance(e, TextDelta) for e in events) == 1:
                os.truncate(path, 4096)
        assert isinstance(events[-1], TurnFailed) and "SIGBUS" in events[-1].message
        assert "changed, cut or removed" in events[-1].hint
        path.write_bytes(whole)
        await service.open(path, EngineOptions(ctx=256, backend="cpu"))  # the chat goes on with a new child
        again = [e async for e in service.chat("w1 w2 w3", GREEDY)]
        assert isinstance(again[-1], TurnDone)
    finally:
        await service.close()


def test_a_file_that_changed_between_turns_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = Path(shutil.copy(TINY / "llama.gguf", tmp_path))
    with localinfer.load(path, ctx=64) as engine:
        os.truncate(path, path.stat().st_size - 4096)
        with pytest.raises(localinfer.errors.BackendError, match="was cut while in use"):
            list(engine.generate([1, 2, 3], GREEDY))


# -- larger than memory, in earnest --

OPTIONS = ["--ctx", "1024", "--temp", "0", "--seed", "1", "--draft", "off"]
CGROUP = os.environ.get("LOCALINFER_CGROUP_TESTS", "") not in ("", "0")
in_cgroup = pytest.mark.skipif(
    not CGROUP or bool(unavailable()), reason=unavailable() or "on request: LOCALINFER_CGROUP_TESTS=1"
)


def paged_and_plain(path: Path, shape: Shape, gigabytes: float, limit: int, n: int) -> tuple[float, Limited, Limited]:
    """Forecast in tok/s, a paged run and a plainly mapped one of the same text under the same limit."""
    write_model(path, shape, int(gigabytes * 1e9))
    warm(path)
    plan = forecast(path, limit, 1024)
    assert plan["verdict"] == "pages"
    paged = run_limited(path, limit, [*OPTIONS, "-n", str(n)], timeout_s=600)
    plain = run_limited(path, limit, [*OPTIONS, "-n", "8", "--weight-budget", "1TB", "--force"], timeout_s=600)
    for run in (paged, plain):
        assert run.code == 0 and run.killed == 0, run.notes
    assert paged.peak_bytes <= paged.answer["memory"]["plan_bytes"] <= limit
    assert paged.answer["tokens"][:8] == plain.answer["tokens"]
    return plan["speed"]["decode_tok_s_bound"], paged, plain


LOWERED = """
import json, sys, localinfer
from pathlib import Path
from localinfer.engine.events import Notice, TextDelta
from localinfer.engine.params import SamplingParams

params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, draft="off")
with localinfer.load(sys.argv[1], ctx=1024) as engine:
    for event in engine.generate(list(range(300, 340)), params):
        if isinstance(event, (TextDelta, Notice)):
            print(type(event).__name__, getattr(event, "text", ""), flush=True)
    print("DONE", json.dumps([event.tokens, engine.plan.total, event.stats.paging is not None]), flush=True)
"""


def lines_within(folder: Path, path: Path, lower_to: int) -> list[str]:
    """What LOWERED prints in a control group whose limit is lowered after the fifth piece of text (0: it is not)."""
    command = ["/bin/sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "sh", sys.executable, "-c", LOWERED]
    with subprocess.Popen([*command, str(path)], stdout=subprocess.PIPE, text=True) as child:
        lines: list[str] = []
        for line in child.stdout or ():
            lines.append(line.rstrip("\n"))
            if lower_to and len(lines) == 5:
                (folder / "memory.limit_in_bytes").write_text(str(lower_to))
    assert child.returncode == 0
    return lines


@in_cgroup
def test_a_limit_lowered_in_the_middle_of_an_answer_in_a_control_group(tmp_path: Path) -> None:
    path, less = tmp_path / "dense.gguf", 450 * 10**6
    write_model(path, DENSE, 8 * 10**8)
    warm(path)
    with group(2 * 10**9) as folder:
        before = lines_within(folder, path, 0)
    forget_file(path)
    with group(2 * 10**9) as folder:
        after = lines_within(folder, path, less)
        killed = dict(line.split() for line in (folder / "memory.oom_control").read_text().splitlines())["oom_kill"]
    at = next(i for i, line in enumerate(after) if line.startswith("Notice"))
    assert re.search(r"memory limit was lowered to .* of the weights stay in memory", after[at]) and at >= 5
    assert killed == "0" and any(line.startswith("TextDelta") for line in after[at + 1 :])
    tokens, total, paged = json.loads(after[-1].removeprefix("DONE "))
    assert tokens == json.loads(before[-1].removeprefix("DONE "))[0] and paged and total <= less


@in_cgroup
def test_a_dense_model_under_a_third_of_its_size(tmp_path: Path) -> None:
    bound, paged, plain = paged_and_plain(tmp_path / "dense.gguf", DENSE, 1.5, 500 * 10**6, 24)
    assert paged.answer["decode_tok_s"] >= 0.7 * bound
    assert paged.answer["decode_tok_s"] >= 1.5 * plain.answer["decode_tok_s"]


@in_cgroup
def test_experts_under_a_third_of_their_size(tmp_path: Path) -> None:
    bound, paged, plain = paged_and_plain(tmp_path / "moe.gguf", MOE, 2.0, 700 * 10**6, 64)
    paging = paged.answer["paging"]
    assert paging["expert_hits"] > 0.5 * paging["expert_lookups"]
    assert paged.answer["decode_tok_s"] >= max(0.7 * bound, 2 * plain.answer["decode_tok_s"])
