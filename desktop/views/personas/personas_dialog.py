"""The window of personas: a list, and an editor for the selected one.

Changes are saved after a pause and when the persona is left.
"""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QSignalBlocker, QSize, Qt
from PySide6.QtGui import QIcon, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from desktop.items.models.local_models import ModelEntry
from desktop.services.conversations.personas import PersonaService
from desktop.services.system.debounce import debounce
from desktop.store.conversations.personas import Persona
from desktop.views.dialogs.saving_dialog import SavingDialog
from desktop.views.layout.fill import fill
from desktop.views.personas.avatar import avatar
from desktop.views.personas.persona_editor import PersonaEditor
from desktop.views.widgets.empty_state import EmptyState
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, translate

__all__ = ["PersonasDialog"]

_PAUSE_MS = 600
_NARROW = 76
"""In fewer average characters than this, the list is above the editor."""
_WORDS = N_(
    "A persona has a name, a picture, a system prompt, a sampler preset and a model. It can reply in "
    "any chat."
)
_NONE = N_("There are no personas yet. Choose “New persona” to create one.")
_NAME = N_("New persona")


class PersonasDialog(SavingDialog):
    """Manages the personas of `service`.

    The owner calls `show_models`, and connects `banner.undo_requested`.
    """

    def __init__(self, service: PersonaService, parent: QWidget) -> None:
        super().__init__(self.save, parent)
        self.setWindowTitle(_("Personas"))
        self._service = service
        self._dirty = self._saving = False
        self._models: tuple[ModelEntry, ...] = ()
        self.list = QListWidget()
        self.list.setAccessibleName(_("Personas"))
        self.list.setProperty("tone", "order")
        self.empty = EmptyState(self.list, translate(_NONE))
        self.new = QPushButton(_("New persona"))
        self.copy = IconButton("copy", _("Duplicate this persona"))
        self.delete = IconButton("trash", _("Delete this persona"))
        self.editor = PersonaEditor()
        self.nothing = text_label(translate(_WORDS), "muted", wraps=True)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._timer = debounce(self, self.save, _PAUSE_MS)
        self.arrange(self._content(), 110, 34)
        self.new.clicked.connect(self._make)
        self.copy.clicked.connect(self._duplicate)
        self.delete.clicked.connect(self._delete)
        self.list.currentItemChanged.connect(self._move)
        self.editor.edited.connect(self._edited)
        self.editor.trouble.connect(lambda sentence: self.banner.show_notice(sentence, "error"))
        service.changed.connect(self._renew)
        service.notice.connect(self._show_notice)
        self.show_personas()
        self.list.setFocus()

    def _content(self) -> QWidget:
        tools = fill(QHBoxLayout(), (self.new, 1), self.copy, self.delete)
        side = fill(QVBoxLayout(), tools, (self.list, 1))
        body = QWidget()
        fill(QVBoxLayout(body), self.nothing, self.editor, 1, margins=(0, 0, 0, 0))
        scroll = VerticalScrollArea(body)
        content = QWidget()
        self._main = fill(
            QBoxLayout(QBoxLayout.Direction.LeftToRight, content),
            (side, 2),
            (scroll, 3),
            margins=(0, 0, 0, 0),
            spacing=16,
        )
        self.new.setAutoDefault(False)  # Enter in a field does not press it.
        return content

    # -- the list

    def show_personas(self, chosen: int = 0) -> None:
        """Update the list and edit the persona of this id, or the one that was edited, or the first."""
        selected = chosen or self._present_id()
        with QSignalBlocker(self.list):
            self.list.clear()
            for persona in self._service.personas():
                item = QListWidgetItem()
                item.setData(Qt.ItemDataRole.UserRole, persona)
                self._paint(item)
                self.list.addItem(item)
            rows = [
                row for row in range(self.list.count()) if self._persona(self.list.item(row)).id == selected
            ]
            self.list.setCurrentRow(rows[0] if rows else 0)
        self._edit()

    def show_models(self, models: tuple[ModelEntry, ...]) -> None:
        """Set the models that a persona can have."""
        self._models = models
        self.editor.show_choices(self._service.preset_names(), models)

    def _renew(self) -> None:
        if not self._saving:
            self.show_personas()

    def _persona(self, item: QListWidgetItem) -> Persona:
        found = item.data(Qt.ItemDataRole.UserRole)
        assert isinstance(found, Persona)
        return found

    def _present(self) -> Persona | None:
        item = self.list.currentItem()
        return self._persona(item) if item is not None else None

    def _present_id(self) -> int:
        present = self._present()
        return present.id if present is not None else 0

    def _paint(self, item: QListWidgetItem) -> None:
        persona, side = self._persona(item), round(self.fontMetrics().height() * 1.6)
        picture = avatar(
            persona.name,
            persona.avatar,
            self._service.image(persona.id),
            side,
            self.devicePixelRatioF(),
            self.palette(),
        )
        icon = QIcon(picture)
        icon.addPixmap(picture, QIcon.Mode.Selected)
        self.list.setIconSize(QSize(side, side))
        item.setIcon(icon)
        item.setText(persona.name)

    def _edit(self) -> None:
        present = self._present()
        for part in (self.editor, self.copy, self.delete):
            part.setEnabled(present is not None)
        self.editor.setVisible(present is not None)
        self.nothing.setVisible(present is None)
        self._dirty = self.warned = False
        self._timer.stop()
        if present is not None:
            self.editor.show_choices(self._service.preset_names(), self._models)
            self.editor.show_persona(present, self._service.image(present.id))

    # -- what the user does

    def _edited(self) -> None:
        self._dirty, self.warned = True, False
        self._timer.start()

    def save(self) -> bool:
        """Save the changes; False if that failed: they stay in the fields."""
        self._timer.stop()
        item = self.list.currentItem()
        if not self._dirty or item is None:
            return True
        self._saving = True
        saved = self._service.save(self.editor.persona(), self.editor.image())
        self._saving = False
        if saved is None:
            return False
        self._dirty = False
        item.setData(Qt.ItemDataRole.UserRole, saved)
        self._paint(item)
        return True

    def _move(self, _now: QListWidgetItem | None, before: QListWidgetItem | None) -> None:
        if self._dirty and before is not None:
            with QSignalBlocker(self.list):
                target = self.list.currentRow()
                self.list.setCurrentItem(before)
                left = self.save()
                self.list.setCurrentRow(target if left else self.list.currentRow())
            if not left:
                return
        self._edit()

    def _make(self) -> None:
        if self.save():
            self._show_new(self._service.save(Persona(0, self._service.free_name(translate(_NAME)))))

    def _duplicate(self) -> None:
        present = self._present()
        if present is not None and self.save():
            self._show_new(self._service.duplicate(self._present() or present))

    def _show_new(self, made: Persona | None) -> None:
        if made is not None:
            self.show_personas(made.id)
            self.editor.name.setFocus()
            self.editor.name.selectAll()

    def _delete(self) -> None:
        present = self._present()
        if present is not None:
            self._dirty = False
            self._service.delete(replace(present))

    def _show_notice(self, sentence: str, level: str, undoable: bool) -> None:
        if self.isVisible():
            self.banner.show_notice(sentence, level, undo=undoable)

    # -- the window

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side if there is room for both."""
        super().resizeEvent(event)
        narrow = self.width() < _NARROW * self.fontMetrics().averageCharWidth()
        self._main.setDirection(
            QBoxLayout.Direction.TopToBottom if narrow else QBoxLayout.Direction.LeftToRight
        )

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Delete deletes the selected persona."""
        if event.key() == Qt.Key.Key_Delete and self.list.hasFocus():
            self._delete()
        else:
            super().keyPressEvent(event)
