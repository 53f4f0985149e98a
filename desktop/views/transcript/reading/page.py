"""The reading view over a transcript: a list of its messages above the text of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, QSignalBlocker, Qt, Signal, Slot
from PySide6.QtGui import QContextMenuEvent, QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QFrame, QListWidget, QTextEdit, QVBoxLayout, QWidget

from desktop.blocks import THINKING_TAGS, Tag
from desktop.items.chats.messages import MessageItem, author_label
from desktop.views.layout.fill import fill
from desktop.views.transcript.commands import copy_text
from desktop.views.transcript.links import LinkDialog
from desktop.views.transcript.message_rows import MessageRows
from desktop.views.transcript.reading.document import (
    Landmark,
    cell_text,
    copied_text,
    landmarks,
    sentence_beside,
    table_at,
    write_message,
)
from desktop.views.transcript.reading.list_lines import message_beginning, message_words
from desktop.views.transcript.reading.table_dialog import TableDialog
from desktop.views.transcript.rendering.inline_objects import FOOTNOTE_SCHEME
from desktop.views.transcript.rows import RowKind
from desktop.views.transcript.style import Style
from desktop.views.widgets.banner import announce
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, translate

__all__ = ["KEYS", "ReadingPage"]

_LINES = 4
_ENDS = {
    "heading": (N_("No more headings"), N_("No headings in this message")),
    "code": (N_("No more code blocks"), N_("No code blocks in this message")),
    "list": (N_("No more lists"), N_("No lists in this message")),
    "table": (N_("No more tables"), N_("No tables in this message")),
    "formula": (N_("No more formulas"), N_("No formulas in this message")),
    "link": (N_("No more links"), N_("No links in this message")),
}
"""What is said where no further landmark of a kind follows, and where there is none."""
KEYS = {
    Qt.Key.Key_H: "heading", Qt.Key.Key_C: "code", Qt.Key.Key_L: "list", Qt.Key.Key_T: "table",
    Qt.Key.Key_M: "formula", Qt.Key.Key_K: "link",
}  # fmt: skip
"""A key goes to the next landmark of its kind, with Shift to the previous one."""
_HINT = N_(
    "H: next heading, C: code block, L: list, T: table, M: formula, K: link, S: sentence; with Shift: "
    "previous. N, P: next, previous message. Ctrl+C: copy what is at the caret. Menu key: message menu. "
    "Esc: back to the chat."
)


class _MessageText(QTextEdit):
    """`followed(address)`: a link was clicked. A `QTextBrowser` is a label for screen readers, not a text."""

    followed = Signal(str)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        address = self.anchorAt(event.position().toPoint())
        if address and event.button() == Qt.MouseButton.LeftButton and not self.textCursor().hasSelection():
            self.followed.emit(address)


class ReadingPage(QFrame):
    """Covers `viewport` while it is open. `closed()`: the keyboard goes back to the transcript;
    `menu_requested(message, place)`: the menu of a message is to open there on the screen.
    """

    closed = Signal()
    menu_requested = Signal(int, QPoint)

    def __init__(self, viewport: QWidget) -> None:
        super().__init__(viewport)
        self.setObjectName("readingPage")
        self.setAutoFillBackground(True)
        self.setAccessibleName(_("Reading view"))
        self.list = QListWidget()
        self.list.setProperty("tone", "order")
        self.list.setAccessibleName(_("Messages"))
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.currentRowChanged.connect(self._show)
        self.list.itemActivated.connect(self._enter)
        self.text = _MessageText()
        self.text.setReadOnly(True)
        self.text.setFrameShape(QFrame.Shape.NoFrame)
        self.text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextBrowserInteraction | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.text.followed.connect(self._follow)
        self.text.setAccessibleDescription(translate(_HINT))
        self.list.installEventFilter(self)
        self.text.installEventFilter(self)
        self.text.viewport().installEventFilter(self)
        self.list.viewport().installEventFilter(self)
        self.hint = text_label(translate(_HINT), "muted", wraps=True)
        fill(QVBoxLayout(self), self.list, (self.text, 1), self.hint, margins=(12, 8, 12, 8), spacing=8)
        self._line = 1
        self.landmarks: list[Landmark] = []
        self._messages: list[MessageRows] = []
        self._beginnings: dict[int, tuple[MessageItem, str]] = {}  # by the message's id
        self._tags: Sequence[Tag] = THINKING_TAGS
        self._style: Style | None = None
        self._read: MessageRows | None = (
            None  # its own rows: all of a message, with other folds than the chat
        )
        self._unfinished = False
        viewport.installEventFilter(self)
        self.hide()

    def open(
        self, messages: Sequence[MessageRows], style: Style, message: int, tags: Sequence[Tag] = THINKING_TAGS
    ) -> None:
        """Show these messages, whose thoughts are between `tags`, and read the one with this id, or else the
        last.
        """
        self._messages, self._style, self._tags = list(messages), style, tags
        count = len(self._messages)
        with QSignalBlocker(self.list):
            self.list.clear()
            self.list.addItems(self._lines())
        self.list.ensurePolished()
        self._line = max(1, self.list.sizeHintForRow(0) + 2)
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
        row = ids.index(read)
        with QSignalBlocker(self.list):
            while self.list.count() > count:
                self.list.takeItem(count)
            for place, line in enumerate(self._lines()):
                if place >= self.list.count():
                    self.list.addItem(line)
                elif self.list.item(place).text() != line:
                    self.list.item(place).setText(line)
            self.list.setCurrentRow(row)
        if self._unfinished and not messages[row].item.running:
            here = self.text.textCursor().position()
            self._show(row)
            self._put_caret(here)

    def _lines(self) -> list[str]:
        """The lines of the list; only messages that have changed are read again."""
        known, self._beginnings = self._beginnings, {}
        for item in (each.item for each in self._messages):
            before = known.get(item.id)
            text = before[1] if before and before[0] is item else message_beginning(item, self._tags)
            self._beginnings[item.id] = item, text
        count = len(self._messages)
        return [
            message_words(each.item, place, count, self._beginnings[each.item.id][1])
            for place, each in enumerate(self._messages)
        ]

    def close_page(self) -> None:
        """Go back to the chat."""
        if self.isVisible():
            self.hide()
            self._messages, self.landmarks, self._read, self._beginnings = [], [], None, {}
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
        item = self._messages[row].item
        self._unfinished = item.running
        self._read = MessageRows(item, self._tags)
        self._write()
        self._put_caret(0)
        self.text.setAccessibleName(
            _(
                "Message from {author_label}, {row} of {messages}",
                author_label=author_label(item),
                row=row + 1,
                messages=len(self._messages),
            )
        )

    def _write(self) -> None:
        read, style = self._read, self._style
        if read is None or style is None:
            return
        while read.waits:
            read.step()
        read.sync()
        document = self.text.document()
        self.landmarks = landmarks(document, write_message(document, read.rows, style))

    def _put_caret(self, position: int) -> None:
        cursor = self.text.textCursor()
        cursor.setPosition(min(position, self.text.document().characterCount() - 1))
        self.text.setTextCursor(cursor)

    def _enter(self) -> None:
        self.text.setFocus(Qt.FocusReason.OtherFocusReason)

    def go(self, kind: str, by: int) -> None:
        """Go to the next (1) or previous (-1) landmark of a kind, and say what is there."""
        here = self.text.textCursor().position()
        places = [each for each in self.landmarks if each.kind == kind]
        left = [each for each in places if (each.start > here if by > 0 else each.start < here)]
        if not left:
            no_more, none = _ENDS[kind]
            announce(self.text, translate(no_more if places else none))
            return
        found = left[0] if by > 0 else left[-1]
        self._put_caret(found.start)
        announce(self.text, found.words)

    def go_sentence(self, by: int) -> None:
        """Go to the next (1) or previous (-1) sentence, and say it."""
        found = sentence_beside(self.text.document(), self.text.textCursor().position(), by)
        if found is None:
            announce(self.text, _("No more sentences"))
            return
        self._put_caret(found[0])
        announce(self.text, found[1])

    def step(self, by: int) -> None:
        """Read the next (1) or previous (-1) message."""
        row = self.list.currentRow() + by
        if 0 <= row < len(self._messages):
            self.list.setCurrentRow(row)
            announce(self.text, self.list.item(row).text())
        else:
            announce(self.text, _("No more messages"))

    def copied(self) -> str:
        """What Ctrl+C copies: the selection, or the innermost code, table, list, formula or link at the
        caret, or the whole message.
        """
        cursor = self.text.textCursor()
        if cursor.hasSelection():
            return copied_text(cursor)
        here = [each for each in self._here() if each.source]
        if here:
            return min(here, key=lambda each: each.end - each.start).source
        row = self.list.currentRow()
        return self._messages[row].item.text if 0 <= row < len(self._messages) else ""

    def _here(self) -> list[Landmark]:
        """The landmarks at the caret."""
        position = self.text.textCursor().position()
        return [each for each in self.landmarks if each.start <= position <= each.end]

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
        """Open the table or the link at the caret, show or hide the thoughts, show more."""
        here = {each.kind: each for each in self._here()}
        if self._read is not None and ("thought" in here or "more" in here):
            found = here.get("thought") or here["more"]
            if found.kind == "more":
                self._read.show_more()
            else:
                row = next(row for row in self._read.rows
                           if row.kind is RowKind.THOUGHT and row.ordinal == found.number)  # fmt: skip
                self._read.fold(found.number, row.open)
            self._write()
            self._put_caret(found.start)
            words = [each.words for each in self._here() if each.kind == "thought"]
            announce(self.text, words[0] if words else _("More of the message is shown."))
            return
        table = table_at(self.text.document(), self.text.textCursor().position())
        if table is not None:
            cells = [[cell_text(table, row, column) for column in range(table.columns())]
                     for row in range(table.rows())]  # fmt: skip
            TableDialog(cells, self).open()
            return
        if "link" in here:
            self._follow(here["link"].source)

    def _open_menu(self, event: QContextMenuEvent) -> None:
        if not self.message:
            return
        place = event.globalPos()
        if event.reason() is QContextMenuEvent.Reason.Keyboard and self.text.hasFocus():
            place = self.text.viewport().mapToGlobal(self.text.cursorRect().bottomLeft())
        self.menu_requested.emit(self.message, place)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.parent():
            if event.type() == QEvent.Type.Resize and self.isVisible():
                self._fit()
        elif isinstance(event, QContextMenuEvent):
            self._open_menu(event)
            return True
        elif isinstance(event, QKeyEvent) and event.type() != QEvent.Type.KeyRelease:
            act = self._action(event)
            if act is not None:
                if event.type() == QEvent.Type.KeyPress:
                    act()
                event.accept()
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
        if key == Qt.Key.Key_S:
            return lambda: self.go_sentence(-1 if back else 1)
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
            lines = min(len(self._messages), _LINES, max(1, self.height() // (5 * self._line)))
            self.list.setFixedHeight(lines * self._line + 8 if lines else 24)
            # in a low window the text is more important; its description says the same
            self.hint.setVisible(self.hint.heightForWidth(self.width() - 24) < self.height() // 3)
