"""The app as a process on a terminal: it starts, streams and answers keys. Measured: `python -m benchmarks.app_stream`
and `benchmarks.app_start`; the limits here leave room for a machine that does other things too."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.terminal import FIRST_FRAME, Terminal

ROOT = Path(__file__).parents[2]
SCRIPT = json.dumps({"n_tokens": 240, "tok_s": 80.0})
CODE = f"from tests.fakes.synthetic_engine import run_app; run_app({SCRIPT!r})"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads a thread's CPU time from /proc")
def test_streaming_leaves_the_core_and_the_keys_free(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LOCALINFER_HOME": str(tmp_path)}
    with Terminal([sys.executable, "-c", CODE], environment) as terminal:
        terminal.wait_for(*FIRST_FRAME, "ready")
        terminal.type("go\r")
        terminal.wait_for("writing")
        cpu_s, started, latencies, begun = terminal.thread_s(), time.perf_counter(), [], len(terminal.output)
        while not terminal.wrote("ready", begun):
            key, at, typed = chr(0x24D0 + len(latencies) % 26), len(terminal.output), time.perf_counter()
            terminal.type(key)
            terminal.wait_for(key, since=at)
            latencies.append(time.perf_counter() - typed)
            terminal.read(0.2)
        share = (terminal.thread_s() - cpu_s) / (time.perf_counter() - started)
    assert share < 0.6  # measured on a quiet machine: 0.09, with a key every 0.2 s
    assert statistics.median(latencies) < 0.25  # 0.008
