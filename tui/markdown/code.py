"""Source text -> rows with the names of their colours. Pygments is loaded with the first code block."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from localinfer.tui.markdown.rows import Row, Styles

MAX_HIGHLIGHT_CHARS = 200_000
_TAB = "    "


@lru_cache(maxsize=16)  # while a block streams, all but its last line is asked for again and again
def code_rows(code: str, language: str) -> list[Row]:
    """One row a line, tabs expanded, nothing wrapped. An unknown language is plain."""
    lexer = _lexer(language.split()[0].lower()) if language.split() else None
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


def warm_up() -> None:
    """Load what the first code block needs (0.1 s), so that it does not stop the stream."""
    code_rows("x = 1", "python")


@lru_cache(maxsize=32)
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


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
