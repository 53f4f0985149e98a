"""Claude's data export: `conversations.json`, a list of conversations with `chat_messages`.

A message's `parent_message_uuid` makes a tree of them; files without it are plain rows. `content` holds parts (text, thinking,
tool_use, tool_result); older files have only `text`.
"""

from __future__ import annotations

from typing import Any

from desktop.store.exchange import ConversationRecord, MessageRecord
from desktop.store.importers.fields import compact, first_text, items, mapping, seconds, text
from desktop.store.importers.parts import document, join, placeholder, thought, tool_call, tool_result
from desktop.store.importers.protocol import Note, Unreadable
from desktop.store.importers.trees import shape
from desktop.store.intake import chain_key

__all__ = ["Claude"]

_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
_KNOWN = ("text", "thinking")
_NO_PARENT = "00000000-0000-4000-8000-000000000000"


class Claude:
    source, label = "claude", "Claude"

    def recognises(self, value: Any) -> bool:
        return isinstance(value, dict) and isinstance(value.get("chat_messages"), list)

    def read(self, value: Any, note: Note) -> ConversationRecord:
        entries = items(value["chat_messages"])
        is_tree = any(isinstance(mapping(entry).get("parent_message_uuid"), str) for entry in entries)
        messages: list[MessageRecord] = []
        last: str | None = None
        for number, entry in enumerate(entries, start=1):
            found = _message(entry, last)
            if found is None:
                note(f"message {number}", "it has no sender or no text")
                continue
            if is_tree:
                parent = text(entry.get("parent_message_uuid"))
                found = MessageRecord(
                    found.key, None if parent == _NO_PARENT else parent or None, found.role, found.text, found.created_at,
                    found.state, raw=found.raw,
                )  # fmt: skip
            messages.append(found)
            last = found.key
        shaped = shape(messages, note, text(value.get("current_leaf_message_uuid")) or last)
        if not shaped.messages:
            raise Unreadable("it has no messages")
        return ConversationRecord(
            self.source, text(value.get("uuid")) or shaped.messages[0].key, first_text(value.get("name"), value.get("title")),
            seconds(value.get("created_at")), seconds(value.get("updated_at")), shaped.messages, shaped.shown_root,
            shaped.system_prompt,
        )  # fmt: skip


def _message(entry: Any, before: str | None) -> MessageRecord | None:
    if not isinstance(entry, dict):
        return None
    role = _ROLES.get(first_text(entry.get("sender"), entry.get("role")))
    content = entry.get("content")
    parts = items(content)
    words = join([_part(part) for part in parts]) if parts else first_text(entry.get("text"), content)
    words = words or text(entry.get("text"))
    files = [mapping(file) for name in ("attachments", "files") for file in items(entry.get(name))]
    words = join([*(document(text(file.get("file_name")), text(file.get("extracted_content"))) for file in files), words])
    if role is None or (not words and not isinstance(content, (list, str)) and not isinstance(entry.get("text"), str)):
        return None
    unknown = [part for part in parts if mapping(part).get("type") not in _KNOWN]
    raw = {"content": unknown, "files": files} if unknown or files else None
    return MessageRecord(
        text(entry.get("uuid")) or chain_key(before, role, words), before, role, words, seconds(entry.get("created_at")),
        "stopped" if entry.get("stop_reason") == "user_canceled" else "complete", raw=raw,
    )  # fmt: skip


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return text(part)
    kind = text(part.get("type"))
    if kind == "text":
        return text(part.get("text"))
    if kind == "thinking":
        return thought(first_text(part.get("thinking"), part.get("text")))
    if kind == "tool_use":
        given = part.get("input")
        return tool_call(text(part.get("name")), compact(given) if given not in (None, {}) else "")
    if kind == "tool_result":
        inner = part.get("content")
        return tool_result(text(part.get("name")), join([_part(piece) for piece in inner]) if isinstance(inner, list) else text(inner))
    if kind in ("image", "document", "file"):
        return placeholder(kind, first_text(part.get("file_name"), part.get("title"), part.get("name")))
    return first_text(part.get("text")) or placeholder(kind or "unknown")
