"""Real models, really run: what the plan said against what the process took, through the engine's own ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localinfer.cli.main import main
from localinfer.engine.opening import open_engine
from localinfer.engine.params import EngineOptions, SamplingParams
from localinfer.engine.planning import plan_for
from localinfer.errors import BackendError
from localinfer.planner.ledger import read
from localinfer.tui.plan_view import speed_words

TINY = Path(__file__).parents[1] / "golden" / "tiny" / "llama.gguf"

MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}
RUN = """
import sys
from localinfer.engine.opening import open_engine
from localinfer.engine.params import EngineOptions, SamplingParams
path, ctx, kv = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with open_engine(path, EngineOptions(ctx=ctx, kv=kv, backend="cpu")) as engine:
    ids = [100 + i * 7919 % 30000 for i in range(ctx - 8)]
    for _ in engine.generate(ids, SamplingParams(temperature=0, max_tokens=4)):
        pass
"""

# Contexts of 8k and 32k take half an hour together: LOCALINFER_TEST_LONG=1 asks for them.
CONTEXTS = {"smollm2": (256, 2048), "gemma3": (256, 2048)}
if os.environ.get("LOCALINFER_TEST_LONG"):
    CONTEXTS = {"smollm2": (256, 2048, 8192), "gemma3": (256, 2048, 8192, 32768)}
LONG = pytest.mark.slow
CASES = [(model, ctx, kv) for model, contexts in CONTEXTS.items() for ctx in contexts for kv in ("f16", "q8_0", "q4_0")]


@pytest.mark.model
@pytest.mark.parametrize(
    ("model", "ctx", "kv"), [pytest.param(*c, marks=() if c[1] == 256 and c[2] == "f16" else LONG) for c in CASES]
)
def test_the_peak_is_what_the_plan_says(model, ctx, kv, capsys):
    folder = os.environ.get("LOCALINFER_TEST_MODELS")
    path = Path(folder or "") / MODELS[model]
    if not folder or not path.exists():
        pytest.skip(f"LOCALINFER_TEST_MODELS has no {MODELS[model]}")
    command = [sys.executable, "-c", RUN, str(path), str(ctx), kv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    (entry,) = read()
    with capsys.disabled():
        print(f"\n{entry.model} {ctx} {kv}: predicted {entry.predicted_peak}, measured {entry.measured_peak} bytes")
    assert entry.measured.kv == entry.predicted["kv"]
    assert entry.measured.weights == entry.predicted["weights"]
    assert entry.measured.scratch <= entry.predicted["scratch"] + 2**20  # a backend may fuse, and then needs less
    assert entry.within_tolerance, entry


def test_an_answer_tells_fit_how_fast_the_next_one_will_be(capsys):
    def speed() -> dict:
        assert main(["fit", str(TINY), "--ctx", "256", "--backend", "cpu", "--json"]) == 0
        return json.loads(capsys.readouterr().out)["speed"]

    assert speed()["decode_tok_s_expected"] is None
    params = SamplingParams(temperature=0, max_tokens=40, draft="off", ignore_eos=True)
    try:
        engine = open_engine(TINY, EngineOptions(ctx=256, backend="cpu"))
    except BackendError as error:
        pytest.skip(error.message)
    with engine:
        list(engine.generate([5, 6, 7], params))
    (entry,), told = read(), speed()
    assert told["basis"].startswith("as answers here were decoded: ") and "F32 weights" in told["basis"]
    assert told["decode_tok_s_expected"] * told["read_bytes_per_token"] == pytest.approx(entry.measured.decode_bytes_s)
    plan = plan_for(str(TINY), EngineOptions(ctx=256, backend="cpu"))
    assert speed_words(plan) == f"Speed: about {told['decode_tok_s_expected']:.1f} tokens/s, {told['basis']}."
