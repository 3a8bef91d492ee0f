"""`localinfer run` over a scripted engine: what goes to stdout, what to stderr, and the exit code."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


def script(**fields):
    return json.dumps(fields)


def test_an_answer_goes_to_stdout_and_nothing_else_does(cli, scripted):
    code, out, err = cli("run", script(answer="Paris."), "-p", "Where?")
    assert (code, out) == (0, "Paris.\n")
    assert err == "note: this model has no chat template: the text is continued as it is\n"


def test_raw_needs_no_notice_and_a_final_newline_is_not_doubled(cli, scripted):
    assert cli("run", script(answer="Paris.\n"), "-p", "Where?", "--raw") == (0, "Paris.\n", "")


def test_json_has_every_key_of_the_interface(cli, scripted):
    code, out, _ = cli("run", script(answer="Paris."), "-p", "Where?", "--json", "--seed", "7")
    found = json.loads(out)
    assert code == 0 and found["text"] == "Paris." and found["tokens"] == list(b"Paris.")
    assert found["stop_reason"] == "eos" and found["seed"] == 7 and found["backend"] == "fake"
    assert (found["prompt_tokens"], found["cached_tokens"], found["generated_tokens"]) == (7, 0, 6)
    assert set(found["draft"]) == {"rounds", "proposed", "accepted", "saved_s", "gain"}
    assert set(found["memory"]) == {"plan_bytes", "peak_bytes"} and found["memory"]["peak_bytes"] > 0
    assert found["ttft_s"] > 0 and found["prefill_tok_s"] > 0 and found["decode_tok_s"] > 0


def test_stats_on_stderr_when_asked(cli, scripted):
    _, _, err = cli("run", script(answer="Paris."), "-p", "Where?", "--raw", "--stats")
    assert err.startswith("[6 tokens, ") and "context 13/256; fake, seed " in err


def test_limits_and_stop_strings(cli, scripted):
    assert cli("run", script(answer="abcdef"), "-p", "?", "--raw", "-n", 2)[1] == "ab\n"
    assert cli("run", script(answer="one two three"), "-p", "?", "--raw", "--stop", "two", "--stop", "x")[1] == "one \n"


def test_context_full_says_its_numbers(cli, scripted):
    code, out, err = cli("run", script(answer="x" * 99), "-p", "?", "--raw", "--ctx", 20)
    assert (code, out) == (0, "x" * 19 + "\n") and "context full (20/20)" in err


@pytest.mark.parametrize("prompt", [["-p", "-"], []])
def test_stdin_as_prompt_takes_any_bytes(cli, scripted, monkeypatch, prompt):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9?")))
    code, out, err = cli("run", script(answer="yes"), *prompt, "--raw", "--stats")
    assert (code, out) == (0, "yes\n") and " after 6 prompt tokens" in err  # a start token and five bytes


@pytest.mark.parametrize("terminal", [False, True])
def test_no_prompt_at_all_is_said(cli, scripted, monkeypatch, terminal):
    stdin = io.TextIOWrapper(io.BytesIO(b""))
    monkeypatch.setattr(stdin, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stdin", stdin)
    code, _, err = cli("run", script(answer="yes"))
    assert (code, err) == (2, "error: expected -p TEXT or text on stdin, found neither\n")


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"load_error": "FormatError"}, 4, "error: planted\nhint: a hint\n"),
        ({"load_error": "DoesNotFit"}, 3, "error: planted\nhint: a hint\n"),
        ({"dies_after": 2}, 6, "error: the engine process was killed (SIGKILL)\nhint: if nobody killed it, memory ran"),
    ],
)
def test_failures_are_one_line_and_their_exit_code(cli, scripted, fields, code, message):
    found, _, err = cli("run", script(answer="abcdef", **fields), "-p", "?", "--raw")
    assert found == code and err.startswith(message) and err.count("\n") == 2


def test_what_was_said_before_a_death_stays(cli, scripted):
    assert cli("run", script(answer="abcdef", dies_after=2), "-p", "?", "--raw")[1] == "abc"[:2] + "\n"


@pytest.mark.parametrize("fields", [{"load_error": "bug"}, {"fails_after": 2}])
def test_a_bug_shows_its_traceback_and_exits_1(cli, scripted, fields):
    code, _, err = cli("run", script(answer="abcdef", **fields), "-p", "?", "--raw")
    assert code == 1 and "ZeroDivisionError: a planted bug" in err


RUN = """
import sys
import localinfer.cli.run as command
from localinfer.engine.service import EngineService
from localinfer.cli.main import main
from tests.fakes.scripted import OPENER
command.resolve = lambda reference: reference
command.EngineService = lambda: EngineService(OPENER)
sys.exit(main())
"""


def started(*arguments, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, "run", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **kwargs,
    )


def test_ctrl_c_keeps_the_text_and_exits_130():
    process = started(script(answer="x" * 200, token_s=0.02), "-p", "?", "--raw")
    first = process.stdout.read(3)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert time.monotonic() - sent < 2
    assert process.returncode == 130 and err == b""
    said = first + out
    assert said.rstrip(b"x\n") == b"" and said.endswith(b"x\n") and len(said) < 100


def test_ctrl_c_while_loading_exits_130():
    process = started(script(load_s=30), "-p", "?", "--raw")
    while not psutil.Process(process.pid).children():  # the engine process: the app is up
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_has_seen_enough_is_no_error():
    process = started(script(answer="x" * 200, token_s=0.01), "-p", "?", "--raw")
    process.stdout.read(2)
    process.stdout.close()
    assert process.wait(timeout=10) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
