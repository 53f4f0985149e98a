"""Le Chat, Mistral's: a file for each chat, `chat-ID.json`, a list of messages that all name the chat.

The messages are in no order, and their files lie in the folder `chat-ID-files`, as readers of these exports
on GitHub say it (Superkikim/nexus-ai-chat-importer, src/providers/vibe).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from desktop.store.transfer.importers.fields import first_text, items, mapping, text
from desktop.store.transfer.importers.parts import made_file, picture_beside
from desktop.store.transfer.importers.programs.message_lists.chat import chat_of, chat_record
from desktop.store.transfer.importers.programs.message_lists.message import first_time, is_message
from desktop.store.transfer.importers.protocol import Note
from desktop.store.transfer.records import ConversationRecord

__all__ = ["LeChat"]

_UNSAID = ("reference", "canva")
"""Chunks that only point at something: at a source, and at a document that is in the message's `canvas`."""


class LeChat:
    source, label, beside = "le-chat", "Le Chat", ""

    def begins(self, value: Any) -> bool:
        return is_message(value) and isinstance(value.get("chatId"), str)

    def continues(self, value: Any) -> bool:
        return isinstance(value, dict) and "chatId" in value

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        entries = [_entry(value) for value in values]
        if all(first_time(entry, "createdAt") is not None for entry in entries):
            entries.sort(key=lambda entry: first_time(entry, "createdAt") or 0.0)
        return chat_record(chat_of(self.source, {"id": values[0]["chatId"]}, entries), note)


def _entry(value: dict[str, Any]) -> dict[str, Any]:
    """The message with its chunks, if they say more than its text, its pictures and its documents."""
    said, chunks = text(value.get("content")), _chunks(items(value.get("contentChunks")))
    if said.strip() and all(chunk.get("type") == "text" for chunk in chunks):
        chunks = [{"type": "text", "text": said}]
    files = [mapping(file) for file in items(value.get("files"))]
    folder = f"chat-{text(value.get('chatId'))}-files"
    for name in (text(file.get("name")) for file in files if file.get("type") == "image"):
        chunks.append({"type": "text", "text": picture_beside(f"{folder}/{name}", name)})
    for made in map(mapping, items(value.get("canvas"))):
        name, words = first_text(made.get("title")) or "Canvas", text(made.get("content"))
        chunks.append({"type": "text", "text": made_file(name, words, "markdown")})
    others = [file for file in files if file.get("type") != "image"]
    known = ("chatId", "contentChunks", "canvas")
    entry = {name: inner for name, inner in value.items() if name not in known}
    return entry | {"content": chunks or said, "files": others}


def _chunks(chunks: list[Any]) -> list[dict[str, Any]]:
    """The chunks as parts of a message; texts between which there are only references are one."""
    said = [chunk for chunk in map(mapping, chunks) if chunk.get("type") not in _UNSAID]
    found: list[dict[str, Any]] = []
    for kind, group in groupby(said, key=lambda chunk: chunk.get("type")):
        if kind == "text":
            found.append({"type": "text", "text": "".join(text(chunk.get("text")) for chunk in group)})
        else:
            found.extend(map(_part, group))
    return found


def _part(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk other than text, under the usual names."""
    kind = chunk.get("type")
    if kind == "tool_call":
        given = {"arguments": chunk.get("publicArguments"), "output": chunk.get("publicResult")}
        return {"type": kind, "name": chunk.get("name")} | given
    if kind == "file_reference":
        return {"type": "file", "name": first_text(chunk.get("fileReference"), chunk.get("fileAlt"))}
    return {"type": kind, "image_url": chunk.get("imageUrl")} if kind == "image_url" else chunk
