"""The button in the composer that shows and changes how much the model thinks."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QAction, QActionGroup, QPalette
from PySide6.QtWidgets import QMenu, QSizePolicy

from desktop.views.widgets.menu_button import IconMenuButton
from engine.core import ModelInfo, nearest_level
from engine.settings import ThinkingSettings, setting_info
from engine.settings.thinking import AUTO
from engine.words import _, in_sentence

__all__ = ["ThinkingPicker"]


class ThinkingPicker(IconMenuButton):
    """Shows the level of thinking, and offers those of the model in a menu; hidden for a model without.

    `chosen(level)`: a value of `ThinkingSettings.thinking`.
    """

    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__("thinking", _("Thinking"), role=QPalette.ColorRole.WindowText)
        self.setObjectName("thinking")
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(34)  # large text in a small window is cut
        self._menu = QMenu(self)
        self._menu.setAccessibleName(_("Thinking"))
        self._group = QActionGroup(self)
        self.setMenu(self._menu)
        self.hide()

    def show_level(self, model: ModelInfo | None, asked: str) -> None:
        """Show what a value of the setting means for a model; None for no model."""
        levels = tuple(level for level, _unused in model.thinking_levels) if model is not None else ()
        default = model.thinking_default if model is not None else ""
        self.setVisible(bool(levels))
        if not levels:
            return
        words_of = dict(setting_info(ThinkingSettings.__dataclass_fields__["thinking"]).choices)
        automatic = words_of[AUTO] if not default else f"{words_of[AUTO]} ({in_sentence(words_of[default])})"
        level = nearest_level(asked, levels, default)
        words = words_of[level or default or AUTO]
        self.setText(f" {words}")  # the space separates the text from the icon
        name = _("Thinking: {words}", words=in_sentence(words if level else automatic))
        self.set_face("thinking", name)
        self._fill({AUTO: automatic, **{each: words_of[each] for each in levels}}, level or AUTO)

    def _fill(self, entries: dict[str, str], checked: str) -> None:
        for action in self._group.actions():
            self._group.removeAction(action)
            self._menu.removeAction(action)
            action.deleteLater()
        for level, words in entries.items():
            action = QAction(words, self._group)
            action.setCheckable(True)
            action.setChecked(level == checked)
            action.triggered.connect(partial(self.chosen.emit, level))
            self._menu.addAction(action)

    def entries(self) -> tuple[QAction, ...]:
        """The actions of "Automatic" and of each level."""
        return tuple(self._group.actions())

    def open_menu(self) -> None:
        """Open the menu above the button, with the focus on the chosen entry."""
        self.setFocus()
        height = self._menu.sizeHint().height()
        self._menu.popup(self.mapToGlobal(self.rect().topLeft()) - QPoint(0, height))
        checked = (action for action in self.entries() if action.isChecked())
        self._menu.setActiveAction(next(checked, self._menu.actions()[0]))
