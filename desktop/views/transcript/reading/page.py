"""The reading view over a transcript: a list of its messages above the text of the chosen one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QObject, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent, QTextCursor
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QListWidget,
    QTableWidget,
    QTableWidgetItem,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)

from desktop.items.chats.messages import MessageItem, author_label
from desktop.views.layout.fill import fill
from desktop.views.transcript.commands import copy_text
from desktop.views.transcript.links import LinkDialog
from desktop.views.transcript.message_rows import MessageRows
from desktop.views.transcript.reading.document import Landmark, cell_text, landmarks, table_at, write_message
from desktop.views.transcript.rendering.inline_objects import FOOTNOTE_SCHEME
from desktop.views.transcript.style import Style
from desktop.views.widgets.banner import announce
from desktop.views.widgets.text_label import text_label
from engine.words import ngettext

__all__ = ["KEYS", "ReadingPage", "message_words", "spoken"]

_LINES = 4
_LONGEST = 80
_MARKS = re.compile(r"\]\([^)\s]*\)|[*_`#>|\[\]]+")
"""Signs of Markdown, which are left out of a message's first words."""
_NAMES = {"heading": "headings", "code": "code blocks", "list": "lists", "table": "tables", "link": "links"}
KEYS = {
    Qt.Key.Key_H: "heading", Qt.Key.Key_C: "code", Qt.Key.Key_L: "list", Qt.Key.Key_T: "table",
    Qt.Key.Key_K: "link",
}  # fmt: skip
"""A key goes to the next landmark of its kind, with Shift to the previous one."""
_HINT = (
    "H: next heading, C: code block, L: list, T: table, K: link; with Shift: previous. N and P: next and "
    "previous message. Esc: back to the chat."
)


def spoken(text: str) -> str:
    """`text` without the marks of control tokens, which a screen reader would spell."""
    return re.sub(r"<\|?[^<>\s]{1,40}\|?>", "the end marker", text)


def message_words(item: MessageItem, place: int, count: int) -> str:
    """Author, place, state and beginning of a message, as a screen reader says them."""
    parts = [author_label(item), f"{place + 1} of {count}"]
    if item.variant_count > 1:
        parts.append(f"version {item.variant_index + 1} of {item.variant_count}")
    if item.running:
        parts.append("being written")
    elif item.notice:
        parts.append(item.notice)
    elif item.footer:
        parts.append(spoken(item.footer).replace(" · ", ", "))
    line = " ".join(_MARKS.sub("", item.text[: 4 * _LONGEST]).split())
    return f"{', '.join(parts)}: {line if len(line) <= _LONGEST else line[:_LONGEST] + '…'}"


class ReadingPage(QFrame):
    """Covers `viewport` while it is open. `closed()`: the keyboard goes back to the transcript."""

    closed = Signal()

    def __init__(self, viewport: QWidget) -> None:
        super().__init__(viewport)
        self.setObjectName("readingPage")
        self.setAutoFillBackground(True)
        self.setAccessibleName("Reading view")
        self.list = QListWidget()
        self.list.setAccessibleName("Messages")
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.currentRowChanged.connect(self._show)
        self.list.itemActivated.connect(self._enter)
        self.text = QTextBrowser()
        self.text.setOpenLinks(False)
        self.text.setFrameShape(QFrame.Shape.NoFrame)
        self.text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextBrowserInteraction | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.text.anchorClicked.connect(lambda address: self._follow(address.toString()))
        self.text.setAccessibleDescription(_HINT)
        self.list.installEventFilter(self)
        self.text.installEventFilter(self)
        self.hint = text_label(_HINT, "muted", wraps=True)
        fill(QVBoxLayout(self), self.list, (self.text, 1), self.hint, margins=(12, 8, 12, 8), spacing=8)
        self.landmarks: list[Landmark] = []
        self._messages: list[MessageRows] = []
        self._style: Style | None = None
        self._unfinished = False
        viewport.installEventFilter(self)
        self.hide()

    def open(self, messages: Sequence[MessageRows], style: Style, message: int) -> None:
        """Show these messages and read the one with this id, or else the last."""
        self._messages, self._style = list(messages), style
        count = len(self._messages)
        self.list.blockSignals(True)
        self.list.clear()
        self.list.addItems(
            [message_words(each.item, place, count) for place, each in enumerate(self._messages)]
        )
        self.list.blockSignals(False)
        self.list.setFixedHeight(min(count, _LINES) * (self.list.sizeHintForRow(0) + 2) + 8 if count else 24)
        self._fit()
        self.show()
        self.raise_()
        ids = [each.item.id for each in self._messages]
        self.list.setCurrentRow(ids.index(message) if message in ids else count - 1)
        self.text.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def refresh(self, messages: Sequence[MessageRows]) -> None:
        """Show the messages as they are now; the text that is read changes only when its message is complete,
        so that the caret stays where it is.
        """
        read, count = self.message, len(messages)
        ids = [each.item.id for each in messages]
        if read not in ids:
            self.close_page()
            return
        self._messages = list(messages)
        self.list.blockSignals(True)
        while self.list.count() > count:
            self.list.takeItem(count)
        for place, each in enumerate(messages):
            words = message_words(each.item, place, count)
            if place >= self.list.count():
                self.list.addItem(words)
            elif self.list.item(place).text() != words:
                self.list.item(place).setText(words)
        row = ids.index(read)
        self.list.setCurrentRow(row)
        self.list.blockSignals(False)
        if self._unfinished and not messages[row].item.running:
            here = self.text.textCursor().position()
            self._show(row)
            cursor = self.text.textCursor()
            cursor.setPosition(min(here, self.text.document().characterCount() - 1))
            self.text.setTextCursor(cursor)

    def close_page(self) -> None:
        """Go back to the chat."""
        if self.isVisible():
            self.hide()
            self._messages, self.landmarks = [], []
            self.text.clear()
            self.closed.emit()

    @property
    def message(self) -> int:
        """The id of the message that is read; 0 for none."""
        row = self.list.currentRow()
        return self._messages[row].item.id if 0 <= row < len(self._messages) else 0

    @Slot(int)
    def _show(self, row: int) -> None:
        if not 0 <= row < len(self._messages) or self._style is None:
            return
        found = self._messages[row]
        self._unfinished = found.item.running
        document = self.text.document()
        code = write_message(document, found.rows, self._style)
        self.landmarks = landmarks(document, code)
        cursor = self.text.textCursor()
        cursor.movePosition(QTextCursor.MoveOperation.Start)
        self.text.setTextCursor(cursor)
        self.text.setAccessibleName(
            f"Message from {author_label(found.item)}, {row + 1} of {len(self._messages)}"
        )

    def _enter(self) -> None:
        self.text.setFocus(Qt.FocusReason.OtherFocusReason)

    def go(self, kind: str, by: int) -> None:
        """Go to the next (1) or previous (-1) landmark of a kind, and say what is there."""
        here = self.text.textCursor().position()
        places = [each for each in self.landmarks if each.kind == kind]
        left = [each for each in places if (each.start > here if by > 0 else each.start < here)]
        if not left:
            words = f"No more {_NAMES[kind]}" if places else f"No {_NAMES[kind]} in this message"
            announce(self.text, words)
            return
        found = left[0] if by > 0 else left[-1]
        cursor = self.text.textCursor()
        cursor.setPosition(found.start)
        self.text.setTextCursor(cursor)
        announce(self.text, found.words)

    def step(self, by: int) -> None:
        """Read the next (1) or previous (-1) message."""
        row = self.list.currentRow() + by
        if 0 <= row < len(self._messages):
            self.list.setCurrentRow(row)
            announce(self.text, self.list.item(row).text())
        else:
            announce(self.text, "No more messages")

    def copied(self) -> str:
        """What Ctrl+C copies: the selection, or the innermost code, table, list or link at the caret, or
        the whole message.
        """
        cursor = self.text.textCursor()
        if cursor.hasSelection():
            return cursor.selectedText().replace("\u2029", "\n").replace("\u2028", "\n")
        here = [each for each in self.landmarks if each.start <= cursor.position() <= each.end]
        if here:
            return min(here, key=lambda each: each.end - each.start).source
        row = self.list.currentRow()
        return self._messages[row].item.text if 0 <= row < len(self._messages) else ""

    def _follow(self, address: str) -> None:
        if address.startswith(FOOTNOTE_SCHEME):
            label = address.removeprefix(FOOTNOTE_SCHEME)
            found = self.text.document().find(label, self.text.document().characterCount() - 1,
                self.text.document().FindFlag.FindBackward)  # fmt: skip
            if not found.isNull():
                self.text.setTextCursor(found)
        else:
            LinkDialog.ask(self, address)

    def _activate(self) -> None:
        """Open the table or the link at the caret."""
        cursor = self.text.textCursor()
        table = table_at(self.text.document(), cursor.position())
        if table is not None:
            cells = [[cell_text(table, row, column) for column in range(table.columns())]
                     for row in range(table.rows())]  # fmt: skip
            TableDialog(cells, self).open()
            return
        links = [
            each
            for each in self.landmarks
            if each.kind == "link" and each.start <= cursor.position() <= each.end
        ]
        if links:
            self._follow(links[0].source)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.parent():
            if event.type() == QEvent.Type.Resize and self.isVisible():
                self._fit()
        elif event.type() == QEvent.Type.ShortcutOverride and self._action(event) is not None:  # type: ignore[arg-type]
            event.accept()
            return True
        elif event.type() == QEvent.Type.KeyPress:
            act = self._action(event)  # type: ignore[arg-type]
            if act is not None:
                act()
                return True
        return super().eventFilter(watched, event)

    def _action(self, event: QKeyEvent) -> Callable[[], object] | None:
        key, held = event.key(), event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        back = held == Qt.KeyboardModifier.ShiftModifier
        if key == Qt.Key.Key_Escape:
            return self.close_page
        if held == Qt.KeyboardModifier.ControlModifier and key == Qt.Key.Key_C:
            return lambda: copy_text(self.copied())
        if held and not back:
            return None
        if key == Qt.Key.Key_N and not back:
            return lambda: self.step(1)
        if key == Qt.Key.Key_P and not back:
            return lambda: self.step(-1)
        if not self.text.hasFocus():
            return None
        kind = KEYS.get(Qt.Key(key))
        if kind is not None:
            return lambda: self.go(kind, -1 if back else 1)
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            return self._activate
        return None

    def _fit(self) -> None:
        viewport = self.parentWidget()
        if viewport is not None:
            self.setGeometry(viewport.rect())


class TableDialog(QDialog):
    """The cells of a table as a grid, which screen readers read with its row and column; Esc closes it."""

    def __init__(self, cells: Sequence[Sequence[str]], parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Table")
        head, rows = cells[0], cells[1:]
        self.table = QTableWidget(len(rows), len(head))
        self.table.setAccessibleName(ngettext("Table with {n} row", "Table with {n} rows", len(rows)))
        self.table.setHorizontalHeaderLabels(list(head))
        self.table.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        self.table.setTabKeyNavigation(False)
        for row, values in enumerate(rows):
            for column, value in enumerate(values):
                self.table.setItem(row, column, QTableWidgetItem(value))
        if rows:
            self.table.setCurrentCell(0, 0)
        fill(QVBoxLayout(self), (self.table, 1), margins=(12, 12, 12, 12))
        self.resize(min(640, max(360, parent.width() - 40)), min(420, max(240, parent.height() - 40)))
