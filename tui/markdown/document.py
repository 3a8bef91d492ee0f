"""MarkdownDocument: text comes in pieces, rows come out, and a piece costs time by its own length.

All but the last block are settled: their rows are kept. Only the source from the last block on is parsed again. A list
settles item by item and a code block by lots of lines, so neither makes its end dear. `finish` parses the whole once
more where that matters: for reference links, and for code whose colours depend on what stood far above.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from localinfer.tui.markdown.blocks import blank_between, block_rows, fence_rows, item_rows, parse
from localinfer.tui.markdown.rows import Row, visible

SETTLE_CODE_LINES = 48
_REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]+\]:", re.MULTILINE)


@dataclass(frozen=True)
class _Settled:
    """A block that will not change; `gap` says whether an empty row stands before it."""

    render: Callable[[int], list[Row]]
    gap: bool


class MarkdownDocument:
    """`rows` holds the rendering at `width`; `source` all text fed so far."""

    def __init__(self, width: int = 80) -> None:
        self.width = width
        self.rows: list[Row] = []
        self._parts: list[str] = []
        self._settled: list[_Settled] = []
        self._n_settled_rows = 0
        self._tail = ""  # source from the last block on
        self._gap = False  # whether the tail's first block stands apart from the one before
        self._code_part = False  # the tail begins inside a code block whose start is settled
        self._code_split = False  # some code block was settled in parts

    @property
    def source(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def feed(self, text: str) -> None:
        """Add text at the end and render what changed."""
        text = visible(text)
        self._parts.append(text)
        self._tail += text
        self._settle()
        self._render_tail()

    def finish(self) -> None:
        """The text is complete: settle it, once more from the start where only the whole gives the right picture."""
        if self._code_split or _REFERENCE.search(self.source):
            self._parse_all()

    def _parse_all(self) -> None:
        source = self.source
        self._reset()
        nodes = parse(source)
        self._settled = [_Settled(_renderer(node), index > 0) for index, node in enumerate(nodes)]
        self._gap = bool(nodes)
        self.resize(self.width)

    def set_source(self, text: str) -> None:
        """Start over with a complete text."""
        self._parts = [visible(text)]
        self._parse_all()

    def resize(self, width: int) -> None:
        self.width = width
        self.rows = []
        for block in self._settled:
            self._append(block)
        self._n_settled_rows = len(self.rows)
        self._render_tail()

    def _reset(self) -> None:
        self._settled, self.rows, self._n_settled_rows = [], [], 0
        self._tail, self._gap, self._code_part, self._code_split = "", False, False, False

    def _append(self, block: _Settled) -> None:
        if block.gap and self.rows:
            self.rows.append([])
        self.rows += block.render(self.width)

    def _add_settled(self, render: Callable[[int], list[Row]]) -> None:
        del self.rows[self._n_settled_rows :]
        block = _Settled(render, self._gap)
        self._settled.append(block)
        self._append(block)
        self._n_settled_rows = len(self.rows)
        self._gap = True

    def _settle(self) -> None:
        """Move what cannot change any more out of the tail."""
        if "\n" not in self._tail:
            return
        nodes = parse(self._tail)
        if not nodes:
            return
        for index, node in enumerate(nodes[:-1]):
            self._add_settled(self._renderer_of(node, index))
        last = nodes[-1]
        if len(nodes) > 1:
            self._cut_tail(last.map[0])
            last = parse(self._tail)[-1]
        if last.type in ("bullet_list", "ordered_list"):
            self._settle_items(last)
        elif last.type == "fence":
            self._settle_code(last)

    def _renderer_of(self, node: Any, index: int) -> Callable[[int], list[Row]]:
        """As `_renderer`, but the rest of a code block shows no second label."""
        if index == 0 and self._code_part:
            self._code_part = False
            return _code_renderer(node.content.rstrip("\n"), node.info, first=False)
        return _renderer(node)

    def _settle_items(self, node: Any) -> None:
        items = node.children
        if len(items) < 2:
            return
        for index, item in enumerate(items[:-1]):
            self._add_settled(_item_renderer(node, item, index))
            self._gap = blank_between(item, items[index + 1])
        self._cut_tail(items[-1].map[0])

    def _settle_code(self, node: Any) -> None:
        lines = self._tail.split("\n")
        opening = lines[node.map[0]]
        n_body = node.content.count("\n")
        if n_body < 2 * SETTLE_CODE_LINES or lines[-1].strip().startswith(node.markup):
            return
        body = lines[node.map[0] + 1 :]
        self._add_settled(_code_renderer("\n".join(body[:SETTLE_CODE_LINES]), node.info, not self._code_part))
        self._gap, self._code_part, self._code_split = False, True, True
        self._tail = "\n".join([opening, *body[SETTLE_CODE_LINES:]])

    def _cut_tail(self, line: int) -> None:
        self._tail = "\n".join(self._tail.split("\n")[line:])

    def _render_tail(self) -> None:
        del self.rows[self._n_settled_rows :]
        if not self._tail.strip():
            return
        gap, code_part = self._gap, self._code_part
        for index, node in enumerate(parse(self._tail)):
            self._append(_Settled(self._renderer_of(node, index), gap))
            gap = True
        self._code_part = code_part


def _renderer(node: Any) -> Callable[[int], list[Row]]:
    return lambda width: block_rows(node, width)


def _code_renderer(code: str, language: str, first: bool) -> Callable[[int], list[Row]]:
    return lambda width: fence_rows(code, language, width, first)


def _item_renderer(node: Any, item: Any, index: int) -> Callable[[int], list[Row]]:
    """One item of a list as a block of its own."""
    start = int(node.attrs.get("start", 1)) + index if node.type == "ordered_list" else None
    return lambda width: item_rows(item, width, start)
