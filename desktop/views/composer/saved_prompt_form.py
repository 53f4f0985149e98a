"""The form for the variables of a saved prompt, with a preview of the result."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFormLayout,
    QLabel,
    QPlainTextEdit,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from desktop.services.system.language import today_text
from desktop.store.settings.prompt_variables import filled, is_date, variables
from desktop.store.settings.saved_prompts import Prompt
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import SCALE, dialog_margins
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import text_label
from engine.words import _

__all__ = ["SavedPromptForm"]


class SavedPromptForm(QDialog):
    """`inserted(text)`: the filled prompt. Ctrl+Enter inserts, Esc cancels."""

    inserted = Signal(str)

    def __init__(self, prompt: Prompt, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(prompt.name)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._prompt = prompt
        self.fields: dict[str, GrowingTextEdit] = {}
        heading = text_label(_("Preview"), "muted")
        self.preview = QPlainTextEdit()
        self.preview.setProperty("tone", "field")
        self.preview.setReadOnly(True)
        self.preview.setTabChangesFocus(True)
        self.preview.setAccessibleName(_("Preview"))
        column = fill(QVBoxLayout(self), self._fields(), heading, (self.preview, 1), self._buttons())
        dialog_margins(column)
        scale = self.fontMetrics().height()
        self.resize(
            min(32 * scale, parent.window().width() - 20), min(28 * scale, parent.window().height() - 40)
        )
        self._show()
        first = next(iter(self.fields.values()))
        first.selectAll()
        first.setFocus()

    def _fields(self) -> QScrollArea:
        form = QFormLayout()
        form.setContentsMargins(0, 0, 0, 0)
        form.setVerticalSpacing(SCALE[1])
        form.setHorizontalSpacing(SCALE[2])
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        for name, value in variables(self._prompt.text).items():
            field = self.fields[name] = GrowingTextEdit(name, least=1, most=6)
            field.show_text(value or (today_text() if is_date(name) else ""))
            field.typed.connect(self._show)
            field.installEventFilter(self)
            field.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)  # as high as its text
            label = QLabel(f"{name[0].upper()}{name[1:]}")
            label.setBuddy(field)
            form.addRow(label, field)
        body = QWidget()
        body.setObjectName("dialogBody")
        body.setLayout(form)
        scroll = VerticalScrollArea(body)
        scroll.setObjectName("dialogScroll")
        scroll.setSizeAdjustPolicy(QScrollArea.SizeAdjustPolicy.AdjustToContents)
        scroll.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        return scroll

    def _buttons(self) -> QDialogButtonBox:
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        insert = self.buttons.addButton(_("Insert"), QDialogButtonBox.ButtonRole.AcceptRole)
        insert.setToolTip(_("Insert (Ctrl+Enter)"))
        insert.setDefault(True)
        insert.setProperty("tone", "primary")
        self.buttons.accepted.connect(self._insert)
        self.buttons.rejected.connect(self.reject)
        return self.buttons

    def text(self) -> str:
        """The prompt as it would be inserted."""
        return filled(self._prompt.text, {name: field.text() for name, field in self.fields.items()})

    def _show(self, _text: str = "") -> None:
        self.preview.setPlainText(self.text())

    def _insert(self) -> None:
        self.inserted.emit(self.text())
        self.accept()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.KeyPress
            and isinstance(event, QKeyEvent)
            and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        ):
            if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
                self._insert()
                return True
            if not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                self.focusNextChild()
                return True
        return super().eventFilter(watched, event)
