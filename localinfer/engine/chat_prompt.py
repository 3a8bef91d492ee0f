"""Messages -> token ids, through the model's chat template where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from localinfer.engine.answer_text import Splitter

if TYPE_CHECKING:
    from localinfer.formats.gguf import GGUFFile
    from localinfer.models.chat_template import ChatTemplate
    from localinfer.models.tokenizer import Tokenizer

NO_TEMPLATE = "this model has no chat template: the text is continued as it is"


@dataclass(frozen=True)
class Prompt:
    """What a turn starts from. `splitter` is None where the template knows no thinking."""

    ids: list[int]
    notices: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    splitter: Splitter | None = None


def read_template(file: GGUFFile, tokenizer: Tokenizer) -> ChatTemplate | None:
    from localinfer.models.chat_template import ChatTemplate

    return ChatTemplate.from_gguf(file, tokenizer)


def make_prompt(
    tokenizer: Tokenizer, template: ChatTemplate | None, messages: Sequence[Any] | str, thinking: bool | None
) -> Prompt:
    """A plain string, or messages without a template, are continued as plain text."""
    if isinstance(messages, str):
        return Prompt(tokenizer.encode(messages, add_special=True, parse_special=True))
    if template is None:
        text = "\n\n".join(message.content for message in cast("Sequence[Any]", messages))
        return Prompt(tokenizer.encode(text, add_special=True, parse_special=False), (NO_TEMPLATE,))
    raise NotImplementedError
