"""A long answer: memory stays flat and what the cache holds is what a fresh run computes.

LOCALINFER_TEST_LONG=1 makes it 20,000 tokens at a context of 32k; 1,500 tokens otherwise.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from localinfer.backends.cpu.lib import library_path
from localinfer.device import process_memory
from localinfer.engine.events import TextDelta
from localinfer.engine.opening import open_engine
from localinfer.engine.params import EngineOptions, SamplingParams

TINY = Path(__file__).parents[1] / "golden" / "tiny"
N_TOKENS = 20_000 if os.environ.get("LOCALINFER_TEST_LONG") else 1_500
MOST_GROWTH = 8 * 2**20  # bytes beside the cache's own pages: lists of tokens, the drafter's index

pytestmark = pytest.mark.skipif(library_path() is None, reason="the C kernels are not built")


@pytest.mark.parametrize("name", ["llama", "gemma3", "falcon-h1"])
def test_memory_is_flat_and_the_end_is_that_of_a_fresh_run(name):
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=N_TOKENS, ignore_eos=True)
    with open_engine(TINY / f"{name}.gguf", EngineOptions(ctx=32_768, chunk=64, backend="cpu")) as engine:
        ids, sizes, made = [1, 2, 3, 4, 5], [], []
        for event in engine.generate(ids, params):
            if isinstance(event, TextDelta):
                made.extend(event.tokens)
                if len(sizes) < len(made) // 500:
                    kv = engine.conversation.kv
                    sizes.append(process_memory().anonymous - kv.touched_bytes)
                    assert kv.n_bytes == engine.kv_spec.n_bytes + engine.kv_spec.checkpoint_bytes
        tokens = list(event.tokens)
        assert len(tokens) == N_TOKENS
        assert max(sizes) - sizes[0] < MOST_GROWTH, sizes
        last = engine.conversation.extend([tokens[-1]], rows=1)
        fresh = engine.logits([*ids, *tokens], rows=1)
        assert np.array_equal(last, fresh)
