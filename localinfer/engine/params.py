"""What a caller may ask for: how to load a model, how to answer. Plain values: they cross the engine's pipe.

No array library here: the terminal app and the CLI read this file in the process that must start fast.
"""

from __future__ import annotations

from math import isfinite

from localinfer.errors import UsageError
from localinfer.records import dataclass, field

BACKENDS = ("auto", "cpu", "mlx", "reference")
CONTEXT_FULL = ("stop", "drop")
MAX_DRAFT = 15  # draft tokens a round: with the sampled one 16 rows, up to which a backend's rows are bit-identical
DEFAULT_CTX = 4096  # tokens, where the model was trained on as many
SLOW_TOK_S = 1.0  # below this many tokens a second a chat asks before it starts a model
DEFAULT_CHUNK = 512  # most tokens that go through the model at a time


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen and when an answer ends. Sampler (sampler.py) gives the order of the steps."""

    temperature: float = 0.8  # 0: always the most likely token
    top_k: int = 40  # keep this many; 0: all
    top_p: float = 0.95  # keep the smallest set with this much probability; 1: all
    min_p: float = 0.05  # keep what has at least this share of the best token's probability; 0: all
    repeat_penalty: float = 1.0  # > 1 makes the last `penalty_window` tokens less likely; 1: off
    presence_penalty: float = 0.0  # subtracted once from a token that this answer already has
    frequency_penalty: float = 0.0  # subtracted for each time this answer already has it
    penalty_window: int = 64  # tokens, prompt included, that repeat_penalty looks back on; 0: all
    seed: int | None = None  # None: a fresh one, named in TurnStats
    max_tokens: int | None = None  # None: until the model ends or the context is full
    stop: tuple[str, ...] = ()  # the answer ends before the first of these
    ignore_eos: bool = False  # go on after end-of-turn tokens (measuring)
    draft: str | int = "auto"  # auto, off, or the most draft tokens a round

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", tuple(self.stop))
        object.__setattr__(self, "draft", parse_draft(self.draft))
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not isfinite(value) or not low <= value <= high:
                raise UsageError(f"{name}: expected a number from {low:g} to {high:g}, found {value}")
        for name in _WHOLE:
            value = getattr(self, name)
            if value is not None and not hasattr(value, "__index__"):
                raise UsageError(f"{name}: expected a whole number, found {value!r}")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise UsageError(f"max_tokens: expected 0 or more, found {self.max_tokens}")
        if "" in self.stop:
            raise UsageError("stop: expected a text, found an empty one")


_RANGES = (
    ("temperature", 0.0, 100.0),
    ("top_k", 0, 2**31),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("repeat_penalty", 0.01, 100.0),
    ("presence_penalty", -100.0, 100.0),
    ("frequency_penalty", -100.0, 100.0),
    ("penalty_window", 0, 2**31),
)

_WHOLE = ("top_k", "penalty_window", "seed", "max_tokens")


def parse_draft(value: str | int) -> str | int:
    """`auto`, `off` or 0..MAX_DRAFT; 0 means off."""
    text = str(value).strip().lower()
    if text in ("auto", "off"):
        return text
    if text.isascii() and text.isdigit() and int(text) <= MAX_DRAFT:
        return int(text) or "off"
    raise UsageError(f"draft: expected auto, off or a number from 0 to {MAX_DRAFT}, found {value!r}")


@dataclass(frozen=True)
class EngineOptions:
    """How a model is loaded. `None` leaves the choice to the engine."""

    ctx: int | None = None  # tokens; None: DEFAULT_CTX, or less where the model was trained on less
    kv: str = "f16"  # KV cache type, or KTYPE/VTYPE
    backend: str = "auto"  # one of BACKENDS
    threads: int | None = None  # cpu backend; None: the cores this process may use
    chunk: int = DEFAULT_CHUNK
    weight_budget: int | None = None  # bytes of weights to keep in memory; None: all of them
    template: str = ""  # name of a chat format for a model that brings none: chatml, llama3, ...
    least_tok_s: float = 0.0  # refuse (TooSlow) what pages and cannot decode as fast; 0: whatever the speed
    snapshot_bytes: int = 0  # disk space for saved KV caches of conversations; 0: none are written or read
    drafts: bool = True  # keep room for drafting; without, none is done whatever a turn asks for
    context_full: str = "stop"  # a chat longer than the context: stop, or drop its oldest turns
    force: bool = False  # load although the plan says that it does not fit

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(f"backend: expected one of {', '.join(BACKENDS)}, found {self.backend!r}")
        if self.context_full not in CONTEXT_FULL:
            raise UsageError(f"context_full: expected {' or '.join(CONTEXT_FULL)}, found {self.context_full!r}")
        if self.snapshot_bytes < 0:
            raise UsageError(f"snapshot_bytes: expected 0 or more, found {self.snapshot_bytes}")
        for name in ("ctx", "threads", "chunk", "weight_budget"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name}: expected 1 or more, found {value}")


@dataclass(frozen=True)
class ChatMessage:
    """One message of a conversation, as it crosses the pipe."""

    role: str  # system, user, assistant
    content: str
    thinking: str = ""  # of an earlier answer, for templates that show it again


@dataclass(frozen=True)
class EngineStatus:
    """The engine as a reader outside sees it. Everything but `state` and `failure` is empty until a model is open."""

    state: str = "closed"  # closed, loading, ready, busy, failed
    path: str = ""
    model: str = ""  # the model's own name
    arch: str = ""
    quant: str = ""  # the type most of its weights have
    backend: str = ""
    device: str = ""
    threads: int = 0
    ctx: int = 0  # tokens the cache holds
    ctx_train: int = 0
    kv: str = ""  # as asked; layers that had to differ are in `notices`
    kv_bytes: int = 0
    context_used: int = 0
    has_template: bool = False
    load_s: float = 0.0
    pid: int = 0
    peak_bytes: int = 0
    plan: object | None = None  # planner's Plan
    notices: tuple[str, ...] = field(default_factory=tuple)
    failure: str = ""
