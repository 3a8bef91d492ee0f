"""PlanScreen: what a model needs at a context and a KV type, drawn against the memory, and what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localinfer.errors import LocalinferError
from localinfer.tui.bridge import EngineOptions
from localinfer.tui.hints import complaint, in_app_words
from localinfer.tui.plan_view import (
    notes_of,
    parse_options,
    part_bars,
    repairs_of,
    speed_words,
    verdict_words,
    with_option,
)
from localinfer.tui.widgets.choice import Choice
from localinfer.tui.widgets.key_bar import KeyBar
from localinfer.units import format_bytes

if TYPE_CHECKING:
    from localinfer.tui.app import LocalinferApp

SHARES = {"all": 1.0, "3/4": 0.75, "1/2": 0.5, "1/4": 0.25}  # of the weights, kept in memory; the rest is paged
LABEL, FIGURE = 11, 12  # cells


class PlanBars(Widget):
    """One bar a part, on the scale of the budget; the last row is what is left."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "bars--weights", "bars--kv", "bars--other", "bars--free", "bars--missing", "bars--text", "bars--muted",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._plan: Any = None

    def show(self, plan: Any) -> None:
        self._plan = plan
        self.refresh(layout=True)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(part_bars(self._plan)) + 2 if self._plan else 0

    def render(self) -> Text:
        if self._plan is None:
            return Text()
        room = max(4, self.size.width - LABEL - FIGURE - 2)
        lines, at = [], 0.0
        for bar in part_bars(self._plan):
            name = bar.part if bar.part in ("weights", "kv") else "other"
            lines.append(self._line(bar.name, bar.n_bytes, at, bar.share, room, name))
            at += bar.share
        left = self._plan.left
        share = abs(left) / max(self._plan.budget.budget_bytes, 1)
        lines.append(Text("─" * min(self.size.width, LABEL + FIGURE + room + 2), self._style("muted")))
        if left >= 0:
            lines.append(self._line("free", left, at, share, room, "free"))
        else:
            lines.append(self._line("missing", -left, 1 - share, share, room, "missing"))
        return Text("\n").join(lines)

    def _line(self, name: str, n_bytes: int, at: float, share: float, room: int, style: str) -> Text:
        """The bar starts where the ones above end, so that together they fill the budget."""
        start = min(room - 1, max(0, int(at * room)))
        length = max(1, min(room - start, round(share * room)))
        return Text.assemble(
            (name.ljust(LABEL), self._style("text")), (format_bytes(n_bytes).rjust(FIGURE), self._style("muted")), "  ",
            " " * start, ("█" * length, self._style(style)),
        )  # fmt: skip

    def _style(self, name: str) -> Any:
        return self.get_component_rich_style(f"bars--{name}")


CONTROLS = (
    ("F2", "KV type", "kv", ("f16", "q8_0", "q8_0/q4_0", "q4_0")),
    ("F3", "drafting", "drafts", ("on", "off")),
    ("F4", "weights", "weights", tuple(SHARES)),
    ("F5", "device", "backend", ("auto", "cpu", "mlx")),
    ("F6", "when full", "context_full", ("stop", "drop")),
)  # key, name, id, values


SCROLL_KEYS = (("up", -1), ("down", 1), ("pageup", -8), ("pagedown", 8))


class PlanScreen(Screen[EngineOptions | None]):
    """Dismissed with the options to load the model with, or None."""

    AUTO_FOCUS = "#plan-ctx"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("ctrl+l", "load", "load with this", priority=True),
        *[Binding(key, f"scroll({step})", show=False) for key, step in SCROLL_KEYS],
        *[Binding(key.lower(), f"next('{name}')", label, show=False) for key, label, name, _ in CONTROLS],
        *[Binding(f"f{7 + i}", f"repair({i})", f"repair {i + 1}", show=False) for i in range(4)],
    ]
    app: LocalinferApp

    def __init__(self, path: str, options: EngineOptions) -> None:
        super().__init__(id="plan")
        self.path, self.options = path, options
        self.plan: Any = None
        self.repairs: list[Any] = []

    def compose(self) -> ComposeResult:
        yield Static("", classes="screen-title", id="plan-title")
        with VerticalScroll(can_focus=False):
            with Horizontal(id="plan-context"):
                yield Static("    context", id="plan-context-name")
                yield Input("", id="plan-ctx", compact=True, placeholder="8192, 32k, max")
                yield Static("", id="plan-ctx-most")
            for key, name, control, values in CONTROLS:
                yield Choice(key, name, values, f"plan-{control}")
            yield Static("", id="plan-verdict")
            yield OptionList(id="plan-repairs", compact=True)
            yield PlanBars()
            yield Static("", id="plan-speed")
            yield Static("", id="plan-max")
            yield Static("", id="plan-notes")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#plan-title", Static).update(Content(f"Plan for {self.path.rpartition('/')[2]}"))
        self.replan()

    @work(group="plan", exclusive=True)
    async def replan(self) -> None:
        try:
            plan = await self.app.bridge.plan(self.path, self.options)
        except LocalinferError as error:
            self._say_wrong(complaint(error))
            return
        self.show_plan(plan)

    def show_plan(self, plan: Any) -> None:
        self.plan, self.repairs = plan, repairs_of(plan)
        box = self.query_one("#plan-ctx", Input)
        if not box.has_focus or not box.value:
            with self.prevent(Input.Changed):
                box.value = str(plan.ask.ctx)
        most = f"trained on {plan.model.n_ctx_train:,}" if plan.model.n_ctx_train else ""
        self.query_one("#plan-ctx-most", Static).update(Content(most))
        self._show_controls()
        verdict = self.query_one("#plan-verdict", Static)
        verdict.update(Content(verdict_words(plan)))
        verdict.set_class(plan.verdict in ("fits",), "-good")
        verdict.set_class(plan.verdict == "does_not_fit", "-bad")
        self.query_one(PlanBars).show(plan)
        self.query_one("#plan-speed", Static).update(Content(in_app_words(speed_words(plan))))
        self.query_one("#plan-max", Static).update(Content(_max_contexts(plan)))
        self.query_one("#plan-notes", Static).update(Content(in_app_words("\n".join(notes_of(plan)))))
        self._show_repairs()

    def _show_controls(self) -> None:
        options, budget = self.options, self.options.weight_budget
        shown = {
            "kv": options.kv, "drafts": "on" if options.drafts else "off", "backend": options.backend,
            "weights": self._share_of(budget) if budget else "all", "context_full": options.context_full,
        }  # fmt: skip
        for control, value in shown.items():
            self.query_one(f"#plan-{control}", Choice).chosen = value

    def _share_of(self, budget: int) -> str:
        """`1/2` where that is what a budget came from, else the budget."""
        whole = self._all_weights
        return next((name for name, share in SHARES.items() if int(share * whole) == budget), format_bytes(budget))

    @property
    def _all_weights(self) -> int:
        """Bytes of the weights were none of them paged."""
        return int(self.plan.model.tensor_bytes) if self.plan else 0

    def _show_repairs(self) -> None:
        options = self.query_one("#plan-repairs", OptionList)
        options.clear_options()
        for index, repair in enumerate(self.repairs):
            key = f"F{7 + index}  " if index < 4 and with_option(self.options, repair.option) else "    "
            options.add_option(Option(Text(f"{key}{repair.change}  ({repair.verdict.replace('_', ' ')})")))
        options.display = bool(self.repairs)
        options.border_title = "what would help"

    @on(Input.Changed, "#plan-ctx")
    def _ctx_typed(self, event: Input.Changed) -> None:
        maximum = self.plan.max_ctx.get(self.plan.ask.kv_name) if self.plan else None
        try:
            self.options = parse_options(self.options, event.value, self.options.kv, maximum)
        except LocalinferError as error:
            self._say_wrong(complaint(error))
            return
        self.replan()

    def _say_wrong(self, text: str) -> None:
        verdict = self.query_one("#plan-verdict", Static)
        verdict.update(Content(text))
        verdict.set_class(True, "-bad").set_class(False, "-good")

    @on(Input.Submitted, "#plan-ctx")
    def _submitted(self) -> None:
        self.action_load()

    @on(OptionList.OptionSelected, "#plan-repairs")
    def _repair_selected(self, event: OptionList.OptionSelected) -> None:
        self.action_repair(event.option_index)

    def action_scroll(self, rows: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=rows, animate=False)

    def action_next(self, control: str) -> None:
        """Take the next value of a control."""
        value = self.query_one(f"#plan-{control}", Choice).step()
        if control == "weights":
            share = SHARES[value]
            budget = int(share * self._all_weights) if share < 1 else None
            self.options = replace(self.options, weight_budget=budget)
        else:
            taken: Any = value == "on" if control == "drafts" else value
            self.options = replace(self.options, **{control: taken})
        self.replan()

    @on(Choice.Asked)
    def _control_clicked(self, event: Choice.Asked) -> None:
        self.action_next((event.choice.id or "").removeprefix("plan-"))

    def action_repair(self, index: int) -> None:
        """Take a repair over into the controls."""
        if index >= len(self.repairs):
            return
        changed = with_option(self.options, self.repairs[index].option)
        if changed is None:
            self.notify(f"{self.repairs[index].change}: this is done outside of localinfer.", markup=False)
            return
        self.options = changed
        if changed.ctx:
            with self.prevent(Input.Changed):
                self.query_one("#plan-ctx", Input).value = str(changed.ctx)
        self.replan()

    def action_load(self) -> None:
        if self.plan is not None and self.plan.verdict == "does_not_fit":
            self.notify("It does not fit: change the context or the KV type first.", severity="warning")
            return
        self.dismiss(self.options)


def _max_contexts(plan: Any) -> str:
    shown = [f"{n:,} ({kv})" for kv, n in plan.max_ctx.items()]
    return "Memory would hold a context of " + ", ".join(shown) + "." if shown else ""
