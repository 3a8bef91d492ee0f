"""What was measured is kept, bounded, survives damage, and teaches the runtime row."""

from __future__ import annotations

import json
import multiprocessing

import pytest

from localinfer.planner import ledger
from localinfer.planner.budget import MemoryBudget
from localinfer.planner.ledger import (
    Measured,
    Used,
    decode_speeds,
    kv_bytes_used,
    learned_runtime_bytes,
    read,
    record,
    unused_bytes,
)
from localinfer.planner.plan import Ask, make_plan
from localinfer.units import GIB, MIB

MACHINE = "test machine"
ALL = Used(context=4096, chunk=512, drafts=1)


@pytest.fixture
def plan(sparse_models):
    budget = MemoryBudget("this", "cpu", 64 * GIB, 64 * GIB, 0, "test")
    return make_plan(sparse_models.facts("qwen3-0.6b-q8_0"), budget, Ask(ctx=4096), runtime_bytes=100 * MIB)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "ledger.jsonl"


def measured(plan, beyond: int, used: int = 4096) -> Measured:
    """A peak that is `beyond` bytes more than all rows but the runtime, with `used` tokens in the cache."""
    rows = plan.anonymous_bytes - plan.baseline_bytes - plan.parts["kv"] + kv_bytes_used(plan, used)
    return Measured(weights=plan.model.tensor_bytes, kv=plan.parts["kv"], anonymous_peak=rows + beyond, file_peak=1)


def test_round_trip(plan, path):
    written = record(plan, measured(plan, 120 * MIB), MACHINE, "2026-01-02T03:04:05", ALL, path)
    assert read(path) == [written]
    assert written.predicted["total"] == plan.total
    assert written.error_bytes == 20 * MIB and written.within_tolerance


def test_mapped_weights_are_no_part_of_the_peak(plan, path):
    entry = record(plan, measured(plan, 100 * MIB), MACHINE, "", ALL, path)
    assert entry.predicted_peak == plan.total - plan.model.tensor_bytes
    assert entry.error_bytes == 0


def test_pages_that_were_never_written_are_not_expected(plan, path):
    """Anonymous memory is there once it is touched: a short chat in a long cache measures little."""
    entry = record(plan, measured(plan, 100 * MIB, used=100), MACHINE, "", Used(100, 512, 1), path)
    assert entry.predicted_peak == plan.anonymous_bytes - plan.parts["kv"] + 112 * plan.kv.token_bytes
    assert entry.error_bytes == 0


def test_what_was_not_touched_is_not_expected(sparse_models):
    """A slow machine never reaches the full chunk, and without a guess one row of logits is made at a time."""
    budget = MemoryBudget("this", "cpu", 64 * GIB, 64 * GIB, 0, "test")
    plan = make_plan(sparse_models.facts("qwen3-0.6b-q8_0"), budget, Ask(ctx=4096, draft=15, draft_token_bytes=200))
    assert unused_bytes(plan, ALL) == 0
    assert unused_bytes(plan, Used(4096, 512, 0)) == 15 * 151936 * 4
    half = unused_bytes(plan, Used(4096, 256, 1))
    assert half == (plan.scratch.activations + plan.scratch.prepared) // 2
    assert unused_bytes(plan, Used(2048, 0, 1)) == plan.parts["kv"] // 2 + 2048 * 200


def test_tolerance_is_5_percent_or_40_mib(plan, path):
    near, far = (record(plan, measured(plan, 100 * MIB + n), MACHINE, "", ALL, path) for n in (39 * MIB, 90 * MIB))
    assert near.within_tolerance and not far.within_tolerance


def test_the_runtime_row_is_learned_as_the_median_of_the_newest(plan, path):
    assert learned_runtime_bytes(MACHINE, "cpu", path) is None
    for beyond in (300, 50, 60, 70, 50, 60, 70, 60, 400):
        record(plan, measured(plan, beyond * MIB), MACHINE, "", ALL, path)
    record(plan, measured(plan, 900 * MIB), "another machine", "", ALL, path)
    assert learned_runtime_bytes(MACHINE, "cpu", path) == 60 * MIB


def test_how_fast_answers_were_decoded_is_the_median_of_the_newest_of_each_type(plan, path):
    assert decode_speeds(MACHINE, "cpu", path) == {}
    for speed in (1, 9, 11, 10, 30, 10, 9, 12, 10):
        record(plan, Measured(decode_bytes_s=speed * 10**9), MACHINE, "", ALL, path)
    record(plan, Measured(), MACHINE, "", ALL, path)
    record(plan, Measured(decode_bytes_s=5 * 10**9), "another machine", "", ALL, path)
    assert decode_speeds(MACHINE, "cpu", path) == {"Q8_0": 10e9}
    old = json.loads(path.read_text().splitlines()[0])
    del old["weight_type"], old["measured"]["decode_bytes_s"]  # as versions before wrote it
    path.write_text(json.dumps(old) + "\n")
    assert len(read(path)) == 1 and decode_speeds(MACHINE, "cpu", path) == {}


def test_what_is_learned_stays_within_reason(plan, path):
    record(plan, measured(plan, 50 * GIB), MACHINE, "", ALL, path)
    assert learned_runtime_bytes(MACHINE, "cpu", path) < GIB
    path.unlink()
    record(plan, Measured(anonymous_peak=1), MACHINE, "", ALL, path)
    assert learned_runtime_bytes(MACHINE, "cpu", path) == 0


def test_damaged_lines_are_passed_over(plan, path):
    record(plan, measured(plan, MIB), MACHINE, "first", ALL, path)
    with path.open("ab") as f:
        f.write(b'{"half": \n[]\n{"when":1}\n\xff\xfe\n3\n')
    record(plan, measured(plan, MIB), MACHINE, "second", ALL, path)
    assert [e.when for e in read(path)] == ["first", "second"]


def test_the_file_stays_small(plan, path, monkeypatch):
    monkeypatch.setattr(ledger, "MAX_BYTES", 8000)
    for i in range(40):
        record(plan, measured(plan, MIB), MACHINE, str(i), ALL, path)
    assert path.stat().st_size <= 8000
    assert read(path)[-1].when == "39" and len(read(path)) > 3


def _append_many(path, name):
    for i in range(50):
        ledger._append(path, f'{{"writer":"{name}","i":{i},"pad":"{"x" * 500}"}}')


def test_two_processes_never_mix_their_lines(path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(path, name)) for name in "ab"]
    for w in writers:
        w.start()
    for w in writers:
        w.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 100 and all(line.startswith("{") and line.endswith("}") for line in lines)


def test_no_ledger_is_an_empty_one(path):
    assert read(path) == []
