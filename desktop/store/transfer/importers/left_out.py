"""What a file says beyond messages and their texts: kept beside the first message, and reported if users
would miss it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from desktop.store.transfer.records import MessageRecord

__all__ = ["ARCHIVED", "RATINGS", "left_out_notes", "with_chat"]

_KEPT = "kept with the chat and in its JSON export, but not shown"
RATINGS = f"Ratings of replies are {_KEPT}"
ARCHIVED = "Archived chats are listed with the others"
_SENTENCES = {
    "tags": f"Tags are {_KEPT}", "archived": ARCHIVED, "is_archived": ARCHIVED,
    "draft": f"Unsent text is {_KEPT}", "notes": f"Notes are {_KEPT}",
    "folder_id": "Folders have no names in the file, so their chats are not in a folder",
    "summary": f"Summaries are {_KEPT}",
    "knowledge": f"Collections of documents are named with the chat, but {_KEPT.partition(', ')[2]}",
    "parameters": f"Sampling parameters that Inglenook does not have are {_KEPT}",
    "hidden": f"Messages hidden by the other program are {_KEPT}",
}  # fmt: skip


def left_out_notes(found: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each of these names that has a value."""
    return tuple(
        dict.fromkeys(_SENTENCES[name] for name, value in found.items() if name in _SENTENCES and value)
    )


def with_chat(messages: tuple[MessageRecord, ...], chat: Mapping[str, Any]) -> tuple[MessageRecord, ...]:
    """The messages; the first keeps in `raw["chat"]` what the file says about the whole conversation."""
    if not chat or not messages:
        return messages
    first = messages[0]
    raw = (
        dict(first.raw)
        if isinstance(first.raw, dict)
        else {"parts": first.raw}
        if first.raw is not None
        else {}
    )
    return (dataclasses.replace(first, raw=raw | {"chat": dict(chat)}), *messages[1:])
