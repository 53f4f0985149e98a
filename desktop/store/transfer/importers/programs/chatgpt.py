"""ChatGPT's data export: `conversations.json`, a list of conversations that are trees of nodes.

The format is undocumented; descriptions: github.com/mitkury/chatgpt-export-parser,
docs/chatgpt-data-export-format.md, and github.com/mohamed-chs/convoviz, docs/dev/chatgpt-spec.md (2026).
"""

from __future__ import annotations

import re
from typing import Any

from desktop.store.transfer.importers.fields import (
    clean,
    compact,
    first_text,
    items,
    mapping,
    rest,
    seconds,
    text,
)
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import (
    fenced,
    join,
    made_file,
    picture_beside,
    placeholder,
    thought,
    tool_call,
    tool_result,
)
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.json_value import json_value
from engine.words import _

__all__ = ["ChatGpt"]

_MARKS = re.compile("\ue200[^\ue200\ue201]*\ue201|[\ue000-\uf8ff]")
"""Citations between private-use characters, which mean nothing outside ChatGPT."""
_ENTITY = re.compile('\ue200entity\ue202\\["[^"\ue201]*","([^"\ue201]*)"[^\ue201]*\ue201')
"""A person, place or thing, the name of which is a word of the sentence."""
_ROLES = ("system", "user", "assistant", "tool")
_CHAT = (
    "mapping",
    "current_node",
    "title",
    "create_time",
    "update_time",
    "id",
    "conversation_id",
    "is_starred",
    "pinned_time",
)
_MESSAGE = ("id", "author", "create_time", "content", "status", "recipient", "metadata", "end_turn", "weight")
_METADATA = (
    "model_slug", "default_model_slug", "attachments", "is_visually_hidden_from_conversation",
    "is_user_system_message", "user_context_message_data", "request_id", "parent_id", "message_type",
    "timestamp_", "turn_exchange_id", "is_complete", "message_source", "serialization_metadata", "can_save",
)  # fmt: skip
"""Metadata that is read, or that means nothing outside ChatGPT."""
_FILES = {
    "image_asset_pointer": "image",
    "audio_asset_pointer": "audio",
    "video_container_asset_pointer": "video",
    "real_time_user_audio_video_asset_pointer": "audio",
}


class ChatGpt:
    source, label = "chatgpt", "ChatGPT"

    def recognises(self, value: Any) -> bool:
        return isinstance(value, dict) and isinstance(value.get("mapping"), dict)

    def read(self, value: Any, note: Note) -> ConversationRecord:
        messages: list[MessageRecord] = []
        skipped: dict[str, str | None] = {}
        hidden: list[Any] = []
        for key, node in value["mapping"].items():
            key = clean(key)
            if not isinstance(node, dict):
                note(_("node {key}", key=key), _("it is not an object"))
                continue
            parent = text(node.get("parent")) or None
            found = _message(key, parent, node.get("message"), note)
            if found is None:
                skipped[key] = parent
                hidden += _hidden(node.get("message"))
            else:
                messages.append(found)
        messages = _in_order(messages, value["mapping"])
        current = text(value.get("current_node")) or _newest(messages)
        shaped = shape(messages, note, current, skipped)
        if not shaped.messages:
            raise Unreadable(_("it has no messages"))
        key = first_text(value.get("conversation_id"), value.get("id")) or shaped.messages[0].key
        kept = rest(value, *_CHAT) | ({"hidden": hidden} if hidden else {})
        return ConversationRecord(
            self.source, key, text(value.get("title")), seconds(value.get("create_time")),
            seconds(value.get("update_time")), with_chat(shaped.messages, kept), shaped.shown_root,
            shaped.system_prompt, pinned=value.get("is_starred") is True or bool(value.get("pinned_time")),
            left_out=left_out_notes(kept),
        )  # fmt: skip


def _in_order(messages: list[MessageRecord], nodes: dict[str, Any]) -> list[MessageRecord]:
    """Siblings in the order of their parent's `children`, if it lists them."""
    rank = {
        child: place
        for node in nodes.values()
        for place, child in enumerate(items(mapping(node).get("children")))
        if isinstance(child, str)
    }
    return sorted(messages, key=lambda message: rank.get(message.key, len(nodes)))


def _newest(messages: list[MessageRecord]) -> str | None:
    return max(messages, key=lambda message: message.created_at or 0.0).key if messages else None


def _hidden(message: Any) -> list[Any]:
    """A message that ChatGPT itself hid, if it has any content."""
    content = mapping(mapping(message).get("content"))
    about = mapping(mapping(message).get("metadata"))
    is_hidden = (
        about.get("is_visually_hidden_from_conversation") is True
        or content.get("content_type") == "model_editable_context"
    )
    says = bool(rest(content, "content_type", "parts")) or any(items(content.get("parts")))
    return [rest(message, "metadata")] if is_hidden and says else []


def _message(key: str, parent: str | None, message: Any, note: Note) -> MessageRecord | None:
    """The node's message; None if there is nothing to show."""
    if message is None:
        return None
    author, content = mapping(mapping(message).get("author")), mapping(mapping(message).get("content"))
    role, kind = text(author.get("role")), text(content.get("content_type"))
    if role not in _ROLES or not content:
        note(_("node {key}", key=key), _("it has no author or no content"))
        return None
    about = mapping(message.get("metadata"))
    own = about.get("is_user_system_message") is True
    if own:
        words = _instructions(mapping(about.get("user_context_message_data")) or content)
        role = "system"
    elif about.get("is_visually_hidden_from_conversation") is True or kind == "model_editable_context":
        return None
    else:
        words = _words(content, kind, _names(about), items(about.get("content_references")))
        words = join([*_unnamed(about, content), words])
    recipient = text(message.get("recipient")) or "all"
    part = kind in ("thoughts", "reasoning_recap") or role == "tool" or recipient != "all"
    if role == "assistant" and recipient != "all":
        words = (
            _document(text(content.get("text")) or words)
            if recipient == "canmore.create_textdoc"
            else tool_call(recipient, words)
        )
    elif role == "tool":
        words = tool_result(text(author.get("name")), words)
    known = (
        kind in ("text", "code", "execution_output") or (kind == "thoughts" and not _extra(content)) or own
    )
    raw: dict[str, Any] = (
        {}
        if known and not about.get("attachments")
        else {"content": content, "attachments": about.get("attachments")}
    )
    if not words.strip() and not raw:
        return None
    raw |= rest(
        {
            "metadata": rest(about, *_METADATA),
            "message": rest(message, *_MESSAGE),
            "author": rest(author, "role", "name"),
        }
    )
    model = text(about.get("model_slug"))
    ended = mapping(about.get("finish_details")).get("type")
    status = message.get("status")
    stopped = status in ("in_progress", "finished_partial_completion") or ended == "interrupted"
    state = "failed" if status == "error" else "stopped" if stopped else "complete"
    return MessageRecord(
        key, parent, role, words, seconds(message.get("create_time")), state,
        {"model": model} if model and role == "assistant" else {}, raw=raw or None, part=part,
    )  # fmt: skip


def _instructions(data: dict[str, Any]) -> str:
    about = first_text(data.get("about_user_message"), data.get("user_profile"))
    return join([about, first_text(data.get("about_model_message"), data.get("user_instructions"))])


def _extra(content: dict[str, Any]) -> bool:
    """Whether thoughts contain more than summaries and text."""
    return any(
        rest(piece, "summary", "content", "chunks", "finished") for piece in items(content.get("thoughts"))
    )


def _identity(pointer: str) -> str:
    """The id of the file in "file-service://file-1", "sediment://file_1" and the like."""
    return pointer.rpartition("/")[2].partition("#")[0].partition("?")[0]


def _names(about: dict[str, Any]) -> dict[str, str]:
    """The names of attached files by id."""
    files = [mapping(file) for file in items(about.get("attachments"))]
    return {_identity(text(file.get("id"))): text(file.get("name")) for file in files if file.get("id")}


def _unnamed(about: dict[str, Any], content: dict[str, Any]) -> list[str]:
    """Placeholders for the attached files that no part of the message refers to."""
    pointers = {_identity(text(mapping(part).get("asset_pointer"))) for part in items(content.get("parts"))}
    files = [mapping(file) for file in items(about.get("attachments"))]
    return [
        placeholder("image" if first_text(file.get("mime_type"),
        file.get("mimeType")).startswith("image/") else "file",
                    first_text(file.get("name"), file.get("id")))
        for file in files if _identity(text(file.get("id"))) not in pointers
    ]  # fmt: skip


def _document(words: str) -> str:
    """A canvas document, as it was created."""
    given = mapping(json_value(words))
    if not isinstance(given.get("content"), str):
        return tool_call("canmore.create_textdoc", words)
    kind = text(given.get("type"))
    return made_file(
        text(given.get("name")),
        text(given["content"]),
        kind.removeprefix("code/") if kind.startswith("code/") else "",
    )


def _unmarked(words: str, references: list[Any]) -> str:
    """The text with what marks stand for, links of sources and names, where the file says it."""
    known = {text(mapping(one).get("matched_text")): text(mapping(one).get("alt")) for one in references}

    def said(mark: re.Match[str]) -> str:
        entity = _ENTITY.match(mark[0])
        return known.get(mark[0]) or (entity[1] if entity else "")

    return _MARKS.sub(said, words)


def _words(content: dict[str, Any], kind: str, names: dict[str, str], references: list[Any]) -> str:
    if kind == "thoughts":
        thoughts = [mapping(piece) for piece in items(content.get("thoughts"))]
        return thought(
            join([join([text(piece.get("summary")), text(piece.get("content"))]) for piece in thoughts])
        )
    if kind == "reasoning_recap":
        return ""  # "Thought for 5 seconds", which is kept in `raw`
    if kind == "code":
        language = text(content.get("language"))
        return fenced(text(content.get("text")), "" if language == "unknown" else language)
    if kind == "execution_output":
        return text(content.get("text"))
    if kind == "user_editable_context":
        return _instructions(content)
    parts = [_part(part, names) for part in items(content.get("parts"))]
    if not parts:
        parts = [
            first_text(content.get("text"), content.get("result"), content.get("content"))
            or placeholder(kind or "unknown")
        ]
    return _unmarked(join(parts) if len(parts) > 1 else parts[0], references)


def _part(part: Any, names: dict[str, str]) -> str:
    if isinstance(part, str):
        return clean(part)
    if not isinstance(part, dict):
        return compact(part)
    kind = text(part.get("content_type"))
    if kind == "audio_transcription":
        return text(part.get("text"))
    pointer = text(part.get("asset_pointer")) or text(
        mapping(part.get("audio_asset_pointer")).get("asset_pointer")
    )
    about = mapping(part.get("metadata"))
    asked = first_text(
        mapping(about.get("dalle")).get("prompt"), mapping(about.get("generation")).get("prompt")
    )
    name = names.get(_identity(pointer)) or asked or _identity(pointer)
    if kind == "image_asset_pointer" and (asset := _identity(pointer)) and "(" not in asset:
        return picture_beside(asset, name)
    return first_text(part.get("text")) or placeholder(_FILES.get(kind, kind or "unknown"), name)
