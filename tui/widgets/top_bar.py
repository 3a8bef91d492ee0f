"""TopBar: the title of the conversation on the left, the model on the right."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.reactive import reactive

from localinfer.tui.markdown.rows import visible
from localinfer.tui.widgets.line import Line


class TopBar(Line):
    """One row; the model gives way first."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"top--brand", "top--title", "top--model"}

    PART = "top"

    title_text = reactive("")
    model_text = reactive("")

    def render(self) -> Text:
        width = self.size.width - 2
        title, model = visible(self.title_text), visible(self.model_text)
        brand = "localinfer" if width >= 60 else ""
        room = width - cell_len(brand) - (2 if brand else 0)
        if cell_len(title) + cell_len(model) + 2 > room:
            model = model if room - cell_len(model) - 2 >= 16 else ""
            title = _cut(title, room - (cell_len(model) + 2 if model else 0))
        gap = max(0, room - cell_len(title) - cell_len(model))
        return Text.assemble(
            (brand + ("  " if brand else ""), self.style("brand")),
            (title, self.style("title")),
            " " * gap,
            (model, self.style("model")),
        )


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"
