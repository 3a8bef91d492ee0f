"""doctor answers everywhere; sessions lists, shows, exports and deletes what was saved."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from localinfer import doctor, paths
from localinfer.device import machine_name
from localinfer.history_store import HistoryStore
from localinfer.machine import power_state
from localinfer.planner.efficiency import load_speed, record_speed


def test_doctor_as_json_and_as_text(cli):
    code, out, _ = cli("doctor", "--quick", "--json")
    found = json.loads(out)
    assert code == 0 and {"installation", "memory", "cpu", "terminal", "disk"} <= {f["topic"] for f in found}
    assert all(f["level"] in ("PASS", "WARN", "FAIL") and f["text"] for f in found)
    _, out, _ = cli("doctor", "--quick")
    assert out.splitlines()[0].startswith("PASS  installation localinfer ")


def test_measured_bandwidth_gives_fit_a_bound_unless_bench_knows_better():
    machine = machine_name()
    doctor._remember_bandwidth(25e9)
    assert load_speed(machine, "cpu").bandwidth_bytes_s == 25e9
    record_speed(machine, "cpu", when="2026-01-02", bandwidth_bytes_s=30e9, mbu={"Q4_1": 0.5})
    doctor._remember_bandwidth(10e9)
    assert load_speed(machine, "cpu").bandwidth_bytes_s == 30e9


def test_a_check_that_breaks_is_a_finding(monkeypatch, cli):
    def broken():
        raise RuntimeError("no such thing here")
        yield

    monkeypatch.setattr(doctor, "_memory", broken)
    code, out, _ = cli("doctor", "--quick")
    assert code == 0 and "WARN  broken       could not be checked: RuntimeError: no such thing here" in out


def test_missing_packages_fail_and_say_how_to_get_them(monkeypatch, cli):
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "textual" else "1")
    code, out, _ = cli("doctor", "--quick")
    assert code == 1 and "FAIL  packages     missing: textual" in out and "-> pip install textual" in out


# mlx and the C kernels cannot be found in this process.
STRIPPED = """
import importlib.util, importlib.metadata, sys
find_spec, version = importlib.util.find_spec, importlib.metadata.version
def no_spec(name, package=None):
    return None if name.partition(".")[0] == "mlx" else find_spec(name, package)
def no_version(name):
    if name.startswith("mlx"):
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.util.find_spec, importlib.metadata.version = no_spec, no_version
sys.modules["mlx"] = None
from localinfer.backends.cpu import lib
lib.library_path = lambda: None
from localinfer.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_compiler_mlx_kernels_or_terminal_it_still_answers(tmp_path):
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": os.environ["PYTHONPATH"]}
    command = [sys.executable, "-c", STRIPPED, "doctor", "--quick", "--json"]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {f["topic"]: f for f in json.loads(done.stdout)}
    assert {"installation", "memory", "cpu", "mlx", "terminal", "disk", "models"} <= set(found)
    assert found["cpu"]["level"] == "WARN" and "install a C compiler" in found["cpu"]["text"]
    assert found["cpu"]["data"]["compiler"] is None
    assert found["mlx"]["text"] == "not installed"
    assert found["terminal"]["data"]["tty"] is False
    assert not any(f["text"].startswith("could not be checked") for f in found.values())


def test_power_state_reads_what_the_system_says(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    assert power_state(tmp_path) == {"power": None, "governor": None, "temperature_c": None}
    for path, text in {
        "class/power_supply/AC/online": "1\n",
        "class/thermal/thermal_zone0/temp": "41000",
        "class/thermal/thermal_zone1/temp": "n/a",
        "devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert power_state(tmp_path) == {"power": "mains", "governor": "performance", "temperature_c": 41.0}


def saved():
    conversation = HistoryStore(paths.sessions_dir()).new()
    user = conversation.add(0, "user", "Where does the \x1b[31mfox live?")
    answer = conversation.add(user.id, "assistant", "In the wood.")
    conversation.end(answer.id, "done")
    conversation.close()
    return conversation.id


def test_sessions(cli, tmp_path):
    assert cli("sessions") == (0, "", "no conversations\n")
    name = saved()
    code, out, _ = cli("sessions", "list")
    assert code == 0 and out.startswith(name) and "2 messages" in out and "\x1b" not in out
    assert json.loads(cli("sessions", "list", "fox", "--json")[1])[0]["id"] == name
    assert json.loads(cli("sessions", "list", "wolf", "--json")[1]) == []
    code, out, _ = cli("sessions", "show", name[:-2])
    assert code == 0 and "In the wood." in out and "\x1b" not in out
    assert json.loads(cli("sessions", "export", name, "--format", "json")[1])["messages"]
    target = tmp_path / "out.md"
    assert cli("sessions", "export", name, "-o", target)[0] == 0 and "In the wood." in target.read_text()
    assert cli("sessions", "export", name, "-o", tmp_path / "no" / "folder.md")[0] == 2
    assert cli("sessions", "rm", name)[0] == 0
    assert cli("sessions", "show", name)[0] == 2


def test_mlx_without_a_gpu_is_the_check_path(monkeypatch, cli):
    """And `auto` chooses cpu: said in one line."""
    monkeypatch.setattr("localinfer.engine.backend_choice.mlx_has_gpu", lambda: False)
    monkeypatch.setattr(doctor, "find_spec", lambda name: True)
    monkeypatch.setattr(doctor, "_version", lambda name: "0.32.4")
    _, out, _ = cli("doctor", "--quick")
    (line,) = [line for line in out.splitlines() if " mlx " in line and "without a GPU" in line]
    assert "a slow path for checking; --backend auto chooses cpu" in line
