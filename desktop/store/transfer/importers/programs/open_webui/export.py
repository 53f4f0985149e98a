"""Open WebUI's chat export: a list of chats, each a tree of messages under `chat.history`.

Older files have only the inner object. Format: docs.openwebui.com,
features/chat-features/data-controls/import-export; the fields of a chat: backend/open_webui/models/chats.py
and chat_messages.py of open-webui/open-webui.
"""

from __future__ import annotations

from typing import Any

from desktop.store.transfer.importers.fields import clean, first_text, items, mapping, rest, seconds, text
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import (
    document,
    join,
    part_picture,
    picture,
    placeholder,
    thought,
    tool_call,
    tool_result,
    with_files,
)
from desktop.store.transfer.importers.programs.open_webui.details import without_details
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.sampling import chat_settings
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

__all__ = ["OpenWebUi"]

_ROLES = ("system", "user", "assistant", "tool")
_OUTER = (
    "id",
    "user_id",
    "title",
    "chat",
    "created_at",
    "updated_at",
    "pinned",
    "folder",
    "meta",
    "current_message_id",
    "last_read_at",
)
_INNER = ("id", "title", "params", "system", "history", "messages", "timestamp", "tags", "currentId")
_NODE = ("id", "parentId", "childrenIds", "role", "content", "output", "timestamp", "model", "done", "error",
    "user_id", "modelIdx",
         "lastSentence")  # fmt: skip


class OpenWebUi:
    source, label = "open-webui", "Open WebUI"

    def recognises(self, value: Any) -> bool:
        chat = _inner(value)
        if "history" not in chat and chat is not value:
            return bool(_nodes(chat))
        return isinstance(mapping(chat.get("history")).get("messages"), dict)

    def read(self, value: Any, note: Note) -> ConversationRecord:
        chat = _inner(value)
        history = mapping(chat.get("history"))
        nodes = _nodes(chat)
        messages: list[MessageRecord] = []
        skipped: dict[str, str | None] = {}
        for key, node in nodes.items():
            key = clean(key)
            found = _message(key, node)
            if found is None:
                skipped[key] = text(mapping(node).get("parentId")) or None
                note(_("message {key}", key=key), _("it has no role or no content"))
            else:
                messages.append(found)
        rank = {
            child: place
            for node in nodes.values()
            for place, child in _numbered(mapping(node).get("childrenIds"))
        }
        messages.sort(key=lambda message: rank.get(message.key, len(nodes)))
        shown = first_text(history.get("currentId"), value.get("current_message_id"), chat.get("currentId"))
        shaped = shape(
            messages, note, shown or (messages[-1].key if messages and not history else None), skipped
        )
        if not shaped.messages:
            raise Unreadable(_("it has no messages"))
        params = mapping(chat.get("params"))
        prompt = first_text(params.get("system"), chat.get("system"))
        settings, unused = chat_settings(rest(params, "system"))
        about = rest(value, *_OUTER) if value is not chat else {}
        extra = {"params": unused, "tags": _tags(value, chat), "meta": rest(value.get("meta"), "tags")}
        kept = rest(chat, *_INNER) | about | rest(extra)
        numbered = kept.get("folder_id") and not value.get("folder")
        missed = kept | {"parameters": unused, "knowledge": kept.get("files"), "folder_id": numbered}
        missed["ratings"] = any(mapping(node).get("annotation") for node in nodes.values())
        return ConversationRecord(
            self.source, first_text(value.get("id"), chat.get("id")) or shaped.messages[0].key,
            first_text(chat.get("title"), value.get("title")),
            seconds(value.get("created_at")) or seconds(chat.get("timestamp")),
            seconds(value.get("updated_at")), with_chat(shaped.messages, kept), shaped.shown_root,
            join([prompt, shaped.system_prompt]), settings=settings, pinned=value.get("pinned") in (True, 1),
            folder=_folder(value.get("folder")),
            left_out=left_out_notes(missed),
        )  # fmt: skip


def _inner(value: Any) -> dict[str, Any]:
    outer = mapping(value)
    return mapping(outer.get("chat")) or outer


def _nodes(chat: dict[str, Any]) -> dict[str, Any]:
    """The messages by key; in files from before there were trees, each message is the parent of the next."""
    history = mapping(mapping(chat.get("history")).get("messages"))
    if history or "history" in chat:
        return history
    found: dict[str, Any] = {}
    for entry in items(chat.get("messages")):
        about = mapping(entry)
        if not isinstance(about.get("id"), str) or not about["id"] or about["id"] in found:
            return {}
        found[about["id"]] = (
            about if "parentId" in about else about | {"parentId": next(reversed(found), None)}
        )
    return found


def _tags(value: dict[str, Any], chat: dict[str, Any]) -> list[Any]:
    return items(mapping(value.get("meta")).get("tags")) or items(chat.get("tags"))


def _folder(names: Any) -> tuple[str, ...]:
    """The path that the database's reader found."""
    return tuple(name for name in (" ".join(text(name).split()) for name in items(names)) if name)


def _numbered(children: Any) -> list[tuple[int, str]]:
    return [(place, child) for place, child in enumerate(items(children)) if isinstance(child, str)]


def _message(key: str, node: Any) -> MessageRecord | None:
    about = mapping(node)
    role, content = about.get("role"), about.get("content")
    if role not in _ROLES or not (isinstance(content, (str, list)) or items(about.get("output"))):
        return None
    parts = [
        text(mapping(part).get("text"))
        or picture(text(part_picture(part)), "", text(mapping(part).get("type")) or "unknown")
        for part in items(content)
    ]
    words = without_details(text(content)) if isinstance(content, str) else join(parts)
    words = words or join([_output(item) for item in items(about.get("output"))])
    keep = rest(about, *_NODE)
    if isinstance(content, list):
        keep["content"] = content
    if about.get("output"):
        keep["output"] = about["output"]
    model, failure = text(about.get("model")), about.get("error")
    stats: dict[str, Any] = {"model": model} if model and role == "assistant" else {}
    if failure:
        stats["error"] = first_text(mapping(failure).get("content"), failure) or _("The reply failed.")
    state = "failed" if failure else "stopped" if about.get("done") is False else "complete"
    return MessageRecord(
        key, text(about.get("parentId")) or None, str(role),
        with_files([_file(file) for file in items(about.get("files"))], words),
        seconds(about.get("timestamp")), state, stats, raw=keep or None,
    )  # fmt: skip


def _file(file: Any) -> str:
    about = mapping(file)
    inner = mapping(about.get("file"))
    url = text(about.get("url"))
    name = first_text(about.get("name"), inner.get("filename")) or ("" if url.startswith("data:") else url)
    words = first_text(
        mapping(inner.get("data")).get("content"),
        mapping(about.get("data")).get("content"),
        about.get("content"),
    )
    if url.startswith("data:image/"):
        return picture(url, name)
    return document(name, words, text(about.get("type")) or "file")


def _output(item: Any) -> str:
    """One item of a reply in the form of the Responses API."""
    about = mapping(item)
    kind = text(about.get("type"))
    inner = join(
        [
            text(part) or text(mapping(part).get("text"))
            for part in [*items(about.get("summary")), *items(about.get("content"))]
        ]
    )
    if kind == "reasoning":
        return thought(inner)
    if kind == "function_call":
        return tool_call(text(about.get("name")), about.get("arguments"))
    if kind == "function_call_output":
        given = about.get("output")
        return tool_result(
            "", text(given) or join([text(mapping(part).get("text")) for part in items(given)])
        )
    return inner or placeholder(kind or "unknown")
