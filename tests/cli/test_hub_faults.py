"""Downloads through random faults: every one ends with the right bytes or one line, and nothing wrong stays behind.

LOCALINFER_TEST_LONG=1 makes it 1,000 downloads (some minutes).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from tests.fakes.hub_server import serving

ROOT = Path(__file__).parents[2]
DOWNLOADS = 1000 if os.environ.get("LOCALINFER_TEST_LONG") else 40
FAULTS = ("", "cut", "no ranges", "wrong bytes", "429", "500", "drip", "redirect")
MOST_TRIES = 12

# Every file is pulled until it is there; what was said and where the file is goes to stdout, a line a try.
PULL_ALL = """
import contextlib, io, json, sys, time
from localinfer.cli.main import main
sleep = time.sleep
time.sleep = lambda s: sleep(min(s, 0.002))  # the hub's library waits seconds between tries
for name in json.loads(sys.stdin.read()):
    for attempt in range(int(sys.argv[1])):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["pull", f"hf:o/r/{name}"])
        print(json.dumps([name, code, out.getvalue().strip(), err.getvalue()]))
        if code == 0:
            break
"""


def test_no_download_is_corrupt_and_none_is_left_behind(tmp_path):
    dice = random.Random(11)
    files = {f"model-{i}.gguf": dice.randbytes(dice.randrange(1, 60_000)) for i in range(DOWNLOADS)}
    cache = tmp_path / "hub"
    with serving(files) as other, serving(files, other.url) as hub:
        hub.faults = dice.choices(FAULTS, k=20 * DOWNLOADS)
        environment = {
            **os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_CACHE": str(cache),
            "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", PULL_ALL, str(MOST_TRIES)], input=json.dumps(list(files)), env=environment,
            capture_output=True, text=True, timeout=1800,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tries = [json.loads(line) for line in done.stdout.splitlines()]
    arrived = {name: Path(out) for name, code, out, _ in tries if code == 0}
    assert set(arrived) == set(files)
    assert all(arrived[name].read_bytes() == content for name, content in files.items())
    failed = [(code, out, err) for _, code, out, err in tries if code]
    assert failed and all(code in (2, 4) and out == "" and "error: " in err for code, out, err in failed)
    blobs = [p for p in cache.rglob("blobs/*") if p.is_file()]
    assert len(blobs) == len(files)  # no pieces, no refused bytes
    assert all(hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name for blob in blobs)
    print(f"{len(files)} downloads, {len(failed)} tries that failed, faults left {len(hub.faults)}")
