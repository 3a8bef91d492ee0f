"""ChatTemplate: messages -> the text that a model was trained on, by the jinja template in its file."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from jinja2 import Template, TemplateError, TemplateSyntaxError, meta

from localinfer.errors import LocalinferError, UnsupportedModel, UsageError
from localinfer.models.template_budget import MAX_SECONDS, PROBE_SECONDS, Budget, TemplateLimit
from localinfer.models.template_fallbacks import fallback_template
from localinfer.models.template_sandbox import RaisedByTemplate, SecurityError, TemplateEnvironment
from localinfer.models.thinking import (
    ThinkingMarkers,
    ThinkingSplitter,
    markers_around,
    markers_in_source,
    opened_by,
)
from localinfer.records import dataclass, replace

if TYPE_CHECKING:
    from localinfer.models.tokenizer import AnyTokenizer

_KEY = "tokenizer.chat_template"
# The longest real template has some 17,000 characters.
MAX_SOURCE_CHARS = 256 * 1024
SYSTEM_MERGED = "this model's chat template takes no system message: it goes before the first user message"

# Variables by which templates switch thinking, with the values for on and off. None: leave it undefined.
_THINKING_SWITCHES: dict[str, tuple[object, object]] = {
    "enable_thinking": (True, False),
    "thinking": (True, False),
    "thinking_mode": ("enabled", "disabled"),
    "thinking_budget": (None, 0),
    "reasoning": (True, False),
}


class HasMetadata(Protocol):
    """What `from_gguf` needs of a GGUFFile."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Message:
    """One message. `thinking`: the reasoning of an earlier answer, for templates that show it again."""

    role: str
    content: str
    thinking: str = ""
    name: str | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    tool_call_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The names that templates use; reasoning under all three in use."""
        found: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.thinking:
            found |= {"reasoning_content": self.thinking, "reasoning": self.thinking, "thinking": self.thinking}
        if self.name is not None:
            found["name"] = self.name
        if self.tool_calls:
            found["tool_calls"] = [copy.deepcopy(dict(call)) for call in self.tool_calls]
        if self.tool_call_id is not None:
            found["tool_call_id"] = self.tool_call_id
        return found


AnyMessage = Message | Mapping[str, Any]


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation. `thinking` is None where the template knows none; `notices`: what had to be changed."""

    text: str
    ids: list[int]
    thinking: ThinkingMarkers | None
    notices: tuple[str, ...] = ()

    def splitter(self) -> ThinkingSplitter | None:
        """A fresh splitter for the answer to this prompt."""
        return ThinkingSplitter(self.thinking) if self.thinking else None


class ChatTemplate:
    """A compiled template. Rendering is bounded in time and size; one thread at a time renders."""

    def __init__(
        self,
        source: str,
        tokenizer: AnyTokenizer,
        tool_source: str | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = source
        self._tokenizer = tokenizer
        self._now = now
        self._environment = TemplateEnvironment(now)
        self._lock = threading.RLock()
        self._template = self._compiled(source)
        self._tool_template = self._compiled(tool_source) if tool_source else None
        self._variables = meta.find_undeclared_variables(self._environment.parse(source))
        self._special = _special_texts(tokenizer)

    @classmethod
    def from_gguf(cls, file: HasMetadata, tokenizer: AnyTokenizer, fallback: str | None = None) -> ChatTemplate | None:
        """The file's template, else the one called `fallback`, else None: such a model only continues text.
        UnsupportedModel for a template that is no valid jinja."""
        source = file.metadata.get(_KEY)
        if isinstance(source, str) and source.strip():
            tools = file.metadata.get(f"{_KEY}.tool_use")
            return cls(source, tokenizer, tools if isinstance(tools, str) else None)
        return cls(fallback_template(fallback), tokenizer) if fallback else None

    @classmethod
    def named(cls, name: str, tokenizer: AnyTokenizer) -> ChatTemplate:
        """The fallback called `name` (chatml, llama3, gemma, ...). UsageError for another."""
        return cls(fallback_template(name), tokenizer)

    def render(
        self,
        messages: Sequence[AnyMessage],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        **extra: Any,
    ) -> str:
        """The prompt's text. UsageError where the template refuses the conversation, UnsupportedModel where it costs
        too much to render."""
        return self._render_merging(messages, add_generation_prompt, tools, enable_thinking, extra)[0]

    def encode_chat(
        self,
        messages: Sequence[AnyMessage],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        **extra: Any,
    ) -> ChatPrompt:
        """Text and ids, with BOS once if the template or the file asks for one, and no EOS."""
        text, notices = self._render_merging(messages, add_generation_prompt, tools, enable_thinking, extra)
        markers = self.thinking
        if markers:
            markers = replace(markers, opened_by_prompt=add_generation_prompt and opened_by(text, markers))
        return ChatPrompt(text, self._encode(text), markers, notices)

    @cached_property
    def thinking(self) -> ThinkingMarkers | None:
        """Where this model's thinking starts and ends: read off a rendered reasoning, else found in the source."""
        return self._probed_thinking() or markers_in_source(self.source)

    @cached_property
    def switches_thinking(self) -> bool:
        """Does the template look at a variable that turns thinking on or off?"""
        return not self._variables.isdisjoint(_THINKING_SWITCHES) or self._has_effort_switch

    @cached_property
    def takes_system(self) -> bool:
        """Does a system message reach the prompt? False only where a conversation without one can be rendered."""
        user = {"role": "user", "content": "Hi"}
        system = {"role": "system", "content": "Probe-7f3a"}
        try:
            self._probe([user], True)
        except LocalinferError:
            return True
        try:
            return system["content"] in self._probe([system, user], True)
        except LocalinferError:
            return False

    @property
    def _has_effort_switch(self) -> bool:
        return "reasoning_effort" in self._variables and "no_think" in self.source

    def _compiled(self, source: str) -> Template:
        if len(source) > MAX_SOURCE_CHARS:
            raise UnsupportedModel(f"{_KEY}: {len(source)} characters, expected at most {MAX_SOURCE_CHARS}")
        self._environment.budget = Budget()
        try:
            return self._environment.from_string(source)
        except TemplateSyntaxError as error:
            raise UnsupportedModel(f"{_KEY}: line {error.lineno}: {_one_line(error)}", _HINT) from None
        except (RecursionError, MemoryError, TemplateLimit, TemplateError, SyntaxError, ValueError, TypeError) as error:
            raise UnsupportedModel(f"{_KEY}: {_one_line(error) or type(error).__name__}", _HINT) from None

    def _render_merging(
        self,
        messages: Sequence[AnyMessage],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        enable_thinking: bool | None,
        extra: Mapping[str, Any],
    ) -> tuple[str, tuple[str, ...]]:
        """The text and what had to be changed: a system message that the template refuses or drops is merged."""
        plain = [_plain(message) for message in messages]
        merged = _system_merged(plain)
        if merged is None or self.takes_system:
            return self._rendered(plain, add_generation_prompt, tools, enable_thinking, extra), ()
        return self._rendered(merged, add_generation_prompt, tools, enable_thinking, extra), (SYSTEM_MERGED,)

    def _probe(
        self, messages: list[dict[str, Any]], add_generation_prompt: bool, enable_thinking: bool | None = None
    ) -> str:
        """A rendering that serves to find out about the template."""
        return self._rendered(messages, add_generation_prompt, None, enable_thinking, {}, PROBE_SECONDS)

    def _rendered(
        self,
        messages: list[dict[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        enable_thinking: bool | None,
        extra: Mapping[str, Any],
        seconds: float = MAX_SECONDS,
    ) -> str:
        variables: dict[str, Any] = {**self._special, **self._switches(enable_thinking), **copy.deepcopy(dict(extra))}
        variables |= {"messages": copy.deepcopy(messages), "add_generation_prompt": add_generation_prompt}
        if tools is not None:
            variables["tools"] = [copy.deepcopy(dict(tool)) for tool in tools]
        variables |= self._firefunction_variables(tools or ())
        template = self._tool_template if tools and self._tool_template else self._template
        with self._lock:
            return self._run(template, variables, seconds)

    def _run(self, template: Template, variables: Mapping[str, Any], seconds: float) -> str:
        self._environment.budget = Budget(_n_chars(variables), seconds)
        try:
            return "".join(template.generate(**variables))
        except RaisedByTemplate as error:
            raise UsageError(f"the chat template refuses this conversation: {_one_line(error)}") from None
        except TemplateLimit as error:
            raise UnsupportedModel(f"the chat template costs too much to render: {_one_line(error)}", _HINT) from None
        except (RecursionError, MemoryError) as error:
            raise UnsupportedModel(
                f"the chat template costs too much to render: {type(error).__name__}", _HINT
            ) from None
        except SecurityError as error:
            raise UnsupportedModel(f"the chat template does what it may not: {_one_line(error)}", _HINT) from None
        # A template is a program: on a conversation it was not written for it may fail in any way.
        except Exception as error:
            raise UsageError(f"the chat template fails on this conversation: {_one_line(error)}", _HINT) from None

    def _firefunction_variables(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """`functions` and `datetime`: texts that Firefunction's template takes ready-made."""
        functions = [tool.get("function", tool) for tool in tools]
        ready = {
            "functions": json.dumps(functions, indent=4, ensure_ascii=False),
            "datetime": self._now().strftime("%Y-%m-%d"),
        }
        return {name: text for name, text in ready.items() if name in self._variables}

    def _switches(self, enable_thinking: bool | None) -> dict[str, object]:
        if enable_thinking is None:
            return {}
        at = 0 if enable_thinking else 1
        found = {name: values[at] for name, values in _THINKING_SWITCHES.items() if name in self._variables}
        if self._has_effort_switch:
            found["reasoning_effort"] = ("high", "no_think")[at]
        return {"enable_thinking": enable_thinking} | {name: v for name, v in found.items() if v is not None}

    def _probed_thinking(self) -> ThinkingMarkers | None:
        """Render an answer that was thought about, and look at what stands around the thought."""
        answer = Message("assistant", "Answer-55e0", thinking="Thought-91c4")
        for tail in ([], [{"role": "user", "content": "Bye"}]):
            messages = [{"role": "user", "content": "Hi"}, answer.as_dict(), *tail]
            try:
                rendered = self._probe(messages, False, True)
            except LocalinferError:
                continue
            if found := markers_around(rendered, answer.thinking, answer.content):
                return found
        return None

    def _encode(self, text: str) -> list[int]:
        """BOS once: the template's own counts, further ones at the very start are dropped."""
        ids = self._tokenizer.encode(text, add_special=False, parse_special=True)
        bos = self._tokenizer.bos_id
        if bos is None:
            return ids
        n_own = next((i for i, token in enumerate(ids) if token != bos), len(ids))
        wanted = 1 if n_own or self._tokenizer.add_bos else 0
        return [bos] * wanted + ids[n_own:]


_HINT = "--raw continues the text without a template"


def _special_texts(tokenizer: AnyTokenizer) -> dict[str, str]:
    ids = {
        "bos_token": tokenizer.bos_id,
        "eos_token": tokenizer.eos_id,
        "pad_token": tokenizer.pad_id,
        "unk_token": tokenizer.unk_id,
    }
    return {name: "" if i is None else tokenizer.piece(i) for name, i in ids.items()}


def _plain(message: AnyMessage) -> dict[str, Any]:
    return message.as_dict() if isinstance(message, Message) else dict(message)


def _system_merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The leading system message put before the first user message; None where there is none to move."""
    if not messages or messages[0].get("role") != "system":
        return None
    system, rest = messages[0], messages[1:]
    for i, message in enumerate(rest):
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            return [*rest[:i], {**message, "content": f"{system['content']}\n\n{message['content']}"}, *rest[i + 1 :]]
    return [{**system, "role": "user"}, *rest]


def _n_chars(value: object) -> int:
    """Characters in a conversation, roughly: what its rendering is allowed to cost grows with it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_n_chars(v) for v in value.values()) + 8 * len(value)
    return sum(map(_n_chars, value)) + 8 * len(value) if isinstance(value, list | tuple) else 8


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
