"""A scripted server with one echoing model, and a window over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from PySide6.QtCore import Qt

from desktop.app import EngineApi
from engine.platform import key_store
from engine.remote import Provider, keys, model_address
from tests.conftest import WAIT_MS
from tests.desktop.fakes import EchoApi
from tests.desktop.hand import Hand, no_fetch
from tests.engine.remote.fake_server import Asked, FakeServer, Reply, events, json_reply, serving

__all__ = ["CHAT", "EchoServer", "RemoteHand", "no_keyring", "remote_hand"]

CHAT = "/v1/chat/completions"


def words_of(text: str) -> list[str]:
    return [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]


class EchoServer:
    """Says the last user's text back, a word in each chunk.

    `script`, if set, answers instead, when the request is a reply to the user (not one of a probe).
    """

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.script: Callable[[Asked], Reply] | None = None
        self.models: list[dict[str, Any]] = [{"id": "echo", "max_model_len": 4096, "owned_by": "fake"}]
        self.can: set[str] = set()
        server.routes |= {
            "/v1/models": lambda asked: json_reply({"data": self.models}),
            CHAT: self.chat,
            "/version": lambda asked: json_reply({"version": "7.5"}),
        }

    def chat(self, asked: Asked) -> Reply:
        body = asked.body
        last = body["messages"][-1]["content"]
        if self.is_reply(body):
            return self.script(asked) if self.script is not None else self.stream(last)
        if body.get("stream"):
            return self.stream("hello")
        if "continue" in self.can and body["messages"][-1]["role"] == "assistant":
            continues = bool(body.get("continue_final_message"))
        else:
            continues = False
        prompt = 12 + sum(1 + 5 * (not continues) for each in body["messages"] if each["role"] == "assistant")
        choice = {"index": 0, "message": {"role": "assistant", "content": "One"}, "finish_reason": "length"}
        return json_reply({"choices": [choice], "usage": {"prompt_tokens": prompt, "completion_tokens": 1}})

    def tokenize(self, asked: Asked) -> Reply:
        """Counts words, as vLLM does tokens; not among the paths unless a test adds it."""
        body = asked.body
        words = body["prompt"].split() if "prompt" in body else body["messages"]
        return json_reply({"count": len(words)})

    def is_reply(self, body: dict[str, Any]) -> bool:
        """Whether this is a message of the window, which streams and may be long."""
        return bool(body.get("stream")) and body["messages"][-1]["content"] != "Say hello."

    def stream(self, text: str) -> Reply:
        chunks = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in words_of(text)]
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        usage = {"choices": [], "usage": {"prompt_tokens": 21, "completion_tokens": len(chunks)}}
        return events(*chunks, end, usage, "[DONE]")

    @property
    def replies(self) -> list[dict[str, Any]]:
        """The requests for replies to the user."""
        return [body for body in self.server.bodies(CHAT) if self.is_reply(body)]


@contextmanager
def no_keyring() -> Iterator[None]:
    """No keyring, and no key of another test."""
    with (
        mock.patch.object(key_store, "usable_keyring", return_value=None),
        mock.patch.dict(keys._stores, clear=True),
    ):
        yield


class RemoteHand(Hand):
    """A window; `add` adds the server, and `use` loads its model."""

    echo_server: EchoServer

    @property
    def providers(self):
        return self.desktop.services.providers

    def add(self, name: str = "Lab", **settings: Any) -> Provider:
        provider = Provider(self.providers.new_id(name), name, self.echo_server.server.url, **settings)
        self.providers.save(provider)
        return provider

    def use(self, provider: Provider | None = None, model: str = "echo") -> str:
        """Load a model of the server, as the menu does."""
        address = model_address((provider or self.add()).id, model)
        self.window.model_controller.load(address)
        self.qtbot.waitUntil(
            lambda: self.session.model is not None and self.session.model.path == address
            and self.session.state == "idle",
            timeout=WAIT_MS,
        )  # fmt: skip
        return address

    def send(self, text: str) -> None:
        """Type a message and send it, without waiting for the reply."""
        self.type(text)
        self.press(Qt.Key.Key_Return)

    def press_send(self) -> None:
        """Send what is in the box."""
        self.box.setFocus()
        self.press(Qt.Key.Key_Return)

    def notice(self) -> str:
        """What the banner says."""
        banner = self.window.chat.banner
        return banner.text.text() if banner.isVisible() else ""


@contextmanager
def remote_hand(qtbot, folder: Path, **values: Any) -> Iterator[RemoteHand]:
    """A window without a model, and a server that nobody has asked yet."""
    with serving() as server, no_keyring():
        echo = EchoApi()
        api = EngineApi(
            echo.open_chat, echo.describe, no_fetch, echo.draft_problem, lambda _folders, _stop: iter(()),
            lambda _threads: 40e9,
        )  # fmt: skip
        hand = RemoteHand(qtbot, folder, echo, api=api, **values)
        hand.echo_server = EchoServer(server)
        try:
            yield hand
        finally:
            hand.close()
