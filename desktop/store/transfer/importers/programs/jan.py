"""Jan's chats: `messages.jsonl`, a message on a line, beside `thread.json`, which has the title.

Messages follow each other or, with `parentId` in the metadata of any, form a tree. Format:
github.com/janhq/jan, core/src/types/message/messageEntity.ts and web-app/src/lib/message-branching.ts (2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from desktop.store.conversations.bulk_insert import chain_key
from desktop.store.transfer.importers.fields import compact, first_text, items, mapping, rest, seconds, text
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
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

__all__ = ["Jan"]

_ROLES = ("system", "user", "assistant", "tool")
_STATES = {"stopped": "stopped", "pending": "stopped", "error": "failed"}
_THREAD = (
    "id", "object", "title", "assistants", "created", "updated", "model", "order", "isFavorite", "metadata",
)  # fmt: skip
_MESSAGE = (
    "id", "object", "thread_id", "assistant_id", "role", "content", "status", "created_at", "completed_at",
    "metadata", "type", "tool_call_id",
)  # fmt: skip
_METADATA = (
    "parentId", "activeChildId", "inline_file_contents", "tool_calls", "usage", "tokenSpeed", "assistant",
    "createdAt",
)  # fmt: skip
_PART = ("type", "text", "image_url", "tool_call_id", "tool_name", "input", "output")


class Jan:
    source, label, beside = "jan", "Jan", "thread.json"

    def begins(self, value: Any) -> bool:
        about = mapping(value)
        return about.get("object") == "thread.message" and isinstance(about.get("thread_id"), str)

    def continues(self, value: Any) -> bool:
        """A line of another kind is reported as damaged."""
        return isinstance(value, dict)

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        assistant = mapping(next(iter(items(about.get("assistants"))), None))
        model = first_text(mapping(about.get("model")).get("id"), mapping(assistant.get("model")).get("id"))
        messages: list[MessageRecord] = []
        active: dict[str | None, str] = {}
        parents: list[str | None] = []
        for number, line in enumerate(values, start=1):
            above = messages[-1].key if messages else None
            found = _message(mapping(line), above, model)
            if found is None:
                note(_("message {number}", number=number), _("it has no known role or no text"))
                continue
            messages.append(found)
            metadata = mapping(mapping(line).get("metadata"))
            parent = metadata.get("parentId", above)
            parents.append(parent if parent is None or isinstance(parent, str) else above)
            active[found.key] = text(metadata.get("activeChildId"))
        tree = _with_parents(messages, parents)
        shaped = shape(tree, note, _shown(tree, active))
        if not shaped.messages:
            raise Unreadable(_("it has no messages"))
        metadata = mapping(about.get("metadata"))
        folder = " ".join(text(mapping(metadata.get("project")).get("name")).split())
        kept = rest(about, *_THREAD) | rest({"metadata": rest(metadata, "project", "is_favorite", "order")})
        return ConversationRecord(
            self.source, first_text(about.get("id"), mapping(values[0]).get("thread_id")),
            text(about.get("title")), seconds(about.get("created")), seconds(about.get("updated")),
            with_chat(shaped.messages, kept), shaped.shown_root,
            join([text(assistant.get("instructions")), shaped.system_prompt]),
            folder=(folder,) if folder else (),
            pinned=True in (about.get("isFavorite"), metadata.get("is_favorite")),
            left_out=left_out_notes(kept),
        )  # fmt: skip


def _with_parents(messages: Sequence[MessageRecord], parents: Sequence[str | None]) -> list[MessageRecord]:
    """The messages as a tree, siblings in the order in which they were written. What lost its place (a reply
    at the top, a message below one that is gone) goes below the message before it.
    """
    keys = {message.key for message in messages}
    placed: list[MessageRecord] = []
    for number, (message, parent) in enumerate(zip(messages, parents, strict=True)):
        lost = message.role != "user" if parent is None else parent not in keys
        before = messages[number - 1].key if number else None
        placed.append(replace(message, parent=before if lost else parent))
    return placed


def _shown(messages: Sequence[MessageRecord], active: dict[str | None, str]) -> str | None:
    """The last message that Jan shows: at each fork the chosen one, else the newest."""
    below: dict[str | None, list[str]] = {}
    for message in messages:
        below.setdefault(message.parent, []).append(message.key)
    key: str | None = None
    while children := below.pop(key, None):
        chosen = active.get(key, "")
        key = chosen if chosen in children else children[-1]
    return key


def _message(about: dict[str, Any], above: str | None, model: str) -> MessageRecord | None:
    role, content = about.get("role"), about.get("content")
    if role not in _ROLES or not isinstance(content, list):
        return None
    metadata = mapping(about.get("metadata"))
    words = join([_part(part) for part in content])
    words = join([words, *(_old_call(mapping(call)) for call in items(metadata.get("tool_calls")))])
    if role == "tool":
        words = tool_result("", words)
    files = [mapping(file) for file in items(metadata.get("inline_file_contents"))]
    words = with_files([document(text(file.get("name")), text(file.get("content"))) for file in files], words)
    raw = rest(about, *_MESSAGE) | rest({
        "metadata": rest(metadata, *_METADATA),
        "content": [part for part in content if rest(part, *_PART)],
    })  # fmt: skip
    return MessageRecord(
        text(about.get("id")) or chain_key(above, role, words), above, role, words,
        seconds(about.get("created_at")), _STATES.get(text(about.get("status")), "complete"),
        {"model": model} if model and role == "assistant" else {}, raw=raw or None, part=role == "tool",
    )  # fmt: skip


def _part(part: Any) -> str:
    about = mapping(part)
    kind, words = text(about.get("type")), text(mapping(about.get("text")).get("value"))
    if kind == "text":
        return words
    if kind == "reasoning":
        return thought(words)
    if kind == "tool_call":
        name, output = text(about.get("tool_name")), about.get("output")
        return join(
            [tool_call(name, about.get("input")), tool_result(name, _output(output)) if output else ""]
        )
    if url := part_picture(part):
        return picture(text(url), "")
    return words or placeholder(kind or "unknown")


def _old_call(call: dict[str, Any]) -> str:
    """A tool call as Jan wrote it until 2025, beside the text."""
    function = mapping(mapping(call.get("tool")).get("function"))
    name, answer = text(function.get("name")), call.get("response")
    result = tool_result(name, _output(answer)) if answer else ""
    return join([tool_call(name, function.get("arguments")), result])


def _output(value: Any) -> str:
    """The text of what a tool returned; other values as JSON."""
    parts = [text(mapping(part).get("text")) for part in items(mapping(value).get("content"))]
    return text(value) or join(parts) or compact(value)
