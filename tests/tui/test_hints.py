"""Hints of the engine, said with what the app has."""

from __future__ import annotations

import pytest

from localinfer.tui.hints import in_app_words, sentence


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (
            "--ctx 66722, a shorter text, or in a chat --context-full drop: the oldest turns are left out",
            "a context of 66722 (/reload 66722), a shorter text, or dropping the oldest turns (F2)",
        ),
        ("a smaller --ctx or --kv q8_0 needs less", "a smaller context or KV type q8_0 (F2) needs less"),
        ("is the file damaged? try --backend cpu", "is the file damaged? try device cpu (F2)"),
        ("use a smaller --ctx, --kv q8_0 or a smaller model", "use a smaller context (F2), KV type q8_0 (F2) or a"
         " smaller model"),
        ("the model can be loaded again", "the model can be loaded again"),
    ],
)  # fmt: skip
def test_options_of_the_command_line_become_keys_and_commands(hint, words):
    assert in_app_words(hint) == words


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("the engine process was killed (SIGKILL)", "The engine process was killed (SIGKILL)."),
        ("cannot read /a/b.gguf", "Cannot read /a/b.gguf"),
        ("hf:a/b: not found", "hf:a/b: not found."),
        ("localinfer pull demo", "localinfer pull demo."),
        ("Paris.", "Paris."),
        ("", ""),
    ],
)
def test_messages_stand_alone(raw: str, said: str):
    assert sentence(raw) == said
