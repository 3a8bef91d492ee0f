"""MessageView: one message of a conversation as rows. No widget: the Transcript draws the rows that are in sight."""

from __future__ import annotations

from rich.cells import cell_len

from localinfer.tui.markdown.blocks import parse
from localinfer.tui.markdown.document import MarkdownDocument
from localinfer.tui.markdown.rows import Row, Run, indented, visible, wrap

FOLD_LINES, FOLD_CHARS = 30, 4000  # a message of the user above one of these is folded
SHOWN_LINES, SHOWN_CHARS = 10, 1000  # of a folded one
GUTTER = 2  # cells left of every row: the bar of a user's message, or of the one the cursor is on
_MARKS = {"edited": "edited by you", "cancelled": "stopped", "interrupted": "interrupted", "failed": "failed",
          "max_tokens": "length limit reached", "context_full": "context full"}  # fmt: skip


class MessageView:
    """head (who, which branch), thinking, body, foot. `render(width)` after a change; then `n_rows` and `row(i)`."""

    def __init__(
        self, message_id: int, role: str, name: str, text: str = "", thinking: str = "",
        state: str = "", note: str = "", branch: tuple[int, int] = (1, 1),
    ) -> None:  # fmt: skip
        self.id = message_id
        self.role = role
        self.name = name
        self.state = state
        self.note = note  # after the name: speed, or what is going on
        self.branch = branch
        self.thinking_open = False
        self.unfolded = False  # a long message of the user, whole
        self.thinking_s = 0.0
        self._text = text
        self._thinking = thinking
        self._body: MarkdownDocument | None = None
        self._thoughts: MarkdownDocument | None = None
        self._plain: list[Row] = []
        self._before: list[Row] = []  # rows above the body
        self._after: list[Row] = []
        self._width = 0

    @property
    def streaming(self) -> bool:
        return self.state == "partial"

    @property
    def text(self) -> str:
        return self._body.source if self._body else self._text

    @property
    def thinking(self) -> str:
        return self._thoughts.source if self._thoughts else self._thinking

    @property
    def n_rows(self) -> int:
        return len(self._before) + len(self._body_rows) + len(self._after)

    def row(self, index: int) -> Row:
        if index < len(self._before):
            return self._before[index]
        index -= len(self._before)
        body = self._body_rows
        if index < len(body):
            row = body[index]
            last = self.streaming and index == len(body) - 1
            return [*row, ("▍", ("cursor",))] if last else row
        return self._after[index - len(body)]

    @property
    def _body_rows(self) -> list[Row]:
        return self._body.rows if self._body else self._plain

    def feed(self, answer: str, thinking: str) -> None:
        """Add streamed text. The message must have been rendered once."""
        if thinking:
            self._thoughts = self._thoughts or self._document("", self._width - 2)
            self._thoughts.feed(thinking)
        if answer:
            body = self._body or self._document("", self._width)
            self._body = body
            body.feed(answer)
        self._frame()

    def finish(self, state: str, note: str = "") -> None:
        self.state, self.note = state, note or self.note
        for document in (self._body, self._thoughts):
            if document:
                document.finish()
        self._frame()

    def render(self, width: int) -> None:
        """Lay out for a text width in cells."""
        changed = width != self._width
        self._width = width
        if self.role == "assistant":
            if self._body is None:
                self._body = self._document(self._text, width)
            elif changed:
                self._body.resize(width)
            if self._thinking and self._thoughts is None:
                self._thoughts = self._document(self._thinking, width - 2)
            elif self._thoughts and changed:
                self._thoughts.resize(width - 2)
        else:
            self._plain = self._plain_rows(width)
        self._frame()

    @property
    def is_long(self) -> bool:
        return self.role == "user" and (len(self._text) > FOLD_CHARS or self._text.count("\n") >= FOLD_LINES)

    def _plain_rows(self, width: int) -> list[Row]:
        """A long text by its beginning, and how much there is beyond that: pasted files are not read here."""
        if not self.is_long or self.unfolded:
            return plain_rows(self._text, width)
        shown = "\n".join(self._text[:SHOWN_CHARS].split("\n")[:SHOWN_LINES])
        rest = self._text[len(shown) :]
        n_lines = rest.count("\n")
        more = f"{n_lines:,} more lines" if n_lines else f"{len(rest):,} more characters"
        return [*plain_rows(shown, width), [(f"▸ {more}, t unfolds", ("thinking-head",))]]

    def _document(self, text: str, width: int) -> MarkdownDocument:
        document = MarkdownDocument(max(width, 1))
        if text:
            document.set_source(text)
        return document

    def _frame(self) -> None:
        self._before = [self._head(), *self._thinking_rows()]
        if self.streaming and not self.text and not self.thinking:
            self._before.append([("▍", ("cursor",))])
        mark = _MARKS.get(self.state, "")
        self._after = [[("─ " + mark, ("mark",))]] if mark else []
        self._after.append([])

    def _head(self) -> Row:
        index, count = self.branch
        right = f"‹ {index}/{count} ›" if count > 1 else ""
        name, note = visible(self.name).replace("\n", " "), f"  {self.note}" if self.note else ""
        room = self._width - cell_len(right)
        name = name if cell_len(name) <= room else name[: max(room - 1, 0)] + "…"
        note = note if cell_len(name) + cell_len(note) < room else ""
        gap = max(0, room - cell_len(name) - cell_len(note))
        row: Row = [(name, (f"name-{self.role}",)), (note, ("note",)), (" " * gap, ()), (right, ("branch",))]
        return [run for run in row if run[0]]

    def _thinking_rows(self) -> list[Row]:
        if self._thoughts is None:
            return []
        busy = self.streaming and not self.text
        label = "thinking" if busy else "thought"
        seconds = f" for {self.thinking_s:.0f} s" if self.thinking_s >= 1 else ""
        n_words = len(self.thinking.split())
        sign = "▾" if self.thinking_open else "▸"
        head: Row = [(f"{sign} {label}{seconds}, {n_words} words", ("thinking-head",))]
        if not self.thinking_open:
            return [head, []] if self.text else [head]
        bar: Run = ("│ ", ("thinking-bar",))
        rows = ([(text, ("thinking", *styles)) for text, styles in row] for row in self._thoughts.rows)
        return [head, *indented(rows, bar, bar), []]


def plain_rows(text: str, width: int) -> list[Row]:
    """Text as it was typed: line ends and indentation kept, long lines wrapped under their indentation."""
    rows: list[Row] = []
    for line in visible(text).expandtabs(4).split("\n"):
        body = line.lstrip(" ")
        indent = min(len(line) - len(body), max(width - 8, 0))
        margin: Run = (" " * indent, ())
        rows += indented(wrap([(body, ())], width - indent), margin, margin) if indent else wrap([(body, ())], width)
    return rows


def code_blocks(text: str) -> list[str]:
    """The contents of a message's code blocks, in order, however deep they stand."""
    found: list[str] = []

    def visit(node: object) -> None:
        if node.type in ("fence", "code_block"):  # type: ignore[attr-defined]
            found.append(node.content.rstrip("\n"))  # type: ignore[attr-defined]
        for child in node.children:  # type: ignore[attr-defined]
            visit(child)

    for node in parse(text):
        visit(node)
    return found
