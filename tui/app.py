"""LocalinferApp: screens, themes and the one model that is open."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from localinfer import paths
from localinfer.errors import UsageError
from localinfer.history_store import HistoryStore
from localinfer.records import replace
from localinfer.settings import Settings, load_settings, save_setting
from localinfer.tui.bridge import SLOW_TOK_S, EngineBridge, EngineOptions, ModelFailed, SamplingParams, Service
from localinfer.tui.commands import COMMANDS
from localinfer.tui.hangup import terminal_is_gone, watch_terminal
from localinfer.tui.hints import sentence
from localinfer.tui.screens.chat import ChatScreen
from localinfer.tui.screens.chat_commands import HOW_TO_SAVE
from localinfer.tui.screens.confirm import ConfirmScreen
from localinfer.tui.session import ChatSession, model_name
from localinfer.tui.themes import DARK, LIGHT, Styles


class LocalinferApp(App[int]):
    """The terminal app. `model_path` is empty until a model is chosen."""

    TITLE = "localinfer"
    CSS_PATH = [Path(__file__).parent / "styles" / name for name in ("chat.tcss", "screens.tcss")]  # noqa: RUF012
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (70, "-normal"), (120, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall"), (26, "-roomy")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "quit", "quit", show=True, priority=True)]

    def __init__(
        self, service: Service, model_path: str = "", options: EngineOptions | None = None,
        sampling: Mapping[str, Any] | None = None, store: HistoryStore | None = None,
        settings: Settings | None = None, trouble: str = "", thinking: str = "",
    ) -> None:  # fmt: skip
        """sampling: fields of SamplingParams that go before the settings, as does thinking (on, off); trouble: what is
        wrong with those."""
        super().__init__()
        self.settings = settings or Settings()
        self._trouble = trouble
        self.model_path = model_path
        self.options = options or EngineOptions()
        self._sampling = dict(sampling or {})
        self._thinking = thinking
        self.session = new_session(store or HistoryStore(paths.sessions_dir()), self.settings, sampling, thinking)
        self.chat = ChatScreen(self.session, self.settings)
        self.bridge = EngineBridge(service, self.chat)
        self.engine_alive = False
        self._opening: asyncio.Task[bool] | None = None
        self._leaving: asyncio.Future[None] | None = None
        self._opens = self.options
        self._slow_path = ""  # of a model that the user wants, slow as it is
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = self.settings.theme if self.settings.theme in self.available_themes else DARK.name
        self.stylesheet = Styles(variables=self.get_css_variables())

    def get_default_screen(self) -> ChatScreen:
        return self.chat

    def on_mount(self) -> None:
        if not self.is_headless:
            watch_terminal(self.leave)
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        if self._trouble:
            self.notify(self._trouble, title="Settings", severity="warning", markup=False)
        if self.model_path:
            self.open_model(self.model_path, self.options)
        else:
            self.chat.command_models("")

    # the model

    def open_model(self, path: str, options: EngineOptions) -> None:
        """Load a model; what is open is closed first. The chat screen hears how it goes."""
        self.model_path, self.options = path, options
        self._opens = options if path == self._slow_path else replace(options, least_tok_s=SLOW_TOK_S)
        self.session.model = model_name(path)
        if self._opening is not None:
            self._opening.cancel()
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> bool:
        self.engine_alive = await self.bridge.open(self.model_path, self._opens)
        return self.engine_alive

    async def ensure_model(self) -> bool:
        """Wait for the model that is loading, or load one that died; whether there is one."""
        idle = self._opening is None or self._opening.done()
        if idle and not await self.check_engine() and self.model_path:
            self.open_model(self.model_path, self.options)
        opening: asyncio.Task[bool] | None = None
        while opening is not self._opening:  # another model may be chosen meanwhile
            opening = self._opening
            if opening is not None:
                await asyncio.wait({opening})
        return self.engine_alive

    async def close_model(self) -> None:
        """Free the model's memory; the next message loads it again."""
        if self._opening is not None:
            self._opening.cancel()
        self.engine_alive = False
        await self.bridge.close()
        self.chat.set_status(state="closed", detail="the next message loads the model again", fraction=0.0)

    async def check_engine(self) -> bool:
        """Ask whether the engine still lives."""
        self.engine_alive = (await self.bridge.status()).state in ("ready", "busy")
        return self.engine_alive

    def model_failed(self, event: ModelFailed) -> None:
        self.engine_alive = False
        if event.too_slow:
            self.push_screen(ConfirmScreen(f"{sentence(event.message)}\nStart it all the same?"), self._start_slow)

    def _start_slow(self, wanted: bool | None) -> None:
        if wanted:
            self._slow_path = self.model_path
            self.open_model(self.model_path, self.options)

    def show_plan(self, path: str) -> None:
        """The plan screen on a model; leaving it with options loads the model with them."""
        from localinfer.tui.screens.plan import PlanScreen

        def load(options: EngineOptions | None) -> None:
            if options is not None:
                while self.screen is not self.chat:
                    self.pop_screen()
                self.chat.load_chosen(path, options)

        self.push_screen(PlanScreen(path, self.options), load)

    # looks

    def switch_theme(self) -> None:
        self.theme = LIGHT.name if self.current_theme.dark else DARK.name

    def take_settings(self, settings: Settings) -> None:
        """Changed ones hold from now on: looks and sampling at once, the rest with the next load or start."""
        self.settings = settings
        if settings.theme in self.available_themes:
            self.theme = settings.theme
        self.options = replace(
            self.options, snapshot_bytes=settings.saved_kv_mb * 10**6, context_full=settings.context_full
        )
        self.session.defaults, self.session.thinking_default = chat_defaults(settings, self._sampling, self._thinking)
        self.chat.take_settings(settings)

    def _keep_theme(self, theme: Theme) -> None:
        """The theme that was chosen last is the one to start with."""
        if theme.name != self.settings.theme:
            self.settings = replace(self.settings, theme=theme.name)
            try:
                save_setting("theme", theme.name)
            except OSError as error:
                self.notify(f"the theme is not saved: {error.strerror}", severity="warning", markup=False)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: the chat's commands that need no argument, then Textual's own."""
        for command in COMMANDS:
            if screen is self.chat and (command.optional or not command.argument) and command.name != "quit":
                yield SystemCommand(
                    command.name.capitalize(), command.help, partial(self.chat.action_command, command.name)
                )
        for system in super().get_system_commands(screen):
            if system.title in ("Theme", "Quit", "Screenshot"):
                yield system

    # leaving

    async def action_quit(self) -> None:
        """Leave, unless there is something that the disk does not take: then ask."""
        await self.chat.stop()
        self.session.conversation.retry()
        error = self.session.conversation.write_error
        if not error:
            await self._quit(0)
            return
        question = f"The end of this conversation is not saved: {error}.\nLeave all the same?\n\n{HOW_TO_SAVE}."
        self.push_screen(ConfirmScreen(question), lambda yes: self.leave(0) if yes else None)

    def leave(self, exit_code: int) -> None:
        """As quitting, for a reason from outside."""
        self._leaving = self._leaving or asyncio.ensure_future(self._quit(exit_code))

    async def _quit(self, exit_code: int) -> None:
        """Keep what was written, end the engine, leave."""
        await self.chat.stop()
        self.session.close()
        await self.bridge.close()
        if terminal_is_gone():
            os._exit(exit_code)
        self.exit(exit_code)


def chat_defaults(settings: Settings, sampling: Mapping[str, Any] | None, thinking: str) -> tuple[SamplingParams, str]:
    """Sampling and thinking where a conversation sets nothing: by the command line, else by the settings."""
    return SamplingParams(**{**settings.sampling, **(sampling or {})}), thinking or settings.thinking


def new_session(
    store: HistoryStore, settings: Settings, sampling: Mapping[str, Any] | None = None, thinking: str = ""
) -> ChatSession:
    """A new conversation with the user's settings; sampling and thinking are what goes before those."""
    session = ChatSession(store, *chat_defaults(settings, sampling, thinking))
    if settings.system_prompt:
        session.conversation.configure(settings.system_prompt, {})
    return session


def run_app(
    model: str | os.PathLike[str] | None,
    options: EngineOptions | None = None,
    sampling: Mapping[str, Any] | None = None,
    context_full: str | None = None,
    thinking: str = "",
) -> int:
    """The terminal app on a model's path, or on the model list; its exit code. Plain lines where TERM is dumb.

    sampling: fields of SamplingParams that go before those of the settings. context_full: "stop" or "drop"; thinking:
    "on" or "off"; None and "": as the settings say."""
    from localinfer.engine.service import EngineService

    path, service = os.fspath(model or ""), EngineService()
    try:
        settings, trouble = load_settings(), ""
    except UsageError as error:
        settings, trouble = Settings(), f"{error.message}\n{error.hint}"
    options = replace(
        options or EngineOptions(), snapshot_bytes=settings.saved_kv_mb * 10**6,
        context_full=context_full or settings.context_full,
    )  # fmt: skip
    if os.environ.get("TERM", "") == "dumb":
        if not path:
            raise UsageError("this terminal (TERM=dumb) cannot show the model list", "localinfer chat MODEL")
        from localinfer.tui.plain import run_plain

        session = new_session(HistoryStore(paths.sessions_dir()), settings, sampling, thinking)
        return run_plain(service, path, options, session)
    app = LocalinferApp(service, path, options, sampling, settings=settings, trouble=trouble, thinking=thinking)
    keep_pauses_short()
    return app.run() or 0


def keep_pauses_short() -> None:
    """The collector looks at little at a time, and never again at what was imported: a pause holds up keys and text.

    The command line lets 50,000 objects gather, to start fast; going through those takes 80 ms.
    """
    gc.freeze()
    gc.set_threshold(2_000, 5, 100)
