"""ShareGPT and OpenAI-style conversations, as data sets have them.

Either `conversations` of `from` and `value`, or `messages` of `role` and `content`; as a list, as lines, or
as a bare list of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from desktop.store.transfer.importers.fields import (
    content_key,
    first_text,
    items,
    mapping,
    rest,
    seconds,
    text,
)
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import (
    join,
    part_picture,
    picture,
    placeholder,
    thought,
    tool_call,
    tool_result,
)
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import chained, shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

__all__ = ["BareMessages", "ShareGpt"]

_ROLES = {
    "human": "user", "user": "user", "prompter": "user", "gpt": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "bard": "assistant", "assistant": "assistant", "model": "assistant",
    "system": "system", "developer": "system", "tool": "tool", "function": "tool",
    "function_response": "tool", "observation": "tool", "function_call": "call", "tool_call": "call",
}  # fmt: skip
_LISTS = ("conversations", "conversation", "items", "messages")


class ShareGpt:
    source, label = "sharegpt", "ShareGPT"

    def recognises(self, value: Any) -> bool:
        return _messages(value) is not None

    def read(self, value: Any, note: Note) -> ConversationRecord:
        prompt = first_text(value.get("system"), value.get("system_prompt"))
        return _record(self.source, _messages(value) or [], value, prompt, note)


class BareMessages:
    """Messages without anything around them: all of a file are one conversation."""

    source, label, beside = "sharegpt", "messages", ""

    def begins(self, value: Any) -> bool:
        return _is_message(value) and text(value.get("role")) in _ROLES

    def continues(self, value: Any) -> bool:
        return _is_message(value)

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        return _record(self.source, list(values), {}, "", note)


def _messages(value: Any) -> list[Any] | None:
    """The list whose first objects contain a message."""
    for name in _LISTS:
        found = items(mapping(value).get(name))
        if any(_is_message(entry) for entry in found[:3]):
            return found
    return None


def _is_message(value: Any) -> bool:
    about = mapping(value)
    return (isinstance(about.get("from"), str) and ("value" in about or "text" in about)) or (
        isinstance(about.get("role"), str) and ("content" in about or "tool_calls" in about)
    )


def _record(
    source: str, entries: list[Any], about: dict[str, Any], prompt: str, note: Note
) -> ConversationRecord:
    messages: list[MessageRecord] = []
    for number, entry in enumerate(entries, start=1):
        found = _message(entry)
        if found is None:
            note(_("message {number}", number=number), _("it has no known role or no text"))
        else:
            messages.append(found)
    row = chained(messages)
    shaped = shape(row, note, row[-1].key if row else None)
    if not shaped.messages:
        raise Unreadable(_("it has no messages"))
    kept = rest(
        about,
        "id",
        "title",
        "name",
        "created_at",
        "create_time",
        "updated_at",
        "system",
        "system_prompt",
        *_LISTS,
    )
    made = seconds(about.get("created_at")) or seconds(about.get("create_time"))
    return ConversationRecord(
        source, content_key([about.get("id"), entries]), first_text(about.get("title"), about.get("name")),
        made, seconds(about.get("updated_at")), with_chat(shaped.messages, kept), shaped.shown_root,
        join([prompt, shaped.system_prompt]), left_out=left_out_notes(kept),
    )  # fmt: skip


def _message(entry: Any) -> MessageRecord | None:
    if not _is_message(entry):
        return None
    role = _ROLES.get(first_text(entry.get("from"), entry.get("role")).strip().lower())
    content = next(
        (entry[name] for name in ("value", "content", "text") if entry.get(name) is not None), None
    )
    calls = items(entry.get("tool_calls"))
    if role is None or (not isinstance(content, (str, list)) and not calls):
        return None
    words = text(content) if isinstance(content, str) else join([_part(part) for part in items(content)])
    if role == "call":
        words = tool_call("", words)
    elif role == "tool":
        words = tool_result(text(entry.get("name")), words)
    thinking = thought(first_text(entry.get("reasoning_content"), entry.get("reasoning")))
    if thinking or calls:
        words = join([thinking, words, *map(_call, calls)])
    keep = rest(
        entry,
        "from",
        "role",
        "value",
        "content",
        "text",
        "timestamp",
        "created_at",
        "reasoning_content",
        "reasoning",
    )
    if isinstance(content, list):
        keep["content"] = content
    return MessageRecord(
        "", None, "assistant" if role == "call" else role, words,
        seconds(entry.get("timestamp")) or seconds(entry.get("created_at")), raw=keep or None,
        part=role in ("call", "tool") or bool(calls),
    )  # fmt: skip


def _part(part: Any) -> str:
    about = mapping(part)
    if url := part_picture(part):
        return picture(text(url), "", text(about.get("type")))
    return text(part) or first_text(about.get("text")) or placeholder(text(about.get("type")) or "unknown")


def _call(call: Any) -> str:
    function = mapping(mapping(call).get("function")) or mapping(call)
    given = function.get("arguments")
    return tool_call(text(function.get("name")), given)
