"""A model that says what a test wants, behind the real Engine: byte tokens, a backend that looks at the whole prefix.

`open_scripted` is an engine opener for the worker process: its path is a JSON object of Script's fields.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from localinfer import errors
from localinfer.backends.base import DeviceInfo, OneTimeline, Progress
from localinfer.engine.engine import Engine
from localinfer.engine.params import EngineOptions
from localinfer.kv.spec import KVSpec
from localinfer.models.config import AttentionConfig, LayerConfig, ModelConfig
from localinfer.models.tokenizer.stream import StreamDecoder

BOS, EOS, N_VOCAB = 256, 257, 258
OPENER = "tests.fakes.scripted:open_scripted"


class ByteTokenizer:
    """A token a byte; 256 begins and 257 ends a text."""

    n_vocab = N_VOCAB
    bos_id, eos_id, eot_id = BOS, EOS, EOS
    eog_ids = frozenset({EOS})
    special_ids = frozenset({BOS, EOS})
    add_bos = True
    add_eos = False
    notices: tuple[str, ...] = ()

    def encode(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        return [BOS] * add_special + list(text.encode("utf-8", "replace"))

    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
        stream = self.stream(skip_special)
        return "".join(map(stream.push, ids)) + stream.flush()

    def piece(self, token: int) -> str:
        return self.token_bytes(token).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else {BOS: b"<s>", EOS: b"</s>"}[token]

    def stream(self, skip_special: bool = False, at_start: bool = False) -> StreamDecoder:
        return StreamDecoder(self.token_bytes, self.special_ids if skip_special else frozenset(), frozenset(), False)


@dataclass
class FakeKV(OneTimeline):
    """Keeps the tokens themselves. `rewinds`: how far back truncate can go (None: anywhere)."""

    spec: KVSpec
    rewinds: int | None = None
    tokens: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:  # type: ignore[override]
        return len(self.tokens)

    @property
    def n_bytes(self) -> int:
        return self.spec.n_bytes

    def truncate(self, length: int) -> int:
        if self.rewinds is not None and self.length - length > self.rewinds:
            length = 0
        del self.tokens[length:]
        return self.length


@dataclass
class FakeModel:
    """`rule` gives the logits (V,) that follow a prefix."""

    rule: Callable[[list[int]], np.ndarray]
    config: ModelConfig
    rewinds: int | None = None
    token_s: float = 0.0  # time a token takes
    call_s: float = 0.0  # and a forward pass beside it
    scratch_bytes: int = 0
    copied_bytes: int = 0
    paging: None = None
    notices: tuple[str, ...] = ()
    calls: list[tuple[int, int]] = field(default_factory=list)  # (T, rows) of every forward

    def new_kv(self, spec: KVSpec) -> FakeKV:
        return FakeKV(spec, self.rewinds)

    def forward(self, ids: Sequence[int], kv: FakeKV, rows: int) -> np.ndarray:
        assert 0 < len(ids) <= kv.spec.chunk and kv.length + len(ids) <= kv.spec.n_ctx
        self.calls.append((len(ids), rows))
        time.sleep(self.call_s + self.token_s * len(ids))
        out = []
        for i, token in enumerate(ids):
            kv.tokens.append(token)
            if i >= len(ids) - rows:
                out.append(self.rule(kv.tokens))
        return np.array(out, np.float32).reshape(rows, self.config.n_vocab)

    def close(self) -> None:
        """Nothing is held."""


class FakeBackend:
    def device_info(self) -> DeviceInfo:
        return DeviceInfo("fake", "a device made of paper", 2**30, 1)

    def close(self) -> None:
        """Nothing is held."""


def config(n_vocab: int = N_VOCAB, n_ctx_train: int = 4096) -> ModelConfig:
    attention = AttentionConfig(n_heads=1, n_kv_heads=1, d_k=32, d_v=32, scale=1.0)
    layer = LayerConfig("full", ("attention",), attention, None, n_ff=1)
    return ModelConfig("fake", "paper model", 1, 32, n_vocab, n_ctx_train, "rms", 1e-5, (layer,))


def says(text: str, after: str = "?") -> Callable[[list[int]], np.ndarray]:
    """After the last `after` in the prefix comes `text`, then the end; anything else on the way is answered alike."""
    answer = [*text.encode(), EOS]

    def rule(prefix: list[int]) -> np.ndarray:
        marker = ord(after)
        start = len(prefix) - prefix[::-1].index(marker) if marker in prefix else len(prefix)
        logits = np.zeros(N_VOCAB, np.float32)
        logits[answer[min(len(prefix) - start, len(answer) - 1)]] = 20.0
        return logits

    return rule


def noise(n_vocab: int = N_VOCAB, sharpness: float = 2.0) -> Callable[[list[int]], np.ndarray]:
    """Logits that look random and depend on every token of the prefix, and on nothing else."""

    def rule(prefix: list[int]) -> np.ndarray:
        state = 0
        for token in prefix:
            state = (state * 1000003 ^ token) & (2**64 - 1)
        return np.random.Generator(np.random.Philox(state)).standard_normal(n_vocab).astype(np.float32) * sharpness

    return rule


def engine(rule: Callable[[list[int]], np.ndarray], options: EngineOptions | None = None, **model: Any) -> Engine:
    """An Engine over a FakeModel; `engine._model` is it."""
    options = options or EngineOptions(ctx=256)
    cfg = config()
    file: Any = SimpleNamespace(
        path=Path("paper.gguf"), metadata={}, tensors={}, close=lambda: None, check_unchanged=lambda: None
    )
    tokenizer: Any = ByteTokenizer()
    n_ctx = options.ctx or 256
    return Engine(file, cfg, FakeModel(rule, cfg, **model), FakeBackend(), options, n_ctx, None, tokenizer)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Script:
    """What a scripted engine process does."""

    answer: str = "Hello."
    token_s: float = 0.0
    load_s: float = 0.0
    load_error: str = ""  # name of an error class of the tree, or "bug"
    dies_after: int = -1  # tokens of the answer after which the process kills itself
    fails_after: int = -1  # tokens of the answer after which the model raises


def open_scripted(path: str, options: EngineOptions, progress: Progress) -> Engine:
    script = Script(**json.loads(path))
    progress(0.5, "half way")
    time.sleep(script.load_s)
    if script.load_error == "bug":
        raise ZeroDivisionError("a planted bug")
    if script.load_error:
        raise getattr(errors, script.load_error)("planted", "a hint")
    plain = says(script.answer)

    def rule(prefix: list[int]) -> np.ndarray:
        done = len(prefix) - (len(prefix) - prefix[::-1].index(ord("?")) if ord("?") in prefix else len(prefix))
        if done == script.dies_after:
            os.kill(os.getpid(), 9)
        if done == script.fails_after:
            raise ZeroDivisionError("a planted bug")
        return plain(prefix)

    made = engine(rule, options, token_s=script.token_s)
    made.file.path = Path("paper.gguf")
    return made


def open_noisy(path: str, options: EngineOptions, progress: Progress) -> Engine:
    """A scripted engine whose libraries print."""
    os.write(1, b"words on stdout\n")
    os.write(2, b"words on stderr\n")
    return open_scripted(path, options, progress)
