"""Completion: what is being typed may become a `/` command or an `@` path; the menu offers them, keys choose."""

from __future__ import annotations

from localinfer.tui.attachments import path_being_typed, path_completions
from localinfer.tui.commands import completions
from localinfer.tui.widgets.completion_menu import CompletionMenu
from localinfer.tui.widgets.composer import Composer


class Completion:
    """Between a composer and its menu: neither knows of the other."""

    def __init__(self, composer: Composer, menu: CompletionMenu) -> None:
        self._composer, self.menu = composer, menu

    def show(self) -> None:
        """Offer what fits the text as it is now."""
        self._offer(self._rows())

    def take(self, key: str) -> None:
        """A key of the open menu: up, down, tab, enter, escape."""
        if key in ("up", "down"):
            self.menu.move(-1 if key == "up" else 1)
        elif key == "escape":
            self._offer([])
        elif self.menu.value.startswith("/"):
            self._complete_command(run=key == "enter")
        else:
            self._complete_path()

    def _offer(self, rows: list[tuple[str, str]]) -> None:
        self.menu.rows = rows
        self._composer.menu_open = bool(rows)

    def _rows(self) -> list[tuple[str, str]]:
        text = self._composer.text
        if text.startswith("/"):
            return [(f"/{c.name} {c.argument}".strip(), c.help) for c in completions(text)]
        typed = self._path_typed()
        return [] if typed is None else [("@" + path, "") for path in path_completions(typed)]

    def _path_typed(self) -> str | None:
        row, column = self._composer.cursor_location
        return path_being_typed(self._composer.document.get_line(row)[:column])

    def _complete_command(self, run: bool) -> None:
        name, _, argument = self.menu.value.partition(" ")
        if run and (not argument or self._composer.text == name):
            self._composer.put(name)
            self._composer.action_send()
        else:
            self._composer.put(name + (" " if argument else ""))

    def _complete_path(self) -> None:
        row, column = self._composer.cursor_location
        start = (row, column - len(self._path_typed() or ""))
        path = self.menu.value[1:]
        self._composer.replace(path + ("" if path.endswith("/") else " "), start, (row, column))
