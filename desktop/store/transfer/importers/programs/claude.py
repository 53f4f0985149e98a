"""Claude's data export: `conversations.json`, a list of conversations with `chat_messages`.

With a `parent_message_uuid` in messages they form a tree, otherwise a sequence. `content` holds parts (text,
thinking, tool_use, tool_result); older files have only `text`. Of attached pictures it has the names alone.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from desktop.store.conversations.bulk_insert import chain_key
from desktop.store.transfer.importers.fields import first_text, items, mapping, rest, seconds, text
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import (
    document,
    join,
    made_file,
    placeholder,
    thought,
    tool_call,
    tool_result,
    with_files,
)
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.json_value import json_value
from engine.words import _

__all__ = ["Claude"]

_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
_CHAT = (
    "uuid", "name", "title", "model", "created_at", "updated_at", "chat_messages",
    "current_leaf_message_uuid", "is_starred", "project", "account",
)  # fmt: skip
_MESSAGE = ("uuid", "text", "content", "sender", "role", "index", "created_at", "updated_at", "attachments",
    "files", "files_v2",
            "parent_message_uuid")  # fmt: skip
_TEXT = ("type", "text", "thinking", "start_timestamp", "stop_timestamp")
_SILENT = ("token_budget", "flag")
"""Parts without anything for a reader."""
_LANGUAGES = {
    "application/vnd.ant.react": "jsx", "application/vnd.ant.mermaid": "mermaid", "text/html": "html",
    "image/svg+xml": "xml", "text/markdown": "markdown",
}  # fmt: skip
"""Languages of artifacts by type, if they do not state their own."""
_ARTIFACT = re.compile(r"\n*<antArtifact\b([^>]{0,2000})>(.*?)(?:</antArtifact>|\Z)\n*", re.DOTALL)
_ATTRIBUTE = re.compile(r'(\w{1,40})="([^"]*)"')
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
        model = text(value.get("model"))
        for number, entry in enumerate(entries, start=1):
            found = _message(entry, last, model)
            if found is None:
                note(_("message {number}", number=number), _("it has no sender or no text"))
                continue
            if is_tree:
                parent = text(entry.get("parent_message_uuid"))
                found = MessageRecord(
                    found.key, None if parent == _NO_PARENT else parent or None, found.role, found.text,
                    found.created_at, found.state, found.stats, raw=found.raw,
                )  # fmt: skip
            messages.append(found)
            last = found.key
        shaped = shape(messages, note, text(value.get("current_leaf_message_uuid")) or last)
        if not shaped.messages:
            raise Unreadable(_("it has no messages"))
        kept = rest(value, *_CHAT) | rest({"project": value.get("project")})
        folder = " ".join(text(mapping(value.get("project")).get("name")).split())
        return ConversationRecord(
            self.source, text(value.get("uuid")) or shaped.messages[0].key,
            first_text(value.get("name"), value.get("title")), seconds(value.get("created_at")),
            seconds(value.get("updated_at")), with_chat(shaped.messages, kept), shaped.shown_root,
            shaped.system_prompt, folder=(folder,) if folder else (), pinned=value.get("is_starred") is True,
            left_out=left_out_notes(kept),
        )  # fmt: skip


def _message(entry: Any, before: str | None, model: str) -> MessageRecord | None:
    if not isinstance(entry, dict):
        return None
    role = _ROLES.get(first_text(entry.get("sender"), entry.get("role")))
    content = entry.get("content")
    parts = items(content)
    words = join([_part(part) for part in parts]) if parts else first_text(entry.get("text"), content)
    words = words or _with_artifacts(text(entry.get("text")))
    files: list[dict[str, Any]] = []
    for file in (
        mapping(file) for name in ("attachments", "files", "files_v2") for file in items(entry.get(name))
    ):
        known = text(file.get("file_uuid"))
        # `files_v2` says it again
        if not known or known not in {text(other.get("file_uuid")) for other in files}:
            files.append(file)
    words = with_files([_file(file) for file in files], words)
    if role is None or (
        not words and not isinstance(content, (list, str)) and not isinstance(entry.get("text"), str)
    ):
        return None
    unknown = [
        part for part in parts if mapping(part).get("type") not in ("text", "thinking") or rest(part, *_TEXT)
    ]
    raw = rest(entry, *_MESSAGE) | rest({"content": unknown, "files": files})
    return MessageRecord(
        text(entry.get("uuid")) or chain_key(before, role, words), before, role, words,
        seconds(entry.get("created_at")),
        "stopped" if entry.get("stop_reason") == "user_canceled" else "complete",
        {"model": model} if model and role == "assistant" else {}, raw=raw or None,
    )  # fmt: skip


def _file(file: dict[str, Any]) -> str:
    name = first_text(file.get("file_name"), file.get("name"))
    return document(
        name, text(file.get("extracted_content")), "image" if file.get("file_kind") == "image" else "file"
    )


def _with_artifacts(words: str) -> str:
    """The text with old artifacts, which are elements in it, as files under their names."""

    def made(match: re.Match[str]) -> str:
        about = {name: unescape(value) for name, value in _ATTRIBUTE.findall(match[1])}
        language = about.get("language") or _LANGUAGES.get(about.get("type", ""), "")
        title = about.get("title") or about.get("identifier", "")
        return f"\n\n{made_file(title, match[2].strip(chr(10)), language)}\n\n"

    return _ARTIFACT.sub(made, words).strip("\n") if "<antArtifact" in words else words


def _made(name: str, given: dict[str, Any]) -> str:
    """A file that a tool was asked to write: a new or rewritten artifact, or a file; empty for any other tool
    call.
    """
    display = given.get("display_content")
    if isinstance(display, str):
        display = json_value(display)
    shown = mapping(display)
    title = first_text(
        given.get("title"), given.get("path"), shown.get("filename"), shown.get("title"), given.get("id")
    )
    words = first_text(given.get("file_text"), given.get("content"), shown.get("code"), shown.get("content"))
    if (
        not words
        or (name == "artifacts" and given.get("command") == "update")
        or name not in ("artifacts", "create_file")
    ):
        return ""
    language = first_text(given.get("language"), shown.get("language")) or _LANGUAGES.get(
        text(given.get("type")), ""
    )
    return made_file(title, words, language)


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return text(part)
    kind = text(part.get("type"))
    if kind == "text":
        return _with_artifacts(text(part.get("text")))
    if kind in _SILENT:
        return ""
    if kind == "thinking":
        return thought(first_text(part.get("thinking"), part.get("text")))
    if kind == "tool_use":
        given = part.get("input")
        name = text(part.get("name"))
        return _made(name, mapping(given)) or tool_call(name, given)
    if kind == "tool_result":
        inner = part.get("content")
        return tool_result(
            text(part.get("name")),
            join([_part(piece) for piece in inner]) if isinstance(inner, list) else text(inner),
        )
    if kind in ("image", "document", "file"):
        return placeholder(kind, first_text(part.get("file_name"), part.get("title"), part.get("name")))
    return first_text(part.get("text")) or placeholder(kind or "unknown")
