"""Source text -> rows with the names of their colours. Pygments is loaded with the first code block.

What knows a language takes 5 to 150 ms to import, which would hold up keys while an answer streams: `colours_ready`
imports it in a thread, and the code is plain until then.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from localinfer.tui.markdown.rows import Row, Styles

MAX_HIGHLIGHT_CHARS = 200_000
_TAB = "    "


@lru_cache(maxsize=16)  # while a block streams, all but its last line is asked for again and again
def code_rows(code: str, language: str) -> list[Row]:
    """One row a line, tabs expanded, nothing wrapped. An unknown language is plain."""
    name = _name(language)
    lexer = _lexer(name) if code and name else None
    if lexer is None or len(code) > MAX_HIGHLIGHT_CHARS:
        return [[(line.replace("\t", _TAB), ("code",))] for line in code.split("\n")]
    rows: list[Row] = [[]]
    for token_type, text in lexer.get_tokens(code):
        styles = _styles(token_type)
        for index, part in enumerate(text.split("\n")):
            if index:
                rows.append([])
            if part:
                rows[-1].append((part.replace("\t", _TAB), styles))
    return rows[: code.count("\n") + 1]  # a lexer ends its last line


def warm_up_colours() -> None:
    """Load what the first code block needs (0.1 s), so that it does not stop the stream."""
    _fetch("python")


def colours_ready(language: str) -> bool:
    """Whether `code_rows` will not have to wait for this language; where it would, what it needs is on its way."""
    name = _name(language)
    if name in _arrived:
        return True
    if name not in _asked_for:
        _asked_for.add(name)
        threading.Thread(target=_fetch, args=(name,), daemon=True).start()
    return False


_asked_for: set[str] = set()
_arrived: set[str] = {""}


def _fetch(name: str) -> None:
    _lexer(name)
    _arrived.add(name)


def _name(language: str) -> str:
    """The language of a fence's info string: `Python title=x` -> `python`."""
    words = language.split()
    return words[0].lower() if words else ""


@lru_cache(maxsize=256)
def _lexer(name: str) -> Any:
    full_name = _full_names().get(name)
    if full_name is None:
        return None
    from pygments.lexers import find_lexer_class

    return find_lexer_class(full_name)(stripnl=False, ensurenl=False)


@lru_cache(maxsize=1)
def _full_names() -> dict[str, str]:
    """Pygments' own languages; one that it does not know makes its search look through every installed package."""
    from pygments.lexers import get_all_lexers

    return {alias: name for name, aliases, *_ in get_all_lexers(plugins=False) for alias in aliases}


@lru_cache(maxsize=512)
def _styles(token_type: Any) -> Styles:
    from pygments.token import Comment, Error, Generic, Keyword, Literal, Name, Operator

    table = (
        (Comment, "comment"), (Keyword, "keyword"), (Operator.Word, "keyword"), (Literal.String, "string"),
        (Literal.Number, "number"), (Name.Function, "name"), (Name.Class, "name"), (Name.Decorator, "name"),
        (Name.Tag, "name"), (Name.Attribute, "number"), (Name.Builtin, "builtin"), (Name.Exception, "builtin"),
        (Generic.Deleted, "deleted"), (Generic.Inserted, "string"), (Generic.Heading, "name"), (Error, ""),
    )  # fmt: skip
    kind = next((name for parent, name in table if token_type in parent), "")
    return ("code", f"code-{kind}") if kind else ("code",)
