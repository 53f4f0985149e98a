"""What an exported conversation shows to a reader: its shown path, names for roles, thoughts apart from
the text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from datetime import datetime

from desktop.store.transfer.records import ConversationRecord, MessageRecord

__all__ = ["THINKING_TAGS", "label", "pieces", "shown_path", "when", "without_thoughts"]

THINKING_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<|think|>", "<|/think|>"))
_LABELS = {"user": "You", "assistant": "Assistant", "system": "System", "tool": "Tool"}


def shown_path(conversation: ConversationRecord) -> list[MessageRecord]:
    """The messages on display, from the first to the last; where the variant asked for is gone, the newest
    one.
    """
    children: dict[str | None, list[MessageRecord]] = {}
    for message in conversation.messages:
        if not message.deleted:
            children.setdefault(message.parent, []).append(message)
    found: list[MessageRecord] = []
    parent, wanted = None, conversation.shown_root
    while beside := children.get(parent):
        message = next((message for message in beside if message.key == wanted), beside[-1])
        found.append(message)
        parent, wanted = message.key, message.shown_child
    return found


def without_thoughts(conversation: ConversationRecord) -> ConversationRecord:
    """The conversation with replies that hold no thoughts; a reply that was nothing but thoughts is empty
    then.
    """
    return dataclasses.replace(conversation, messages=tuple(map(_said, conversation.messages)))


def _said(message: MessageRecord) -> MessageRecord:
    if message.role != "assistant":
        return message
    parts = pieces(message.text)
    if not any(is_thought for is_thought, _ in parts):
        return message
    return dataclasses.replace(
        message, text="\n\n".join(text for is_thought, text in parts if not is_thought)
    )


def label(message: MessageRecord) -> str:
    """Who speaks, with the model's name where it is known."""
    name = " ".join(message.author.split()) or _LABELS.get(
        message.role, message.role.capitalize() or "Message"
    )
    model = message.stats.get("model")
    return f"{name} ({' '.join(model.split())})" if isinstance(model, str) and model.strip() else name


def when(seconds: float | None) -> str:
    """A time in this machine's zone, to the minute; empty where it is not known."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return ""


def pieces(text: str, tags: Sequence[tuple[str, str]] = THINKING_TAGS) -> list[tuple[bool, str]]:
    """The text in order, as (is it a thought, its text); a thought begins on a line of its own and may not
    be closed.
    """
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
