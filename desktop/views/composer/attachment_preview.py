"""A preview of an attached file: the text exactly as the model gets it, read-only."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from desktop.store.attachments.message_format import Attachment, kind_of, lines_of, note_text
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.growing_text_edit import code_font
from desktop.views.widgets.text_label import text_label
from engine.words import _, ngettext

__all__ = ["AttachmentPreview"]

_MOST_SHOWN = 400_000


class AttachmentPreview(QDialog):
    """`words` says how many tokens it has; empty if unknown."""

    def __init__(self, attachment: Attachment, words: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(attachment.name)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._text = attachment.text
        lines = lines_of(attachment.text)
        facts = [
            words,
            ngettext("{n} line", "{n} lines", lines),
            ngettext("{n} character", "{n} characters", len(attachment.text)),
        ]
        if attachment.note:
            facts.append(_("attached: only the {note}", note=note_text(attachment.note)))
        if len(attachment.text) > _MOST_SHOWN:
            facts.append(_("only the beginning is shown here, but the model reads all of it"))
        name = text_label(attachment.name, "heading", wraps=True, plain=True)
        details = text_label(", ".join(fact for fact in facts if fact), "muted", wraps=True)
        self.box = QPlainTextEdit()
        self.box.setProperty("tone", "field")
        self.box.setAccessibleName(_("Text of {attachment}", attachment=attachment.name))
        self.box.setReadOnly(True)
        self.box.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.box.setTabChangesFocus(True)
        if kind_of(attachment.name) != "file":
            self.box.setFont(code_font())
            self.box.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.box.setPlainText(attachment.text[:_MOST_SHOWN])
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        copy = QPushButton(_("Copy"))
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self._text))
        buttons.addButton(copy, QDialogButtonBox.ButtonRole.ActionRole)
        buttons.rejected.connect(self.reject)
        column = fill(QVBoxLayout(self), name, details, (self.box, 1), buttons)
        dialog_margins(column)
        scale = self.fontMetrics().height()
        self.resize(
            min(44 * scale, parent.window().width() - 20), min(32 * scale, parent.window().height() - 40)
        )
        self.box.setFocus()
