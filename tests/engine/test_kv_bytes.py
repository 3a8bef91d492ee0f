"""What a cache allocates is what the planner counts, to the byte, for every context and pair of types.

LOCALINFER_TEST_LONG=1: contexts of 8k and 32k and all nine pairs of types too.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from localinfer.backends.cpu.lib import library_path
from localinfer.engine.opening import open_engine
from localinfer.engine.params import EngineOptions

TINY = Path(__file__).parents[1] / "golden" / "tiny"
REAL = ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf")
LONG = bool(os.environ.get("LOCALINFER_TEST_LONG"))
CONTEXTS = (2048, 8192, 32768) if LONG else (2048,)
PAIRS = [f"{k}/{v}" for k, v in itertools.product(("f16", "q8_0", "q4_0"), repeat=2)][
    :: 1 if LONG else 4
]  # else those of one type

pytestmark = pytest.mark.skipif(library_path() is None, reason="the C kernels are not built")


def check(path: Path, ctx: int, kv: str) -> int:
    with open_engine(path, EngineOptions(ctx=ctx, kv=kv, backend="cpu")) as engine:
        cache, plan = engine.conversation.kv, engine.plan
        assert plan is not None
        assert len(cache._memory) == cache.n_bytes == plan.parts["kv"] + plan.checkpoint_bytes
        return cache.n_bytes


@pytest.mark.parametrize("name", ["llama", "gemma3", "falcon-h1"])
@pytest.mark.parametrize("kv", ["f16", "q8_0/q4_0"])
def test_tiny_models(name, kv):
    assert check(TINY / f"{name}.gguf", 1024, kv) > 0


@pytest.mark.model
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("ctx", CONTEXTS)
def test_real_models(name, ctx, capsys):
    folder = os.environ.get("LOCALINFER_TEST_MODELS")
    path = Path(folder or "") / name
    if not folder or not path.is_file():
        pytest.skip(f"LOCALINFER_TEST_MODELS has no {name}")
    sizes = {kv: check(path, ctx, kv) for kv in PAIRS}
    assert sizes["f16/f16"] > sizes["q8_0/q8_0"] > sizes["q4_0/q4_0"]
    with capsys.disabled():
        print(f"\n{name} {ctx}: {sizes}")
