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

_LONGEST = 60
"""Average characters of an entry."""


class ToolPicker(IconMenuButton):
    """Shows how many tools the open chat has, and its servers in a menu; hidden where there is none.

    Signals:
        chosen(object names): the servers that are off in the chat, a tuple.
        prompts_requested(): a prompt of a server is to be inserted.
        resources_requested(): a resource of a server is to be attached.
        manage_requested(str name): the servers are to be shown, with the one of that name selected.
    """

    chosen = Signal(object)
    prompts_requested = Signal()
    resources_requested = Signal()
    manage_requested = Signal(str)

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

    def show_tools(
        self,
        servers: Sequence[ServerState],
        off: Iterable[str],
        count: int,
        *,
        prompts: bool = False,
        resources: bool = False,
    ) -> None:
        """Show the servers that run or should, those that are `off` in the chat, the `count` of tools that it
        has, and whether there are `prompts` and `resources`.
        """
        enabled = [state for state in servers if state.config.enabled]
        known = [(state.config.name, state.status, state.sentence) for state in enabled]
        shown = (known, tuple(off), count, prompts, resources)
        if shown == self._shown:  # the menu may be open
            return
        self._shown, self._off = shown, tuple(off)
        self.setVisible(bool(enabled))
        self.setText(f" {count}")
        self.set_face("tools", ngettext("Tools: {n} in this chat", "Tools: {n} in this chat", count))
        self._menu.clear()
        for state in enabled:
            self._menu.addAction(self._failed(state) if state.status == "failed" else self._running(state))
        self._menu.addSeparator()
        if prompts:
            self._menu.addAction(_("Insert a prompt…"), self.prompts_requested.emit)
        if resources:
            self._menu.addAction(_("Attach a resource…"), self.resources_requested.emit)
        self._menu.addAction(_("Manage tools…"), lambda: self.manage_requested.emit(""))

    def entries(self) -> tuple[QAction, ...]:
        """The actions of the menu, without separators."""
        return tuple(action for action in self._menu.actions() if not action.isSeparator())

    def _running(self, state: ServerState) -> QAction:
        name = state.config.name
        action = QAction(isolated(one_line(name)).replace("&", "&&"), self._menu)
        action.setCheckable(True)
        action.setChecked(name not in self._off)
        action.toggled.connect(lambda on: self._switch(name, on))
        return action

    def _failed(self, state: ServerState) -> QAction:
        """Says why, as far as a line has room; the window that it opens says it whole."""
        name = state.config.name
        words = _("{name} failed: {why}", name=isolated(one_line(name)), why=one_line(state.sentence))
        metrics = self._menu.fontMetrics()
        words = metrics.elidedText(words, Qt.TextElideMode.ElideRight, _LONGEST * metrics.averageCharWidth())
        action = QAction(words.replace("&", "&&"), self._menu)
        action.triggered.connect(lambda: self.manage_requested.emit(name))
        return action

    def _switch(self, name: str, on: bool) -> None:
        others = tuple(each for each in self._off if each != name)
        self.chosen.emit(others if on else (*others, name))
