"""What an exported conversation shows: the shown path, names of authors, thoughts separate from the text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from datetime import datetime

from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import N_, _, translate

__all__ = ["THINKING_TAGS", "label", "pieces", "shown_path", "when", "without_thoughts"]

THINKING_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<|think|>", "<|/think|>"))
_LABELS = {"user": N_("You"), "assistant": N_("Assistant"), "system": N_("System"), "tool": N_("Tool")}


def shown_path(conversation: ConversationRecord) -> list[MessageRecord]:
    """The shown messages, first to last; where the chosen variant is gone, the newest one."""
    children: dict[str | None, list[MessageRecord]] = {}
    for message in conversation.messages:
        if not message.deleted:
            children.setdefault(message.parent, []).append(message)
    found: list[MessageRecord] = []
    parent, chosen = None, conversation.shown_root
    while siblings := children.get(parent):
        message = next((message for message in siblings if message.key == chosen), siblings[-1])
        found.append(message)
        parent, chosen = message.key, message.shown_child
    return found


def without_thoughts(conversation: ConversationRecord) -> ConversationRecord:
    """The conversation without the thoughts in its replies; a reply of nothing but thoughts becomes empty."""
    return dataclasses.replace(conversation, messages=tuple(map(_without_thoughts, conversation.messages)))


def _without_thoughts(message: MessageRecord) -> MessageRecord:
    if message.role != "assistant":
        return message
    parts = pieces(message.text)
    if not any(is_thought for is_thought, _unused in parts):
        return message
    return dataclasses.replace(
        message, text="\n\n".join(text for is_thought, text in parts if not is_thought)
    )


def label(message: MessageRecord) -> str:
    """The author's name, with that of the model if it is known."""
    name = " ".join(message.author.split())
    if not name:
        role = message.role
        name = translate(_LABELS[role]) if role in _LABELS else role.capitalize() or _("Message")
    model = message.stats.get("model")
    return f"{name} ({' '.join(model.split())})" if isinstance(model, str) and model.strip() else name


def when(seconds: float | None) -> str:
    """A time in the local time zone, to the minute; empty if it is not known."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return ""


def pieces(text: str, tags: Sequence[tuple[str, str]] = THINKING_TAGS) -> list[tuple[bool, str]]:
    """Split the text into (is a thought, text) pairs; a thought starts on its own line, perhaps unclosed."""
    begins = "|".join(f"(?:{re.escape(begin)}.*?(?:{re.escape(end)}|\\Z))" for begin, end in tags)
    found: list[tuple[bool, str]] = []
    place = 0
    for match in re.finditer(rf"^[ \t]*(?:{begins})", text, re.DOTALL | re.MULTILINE) if tags else ():
        found.append((False, text[place : match.start()]))
        found.append((True, _inside(match[0].strip(), tags)))
        place = match.end()
    found.append((False, text[place:]))
    return [(thought, piece.strip("\n")) for thought, piece in found if piece.strip()]


def _inside(text: str, tags: Sequence[tuple[str, str]]) -> str:
    begin, end = next(pair for pair in tags if text.startswith(pair[0]))
    return text.removeprefix(begin).removesuffix(end)
