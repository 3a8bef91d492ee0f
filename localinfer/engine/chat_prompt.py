"""Messages -> token ids, through the model's chat template where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localinfer.engine.answer_text import Splitter
from localinfer.engine.params import ChatMessage
from localinfer.errors import UsageError
from localinfer.kv.prefix import common_prefix
from localinfer.models.thinking import ThinkingSplitter
from localinfer.records import dataclass, replace

if TYPE_CHECKING:
    from localinfer.models.chat_template import ChatTemplate, Message
    from localinfer.models.tokenizer import AnyTokenizer

ANOTHER_QUESTION = "\u2042"  # nobody's question begins with an asterism
NO_SWITCH = "this model's chat template knows no switch for thinking: it answers as it is used to"
NO_TEMPLATE = "this model has no chat template: the text is continued as it is"


@dataclass(frozen=True)
class Prompt:
    """What a turn starts from. `splitter` is None where the template knows no thinking."""

    ids: list[int]
    notices: tuple[str, ...] = ()
    splitter: Splitter | None = None
    branch_at: int = 0  # tokens that every conversation with this system prompt begins with; 0: nobody asked


def make_prompt(
    tokenizer: AnyTokenizer,
    template: ChatTemplate | None,
    messages: Sequence[Any] | str,
    thinking: bool | None,
    find_branch: bool = False,
) -> Prompt:
    """A plain string, or messages without a template, are continued as plain text.

    A last message of the assistant is an answer that goes on: the model continues its text. UsageError where the
    template refuses the conversation.
    """
    if isinstance(messages, str):
        return Prompt(tokenizer.encode(messages, add_special=True, parse_special=True))
    turns: Sequence[Any] = messages
    if template is None:
        text = "\n\n".join(turn.content for turn in turns)
        return Prompt(tokenizer.encode(text, add_special=True, parse_special=False), (NO_TEMPLATE,))
    unfinished = turns[-1].content if turns and turns[-1].role == "assistant" else ""
    asked = turns[:-1] if unfinished else turns
    chat = template.encode_chat([_message(turn) for turn in asked], enable_thinking=thinking)
    notices = chat.notices if thinking is None or template.switches_thinking else (*chat.notices, NO_SWITCH)
    branch_at = _branch_at(template, asked, thinking, chat.ids) if find_branch else 0
    if not unfinished:
        return Prompt(chat.ids, notices, chat.splitter(), branch_at)
    ids = chat.ids + tokenizer.encode(unfinished, add_special=False, parse_special=False)
    markers = chat.thinking and replace(chat.thinking, opened_by_prompt=False)
    return Prompt(ids, notices, ThinkingSplitter(markers) if markers else None, branch_at)


def _branch_at(template: ChatTemplate, turns: Sequence[Any], thinking: bool | None, ids: Sequence[int]) -> int:
    """What the prompt has in common with one that asks something else first."""
    begun = [*(turn for turn in turns if turn.role == "system"), ChatMessage("user", ANOTHER_QUESTION)]
    try:
        other = template.encode_chat([_message(turn) for turn in begun], enable_thinking=thinking)
    except UsageError:  # a template may refuse this conversation and accept the real one
        return 0
    return common_prefix(ids, other.ids)


def _message(turn: Any) -> Message:
    from localinfer.models.chat_template import Message  # brings jinja2, 60 ms: plain text needs none

    return Message(turn.role, turn.content, thinking=getattr(turn, "thinking", ""))
