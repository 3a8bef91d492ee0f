"""Real plans for the screens: published model sizes against a fixed machine, whatever machine the tests run on."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

from localinfer.engine.params import EngineOptions
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import parse_kv_types
from localinfer.planner.budget import MemoryBudget
from localinfer.planner.facts import ModelFacts
from localinfer.planner.plan import Ask, Plan, make_plan
from localinfer.units import GIB
from tests.planner.sparse_headers import write_header

MACHINE = MemoryBudget(
    "a machine with 24 GiB", "cpu", 24 * GIB, 22 * GIB, 2 * GIB, "made up for tests", free_bytes=20 * GIB,
    bandwidth_bytes_s=50e9, flops=500e9,
)  # fmt: skip


@lru_cache(maxsize=8)
def facts(name: str) -> ModelFacts:
    with tempfile.TemporaryDirectory() as folder, GGUFFile.open(write_header(Path(folder), name)) as file:
        return ModelFacts.from_gguf(file)


def plan(name: str, options: EngineOptions | None = None) -> Plan:
    """The planner's own plan of a published model on MACHINE."""
    options = options or EngineOptions()
    k, v = parse_kv_types(options.kv)
    return make_plan(
        facts(name), MACHINE, Ask(ctx=options.ctx or 4096, kv_k=k, kv_v=v, weight_budget=options.weight_budget)
    )


def small(path: str, options: EngineOptions | None = None) -> Plan:
    return plan("qwen3-0.6b-q8_0", options)


def large(path: str, options: EngineOptions | None = None) -> Plan:
    """Fits into 20 GiB at a short context only."""
    return plan("qwen3-30b-a3b-q4_k", options)
