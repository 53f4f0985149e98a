"""A chat that is a list of messages: what its file says about it, and how its messages follow each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from desktop.store.conversations.bulk_insert import chain_key
from desktop.store.transfer.importers.fields import content_key, first_text, rest, text
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import join
from desktop.store.transfer.importers.programs.message_lists.message import (
    first_time,
    key_of,
    model_of,
    parent_of,
    read_message,
)
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.lazy_dataclass import dataclass
from engine.words import _

__all__ = ["Chat", "chat_of", "chat_record"]

_TITLES = ("title", "name", "topic", "chatTitle", "userTitle", "autoTitle")
_KEYS = ("id", "chatID", "conversationId", "conversation_id", "_id", "uuid")
_PROMPTS = ("system", "system_prompt", "systemPrompt", "systemMessage", "preprompt")
_MADE = ("created_at", "createdAt", "create_time", "created", "inserted_at")
_CHANGED = ("updated_at", "updatedAt", "modify_time", "update_time", "updated", "lastUpdate")
_FOLDER = "folderName"
_READ = (*_TITLES, *_KEYS, *_PROMPTS, *_MADE, *_CHANGED, _FOLDER, "folderID", "starred", "pinned", "favorite")


@dataclass(frozen=True, slots=True)
class Chat:
    """A list of messages and what its file says about it.

    `key` identifies the chat for its program, "" if nothing does. With `tree` the messages' own ids and
    parents say how they follow each other, otherwise each follows the one before. `alternatives` are lists of
    messages that once followed the message of this id. `kept` is what has no counterpart here.
    """

    source: str
    messages: list[Any]
    key: str = ""
    title: str = ""
    created_at: float | None = None
    updated_at: float | None = None
    system: str = ""
    model: str = ""
    folder: tuple[str, ...] = ()
    pinned: bool = False
    tree: bool = False
    current: str = ""
    alternatives: tuple[tuple[str, list[Any]], ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)


def chat_of(source: str, value: dict[str, Any], messages: list[Any], *known: str) -> Chat:
    """The chat with these messages; the rest is under its usual names in `value`, or `known` was read."""
    folder = " ".join(text(value.get(_FOLDER)).split())
    pinned = (value.get(name) is True for name in ("starred", "pinned", "favorite"))
    model = ("model",) if isinstance(value.get("model"), str) else ()
    return Chat(
        source, messages, key_of(value) or first_text(*(value.get(name) for name in _KEYS)),
        first_text(*(value.get(name) for name in _TITLES)), first_time(value, *_MADE),
        first_time(value, *_CHANGED), first_text(*(value.get(name) for name in _PROMPTS)), model_of(value),
        (folder,) if folder else (), any(pinned),
        tree=any(parent_of(entry) for entry in messages), kept=rest(value, *_READ, *known, *model),
    )  # fmt: skip


def chat_record(chat: Chat, note: Note) -> ConversationRecord:
    """The chat as the store has it. Raises `Unreadable` if none of its messages can be read."""
    placed = _Placed(chat, note)
    placed.add(chat.messages, None)
    last = placed.messages[-1].key if placed.messages else None
    for above, entries in chat.alternatives:
        placed.add(entries, above)
    current = chat.current or (None if chat.tree else last)
    shaped = shape(placed.messages, note, current, placed.skipped)
    if not shaped.messages:
        raise Unreadable(_("it has no messages"))
    prompts = dict.fromkeys((chat.system, shaped.system_prompt))  # some files say it in both places
    return ConversationRecord(
        chat.source, chat.key or content_key(chat.messages), chat.title, chat.created_at, chat.updated_at,
        with_chat(shaped.messages, chat.kept), shaped.shown_root, join([*prompts]),
        pinned=chat.pinned, folder=chat.folder, left_out=left_out_notes(chat.kept),
    )  # fmt: skip


class _Placed:
    """The messages read so far, each below the one that it names or else below the one before it."""

    def __init__(self, chat: Chat, note: Note) -> None:
        self.messages: list[MessageRecord] = []
        self.skipped: dict[str, str | None] = {}
        self._chat, self._note = chat, note
        self._ids = {key_of(entry) for entry in chat.messages}
        self._used: set[str] = set()

    def add(self, entries: list[Any], above: str | None) -> None:
        for number, entry in enumerate(entries, start=1):
            found = read_message(entry)
            own = key_of(entry) if self._chat.key or self._chat.tree else ""
            parent = self._parent(entry, above)
            if found is None:
                self._note(_("message {number}", number=number), _("it has no known role or no text"))
                if own and own not in self._used:
                    self.skipped[own] = parent
                continue
            key = own if own and own not in self._used else chain_key(parent, found.role, found.text)
            if key in self._used:  # the same words at the same place
                continue
            stats = found.stats
            if self._chat.model and found.role == "assistant":
                stats = {"model": self._chat.model, **stats}
            self._used.add(key)
            self.messages.append(dataclasses.replace(found, key=key, parent=parent, stats=stats))
            above = key

    def _parent(self, entry: Any, above: str | None) -> str | None:
        given = parent_of(entry) if self._chat.tree else None
        if given == "":
            return None
        return given if given and given in self._ids and given != key_of(entry) else above
