"""The jinja2 environment in which chat templates run: immutable sandbox, and nothing without a price.

It offers what Hugging Face's `apply_chat_template` offers (trim_blocks, lstrip_blocks, loop controls,
`{% generation %}`, `tojson` without HTML escapes, `raise_exception`, `strftime_now`) and only those filters and
methods that prompts need. The parsed template is rewritten before it is compiled: each loop and macro body pays a
step, each literal container and `~` goes through a function that pays for its size; operators, filters and methods
are wrapped. Nothing is evaluated at compile time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from localinfer.models.template_budget import MAX_BITS, Budget, TemplateLimit

MAX_RANGE = 100_000
_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "format",
    "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject",
    "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "sum", "title",
    "trim", "unique", "upper", "wordcount",
)  # fmt: skip
_TEXT_METHODS = frozenset({
    "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip",
    "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip",
    "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
})  # fmt: skip
# append, extend and pop: every rendering has its own copy of the conversation, so nobody else sees the change.
_CONTAINER_METHODS = frozenset({
    "append", "copy", "count", "extend", "get", "index", "insert", "items", "keys", "pop", "setdefault", "update",
    "values",
})  # fmt: skip
_OPERATORS = frozenset({"+", "-", "*", "/", "//", "%", "**"})
# A width or precision of five digits or more, or one taken from an argument.
_WIDE_FORMAT = re.compile(r"%[^%a-zA-Z]*(?:\d{5}|\*)|\{[^{}]*(?:\d{5}|\{)")


class RaisedByTemplate(TemplateError):
    """The template called `raise_exception`."""


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's text for training; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own contract

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Set `budget` before each rendering: one environment renders one thing at a time."""

    intercepted_binops = _OPERATORS

    def __init__(self, now: Callable[[], datetime] = datetime.now) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            autoescape=False,
            finalize=self.printed,
            extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do", _GenerationTag],
        )
        self.budget = Budget()
        self._now = now
        self.filters = {name: self._priced(self.filters[name], name) for name in _FILTERS}
        self.filters |= {"tojson": self.to_json, "from_json": self.from_json, "fromjson": self.from_json}
        namespace = self.globals["namespace"]
        self.globals = {
            "range": _bounded_range,
            "dict": dict,
            "namespace": namespace,
            "raise_exception": _raise_exception,
            "strftime_now": self.strftime_now,
        }

    # What templates call.

    def strftime_now(self, form: str) -> str:
        """The present date and time, formatted."""
        if len(form) > 200:
            raise TemplateLimit("too long a date format")
        return self._now().strftime(form)

    def to_json(
        self,
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """json.dumps with Hugging Face's defaults, piece by piece so that its size is known in time."""
        if isinstance(indent, int) and indent > 64:
            raise TemplateLimit("too wide an indent")
        if separators is not None:
            separators = (separators[0], separators[1])
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
            default=self._json_list,
        )
        parts = []
        for part in encoder.iterencode(value):
            self.budget.grow(len(part))
            parts.append(part)
        return "".join(parts)

    def _json_list(self, value: object) -> object:
        """What `map` and `select` give counts as a list."""
        if isinstance(value, Iterator):
            return self.budget.sized(value)
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")

    def from_json(self, text: str) -> object:
        """json.loads."""
        self.budget.grow(len(text))
        return json.loads(text)

    # What the rewritten template calls.

    def step(self) -> str:
        """One turn of a loop or one call of a macro."""
        self.budget.spend()
        return ""

    def printed(self, value: object) -> object:
        """An expression is about to be printed."""
        return self.budget.text_of(value)

    def literal_text(self, n_chars: int) -> str:
        """Text of the template itself is about to be printed."""
        self.budget.grow(n_chars)
        return ""

    def contained(self, value: object) -> object:
        """A container has been written out in the template."""
        self.budget.pay_for_tree(value)
        return value

    def concatenated(self, *values: object) -> str:
        """`a ~ b ~ c`."""
        return "".join([self.budget.text_of(value) for value in values])

    # What jinja2 calls.

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        _Rewriter().visit(template)
        return template

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Methods of text and containers by list; data of everything else that the sandbox allows."""
        if isinstance(obj, str):
            return attr in _TEXT_METHODS
        if isinstance(obj, dict | list | tuple):
            return attr in _CONTAINER_METHODS
        if isinstance(obj, int | float | bytes | set | frozenset | range):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format`, as the sandbox lets it be, without wide fields."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text = str(value.__self__)

        def priced(*args: Any, **kwargs: Any) -> str:
            self._check_format(text)
            self.budget.grow(len(text))
            for argument in (*args, *kwargs.values()):
                self.budget.text_of(argument)
            return wrapped(*args, **kwargs)

        return priced

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call pays; calls that make text or containers pay for these."""
        self.budget.spend()
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str):
            args = self._priced_method(owner, name, args)
        elif isinstance(owner, list | dict) and name in ("append", "extend", "insert", "setdefault", "update"):
            self.budget.pay_for_tree([*args, *kwargs.values()])
        elif isinstance(owner, list | dict) and name == "copy":
            self.budget.pay_for_tree(owner)
        elif obj is dict:
            self.budget.pay_for_tree([*args, kwargs])
        result = super().call(context, obj, *args, **kwargs)
        if isinstance(result, str):
            self.budget.grow(len(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator, after its result has been paid for."""
        if operator == "*":
            self._pay_for_product(left, right)
        elif operator == "**":
            if abs(left) > 1 and abs(right) > MAX_BITS / max(1, int(abs(left)).bit_length()):
                raise TemplateLimit("too large a number")
        elif operator == "%" and isinstance(left, str):
            self._check_format(left)
            self.budget.grow(
                len(left) + sum(map(len, map(self.budget.text_of, right if isinstance(right, tuple) else (right,))))
            )
        elif operator == "+":
            if isinstance(left, str) and isinstance(right, str):
                self.budget.grow(len(left) + len(right))
            elif isinstance(left, list | tuple):
                self.budget.pay_for_tree(left)
                self.budget.pay_for_tree(right)
        return super().call_binop(context, operator, left, right)

    def _pay_for_product(self, left: Any, right: Any) -> None:
        for value, times in ((left, right), (right, left)):
            if isinstance(value, str) and isinstance(times, int):
                self.budget.grow(len(value) * max(times, 0))
            elif isinstance(value, list | tuple) and isinstance(times, int):
                self.budget.spend(len(value) * max(times, 0))
                self.budget.pay_for_tree([value] * max(times, 0))
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_BITS:
            raise TemplateLimit("too large a number")

    def _priced_method(self, text: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call `text.name` with, after paying for what it will make."""
        self.budget.grow(len(text))
        if name == "replace" and len(args) >= 2:
            self._pay_for_replace(text, *args[:2])
        elif name == "join" and args:
            values = self.budget.sized(args[0])
            self.budget.grow(sum(len(value) + len(text) for value in values if isinstance(value, str)))
            return (values, *args[1:])
        return args

    def _pay_for_replace(self, text: str, old: object, new: object) -> None:
        if isinstance(old, str) and isinstance(new, str):
            self.budget.grow(len(text) + (text.count(old) + 1) * len(new))

    def _check_format(self, text: str) -> None:
        if _WIDE_FORMAT.search(text):
            raise TemplateLimit("too wide a format")

    def _priced(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The filter `function`, paying for what goes in and what comes out."""
        at = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def priced(*args: Any, **kwargs: Any) -> Any:
            value = args[at]
            self._pay_for_filter(name, value, args[at + 1 :], kwargs)
            if isinstance(value, Iterator):
                args = (*args[:at], self.budget.counted(value), *args[at + 1 :])
            result = function(*args, **kwargs)
            if isinstance(result, str):
                self.budget.grow(len(result))
            return self.budget.counted(result) if isinstance(result, Iterator) else result

        return priced

    def _pay_for_filter(self, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.budget.spend()
        if isinstance(value, str):
            self.budget.grow(len(value))
        elif isinstance(value, range):
            self.budget.spend(len(value))
        elif not isinstance(value, Iterator | Undefined) and name not in (
            "length",
            "count",
            "default",
            "d",
            "first",
            "last",
        ):
            self.budget.pay_for_tree(value)
        if name == "replace" and len(args) >= 2:
            self._pay_for_replace(str(value), *args[:2])
        elif name == "join" and isinstance(value, list | tuple):
            between = args[0] if args else kwargs.get("d", "")
            self.budget.grow(len(value) * len(str(between)) + sum(len(v) for v in value if isinstance(v, str)))
        elif name == "indent":
            width = args[0] if args else kwargs.get("width", 4)
            self.budget.grow(str(value).count("\n") * (len(width) if isinstance(width, str) else abs(int(width))))
        elif name == "format":
            self._check_format(str(value))


class _Rewriter:
    """Puts the prices into a parsed template, in place."""

    def visit(self, node: nodes.Node) -> nodes.Node:
        """`node` with its children rewritten; the node to put in its place."""
        for field, value in node.iter_fields():
            if isinstance(value, list):
                value[:] = [self.visit(item) if isinstance(item, nodes.Node) else item for item in value]
            elif isinstance(value, nodes.Node):
                setattr(node, field, self.visit(value))
        return self._rewritten(node)

    def _rewritten(self, node: nodes.Node) -> nodes.Node:
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
            node.body.insert(0, _statement("step", [], node))
        elif isinstance(node, nodes.Concat):
            return _call("concatenated", node.nodes, node)
        elif isinstance(node, nodes.List | nodes.Dict) or (isinstance(node, nodes.Tuple) and node.ctx == "load"):
            return _call("contained", [node], node)
        elif isinstance(node, nodes.Output):
            n_chars = sum(len(part.data) for part in node.nodes if isinstance(part, nodes.TemplateData))
            if n_chars:
                price = _call("literal_text", [nodes.Const(n_chars, lineno=node.lineno)], node)
                node.nodes.insert(0, price)
        return node


def _call(name: str, args: Iterable[nodes.Node], at: nodes.Node) -> nodes.Call:
    """`environment.<name>(*args)`, in the place of `at`."""
    function = nodes.EnvironmentAttribute(name, lineno=at.lineno)
    call = nodes.Call(function, list(args), [], None, None, lineno=at.lineno)
    _adopt(call, at)
    return call


def _statement(name: str, args: Iterable[nodes.Node], at: nodes.Node) -> nodes.ExprStmt:
    statement = nodes.ExprStmt(_call(name, args, at), lineno=at.lineno)
    _adopt(statement, at)
    return statement


def _adopt(node: nodes.Node, at: nodes.Node) -> None:
    assert at.environment is not None, "parsed nodes know their environment"
    node.set_environment(at.environment)


def _raise_exception(message: object) -> None:
    raise RaisedByTemplate(str(message))


def _bounded_range(*args: int) -> range:
    found = range(*args)
    if len(found) > MAX_RANGE:
        raise TemplateLimit(f"a range of more than {MAX_RANGE} numbers")
    return found


__all__ = ["RaisedByTemplate", "SecurityError", "TemplateEnvironment"]
