"""ShareGPT and OpenAI-style conversations, as data sets and many small programs have them.

Either `conversations` of `from` and `value`, or `messages` of `role` and `content`; as a list, as lines, or
as a bare list of messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from desktop.store.transfer.importers.fields import content_key, items, mapping, text
from desktop.store.transfer.importers.programs.message_lists.chat import Chat, chat_of, chat_record
from desktop.store.transfer.importers.programs.message_lists.message import ROLES, is_message
from desktop.store.transfer.importers.protocol import Note
from desktop.store.transfer.records import ConversationRecord

__all__ = ["BareMessages", "ShareGpt"]

_LISTS = ("conversations", "conversation", "items", "messages", "history", "contents", "chat")


class ShareGpt:
    source, label = "sharegpt", "ShareGPT"

    def recognises(self, value: Any) -> bool:
        return _messages(value) is not None

    def read(self, value: Any, note: Note) -> ConversationRecord:
        """Ids are those of a data set, which may repeat: the chat is told by all of its messages."""
        found = _messages(value) or []
        chat = dataclasses.replace(chat_of(self.source, value, found, *_LISTS), key="")
        return dataclasses.replace(chat_record(chat, note), key=content_key([value.get("id"), found]))


class BareMessages:
    """Messages without anything around them: all of a file are one conversation."""

    source, label, beside = "sharegpt", "messages", ""

    def begins(self, value: Any) -> bool:
        return is_message(value) and text(value.get("role")) in ROLES

    def continues(self, value: Any) -> bool:
        return is_message(value)

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        entries = list(values)
        found = chat_record(Chat(self.source, entries), note)
        return dataclasses.replace(found, key=content_key([None, entries]))


def _messages(value: Any) -> list[Any] | None:
    """The list whose first objects contain a message."""
    for name in _LISTS:
        found = items(mapping(value).get(name))
        if any(is_message(entry) for entry in found[:3]):
            return found
    return None
