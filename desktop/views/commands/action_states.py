"""Keeps every command enabled or disabled, with the reason in tool tips and in the command palette."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QObject, QTimer
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from desktop.services.session.chat_session import ChatSession
from desktop.views.commands.actions import COMMANDS, always
from desktop.views.commands.edit_menu import EDITING, EditMenu
from desktop.views.widgets.listening import listen
from engine.words import _

__all__ = ["CommandStates"]

_WHY_NOT = {command.name: command.why_not for command in COMMANDS if command.why_not is not always}


class CommandStates(QObject):
    """Enables `actions`, by the command's name, while their `why_not` gives no reason.

    The key of a disabled action does nothing.
    """

    def __init__(
        self,
        session: ChatSession,
        actions: Mapping[str, QAction],
        editing: EditMenu,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._actions, self._editing = session, actions, editing
        self._shown: dict[str, str] = {}
        self._undo = (False, "")
        messages = session.messages
        for signal in (
            session.state_changed,
            session.tools.changed,
            session.adapted_changed,
            session.conversation_changed,
            messages.modelReset,
            messages.rowsInserted,
            messages.rowsRemoved,
            messages.dataChanged,
        ):
            listen(self, signal, lambda *_what: self.refresh())
        session.undo_available.connect(self._show_undo)
        for edit_menu in (menu for menu in actions["copy"].associatedObjects() if isinstance(menu, QMenu)):
            edit_menu.aboutToShow.connect(self._show_editing)
            # Once the chosen command has run.
            edit_menu.aboutToHide.connect(lambda: QTimer.singleShot(0, self, self._enable_editing))
        self.refresh()
        self._show_undo(False, "")

    def why_not(self, name: str) -> str:
        """Why a command is disabled; "" while it is not."""
        if name in EDITING:
            return self._editing.why_not(name)
        return _WHY_NOT[name](self._session) if name in _WHY_NOT else self._shown.get(name, "")

    def refresh(self) -> None:
        """Bring everything up to date."""
        for name, why_not in _WHY_NOT.items():
            self._show(name, why_not(self._session))

    def _show(self, name: str, reason: str) -> None:
        if self._shown.get(name) != reason:
            self._shown[name] = reason
            action = self._actions[name]
            action.setEnabled(not reason)
            action.setToolTip(reason)
            action.setStatusTip(reason)

    def _show_undo(self, available: bool, what: str) -> None:
        self._undo = (available, what)
        self._show("undo", "" if available else _("There is nothing to undo."))
        self._actions["undo"].setText(_("Undo {what}", what=what) if what else _("Undo delete"))

    def _show_editing(self) -> None:
        """The Edit menu opens: only there its commands are disabled, for their keys check for themselves."""
        for name in EDITING:
            self._show(name, self._editing.why_not(name))
        if self._editing.can_undo_text():
            self._show("undo", "")
            self._actions["undo"].setText(_("Undo typing"))

    def _enable_editing(self) -> None:
        for name in EDITING:
            self._show(name, "")
        self._show_undo(*self._undo)
