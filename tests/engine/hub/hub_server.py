"""A local hub: the parts of the Hub's HTTP API that the program uses, with faults on request."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repo:
    """A repository at one commit; weights and files over `LFS` bytes are listed with their SHA-256."""

    files: dict[str, bytes]
    commit: str = "a" * 40
    facts: dict[str, Any] = field(default_factory=dict)
    branches: dict[str, Repo] = field(default_factory=dict)
    gated: bool = False
    private: bool = False

    def siblings(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        for name, content in self.files.items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_sha1(content)}
            if name.endswith((".gguf", ".safetensors", ".bin")):
                entry["blobId"] = git_sha1(b"pointer of " + name.encode())
                entry["lfs"] = {
                    "size": len(content),
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "pointerSize": 130,
                }
            listed.append(entry)
        return listed

    def answer(self, name: str, blobs: bool) -> dict[str, Any]:
        files = self.siblings()
        if not blobs:
            files = [{"rfilename": entry["rfilename"]} for entry in files]
        return {
            "_id": "0", "id": name, "modelId": name, "author": name.partition("/")[0], "sha": self.commit,
            "siblings": files, "tags": [], "lastModified": "2026-03-04T05:06:07.000Z",
            "createdAt": "2025-01-02T03:04:05.000Z", "downloads": 1, "likes": 2, "private": self.private,
            "gated": "manual" if self.gated else False, **self.facts,
        }  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """One request as it was received."""

    method: str
    path: str
    range: str
    token: str


class Hub(ThreadingHTTPServer):
    """The state of a server; tests set its fields. Large files are redirected to `cdn`, another such server,
    if set.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, Repo] = {}
        self.token = ""
        self.page = 1000
        self.ranges = True
        self.cdn: Hub | None = None
        self.blobs: dict[str, bytes] = {}
        self.break_after: list[int] = []
        self.statuses: list[tuple[int, dict[str, str]]] = []
        self.spoil: Callable[[str, bytes], bytes] = lambda name, content: content
        self.chunk, self.chunk_pause = 1 << 20, 0.0
        self.stall_at: int | None = None
        self.stalled, self.stall = threading.Event(), threading.Event()
        self.raw: bytes | None = None
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def ranges_asked(self, name: str) -> list[str]:
        """The Range headers of the requests for one file; "" for the whole file."""
        return [
            asked.range
            for asked in self.asked
            if urllib.parse.unquote(asked.path).endswith("/" + name) and "/api/" not in asked.path
        ]

    def stalling(self, at: int) -> None:
        """Stop sending every file after this many bytes, until `going_on`."""
        self.stall_at, self.stalled, self.stall = at, threading.Event(), threading.Event()

    def going_on(self) -> None:
        """Send files completely again; waiting ones are aborted."""
        self.stall_at = None
        self.stall.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are expected."""


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, parts = self.server, urllib.parse.urlsplit(self.path)
        token = self.headers.get("Authorization", "")
        hub.asked.append(Asked(self.command, self.path, self.headers.get("Range", ""), token))
        if hub.raw is not None:
            return self._send(200, hub.raw, {})
        if hub.statuses:
            status, headers = hub.statuses.pop(0)
            return self._send(status, b"", headers)
        query = urllib.parse.parse_qs(parts.query)
        if parts.path.startswith("/blob/"):
            content = hub.blobs[parts.path.rpartition("/")[2]]
            return self._content(parts.path, content)
        if token and hub.token and token != f"Bearer {hub.token}":
            return self._send(401, b'{"error":"Invalid credentials in Authorization header"}', {})
        if parts.path == "/api/models":
            return self._listing(query)
        named = re.fullmatch(r"/api/models/([^/]+(?:/[^/]+)?)/refs", parts.path)
        if named:
            found = self._repo(named[1], "main")
            heads = {"main": found, **found.branches} if found else {}
            listed = [
                {"name": name, "ref": f"refs/heads/{name}", "targetCommit": head.commit}
                for name, head in heads.items()
                if head
            ]
            return None if found is None else self._json({"branches": listed, "converts": [], "tags": []}, {})
        named = re.fullmatch(r"/api/models/([^/]+(?:/[^/]+)?)/revision/([^/]+)", parts.path)
        if named:
            found = self._repo(named[1], urllib.parse.unquote(named[2]))
            return None if found is None else self._json(found.answer(named[1], "blobs" in query), {})
        named = re.fullmatch(r"/([^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.+)", parts.path)
        if named:
            return self._resolve(named[1], urllib.parse.unquote(named[2]), urllib.parse.unquote(named[3]))
        return self._send(404, b"", {})

    def _repo(self, name: str, revision: str) -> Repo | None:
        """The repository if the caller may see it; otherwise the refusal is sent."""
        repo = self.server.repos.get(name)
        other = (
            next((head for name, head in repo.branches.items() if revision in (name, head.commit)), None)
            if repo
            else None
        )
        known = bool(self.headers.get("Authorization"))
        if repo is None or (repo.private and not known):
            self._send(404 if known else 401, b"", {"X-Error-Code": "RepoNotFound"})
        elif repo.gated and not known:
            self._send(401, b"", {"X-Error-Code": "GatedRepo"})
        elif other is not None:
            return other
        elif revision not in ("main", repo.commit):
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            return repo
        return None

    def _listing(self, query: dict[str, list[str]]) -> None:
        hub = self.server
        words, tags = query.get("search", [""])[0].lower(), query.get("filter", [])
        answers = [repo.answer(name, False) for name, repo in hub.repos.items() if words in name.lower()]
        answers = [answer for answer in answers if set(tags) <= set(answer["tags"])]
        if task := query.get("pipeline_tag"):
            answers = [answer for answer in answers if answer.get("pipeline_tag") == task[0]]
        answers.sort(key=lambda answer: answer[query["sort"][0]], reverse=True)
        first, most = int(query.get("cursor", ["0"])[0]), min(hub.page, int(query.get("limit", ["1000"])[0]))
        page, headers = answers[first : first + most], {}
        if first + most < len(answers):
            kept = [(k, v) for k, vs in query.items() for v in vs if k != "cursor"]
            following = urllib.parse.urlencode([*kept, ("cursor", first + most)])
            headers["Link"] = f'<{hub.url}/api/models?{following}>; rel="next"'
        expanded = query.get("expand", [])
        self._json(
            [{k: v for k, v in answer.items() if not expanded or k in ("id", *expanded)} for answer in page],
            headers,
        )

    def _resolve(self, name: str, revision: str, file: str) -> None:
        hub, repo = self.server, self._repo(name, revision)
        if repo is None:
            return None
        if file not in repo.files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        content = hub.spoil(file, repo.files[file])
        if hub.cdn is not None and file.endswith((".gguf", ".safetensors")):
            digest = hashlib.sha256(content).hexdigest()
            hub.cdn.blobs[digest] = content
            return self._send(
                302, b"", {"Location": f"{hub.cdn.url}/blob/{digest}", "X-Repo-Commit": repo.commit}
            )
        self._content(file, content)
        return None

    def _content(self, name: str, content: bytes) -> None:
        hub, asked = self.server, re.match(r"bytes=(\d+)-$", self.headers.get("Range", ""))
        stall_at, stall = hub.stall_at, hub.stall
        start = int(asked[1]) if asked and hub.ranges else 0
        if start and start >= len(content):
            return self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "HEAD":
            return None
        body = content[start:]
        if hub.break_after:
            sent, stall_at = hub.break_after.pop(0), None
        else:
            sent = stall_at if stall_at is not None else len(body)
        for place in range(0, min(sent, len(body)), hub.chunk):
            self.wfile.write(body[place : min(place + hub.chunk, sent)])
            self.wfile.flush()
            if hub.chunk_pause:
                time.sleep(hub.chunk_pause)
        if stall_at is not None:
            hub.stalled.set()
            stall.wait(20)
        if sent < len(body):
            self.close_connection = True
        return None

    def _json(self, data: Any, headers: dict[str, str]) -> None:
        self._send(200, json.dumps(data).encode(), {"Content-Type": "application/json", **headers})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def serving_hub() -> Iterator[Hub]:
    """A running hub."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.stall.set()
        hub.shutdown()
        thread.join()
        hub.server_close()
