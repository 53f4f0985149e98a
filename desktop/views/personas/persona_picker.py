"""The button with the persona of the open chat, and its menu."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QAction, QActionGroup, QIcon, QPalette, QPixmap
from PySide6.QtWidgets import QMenu, QSizePolicy, QWidget

from desktop.store.conversations.personas import Persona
from desktop.views.widgets.icons import tinted
from desktop.views.widgets.menu_button import MenuButton
from engine.words import _, ngettext

__all__ = ["PersonaPicker"]

_NAME_CHARACTERS = 22
Draw = Callable[[Persona, int], QPixmap]


class PersonaPicker(MenuButton):
    """Shows who answers; the menu emits `entries_requested()` when it opens, answered by `show_entries`.

    `chosen(id or None)`; `manage_requested()`; `participants_requested()`: the cast is to be changed.
    `draw(persona, side)` returns a picture.
    """

    entries_requested = Signal()
    chosen = Signal(object)
    manage_requested = Signal()
    participants_requested = Signal()

    def __init__(self, draw: Draw, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._draw = draw
        self._persona: Persona | None = None
        self._roles = 0
        self.setObjectName("personaButton")
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(34)
        self._menu = QMenu(self)
        self._menu.setAccessibleName(_("Personas"))
        self._menu.aboutToShow.connect(self.entries_requested)
        self._group = QActionGroup(self)
        self._end = self._menu.addSeparator()
        self._menu.addAction(_("Participants…"), self.participants_requested.emit)
        self._menu.addAction(_("Manage personas…"), self.manage_requested.emit)
        self.setMenu(self._menu)
        self.show_persona(None)

    def show_persona(self, persona: Persona | None) -> None:
        """Show the persona of the open chat; None is no persona."""
        self._persona = persona
        self._show()

    def show_participants(self, count: int) -> None:
        """Show the number of participants; 0 is a plain chat.

        With participants a persona cannot be chosen.
        """
        self._roles = count
        self._show()

    def _show(self) -> None:
        persona = self._persona
        if self._roles:
            self.setText(f" {self._roles}")
            self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
            self.setToolTip(_("Participants in this chat"))
            self.setAccessibleName(
                ngettext("{n} participant in this chat", "{n} participants in this chat", self._roles)
            )
            self._paint()
            return
        name = persona.name if persona is not None else ""
        short = name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…"
        # The space separates the text from the picture.
        self.setText(f" {short}".replace("&", "&&") if short else "")
        style = Qt.ToolButtonStyle
        self.setToolButtonStyle(style.ToolButtonTextBesideIcon if name else style.ToolButtonIconOnly)
        self.setToolTip(
            _("{name} replies in this chat", name=name) if name else _("Choose a persona for this chat")
        )
        self.setAccessibleName(_("Persona: {name}", name=name) if name else _("Choose a persona"))
        self._paint()

    def show_entries(self, personas: Iterable[Persona]) -> None:
        """Fill the menu."""
        for action in self._group.actions():
            self._group.removeAction(action)
            self._menu.removeAction(action)
            action.deleteLater()
        present = self._persona.id if self._persona is not None else None
        if self._roles:
            return
        self._add(_("No persona"), None, present is None, self._plain_icon())
        for persona in personas:
            self._add(
                persona.name, persona.id, persona.id == present, QIcon(self._draw(persona, self._side()))
            )

    def _add(self, words: str, persona_id: int | None, checked: bool, icon: QIcon) -> None:
        action = QAction(icon, words.replace("&", "&&"), self._group)
        action.setCheckable(True)
        action.setChecked(checked)
        action.setIconVisibleInMenu(True)
        action.triggered.connect(partial(self.chosen.emit, persona_id))
        self._menu.insertAction(self._end, action)

    def entries(self) -> tuple[QAction, ...]:
        """The actions of "No persona" and of each persona."""
        return tuple(self._group.actions())

    def open_menu(self) -> None:
        """Open the menu with the focus on the chosen entry."""
        self.setFocus()
        self._menu.popup(self.mapToGlobal(self.rect().bottomLeft()))
        checked = (action for action in self.entries() if action.isChecked())
        self._menu.setActiveAction(next(checked, self._menu.actions()[-1]))

    def _side(self) -> int:
        return round(self.fontMetrics().height() * 1.25)

    def _plain_icon(self) -> QIcon:
        colour = self.palette().color(QPalette.ColorRole.WindowText).name()
        return tinted("persona", colour, colour)

    def _paint(self) -> None:
        self.setIcon(QIcon(self._draw(self._persona, self._side())) if self._persona is not None
            and not self._roles
                     else self._plain_icon())  # fmt: skip
        self.setIconSize(QSize(self._side(), self._side()))

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(self, "_group"):
            self._paint()
