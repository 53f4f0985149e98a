"""StoredResponses: responses that later requests may continue, in memory only."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from engine.core import Message
from engine.lazy_dataclass import dataclass
from engine.server.failure import ApiError, Failure

MOST_BYTES = 64 << 20
"""About how much memory all stored responses may take together."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A response as it was sent, and the conversation up to its end, without the instructions."""

    response: Mapping[str, Any]
    messages: tuple[Message, ...]
    events: tuple[bytes, ...]
    """Those of its items, as JSON, in order."""
    weight: int
    custom: frozenset[str] = frozenset()
    """The names of the custom tools in the conversation, whose input is a text."""


class StoredResponses:
    """The least recently used responses are forgotten first. Used on the server's thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._weight = 0
        self._found: OrderedDict[str, Stored] = OrderedDict()

    def keep(
        self,
        response: Mapping[str, Any],
        messages: Sequence[Message],
        events: Sequence[bytes] = (),
        custom: frozenset[str] = frozenset(),
    ) -> None:
        """Keep a response, unless it alone is too large."""
        weight = 4 * len(json.dumps(response, ensure_ascii=False)) + sum(map(_weight, messages))
        weight += sum(map(len, events))
        if weight > self._most:
            return
        self._found[response["id"]] = Stored(response, tuple(messages), tuple(events), weight, custom)
        self._weight += weight
        while self._weight > self._most:
            self._weight -= self._found.popitem(last=False)[1].weight

    def get(self, id: str, param: str | None = None) -> Stored:
        """A response that was kept; with status 400 if `param` of a request names it. Raises `ApiError`."""
        found = self._found.get(id)
        if found is None:
            raise ApiError(
                Failure(
                    404 if param is None else 400,
                    f"There is no response {id[:100]!r}; the server keeps only the latest ones, and none "
                    "with store: false.",
                    param=param,
                    code="response_not_found" if param is None else "previous_response_not_found",
                )
            )
        self._found.move_to_end(id)
        return found

    def item(self, id: str) -> Mapping[str, Any] | None:
        """The output item of a kept response; None if there is none."""
        items = (item for stored in self._found.values() for item in stored.response["output"])
        return next((item for item in items if item["id"] == id), None)

    def remove(self, id: str) -> None:
        """Forget a response. Raises `ApiError`."""
        self._weight -= self.get(id).weight
        del self._found[id]


def _weight(message: Message) -> int:
    """About the bytes of a message in memory."""
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    pictures = sum(len(picture.data) for picture in message.pictures)
    return 256 + 4 * (len(message.content) + len(message.reasoning) + calls) + pictures
