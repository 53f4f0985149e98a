"""A web site with updates on this machine: it is slow, resumes, and calls at points of a download."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["UpdateSite"]

_PIECE = 1 << 20


class UpdateSite:
    """Serves the files of a folder at a port of this machine.

    `at` is called with "asked NAME" before an answer, and "sent NAME PERCENT" while a large file is sent, for
    each percent of the whole file; `pause_s` is slept after each MiB.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.pause_s = folder, 0.0
        self.at: Callable[[str], None] = lambda _point: None
        self.listed = threading.Event()
        """Set when the list of updates has been sent."""
        self.ranges: list[int] = []
        """Where the requests for packages began, in bytes."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site._answer(self)

            def log_message(self, *_words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.lstrip("/")
        file = self.folder / name
        self.at(f"asked {name}")
        if not file.is_file():
            request.send_error(404)
            return
        size, begin = file.stat().st_size, 0
        if found := re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", "")):
            begin = int(found[1])
        if begin >= size:
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{size}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        request.send_response(206 if begin else 200)
        request.send_header("Content-Length", str(size - begin))
        if begin:
            request.send_header("Content-Range", f"bytes {begin}-{size - 1}/{size}")
        request.end_headers()
        if size > _PIECE:
            self.ranges.append(begin)
        try:
            self._send(request, file, begin, size)
        except OSError:
            request.close_connection = True
        if size <= _PIECE:
            self.listed.set()

    def _send(self, request: BaseHTTPRequestHandler, file: Path, begin: int, size: int) -> None:
        with file.open("rb") as source:
            source.seek(begin)
            sent = begin
            while piece := source.read(_PIECE):
                request.wfile.write(piece)
                before, sent = sent, sent + len(piece)
                if size > _PIECE:
                    for percent in range(before * 100 // size + 1, sent * 100 // size + 1):
                        self.at(f"sent {file.name} {percent}")
                    time.sleep(self.pause_s)
