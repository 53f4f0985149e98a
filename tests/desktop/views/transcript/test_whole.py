"""Long chats: messages that nobody has looked at are one row each, and nobody notices."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript import find
from desktop.views.transcript.find import Finding
from desktop.views.transcript.intake import STEP_LINES
from desktop.views.transcript.message_list import MessageList
from desktop.views.transcript.message_rows import MessageRows
from desktop.views.transcript.rows import Row, RowKind
from tests.desktop.views.transcript.conftest import Show
from tests.desktop.views.transcript.test_find import open_bar

COUNT = 400


def chat(count: int = COUNT) -> list[MessageItem]:
    return [
        MessageItem(n, "assistant", f"# Reply {n}\n\nA **bold** words{n}.\n\n```\ncode {n}\n```\n\n- one\n")
        if n % 2
        else MessageItem(n, "user", f"Question **{n}**\n\nwith two lines")
        for n in range(1, count + 1)
    ]  # fmt: skip


def whole(view) -> list[int]:  # type: ignore[no-untyped-def]
    return [message.item.id for message in view.messages.all if message.whole]


def test_only_messages_near_the_screen_are_split(show: Show, qtbot: QtBot) -> None:
    view, model = show(chat())
    assert len(whole(view)) >= COUNT - 40
    assert not any(row.kind is RowKind.WHOLE for row in view.pool.live)
    bar = view.verticalScrollBar()
    draw = random.Random(3)
    for _ in range(40):
        bar.setValue(draw.randrange(bar.maximum() + 1))
        view.flush()
        seen = {row.item.id for row in view.pool.live}
        assert seen
        assert not seen & set(whole(view))
        rows = view.messages.layout.rows
        assert [row.index for row in rows] == list(range(len(rows)))
        assert [row for message in view.messages.all for row in message.rows] == rows
    assert len(whole(view)) > COUNT // 5
    model.replace(1, MessageItem(1, "assistant", "other **text**"))
    view.scrolling.to_message(1)
    qtbot.waitUntil(view.settled)
    assert [row.text for row in view.messages.message(1).rows][1] == "other **text**"
    alone = [MessageRows(item) for item in model.items()]
    view.messages.split(list(view.messages.layout.rows))
    assert whole(view) == []
    for here, there in zip(view.messages.all, alone, strict=True):
        assert [(row.kind, row.text, row.source, row.start, row.gap) for row in here.rows] == [
            (row.kind, row.text, row.source, row.start, row.gap) for row in there.rows
        ]


def test_what_is_looked_at_stays_while_messages_above_it_are_split(show: Show, qtbot: QtBot) -> None:
    view, _ = show(chat())
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    qtbot.waitUntil(view.settled)
    for _ in range(60):
        height = view.viewport().height()
        before = {row: widget.y() for row, widget in view.pool.live.items() if 60 <= widget.y() < height - 60}
        bar.setValue(bar.value() - 50)
        view.flush()
        moved = {view.pool.live[row].y() - y for row, y in before.items() if row in view.pool.live}
        assert moved <= {50}
    assert whole(view)


def test_everything_is_copied_without_the_hidden_thoughts_of_whole_messages(show: Show, qtbot: QtBot) -> None:
    items = chat()
    items[1] = MessageItem(2, "assistant", "<think>\nnobody asked\n</think>\n\nSaid aloud.")
    items[3] = MessageItem(4, "assistant", "nobody knows</think>\n\nAnswered.", opened="</think>")
    view, _ = show(items)
    assert {2, 4} <= set(whole(view))
    view.select_all()
    copied = view.selection.text()
    view.messages.split(list(view.messages.layout.rows))
    view.select_all()
    assert copied == view.selection.text()
    assert "Said aloud." in copied
    assert "nobody" not in copied


def long_reply(end: str) -> MessageItem:
    """Of more lines than are split in one step."""
    lines = "".join(f"line {n}\n\n" for n in range(STEP_LINES))
    return MessageItem(102, "assistant", f"<think>\nhidden\n</think>\n\n{lines}{end}")


def test_a_long_whole_message_is_copied_to_its_end(show: Show, qtbot: QtBot) -> None:
    """What was beyond the first 500 lines was lost."""
    items = chat()
    items[101] = long_reply("The end.")
    view, _ = show(items)
    assert 102 in whole(view)
    view.select_all()
    copied = view.selection.text()
    assert "line 5\n" in copied
    assert "hidden" not in copied
    assert f"line {STEP_LINES - 1}\n\nThe end.\n" in copied


def test_a_match_far_down_in_a_long_whole_message_is_gone_to(show: Show, qtbot: QtBot) -> None:
    """It was counted, and lost when the message was split."""
    items = chat()
    items[101] = long_reply("The needle.")
    for by_search in (False, True):
        view, _ = show(items)
        view.verticalScrollBar().setValue(0)
        view.flush()
        assert 102 in whole(view)
        if by_search:
            view.finding.go_to(102, items[101].text.index("needle"), "needle")
        else:
            assert open_bar(view, "needle").count.text() == "1 of 1"
        row, number = view.finding._present
        assert (row.text, number) == ("The needle.", 0)
        assert row in view.pool.live


def test_words_that_only_the_markdown_has_lead_to_another_match(show: Show, qtbot: QtBot) -> None:
    items = chat()
    items[349] = MessageItem(350, "assistant", "Above.\n\n---\n\nBelow.")
    items[9] = MessageItem(10, "assistant", "A --- B")
    view, _ = show(items)
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    view.flush()
    assert {10, 350} <= set(whole(view))
    found = open_bar(view, "")
    found.box.setText("---")  # pasted: a key at a time, the search would begin anew
    row, _number = view.finding._present
    assert (row.text, found.count.text()) == ("A --- B", "1 of 1")


def test_words_that_only_the_markdown_of_a_whole_chat_has_are_sought_once(
    show: Show, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 such messages stopped the window for nine seconds."""
    view, _ = show([MessageItem(n, "assistant", f"Above {n}\n\n----\n\nBelow") for n in range(1, COUNT + 1)])
    found, before, asked, collected = open_bar(view, ""), whole(view), list[int](), list[int]()
    split_rows, collect = MessageList.split_rows, Finding._collect

    def counted(messages: MessageList, message_id: int) -> Sequence[Row]:
        asked.append(message_id)
        return split_rows(messages, message_id)

    def counting(finding: Finding) -> None:
        collected.append(1)
        collect(finding)

    monkeypatch.setattr(MessageList, "split_rows", counted)
    monkeypatch.setattr(Finding, "_collect", counting)
    for words in ("---", "----"):
        found.box.setText(words)
        assert found.count.text() == "No matches"
    assert sorted(asked) == before == whole(view)
    assert len(collected) <= 4


def test_the_language_of_code_in_whole_messages_is_no_match(show: Show, qtbot: QtBot) -> None:
    """It is not shown; what a block of code has is, also where it looks like the beginning of another."""
    items = [MessageItem(n, "assistant", f"```needle\ncode {n}\n```\n\nEnd.") for n in range(1, COUNT + 1)]
    items[9] = MessageItem(10, "assistant", "````md\n```needle\n```\n````")
    items[19] = MessageItem(20, "assistant", "```a\ncode\n```\n\nA needle.\n\n```needle\ncode\n```")
    view, _ = show(items)
    before = whole(view)
    found = open_bar(view, "")
    found.box.setText("needle")
    assert found.count.text() == "1 of 2"
    assert len(set(before) - set(whole(view))) < 40  # those around the match


def test_matches_in_whole_messages_are_counted_and_gone_to(show: Show, qtbot: QtBot) -> None:
    items = chat()
    items[101] = MessageItem(102, "assistant", "<think>\nwords199 thought\n</think>\n\nwords199 and words199")
    view, _ = show(items)
    assert {102, 199} <= set(whole(view))
    view.verticalScrollBar().setValue(0)
    view.flush()
    bar = open_bar(view, "words199")
    assert bar.count.text() == "1 of 4"
    shown = []
    for _ in range(5):
        row, _number = view.finding._present
        assert row.kind is not RowKind.WHOLE
        assert row in view.pool.live
        shown.append((row.item.id, bar.count.text()))
        QTest.keyClick(bar.box, Qt.Key.Key_Return)
    assert shown == [(102, "1 of 4"), (102, "2 of 4"), (102, "3 of 4"), (199, "4 of 4"), (102, "1 of 4")]


def test_matches_follow_messages_that_are_split_by_scrolling(show: Show, qtbot: QtBot) -> None:
    view, _ = show(chat())
    bar = open_bar(view, "two lines")
    assert bar.count.text().endswith(f"of {COUNT // 2}")
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum() // 2)
    view.flush()
    qtbot.waitUntil(lambda: all(view.messages.layout.holds(row) and row.kind is not RowKind.HEADER
                                for row, _ in view.finding.places))  # fmt: skip
    assert len(view.finding.places) == COUNT // 2
    assert any(place[0] in view.pool.live for place in view.finding.places)


def test_a_match_of_a_found_message_is_shown_in_its_own_rows(show: Show, qtbot: QtBot) -> None:
    items = chat()
    view, _ = show(items)
    assert 151 in whole(view)
    view.finding.go_to(151, items[150].text.index("words151"), "words151")
    qtbot.waitUntil(view.settled)
    row, number = view.finding._present
    assert (row.kind, row.item.id, number) == (RowKind.TEXT, 151, 0)
    assert row in view.pool.live


def test_a_key_strips_the_markup_of_no_row_again(
    show: Show, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripped: list[object] = []
    searched = find.searched_text

    def counting(row):  # type: ignore[no-untyped-def]
        stripped.append(row)
        return searched(row)

    monkeypatch.setattr(find, "searched_text", counting)
    view, model = show(chat())
    bar = open_bar(view, "w")
    assert len(stripped) >= COUNT // 2
    stripped.clear()
    QTest.keyClicks(bar.box, "ords3")
    assert bar.count.text().endswith("of 56")
    assert len(stripped) <= 60  # rows of the messages that the match on the screen has split
    stripped.clear()
    model.replace(399, MessageItem(399, "assistant", "words3 words3 words3"))
    qtbot.waitUntil(lambda: bar.count.text() == "58 found")
    assert 1 <= len(stripped) <= 5
    QTest.keyClick(bar.box, Qt.Key.Key_Escape)
    assert view.finding._words == {}
