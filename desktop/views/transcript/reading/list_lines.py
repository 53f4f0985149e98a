"""A message's line in the list of the reading view."""

from __future__ import annotations

from collections.abc import Sequence

from desktop.blocks import THINKING_TAGS, BlockSplitter, Tag
from desktop.blocks.spoken_text import spoken_reply
from desktop.items.chats.messages import MessageItem, author_label
from desktop.services.engine.reply_record import spoken
from desktop.store.conversations.call_words import call_label
from engine.words import _

_LONGEST, _FURTHEST = 80, 20_000
"""Characters of a message's beginning that are shown, and that are read to find them."""


def message_beginning(item: MessageItem, tags: Sequence[Tag] = THINKING_TAGS) -> str:
    """The first words of a message, without thoughts and marks; of a call what happened to it."""
    if item.role == "user":
        return item.text[: 4 * _LONGEST]
    if item.call is not None:
        return call_label(item.call, item.state, item.result)
    splitter = BlockSplitter(tags, item.opened)
    for start in range(0, min(len(item.text), _FURTHEST), 4 * _LONGEST):
        splitter.feed(item.text[start : start + 4 * _LONGEST])
        words = spoken_reply([*splitter.closed, *splitter.tail()])
        if len(words) > _LONGEST:
            break
    return spoken_reply([*splitter.closed, *splitter.tail(ended=True)])


def message_words(item: MessageItem, place: int, count: int, beginning: str) -> str:
    """Author, place, state and beginning of a message, as a screen reader says them."""
    parts = [author_label(item), _("{place} of {count}", place=place + 1, count=count)]
    if item.variant_count > 1:
        parts.append(
            _(
                "version {variant_index} of {variant_count}",
                variant_index=item.variant_index + 1,
                variant_count=item.variant_count,
            )
        )
    if item.running:
        parts.append(_("being written"))
    elif item.notice:
        parts.append(item.notice)
    elif item.footer:
        parts.append(spoken(item.footer).replace(" · ", ", "))
    line = " ".join(beginning.split())
    return f"{', '.join(parts)}: {line if len(line) <= _LONGEST else line[:_LONGEST] + '…'}"
