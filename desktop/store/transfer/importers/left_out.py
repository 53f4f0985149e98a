"""What a file says beyond messages and their texts: kept beside the first message, and reported if users
would miss it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from desktop.store.transfer.records import MessageRecord
from engine.words import N_, translate

__all__ = ["left_out_notes", "with_chat"]

_ARCHIVED = N_("Archived chats are listed with the others")
_SENTENCES = {
    "ratings": N_("Ratings of replies are kept with the chat and in its JSON export, but not shown"),
    "tags": N_("Tags are kept with the chat and in its JSON export, but not shown"),
    "archived": _ARCHIVED,
    "is_archived": _ARCHIVED,
    "draft": N_("Unsent text is kept with the chat and in its JSON export, but not shown"),
    "notes": N_("Notes are kept with the chat and in its JSON export, but not shown"),
    "folder_id": N_("Folders have no names in the file, so their chats are not in a folder"),
    "summary": N_("Summaries are kept with the chat and in its JSON export, but not shown"),
    "knowledge": N_("Collections of documents are named with the chat, but not shown"),
    "parameters": N_(
        "Sampling parameters that Inglenook does not have are kept with the chat and in its JSON export, "
        "but not shown"
    ),
    "lorebook": N_("Lorebooks are kept with the chat and in its JSON export, but not used"),
    "hidden": N_(
        "Messages hidden by the other program are kept with the chat and in its JSON export, but not shown"
    ),
}


def left_out_notes(found: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each of these names that has a value."""
    return tuple(
        dict.fromkeys(
            translate(_SENTENCES[name]) for name, value in found.items() if name in _SENTENCES and value
        )
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
