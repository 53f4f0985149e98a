"""A call of a tool, as the message of its result keeps it."""

from __future__ import annotations

import json
from typing import NamedTuple

from desktop.store.database.database import Database
from engine.json_value import json_value

__all__ = ["NOT_ALLOWED", "UNFINISHED", "StoredCall", "put_call", "read_call"]

NOT_ALLOWED = "The user did not allow this call."
"""The result of a call that was refused. The model reads it, in every language of the window."""
UNFINISHED = "This call was stopped before it had a result."


class StoredCall(NamedTuple):
    """What a reply called: `name` as the model wrote it, `arguments` as JSON text, mostly of an object.

    `tool` of `server` is what runs; both are empty where no tool of that name was offered. A call that is
    `waiting` runs only if the user allows it.
    """

    id: str
    name: str
    arguments: str
    server: str = ""
    tool: str = ""
    waiting: bool = False

    def text(self) -> str:
        """As `read_call` reads it."""
        return json.dumps(self._asdict())


def read_call(text: str) -> StoredCall | None:
    """The call in a column or a file; None where there is none, or not one that can be read."""
    found = json_value(text) if text else None
    if not isinstance(found, dict):
        return None
    id, name, arguments, server, tool = (found.get(key, "") for key in StoredCall._fields[:5])
    if not (name and all(isinstance(word, str) for word in (id, name, arguments, server, tool))):
        return None
    return StoredCall(id, name, arguments, server, tool, found.get("waiting") is True)


def put_call(database: Database, message_id: int, call: StoredCall, state: str) -> None:
    """Replace a message's call and its state. Raises `StoreError`."""
    database.execute(
        "UPDATE messages SET tool_call = ?, state = ? WHERE id = ?", (call.text(), state, message_id)
    )
