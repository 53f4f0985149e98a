"""Signing in to a tool server in the browser, with a real authorisation server."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from desktop.services.tools import tokens
from desktop.services.tools.servers import ServerConfig
from engine.platform import key_store
from tests.desktop.services.tools.conftest import Tools

pytestmark = [pytest.mark.gui, pytest.mark.loopback]
SERVER = Path(__file__).with_name("sign_in_server.py")


@pytest.fixture(autouse=True)
def _no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_store, "usable_keyring", lambda: None)
    monkeypatch.setattr(tokens, "_stores", {})


@contextlib.contextmanager
def serving(kind: str, port: int = 0) -> Iterator[int]:
    if not port:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = int(found.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(port), kind], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _attempt in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def add(tools: Tools, port: int) -> None:
    tools.service.add(ServerConfig("closed", url=f"http://127.0.0.1:{port}/mcp"))
    state = tools.until("closed", "failed")
    assert state.wants_sign_in
    assert "Sign in" in state.sentence


def page_of(tools: Tools) -> str:
    """The page that is opened once the user wants to sign in."""
    with tools.qtbot.waitSignal(tools.service.page_offered, timeout=30_000) as signal:
        tools.service.sign_in("closed")
    name, page = signal.args
    assert name == "closed"
    assert tools.state("closed").status == "starting"
    assert "browser" in tools.state("closed").sentence
    return str(page)


def visit(page: str) -> httpx2.Response:
    """What a browser does."""
    return httpx2.get(page, follow_redirects=True, trust_env=False)


def saved(tools: Tools) -> dict[str, object]:
    return dict(json.loads((tools.folder / "mcp.json").read_text())["mcpServers"]["closed"])


def test_the_user_signs_in_and_out(tools: Tools, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with serving("yes") as port:
        add(tools, port)
        page = page_of(tools)
        assert page.startswith(f"http://127.0.0.1:{port}/authorize?")
        answer = visit(page)
        assert "You can close this page" in answer.text
        tools.until("closed")
        assert tools.result("closed", "renewed") == ("0 1", False)
        assert saved(tools)["signIn"] is True
        token = tokens.load("closed", f"http://127.0.0.1:{port}/mcp")["tokens"]["access_token"]
        assert token not in (tools.folder / "mcp.json").read_text()
        assert token not in caplog.text
        with pytest.raises(httpx2.TransportError):  # nobody listens there any more
            visit(str(answer.url))
        tools.service.restart("closed")
        tools.wait(lambda: tools.state("closed").status == "ready")
        assert tools.result("closed", "renewed") == ("0 1", False)
        tools.service.sign_out("closed")
        assert tools.until("closed", "failed").wants_sign_in
        assert "signIn" not in saved(tools)
        tools.wait(lambda: not tokens.load("closed", f"http://127.0.0.1:{port}/mcp"))


@pytest.mark.slow
def test_tokens_are_renewed(tools: Tools) -> None:
    with serving("short") as port:
        add(tools, port)
        visit(page_of(tools))
        tools.until("closed")
        time.sleep(2.1)
        tools.service.restart("closed")
        tools.wait(lambda: tools.state("closed").status == "ready")
        assert tools.result("closed", "renewed") == ("1 1", False)


def test_tokens_that_the_server_has_forgotten(tools: Tools) -> None:
    with serving("yes") as port:
        add(tools, port)
        visit(page_of(tools))
        tools.until("closed")
    with serving("yes", port):
        tools.service.restart("closed")
        tools.wait(lambda: tools.state("closed").status == "failed")
        state = tools.state("closed")
        assert state.wants_sign_in
        assert "sign in" in state.sentence
        visit(page_of(tools))
        tools.until("closed")


def test_the_server_does_not_let_the_user_in(tools: Tools) -> None:
    with serving("no") as port:
        add(tools, port)
        visit(page_of(tools))
        state = tools.until("closed", "failed")
        assert "(Not you)" in state.sentence
        assert state.wants_sign_in


def test_answers_to_another_page_are_not_taken(tools: Tools) -> None:
    with serving("yes") as port:
        add(tools, port)
        page = httpx2.URL(page_of(tools))
        back = page.params["redirect_uri"]
        assert visit(f"{back}?code=stolen&state=other").status_code == 404
        assert visit(f"{back}?code=stolen").status_code == 404
        assert tools.state("closed").status == "starting"
        visit(str(page))
        tools.until("closed")


def test_another_address_does_not_get_the_tokens(tools: Tools) -> None:
    with serving("yes") as port:
        add(tools, port)
        visit(page_of(tools))
        config = tools.until("closed").config
        assert config.signs_in
        tools.service.change("closed", ServerConfig("closed", url="http://127.0.0.1:9/mcp", signs_in=True))
        assert not tools.state("closed").config.signs_in
        assert not tokens.load("closed", "http://127.0.0.1:9/mcp")
        tools.wait(lambda: not tokens.load("closed", config.url))


def test_a_server_that_is_removed_while_the_user_signs_in(tools: Tools) -> None:
    with serving("yes") as port:
        add(tools, port)
        page = page_of(tools)
        tools.service.remove("closed")
        back = httpx2.URL(page).params["redirect_uri"]

        def gone() -> bool:
            try:
                visit(f"{back}?code=x")
            except httpx2.TransportError:
                return True
            return False

        tools.wait(gone)
