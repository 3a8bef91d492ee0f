"""markdown-it's syntax tree -> rows. One function a block type; inline text becomes runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from rich.cells import cell_len, chop_cells

from localinfer.tui.markdown.code import code_rows, warm_up_colours
from localinfer.tui.markdown.rows import Row, Run, Styles, indented, wrap
from localinfer.tui.markdown.table import table_rows

BULLETS = ("•", "◦", "▪")
MIN_WIDTH = 4


@lru_cache(maxsize=1)
def _parser() -> Any:
    from markdown_it import MarkdownIt

    # HTML stays text; the nesting limit bounds what a hostile answer can cost
    return MarkdownIt("commonmark", {"html": False, "maxNesting": 12}).enable(["table", "strikethrough"])


def parse(source: str) -> list[Any]:
    """The top-level nodes (markdown_it.tree.SyntaxTreeNode) of a document."""
    from markdown_it.tree import SyntaxTreeNode

    return list(SyntaxTreeNode(_parser().parse(source)).children)


def warm_up() -> None:
    """Load what answers need (0.2 s of a core): an engine that writes would miss the core, and a key would wait."""
    warm_up_colours()
    stack(parse("- `x`\n\n> *x*\n\n```python\nx = 1\n```"), 80)


def block_rows(node: Any, width: int, depth: int = 0) -> list[Row]:
    """The rows of one block, without the empty row that parts it from the next."""
    width = max(width, MIN_WIDTH)
    kind = node.type
    if kind == "paragraph":
        return wrap(inline_runs(node), width)
    if kind == "heading":
        return _heading(node, width)
    if kind in ("fence", "code_block"):
        return fence_rows(node.content.rstrip("\n"), node.info if kind == "fence" else "", width)
    if kind in ("bullet_list", "ordered_list"):
        return list_rows(node, width, depth)
    if kind == "blockquote":
        bar: Run = ("▎ ", ("quote-bar",))
        quoted = stack(node.children, width - 2, depth + 1)
        return list(indented(([(t, ("quote", *s)) for t, s in row] for row in quoted), bar, bar))
    if kind == "table":
        return _table(node, width)
    if kind == "hr":
        return [[("─" * width, ("rule",))]]
    return wrap([(node.content or "", ())], width)  # a block type from a later parser: its source


def stack(nodes: Iterable[Any], width: int, depth: int = 0) -> list[Row]:
    """Blocks under each other, an empty row between them."""
    rows: list[Row] = []
    for node in nodes:
        if rows:
            rows.append([])
        rows += block_rows(node, width, depth)
    return rows


def fence_rows(code: str, language: str, width: int, first: bool = True, plain: bool = False) -> list[Row]:
    """A code block on its own ground: lines cut into pieces of `width` (copying gives back the source).

    first: with the language above it; plain: without colours."""
    label = language.split()[0] if language.split() else ""
    rows: list[Row] = [_code_row([(label, ("code", "code-label"))], width)] if first and label else []
    for line in code_rows(code, "" if plain else language):
        rows += [_code_row(piece, width) for piece in _cut(line, width - 2)]
    return rows


def _code_row(row: Row, width: int) -> Row:
    used = 1 + sum(cell_len(text) for text, _ in row)
    return [(" ", ("code",)), *row, (" " * max(0, width - used), ("code",))]


def _cut(line: Row, width: int) -> list[Row]:
    """Cut where the row is full, whatever stands there: code must not lose its spaces."""
    rows: list[Row] = [[]]
    used = 0
    for text, styles in line:
        while text:
            room = width - used
            head = text if cell_len(text) <= room else (chop_cells(text, room)[0] if room > 0 else "")
            if not head or cell_len(head) > room:
                if not rows[-1]:  # not even one character fits: let it stick out
                    head = text[0]
                else:
                    rows.append([])
                    used = 0
                    continue
            rows[-1].append((head, styles))
            used, text = used + cell_len(head), text[len(head) :]
    return rows


def _heading(node: Any, width: int) -> list[Row]:
    level = int(node.tag[1])
    return wrap([(text, (f"h{min(level, 4)}", *styles)) for text, styles in inline_runs(node)], width)


def list_rows(node: Any, width: int, depth: int = 0) -> list[Row]:
    start = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
    rows: list[Row] = []
    for index, item in enumerate(node.children):
        if index and blank_between(node.children[index - 1], item):
            rows.append([])
        rows += item_rows(item, width, None if start is None else start + index, depth)
    return rows


def item_rows(item: Any, width: int, number: int | None, depth: int = 0) -> list[Row]:
    """One list item, with a bullet or its number (set right for two digits, so that a long list stays in line)."""
    marker = f"{BULLETS[depth % 3]} " if number is None else f"{number}.".rjust(3) + " "
    body: list[Row] = []
    for child in item.children:
        if body and not child.type.endswith("_list"):
            body.append([])
        body += block_rows(child, width - len(marker), depth + 1)
    return list(indented(body or [[]], (marker, ("bullet",)), (" " * len(marker), ())))


def blank_between(node: Any, following: Any) -> bool:
    """Whether an empty line of source parts two neighbours. CommonMark's looseness would let the end of a list
    change how its beginning looks, which a stream cannot afford; this asks only the two."""
    while node.children and node.children[-1].map:
        node = node.children[-1]
    return bool(node.map[1] < following.map[0])


def _table(node: Any, width: int) -> list[Row]:
    lines = [line for part in node.children for line in part.children]
    cells = [[inline_runs(cell) for cell in line.children] for line in lines]
    aligns = [str(cell.attrs.get("style", "")).removeprefix("text-align:") or "left" for cell in lines[0].children]
    return table_rows(cells[0], cells[1:], aligns, width)


def inline_runs(node: Any) -> list[Run]:
    """The text inside a paragraph, heading or cell."""
    runs: list[Run] = []
    for child in node.children:
        _inline(child, (), runs)
    return runs


_MARKS = {"em": "em", "strong": "strong", "s": "strike", "link": "link"}


def _inline(node: Any, styles: Styles, runs: list[Run]) -> None:
    kind = node.type
    if kind == "softbreak":
        runs.append((" ", styles))
    elif kind == "hardbreak":
        runs.append(("\n", styles))
    elif kind == "code_inline":
        runs.append((node.content, (*styles, "code-inline")))
    elif kind == "image":
        runs.append((f"[image: {node.content or node.attrs.get('src', '')}]", (*styles, "link")))
    elif node.children:
        inner = (*styles, _MARKS[kind]) if kind in _MARKS else styles
        for child in node.children:
            _inline(child, inner, runs)
        if kind == "link":
            _link_target(node, styles, runs)
    elif node.content:
        runs.append((node.content, styles))


def _link_target(node: Any, styles: Styles, runs: list[Run]) -> None:
    """Say where a link leads: in a terminal that is the only way to see it before following it."""
    target = str(node.attrs.get("href", ""))
    shown = "".join(child.content for child in node.children)
    if target and target != shown:
        runs.append((f" ({target})", (*styles, "link-target")))
