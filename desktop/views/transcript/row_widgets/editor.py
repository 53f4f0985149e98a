"""The row in which a message is edited."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLabel, QPlainTextEdit, QPushButton, QSizePolicy, QVBoxLayout

from desktop.store.attachments.message_format import split
from desktop.views.layout.fill import fill
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style
from desktop.views.widgets.flow_layout import FlowLayout
from engine.words import _

__all__ = ["EditorRow"]

_LINES = (3, 18)


class EditorRow(RowWidget):
    """A text box with Save and Cancel. Ctrl+Enter saves, Esc cancels; Enter breaks the line.

    A user's message is sent again, or saved as a version without a reply. The files that it begins with are
    not in the box and stay.
    """

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self.box = QPlainTextEdit(self)
        self.box.setProperty("tone", "field")
        self.box.setAccessibleName(_("Edit the message"))
        self.box.setTabChangesFocus(True)
        self.box.installEventFilter(self)
        self.box.document().blockCountChanged.connect(self._changed)
        self.box.document().documentLayout().documentSizeChanged.connect(self._changed)
        self._files = ""
        self.save = QPushButton(_("Save"), self)
        self.save.setToolTip(_("Save (Ctrl+Enter)"))
        self.save.setProperty("tone", "primary")
        self.keep = QPushButton(_("Save without a reply"), self)
        self.keep.setAccessibleName(_("Save without a reply"))
        self.keep.setToolTip(_("Save the new text without generating a reply (Ctrl+Shift+Enter)"))
        self.cancel = QPushButton(_("Cancel"), self)
        self.cancel.setToolTip(_("Cancel (Esc)"))
        self.keep.clicked.connect(lambda: self._save(answer=False))
        self.save.clicked.connect(lambda: self._save())
        self.cancel.clicked.connect(self._cancel)
        self._edit_words = context.edit_words
        self.hint = QLabel(self)
        self.hint.setProperty("tone", "muted")
        self.hint.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._buttons = fill(FlowLayout(), (self.hint, 1), self.save, self.keep, self.cancel)
        self._column = fill(QVBoxLayout(self), (self.box, 1), self._buttons, spacing=6)

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        self.setAccessibleName(_("Edit the message"))
        asks = row.item.role == "user"
        self.keep.setVisible(asks)
        self._name_buttons(asks, short=False)
        self.save.setToolTip(_("Save and send (Ctrl+Enter)") if asks else _("Save (Ctrl+Enter)"))
        self.box.setFont(style.text_font)
        self._column.setContentsMargins(0, self.gap, 0, 0)

    def _name_buttons(self, asks: bool, short: bool) -> None:
        """Set their text, shortened to one word each where space is scarce."""
        self.keep.setText(_("Keep") if short else _("Save without a reply"))
        self.save.setText(_("Save") if not asks else _("Send") if short else _("Save && send"))

    def begin(self, text: str) -> None:
        """Put `text` in the box and the cursor at its end."""
        words = self._edit_words(self.row.item.id) if self.row is not None else ""
        self.hint.setText(words)
        self.hint.setToolTip(words)
        self.box.setAccessibleDescription(words)
        place = split(text)[1] if self.row is not None and self.row.item.role == "user" else 0
        self._files = text[:place].rstrip("\n")
        self.box.setPlainText(text[place:])
        self.box.moveCursor(self.box.textCursor().MoveOperation.End)
        self.box.setFocus(Qt.FocusReason.OtherFocusReason)

    @property
    def text(self) -> str:
        """The message with the words in the box."""
        own = self.box.toPlainText()
        return "\n\n".join(part for part in (self._files, own) if part.strip()) if self._files else own

    def fit(self, width: int) -> int:
        self.resize(width, self.height())
        asks = self.row is not None and self.row.item.role == "user"
        self._name_buttons(asks, short=False)
        buttons = [self.cancel, self.save, *([self.keep] if asks else [])]
        if sum(button.sizeHint().width() for button in buttons) + 6 * len(buttons) > width:
            self._name_buttons(asks, short=True)
        free = width - sum(button.sizeHint().width() + 6 for button in buttons)
        words = self.hint.toolTip()
        # the whole hint, or none
        self.hint.setText(words if self.hint.fontMetrics().horizontalAdvance(words) <= free else "")
        lines = round(self.box.document().size().height())
        margin = round(2 * self.box.document().documentMargin()) + (
            self.row_style.px(1.4) if self.row_style else 0
        )
        shown = min(max(lines, _LINES[0]), _LINES[1])
        fits = (
            Qt.ScrollBarPolicy.ScrollBarAlwaysOff
            if lines <= _LINES[1]
            else Qt.ScrollBarPolicy.ScrollBarAsNeeded
        )
        self.box.setVerticalScrollBarPolicy(fits)
        return (
            self.gap
            + shown * self.box.fontMetrics().lineSpacing()
            + margin
            + 6
            + self._buttons.heightForWidth(width)
        )

    def _changed(self) -> None:
        if self.row is not None:
            self.signals.outdated.emit(self.row)

    def _save(self, answer: bool = True) -> None:
        if self.row is not None:
            self.signals.edit_saved.emit(self.row.item.id, self.text, answer)

    def _cancel(self) -> None:
        if self.row is not None:
            self.signals.edit_cancelled.emit(self.row.item.id)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if (
            watched is self.box
            and event.type() in (QEvent.Type.KeyPress, QEvent.Type.ShortcutOverride)
            and isinstance(event, QKeyEvent)
        ):
            saves = (
                event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
                and event.modifiers() & Qt.KeyboardModifier.ControlModifier
            )
            if saves or event.key() == Qt.Key.Key_Escape:
                if event.type() == QEvent.Type.ShortcutOverride:
                    event.accept()
                elif saves:
                    self._save(answer=not event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
                else:
                    self._cancel()
                return True
        return super().eventFilter(watched, event)
