"""Caret browsing: the list of messages, the caret in a message, jumps between its parts, what is copied."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QContextMenuEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from desktop.blocks import Tag
from desktop.items.chats.messages import MessageItem
from desktop.services.engine.reply_record import spoken
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.links import LinkDialog
from desktop.views.transcript.reading import page as module
from desktop.views.transcript.reading.list_lines import message_beginning, message_words
from desktop.views.transcript.reading.page import ReadingPage
from desktop.views.transcript.reading.table_dialog import TableDialog
from tests.desktop.views.transcript.conftest import Show

REPLY = """# Rivers

The *longest* river is the [Nile](https://example.org/nile).

| river | length |
|---|---|
| Nile | 6650 km |
| Amazon | 6400 km |

## Code

```python
x = 1
print(x)
```

- first
- second

Then more code:

```
ls
```
"""
ITEMS = [
    MessageItem(1, "user", "Which river is the *longest*?"),
    MessageItem(
        2, "assistant", REPLY, variant_index=1, variant_count=3, footer="9 tokens · stopped at <|im_end|>"
    ),
    MessageItem(3, "user", "Thanks"),
]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a screen reader would say."""
    found: list[str] = []
    monkeypatch.setattr(module, "announce", lambda _widget, text: found.append(text))
    return found


def opened(view: TranscriptView, qtbot: QtBot, row: int = 1) -> ReadingPage:
    view.reading.toggle()
    page = view.reading.page
    assert page is not None
    qtbot.waitUntil(page.isVisible)
    page.list.setCurrentRow(row)
    page.text.setFocus()
    qtbot.waitUntil(page.text.hasFocus)
    return page


def test_the_messages_are_a_list_with_author_place_and_state(show: Show, qtbot: QtBot) -> None:
    view, _model = show(ITEMS)
    page = opened(view, qtbot)
    assert [page.list.item(row).text().partition(":")[0] for row in range(3)] == [
        "You, 1 of 3",
        "Assistant, 2 of 3, version 2 of 3, 9 tokens, stopped at the end marker",
        "You, 3 of 3",
    ]  # fmt: skip
    assert "Rivers The longest river is the Nile." in page.list.item(1).text()
    assert page.text.accessibleName() == "Message from Assistant, 2 of 3"
    interface = QAccessible.queryAccessibleInterface(page.list)
    assert interface.role() == QAccessible.Role.List
    text = QAccessible.queryAccessibleInterface(page.text).textInterface()
    assert text is not None
    assert "The longest river is the Nile." in text.text(0, text.characterCount())


def test_keys_go_from_part_to_part_and_say_what_is_there(show: Show, qtbot: QtBot, said: list[str]) -> None:
    view, _model = show(ITEMS)
    page = opened(view, qtbot)
    for keys in ("H", "C", "C", "C"):
        qtbot.keyClicks(page.text, keys)
    qtbot.keyClick(page.text, Qt.Key.Key_C, Qt.KeyboardModifier.ShiftModifier)
    assert said == [
        "Heading level 2: Code", "Code block in python, 2 lines", "Code block, 1 line", "No more code blocks",
        "Code block in python, 2 lines",
    ]  # fmt: skip
    qtbot.keyClick(page.text, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "x = 1\nprint(x)"
    said.clear()
    qtbot.keyClicks(page.text, "L")
    assert said == ["List with 2 items"]
    assert page.text.textCursor().block().text() == "first"
    qtbot.keyClick(page.text, Qt.Key.Key_T, Qt.KeyboardModifier.ShiftModifier)
    assert said[-1] == "Table with 3 rows and 2 columns. Press Enter to read its cells."
    qtbot.keyClicks(page.text, "Q")
    assert page.text.toPlainText().startswith("Rivers"), "the text cannot be changed"


def test_a_table_opens_as_a_grid_and_a_link_asks(show: Show, qtbot: QtBot) -> None:
    view, _model = show(ITEMS)
    page = opened(view, qtbot)
    qtbot.keyClicks(page.text, "T")
    qtbot.keyClick(page.text, Qt.Key.Key_Return)
    (grid,) = page.findChildren(TableDialog)
    head = [grid.table.horizontalHeaderItem(column).text() for column in range(2)]
    cells = [[grid.table.item(row, column).text() for column in range(2)] for row in range(2)]
    assert (head, cells) == (["river", "length"], [["Nile", "6650 km"], ["Amazon", "6400 km"]])
    assert QAccessible.queryAccessibleInterface(grid.table).role() == QAccessible.Role.Table
    assert all(grid.table.columnWidth(column) >= grid.table.sizeHintForColumn(column) for column in range(2))
    grid.close()
    page.go("link", -1)
    qtbot.keyClick(page.text, Qt.Key.Key_Return)
    (question,) = page.findChildren(LinkDialog)
    assert question.informativeText() == "https://example.org/nile"
    question.close()


def test_messages_follow_each_other_and_escape_leads_back(show: Show, qtbot: QtBot, said: list[str]) -> None:
    view, _model = show(ITEMS)
    page = opened(view, qtbot)
    qtbot.keyClicks(page.text, "NN")
    assert said == ["You, 3 of 3: Thanks", "No more messages"]
    qtbot.keyClicks(page.text, "PP")
    assert page.message == 1
    qtbot.keyClick(page.text, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "Which river is the *longest*?"
    qtbot.keyClick(page.text, Qt.Key.Key_Escape)
    assert not page.isVisible()
    assert QApplication.focusWidget() is view
    view.reading.toggle()
    assert view.reading.is_open
    view.reading.toggle()
    assert not view.reading.is_open


def test_a_growing_reply_is_taken_in_when_it_is_complete(show: Show, qtbot: QtBot) -> None:
    view, model = show([MessageItem(1, "user", "Hi"), MessageItem(2, "assistant", "One two", running=True)])
    page = opened(view, qtbot)
    page.text.moveCursor(page.text.textCursor().MoveOperation.NextWord)
    place = page.text.textCursor().position()
    assert "being written" in page.list.item(1).text()
    model.append_text(2, " three")
    qtbot.wait(1)
    assert page.text.toPlainText() == "One two"
    model.replace(2, MessageItem(2, "assistant", "One two three"))
    qtbot.waitUntil(lambda: page.text.toPlainText() == "One two three")
    assert page.text.textCursor().position() == place
    assert "being written" not in page.list.item(1).text()
    model.reset([])
    qtbot.waitUntil(lambda: not view.reading.is_open)


def test_only_messages_that_have_changed_are_read_again_for_the_list(
    show: Show, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def counted(item: MessageItem, tags: Sequence[Tag]) -> str:
        taken.append(item.id)
        return message_beginning(item, tags)

    monkeypatch.setattr(module, "message_beginning", counted)
    view, model = show([MessageItem(number, "user", f"Text {number}") for number in range(1, 6)])
    page = opened(view, qtbot)
    assert taken == [1, 2, 3, 4, 5]
    model.replace(3, MessageItem(3, "user", "Another"))
    model.append(MessageItem(6, "user", "Text 6"))
    qtbot.waitUntil(lambda: page.list.count() == 6)
    assert taken[5:] == [3, 6]
    assert [page.list.item(row).text() for row in (2, 4)] == ["You, 3 of 6: Another", "You, 5 of 6: Text 5"]
    page.close_page()
    opened(view, qtbot)
    assert taken[7:] == [1, 2, 3, 4, 5, 6]  # nothing is kept of a closed view


def test_without_messages_nothing_opens(show: Show) -> None:
    view, _model = show()
    view.reading.toggle()
    assert view.reading.page is None


def test_no_marks_of_control_tokens_are_read() -> None:
    assert spoken("stopped at <|im_end|>") == "stopped at the end marker"
    assert spoken("stopped at </s>") == "stopped at the end marker"
    assert spoken("2 < 3 and 4 > 1") == "2 < 3 and 4 > 1"
    item = MessageItem(1, "user", "x" * 200)
    assert message_words(item, 0, 1, message_beginning(item)).endswith("x…")


MIXED = r"""<think>First thought.

Second thought.</think>Euler wrote $e^{i\pi} = -1$ here. It is short.

$$\frac{a}{b}$$

Done. Really?
"""


def test_formulas_are_words_and_are_copied_as_latex(show: Show, qtbot: QtBot, said: list[str]) -> None:
    view, _model = show([MessageItem(1, "assistant", MIXED)])
    page = opened(view, qtbot, 0)
    qtbot.keyClicks(page.text, "MMM")
    words = "Formula: e to the power of i pi, end power equals minus 1"
    assert said == [words, "Formula: a over b", "No more formulas"]
    qtbot.keyClick(page.text, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == r"\frac{a}{b}"
    cursor = page.text.document().find("Euler")
    cursor.setPosition(cursor.selectionStart())
    cursor.movePosition(cursor.MoveOperation.EndOfBlock, cursor.MoveMode.KeepAnchor)
    page.text.setTextCursor(cursor)
    assert page.copied() == r"Euler wrote $e^{i\pi} = -1$ here. It is short."


def test_thoughts_are_hidden_until_enter_shows_them(show: Show, qtbot: QtBot, said: list[str]) -> None:
    view, _model = show([MessageItem(1, "assistant", MIXED)])
    page = opened(view, qtbot, 0)
    assert "First thought" not in page.text.toPlainText()
    page.text.moveCursor(page.text.textCursor().MoveOperation.Start)
    qtbot.keyClick(page.text, Qt.Key.Key_Return)
    assert page.text.toPlainText().split("\n")[:4] == [
        "Thoughts", "First thought.", "Second thought.", "End of the thoughts",
    ]  # fmt: skip
    assert said == ["Thoughts, shown. Press Enter to hide them."]
    qtbot.keyClick(page.text, Qt.Key.Key_Return)
    assert "First thought" not in page.text.toPlainText()
    assert said[1:] == ["Thoughts, hidden. Press Enter to show them."]


def test_sentences_follow_each_other(show: Show, qtbot: QtBot, said: list[str]) -> None:
    view, _model = show([MessageItem(1, "assistant", "One is first. Two follows.\n\nThree ends.")])
    page = opened(view, qtbot, 0)
    qtbot.keyClicks(page.text, "SSS")
    qtbot.keyClick(page.text, Qt.Key.Key_S, Qt.KeyboardModifier.ShiftModifier)
    assert said == ["Two follows.", "Three ends.", "No more sentences", "Two follows."]


def test_the_menu_key_opens_the_menu_of_the_message(show: Show, qtbot: QtBot) -> None:
    view, _model = show(ITEMS)
    asked: list[tuple[str, int]] = []
    view.action.connect(lambda name, message: asked.append((name, message)))
    page = opened(view, qtbot)
    event = QContextMenuEvent(
        QContextMenuEvent.Reason.Keyboard,
        page.text.rect().center(),
        page.text.mapToGlobal(page.text.rect().center()),
    )
    QApplication.sendEvent(page.text, event)
    (menu,) = page.findChildren(QMenu)
    acts = {act.text(): act for act in menu.actions()}
    acts["Copy message"].trigger()
    assert QGuiApplication.clipboard().text() == REPLY
    assert view.reading.is_open
    acts["Regenerate the reply"].trigger()
    assert asked == [("regenerate", 2)]
    assert not view.reading.is_open, "the chat shows the new reply"


@pytest.mark.slow
def test_a_very_long_message_shows_more_on_enter(show: Show, qtbot: QtBot, said: list[str]) -> None:
    text = "\n\n".join(f"Paragraph {number}." for number in range(1200))
    view, _model = show([MessageItem(1, "assistant", text)])
    page = opened(view, qtbot, 0)
    assert "Paragraph 1199" not in page.text.toPlainText()
    page.text.moveCursor(page.text.textCursor().MoveOperation.End)
    qtbot.keyClick(page.text, Qt.Key.Key_Return)
    assert "Paragraph 1199" in page.text.toPlainText()
    assert said == ["More of the message is shown."]
