"""What `eval --compare-kv` measured reaches the plan: of that very file, wherever it lies, and of no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from localinfer import kv_cost
from localinfer.cli.main import main
from localinfer.engine.params import EngineOptions
from localinfer.engine.planning import plan_for
from localinfer.paths import kv_cost_file
from localinfer.tui.plan_view import notes_of

TINY = Path(__file__).parent / "golden" / "tiny"


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALINFER_HOME", str(tmp_path / "home"))


@pytest.fixture
def model(tmp_path) -> Path:
    return Path(shutil.copy(TINY / "llama.gguf", tmp_path))


def fit(path: Path, capsys) -> tuple[dict, str]:
    main(["fit", str(path), "--ctx", "256", "--json"])
    trades = {row["kv"]: row for row in json.loads(capsys.readouterr().out)["kv_trades"]}
    main(["fit", str(path), "--ctx", "256"])
    return trades, capsys.readouterr().out


def test_from_eval_to_fit_and_the_plan_screen(model, tmp_path, capsys, monkeypatch):
    trades, shown = fit(model, capsys)
    assert all(row["measured"] is None for row in trades.values()) and "measured with other models" in shown
    text = tmp_path / "text.txt"
    text.write_text("a text that says the same again and again, and again. " * 20)
    args = ["eval", str(model), "--text", str(text), "--window", "32", "--limit", "128", "--compare-kv", "--json"]
    assert main([*args, "--backend", "cpu"]) == 0
    measured = json.loads(capsys.readouterr().out)["kv"]
    moved = Path(shutil.move(model, tmp_path / "renamed.gguf"))
    trades, shown = fit(moved, capsys)
    for kv in ("q8_0", "q8_0/q4_0", "q4_0"):
        found = trades[kv]["measured"]
        assert found["kld_mean"] == pytest.approx(measured[kv]["kld_mean"]) and found["tokens"] == 60
        assert f"{measured[kv]['kld_mean']:.1e} on this file, " in next(
            line for line in shown.splitlines() if line.startswith(f"{kv} ")
        )
    plan = plan_for(str(moved), EngineOptions(ctx=256))
    assert sum("measured on this file" in note for note in notes_of(plan)) == 3
    chosen = plan_for(str(moved), EngineOptions(ctx=256, kv="q4_0"))
    assert sum("measured on this file" in note for note in notes_of(chosen)) == 1


def test_another_file_of_the_same_size_is_another_model(model, tmp_path):
    with kv_cost.GGUFFile.open(model) as file:
        kv_cost.record_kv_cost(file, {"q8_0": kv_cost.KVCost(1e-3, 0.9, 10)})
        assert set(kv_cost.known_kv_cost(file)) == {"q8_0"}
        at = next(iter(file.tensors.values())).offset
    content = bytearray(model.read_bytes())
    content[at] ^= 1
    other = tmp_path / "other.gguf"
    other.write_bytes(content)
    with kv_cost.GGUFFile.open(other) as file:
        assert kv_cost.known_kv_cost(file) == {}


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {"file_bytes": 1, "kv": {"q8_0": 3}}}', "\0"])
def test_a_damaged_file_is_as_if_nothing_was_measured(model, content):
    kv_cost_file().parent.mkdir(parents=True)
    kv_cost_file().write_text(content.replace(": 1,", f": {model.stat().st_size},"))
    with kv_cost.GGUFFile.open(model) as file:
        assert kv_cost.known_kv_cost(file) == {}
        kv_cost.record_kv_cost(file, {"q8_0": kv_cost.KVCost(1e-3, 0.9, 10)})
        assert set(kv_cost.known_kv_cost(file)) == {"q8_0"}
