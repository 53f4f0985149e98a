"""The transcript on the screen: streaming, the limit of live rows, scrolling that never jumps, style."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt
from PySide6.QtGui import QColor, QImage, QPaintEvent, QPalette
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.services.system.language import when_text
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript import TranscriptColours, TranscriptView, scrolling
from desktop.views.transcript.row_widgets.base import DocumentRow, RowWidget
from desktop.views.transcript.row_widgets.code import CodeRow
from desktop.views.transcript.row_widgets.footer import FooterRow
from desktop.views.transcript.row_widgets.table import TableRow
from desktop.views.transcript.row_widgets.text import TextRow
from desktop.views.transcript.rows import RowKind
from engine.core import TokenInfo

Show = Callable[..., tuple[TranscriptView, MessagesModel]]

RICH = """<think>
Let me see. - no list
</think>

# Heading

Some **bold** text with `code`, a [link](https://example.org) and 漢字 🎉.

- item
- item

```python
def f(x):
    return x + 1  # 🎉
```

| a | b |
|---|--:|
| 1 | two words |

> quote

1. one
   ```sh
   ls
   ```
2. two

***

The end."""


def picture(view: TranscriptView) -> QImage:
    return view.grab().toImage()


def long_chat(messages: int = 40, lines: int = 12) -> list[MessageItem]:
    text = "\n\n".join(
        f"Paragraph {i} with a few words that fill the line and some more of them, so that it wraps."
        for i in range(lines)
    )
    return [
        MessageItem(i, "user" if i % 2 == 0 else "assistant", "A question?" if i % 2 == 0 else text)
        for i in range(messages)
    ]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_streamed_text_looks_exactly_like_the_same_text_at_once(show: Show, qtbot: QtBot, seed: int) -> None:
    random_ = random.Random(seed)
    trace = TokenTrace()
    trace.extend(TokenInfo(1, letter, 1.0, 1.0, seconds=number / 10) for number, letter in enumerate(RICH))
    view, model = show([MessageItem(1, "assistant", "", running=True)], 640, 900, trace)
    position = 0
    while position < len(RICH):
        step = random_.randint(1, 30)
        model.append_text(1, RICH[position : position + step])
        position += step
        if random_.random() < 0.7:
            view.flush()
    model.replace(1, MessageItem(1, "assistant", RICH))
    whole, _ = show([MessageItem(1, "assistant", RICH)], 640, 900, trace)
    for shown in (view, whole):
        shown.setFocus()
        shown.verticalScrollBar().setValue(0)
        qtbot.waitUntil(shown.settled)
    assert picture(view) == picture(whole)


def test_text_that_grows_soon_after_a_frame_waits_for_no_timer(show: Show, qtbot: QtBot) -> None:
    view, model = show([MessageItem(1, "assistant", "one", running=True)])
    for piece in (" two", " three"):
        view.flush()  # a frame has just been shown
        model.append_text(1, piece)
        QCoreApplication.sendPostedEvents(view)
        text = "".join(row.document.toPlainText() for row in view.pool.widgets() if isinstance(row, TextRow))
        assert text == model.items()[0].text


def test_growing_code_is_appended_to_and_not_set_again(show: Show, qtbot: QtBot) -> None:
    view, model = show([MessageItem(1, "assistant", "```python\nx = 1", running=True)])
    [code] = [widget for widget in view.pool.widgets() if isinstance(widget, CodeRow)]
    contents: list[tuple[int, int]] = []
    code.document.contentsChange.connect(lambda position, removed, added: contents.append((removed, added)))
    model.append_text(1, "\ny = 2")
    view.flush()
    assert code.document.toPlainText() == "x = 1\ny = 2"
    assert sum(removed for removed, _ in contents) <= 1
    assert sum(added for _, added in contents) <= len("\ny = 2") + 1


def test_only_rows_near_the_screen_exist(show: Show, qtbot: QtBot) -> None:
    items = long_chat(260, 16)
    assert sum(len(item.text) for item in items) // 4 > 40_000
    view, _ = show(items, 700, 800)
    bar = view.verticalScrollBar()
    most = 0
    for value in range(bar.maximum(), 0, -max(1, bar.maximum() // 60)):
        bar.setValue(value)
        most = max(most, len(list(view.pool.widgets())))
        tops = [widget.y() for widget in view.pool.widgets()]
        assert all(-view.viewport().height() * 3 < top < view.viewport().height() * 2 for top in tops)
    assert 10 < most < 80
    assert len(view.viewport().findChildren(RowWidget)) < 160


def test_visible_rows_lie_one_below_the_other_without_gap_or_overlap(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "user", "Hi"), MessageItem(2, "assistant", RICH)], 500, 600)
    for value in (0, 150, 10_000):
        view.verticalScrollBar().setValue(value)
        widgets = sorted(view.pool.widgets(), key=lambda widget: widget.y())
        for above, below in pairwise(widgets):
            assert above.y() + above.height() == below.y()


def test_the_view_follows_the_end_only_while_it_is_there(show: Show, qtbot: QtBot) -> None:
    view, model = show(long_chat())
    bar = view.verticalScrollBar()
    assert view.scrolling.at_end
    assert bar.value() == bar.maximum() > 0
    model.append(MessageItem(900, "assistant", "", running=True))
    for _ in range(20):
        model.append_text(900, "More text that comes.\n\n")
        view.flush()
    assert bar.value() == bar.maximum()
    bar.setValue(bar.value() - 300)
    assert not view.scrolling.at_end
    row = view.scrolling.row_at(100)
    assert row is not None
    before = view.pool.live[row].y()
    for _ in range(20):
        model.append_text(900, "More text that comes.\n\n")
        view.flush()
        assert view.pool.live[row].y() == before
    bar.setValue(bar.maximum())
    assert view.scrolling.at_end


@pytest.mark.parametrize("most", [1, 1_500, 4_000, 1_000_000])
def test_scrolling_up_by_pixels_moves_the_text_by_these_pixels(
    show: Show, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Rows above the screen have estimated heights; measuring them, few or many in a frame, must not move
    what is on the screen.
    """
    items = [
        replace(item, text=item.text + "\n\n" + RICH) if item.role == "assistant" else item
        for item in long_chat(30, 3)
    ]
    view, _ = show(items, 600, 500)
    for name in ("EFFORT", "SCROLLING_EFFORT"):
        monkeypatch.setattr(scrolling, name, most)
    bar, followed = view.verticalScrollBar(), 0
    for step in (37, 120, 211, 64) * 12:
        seen = {
            row: widget.y()
            for row, widget in view.pool.live.items()
            if widget.isVisible() and -widget.height() < widget.y() < 500 - step
        }
        bar.setValue(bar.value() - step)
        assert {row: view.pool.live[row].y() for row in seen} == {row: y + step for row, y in seen.items()}
        followed += bool(seen)
    assert followed > 24  # else nothing but what was new was on the screen


def test_resizing_keeps_the_row_at_the_top(show: Show, qtbot: QtBot) -> None:
    view, _ = show(long_chat(), 800, 500)
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum() // 2)
    row = view.scrolling.row_at(0)
    for width in (500, 360, 900):
        view.resize(width, 500)
        qtbot.waitUntil(view.settled)
        assert view.scrolling.row_at(0) is row


def test_the_users_own_message_and_the_button_lead_to_the_end(show: Show, qtbot: QtBot) -> None:
    view, model = show(long_chat())
    bar = view.verticalScrollBar()
    jump = view.findChild(QWidget, "jumpToLatest")
    assert jump is not None
    assert not jump.isVisible()
    bar.setValue(0)
    assert jump.isVisible()
    QTest.mouseClick(jump, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bar.value() == bar.maximum())
    assert not jump.isVisible()
    bar.setValue(0)
    model.append(MessageItem(901, "user", "And now?"))
    qtbot.waitUntil(lambda: bar.value() == bar.maximum())


def test_keys_scroll(show: Show, qtbot: QtBot) -> None:
    view, _ = show(long_chat())
    bar = view.verticalScrollBar()
    view.setFocus()
    QTest.keyClick(view, Qt.Key.Key_Home)
    assert bar.value() == 0
    QTest.keyClick(view, Qt.Key.Key_PageDown)
    page = bar.value()
    assert page > 300
    QTest.keyClick(view, Qt.Key.Key_PageUp)
    assert bar.value() == 0
    QTest.keyClick(view, Qt.Key.Key_Down)
    assert 0 < bar.value() < page
    QTest.keyClick(view, Qt.Key.Key_End)
    qtbot.waitUntil(lambda: bar.value() == bar.maximum())


def test_messages_are_added_removed_and_changed(show: Show, qtbot: QtBot) -> None:
    view, model = show(long_chat(6, 1))
    model.remove([1, 2])
    model.replace(3, MessageItem(33, "assistant", "Another answer"))
    model.append(MessageItem(50, "user", "New"))
    qtbot.waitUntil(view.settled)
    view.verticalScrollBar().setValue(0)
    order = sorted(view.pool.live, key=lambda row: row.index)
    assert list(dict.fromkeys(row.item.id for row in order)) == [0, 33, 4, 5, 50]
    assert any(row.text == "Another answer" for row in order)
    model.reset([])
    qtbot.waitUntil(view.settled)
    assert not list(view.pool.widgets())
    assert view.scrolling.row_at(5) is None


def test_the_empty_widget_shows_while_there_are_no_messages(show: Show, qtbot: QtBot) -> None:
    view, model = show([])
    label = QLabel("Say something")
    view.set_empty_widget(label)
    assert label.isVisible()
    assert label.size() == view.viewport().size()
    model.append(MessageItem(1, "user", "Hi"))
    qtbot.waitUntil(lambda: not label.isVisible())
    model.remove([1])
    qtbot.waitUntil(label.isVisible)


def test_buttons_of_a_message_wrap_where_they_do_not_fit(show: Show) -> None:
    view, _ = show([MessageItem(7, "assistant", "Hi", variant_index=1, variant_count=3)])
    [footer] = [widget for widget in view.pool.widgets() if isinstance(widget, FooterRow)]
    shown = [button for button in footer.buttons.values() if not button.isHidden()]
    high = footer.fit(2000)
    assert len({button.y() for button in shown}) == 1
    gaps = {right.name: right.x() - left.x() - left.width() for left, right in pairwise(shown)}
    assert gaps.pop("next") > 0, "the number of the version stands there"
    assert set(gaps.values()) == {0}
    width = 4 * shown[0].width()
    assert footer.fit(width) > high
    assert max(button.geometry().right() for button in shown) <= width
    places = [(button.y(), button.x()) for button in shown]
    assert places == sorted(places)
    assert len({button.y() for button in shown}) > 1
    assert footer.buttons["previous"].y() == footer.buttons["next"].y()


def test_after_midnight_messages_are_of_yesterday(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    now = ["Today, 11:50 PM"]
    monkeypatch.setattr("desktop.views.transcript.row_widgets.footer.when_text", lambda moment: now[0])
    view, _ = show([MessageItem(1, "assistant", "words", written_at=1000.0)])
    [footer] = [widget for widget in view.pool.widgets() if isinstance(widget, FooterRow)]
    assert footer.accessibleName().endswith("Today, 11:50 PM")
    before = footer.grab().toImage()
    now[0] = "Yesterday, 11:50 PM"
    QApplication.sendEvent(footer, QEvent(QEvent.Type.ActivationChange))  # the reader comes back
    assert footer.accessibleName().endswith("Yesterday, 11:50 PM")
    assert footer.grab().toImage() != before
    now[0] = "1 May 2026"
    footer.reveal(True)
    assert footer.accessibleName().endswith("1 May 2026")


def test_buttons_of_a_message_ask_for_actions(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(7, "assistant", "Hi **you**", variant_index=1, variant_count=3)])
    [footer] = [widget for widget in view.pool.widgets() if isinstance(widget, FooterRow)]
    asked: list[tuple[str, int]] = []
    view.action.connect(lambda name, message_id: asked.append((name, message_id)))
    for name, button in footer.buttons.items():
        if name == "speak":  # not without a voice of the system
            assert not button.isVisible()
            continue
        assert button.isVisible()
        assert button.accessibleName()
        assert button.toolTip()
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
        assert asked[-1:] == ([(name, 7)] if name != "copy" else asked[-1:])
    assert [name for name, _ in asked] == [
        "previous",
        "next",
        "edit",
        "regenerate",
        "continue",
        "fork",
        "origin",
        "delete",
    ]
    assert QApplication.clipboard().text() == "Hi **you**"


@pytest.mark.parametrize(
    ("item", "names"),
    [
        (MessageItem(1, "user", "x"), {"copy", "edit", "fork", "delete"}),
        (
            MessageItem(1, "assistant", "x"),
            {"copy", "edit", "regenerate", "continue", "fork", "origin", "delete"},
        ),
        (MessageItem(1, "assistant", "x", running=True), {"copy"}),
        (
            MessageItem(1, "user", "x", variant_count=2),
            {"previous", "next", "copy", "edit", "fork", "delete"},
        ),
    ],
)
def test_only_fitting_actions_are_offered(show: Show, item: MessageItem, names: set[str]) -> None:
    view, _ = show([item])
    [footer] = [widget for widget in view.pool.widgets() if isinstance(widget, FooterRow)]
    assert {name for name, button in footer.buttons.items() if button.isVisible()} == names


def test_actions_appear_under_the_pointer_and_for_the_last_message(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "one"), MessageItem(2, "assistant", "two")])
    feet = {row.item.id: widget for row, widget in view.pool.footers() if isinstance(widget, FooterRow)}
    shown = {key: foot.buttons["copy"].shown for key, foot in feet.items()}
    assert shown == {1: False, 2: True}
    QTest.mouseMove(view.viewport(), QPoint(view.viewport().width() // 2, feet[1].y() - 5))
    assert feet[1].buttons["copy"].shown
    QApplication.sendEvent(view, QEvent(QEvent.Type.Leave))
    assert not feet[1].buttons["copy"].shown


def test_the_keyboard_reaches_buttons_and_never_scrolls_by_losing_one(show: Show, qtbot: QtBot) -> None:
    view, model = show(long_chat(6))
    view.activateWindow()
    qtbot.waitUntil(view.isActiveWindow)
    [button] = [
        widget.buttons["edit"]
        for row, widget in view.pool.footers()
        if row.item.id == 5 and isinstance(widget, FooterRow)
    ]
    button.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(button.hasFocus)
    bar = view.verticalScrollBar()
    bar.setValue(200)
    assert bar.value() < 300
    assert view.hasFocus()
    view.scroll_to_end()
    view.flush()
    [button] = [
        widget.buttons["edit"]
        for row, widget in view.pool.footers()
        if row.item.id == 5 and isinstance(widget, FooterRow)
    ]
    button.setFocus(Qt.FocusReason.TabFocusReason)
    model.replace(5, replace(model.item(5), running=True))
    view.flush()
    assert view.hasFocus()


def test_a_button_that_gets_the_keyboard_is_scrolled_onto_the_screen(show: Show, qtbot: QtBot) -> None:
    view, _ = show(long_chat(20))
    view.activateWindow()
    qtbot.waitUntil(view.isActiveWindow)
    bar, high = view.verticalScrollBar(), view.viewport().height()
    bar.setValue(bar.maximum() // 2)
    number = next(row.item.id for row, _widget in view.pool.footers())
    for outside in (4, 4 - high):  # the middle of its row is above the screen, then below it
        [footer] = [widget for row, widget in view.pool.footers() if row.item.id == number]
        bar.setValue(bar.value() + footer.geometry().center().y() + outside)
        [footer] = [widget for row, widget in view.pool.footers() if row.item.id == number]
        assert isinstance(footer, FooterRow)
        assert not view.viewport().rect().contains(footer.geometry())
        footer.buttons["edit"].setFocus(Qt.FocusReason.TabFocusReason)
        qtbot.waitUntil(lambda footer=footer: view.viewport().rect().contains(footer.geometry()))
        view.setFocus()


def test_thoughts_fold_by_their_button(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "<think>\nsecret\n</think>\nAnswer")])

    def texts() -> list[str]:
        return [
            row.text.strip()
            for row in sorted(view.pool.live, key=lambda row: row.index)
            if row.kind is RowKind.TEXT
        ]

    assert texts() == ["Answer"]
    for expected in (["secret", "Answer"], ["Answer"]):
        [button] = [widget.button for row, widget in view.pool.live.items() if row.kind is RowKind.THOUGHT]  # type: ignore[attr-defined]
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(view.settled)
        assert texts() == expected


def test_wide_code_and_tables_scroll_sideways_inside_the_column(show: Show, qtbot: QtBot) -> None:
    table = "|" + " a long head |" * 14 + "\n|" + "---|" * 14 + "\n|" + " some words |" * 14
    view, _ = show([MessageItem(1, "assistant", "```\n" + "x" * 400 + "\n```\n\n" + table)], 360, 600)
    wide = [widget for widget in view.pool.widgets() if isinstance(widget, CodeRow | TableRow)]
    assert len(wide) == 2
    for widget in wide:
        assert widget.geometry().right() <= view.viewport().width()
        assert widget.bar.isVisible()
        line = QPoint(40, int(widget.origin().y()) + 8)  # whatever the height of the fonts above it
        before = widget.position_at(line)
        widget.bar.setValue(widget.bar.maximum())
        assert widget.position_at(line) > before
    assert view.horizontalScrollBar().maximum() == 0


def test_no_text_is_cut_off_at_360_pixels(show: Show, qtbot: QtBot) -> None:
    items = [
        MessageItem(1, "user", "word " * 60),
        MessageItem(2, "assistant", RICH, notice="A notice that is long. " * 6),
    ]
    view, _ = show(items, 360, 2400)
    for widget in view.pool.widgets():
        assert widget.x() >= 0
        assert widget.geometry().right() < view.viewport().width()
        if isinstance(widget, DocumentRow) and not isinstance(widget, CodeRow | TableRow):
            assert widget.origin().x() + widget.document.size().width() <= widget.width() + 1
            assert widget.origin().y() + widget.document.size().height() <= widget.height() + 1


def test_the_column_is_centred_and_not_too_wide_to_read(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "word " * 300)], 1600, 500)
    [text] = [widget for widget in view.pool.widgets() if isinstance(widget, TextRow)]
    assert text.width() == 820
    assert abs(text.x() * 2 + text.width() - view.viewport().width()) <= 1


def test_text_scale_and_colours_reach_rows_that_exist(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", RICH)], 600, 700)
    [text] = [widget for row, widget in view.pool.live.items() if row.text.startswith("Some")]
    before = text.height()
    view.set_text_scale(150)
    qtbot.waitUntil(view.settled)
    assert text.height() > before * 1.3
    dark = QPalette(view.palette())
    dark.setColor(QPalette.ColorRole.Window, QColor("#101010"))
    dark.setColor(QPalette.ColorRole.WindowText, QColor("#f0f0f0"))
    view.setPalette(dark)
    qtbot.waitUntil(view.settled)
    assert picture(view).pixelColor(2, 2) == QColor("#101010")


def test_code_is_coloured_when_it_is_complete(show: Show, qtbot: QtBot) -> None:
    view, model = show([MessageItem(1, "assistant", "```python\nreturn 1\n", running=True)])
    [code] = [widget for widget in view.pool.widgets() if isinstance(widget, CodeRow)]
    assert code.document.begin().layout().formats() == []
    model.append_text(1, "```\n")
    view.flush()
    qtbot.waitUntil(view.settled)
    formats = code.document.begin().layout().formats()
    keyword = TranscriptColours.from_palette(view.palette()).keyword
    assert (formats[0].start, formats[0].length, formats[0].format.foreground().color()) == (0, 6, keyword)
    QTest.mouseClick(code.button, Qt.MouseButton.LeftButton)
    assert QApplication.clipboard().text() == "return 1"


def test_rows_have_names_for_screen_readers(show: Show) -> None:
    view, _ = show(
        [MessageItem(1, "user", "Why?"), MessageItem(2, "assistant", "**Because.**", notice="Cut.")]
    )
    names = {widget.accessibleName() for widget in view.pool.widgets()}
    assert {"You: Why?", "Assistant: Because.", "Notice: Cut."} <= names


def test_a_link_is_opened_only_after_a_question(
    show: Show, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(
        "desktop.views.transcript.links.QDesktopServices.openUrl", lambda url: opened.append(url.toString())
    )
    view, _ = show([MessageItem(1, "assistant", "[here](https://example.org/a)")])
    [text] = [widget for widget in view.pool.widgets() if isinstance(widget, TextRow)]
    place = text.pos() + QPoint(8, text.height() - 10)
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    dialog = view.findChild(QMessageBox, "linkDialog")
    assert dialog is not None
    assert opened == []
    assert "https://example.org/a" in dialog.informativeText()
    [accept] = [button for button in dialog.buttons() if button.text().replace("&", "") == "Open"]
    QTest.mouseClick(accept, Qt.MouseButton.LeftButton)
    assert opened == ["https://example.org/a"]


def test_another_model_can_be_shown(show: Show, qtbot: QtBot) -> None:
    view, first = show([MessageItem(1, "user", "one")])
    second = MessagesModel()
    second.reset([MessageItem(1, "user", "two")])
    view.set_model(second)
    first.reset([MessageItem(9, "user", "gone")])
    qtbot.waitUntil(view.settled)
    assert {row.text for row in view.pool.live if row.kind is RowKind.BUBBLE} == {"two"}


def test_the_tags_of_the_model_apply_to_new_messages(show: Show, qtbot: QtBot) -> None:
    view, model = show()
    view.set_thinking((("<muse>", "</muse>"),))
    model.append(MessageItem(1, "assistant", "", running=True, opened="</muse>"))
    model.append_text(1, "hm\n\nwell")
    qtbot.waitUntil(view.settled)
    kinds = [row.kind for row in view.messages.rows_of(1)]
    assert kinds == [RowKind.HEADER, RowKind.THOUGHT, RowKind.TEXT, RowKind.TEXT, RowKind.FOOTER]
    model.append_text(1, "\n</muse>\nYes <think>")
    qtbot.waitUntil(view.settled)
    assert [row.text for row in view.messages.rows_of(1) if row.kind is RowKind.TEXT] == ["Yes <think>"]


def test_folding_a_thought_that_grows_keeps_following_the_end(show: Show, qtbot: QtBot) -> None:
    view, model = show([MessageItem(1, "assistant", "<think>\n" + "word\n\n" * 60, running=True)], 500, 300)
    assert view.scrolling.at_end
    [head] = [row for row in view.messages.rows_of(1) if row.kind is RowKind.THOUGHT]
    view.scrolling.fold(head)
    qtbot.waitUntil(view.settled)
    assert RowKind.TEXT not in [row.kind for row in view.messages.rows_of(1)]
    model.append_text(1, "</think>\n" + "answer\n\n" * 60)
    qtbot.waitUntil(view.settled)
    assert view.scrolling.at_end
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()


def test_a_low_view_shows_the_text_that_grows(show: Show) -> None:
    view, _ = show([MessageItem(1, "assistant", "word\n\n" * 30, running=True)], 500, 80)
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()
    bottom = max(row.geometry().bottom() for row in view.pool.widgets() if row.isVisible())
    assert 80 - bottom <= 11


def tables(view: TranscriptView) -> list[TableRow]:
    """The tables near the screen, from the top."""
    return sorted((w for w in view.pool.widgets() if isinstance(w, TableRow)), key=TableRow.y)


def test_a_table_that_grew_line_by_line_is_like_one_shown_at_once(show: Show, qtbot: QtBot) -> None:
    lines = ["| Number | Words | Value |", "|---:|:--:|---|"]
    lines += [
        f"| {n} | some `code {n}` and **bold**{' and more' * (n % 7)} | {n / 3:.2f} |" for n in range(40)
    ]
    text = "\n".join(lines)
    view, model = show([MessageItem(1, "assistant", "", running=True)], 700, 900)
    first = None
    for place in range(0, len(text), 23):
        model.append_text(1, text[place : place + 23])
        view.flush()
        table = next(iter(tables(view)), None)
        if table is not None and place > len(text) // 2 and first is None:
            first = table.document.rootFrame().childFrames()[0]
    grown = tables(view)[0]
    assert grown.document.rootFrame().childFrames()[0] is first  # never made again
    model.replace(1, MessageItem(1, "assistant", text))
    view.flush()
    other, _ = show([MessageItem(1, "assistant", text)], 700, 900)
    for grown, whole in zip(tables(view), tables(other), strict=True):
        assert grown.document.toPlainText() == whole.document.toPlainText()
        assert grown.document.size() == whole.document.size()
        assert grown.document.toHtml() == whole.document.toHtml()


@pytest.mark.parametrize(("word", "beginning"), [("עמודה", True), ("column", False)])
def test_a_table_from_right_to_left_begins_at_the_right(show: Show, word: str, beginning: bool) -> None:
    line = f"| {word} | {word} |\n"
    view, _ = show([MessageItem(1, "assistant", f"{line}|---|---|\n{line}")], 700, 500)
    [narrow] = tables(view)
    free = narrow.width() - round(narrow.document.idealWidth())
    assert free > 300
    assert round(narrow.origin().x()) == (free if beginning else 0)
    columns = f"| {word} " * 12
    view, _ = show([MessageItem(1, "assistant", f"{columns}|\n{'|---' * 12}|\n{columns}|\n")], 500, 500)
    [wide] = tables(view)
    assert wide.bar.value() == (wide.bar.maximum() if beginning else 0)
    assert wide.bar.maximum() > 0


def test_text_is_painted_together_with_what_changes_with_it(
    show: Show, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transcript is arranged before painting; otherwise each frame with new figures would be painted
    twice.
    """
    view, model = show([MessageItem(1, "user", "Go"), MessageItem(2, "assistant", "One", running=True)])
    reported: list[str] = []

    class Figure(QWidget):
        def paintEvent(self, event: QPaintEvent) -> None:
            reported.append("painted")

    def arrange() -> None:
        reported.append("arranged")
        TranscriptView.arrange(view)

    figure = Figure(view.viewport())
    figure.setGeometry(0, 0, 8, 8)
    figure.show()
    qtbot.waitUntil(lambda: view.settled() and "painted" in reported)
    qtbot.wait(40)  # the last frame was long ago
    reported.clear()
    monkeypatch.setattr(view, "arrange", arrange)
    figure.update()
    model.append_text(2, " and two")
    qtbot.waitUntil(lambda: {"arranged", "painted"} <= set(reported))
    assert reported == ["arranged", "painted"]


def test_a_screen_reader_finds_the_rows_in_reading_order(show: Show) -> None:
    """Rows take widgets from a pool while the reader scrolls: their order among the children follows."""
    view, _model = show(long_chat())
    bar = view.verticalScrollBar()
    for value in (bar.maximum(), bar.maximum() // 2, 0, bar.maximum() // 3):
        bar.setValue(value)
        view.flush()
    live = sorted(view.pool.live.items(), key=lambda pair: pair[0].index)
    widgets = [widget for _row, widget in live]
    over = [child for child in view.viewport().children() if child not in widgets and child.isWidgetType()]
    placed = [child for child in view.viewport().children() if child in widgets]
    assert placed != widgets  # else nothing is tested here
    above = [child for child in over if child.isVisible()]
    view.pool.put_in_order()
    children = view.viewport().children()
    assert [child for child in children if child in widgets] == widgets
    assert all(children.index(child) > children.index(widgets[-1]) for child in above)


def test_space_goes_nine_tenths_of_a_page_down_and_with_shift_up(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "word\n\n" * 200)], 600, 400)
    bar = view.verticalScrollBar()
    bar.setValue(0)
    qtbot.waitUntil(view.settled)
    page = bar.pageStep() * 9 // 10
    for modifier, expected in (
        (Qt.KeyboardModifier.NoModifier, page), (Qt.KeyboardModifier.NoModifier, 2 * page),
        (Qt.KeyboardModifier.ShiftModifier, page),
    ):  # fmt: skip
        QTest.keyClick(view, Qt.Key.Key_Space, modifier)
        assert bar.value() == expected
        qtbot.waitUntil(view.settled)


def test_the_row_below_a_message_says_when_it_was_written(show: Show) -> None:
    written = 1_700_000_000.0
    items = [
        MessageItem(1, "user", "Words", written_at=written),
        MessageItem(2, "assistant", "Words", footer="9 tokens", written_at=written),
        MessageItem(3, "assistant", "Words", footer="9 tokens"),
        MessageItem(4, "assistant", "Words", running=True, written_at=written),
    ]
    view, _ = show(items, 600, 800)
    feet = {row.item.id: widget for row, widget in view.pool.footers()}
    when = when_text(written)
    assert [feet[number].accessibleName() for number in range(1, 5)] == [
        f"Message actions, {when}", f"9 tokens, {when}", "9 tokens", "Message actions"
    ]  # fmt: skip
    unseen = [feet[number].grab().toImage() for number in (2, 3)]
    assert unseen[0] == unseen[1]
    for number in (2, 3):
        feet[number].reveal(True)
    seen = [feet[number].grab().toImage() for number in (2, 3)]
    assert seen[0] != seen[1]
