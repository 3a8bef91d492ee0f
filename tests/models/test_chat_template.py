from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localinfer.errors import LocalinferError, UnsupportedModel, UsageError
from localinfer.models.chat_template import SYSTEM_MERGED, ChatTemplate, Message
from localinfer.models.template_fallbacks import FALLBACKS
from localinfer.models.template_sandbox import _GenerationTag, _raise_exception
from localinfer.models.tokenizer import Tokenizer
from tests.models.tokenizer.vocabularies import FakeFile, bpe_metadata

SYSTEM, USER = Message("system", "Be brief."), Message("user", "Hi")
ANSWER, NEXT = Message("assistant", "Hello!", thinking="They greet."), Message("user", "Bye")
TOOLS = [
    {
        "type": "function",
        "function": {"name": "time", "description": "Now", "parameters": {"type": "object", "properties": {}}},
    }
]
CHATML = (
    "{%- for m in messages %}\n<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHARED = Path(os.environ.get("LOCALINFER_SHARED", "/nonexistent")) / "templates"


def make_tokenizer(**metadata) -> Tokenizer:
    special = {"<s>": 3, "</s>": 3, "<|im_start|>": 3, "<|im_end|>": 3, "<think>": 4, "</think>": 4}
    return Tokenizer.from_gguf(FakeFile(bpe_metadata(["a b"], special, bos_token_id=257, eos_token_id=258, **metadata)))


TOKENIZER = make_tokenizer()


def template(source: str, tokenizer: Tokenizer = TOKENIZER) -> ChatTemplate:
    return ChatTemplate(source, tokenizer, now=lambda: datetime(2031, 5, 17, 9, 30))


def render(source: str, *messages: Message, **options) -> str:
    return template(source).render(messages or (USER,), **options)


def test_messages_become_the_prompt():
    assert render(CHATML, SYSTEM, USER) == (
        "<|im_start|>system\nBe brief.<|im_end|><|im_start|>user\nHi<|im_end|><|im_start|>assistant\n"
    )
    assert render(CHATML, USER, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>"


def test_messages_may_be_plain_mappings():
    assert (
        template("{{ messages[0].role }}:{{ messages[0]['content'] }}").render([{"role": "user", "content": "x"}])
        == "user:x"
    )


@pytest.mark.parametrize(("source", "expected"), [
    ("{{ strftime_now('%d %b %Y') }}", "17 May 2031"),
    ("{{ {'a': 'é<b>', 'n': [1, none, true]} | tojson }}", '{"a": "é<b>", "n": [1, null, true]}'),
    ("{{ [1, 2] | tojson(indent=2) }}", "[\n  1,\n  2\n]"),
    ("{{ '{\"a\": 1}' | from_json | tojson }}", '{"a": 1}'),
    ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{% if i == 1 %}{% continue %}{% endif %}"
     "{{ i }}{% endfor %}", "02"),
    ("a{% generation %}b{{ 1 + 1 }}{% endgeneration %}c", "ab2c"),
    ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
    ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
    ("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}", "<s>|</s>|"),
    ("{% macro f(x, y=[]) %}<{{ x ~ y }}>{% endmacro %}{{ f(1) }}{{ f('a', [2]) }}", "<1[]><a[2]>"),
    ("{{ messages | map(attribute='role') | list | tojson }}", '["user"]'),
    ("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(',') }}", "Hi"),
    ("{{ 'a-b'.split('-')[1] }}{{ ' x '.strip() }}{{ 'a%s' % 'b' }}{{ '{}{}'.format(1, 'z') }}", "bxab1z"),
    ("{% set l = [] %}{{ l.append(1) or '' }}{{ l.append(2) or '' }}{{ l.pop(0) }}{{ l }}", "1[2]"),
    ("{% filter upper %}abc{% endfilter %}{% set x %}q{% endset %}{{ x }}", "ABCq"),
    ("{{ tools is none }}{{ tools is defined }}", "FalseFalse"),
    ("{{ enable_thinking is defined }}", "False"),
])  # fmt: skip
def test_what_templates_use(source, expected):
    assert render(source) == expected


def test_a_conversation_is_not_changed_by_its_template():
    messages = [{"role": "user", "content": "x", "tool_calls": [{"a": 1}]}]
    assert template("{{ messages[0].tool_calls.append(2) or messages.pop() or '' }}").render(messages)
    assert messages == [{"role": "user", "content": "x", "tool_calls": [{"a": 1}]}]


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("source", ["{{ bos_token }}x", "x", "<s>{{ bos_token }}x"])
def test_bos_comes_once_if_anyone_adds_it(add_bos, source):
    ids = template(source, make_tokenizer(add_bos_token=add_bos)).encode_chat([USER]).ids
    wanted = 1 if add_bos or source != "x" else 0
    assert ids[:wanted] == [257] * wanted
    assert 257 not in ids[wanted:] and 258 not in ids


def test_a_prompt_never_ends_in_eos_even_where_texts_do():
    tok = make_tokenizer(add_eos_token=True)
    assert tok.encode("x")[-1] == 258
    assert 258 not in template("x", tok).encode_chat([USER]).ids


REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
IGNORES = "{% for m in messages if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endfor %}"


@pytest.mark.parametrize("source", [REFUSES + IGNORES, IGNORES])
def test_a_system_message_that_the_template_cannot_take_goes_to_the_user(source):
    prompt = template(source).encode_chat([SYSTEM, USER, ANSWER, NEXT])
    assert prompt.text == "[user:Be brief.\n\nHi][assistant:Hello!][user:Bye]"
    assert prompt.notices == (SYSTEM_MERGED,)
    assert template(source).encode_chat([USER]).notices == ()
    assert template(CHATML).encode_chat([SYSTEM, USER]).notices == ()


def test_what_the_template_raises_is_one_line_and_the_next_conversation_works():
    picky = template("{% if messages|length > 1 %}{{ raise_exception('Roles must\n alternate') }}{% endif %}ok")
    with pytest.raises(UsageError) as found:
        picky.render([USER, USER])
    assert found.value.message == "the chat template refuses this conversation: Roles must alternate"
    assert picky.render([USER]) == "ok"


def test_a_file_without_a_template_has_none_unless_one_is_asked_for_by_name():
    assert ChatTemplate.from_gguf(FakeFile({}), TOKENIZER) is None
    asked = ChatTemplate.from_gguf(FakeFile({}), TOKENIZER, fallback="chatml")
    assert asked and asked.render([USER]).startswith("<|im_start|>user\nHi")
    own = ChatTemplate.from_gguf(FakeFile({"tokenizer.chat_template": "own"}), TOKENIZER, fallback="chatml")
    assert own and own.render([USER]) == "own"
    with pytest.raises(UsageError, match="unknown name 'klingon'"):
        ChatTemplate.named("klingon", TOKENIZER)


@pytest.mark.parametrize("name", FALLBACKS)
def test_every_fallback_renders_a_conversation(name):
    prompt = ChatTemplate.named(name, TOKENIZER).encode_chat([SYSTEM, USER, ANSWER, NEXT])
    positions = [prompt.text.index(part) for part in ("Be brief.", "Hi", "Hello!", "Bye")]
    assert positions == sorted(positions)
    assert bool(prompt.notices) == (name in ("gemma", "mistral"))


def test_a_tool_template_serves_conversations_with_tools():
    metadata = {"tokenizer.chat_template": "plain", "tokenizer.chat_template.tool_use": "{{ tools[0].function.name }}"}
    found = ChatTemplate.from_gguf(FakeFile(metadata), TOKENIZER)
    assert found and found.render([USER]) == "plain"
    assert found.render([USER], tools=TOOLS) == "time"


THINKS = (
    "{% for m in messages %}[{{ m.role }}:"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}]{% endfor %}"
    "{% if add_generation_prompt %}[assistant:"
    "{% if enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>{% else %}<think>\n{% endif %}{% endif %}"
)


def test_thinking_is_found_and_switched():
    thinks = template(THINKS)
    prompt = thinks.encode_chat([USER])
    assert prompt.thinking and (prompt.thinking.start, prompt.thinking.end) == ("<think>", "</think>")
    assert prompt.thinking.opened_by_prompt and thinks.switches_thinking
    off = thinks.encode_chat([USER], enable_thinking=False)
    assert off.thinking and not off.thinking.opened_by_prompt
    assert template(CHATML).encode_chat([USER]).splitter() is None
    assert not template(CHATML).switches_thinking


@pytest.mark.parametrize(("source", "start", "end"), [
    ("{% for m in messages %}<t:{{ 'x' }}>{{ m.reasoning }}</t:x>{{ m.content }}{% endfor %}", "<t:x>", "</t:x>"),
    ("{% for m in messages %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endfor %}",
     "<|channel|>analysis<|message|>", "<|end|>"),
    ("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}", "<think>", "</think>"),
    ("{{ '[THINK]' if 0 }}{{ messages[0].content }}{{ '[/THINK]' if 0 }}", "[THINK]", "[/THINK]"),
])  # fmt: skip
def test_markers_of_several_styles(source, start, end):
    markers = template(source).thinking
    assert markers and (markers.start, markers.end) == (start, end)


def test_a_user_who_writes_a_marker_opens_nothing():
    prompt = template(CHATML + "{# <think></think> #}").encode_chat([Message("user", "what is <think>")])
    assert prompt.thinking and not prompt.thinking.opened_by_prompt


@pytest.mark.parametrize("source", [
    "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{%endfor%}",
    "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{{ range(99999) | map('string') | max }}{% endfor %}",
    "{{ range(10**9) }}", "{{ 'a' * 10**9 }}", "{{ [0] * 10**9 }}", "{{ 3 ** 9999999999 }}",
    "{% set ns = namespace(s='aaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(s='aaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s='aaaa') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('a', 'aaaa') %}{% endfor %}",
    "{% set n = namespace(s='aaaa') %}{% for i in range(60) %}{% set n.s = n.s | replace('a', 'aaaa') %}{% endfor %}",
    "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "{% set l = [1] %}{{ l.append(l) or '' }}{{ l }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ '%1000000000d' % 1 }}", "{{ '%*d' % (1000000000, 1) }}", "{{ '{:>1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}", "{{ 'a\nb' | indent(10**9) }}", "{{ [1] | tojson(indent=10**9) }}",
    "{{ (['a'] * 1000) | join('b' * 10**6) }}", "{{ ('b' * 10**6).join(['a'] * 1000) }}",
    "{% set x %}{% for a in range(99999) %}" + "y" * 9999 + "{% endfor %}{% endset %}{{ x | length }}",
    "{{ strftime_now('%c' * 9999) }}",
])  # fmt: skip
def test_a_hostile_template_ends_in_one_error(source, monkeypatch):
    monkeypatch.setattr("localinfer.models.chat_template.MAX_SECONDS", 0.3)
    start = time.process_time()
    with pytest.raises(UnsupportedModel) as found:
        template(source)._rendered([USER.as_dict()], True, None, None, {}, 0.3)
    assert "\n" not in found.value.message and "costs too much" in found.value.message
    assert time.process_time() - start < 4


@pytest.mark.parametrize("source", [
    "{{ ''.__class__.__mro__ }}", "{{ self.__init__.__globals__ }}", "{{ namespace.__init__.__globals__ }}",
    "{{ 'x'.zfill(10**9) }}", "{{ 'x'.ljust(10**9) }}", "{% do messages.clear() %}", "{{ 'a' | center(10**9) }}",
    "{% for x in %}", "{{ (" + "(" * 3000 + "1" + ")" * 3000 + ") }}", "x" * 300_000,
])  # fmt: skip
def test_what_a_template_may_not_do_is_refused(source):
    with pytest.raises(UnsupportedModel) as found:
        template(source).render([USER])
    assert "\n" not in found.value.message


@pytest.mark.parametrize(
    "source", ["{% include 'x' %}", "{{ nothing.at_all }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ lipsum() }}"]
)
def test_a_template_that_fails_says_so(source):
    with pytest.raises(UsageError, match="fails on this conversation"):
        template(source).render([USER])


def test_a_long_conversation_is_no_hostile_one():
    messages = [SYSTEM] + [Message(role, "word " * 400) for _ in range(200) for role in ("user", "assistant")]
    growing = (
        "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s + m.content %}{% endfor %}{{ ns.s }}"
    )
    assert len(render(growing, *messages)) == 400 * 2000 + len(SYSTEM.content)


def plain_jinja(source: str):
    """What Hugging Face's apply_chat_template does, without prices: the reference for our rewritten templates."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
    )

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        value = list(value) if isinstance(value, Iterator) else value
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters |= {"tojson": to_json, "from_json": json.loads}
    environment.globals["strftime_now"] = datetime(2031, 5, 17, 9, 30).strftime
    environment.globals["raise_exception"] = _raise_exception
    compiled = environment.from_string(source)
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "", "unk_token": ""}
    return lambda **variables: compiled.render(add_generation_prompt=True, **special, **variables)


@pytest.mark.skipif(not SHARED.is_dir(), reason="LOCALINFER_SHARED names no folder with templates/")
@pytest.mark.parametrize("path", sorted(SHARED.glob("*.jinja")) or [None], ids=lambda path: path and path.stem)
def test_templates_of_real_models(path):
    """With and without system, tools and thinking: as plain jinja2 renders it, and the thinking is known."""
    real = template(path.read_text())
    plain = plain_jinja(path.read_text())
    for system in ([], [SYSTEM]):
        for tools in (None, TOOLS):
            for thinking in (None, True, False):
                try:
                    prompt = real.encode_chat([*system, USER, ANSWER, NEXT], tools=tools, enable_thinking=thinking)
                except LocalinferError as error:
                    assert error.message.startswith("the chat template refuses"), error.message
                    continue
                assert "Bye" in prompt.text
                switches = real._switches(thinking) | ({"tools": tools} if tools else {})
                switches |= real._firefunction_variables(tools or ())
                messages = [m.as_dict() for m in (*system, USER, ANSWER, NEXT)]
                if prompt.notices:
                    messages[:2] = [{"role": "user", "content": f"{SYSTEM.content}\n\n{USER.content}"}]
                assert prompt.text == plain(messages=messages, **switches)
                assert not system or "Be brief." in prompt.text
                assert prompt.notices == ((SYSTEM_MERGED,) if system and not real.takes_system else ())
                if thinking is False and real.switches_thinking and prompt.thinking:
                    assert not prompt.thinking.opened_by_prompt
    if "</think>" in real.source:
        assert real.thinking and real.thinking.end == "</think>"
