"""ModelsScreen: the models on this machine, whether each fits, and what can be done with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, set_cell_size
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, ProgressBar, Static
from textual.widgets.option_list import Option

from localinfer.errors import LocalinferError
from localinfer.tui.hints import complaint
from localinfer.tui.markdown.rows import visible
from localinfer.tui.models import (
    ModelRow,
    PullStopped,
    add_plan,
    delete_model,
    delete_question,
    delete_refusal,
    details,
    local_models,
    progress_text,
    pull,
    unreadable_stores,
)
from localinfer.tui.screens.ask_text import AskTextScreen
from localinfer.tui.screens.confirm import ConfirmScreen
from localinfer.tui.widgets.key_bar import KeyBar
from localinfer.units import format_bytes, short_bytes

if TYPE_CHECKING:
    from localinfer.tui.app import LocalinferApp

VERDICTS = {"fits": ("fits", "$success"), "tight": ("tight", "$warning"), "pages": ("pages", "$warning"),
            "does_not_fit": ("too large", "$error"), "unknown": ("unknown", "$muted"), "": ("…", "$muted")}  # fmt: skip


NONE_YET = "No model yet: p and Enter pull the demo model (90 MB), o opens a .gguf file that you have."
MAX_CELLS = 130  # of a line: what belongs together stands together
SAID_CELLS, NARROW_SAID_CELLS = 14, 9  # of the last column


class ModelsScreen(Screen[ModelRow | None]):
    """Dismissed with the model to load, or None."""

    TITLE = "Models"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "load", "load", key_display="⏎", priority=True),
        Binding("escape", "close", "back"),
        Binding("s", "stop_pull", "pause"),
        Binding("f2", "plan", "plan"),
        Binding("i", "details", "details"),
        Binding("o", "open", "open"),
        Binding("p", "pull", "pull"),
        Binding("d,delete", "delete", "delete", key_display="d"),
        Binding("f5", "reload", "refresh", show=False),
    ]
    app: LocalinferApp

    def __init__(self) -> None:
        super().__init__(id="models")
        self.rows: list[ModelRow] = []
        self.pulling = ""  # the reference of a running download
        self._stop = False

    def compose(self) -> ComposeResult:
        yield Static("Models on this machine", classes="screen-title")
        yield Static("", id="models-hint")
        yield Static("", id="models-head")
        yield OptionList(compact=True)
        yield Static("", id="models-detail")
        with Vertical(id="pull-area"):
            yield Static("", id="pull-text")
            yield ProgressBar(show_eta=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#pull-area").display = False
        self.action_reload()

    # the list

    @work(exclusive=True, group="list")
    async def action_reload(self) -> None:
        """Names at once; then the plans, one after the other, beside the screen."""
        try:
            self.rows = await asyncio.to_thread(local_models, self.app.model_path)
            unreadable = await asyncio.to_thread(unreadable_stores)
        except LocalinferError as error:
            self._hint(complaint(error))
            return
        self._show(unreadable)
        for row in self.rows:
            if row.trouble:
                continue
            try:
                add_plan(row, await self.app.bridge.plan(row.path, self.app.options))
            except LocalinferError as error:
                row.trouble = error.message
            self._replace(row)

    def _show(self, unreadable: Sequence[str] = ()) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(self._label(row), row.path) for row in _distinct(self.rows)])
        current = next((i for i, row in enumerate(_distinct(self.rows)) if row.path == self.app.model_path), 0)
        options.highlighted = current if self.rows else None
        options.focus()
        self._hint("\n".join([*unreadable, *([] if self.rows else [NONE_YET])]))
        self.query_one("#models-head").display = bool(self.rows)
        self.refresh_bindings()

    def _replace(self, row: ModelRow) -> None:
        options = self.query_one(OptionList)
        index = next((i for i, option in enumerate(options.options) if option.id == row.path), None)
        if index is not None:
            options.replace_option_prompt_at_index(index, self._label(row))
        if row is self.chosen:
            self._show_detail()

    def _label(self, row: ModelRow) -> Content:
        mark = "● " if row.path == self.app.model_path else "  "
        said = (row.trouble, "$error") if row.trouble else VERDICTS[row.verdict]
        size = short_bytes(row.n_bytes) if self._is_narrow else format_bytes(row.n_bytes)
        facts = self._columns(size, row.quant, _trained(row.ctx_train), row.owner)
        return self._line(mark + visible(row.name), facts, said)

    def _heading(self) -> Content:
        ctx = self.app.options.ctx
        verdict = f"at {_trained(ctx)} context" if ctx and not self._is_narrow else "verdict"
        return self._line("  model", self._columns("size", "type", "trained", "from"), (verdict, ""))

    def _columns(self, size: str, quant: str, trained: str, source: str) -> str:
        """As many as the window has room for beside the name."""
        width = self.size.width
        columns = [f"{size:>8}" if self._is_narrow else f"{size:>10}"]
        if width >= 60:
            columns.append(f"{quant[:7]:<7}")
        if width >= 100:
            columns.append(f"{trained:>7}")
        if width >= 76:
            columns.append(f"{visible(source)[:12]:<12}")
        return "  ".join(columns)

    def _line(self, name: str, facts: str, said: tuple[str, str]) -> Content:
        width = max(20, min(self.size.width, MAX_CELLS) - 6)
        room = width - len(facts) - (NARROW_SAID_CELLS if self._is_narrow else SAID_CELLS) - 4
        line = Content.assemble(set_cell_size(shortened(name, room), room), "  ", (facts, "$muted"), "  ", said)
        return line.truncate(width, ellipsis=True)

    @property
    def _is_narrow(self) -> bool:
        return self.size.width < 60

    def on_resize(self) -> None:
        self.query_one("#models-head", Static).update(self._heading())
        self._show_detail()
        for row in self.rows:
            self._replace(row)

    @on(OptionList.OptionHighlighted)
    def _show_detail(self) -> None:
        """Of the chosen model what its line has no room for."""
        row = self.chosen
        detail = self.query_one("#models-detail", Static)
        detail.display = row is not None
        if row is None:
            return
        trained = f"trained on {row.ctx_train:,}" if row.ctx_train else ""
        facts = " · ".join(filter(None, [row.quant, trained, row.owner, row.trouble]))
        where = [] if self.has_class("-short") else [row.path]
        width = max(10, self.size.width - 4)
        detail.update("\n".join(shortened(visible(line), width) for line in [row.name, facts, *where]))

    def _hint(self, text: str) -> None:
        hint = self.query_one("#models-hint", Static)
        hint.update(Content(text))
        hint.display = bool(text)

    @property
    def chosen(self) -> ModelRow | None:
        option = self.query_one(OptionList).highlighted_option
        return next((row for row in self.rows if option and row.path == option.id), None)

    # what can be done

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that have nothing to act on are not shown."""
        if action in ("load", "plan", "details", "delete"):
            return bool(self.rows)
        if action == "stop_pull":
            return bool(self.pulling)
        return super().check_action(action, parameters)

    @on(OptionList.OptionSelected)
    def action_load(self) -> None:
        row = self.chosen
        if row is None or row.trouble:
            self.notify(f"It cannot be loaded: {row.trouble}." if row else NONE_YET, severity="warning", markup=False)
        elif row.verdict == "does_not_fit":
            self.action_plan()
        else:
            self.dismiss(row)

    def action_open(self) -> None:
        """A model that lies elsewhere, by its path."""
        dialog = AskTextScreen("Open a model file", "", "/path/to/model.gguf")
        self.app.push_screen(dialog, self._open_path)

    def _open_path(self, path: str | None) -> None:
        if path:
            file = Path(path).expanduser()
            self.dismiss(ModelRow(file.stem, str(file), 0, str(file.parent)))

    def action_close(self) -> None:
        self._stop = True
        self.dismiss(None)

    def action_plan(self) -> None:
        row = self.chosen
        if row:
            self.app.show_plan(row.path)

    @work
    async def action_details(self) -> None:
        row = self.chosen
        if row is None:
            return
        try:
            rows = await asyncio.to_thread(details, row.path)
        except LocalinferError as error:
            self.notify(complaint(error), severity="error", markup=False)
            return
        from localinfer.tui.screens.details import DetailsScreen

        self.app.push_screen(DetailsScreen(row.name, rows))

    def action_delete(self) -> None:
        row = self.chosen
        if row is None:
            return
        if not row.deletable:
            self.notify(delete_refusal(row), severity="warning", markup=False)
        elif row.path == self.app.model_path:
            self.notify("It is loaded: choose another model first.", severity="warning")
        else:
            self.app.push_screen(ConfirmScreen(delete_question(row)), lambda yes: self._delete(row) if yes else None)

    def _delete(self, row: ModelRow) -> None:
        try:
            self.notify(f"{row.name} is deleted, {format_bytes(delete_model(row))} freed.", markup=False)
        except LocalinferError as error:
            self.notify(complaint(error), severity="error", markup=False)
        self.action_reload()

    # pulling

    def action_pull(self) -> None:
        if self.pulling:
            self.notify(f"{self.pulling} is being pulled: s pauses it.", markup=False)
            return
        dialog = AskTextScreen("Pull a model", self._unfinished or "demo", "demo or hf:OWNER/REPO[:QUANT]")
        self.app.push_screen(dialog, lambda reference: self._start_pull(reference) if reference else None)

    _unfinished = ""

    def _start_pull(self, reference: str) -> None:
        self.pulling, self._stop = reference, False
        self.query_one("#pull-area").display = True
        self.query_one(ProgressBar).display = True
        self.query_one(ProgressBar).update(total=None, progress=0)
        self._pull_text("looking it up")
        self.refresh_bindings()
        self.run_worker(lambda: self._pull(reference), thread=True, group="pull")

    def _pull(self, reference: str) -> None:
        """In a thread."""
        shown = 0.0

        def progress(done: int, total: int) -> None:
            nonlocal shown
            if self._stop:
                raise PullStopped
            if time.monotonic() - shown > 0.1 or done == total:
                shown = time.monotonic()
                self.app.call_from_thread(self._progress, done, total)

        try:
            pull(reference, progress)
        except PullStopped:
            self.app.call_from_thread(self._pull_over, "", reference)
        except LocalinferError as error:
            self.app.call_from_thread(self._pull_over, complaint(error), reference)
        except OSError as error:
            self.app.call_from_thread(self._pull_over, f"{error.strerror or error}", reference)
        else:
            self.app.call_from_thread(self._pull_over, "", "")

    def _progress(self, done: int, total: int) -> None:
        self.query_one(ProgressBar).update(total=total or None, progress=done)
        self._pull_text(progress_text(done, total) + (", checking it" if done == total else ""))

    def _pull_text(self, text: str) -> None:
        self.query_one("#pull-text", Static).update(Content.assemble(f"{text}  ", (visible(self.pulling), "$muted")))

    def _pull_over(self, said: str, unfinished: str) -> None:
        """said: what went wrong; unfinished: what p can go on with."""
        if not self.is_attached:
            return
        if unfinished:
            self._pull_text("Paused: p goes on." if not said else "Not pulled: p tries again.")
        else:
            self.notify(f"{self.pulling} is here.", markup=False)
            self.query_one("#pull-area").display = False
            self.action_reload()
        if said:
            self.query_one(ProgressBar).display = False  # how far it came is not known here
            self.notify(said, title="Pull", severity="error", markup=False)
        self.pulling, self._unfinished = "", unfinished
        self.refresh_bindings()

    def action_stop_pull(self) -> None:
        self._stop = True


def _distinct(rows: list[ModelRow]) -> list[ModelRow]:
    """One row a path: a list cannot hold the same id twice."""
    return list({row.path: row for row in rows}.values())


def shortened(text: str, cells: int) -> str:
    """A name that is too long, without its middle: models are told apart by how they begin and how they end."""
    if cell_len(text) <= cells:
        return text
    head = max(1, (cells - 1) * 3 // 5)
    tail = text[::-1]
    while cell_len(tail) > max(0, cells - 1 - head):
        tail = tail[:-1]
    return set_cell_size(text, head).rstrip() + "…" + tail[::-1]


def _trained(ctx: int) -> str:
    return "" if not ctx else f"{ctx // 1024}k" if ctx >= 1024 and ctx % 1024 == 0 else str(ctx)
