"""TreePanel: the tree of a conversation beside it. Straight runs stay in one column; only branches are indented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localinfer.history import ROOT, Conversation
from localinfer.tui.markdown.rows import visible

LABEL_CHARS = 160  # more than the panel ever shows: what is cut is cut by it, with an ellipsis
_MARKS = re.compile(r"\*\*|`+|^[#>+-]+\s+", re.MULTILINE)  # of Markdown: here only the words count


def tree_rows(conversation: Conversation) -> Iterator[tuple[int, str, str]]:
    """(message id, what to draw before it, its first words), depth first. Iterative: a chat may be 10,000 deep."""
    roots = conversation.children[ROOT]
    stack = [(child, "", "" if len(roots) == 1 else "├ ") for child in reversed(roots)]
    while stack:
        message_id, indent, mark = stack.pop()
        yield message_id, indent + mark, _first_words(conversation, message_id)
        children = conversation.children[message_id]
        below = indent + {"": "", "├ ": "│ ", "└ ": "  "}[mark]
        marks = [""] if len(children) == 1 else ["├ "] * (len(children) - 1) + ["└ "]
        stack += reversed([(child, below, mark) for child, mark in zip(children, marks, strict=False)])


def _first_words(conversation: Conversation, message_id: int) -> str:
    message = conversation.messages[message_id]
    text = " ".join(_MARKS.sub("", visible(message.text[: 4 * LABEL_CHARS])).split())[:LABEL_CHARS]
    return ("› " if message.role == "user" else "") + (text or f"({message.state or 'empty'})")


class TreePanel(OptionList):
    """Enter shows the branch through a message."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "show this branch", key_display="⏎"),
        Binding("escape", "leave", "close"),
    ]

    class Chosen(Message):
        def __init__(self, message_id: int) -> None:
            super().__init__()
            self.message_id = message_id

    class Left(Message):
        """The panel is to be closed."""

    def __init__(self) -> None:
        super().__init__(compact=True, id="tree")

    def show(self, conversation: Conversation) -> None:
        on_path = {message.id for message in conversation.path()}
        options = []
        for message_id, before, words in tree_rows(conversation):
            label = Content.assemble((before, "$muted"), (words, "" if message_id in on_path else "$muted"))
            options.append(Option(label, str(message_id)))
        self.clear_options()
        self.add_options(options)
        leaf = str(conversation.leaf)
        self.highlighted = next((i for i, option in enumerate(options) if option.id == leaf), None)
        self.border_title, self.border_subtitle = "branches", "⏎ shows it · Esc closes"

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(int(event.option.id or ROOT)))

    def action_leave(self) -> None:
        self.post_message(self.Left())
