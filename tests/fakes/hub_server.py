"""A server that behaves like the hub, with faults: listing, files by range, redirects; HF_ENDPOINT points to it.

`faults` is a list of names, one for each request for a file's content, in turn; none are left: no fault.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CUT_AFTER = 0.4  # of what was asked for
COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    """`files`: name -> bytes, or a path. `sent` counts the bytes of content that went out."""

    daemon_threads = True

    def __init__(self, files, elsewhere=""):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.faults: list[str] = []
        self.elsewhere = elsewhere  # another server, for redirects
        self.asked: list[tuple[str, str, str]] = []
        self.sent_of: Counter[str] = Counter()  # bytes by file
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def sent(self) -> int:
        return self.sent_of.total()

    def next_fault(self) -> str:
        with self.lock:
            return self.faults.pop(0) if self.faults else ""


@contextmanager
def serving(files, elsewhere=""):
    hub = Hub(files, elsewhere)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args):
        """Quiet."""

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, body):
        self.server.asked.append((self.command, self.path, self.headers.get("Range", "")))
        if self.path.startswith("/api/models/"):
            listed = [{"rfilename": n, "size": size_of(c)} for n, c in self.server.files.items()]
            content = json.dumps({"id": "o/r", "modelId": "o/r", "sha": COMMIT, "siblings": listed}).encode()
            return self._head(200, {"Content-Length": len(content)}) or (self.wfile.write(content) if body else None)
        name = self.path.split("?")[0].partition(f"/{COMMIT}/")[2] or self.path.split("?")[0].partition("/main/")[2]
        if name not in self.server.files:
            return self._head(404, {"X-Error-Code": "EntryNotFound", "Content-Length": 0})
        fault = self.server.next_fault() if body else ""
        if fault in ("429", "500"):
            return self._head(int(fault), {"Content-Length": 0})
        if fault == "redirect":
            return self._head(302, {"Location": self.server.elsewhere + self.path, "Content-Length": 0})
        return self._file(name, fault, body)

    def _file(self, name, fault, body):
        content = self.server.files[name]
        size = size_of(content)
        start, end = 0, size
        span = self.headers.get("Range")
        ranged = bool(span) and fault != "no ranges"
        if ranged:
            first, _, last = span.removeprefix("bytes=").partition("-")
            start, end = int(first), int(last) + 1 if last else size
        etag = content_hash(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Content-Length": end - start}
        if self.server.elsewhere or fault != "no ranges":
            headers["Accept-Ranges"] = "bytes"
        if ranged:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self._head(206 if ranged else 200, headers)
        if not body:
            return
        if fault == "cut":
            end = start + int((end - start) * CUT_AFTER)
        self._send(name, start, end, fault)
        if fault == "cut":
            self.wfile.flush()
            self.connection.close()

    def _send(self, name, start, end, fault):
        """In pieces; stops where nobody reads any more."""
        content = self.server.files[name]
        step = 512 if fault == "drip" else 16 * 1024
        try:
            for at in range(start, end, step):
                piece = part_of(content, at, min(end, at + step))
                if fault == "wrong bytes":
                    piece = bytes(len(piece))
                self.wfile.write(piece)
                self.server.sent_of[name] += len(piece)
                if fault == "drip":
                    time.sleep(0.002)
        except OSError:
            return

    def _head(self, status, headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, str(value))
        self.end_headers()


def size_of(content) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def part_of(content, start, end) -> bytes:
    if not isinstance(content, Path):
        return content[start:end]
    with content.open("rb") as f:
        f.seek(start)
        return f.read(end - start)


def content_hash(content) -> str:
    """What the hub gives as ETag: SHA-256; of files that are there for their header only, something of that form."""
    return "0" * 64 if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
