"""Every error that localinfer raises on purpose, and the exit code each one ends the program with.

    LocalinferError(message, hint)   never raised itself
    |- UsageError          exit 2    bad flag, setting or path
    |- DoesNotFit          exit 3    carries the plan and the next rung to try
    |  `- TooSlow          exit 3    it would run, slower than was asked for
    |- FormatError         exit 4    not a sound GGUF: file, field, offset
    |- UnsupportedModel    exit 5    sound, but an architecture, type or tokenizer that we lack
    `- BackendError        exit 6    device missing, kernel failed, engine process gone, memory gone

A message says what was expected and what was found; the hint says what to do. Anything that is not a
LocalinferError is a bug: exit 1 with a traceback. Interrupted is 130.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_BUG = 1
EXIT_INTERRUPTED = 130


class LocalinferError(Exception):
    """Base of the tree. `message` is one line; `hint` is one line or empty."""

    exit_code = EXIT_BUG

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self):  # errors cross the engine's pipe: rebuild from the two strings
        return type(self), (self.message, self.hint)


class UsageError(LocalinferError):
    """A flag, setting or path that cannot be used as given."""

    exit_code = 2


class DoesNotFit(LocalinferError):
    """The model does not fit at what was asked; `plan` holds the accounting when there is one."""

    exit_code = 3

    def __init__(self, message: str, hint: str = "", plan: object | None = None) -> None:
        super().__init__(message, hint)
        self.plan = plan

    def __reduce__(self):
        return type(self), (self.message, self.hint, self.plan)


class TooSlow(DoesNotFit):
    """It would run, by reading weights again for every token, but slower than was asked for; `plan` says how slow."""


class FormatError(LocalinferError):
    """A file that is not a sound GGUF. The message names file, field and offset."""

    exit_code = 4


class UnsupportedModel(LocalinferError):
    """A sound file that needs an architecture, block type or tokenizer that localinfer lacks."""

    exit_code = 5


class BackendError(LocalinferError):
    """The device is missing, a kernel failed, memory ran out, or the engine process died."""

    exit_code = 6
