"""A reply, the calls of tools that it makes, and the replies that go on after them are shown as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from desktop.items.chats.messages import MessageItem, author_label

__all__ = ["Place", "place_in"]


class Place(NamedTuple):
    """What is beside a reply: it `goes_on` after calls of the same author, who is named above already; its
    `calls` follow it.
    """

    goes_on: bool = False
    calls: bool = False


class _Shown(Protocol):
    item: MessageItem


def place_in(messages: Sequence[_Shown], number: int) -> Place:
    """The place of the message `number` among all messages; of what is no reply, the default."""
    item = messages[number].item
    if item.call is not None or item.role != "assistant":
        return Place()
    above = number - 1
    while above > 0 and messages[above].item.call is not None:
        above -= 1
    before = messages[above].item
    goes_on = 0 <= above < number - 1 and _author(before) == _author(item)
    return Place(goes_on, number + 1 < len(messages) and messages[number + 1].item.call is not None)


def _author(item: MessageItem) -> tuple[str, str, int]:
    return item.role, author_label(item), item.persona
