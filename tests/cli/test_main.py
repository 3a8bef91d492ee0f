"""Parsing, help and errors of the whole command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from localinfer import __version__
from localinfer.cli.main import COMMANDS


def test_version(cli):
    assert cli("--version") == (0, f"localinfer {__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(cli, command):
    code, out, _ = cli(command, "--help")
    assert code == 0 and out.startswith(f"usage: localinfer {command}")


def test_help_lists_every_command(cli):
    _, out, _ = cli("--help")
    assert all(f"\n    {command} " in out for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["run"], "the following arguments are required: MODEL"),
        (["run", "m", "-p", "x", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["run", "m", "-p", "x", "--temp", "hot"], "--temp: expected a number, found 'hot'"),
        (["run", "m", "-p", "x", "--temp", "-1"], "temperature: expected a number from 0 to 100, found -1"),
        (["run", "m", "-p", "x", "--top-k", "1.5"], "--top-k: expected a whole number, found '1.5'"),
        (["run", "m", "-p", "x", "--ctx", "32.5k"], "--ctx: expected a whole number of tokens"),
        (["run", "m", "-p", "x", "--ctx", "0"], "--ctx: expected a whole number of tokens"),
        (["run", "m", "-p", "x", "--draft", "many"], "draft: expected auto, off or a number"),
        (["run", "m", "-p", "x", "--threads", "0"], "threads: expected 1 or more, found 0"),
        (["run", "m", "-p", "x", "--raw", "--system", "s"], "there is no system prompt with --raw"),
        (["run", "no-such-model", "-p", "x"], "no-such-model: no such file, and no local model of that name"),
        (["bench", "no-such-model", "--reps", "0"], "--reps: expected 1 or more"),
        (["bench", "no-such-model", "--kv", "f16,q9"], "kv: expected one of"),
        (["eval", "no-such-model", "--text", "/no/such/file"], "No such file or directory"),
        (["pull", "some-name"], "expected demo or hf:OWNER/REPO"),
        (["pull", "hf:only-owner"], "expected hf:OWNER/REPO"),
        (["pull", "hf:../../etc/passwd"], "expected hf:OWNER/REPO"),
        (["rm", "nothing"], "nothing: no local model of that name"),
        (["sessions", "show", "x"], "x: no such conversation"),
        (["chat", "x"], "the terminal app needs a terminal"),
        ([], "the terminal app needs a terminal"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(cli, arguments, message):
    code, out, err = cli(*arguments)
    lines = err.splitlines()
    assert (code, out) == (2, "")
    assert lines[0].startswith("error: ") and message in lines[0]
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("hint: "))


def test_the_hint_names_the_help_of_the_command(cli):
    assert cli("bench", "m", "--nonsense")[2].splitlines()[1] == "hint: localinfer bench --help"


def test_a_file_that_is_no_model_is_exit_4(cli, tmp_path):
    path = tmp_path / "page.gguf"
    path.write_text("<html>not found</html>")
    code, _, err = cli("run", path, "-p", "x")
    assert code == 4 and err.startswith(f"error: {path}: ")


def test_a_command_imports_no_array_library_before_it_must():
    code = (
        "import sys; from localinfer.cli.main import build_parser\n"
        "[build_parser(c) for c in ('run', 'chat', 'tokens', 'pull', 'models', 'sessions', 'doctor', 'bench')]\n"
        "print([m for m in ('numpy', 'jinja2', 'regex', 'textual', 'rich', 'huggingface_hub') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
