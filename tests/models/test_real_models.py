"""Two real models against llama.cpp's logits and greedy texts on exact weights (tests/golden/oracle/make.py).

Bars: mean KL divergence 1e-4 (llama.cpp's own quantized path has 3.6e-3 and 2.2e-2), greedy text equal up to the first
choice whose margin is below 0.5, perplexity within 0.1 %.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from localinfer.backends.cpu.backend import open_cpu
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig
from localinfer.models.tokenizer import Tokenizer

ORACLE = Path(__file__).parents[1] / "golden" / "oracle"
FILES = {
    "smollm2-135m-q4_1": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma-3-270m-q4_k_m": "gemma-3-270m-q4_k_m.gguf",
}

pytestmark = pytest.mark.model


@dataclass
class Real:
    oracle: dict
    top: dict[str, np.ndarray]
    file: GGUFFile
    config: ModelConfig
    model: object

    def new_kv(self, kv_type: str = "f16"):
        return self.model.new_kv(KVSpec.from_config(self.config, 2048, kv_type, kv_type, 1024))  # type: ignore[attr-defined]

    def logits(self, ids: list[int], kv, chunk: int, rows: int = 1) -> np.ndarray:
        """Logits of the last `rows` tokens of the last chunk."""
        for i in range(0, len(ids), chunk):
            part = ids[i : i + chunk]
            out = self.model.forward(part, kv, min(rows, len(part)))  # type: ignore[attr-defined]
        return out


@pytest.fixture(scope="module", params=FILES)
def real(request: pytest.FixtureRequest) -> Iterator[Real]:
    path = Path(os.environ.get("LOCALINFER_TEST_MODELS", "")) / FILES[request.param]
    if not os.environ.get("LOCALINFER_TEST_MODELS") or not path.is_file():
        pytest.skip(f"LOCALINFER_TEST_MODELS names no folder with {path.name} (`make test-models` fetches it)")
    oracle = json.loads((ORACLE / f"{request.param}.json").read_text())
    top = dict(np.load(ORACLE / f"{request.param}-top.npz"))
    with GGUFFile.open(path) as f:
        config = ModelConfig.from_gguf(f)
        model = open_cpu(2).load(f, config, lambda fraction, text: None)
        yield Real(oracle, top, f, config, model)
        model.close()


def test_token_ids(real: Real) -> None:
    tokenizer = Tokenizer.from_gguf(real.file)
    for case in real.oracle["cases"]:
        assert tokenizer.encode(case["prompt"]) == case["tokens"]


def test_logits_in_one_chunk_and_in_chunks_of_64(real: Real) -> None:
    divergences = []
    for i, case in enumerate(real.oracle["cases"]):
        whole = real.logits(case["tokens"], real.new_kv(), 1024)
        parts = real.logits(case["tokens"], real.new_kv(), 64)
        assert np.array_equal(whole, parts), "bits must not depend on the chunk"
        divergences.append(kl_on_top(real, i, whole[0]))
    assert np.mean(divergences) < 1e-4, divergences


def test_greedy_text_up_to_the_first_close_choice(real: Real) -> None:
    for case in real.oracle["cases"]:
        kv = real.new_kv()
        logits = real.logits(case["tokens"], kv, 256)
        for wanted, margin in zip(case["greedy"], case["margins"], strict=True):
            if margin < 0.5:
                break
            assert int(logits[0].argmax()) == wanted
            logits = real.logits([wanted], kv, 1)


def test_perplexity_of_the_licence_text(real: Real) -> None:
    wanted = real.oracle["perplexity"]
    text = (ORACLE / "apache-2.0.txt").read_text()
    ids = wanted["tokens"]
    assert Tokenizer.from_gguf(real.file).encode(text)[: len(ids)] == ids
    kv, nll = real.new_kv(), []
    for i in range(0, len(ids), 256):
        part = ids[i : i + 256]
        logits = real.model.forward(part, kv, len(part)).astype(np.float64)  # type: ignore[attr-defined]
        following = ids[i + 1 : i + 257]
        nll.append(-log_softmax(logits[: len(following)])[np.arange(len(following)), following])
    assert np.exp(np.concatenate(nll).mean()) == pytest.approx(wanted["ppl"], rel=1e-3)


def kl_on_top(real: Real, case: int, logits: np.ndarray) -> float:
    """KL divergence with all but the oracle's 1024 likeliest tokens taken as one."""
    ids, values, rest = (real.top[k][case].astype(np.float64) for k in ("ids", "logits", "rest"))
    ids = ids.astype(np.int64)
    others = np.delete(logits.astype(np.float64), ids)
    own_rest = others.max() + np.log(np.exp(others - others.max()).sum())
    p = log_softmax(np.append(values, rest))
    q = log_softmax(np.append(logits[ids].astype(np.float64), own_rest))
    return float((np.exp(p) * (p - q)).sum())


def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
