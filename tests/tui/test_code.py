"""Colours of code: their languages are imported beside the stream, never in its way."""

from __future__ import annotations

import threading
import time

from localinfer.tui.markdown import code
from localinfer.tui.markdown.document import MarkdownDocument


def styles(document: MarkdownDocument, word: str) -> set[str]:
    return {style for row in document.rows for text, names in row if word in text for style in names}


def test_a_block_that_streams_does_not_wait_for_its_language(monkeypatch):
    waited, go, real = [], threading.Event(), code._lexer

    def slow(name):
        waited.append(threading.current_thread() is threading.main_thread())
        go.wait(10)
        return real(name)

    monkeypatch.setattr(code, "_lexer", slow)
    monkeypatch.setattr(code, "_arrived", {""})
    monkeypatch.setattr(code, "_asked_for", set())
    code.code_rows.cache_clear()
    document = MarkdownDocument(60)
    for piece in ("```", "ja", "va", "\n", "class A {\n", " int", " x;\n"):
        document.feed(piece)
    assert styles(document, "class") == {"code"}
    assert waited == [False]  # asked for once its name was complete, and not here
    go.set()
    end = time.monotonic() + 10
    while not code.colours_ready("java") and time.monotonic() < end:
        time.sleep(0.01)
    document.feed("}\n")
    assert "code-keyword" in styles(document, "class")
    document.feed("```\n")
    assert "code-keyword" in styles(document, "class")


def test_an_unknown_language_is_plain_and_looked_for_nowhere_else(monkeypatch):
    import pygments.lexers

    monkeypatch.setattr(pygments.lexers, "find_plugin_lexers", lambda: 1 / 0)
    assert code.code_rows("return 1", "nosuchlanguage") == [[("return 1", ("code",))]]
    assert code.code_rows("return 1", "python") != code.code_rows("return 1", "nosuchlanguage")
