"""The `context` of /api/generate: numbers that say a conversation, sent back with the next prompt.

Ollama's are token ids; clients must not look into them, and these say the messages themselves, so that the
chat template sees them: their JSON, three bytes in each number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from engine.core import Message
from engine.server.failure import ApiError, bad_request
from engine.server.fields import Fields

_FIRST = int.from_bytes(b"ink")
_WIDTH = 3
_ROLES = ("system", "user", "assistant")


def context_of(messages: Sequence[Message], reply: str) -> list[int]:
    """The numbers of a conversation and the reply to it."""
    said = [[message.role, message.content] for message in messages] + [["assistant", reply]]
    data = json.dumps(said, ensure_ascii=False).encode("utf-8", "replace")
    data += b" " * (-len(data) % _WIDTH)
    return [_FIRST, *(int.from_bytes(data[at : at + _WIDTH]) for at in range(0, len(data), _WIDTH))]


def said_before(fields: Fields) -> tuple[Message, ...]:
    """The messages that the `context` of a request says. Raises `ApiError`."""
    numbers = fields.get("context")
    if not numbers:
        return ()
    try:
        if numbers[0] != _FIRST:
            raise _foreign(fields)
        data = b"".join(number.to_bytes(_WIDTH) for number in numbers[1:])
        said = json.loads(data)
        found = tuple(Message(role, content) for role, content in said if role in _ROLES)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise _foreign(fields) from None
    if len(found) != len(said) or not all(isinstance(message.content, str) for message in found):
        raise _foreign(fields)
    return found


def _foreign(fields: Fields) -> ApiError:
    return bad_request(
        f"{fields.place('context')} is not one that this server gave; leave it out, or send the conversation "
        "as messages to /api/chat.",
        fields.place("context"),
    )
