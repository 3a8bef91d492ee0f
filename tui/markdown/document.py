"""MarkdownDocument: text comes in pieces, rows come out, and a piece costs time by its own length.

All but the last block are settled: their rows are kept. Only the source from the last block on is parsed again. A list
settles item by item and a code block by lots of lines, so neither makes its end dear; when a code block ends it is
coloured once more as a whole. `finish` parses everything again where only that gives the right picture.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from localinfer.records import dataclass
from localinfer.tui.markdown.blocks import blank_between, block_rows, fence_rows, item_rows, parse
from localinfer.tui.markdown.code import colours_ready
from localinfer.tui.markdown.rows import Row, visible

SETTLE_CODE_LINES = 8
_REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]+\]:", re.MULTILINE)


@dataclass(frozen=True)
class _Settled:
    """A block that will not change; `gap` says whether an empty row stands before it."""

    render: Callable[[int], list[Row]]
    gap: bool


@dataclass(frozen=True)
class _OpenCode:
    """Where a code block that is settled in parts began: in the blocks, in the rows; and its lines so far."""

    index: int
    row: int
    gap: bool
    lines: list[str]


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
        self._code: _OpenCode | None = None  # the tail begins inside a code block whose start is settled

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
        self._render_tail(self._settle())

    def finish(self) -> None:
        """The text is complete: a code block that was left open ends, reference links find what they refer to."""
        if self._code is not None and (nodes := parse(self._tail)):
            self._end_code(nodes[0])
            self._cut_tail(nodes[1].map[0] if len(nodes) > 1 else self._tail.count("\n") + 1)
            self._render_tail(nodes[1:])
        if _REFERENCE.search(self.source):
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
        self._render_tail(parse(self._tail))

    def _reset(self) -> None:
        self._settled, self.rows, self._n_settled_rows = [], [], 0
        self._tail, self._gap, self._code = "", False, None

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

    def _settle(self) -> list[Any]:
        """Move what cannot change any more out of the tail; the nodes of what remains."""
        nodes = parse(self._tail)
        if not nodes or "\n" not in self._tail:
            return nodes
        for index, node in enumerate(nodes[:-1]):
            if index == 0 and self._code is not None:
                self._end_code(node)
            else:
                self._add_settled(_renderer(node))
        if len(nodes) > 1:
            self._cut_tail(nodes[-1].map[0])
            nodes = parse(self._tail)
        last = nodes[-1]
        if last.type in ("bullet_list", "ordered_list"):
            settled = self._settle_items(last)
        else:
            settled = last.type == "fence" and self._settle_code(last)
        return parse(self._tail) if settled else nodes

    def _settle_items(self, node: Any) -> bool:
        items = node.children
        if len(items) < 2:
            return False
        for index, item in enumerate(items[:-1]):
            self._add_settled(_item_renderer(node, item, index))
            self._gap = blank_between(item, items[index + 1])
        self._cut_tail(items[-1].map[0])
        return True

    def _settle_code(self, node: Any) -> bool:
        lines = self._tail.split("\n")
        opening = lines[node.map[0]]
        n_body = node.content.count("\n")
        if n_body < 2 * SETTLE_CODE_LINES or lines[-1].strip().startswith(node.markup):
            return False
        body = lines[node.map[0] + 1 :]
        if self._code is None:
            self._code = _OpenCode(len(self._settled), self._n_settled_rows, self._gap, [])
        part, rest = body[:SETTLE_CODE_LINES], body[SETTLE_CODE_LINES:]
        self._add_settled(_part_renderer("\n".join(part), node.info, first=not self._code.lines))
        self._code.lines.extend(part)
        self._gap = False
        self._tail = "\n".join([opening, *rest])
        return True

    def _end_code(self, node: Any) -> None:
        """Put the whole code block in the place of its parts; `node` holds the last of it."""
        code = self._code
        assert code is not None
        self._code = None
        del self._settled[code.index :], self.rows[code.row :]
        self._n_settled_rows, self._gap = code.row, code.gap
        self._add_settled(_code_renderer("\n".join([*code.lines, node.content.rstrip("\n")]), node.info, first=True))

    def _cut_tail(self, line: int) -> None:
        self._tail = "\n".join(self._tail.split("\n")[line:])

    def _render_tail(self, nodes: list[Any]) -> None:
        del self.rows[self._n_settled_rows :]
        gap = self._gap
        for index, node in enumerate(nodes):
            self._append(_Settled(self._tail_renderer(node, index), gap))
            gap = True

    def _tail_renderer(self, node: Any, index: int) -> Callable[[int], list[Row]]:
        """As `_renderer`, but code that goes on shows no second label, and only its last line is coloured anew."""
        if node.type != "fence":
            return _renderer(node)
        first = self._code is None or index > 0
        done, _, last = node.content.rstrip("\n").rpartition("\n")
        before = _part_renderer(done, node.info, first) if done else (lambda width: [])
        end = _part_renderer(last, node.info, first and not done)
        return lambda width: [*before(width), *end(width)]


def _renderer(node: Any) -> Callable[[int], list[Row]]:
    return lambda width: block_rows(node, width)


def _code_renderer(code: str, language: str, first: bool) -> Callable[[int], list[Row]]:
    return lambda width: fence_rows(code, language, width, first)


def _part_renderer(code: str, language: str, first: bool) -> Callable[[int], list[Row]]:
    """Part of a code block that is still open: plain until its colours are there; its end renders it as a whole."""
    known = not code or colours_ready(language)
    return lambda width: fence_rows(code, language, width, first, plain=not known)


def _item_renderer(node: Any, item: Any, index: int) -> Callable[[int], list[Row]]:
    """One item of a list as a block of its own."""
    start = int(node.attrs.get("start", 1)) + index if node.type == "ordered_list" else None
    return lambda width: item_rows(item, width, start)
