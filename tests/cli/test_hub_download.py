"""`pull hf:...` from a local server that behaves like the hub: right bytes, wrong bytes, cuts, refusals."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from localinfer.errors import UsageError

ROOT = Path(__file__).parents[2]
CONTENT = os.urandom(300_000)
SHA = hashlib.sha256(CONTENT).hexdigest()
FILES = {"Model-Q4_K_M.gguf": CONTENT, "Model-Q8_0.gguf": CONTENT * 2}


class Hub(BaseHTTPRequestHandler):
    """`fault` on the server: "", hash, cut (the first answer ends in the middle), or an HTTP status."""

    def log_message(self, *args):
        """Quiet."""

    def do_GET(self):
        self._answer(body=True)

    def do_HEAD(self):
        self._answer(body=False)

    def _answer(self, body):
        fault = self.server.fault
        if isinstance(fault, int):
            self.send_response(fault)
            if fault == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            if fault == 403:
                self.send_header("X-Error-Code", "GatedRepo")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/api/models/"):
            siblings = [{"rfilename": n, "size": len(c)} for n, c in FILES.items()]
            self._send(
                json.dumps({"id": "o/r", "modelId": "o/r", "sha": "c" * 40, "siblings": siblings}).encode(), body
            )
        else:
            content = FILES[self.path.rsplit("/", 1)[1]]
            etag = hashlib.sha256(content).hexdigest() if fault != "hash" else "0" * 64
            self._send(content, body, {"ETag": f'"{etag}"', "X-Repo-Commit": "c" * 40, "Accept-Ranges": "bytes"})

    def _send(self, content, body, headers=None):
        start = 0
        if span := self.headers.get("Range"):
            start = int(span.split("=")[1].split("-")[0])
        self.server.asked.append((self.command, self.path, start))
        self.send_response(206 if start else 200)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if body and self.server.fault == "cut" and headers:
            self.server.fault = ""
            self.wfile.write(content[start : start + 100_000])
            self.wfile.flush()
            self.connection.close()
        elif body:
            self.wfile.write(content[start:])


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.fault, server.asked = "", []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def pull(hub, tmp_path):
    def run(reference, **variables):
        environment = {
            **os.environ,
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_CACHE": str(tmp_path / "hf" / "hub"),
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "127.0.0.1",
            **variables,
        }
        command = [sys.executable, "-m", "localinfer.cli.main", "pull", reference]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=120)
        return done.returncode, done.stdout.strip(), done.stderr

    return run


def blobs(tmp_path):
    return [p for p in (tmp_path / "hf").rglob("*") if p.is_file() and p.stat().st_size > 1000]


def test_one_quantization_is_fetched_checked_and_not_fetched_again(hub, pull, tmp_path):
    code, out, err = pull("hf:o/r:Q4_K_M")
    assert code == 0, err
    assert Path(out).read_bytes() == CONTENT and Path(out).resolve().name == SHA
    assert not any("Q8_0" in path for command, path, _ in hub.asked if command == "GET" and "resolve" in path)
    hub.asked.clear()
    assert pull("hf:o/r")[1] == out
    assert not any(command == "GET" and "resolve" in path for command, path, _ in hub.asked)


def test_a_cut_download_is_taken_up_again(hub, pull):
    hub.fault = "cut"
    code, out, err = pull("hf:o/r:Q4_K_M")
    if code:
        code, out, err = pull("hf:o/r:Q4_K_M")
    assert code == 0, err
    assert Path(out).read_bytes() == CONTENT


def test_wrong_bytes_are_refused_and_do_not_stay(hub, pull, tmp_path):
    hub.fault = "hash"
    code, out, err = pull("hf:o/r:Q4_K_M")
    assert code == 4 and out == "" and "expected SHA-256 0000" in err
    assert blobs(tmp_path) == []


@pytest.mark.parametrize(
    ("status", "says"), [(404, "no such repository"), (403, "access has to be asked for"), (401, "")]
)
def test_refusals_are_one_line(hub, pull, status, says):
    hub.fault = status
    code, _, err = pull("hf:o/r")
    assert code == 2 and says in err and "Traceback" not in err
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "hint"]


def test_offline_what_was_downloaded_is_found(hub, pull):
    code, _, err = pull("hf:o/r:Q4_K_M", HF_HUB_OFFLINE="1")
    assert code == 2 and err.startswith("error: o/r: not in the cache, and HF_HUB_OFFLINE is set")
    assert hub.asked == []
    code, path, _ = pull("hf:o/r:Q4_K_M")
    hub.asked.clear()
    assert pull("hf:o/r:Q4_K_M", HF_HUB_OFFLINE="1")[:2] == (0, path)
    code, _, err = pull("hf:o/r:Q8_0", HF_HUB_OFFLINE="1")
    assert code == 2 and "hf:o/r:Q4_K_M" in err and hub.asked == []


def test_a_full_disk_is_noticed_before_the_download(monkeypatch, tmp_path):
    from localinfer import hub as module

    monkeypatch.setattr(module, "_in_cache", lambda repo, name: Path("there") if name == "b.gguf" else None)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**30))
    fits = module.RemoteModel("o/r", "Q4_0", ("a.gguf", "b.gguf"), (700 * 2**20, 2**40))
    module._check_space(fits, tmp_path / "not" / "yet")
    with pytest.raises(UsageError, match=r"hf:o/r:Q4_0: needs 900\.00 MiB, 1\.00 GiB are free"):
        module._check_space(module.RemoteModel("o/r", "Q4_0", ("a.gguf",), (900 * 2**20,)), tmp_path)


def test_no_server_is_one_line(hub, pull):
    hub.shutdown()
    hub.server_close()
    code, _, err = pull("hf:o/r")
    assert code == 2 and err.startswith("error: o/r: ") and "Traceback" not in err
    hub.serve_forever = lambda: None
