"""ChatGPT's data export: `conversations.json`, a list of conversations that are trees of nodes.

Format, as seen from outside: github.com/mitkury/chatgpt-export-parser, docs/chatgpt-data-export-format.md.
"""

from __future__ import annotations

import re
from typing import Any

from desktop.store.exchange import ConversationRecord, MessageRecord
from desktop.store.importers.fields import clean, compact, first_text, items, mapping, seconds, text
from desktop.store.importers.parts import fenced, join, placeholder, thought, tool_call, tool_result
from desktop.store.importers.protocol import Note, Unreadable
from desktop.store.importers.trees import shape

__all__ = ["ChatGpt"]

_MARKS = re.compile("\ue200[^\ue200\ue201]*\ue201|[\ue000-\uf8ff]")
"""Citations between private-use characters, which mean nothing outside that program."""
_ROLES = ("system", "user", "assistant", "tool")
_FILES = {"image_asset_pointer": "image", "audio_asset_pointer": "audio", "video_container_asset_pointer": "video"}


class ChatGpt:
    source, label = "chatgpt", "ChatGPT"

    def recognises(self, value: Any) -> bool:
        return isinstance(value, dict) and isinstance(value.get("mapping"), dict)

    def read(self, value: Any, note: Note) -> ConversationRecord:
        messages: list[MessageRecord] = []
        skipped: dict[str, str | None] = {}
        for key, node in value["mapping"].items():
            key = clean(key)
            if not isinstance(node, dict):
                note(f"node {key}", "it is not an object")
                continue
            parent = text(node.get("parent")) or None
            found = _message(key, parent, node.get("message"), note)
            if found is None:
                skipped[key] = parent
            else:
                messages.append(found)
        messages = _in_order(messages, value["mapping"])
        current = text(value.get("current_node")) or _newest(messages)
        shaped = shape(messages, note, current, skipped)
        if not shaped.messages:
            raise Unreadable("it has no messages")
        key = first_text(value.get("conversation_id"), value.get("id")) or shaped.messages[0].key
        return ConversationRecord(
            self.source, key, text(value.get("title")), seconds(value.get("create_time")), seconds(value.get("update_time")),
            shaped.messages, shaped.shown_root, shaped.system_prompt,
        )  # fmt: skip


def _in_order(messages: list[MessageRecord], nodes: dict[str, Any]) -> list[MessageRecord]:
    """Siblings in the order of their parent's `children`, where that names them."""
    rank = {
        child: place
        for node in nodes.values()
        for place, child in enumerate(items(mapping(node).get("children")))
        if isinstance(child, str)
    }
    return sorted(messages, key=lambda message: rank.get(message.key, len(nodes)))


def _newest(messages: list[MessageRecord]) -> str | None:
    return max(messages, key=lambda message: message.created_at or 0.0).key if messages else None


def _message(key: str, parent: str | None, message: Any, note: Note) -> MessageRecord | None:
    """The node's message; None where there is nothing to show."""
    if message is None:
        return None
    author, content = mapping(mapping(message).get("author")), mapping(mapping(message).get("content"))
    role, kind = text(author.get("role")), text(content.get("content_type"))
    if role not in _ROLES or not content:
        note(f"node {key}", "it has no author or no content")
        return None
    about = mapping(message.get("metadata"))
    own = about.get("is_user_system_message") is True
    if own:
        words = _instructions(mapping(about.get("user_context_message_data")) or content)
        role = "system"
    elif about.get("is_visually_hidden_from_conversation") is True or kind == "model_editable_context":
        return None
    else:
        words = _words(content, kind)
    recipient = text(message.get("recipient")) or "all"
    part = kind in ("thoughts", "reasoning_recap") or role == "tool" or recipient != "all"
    if role == "assistant" and recipient != "all":
        words = tool_call(recipient, words)
    elif role == "tool":
        words = tool_result(text(author.get("name")), words)
    known = kind in ("text", "thoughts", "reasoning_recap", "code", "execution_output") or own
    raw = None if known and not about.get("attachments") else {"content": content, "attachments": about.get("attachments")}
    if not words.strip() and raw is None:
        return None
    model = text(about.get("model_slug"))
    state = "stopped" if message.get("status") == "in_progress" else "complete"
    return MessageRecord(
        key, parent, role, words, seconds(message.get("create_time")), state, {"model": model} if model and role == "assistant" else {},
        raw=raw, part=part,
    )  # fmt: skip


def _instructions(data: dict[str, Any]) -> str:
    about = first_text(data.get("about_user_message"), data.get("user_profile"))
    return join([about, first_text(data.get("about_model_message"), data.get("user_instructions"))])


def _words(content: dict[str, Any], kind: str) -> str:
    if kind == "thoughts":
        thoughts = [mapping(piece) for piece in items(content.get("thoughts"))]
        return thought(join([join([text(piece.get("summary")), text(piece.get("content"))]) for piece in thoughts]))
    if kind == "reasoning_recap":
        return ""  # "Thought for 5 seconds"
    if kind == "code":
        language = text(content.get("language"))
        return fenced(text(content.get("text")), "" if language == "unknown" else language)
    if kind == "execution_output":
        return text(content.get("text"))
    if kind == "user_editable_context":
        return _instructions(content)
    parts = [_part(part) for part in items(content.get("parts"))]
    if not parts:
        parts = [first_text(content.get("text"), content.get("result"), content.get("content")) or placeholder(kind or "unknown")]
    return _MARKS.sub("", join(parts)) if len(parts) > 1 else _MARKS.sub("", parts[0])


def _part(part: Any) -> str:
    if isinstance(part, str):
        return clean(part)
    if not isinstance(part, dict):
        return compact(part)
    kind = text(part.get("content_type"))
    if kind == "audio_transcription":
        return text(part.get("text"))
    return first_text(part.get("text")) or placeholder(_FILES.get(kind, kind or "unknown"), text(part.get("asset_pointer")))
