"""Conversations of llama.cpp's web UI: `{conv, messages}` (2025), or lines of a session and its messages
(2026).

Format: github.com/ggml-org/llama.cpp, tools/ui/src/lib/types/database.d.ts (tools/server/webui before 2026).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from desktop.store.transfer.importers.fields import first_text, items, mapping, rest, seconds, text
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import (
    document,
    join,
    picture,
    thought,
    tool_call,
    tool_result,
    with_files,
)
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

__all__ = ["LlamaCpp"]

_ROLES = ("system", "user", "assistant", "tool")
_SESSION = ("type", "id", "name", "lastModified", "currNode", "pinned")
_MESSAGE = ("id", "convId", "type", "timestamp", "role", "content", "parent", "children", "reasoningContent",
    "thinking", "toolCalls",
            "extra", "model")  # fmt: skip


class LlamaCpp:
    source, label, beside = "llama.cpp", "llama.cpp web UI", ""

    def recognises(self, value: Any) -> bool:
        return (
            isinstance(value, dict)
            and isinstance(value.get("conv"), dict)
            and isinstance(value.get("messages"), list)
        )

    def read(self, value: Any, note: Note) -> ConversationRecord:
        return self._read(value["conv"], value["messages"], note)

    def begins(self, value: Any) -> bool:
        return isinstance(value, dict) and value.get("type") == "session" and isinstance(value.get("id"), str)

    def continues(self, value: Any) -> bool:
        """Lines of an unknown type belong to the conversation, and are ignored."""
        return isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] != "session"

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        return self._read(
            values[0], [value.get("message") for value in values[1:] if value["type"] == "message"], note
        )

    def _read(self, session: dict[str, Any], entries: list[Any], note: Note) -> ConversationRecord:
        messages: list[MessageRecord] = []
        skipped: dict[str, str | None] = {}
        for number, entry in enumerate(entries, start=1):
            about = mapping(entry)
            key = _id(about.get("id"))
            if about.get("type") == "root" and key:
                skipped[key] = None
                continue
            if about.get("role") not in _ROLES or not key or not isinstance(about.get("content"), str):
                note(_("message {number}", number=number), _("it has no id, no role or no content"))
                if key:
                    skipped[key] = _id(about.get("parent")) or None
                continue
            messages.append(_message(key, about))
        current = _id(session.get("currNode"))
        if current not in {message.key for message in messages}:
            current = max(messages, key=lambda message: message.created_at or 0.0).key if messages else ""
        shaped = shape(messages, note, current, skipped)
        if not shaped.messages:
            raise Unreadable(_("it has no messages"))
        changed = seconds(session.get("lastModified"))
        return ConversationRecord(
            self.source, _id(session.get("id")) or shaped.messages[0].key, text(session.get("name")), None,
            changed, with_chat(shaped.messages, rest(session, *_SESSION)), shaped.shown_root,
            shaped.system_prompt, pinned=session.get("pinned") is True,
            left_out=left_out_notes(rest(session, *_SESSION)),
        )  # fmt: skip


def _id(value: Any) -> str:
    """The id as a text; old files have numbers."""
    return (
        text(value)
        if isinstance(value, str)
        else str(value)
        if isinstance(value, int) and not isinstance(value, bool)
        else ""
    )


def _message(key: str, about: dict[str, Any]) -> MessageRecord:
    role = str(about["role"])
    extra = items(about.get("extra"))
    calls = _calls(about.get("toolCalls"))
    words = text(about["content"])
    if role == "tool":
        words = tool_result("", words)
    thinking = thought(first_text(about.get("reasoningContent"), about.get("thinking")))
    whole = with_files(
        list(map(_extra, extra)), join([thinking, words, *map(_call, calls)]) if thinking or calls else words
    )
    model = text(about.get("model"))
    raw = rest(about, *_MESSAGE) | rest({"extra": extra, "toolCalls": calls})
    return MessageRecord(
        key, _id(about.get("parent")) or None, role, whole, seconds(about.get("timestamp")), "complete",
        {"model": model} if model and role == "assistant" else {}, raw=raw or None,
        part=role == "tool" or bool(calls),
    )  # fmt: skip


def _calls(value: Any) -> list[Any]:
    """A list of calls; the program's own store has it as JSON in a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except (ValueError, RecursionError):
            return [value]
    return items(value)


def _call(call: Any) -> str:
    function = mapping(mapping(call).get("function"))
    given = function.get("arguments")
    return tool_call(text(function.get("name")), given if function else call)


def _extra(part: Any) -> str:
    about = mapping(part)
    kind, name = text(about.get("type")), text(about.get("name"))
    if kind == "imageFile" and about.get("base64Url"):
        return picture(text(about["base64Url"]), name)
    return document(name, text(about.get("content")), kind.removesuffix("File").lower() or "unknown")
