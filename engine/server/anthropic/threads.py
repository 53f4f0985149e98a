"""Threads: conversations that the server holds between requests of a client, which then sends only the new
messages (`thread`: `{"type": "create"}`, then `{"type": "continue", "previous_message_id": ...}`).

Source: Anthropic's API reference, "Messages", beta `message-threads-2026-08-12`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.lazy_dataclass import dataclass
from engine.server.failure import ApiError, Failure
from engine.server.fields import Fields

MOST_BYTES = 64 << 20
"""About how much memory all held conversations may take together."""
_FIXED = ("system", "tools")
"""What a conversation keeps from its first request on; a later one must not send it."""
_RESTART = 'send the whole conversation with thread: {"type": "create"}'


@dataclass(slots=True)
class _Held:
    """A conversation up to a message; its `fields` are None once it was continued."""

    fields: Mapping[str, Any] | None
    weight: int
    in_flight: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A request with the `fields` of its whole conversation, which is `held` if it is a thread, and goes on
    from the message `previous` ("" if it begins here).
    """

    fields: Fields
    held: bool = False
    previous: str = ""


class Threads:
    """The least recently used conversations are forgotten first. Used on the server's thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._weight = 0
        self._held: OrderedDict[str, _Held] = OrderedDict()

    @contextmanager
    def turn(self, fields: Fields) -> Iterator[Turn]:
        """The turn of a request, while it is answered. Raises `ApiError`."""
        turn = self._turn(fields)
        before = self._held.get(turn.previous)
        if before is not None:
            before.in_flight = True
        try:
            yield turn
        finally:
            if before is not None:
                before.in_flight = False

    def _turn(self, fields: Fields) -> Turn:
        thread = fields.part("thread")
        if thread is None:
            return Turn(fields)
        kind = thread.text("type")
        if kind == "create":
            return Turn(fields, held=True)
        if kind != "continue":
            raise thread.wrong("type", '"create" or "continue"')
        new = fields.get("messages") or []
        if not isinstance(new, list):
            raise fields.wrong("messages", "a list of objects")
        previous = thread.text("previous_message_id")
        before = self._found(previous)
        for name in _FIXED:
            if fields.get(name) is not None:
                raise _failure(
                    400, "thread_fingerprint_mismatch",
                    f"{name} cannot change in a thread; leave it out, or {_RESTART}.",
                )  # fmt: skip
        whole = {**before, "messages": [*before["messages"], *new]}
        return Turn(fields.changed(whole), held=True, previous=previous)

    def _found(self, id: str) -> Mapping[str, Any]:
        """The fields of a conversation that can be continued. Raises `ApiError`."""
        held = self._held.get(id)
        if held is None:
            raise _failure(
                404, "thread_not_found",
                f"There is no thread with the message {id[:100]!r}, as only the latest are held; {_RESTART}.",
            )  # fmt: skip
        if held.in_flight:
            raise _failure(
                400, "thread_continue_in_flight",
                f"Another request is continuing from this message; wait for its reply, or {_RESTART}.",
            )  # fmt: skip
        if held.fields is None:
            raise _failure(
                400, "thread_already_continued",
                f"This message was continued already; continue from the latest one, or {_RESTART}.",
            )  # fmt: skip
        self._held.move_to_end(id)
        return held.fields

    def keep(self, turn: Turn, message: Mapping[str, Any]) -> None:
        """Hold a thread up to its reply, unless it alone is too large; it goes on from there only."""
        if not turn.held:
            return
        reply = {"role": "assistant", "content": message["content"]}
        fields = {name: turn.fields.get(name) for name in _FIXED}
        fields["messages"] = [*turn.fields.get("messages"), reply]
        if turn.previous in self._held:
            self._replace(turn.previous, _Held(None, _weight(None)))
        weight = _weight(fields)
        if weight <= self._most:
            self._replace(message["id"], _Held(fields, weight))
        while self._weight > self._most:
            self._weight -= self._held.popitem(last=False)[1].weight

    def _replace(self, id: str, held: _Held) -> None:
        before = self._held.pop(id, None)
        self._weight += held.weight - (0 if before is None else before.weight)
        self._held[id] = held


def _weight(fields: Mapping[str, Any] | None) -> int:
    """About the bytes of a conversation in memory."""
    return 512 + (0 if fields is None else 4 * len(json.dumps(fields, ensure_ascii=False)))


def _failure(status: int, code: str, message: str) -> ApiError:
    return ApiError(Failure(status, message, param="thread", code=code))
