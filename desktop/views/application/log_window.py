"""The log as it grows, filtered by level and words, with buttons that copy it and open its folder."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, Qt, QTimer
from PySide6.QtGui import (
    QColor,
    QFontDatabase,
    QGuiApplication,
    QHideEvent,
    QKeySequence,
    QPalette,
    QShortcut,
    QShowEvent,
    QTextCharFormat,
    QTextCursor,
)  # fmt: skip
from PySide6.QtWidgets import QDialog, QLineEdit, QPlainTextEdit, QPushButton, QTextEdit, QVBoxLayout, QWidget

from desktop.services.system.log_tail import LogEntry, LogTail
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.combo_box import ComboBox, add_clear_button
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.theme import tokens
from engine.words import N_, _, ngettext, translate

__all__ = ["LogWindow"]

_LOOK_MS = 400
_ENTRIES = 5000
_MARKED = 2000
_CHOICES = ((N_("Everything"), 0), (N_("Information"), 1), (N_("Warnings"), 2), (N_("Errors"), 3))
_COLOURS = {2: "warning", 3: "danger", 4: "danger"}


class LogWindow(QDialog):
    """Shows the end of the log at `path`, and new entries while it is visible; `open_folder(path)` shows the
    file.
    """

    def __init__(self, path: Path, open_folder: Callable[[Path], object], parent: QWidget) -> None:
        super().__init__(parent)
        self._path = path
        self._tail = LogTail(path)
        self._entries: deque[LogEntry] = deque(maxlen=_ENTRIES)
        self._shown = 0
        self.setWindowTitle(_("Log"))
        self.setWindowFlag(Qt.WindowType.WindowMaximizeButtonHint)
        self.setSizeGripEnabled(True)
        self.level = ComboBox()
        self.level.setAccessibleName(_("Lowest level of entries to show"))
        for words in (translate(words) for words, _level in _CHOICES):
            self.level.addItem(words)
        self.level.setCurrentIndex(1)
        self.level.currentIndexChanged.connect(self._show_all)
        self.words = QLineEdit()
        self.words.setProperty("tone", "search")
        self.words.setPlaceholderText(_("Filter entries"))
        self.words.setMinimumWidth(self.fontMetrics().horizontalAdvance("x" * 13))
        self.words.setAccessibleName(_("Filter entries"))
        add_clear_button(self.words)
        self.words.textChanged.connect(self._show_all)
        self.text = QPlainTextEdit()
        self.text.setObjectName("logText")
        self.text.setProperty("tone", "field")
        self.text.setReadOnly(True)
        self.text.setAccessibleName(_("Log"))
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.text.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self.text.setMaximumBlockCount(4 * _ENTRIES)
        self.text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.count = text_label(tone="muted")
        self.copy = QPushButton(_("Copy"))
        self.copy.setToolTip(_("Copy the selected entries, or all entries shown if none is selected"))
        self.copy.clicked.connect(self._copy)
        self.folder = QPushButton(_("Open folder"))
        self.folder.clicked.connect(lambda: open_folder(path))
        self.shut = QPushButton(_("Close"))
        self.shut.clicked.connect(self.close)
        for button in (self.copy, self.folder, self.shut):
            button.setAutoDefault(False)
        self._arrange()
        self.resize(min(980, max(380, parent.width() - 60)), min(640, max(360, parent.height() - 80)))
        self._timer = QTimer(self)
        self._timer.setInterval(_LOOK_MS)
        self._timer.timeout.connect(self._look)
        find = QShortcut(QKeySequence.StandardKey.Find, self)
        find.activated.connect(self.words.setFocus)

    def _arrange(self) -> None:
        line, below = FlowLayout(), FlowLayout()
        line.addWidget(self.words, 1)
        line.addWidget(self.level)
        below.addWidget(self.count, 1)
        for button in (self.copy, self.folder, self.shut):
            below.addWidget(button)
        layout = fill(QVBoxLayout(self), line, (self.text, 1), below)
        dialog_margins(layout)
        self._fit_font()

    def _look(self) -> None:
        new = self._tail.read()
        if new:
            self._entries.extend(new)
            self._add(new)
        self._show_count()

    def _matches(self, entry: LogEntry) -> bool:
        return (
            entry.level >= _CHOICES[self.level.currentIndex()][1]
            and self.words.text().casefold() in entry.text.casefold()
        )

    def _show_all(self) -> None:
        self.text.clear()
        self._shown = 0
        self._add(self._entries)
        self.text.verticalScrollBar().setValue(self.text.verticalScrollBar().maximum())
        self._show_count()

    def _add(self, entries: deque[LogEntry] | list[LogEntry]) -> None:
        """Append entries; the view follows them only if it was at the end."""
        bar = self.text.verticalScrollBar()
        at_end, colours = bar.value() >= bar.maximum() - 1, tokens("dark" if self._is_dark() else "light")
        cursor = QTextCursor(self.text.document())
        cursor.beginEditBlock()
        cursor.movePosition(QTextCursor.MoveOperation.End)
        for entry in filter(self._matches, entries):
            form = QTextCharFormat()
            form.setForeground(
                QColor(colours[_COLOURS.get(entry.level, "muted" if entry.level == 0 else "text")])
            )
            cursor.insertText(entry.text if self.text.document().isEmpty() else f"\n{entry.text}", form)
            self._shown += 1
        cursor.endEditBlock()
        if at_end:
            bar.setValue(bar.maximum())
        self._mark_words(colours)

    def _mark_words(self, colours: dict[str, str]) -> None:
        """Highlight the words."""
        marks: list[QTextEdit.ExtraSelection] = []
        words = self.words.text()
        place = QTextCursor(self.text.document())
        while (
            words and len(marks) < _MARKED and not (place := self.text.document().find(words, place)).isNull()
        ):
            mark = QTextEdit.ExtraSelection()
            mark.cursor = place
            mark.format.setBackground(QColor(colours["selected"]))
            marks.append(mark)
        self.text.setExtraSelections(marks)

    def _show_count(self) -> None:
        words = ngettext("{n} entry", "{n} entries", self._shown)
        if not self._shown:
            words = _("No matching entries") if self._entries else _("The log is empty")
        self.count.setText(words)
        self.copy.setEnabled(self._shown > 0)

    def _is_dark(self) -> bool:
        return self.palette().color(QPalette.ColorRole.Base).lightnessF() < 0.5

    def _copy(self) -> None:
        chosen = self.text.textCursor().selection().toPlainText()
        QGuiApplication.clipboard().setText(chosen or self.text.toPlainText())

    def _fit_font(self) -> None:
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        font.setPointSizeF(self.font().pointSizeF() * 0.95)
        self.text.setFont(font)

    def showEvent(self, event: QShowEvent) -> None:
        """Follow the log while it is visible."""
        super().showEvent(event)
        self._look()
        self._timer.start()
        self.text.verticalScrollBar().setValue(self.text.verticalScrollBar().maximum())
        self.words.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:
        """Stop following the log."""
        super().hideEvent(event)
        self._timer.stop()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(self, "_timer"):
            self._fit_font()
            self._show_all()
