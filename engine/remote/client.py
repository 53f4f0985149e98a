"""Small requests to a server: its models, the tokens of a text. They block, and end when `stop` is set."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine.errors import Cancelled, ContextTooLong, RemoteError
from engine.json_value import json_value
from engine.printable import one_line
from engine.remote.exchange import Answer, Call, Ended, Event, Exchange
from engine.remote.pictures import takes_pictures
from engine.remote.provider import Provider
from engine.remote.trouble import lost, refused, who
from engine.words import _

_LOOK_SECONDS = 0.1
"""How often a blocking request looks at its stop event."""
_CONTEXT_NAMES = ("max_model_len", "context_length", "context_window", "loaded_context_length",
                  "max_context_length", "n_ctx", "n_ctx_train")  # fmt: skip
_MOST_MODELS = 5000
_LONGEST_NAME = 300


class RemoteModel(NamedTuple):
    """A model of a server; `context_length` in tokens, 0 if the server does not say; `owner` is who the
    server says owns it, which often is the name of its software; `pictures`: whether it takes pictures, None
    if the server does not say.
    """

    name: str
    context_length: int = 0
    owner: str = ""
    pictures: bool | None = None


class Client:
    """Requests to one provider, each on a connection of its own."""

    def __init__(self, provider: Provider, key: str) -> None:
        """Raises `BadSetting` if the words would go over a network unencrypted without consent."""
        provider.check_encryption()
        self.provider, self.key = provider, key

    def items(
        self, call: Call, stop: threading.Event, seconds: float | None = None
    ) -> Iterator[Event | Answer]:
        """What comes, until it ends. Raises `RemoteError`, also after `seconds`; `Cancelled` by `stop`."""
        exchange = Exchange(self.provider, self.key, call)
        until = None if seconds is None else time.monotonic() + seconds
        begun = False
        try:
            while True:
                item = exchange.take(_LOOK_SECONDS)
                if stop.is_set():
                    raise Cancelled(_("The request to {who} was stopped.", who=who(self.provider)))
                if isinstance(item, Ended):
                    if item.error is not None:
                        raise lost(item.error, self.provider)
                    return
                if item is not None:
                    begun = True
                    yield item
                elif until is not None and time.monotonic() > until and not begun:
                    raise RemoteError(
                        _(
                            "{who} did not answer within {seconds:g} s; try again.",
                            who=who(self.provider),
                            seconds=seconds,
                        )
                    )
        finally:
            exchange.abort()
            exchange.join(1.0)

    def ask(self, call: Call, stop: threading.Event, seconds: float | None = None) -> Answer:
        """The whole answer, whatever its status. Raises as `items`."""
        for item in self.items(call, stop, seconds):
            if isinstance(item, Answer):
                return item
        raise lost(None, self.provider)

    def found(self, call: Call, stop: threading.Event, seconds: float | None = None) -> Any:
        """The JSON of an answer of status 200. Raises `EngineError` for any other."""
        answer = self.ask(call, stop, seconds)
        value = json_value(answer.text)
        if answer.status != 200 or not isinstance(value, dict | list):
            raise refused(answer, self.provider, str((call.body or {}).get("model", "")), self.key)
        return value

    def optional(self, call: Call, stop: threading.Event) -> Any:
        """The JSON of an answer that few servers have; None for none. Raises `Cancelled`."""
        try:
            return self.found(call, stop)
        except (RemoteError, ContextTooLong):
            return None

    def models(self, stop: threading.Event, seconds: float | None = None) -> tuple[RemoteModel, ...]:
        """The models that the server lists, in its order. Raises `EngineError`."""
        found = self.found(Call("/models"), stop, seconds)
        listed = found.get("data", found.get("models")) if isinstance(found, dict) else found
        if not isinstance(listed, list):
            raise RemoteError(
                _(
                    "{who} has no list of models; its address is probably not that of an API.",
                    who=who(self.provider),
                )
            )
        models = (_model(each) for each in listed[:_MOST_MODELS])
        found_models: dict[str, RemoteModel] = {}
        for model in models:
            if model is not None:
                found_models.setdefault(model.name, model)
        return tuple(found_models.values())

    def token_count(
        self,
        kind: str,
        model: str,
        text: str | Sequence[Mapping[str, Any]],
        stop: threading.Event,
        seconds: float | None,
    ) -> int:
        """Tokens of a text, or of messages in the model's template (vLLM only). Raises `EngineError`."""
        bodies: dict[str, tuple[str, dict[str, Any]]] = {
            "vllm": ("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False}),
            "llama.cpp": ("/tokenize", {"content": text}),
            "llama-cpp-python": ("/extras/tokenize/count", {"input": text}),
        }
        path, body = bodies[kind]
        if not isinstance(text, str):
            body = {"model": model, "messages": list(text)}
        found = self.found(Call(path, body, root=True), stop, seconds)
        count = found.get("count") if isinstance(found, dict) else None
        tokens = found.get("tokens") if isinstance(found, dict) else None
        if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
            return count
        if isinstance(tokens, list):
            return len(tokens)
        raise RemoteError(_("{who} does not count tokens as expected.", who=who(self.provider)))


def _model(found: object) -> RemoteModel | None:
    if isinstance(found, str):
        found = {"id": found}
    if not isinstance(found, dict):
        return None
    name = found.get("id", found.get("model", found.get("name")))
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
        return None
    owner = found.get("owned_by")
    owned = one_line(owner) if isinstance(owner, str) else ""
    return RemoteModel(name, _context(found), owned, takes_pictures(found))


def _context(found: Mapping[str, Any]) -> int:
    meta = found.get("meta")
    for place in (found, meta if isinstance(meta, dict) else {}):
        for name in _CONTEXT_NAMES:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
                return value
    return 0
