"""Open WebUI's chat export: a list of chats, each a tree of messages under `chat.history`; older files have the inner object alone.

Format: docs.openwebui.com, features/chat-features/data-controls/import-export.
"""

from __future__ import annotations

from typing import Any

from desktop.store.exchange import ConversationRecord, MessageRecord
from desktop.store.importers.fields import clean, first_text, items, mapping, seconds, text
from desktop.store.importers.parts import details_to_thoughts, join, placeholder
from desktop.store.importers.protocol import Note, Unreadable
from desktop.store.importers.trees import shape

__all__ = ["OpenWebUi"]

_ROLES = ("system", "user", "assistant", "tool")


class OpenWebUi:
    source, label = "open-webui", "Open WebUI"

    def recognises(self, value: Any) -> bool:
        return isinstance(mapping(_inner(value).get("history")).get("messages"), dict)

    def read(self, value: Any, note: Note) -> ConversationRecord:
        chat = _inner(value)
        history = mapping(chat.get("history"))
        nodes = mapping(history.get("messages"))
        messages: list[MessageRecord] = []
        skipped: dict[str, str | None] = {}
        for key, node in nodes.items():
            key = clean(key)
            found = _message(key, node)
            if found is None:
                skipped[key] = text(mapping(node).get("parentId")) or None
                note(f"message {key}", "it has no role or no content")
            else:
                messages.append(found)
        rank = {child: place for node in nodes.values() for place, child in _numbered(mapping(node).get("childrenIds"))}
        messages.sort(key=lambda message: rank.get(message.key, len(nodes)))
        shaped = shape(messages, note, text(history.get("currentId")) or None, skipped)
        if not shaped.messages:
            raise Unreadable("it has no messages")
        prompt = first_text(mapping(chat.get("params")).get("system"), chat.get("system"))
        key = first_text(value.get("id"), chat.get("id")) or shaped.messages[0].key
        return ConversationRecord(
            self.source, key, first_text(chat.get("title"), value.get("title")),
            seconds(value.get("created_at")) or seconds(chat.get("timestamp")), seconds(value.get("updated_at")),
            shaped.messages, shaped.shown_root, join([prompt, shaped.system_prompt]),
        )  # fmt: skip


def _inner(value: Any) -> dict[str, Any]:
    outer = mapping(value)
    return mapping(outer.get("chat")) or outer


def _numbered(children: Any) -> list[tuple[int, str]]:
    return [(place, child) for place, child in enumerate(items(children)) if isinstance(child, str)]


def _message(key: str, node: Any) -> MessageRecord | None:
    about = mapping(node)
    role, content = about.get("role"), about.get("content")
    if role not in _ROLES or not isinstance(content, (str, list)):
        return None
    parts = [text(mapping(part).get("text")) or placeholder(text(mapping(part).get("type")) or "unknown") for part in items(content)]
    files = [mapping(file) for file in items(about.get("files"))]
    names = [placeholder(text(file.get("type")) or "file", _name(file)) for file in files]
    words = details_to_thoughts(text(content)) if isinstance(content, str) else join(parts)
    keep = {name: about[name] for name in ("files", "sources", "toolCalls") if about.get(name)}
    if isinstance(content, list):
        keep["content"] = content
    model, failure = text(about.get("model")), about.get("error")
    stats: dict[str, Any] = {"model": model} if model and role == "assistant" else {}
    if failure:
        stats["error"] = first_text(mapping(failure).get("content"), failure) or "The reply failed."
    state = "failed" if failure else "stopped" if about.get("done") is False else "complete"
    return MessageRecord(
        key, text(about.get("parentId")) or None, str(role), join([*names, words]) if names else words,
        seconds(about.get("timestamp")), state, stats, raw=keep or None,
    )  # fmt: skip


def _name(file: dict[str, Any]) -> str:
    url = text(file.get("url"))
    return first_text(file.get("name"), mapping(file.get("file")).get("filename")) or ("" if url.startswith("data:") else url)
