"""The rows of thousands of messages: a change of a few costs what those few cost."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from PySide6.QtGui import QFont, QPalette
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript.message_list import MessageList
from desktop.views.transcript.style import TranscriptColours, make_style
from tests.work import calls_in

LONG = "words in a row, many of them. " * 20_000
"""More than one frame takes in."""


def empty() -> MessageList:
    return MessageList(make_style(QFont(), 100, TranscriptColours.from_palette(QPalette())))


def message(number: int, text: str = "a **text**") -> MessageItem:
    return MessageItem(number, "assistant" if number % 2 else "user", text)


@pytest.mark.parametrize(
    "change",
    [
        lambda found, end: found.insert(end, [message(-1), message(-2)]),
        lambda found, end: found.update(end - 1, message(-1)),
        lambda found, end: found.remove(end - 2, end - 1),
    ],
    ids=["insert", "update", "remove"],
)
def test_a_change_at_the_end_does_not_look_at_what_is_above(
    qtbot: QtBot, change: Callable[[MessageList, int], None]
) -> None:
    """To undo a deletion in a chat of ten thousand messages took a minute: all were looked at for each."""
    costs = []
    for count in (50, 500):
        found = empty()
        found.reset([message(number) for number in range(count)])
        costs.append(calls_in(lambda found=found, count=count: change(found, count)))
    assert costs[0] == costs[1] > 0


def test_messages_are_found_and_taken_in_after_any_changes(qtbot: QtBot) -> None:
    draw = random.Random(4)
    found, shown = empty(), list[MessageItem]()
    for number in range(80):
        at = draw.randrange(len(shown) + 1)
        text = draw.choice(["short", LONG])
        act = draw.choice(["insert", "insert", "remove", "update", "reset"])
        if act == "insert":
            added = [message(number, text), message(number + 1000, "x")]
            found.insert(at, added)
            shown[at:at] = added
        elif act == "remove" and at < len(shown):
            last = draw.randrange(at, min(len(shown), at + 3))
            found.remove(at, last)
            del shown[at : last + 1]
        elif act == "update" and at < len(shown):
            shown[at] = message(draw.choice([number, shown[at].id]), text)
            found.update(at, shown[at])
        elif draw.random() < 0.2:
            found.reset(shown)
        assert [each.item for each in found.all] == shown
        assert [found.message(item.id).item for item in shown] == shown
        assert found._waiting <= {item.id for item in shown}
    assert any(each.waits for each in found.all)
    for _ in range(10_000):
        if not found.step():
            break
    assert not any(each.waits for each in found.all)
    with pytest.raises(KeyError):
        found.message(-5)
