"""Chats of TextGen (text-generation-webui): rows of what the user and the model wrote.

`internal` has the texts, `visible` the same as HTML; `metadata` tells about each cell, versions of replies
included. Files until 2023 call the lists `data` and `data_visible`. Facts: github.com/oobabooga/textgen,
modules/chat.py (2026).
"""

from __future__ import annotations

from typing import Any

from desktop.store.conversations.bulk_insert import chain_key
from desktop.store.transfer.importers.fields import content_key, items, mapping, rest, seconds, text
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import document, picture, with_files
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

__all__ = ["TextGen"]

_BEGINNING = "<|BEGIN-VISIBLE-CHAT|>"
"""What stands for a user's message above a greeting."""
_LISTS = ("internal", "visible", "data", "data_visible")
_CELL = ("timestamp", "attachments", "model_name", "versions", "current_version_index")


class TextGen:
    source, label = "textgen", "TextGen"

    def recognises(self, value: Any) -> bool:
        about = mapping(value)
        return any(
            isinstance(about.get(name), list) and isinstance(about.get(shown), list)
            for name, shown in (_LISTS[:2], _LISTS[2:])
        )

    def read(self, value: Any, note: Note) -> ConversationRecord:
        rows = items(value.get("internal")) or items(value.get("data"))
        cells = mapping(value.get("metadata"))
        messages: list[MessageRecord] = []
        above: str | None = None
        for number, row in enumerate(rows):
            if len(items(row)) != 2 or not all(isinstance(cell, str) for cell in row):
                note(_("message {number}", number=number + 1), _("it has no known role or no text"))
                continue
            asked = _asked(text(row[0]), mapping(cells.get(f"user_{number}")), above)
            if asked is not None:
                messages.append(asked)
                above = asked.key
            replies, shown = _replies(text(row[1]), mapping(cells.get(f"assistant_{number}")), above)
            messages += replies
            above = shown or above
        shaped = shape(messages, note, above)
        if not shaped.messages:
            raise Unreadable(_("it has no messages"))
        kept = rest(value, "metadata", *_LISTS)
        times = [message.created_at for message in messages if message.created_at is not None]
        first = [rows[0][0], times[0]] if times else rows
        return ConversationRecord(
            self.source, content_key(first), "", min(times, default=None), max(times, default=None),
            with_chat(shaped.messages, kept), shaped.shown_root, shaped.system_prompt,
            left_out=left_out_notes(kept),
        )  # fmt: skip


def _asked(words: str, about: dict[str, Any], above: str | None) -> MessageRecord | None:
    words = with_files([_file(mapping(file)) for file in items(about.get("attachments"))], words)
    if not words.strip() or words == _BEGINNING:
        return None
    made = seconds(about.get("timestamp"))
    raw = rest(about, *_CELL) or None
    return MessageRecord(chain_key(above, "user", words), above, "user", words, made, raw=raw)


def _file(about: dict[str, Any]) -> str:
    name, data = text(about.get("name")), text(about.get("image_data"))
    if data:
        return picture(data if data.startswith("data:") else f"data:image/png;base64,{data}", name)
    return document(name, text(about.get("content")))


def _replies(words: str, about: dict[str, Any], above: str | None) -> tuple[list[MessageRecord], str | None]:
    """The versions of a reply, and the key of the one that is shown, whose text is `words`."""
    versions = [mapping(version) for version in items(about.get("versions"))]
    found = {
        text(version.get("content")): seconds(version.get("timestamp"))
        for version in versions
        if text(version.get("content")).strip()
    }
    if words.strip():
        found.setdefault(words, seconds(about.get("timestamp")))
    model = text(about.get("model_name"))
    stats = {"model": model} if model else {}
    made = [
        MessageRecord(
            chain_key(above, "assistant", reply), above, "assistant", reply, at, stats=stats,
            raw=(rest(about, *_CELL) or None) if reply == words else None,
        )
        for reply, at in found.items()
    ]  # fmt: skip
    return made, next((message.key for message in made if message.text == words), None)
