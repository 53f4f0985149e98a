"""Shows an error report as it would be sent, so that the user sees what it contains, and copies it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontDatabase, QGuiApplication
from PySide6.QtWidgets import QDialog, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.banner import announce
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, translate

__all__ = ["ErrorReportDialog"]

_PROMISE = N_(
    "This is the whole report: versions, the model's name and the last lines of the log, but no text "
    "from your chats. It is not sent anywhere. To report the error, copy it and paste it into your "
    "report."
)


class ErrorReportDialog(QDialog):
    """`what` is the sentence above the report; `show_log` opens the log.

    The dialog deletes itself when closed.
    """

    def __init__(self, what: str, report: str, show_log: Callable[[], object], parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(_("Error report"))
        heading, promise = QLabel(what), QLabel(translate(_PROMISE))
        heading.setProperty("tone", "heading")
        promise.setProperty("tone", "muted")
        for label in (heading, promise):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setWordWrap(True)
        self.text = QPlainTextEdit(report)
        self.text.setProperty("tone", "field")
        self.text.setReadOnly(True)
        self.text.setAccessibleName(_("Report"))
        self.text.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self.text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        font.setPointSizeF(self.font().pointSizeF() * 0.95)
        self.text.setFont(font)
        self.copy = QPushButton(_("Copy report"))
        self.copy.clicked.connect(self._copy)
        self.copy.setDefault(True)
        log = QPushButton(_("Show log"))
        log.clicked.connect(show_log)
        shut = QPushButton(_("Close"))
        shut.clicked.connect(self.close)
        self._copied = text_label(tone="muted")
        line = fill(FlowLayout(), (self._copied, 1), self.copy, log, shut)
        body = QWidget()
        fill(QVBoxLayout(body), heading, promise, (self.text, 1), margins=(0, 0, 0, 0))
        dialog_margins(fill(QVBoxLayout(self), (DialogBody(body), 1), line))
        self.resize(min(780, max(360, parent.width() - 60)), min(600, max(340, parent.height() - 80)))
        self.copy.setFocus()

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text.toPlainText())
        self._copied.setText(_("Copied"))
        announce(self, _("The report was copied"))
