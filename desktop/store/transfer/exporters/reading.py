"""What an exported conversation shows: the shown path, names of authors, thoughts separate from the text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime

from desktop.blocks import THINKING_TAGS, Block, BlockSplitter, Kind
from desktop.store.conversations.call_words import call_label, call_markdown, fenced
from desktop.store.conversations.records import code_language
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import N_, _, translate

__all__ = ["label", "named_path", "opened_in", "pieces", "shown_path", "when", "without_thoughts"]

_LABELS = {"user": N_("You"), "assistant": N_("Assistant"), "system": N_("System"), "tool": N_("Tool")}


def shown_path(conversation: ConversationRecord) -> list[MessageRecord]:
    """The shown messages, first to last; where the chosen variant is gone, the newest one. Calls of tools are
    Markdown, by what happened to them; a reply of nothing but calls is left out.
    """
    children: dict[str | None, list[MessageRecord]] = {}
    for message in conversation.messages:
        if not message.deleted:
            children.setdefault(message.parent, []).append(message)
    found: list[MessageRecord] = []
    parent, chosen = None, conversation.shown_root
    while siblings := children.get(parent):
        message = next((message for message in siblings if message.key == chosen), siblings[-1])
        if (
            message.call is not None
            and found
            and found[-1].role == "assistant"
            and not found[-1].text.strip()
        ):
            found.pop()
        found.append(_in_fence(_with_call(message)))
        parent, chosen = message.key, message.shown_child
    return found


def named_path(conversation: ConversationRecord) -> Iterator[tuple[MessageRecord, bool]]:
    """As `shown_path`, each with whether its author is named above it: a reply that goes on after calls of
    tools belongs to the one before them, as in the window.
    """
    above = ""
    after_call = False
    for message in shown_path(conversation):
        if message.call is not None:
            after_call = True
            yield message, True
            continue
        author = label(message) if message.role == "assistant" else ""
        yield message, not (after_call and author and author == above)
        above, after_call = author, False


def _with_call(message: MessageRecord) -> MessageRecord:
    call = message.call
    if call is None:
        return message
    label = call_label(call, "waiting" if call.waiting else message.state, message.text)
    return dataclasses.replace(message, text=call_markdown(call, message.text), author=label)


def _in_fence(message: MessageRecord) -> MessageRecord:
    """A reply that is code as a whole, as Markdown; its thoughts stay as they are."""
    language = code_language(message.role, message.stats)
    if not language or message.call is not None:
        return message
    start = 0
    for block in _blocks(message.text, opened_in(message), language):
        if block.kind is Kind.CODE and not block.thought:
            break
        start += len(block.source)
    answer = message.text[start:].strip("\n")
    text = message.text[:start] + (fenced(answer, language) if answer.strip() else "")
    return dataclasses.replace(message, text=text)


def without_thoughts(conversation: ConversationRecord) -> ConversationRecord:
    """The conversation without the thoughts in its replies; a reply of nothing but thoughts becomes empty."""
    return dataclasses.replace(conversation, messages=tuple(map(_without_thoughts, conversation.messages)))


def _without_thoughts(message: MessageRecord) -> MessageRecord:
    if message.role != "assistant":
        return message
    parts = pieces(message.text, opened_in(message))
    if not any(is_thought for is_thought, _unused in parts):
        return message
    text = "\n\n".join(text for is_thought, text in parts if not is_thought)
    stats = {name: value for name, value in message.stats.items() if name != "opened"}
    return dataclasses.replace(message, text=text, stats=stats)


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


def pieces(text: str, opened: str = "") -> list[tuple[bool, str]]:
    """Split the text of a reply into (is a thought, text) pairs, as the transcript does: a thought starts on
    its own line, and perhaps never ends; one in code is code.

    With `opened`, the closing tag of a thought, the text begins inside that thought.
    """
    if not opened and not any(mark in text for tag in THINKING_TAGS for mark in tag):
        return [(False, text.strip("\n"))] if text.strip() else []
    found: list[tuple[bool, str]] = [(False, "")]
    for block in _blocks(text, opened):
        if block.kind is Kind.THINKING:
            found.append((True, ""))
        elif block.kind is not Kind.MARKUP:
            if found[-1][0] != block.thought:
                found.append((block.thought, ""))
            found[-1] = (block.thought, found[-1][1] + block.source)
    return [(thought, piece.strip("\n")) for thought, piece in found if piece.strip()]


def _blocks(text: str, opened: str, language: str = "") -> Sequence[Block]:
    splitter = BlockSplitter(opened=opened, language=language)
    splitter.feed(text)
    found = splitter.blocks(ended=True)
    # a tag that closes what was never opened shows that the prompt had opened it
    return found if opened or not splitter.orphan else _blocks(text, splitter.orphan, language)


def opened_in(message: MessageRecord) -> str:
    """The tag that closes the thought in which the message begins, which its prompt had opened; empty for
    none.
    """
    opened = message.stats.get("opened")
    return opened if isinstance(opened, str) else ""
