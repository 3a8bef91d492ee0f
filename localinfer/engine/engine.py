"""Engine: one loaded model, in this process. All calls come from one thread, the one that opened it.

The chat template is made when first needed: jinja2 takes 60 ms to import, and plain text needs none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from localinfer.backends.base import Backend, LoadedModel, PagingState
from localinfer.engine.answer_text import AnswerText, PlainSplitter, Splitter
from localinfer.engine.conversation import Conversation
from localinfer.engine.drafter import Drafter, NgramDrafter
from localinfer.engine.events import GenerationEvent, MemoryStats, Notice, TurnDone, TurnStats
from localinfer.engine.generate import Generation, Timing, check_prompt
from localinfer.engine.memory import peak_bytes
from localinfer.engine.paging_watch import PagingWatch
from localinfer.engine.params import EngineOptions, EngineStatus, SamplingParams
from localinfer.engine.planning import (
    MemoryRecord,
    lowered_plan,
    paging_line,
    portable,
)
from localinfer.engine.prefill import ChunkSizer
from localinfer.engine.snapshots import Snapshots, identity_of
from localinfer.kv.spec import KVSpec, parse_kv_types
from localinfer.models.config import ModelConfig
from localinfer.paths import kv_dir
from localinfer.planner.ledger import Used
from localinfer.units import format_bytes

if TYPE_CHECKING:
    from localinfer.engine.dropping import OldestTurns
    from localinfer.models.chat_template import ChatTemplate
    from localinfer.models.tokenizer import AnyTokenizer
    from localinfer.planner.plan import Plan

NO_PAGING = "this backend does not page weights: the system decides which of them stay in memory"
NO_DRAFTS = "drafting is off: recurrent layers keep no past states to go back to"
DEFAULT_CHECKPOINTS = 4  # where no plan says how many
LIMIT_EACH_S = 1.0  # a look at the system's memory limit takes 2 ms
LOGITS_CHUNK_BYTES = 64 * 2**20  # rows of logits that are in flight at a time


class Engine:
    """Context manager. `tokenizer`, `config` and `plan` may be read; `conversation` is the timeline of `chat`."""

    def __init__(
        self,
        file: Any,
        config: ModelConfig,
        model: LoadedModel,
        backend: Backend,
        options: EngineOptions,
        n_ctx: int,
        plan: Plan | None,
        tokenizer: AnyTokenizer,
    ) -> None:
        self.file = file
        self.config = config
        self.tokenizer = tokenizer
        self.plan = plan
        self.options = options
        self.n_ctx = n_ctx
        self.load_s = 0.0
        self._paged_before = PagingState()  # when the turn began
        self._unsaved = ""  # conversation whose cache has grown since it was written
        self._model = model
        self.backend = backend
        self._device = backend.device_info()
        self._sizer = ChunkSizer(self.kv_spec.chunk, whole=model.paging is not None)
        self._watch = PagingWatch(plan) if plan and model.paging else None
        self._memory = MemoryRecord(plan) if plan and self._records_memory(model) else None

    def _records_memory(self, model: LoadedModel) -> bool:
        """Paged, room for experts fills up slowly: what is measured then says nothing about the plan's other terms."""
        return self._device.backend == "cpu" and model.paging is None

    @cached_property
    def kv_spec(self) -> KVSpec:
        k_type, v_type = parse_kv_types(self.plan.ask.kv_name if self.plan else self.options.kv)
        chunk = self.plan.ask.chunk if self.plan else min(self.options.chunk, self.n_ctx)
        checkpoints = self.plan.ask.checkpoints if self.plan else DEFAULT_CHECKPOINTS
        beside = self._device.v_beside_k
        return KVSpec.from_config(self.config, self.n_ctx, k_type, v_type, chunk, beside, checkpoints)

    @cached_property
    def conversation(self) -> Conversation:
        return Conversation(self._model, self._model.new_kv(self.kv_spec))

    @cached_property
    def drafter(self) -> Drafter | None:
        """None where a refused guess could not be taken back: recurrent layers keep no past states, and neither do
        mlx-lm's sliding windows."""
        layers = self.config.layers
        forgets = bool(self.plan and not self.plan.model.mapped and any(x.kind == "window" for x in layers))
        refused = forgets or any(layer.state_values for layer in layers)
        return None if refused or not self.options.drafts else NgramDrafter()

    @cached_property
    def template(self) -> ChatTemplate | None:
        """The file's chat template, the fallback that the options name, or None."""
        if not self.has_template:
            return None
        from localinfer.models.chat_template import ChatTemplate

        return ChatTemplate.from_gguf(self.file, self.tokenizer, self.options.template or None)

    @property
    def threads(self) -> int:
        return self._device.threads

    @property
    def has_template(self) -> bool:
        return bool(self.options.template) or "tokenizer.chat_template" in self.file.metadata

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about this model on this device."""
        found = (
            *self.config.notices, *self.tokenizer.notices, *self.kv_spec.notices, *self._device.notices,
            *self._model.notices, *((NO_DRAFTS,) if any(layer.state_values for layer in self.config.layers) else ()),
            *self._paging_notices(),
        )  # fmt: skip
        return tuple(dict.fromkeys(found))

    def _paging_notices(self) -> tuple[str, ...]:
        if self.plan is None or self.plan.paging is None:
            return ()
        return (NO_PAGING if self._model.paging is None else paging_line(self.plan),)

    def logits(self, ids: Sequence[int], rows: int | None = None, chunk: int | None = None) -> np.ndarray:
        """float32 (rows, V) logits of the last rows (None: of all), from an empty cache.

        chunk: tokens that go through at a time (None: as many as the cache takes at once).
        """
        rows = len(ids) if rows is None else min(rows, len(ids))
        out = np.empty((rows, self.config.n_vocab), np.float32)
        done = 0
        for part in self.logit_chunks(ids, rows, chunk):
            out[done : done + len(part)] = part
            done += len(part)
        return out

    def logit_chunks(self, ids: Sequence[int], rows: int, chunk: int | None = None) -> Iterator[np.ndarray]:
        """The same rows piece by piece, so that a large vocabulary needs no large array."""
        check_prompt(ids, self.n_ctx)
        step = min(chunk or self._logits_chunk(rows), self.kv_spec.chunk)
        first = len(ids) - rows  # the first token whose logits are wanted
        self.conversation.clear()
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            wanted = min(len(part), max(0, start + len(part) - first))
            logits = self.conversation.extend(part, wanted)
            if wanted:
                yield logits

    def _logits_chunk(self, rows: int) -> int:
        most = max(1, LOGITS_CHUNK_BYTES // (4 * self.config.n_vocab))
        return min(self.kv_spec.chunk, most) if rows > 1 else self.kv_spec.chunk

    def generate(
        self,
        ids: Sequence[int],
        params: SamplingParams | None = None,
        *,
        turn_id: int = 0,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[GenerationEvent]:
        """Continue ids: PromptProgress, TextDelta, and one TurnDone at the end. Raises the error tree."""
        stream = self.tokenizer.stream(skip_special=True)
        answer = AnswerText(turn_id, stream, (params or SamplingParams()).stop, PlainSplitter())
        yield from self._run(ids, params or SamplingParams(), answer, turn_id, cancelled, Timing())

    def chat(
        self,
        messages: Sequence[Any] | str,
        params: SamplingParams | None = None,
        *,
        turn_id: int = 0,
        cancelled: Callable[[], bool] = lambda: False,
        thinking: bool | None = None,
        conversation: str = "",
    ) -> Iterator[GenerationEvent]:
        """Answer messages through the model's template; a plain string is continued as it is. Raises the error tree.

        conversation: the name that its KV cache is saved under, where the options give room for that.
        """
        from localinfer.engine.chat_prompt import Prompt, make_prompt

        timing, params = Timing(), params or SamplingParams()
        template = None if isinstance(messages, str) else self.template

        def make(turns: Sequence[Any] | str) -> Prompt:
            return make_prompt(self.tokenizer, template, turns, thinking, self.kv_spec.remembers)

        if self.options.context_full == "drop" and not isinstance(messages, str):
            prompt, told = self._oldest_turns.fit(messages, make, params.max_tokens)
            if told:
                yield Notice(turn_id, told)
        else:
            prompt = make(messages)
        for text in prompt.notices:
            yield Notice(turn_id, text)
        if conversation and self.snapshots:
            yield from self._reopen(conversation, prompt.ids, turn_id)
        splitter: Splitter = prompt.splitter or PlainSplitter()
        stream = self.tokenizer.stream(skip_special=prompt.splitter is None)
        answer = AnswerText(turn_id, stream, params.stop, splitter)
        yield from self._run(prompt.ids, params, answer, turn_id, cancelled, timing, prompt.branch_at)

    def count_tokens(self, text: str) -> int:
        """Of a text inside a message: nothing added, nothing in it special."""
        return len(self.tokenizer.encode(text, add_special=False, parse_special=False))

    @cached_property
    def _oldest_turns(self) -> OldestTurns:
        from localinfer.engine.dropping import OldestTurns

        return OldestTurns(self.n_ctx)

    @cached_property
    def snapshots(self) -> Snapshots | None:
        """None where there is no room for any, or the backend cannot save."""
        layout = getattr(self.conversation.kv, "layout", None)
        if not self.options.snapshot_bytes or layout is None:
            return None
        identity = identity_of(self.file, self.config, self.kv_spec, layout)
        return Snapshots(kv_dir(), identity, self.options.snapshot_bytes)

    def _reopen(self, name: str, ids: Sequence[int], turn_id: int) -> Iterator[Notice]:
        """Go on from the saved cache where that is faster than what is still in memory."""
        assert self.snapshots is not None
        check_prompt(ids, self.n_ctx)
        stored = self.conversation.sync(ids)
        refused = self.snapshots.restore(name, self.conversation, ids, stored)
        if refused and name != self._unsaved:
            yield Notice(turn_id, f"the saved KV cache of this conversation is not used: {refused}")
        self._unsaved = name

    def save(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Write the KV cache of the conversation answered last, unless that is done; gives up when go_on says so."""
        name, self._unsaved = self._unsaved, ""
        if not name or not self.snapshots:
            return False
        saved = self.snapshots.save(name, self.conversation, self._sizer.token_s, go_on)
        if not saved and not go_on():
            self._unsaved = name
        return saved

    def _run(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        answer: AnswerText,
        turn_id: int,
        cancelled: Callable[[], bool],
        timing: Timing,
        branch_at: int = 0,
    ) -> Iterator[GenerationEvent]:
        self.file.check_unchanged()
        self._paged_before = self._model.paging or PagingState()
        yield from self._follow_limit(turn_id)
        generation = Generation(
            self.conversation,
            ids,
            params,
            answer,
            self._sizer,
            eog_ids=self.tokenizer.eog_ids,
            drafter=self.drafter,
            turn_id=turn_id,
            cancelled=cancelled,
            timing=timing,
            branch_at=branch_at,
        )
        yield from self._within_limit(generation.run(), turn_id)
        assert generation.reason is not None
        if self._memory:
            kv = self.conversation.kv
            drafts, touched = generation.draft.proposed, getattr(kv, "touched_bytes", None)
            used = Used(self.conversation.length, self._sizer.largest, drafts, touched)
            kv_bytes = min(kv.n_bytes, self.kv_spec.n_bytes)  # checkpoints are a row of their own
            self._memory.write(kv_bytes, self._model.scratch_bytes, used, generation.plain_s)
        paging = self._model.paging.since(self._paged_before) if self._model.paging else None
        if self._watch and paging and (text := self._watch.notice(paging)):
            yield Notice(turn_id, text)
        stats = self._stats(generation, paging)
        yield TurnDone(turn_id, generation.reason, answer.text, tuple(generation.tokens), stats)

    def _within_limit(self, events: Iterator[GenerationEvent], turn_id: int) -> Iterator[GenerationEvent]:
        """A turn's events; between two of them the system's limit is looked at now and then."""
        looked = time.monotonic()
        for event in events:
            yield event
            if time.monotonic() - looked >= LIMIT_EACH_S:
                yield from self._follow_limit(turn_id)
                looked = time.monotonic()

    def _follow_limit(self, turn_id: int) -> Iterator[Notice]:
        """Where the system's limit was lowered below the plan, less of the weights stays in memory from now on."""
        if self.plan is None or not hasattr(self._model, "repage"):
            return
        lower = lowered_plan(self.plan, self.options)
        if lower is None or lower.paging is None:
            return
        self._model.repage(lower.paging, lambda fraction, text: None)
        self.plan = lower
        self._watch, self._memory = PagingWatch(lower), None
        self._sizer.take_whole()
        self._paged_before = PagingState()
        yield Notice(
            turn_id,
            f"the memory limit was lowered to {format_bytes(lower.budget.budget_bytes)}: "
            f"{format_bytes(lower.paging.kept_bytes)} of the weights stay in memory, the rest is paged",
            portable(lower),
        )

    def _stats(self, g: Generation, paging: PagingState | None) -> TurnStats:
        t, n = g.timing, len(g.tokens)
        new = len(g.ids) - g.cached
        return TurnStats(
            backend=self._device.backend,
            prompt_tokens=len(g.ids),
            cached_tokens=g.cached,
            generated_tokens=n,
            ttft_s=t.first_token - t.asked if n else 0.0,
            prefill_tok_s=new / (t.prefill_end - t.prefill_start) if t.prefill_end else 0.0,
            decode_tok_s=(n - 1) / (t.last_token - t.first_token) if n > 1 else 0.0,
            context_used=self.conversation.length,
            context_limit=self.n_ctx,
            left_out=self._oldest_turns.left_out if self.options.context_full == "drop" else 0,
            seed=g.sampler.seed,
            draft=g.draft,
            memory=MemoryStats(self.plan.total if self.plan else 0, peak_bytes()),
            paging=paging,
        )

    def status(self) -> EngineStatus:
        return EngineStatus(
            state="ready",
            path=str(self.file.path),
            model=self.config.name,
            arch=self.config.arch,
            quant=self.plan.model.quant if self.plan else "",
            backend=self._device.backend,
            device=self._device.name,
            threads=self._device.threads,
            ctx=self.n_ctx,
            ctx_train=self.config.n_ctx_train,
            kv=self.options.kv,
            kv_bytes=self.kv_spec.n_bytes,
            context_used=self.conversation.length if "conversation" in self.__dict__ else 0,
            has_template=self.has_template,
            load_s=self.load_s,
            pid=os.getpid(),
            peak_bytes=peak_bytes(),
            plan=portable(self.plan) if self.plan else None,
            notices=self.notices,
        )

    def close(self) -> None:
        self.__dict__.pop("conversation", None)
        self._model.close()
        self.backend.close()
        self.file.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
