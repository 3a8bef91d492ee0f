"""BenchScreen: speed over context depth, row by row as it is measured, beside an earlier run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from localinfer import paths
from localinfer.tui.bench_runs import BenchRow, SavedRun, command, parse_row, save_run, saved_runs
from localinfer.tui.screens.choose_run import ChooseRunScreen
from localinfer.tui.session import model_name
from localinfer.tui.widgets.bench_plot import BenchPlot
from localinfer.tui.widgets.key_bar import KeyBar

if TYPE_CHECKING:
    from localinfer.tui.app import LocalinferApp

FIXED = 26  # cells of a line beside the KV type, the bar and the change
NARROW = 60  # below that there is no room for bars


NEVER_RUN = (
    "r measures prefill and decode at growing depth of the context, which takes a minute or more. "
    "The model of the chat is closed meanwhile; the next message loads it again."
)


class BenchTable(Widget):
    """One line a row: figures, a bar on the scale of the fastest row of its kind, the change since an earlier run."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "bench--prefill", "bench--decode", "bench--text", "bench--muted", "bench--better", "bench--worse",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[BenchRow] = []
        self.earlier: dict[tuple[str, int, int, str], float] = {}

    def show(self, rows: list[BenchRow], earlier: dict[tuple[str, int, int, str], float]) -> None:
        self.earlier = earlier
        self.rows = sorted(rows, key=lambda row: (row.kind != "decode", row.kv, row.depth))
        self.refresh(layout=True)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self.rows) + 2 if self.rows else 0

    def render(self) -> Text:
        if not self.rows:
            return Text()
        lines = [Text(f"{'kind':<8} {'depth':>6}  {'KV':<{self._kv_cells}} {'tok/s':>8}", self._style("muted"))]
        for previous, row in zip([None, *self.rows], self.rows, strict=False):
            if previous is not None and previous.kind != row.kind:
                lines.append(Text())
            lines.append(self._line(row))
        return Text("\n").join(lines)

    def _line(self, row: BenchRow) -> Text:
        fastest = max(r.tok_s for r in self.rows if r.kind == row.kind)
        room = self.size.width - FIXED - self._kv_cells - 8 if self.size.width >= NARROW else 0
        bar = "  " + "━" * max(1, round(room * row.tok_s / fastest)) if fastest and room > 0 else ""
        line = Text.assemble(
            (f"{row.kind:<8} {row.depth:>6}  {row.kv:<{self._kv_cells}} {row.tok_s:>8.1f}", self._style("text")),
            (bar, self._style(row.kind)),
        )
        before = self.earlier.get(row.key)
        if before:
            change = row.tok_s / before - 1
            line.append(f" {change:+.0%}", self._style("better" if change >= 0 else "worse"))
        return line

    @property
    def _kv_cells(self) -> int:
        return max(2, *(len(row.kv) for row in self.rows))

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"bench--{name}")


class BenchScreen(Screen[None]):
    """r runs, s saves, c compares. The model that is open is closed meanwhile: two would share memory and cores."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "back"),
        Binding("r", "run", "run"),
        Binding("s", "save", "save"),
        Binding("c", "compare", "compare"),
    ]
    app: LocalinferApp

    def __init__(self, path: str) -> None:
        super().__init__(id="bench")
        self.path = path
        self.model = model_name(path)
        self.rows: list[BenchRow] = []
        self.earlier: SavedRun | None = None
        self._process: asyncio.subprocess.Process | None = None

    def compose(self) -> ComposeResult:
        yield Static("", classes="screen-title", id="bench-title")
        yield Static("", id="bench-said")
        with VerticalScroll():
            yield BenchPlot()
            yield BenchTable()
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#bench-title", Static).update(Content(f"Speed of {self.model}"))
        runs = saved_runs(self._folder, self.model)
        self._compare_with(runs[0] if runs else None)

    def _compare_with(self, run: SavedRun | None) -> None:
        self.earlier = run
        self._show()
        if run is not None:
            self._say(f"r runs. Compared with {run.when}; c chooses another run.")
        else:
            self._say(NEVER_RUN)

    def _show(self) -> None:
        self.refresh_bindings()
        self.query_one(BenchTable).show(self.rows, self.earlier.rates if self.earlier else {})
        self.query_one(BenchPlot).show(self.rows, self.earlier.rows if self.earlier else ())

    @property
    def _folder(self) -> Path:
        return paths.state_dir() / "bench"

    def _say(self, text: str) -> None:
        self.query_one("#bench-said", Static).update(Content(text))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that have nothing to act on are not shown."""
        if action == "run":
            return self._process is None
        if action == "save":
            return bool(self.rows)
        return super().check_action(action, parameters)

    def action_run(self) -> None:
        if self._process is None and self.app.session.turn is None:
            self._run()

    @work(group="bench", exclusive=True)
    async def _run(self) -> None:
        await self.app.close_model()
        self.rows = []
        self._show()
        self._say("Measuring … Esc stops it.")
        options = self.app.options
        line = command(self.path, options.kv, options.ctx or 4096, options.backend)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *line, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            self._say(f"The measurement cannot be started: {error.strerror}.")
            return
        process = self._process
        self.refresh_bindings()
        assert process.stdout is not None and process.stderr is not None
        complaints = asyncio.create_task(process.stderr.read())
        async for text in process.stdout:
            row = parse_row(text.decode("utf-8", "replace"))
            if row is not None:
                self.rows.append(row)
                self._show()
        code = await process.wait()
        self._process = None
        self.refresh_bindings()
        said = (await complaints).decode("utf-8", "replace").strip().splitlines()
        self._say("Done: s saves this run." if code == 0 else "\n".join(said[-2:]) or f"It ended with status {code}.")

    def action_save(self) -> None:
        try:
            self._say(f"Saved: {save_run(self._folder, self.model, self.rows)}")
        except OSError as error:
            self._say(f"It cannot be saved: {error.strerror}.")

    def action_compare(self) -> None:
        runs = saved_runs(self._folder, self.model)
        if not runs:
            self._say("No saved run of this model: r runs, s saves.")
            return

        def chosen(number: int | None) -> None:
            if number is not None:
                self._compare_with(runs[number] if number >= 0 else None)

        self.app.push_screen(ChooseRunScreen(runs), chosen)

    def action_close(self) -> None:
        if self._process is not None:
            self._process.kill()
        self.dismiss(None)
