"""The button in the composer that turns servers of tools off in one chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAction, QPalette
from PySide6.QtWidgets import QMenu, QSizePolicy

from desktop.services.tools.servers import ServerState
from desktop.views.layout.bidi import isolated
from desktop.views.widgets.menu_button import IconMenuButton
from engine.printable import one_line
from engine.words import _, ngettext

__all__ = ["ToolPicker"]


class ToolPicker(IconMenuButton):
    """Shows how many tools the open chat has, and its servers in a menu; hidden where there is none.

    Signals:
        chosen(object names): the servers that are off in the chat, a tuple.
        manage_requested()
    """

    chosen = Signal(object)
    manage_requested = Signal()

    def __init__(self) -> None:
        super().__init__("tools", _("Tools"), role=QPalette.ColorRole.WindowText)
        self.setObjectName("tools")
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(34)
        self._menu = QMenu(self)
        self._menu.setAccessibleName(_("Tools"))
        self._off: tuple[str, ...] = ()
        self._shown: object = None
        self.setMenu(self._menu)
        self.hide()

    def show_tools(self, servers: Sequence[ServerState], off: Iterable[str], count: int) -> None:
        """Show the servers that run or should, those that are `off` in the chat, and the `count` of tools
        that it has.
        """
        enabled = [state for state in servers if state.config.enabled]
        shown = ([(state.config.name, state.status) for state in enabled], tuple(off), count)
        if shown == self._shown:  # the menu may be open
            return
        self._shown, self._off = shown, tuple(off)
        self.setVisible(bool(enabled))
        self.setText(f" {count}")
        self.set_face("tools", ngettext("Tools: {n} in this chat", "Tools: {n} in this chat", count))
        self._menu.clear()
        for state in enabled:
            name = state.config.name
            words = one_line(name)
            if state.status == "failed":
                words = _("{name} (failed)", name=words)
            action = QAction(isolated(words).replace("&", "&&"), self._menu)
            action.setCheckable(True)
            action.setChecked(name not in self._off)
            action.setEnabled(state.status != "failed")
            action.toggled.connect(lambda on, name=name: self._switch(name, on))
            self._menu.addAction(action)
        self._menu.addSeparator()
        self._menu.addAction(_("Manage tools…"), self.manage_requested.emit)

    def entries(self) -> tuple[QAction, ...]:
        """The actions of the menu, without separators."""
        return tuple(action for action in self._menu.actions() if not action.isSeparator())

    def _switch(self, name: str, on: bool) -> None:
        others = tuple(each for each in self._off if each != name)
        self.chosen.emit(others if on else (*others, name))
