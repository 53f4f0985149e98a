"""Calls of tools in the transcript: a line that unfolds to the arguments and the result, and buttons."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.store.conversations.call_words import INSIDE, call_markdown
from desktop.store.conversations.tool_calls import NOT_ALLOWED, UNFINISHED, StoredCall
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.commands import add_message_actions
from desktop.views.transcript.message_rows import MessageRows
from desktop.views.transcript.reading.document import write_message
from desktop.views.transcript.reading.list_lines import message_beginning, message_words
from desktop.views.transcript.rendering.markdown import SafeDocument
from desktop.views.transcript.row_widgets.call import CallRow
from desktop.views.transcript.row_widgets.code import CodeRow
from desktop.views.transcript.row_widgets.small import HeaderRow, ThoughtRow
from desktop.views.transcript.rows import RowKind
from tests.desktop.views.transcript.conftest import Show

NAMED = ("Allow", "Always allow", "Don't allow", "Stop", "Go on without it")
CALL = StoredCall("call_1", "files_read", '{"path": "/needle"}', "files", "read")


def called(number: int, state: str, result: str = "", **changes: object) -> MessageItem:
    """The row of a call."""
    call = CALL._replace(waiting=state == "waiting")
    item = MessageItem(
        number, "tool", call_markdown(call, result), opened=INSIDE, call=call, state=state, result=result
    )
    return dataclasses.replace(item, **changes)  # type: ignore[arg-type]


def kinds(item: MessageItem) -> list[RowKind]:
    return [row.kind for row in MessageRows(item).rows]


@pytest.mark.parametrize(
    ("state", "result", "shown"),
    [
        ("waiting", "", [RowKind.HEADER, RowKind.THOUGHT, RowKind.CODE, RowKind.CALL]),
        ("running", "", [RowKind.HEADER, RowKind.THOUGHT, RowKind.CALL]),
        ("complete", "ok", [RowKind.HEADER, RowKind.THOUGHT]),
        ("failed", "no", [RowKind.HEADER, RowKind.THOUGHT]),
        ("stopped", UNFINISHED, [RowKind.HEADER, RowKind.THOUGHT, RowKind.CALL]),
        ("stopped", NOT_ALLOWED, [RowKind.HEADER, RowKind.THOUGHT]),
    ],
)
def test_only_what_is_to_be_allowed_is_unfolded(state: str, result: str, shown: list[RowKind]) -> None:
    assert kinds(called(1, state, result)) == shown


def test_unfolded_it_shows_the_arguments_and_the_result() -> None:
    message = MessageRows(called(1, "complete", "# found\n<think>"))
    message.fold(0, False)
    message.sync()
    assert [row.text for row in message.rows if row.kind is RowKind.CODE] == [
        '{\n  "path": "/needle"\n}',
        "# found\n<think>",
    ]


def test_a_call_folds_when_it_has_been_allowed_unless_the_reader_unfolded_it() -> None:
    message = MessageRows(called(1, "waiting"))
    message.update(called(1, "running"))
    message.sync()
    assert RowKind.CODE not in [row.kind for row in message.rows]
    message.fold(0, False)
    message.update(called(1, "complete", "found"))
    message.sync()
    assert [row.kind for row in message.rows].count(RowKind.CODE) == 2
    assert message.rows[1].text == "Called read (files)"


def test_folded_it_says_its_arguments_in_brief() -> None:
    message = MessageRows(called(1, "complete", "found"))
    assert message.rows[1].text == "Called read (files) · /needle"
    message.fold(0, False)
    message.sync()
    assert message.rows[1].text == "Called read (files)"
    bare = dataclasses.replace(called(1, "complete", "found"), call=CALL._replace(arguments="{}"))
    assert MessageRows(bare).rows[1].text == "Called read (files)"


def test_nothing_that_is_to_be_allowed_is_out_of_sight(show: Show) -> None:
    call = CALL._replace(arguments=json.dumps({"command": "ls" + " " * 300 + "; rm needle"}), waiting=True)
    item = dataclasses.replace(called(1, "waiting"), call=call, text=call_markdown(call, ""))
    view, _ = show([item], height=900)
    [code] = [widget for widget in view.pool.widgets() if isinstance(widget, CodeRow)]
    assert code.wrap.isChecked()
    assert not code.bar.isVisible()
    [reply] = [
        row
        for row in MessageRows(MessageItem(1, "assistant", "```\nx\n```")).rows
        if row.kind is RowKind.CODE
    ]
    assert not reply.wrapped


def buttons(view: TranscriptView) -> dict[str, list[str]]:
    """The texts of the buttons below calls, by their accessible names."""
    found = [widget for widget in view.pool.widgets() if isinstance(widget, CallRow)]
    return {
        row.accessibleName(): [button.text() for button in row.buttons.values() if button.isVisible()]
        for row in sorted(found, key=lambda row: row.y())
    }


def test_an_author_who_is_not_shown_is_not_said(show: Show) -> None:
    items = [
        MessageItem(1, "assistant", "I look."),
        called(2, "complete", "x"),
        MessageItem(3, "assistant", "x"),
    ]
    view, _ = show(items, height=900)
    headers = sorted(
        (each for each in view.pool.widgets() if isinstance(each, HeaderRow)), key=lambda row: row.y()
    )
    assert [header.accessibleName() for header in headers] == ["Assistant", "", ""]


def test_the_buttons_of_each_state(show: Show) -> None:
    view, _ = show([called(1, "waiting"), called(2, "running"), called(3, "stopped", UNFINISHED)], height=900)
    assert buttons(view) == {
        "The model wants to call read (files)": ["Allow", "Always allow", "Don't allow"],
        "Calling read (files)…": ["Stop"],
        "The call of read (files) was stopped": ["Go on without it"],
    }


@pytest.mark.parametrize(
    ("state", "result", "name"),
    [
        ("waiting", "", "allow_call"),
        ("waiting", "", "always_allow"),
        ("waiting", "", "refuse_call"),
        ("running", "", "stop_calls"),
        ("stopped", UNFINISHED, "regenerate"),
    ],
)
def test_a_button_acts_on_its_message(show: Show, state: str, result: str, name: str) -> None:
    view, _ = show([MessageItem(1, "user", "Read."), called(7, state, result)])
    said: list[tuple[str, int]] = []
    view.action.connect(lambda *values: said.append(values))
    [row] = [widget for widget in view.pool.widgets() if isinstance(widget, CallRow)]
    QTest.mouseClick(row.buttons[name], Qt.MouseButton.LeftButton)
    assert said == [(name, 7)]
    assert row.buttons[name].accessibleName() == f"{row.buttons[name].text()}: {row.accessibleName()}"


def test_in_a_narrow_column_the_buttons_stand_below_each_other(show: Show) -> None:
    view, _ = show([called(1, "waiting")], width=230)
    [row] = [widget for widget in view.pool.widgets() if isinstance(widget, CallRow)]
    shown = [button for button in row.buttons.values() if button.isVisible()]
    assert len({button.y() for button in shown}) > 1
    assert all(row.rect().contains(button.geometry()) for button in shown)
    wide, _ = show([called(1, "waiting")], width=900)
    [row] = [widget for widget in wide.pool.widgets() if isinstance(widget, CallRow)]
    assert len({button.y() for button in row.buttons.values() if button.isVisible()}) == 1


def test_a_call_has_no_author_above_it_and_no_figures_below(show: Show) -> None:
    view, _ = show([MessageItem(1, "assistant", "I look."), called(2, "complete", "found")])
    heads = {w.row.item.id: w.height() for w in view.pool.widgets() if isinstance(w, HeaderRow) and w.row}
    assert heads[2] == 0 < heads[1]


def test_finding_a_word_in_a_folded_result_unfolds_it(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "user", "Read."), called(2, "complete", "the needle")])
    view.finding.open()
    assert view.finding.bar is not None
    QTest.keyClicks(view.finding.bar.box, "the needle")
    qtbot.waitUntil(view.settled)
    assert len(view.finding.places) == 1
    QTest.keyClick(view.finding.bar.box, Qt.Key.Key_Return)
    qtbot.waitUntil(view.settled)
    assert view.finding.places[0][0].kind is RowKind.CODE


def test_the_head_says_what_unfolding_shows(show: Show) -> None:
    view, _ = show([called(1, "complete", "found")])
    [head] = [widget for widget in view.pool.widgets() if isinstance(widget, ThoughtRow)]
    assert head.button.toolTip() == "Show arguments and result"
    assert head.button.accessibleName() == "Called read (files) · /needle (hidden)"


@pytest.mark.parametrize(
    ("state", "goes_on"), [("complete", True), ("failed", True), ("waiting", False), ("running", False)]
)
def test_the_menu_of_a_call(show: Show, state: str, goes_on: bool) -> None:
    view, _ = show([called(1, state, "found")])
    row = next(row for row in view.messages.rows_of(1) if row.kind is RowKind.THOUGHT)
    widget = view.pool.widget(row)
    assert widget is not None
    menu = view.make_menu(widget.geometry().center())
    entries = {action.text(): action.isEnabled() for action in menu.actions() if action.text()}
    menu.deleteLater()
    assert entries["Let the model continue from here"] is goes_on
    assert not {"Edit message", "Read aloud", "Regenerate the reply"} & set(entries)


@pytest.mark.parametrize("in_reading_view", [False, True])
def test_a_call_is_allowed_refused_and_stopped_in_its_menu(show: Show, in_reading_view: bool) -> None:
    view, _ = show([called(1, "waiting"), called(2, "running"), called(3, "stopped", UNFINISHED)], height=900)
    said: list[tuple[str, int]] = []
    view.action.connect(lambda *values: said.append(values))
    words = {
        1: {"Allow": "allow_call", "Always allow": "always_allow", "Don't allow": "refuse_call"},
        2: {"Stop": "stop_calls"}, 3: {},
    }  # fmt: skip
    for number, named in words.items():
        menu = QMenu()
        parts, item = view._parts, view.messages.message(number).item
        if in_reading_view:
            view.reading.toggle()
            add_message_actions(menu, parts, item, view.reading._act)
        else:
            add_message_actions(menu, parts, item)
        entries = {action.text(): action for action in menu.actions() if action.text() in NAMED}
        assert entries.keys() == named.keys()
        for text, action in entries.items():
            action.trigger()
            assert said.pop() == (named[text], number)
            assert not view.reading.is_open


def test_a_huge_result_costs_one_line_until_it_is_unfolded(show: Show) -> None:
    view, _ = show([called(1, "complete", "line of a result\n" * 6000)])
    assert view.messages.layout.total < 200


def test_the_menu_copies_arguments_and_result_as_they_are(show: Show) -> None:
    view, _ = show([called(1, "complete", "found \u202e it"), called(2, "running")])
    for number, shown in ((1, True), (2, False)):
        row = next(row for row in view.messages.rows_of(number) if row.kind is RowKind.THOUGHT)
        widget = view.pool.widget(row)
        assert widget is not None
        menu = view.make_menu(widget.geometry().center())
        entries = {action.text(): action for action in menu.actions()}
        assert "Copy message" not in entries
        entries["Copy arguments"].trigger()
        assert QGuiApplication.clipboard().text() == CALL.arguments
        assert entries["Copy result"].isEnabled() is shown
        entries["Copy result"].trigger()
        assert QGuiApplication.clipboard().text() == ("found \u202e it" if shown else CALL.arguments)


def test_the_reading_view_says_what_happened_and_where_the_call_ends(show: Show) -> None:
    item = called(1, "complete", "found")
    assert message_words(item, 0, 1, message_beginning(item)).endswith("Called read (files)")
    view, _ = show([item])
    message = view.messages.message(1)
    message.fold(0, False)
    message.sync()
    document = SafeDocument()
    places = write_message(document, message.rows, view.messages.style)
    assert [place.kind for place in places] == ["thought", "code", "code"]
    assert document.toPlainText().endswith("found\nEnd of the call")


def test_a_huge_line_of_a_result_unfolds_quickly(show: Show, qtbot: QtBot) -> None:
    view, _ = show([called(1, "complete", "word " * 20_000)])
    [head] = [widget for widget in view.pool.widgets() if isinstance(widget, ThoughtRow)]
    began = time.perf_counter()
    head.button.click()
    qtbot.waitUntil(view.settled)
    assert time.perf_counter() - began < 1  # 0.06 s on two cores
    assert view.messages.layout.total > 1_000


def test_a_hit_of_the_search_in_a_folded_result_unfolds_it(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "user", "Read."), called(2, "complete", "hay hay the needle hay")])
    view.finding.go_to(2, 12, "the needle")
    qtbot.waitUntil(view.settled)
    [(row, _number)] = view.finding.places
    assert row.kind is RowKind.CODE
    assert "the needle" in row.text
