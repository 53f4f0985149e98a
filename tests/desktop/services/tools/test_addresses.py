"""Servers of tools at an address: Streamable HTTP, the older SSE, and what answers in another way."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from desktop.services.tools.servers import ServerConfig
from tests.desktop.services.tools.conftest import SERVER, Tools

pytestmark = [pytest.mark.gui, pytest.mark.loopback]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def serving(kind: str, port: int) -> Iterator[None]:
    """Run a server at a port, from when it answers."""
    process = subprocess.Popen(
        [sys.executable, str(SERVER), kind, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _attempt in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("kind", "path"), [("http", "mcp"), ("sse", "sse")])
def test_a_server_at_an_address(
    tools: Tools, kind: str, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("KEY_OF_A_TEST", "hush")
    port = _free_port()
    config = ServerConfig(
        "far",
        url=f"http://127.0.0.1:{port}/{path}?key=hush",
        headers=(("X-Key", "${KEY_OF_A_TEST}"),),
        transport="sse" if kind == "sse" else "",
    )
    with serving(kind, port):
        tools.service.add(config)
        tools.until("far")
        assert tools.result("far", "add", '{"a": 2, "b": 3}') == ("5", False)
        assert tools.result("far", "header", '{"name": "x-key"}') == ("hush", False)
        assert tools.service.offered(local_only=True)
        assert tools.result("far", "grow") == ("grown", False)
        tools.wait(lambda: any(tool.tool == "more" for tool in tools.state("far").tools))
    assert tools.result("far", "add", '{"a": 2, "b": 3}')[1]
    tools.until("far", "failed")
    with serving(kind, port):
        tools.service.restart("far")
        tools.until("far")
        assert tools.result("far", "add", '{"a": 2, "b": 3}') == ("5", False)
    assert "hush" not in caplog.text


def test_a_session_that_the_server_has_forgotten_is_an_end(tools: Tools) -> None:
    port = _free_port()
    with serving("http-no-stream", port):
        tools.service.add(ServerConfig("far", url=f"http://127.0.0.1:{port}/mcp"))
        tools.wait(lambda: bool(tools.state("far").prompts))  # no request is under way any more
    with serving("http-no-stream", port):
        assert tools.state("far").status == "ready"
        assert tools.result("far", "add", '{"a": 2, "b": 3}')[1]
        assert "Restart it" in tools.until("far", "failed").sentence


class _Answers(BaseHTTPRequestHandler):
    status: ClassVar[int] = 401

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.parametrize("transport", ["", "sse"])
@pytest.mark.parametrize(
    ("status", "words"), [(401, "Sign in, or"), (403, "add a header"), (404, "status 404")]
)
def test_a_server_that_refuses(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, transport: str, status: int, words: str
) -> None:
    monkeypatch.setattr(_Answers, "status", status)
    server = HTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        tools.service.add(ServerConfig("closed", url=url, transport=transport))
        assert words in tools.until("closed", "failed").sentence
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("transport", ["", "sse"])
def test_nobody_answers(tools: Tools, transport: str) -> None:
    url = f"http://127.0.0.1:{_free_port()}/"
    tools.service.add(ServerConfig("nobody", url=url, transport=transport))
    assert "cannot be reached" in tools.until("nobody", "failed").sentence


def test_servers_of_other_computers_are_left_out_of_local_chats(tools: Tools) -> None:
    state = tools.begin("usual")
    assert tools.service.offered(local_only=True)
    far = ServerConfig("usual", url="https://example.org/mcp")
    tools.service._states["usual"] = type(state)(far, "ready", tools=state.tools)
    assert tools.service.offered()
    assert tools.service.offered(local_only=True) == ()
    tools.service._states["usual"] = state


def test_what_the_client_does_not_have_is_answered(tools: Tools) -> None:
    tools.begin("usual")
    text, failed = tools.result("usual", "asks", json.dumps({}))
    assert not failed
    assert text.startswith("no roots: ")
