"""The window of saved prompts: a list, and an editor for the selected one; changes are saved at once."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QDialog,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from desktop.services.composer.saved_prompts import SavedPromptService
from desktop.store.settings.prompt_variables import variables
from desktop.store.settings.saved_prompts import Prompt
from desktop.views.dialogs.file_dialogs import ask_open, ask_save
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import SCALE, dialog_margins
from desktop.views.widgets.empty_state import EmptyState
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.turning_splitter import TurningSplitter
from engine.words import N_, _, translate

__all__ = ["SavedPromptsWindow"]

_HINT = N_("Write placeholders in double braces: {{topic}}, or {{language=English}} with a default value.")
_NONE = N_("There are no saved prompts yet. Choose “New prompt” to write one, or import some.")
_FILES = N_("Prompts (*.json)")

_NARROW = 60
"""In fewer average characters than this, the list is above the prompt."""


class SavedPromptsWindow(QDialog):
    """`chosen(prompt)`: insert it into the message."""

    chosen = Signal(object)

    def __init__(self, service: SavedPromptService, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(_("Saved prompts"))
        self._service, self._window = service, parent.window()
        self._deleted: Prompt | None = None
        self.list = QListWidget()
        self.list.setProperty("tone", "order")
        self.list.setAccessibleName(_("Saved prompts"))
        self.list.currentItemChanged.connect(lambda *_unused: self._show_chosen())
        self.list.itemActivated.connect(lambda _item: self._insert())
        self.empty = EmptyState(self.list, translate(_NONE))
        self.name = QLineEdit()
        self.name.setAccessibleName(_("Name of the prompt"))
        self.name.setPlaceholderText(_("Name (also the slash command)"))
        self.text = GrowingTextEdit(_("Text of the prompt"), least=9, most=18)
        self.text.setPlaceholderText(_("Text to insert into the message"))
        self.hint = text_label(translate(_HINT), "muted", wraps=True)
        self.notice = text_label(wraps=True)
        self.notice.hide()
        self.undo = QPushButton(_("Undo"))
        self.undo.hide()
        self._make_buttons()
        self._arrange()
        self.name.editingFinished.connect(self._keep)
        self.text.edited.connect(lambda _text: self._keep())
        self.text.typed.connect(lambda _text: self._show_variables())
        self.undo.clicked.connect(self._bring_back)
        service.changed.connect(self._fill)
        service.notice.connect(self._show_notice)
        self._fill()

    def _make_buttons(self) -> None:
        self.new = QPushButton(_("New prompt"))
        self.remove = QPushButton(_("Delete"))
        self.insert = QPushButton(_("Insert"))
        self.load = QPushButton(_("Import…"))
        self.save = QPushButton(_("Export…"))
        self.close_button = QPushButton(_("Close"))
        for button in (self.new, self.remove, self.load, self.save, self.close_button):
            button.setAutoDefault(False)
        self.insert.setProperty("tone", "primary")
        self.insert.setToolTip(_("Insert this prompt into the message"))
        self.new.clicked.connect(self._begin_new)
        self.remove.clicked.connect(self._remove)
        self.insert.clicked.connect(self._insert)
        self.load.clicked.connect(self._ask_to_import)
        self.save.clicked.connect(self._ask_to_export)
        self.close_button.clicked.connect(self.close)

    def _arrange(self) -> None:
        left, right = QWidget(), QWidget()
        side, body = QVBoxLayout(left), QVBoxLayout(right)
        side.setContentsMargins(1, 0, 1, 0)  # A mirrored splitter cuts off one pixel.
        body.setContentsMargins(0, 0, 0, 0)
        side.addWidget(self.list, 1)
        side.addWidget(self.new)
        files = fill(FlowLayout(), (self.load, 1), (self.save, 1))
        side.addLayout(files)
        body.addWidget(self.name)
        body.addWidget(self.text)
        body.addWidget(self.hint)
        body.addStretch(1)
        panes = TurningSplitter((left, right), (15, 31), _NARROW)
        panes.setHandleWidth(SCALE[3])
        panes.setStretchFactor(1, 1)
        footer = fill(FlowLayout(), (self.notice, 1), self.undo)
        buttons = fill(FlowLayout(), self.remove, 1, self.insert, self.close_button)
        column = fill(QVBoxLayout(self), (DialogBody(panes), 1), footer, buttons)
        dialog_margins(column)
        scale, window = self.fontMetrics().height(), self._window
        self.resize(min(46 * scale, window.width() - 20), min(30 * scale, window.height() - 40))
        panes.setSizes([15 * scale, 31 * scale])

    # -- what is shown

    def _current(self) -> Prompt | None:
        item = self.list.currentItem()
        found = item.data(Qt.ItemDataRole.UserRole) if item is not None else None
        return found if isinstance(found, Prompt) else None

    def _fill(self) -> None:
        chosen = self._current()
        self._select(chosen.id if chosen is not None else 0)

    def _select(self, number: int) -> None:
        """Update the list, and select this prompt, or the first one."""
        with QSignalBlocker(self.list):
            self.list.clear()
            row = 0
            for place, prompt in enumerate(self._service.prompts()):
                item = QListWidgetItem(prompt.name)
                item.setData(Qt.ItemDataRole.UserRole, prompt)
                self.list.addItem(item)
                row = place if prompt.id == number else row
            if self.list.count():
                self.list.setCurrentRow(row)
        self._show_chosen()

    def _show_chosen(self) -> None:
        prompt = self._current()
        for control in (self.name, self.text, self.remove, self.insert):
            control.setEnabled(prompt is not None)
        self.save.setEnabled(prompt is not None)
        if prompt is None or self.name.text() != prompt.name:
            self.name.setText(prompt.name if prompt is not None else "")
        self.text.show_text(prompt.text if prompt is not None else "")
        self._show_variables()

    def _show_variables(self) -> None:
        names = list(variables(self.text.text()))
        self.hint.setText(_("Asks for: {names}.", names=", ".join(names)) if names else translate(_HINT))

    def _show_notice(self, sentence: str, _level: str) -> None:
        self.notice.setText(sentence)
        self.notice.show()
        self.undo.hide()

    # -- what the user does

    def _keep(self) -> None:
        prompt = self._current()
        name = " ".join(self.name.text().split()).lstrip("/") or (prompt.name if prompt is not None else "")
        if prompt is not None and (name, self.text.text()) != (prompt.name, prompt.text):
            self._service.put(Prompt(prompt.id, name, self.text.text()))

    def _begin_new(self) -> None:
        self.text.commit()
        taken = {prompt.name for prompt in self._service.prompts()}
        names = (
            _("New prompt"),
            *(_("New prompt {number}", number=number) for number in range(2, len(taken) + 2)),
        )
        name = next(name for name in names if name not in taken)
        number = self._service.put(Prompt(0, name, ""))
        self._select(number)
        self.name.setFocus()
        self.name.selectAll()

    def _remove(self) -> None:
        prompt = self._current()
        self._deleted = self._service.remove(prompt.id) if prompt is not None else None
        if self._deleted is not None:
            self._show_notice(_("“{deleted}” was deleted.", deleted=self._deleted.name), "info")
            self.undo.show()
            self.list.setFocus()

    def _bring_back(self) -> None:
        if self._deleted is not None:
            self._service.put(self._deleted)
            self._select(self._deleted.id)
            self._deleted = None
        self.notice.hide()
        self.undo.hide()
        self.list.setFocus()

    def _insert(self) -> None:
        self.text.commit()
        self._keep()
        prompt = self._current()
        if prompt is not None:
            self.close()
            self.chosen.emit(prompt)

    def _ask_to_import(self) -> None:
        ask_open(self, _("Import prompts"), lambda chosen: self._service.read(chosen[0]), translate(_FILES))

    def _ask_to_export(self) -> None:
        self.text.commit()
        ask_save(
            self,
            _("Export prompts"),
            "prompts.json",
            lambda chosen: self._service.write(chosen[0]),
            translate(_FILES),
        )

    def done(self, result: int) -> None:
        """Save what was typed a moment ago, however the window is closed."""
        self.text.commit()
        self._keep()
        super().done(result)
