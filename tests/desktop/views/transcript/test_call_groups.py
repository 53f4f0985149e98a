"""A reply and what follows its calls are one: its author is named once, no empty line is between calls."""

from __future__ import annotations

import random

import pytest
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.message_list import MessageList
from desktop.views.transcript.model_sync import ModelSync
from desktop.views.transcript.row_widgets.small import HeaderRow
from desktop.views.transcript.rows import RowKind
from tests.desktop.views.transcript.conftest import Show
from tests.desktop.views.transcript.test_calls import called

TALK = (
    MessageItem(1, "user", "How much rain?"),
    MessageItem(2, "assistant", "", footer="12 tokens"),
    called(3, "complete", "a.csv"),
    MessageItem(4, "assistant", "<think>\nMore.\n</think>\n"),
    called(5, "complete", "b.csv"),
    called(6, "complete", "c.csv"),
    MessageItem(7, "assistant", "680 litres."),
)


def shown(messages: MessageList) -> list[tuple[int, RowKind, str, float]]:
    messages.split(list(messages.layout.rows))
    assert [row for message in messages.all for row in message.rows] == messages.layout.rows
    return [(row.item.id, row.kind, row.text, row.gap) for row in messages.layout.rows]


def named(view: TranscriptView) -> list[int]:
    """The messages above which there is their author."""
    heads = [head for head in view.pool.widgets() if isinstance(head, HeaderRow) and head.row is not None]
    return sorted(head.row.item.id for head in heads if head.row is not None and head.height())


def with_buttons(messages: MessageList) -> list[int]:
    return [number for number, kind, _text, _gap in shown(messages) if kind is RowKind.FOOTER]


def test_one_author_and_one_row_of_buttons(show: Show) -> None:
    view, _ = show(TALK, height=900)
    assert named(view) == [1, 2]
    assert with_buttons(view.messages) == [1, 7]


@pytest.mark.parametrize(
    "changed",
    [
        MessageItem(7, "assistant", "680 litres.", author="Ada"),
        MessageItem(7, "assistant", "680 litres.", persona=3),
        MessageItem(7, "user", "680 litres."),
    ],
)
def test_somebody_else_is_named(show: Show, changed: MessageItem) -> None:
    view, _ = show((*TALK[:-1], changed), height=900)
    assert named(view) == [1, 2, 7]


@pytest.mark.parametrize(
    "changed",
    [
        MessageItem(4, "assistant", "I look again."),
        MessageItem(4, "assistant", "", variant_count=2),
        MessageItem(4, "assistant", "", notice="The reply was cut."),
        MessageItem(4, "assistant", "", running=True),
    ],
)
def test_what_has_text_or_versions_keeps_its_buttons(show: Show, changed: MessageItem) -> None:
    view, _ = show([changed if item.id == 4 else item for item in TALK], height=900)
    assert named(view) == [1, 2]
    assert with_buttons(view.messages) == [1, 4, 7]


def test_a_reply_that_made_no_call_keeps_its_buttons(show: Show) -> None:
    view, _ = show(TALK[:2])
    assert with_buttons(view.messages) == [1, 2]


def test_the_menu_of_the_author_has_what_the_buttons_had(show: Show) -> None:
    view, _ = show(TALK, height=900)
    head = view.pool.widget(view.messages.message(2).rows[0])
    assert head is not None
    menu = view.make_menu(head.geometry().center())
    words = {action.text() for action in menu.actions()}
    assert {"Regenerate the reply", "Reply details", "Delete message"} <= words
    menu.deleteLater()


@pytest.mark.slow
def test_after_any_change_it_is_shown_as_if_it_had_always_been_so(show: Show, qtbot: QtBot) -> None:
    view, _ = show(TALK)
    draw = random.Random(5)
    model, messages, afresh = (
        MessagesModel(),
        MessageList(view.messages.style),
        MessageList(view.messages.style),
    )
    sync = ModelSync(messages, model, view)
    number = 0

    def made() -> MessageItem:
        nonlocal number
        number += 1
        kind = draw.choice(("user", "assistant", "assistant", "call", "call"))
        if kind == "call":
            return called(number, draw.choice(("complete", "waiting")), "found")
        return MessageItem(number, kind, draw.choice(("", "Text.")), author=draw.choice(("", "", "Ada")))

    for _turn in range(400):
        ids = [item.id for item in model.items()]
        change = draw.choice(("extend", "extend", "replace", "remove"))
        if change == "extend":
            model.extend([made() for _each in range(draw.randrange(1, 4))])
        elif ids and change == "replace":
            model.replace(draw.choice(ids), made())
        elif ids:
            start = draw.randrange(len(ids))
            model.remove(ids[start : start + draw.randrange(1, 4)])
        afresh.reset(model.items())
        assert shown(messages) == shown(afresh)
    assert number > 300
    sync.stop()
