"""Runs the commands: their menus, keys and states, and the list of keyboard shortcuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QMainWindow, QMenu, QWidget

from desktop.services.session.chat_session import ChatSession
from desktop.views.commands.action_states import CommandStates
from desktop.views.commands.actions import COMMANDS
from desktop.views.commands.edit_menu import EditMenu
from desktop.views.commands.keymap import Keymap
from desktop.views.commands.menus import add_menus
from desktop.views.transcript import TranscriptView

__all__ = ["CommandController"]


class CommandController(QObject):
    """Makes the menus of `window`. The commands do nothing until `bind` says what they do.

    `by_name` holds the menus' actions by the command's name.
    """

    def __init__(self, window: QMainWindow, session: ChatSession, transcript: TranscriptView) -> None:
        super().__init__(window)
        self._window = window
        self._handlers: dict[str, Callable[[], object]] = {}
        self._instead: Callable[[str], bool] = lambda name: False
        self.by_name = add_menus(window, COMMANDS, self._run)
        self.keymap = Keymap(session.preferences, COMMANDS, self)
        self.keymap.attach(self.by_name)
        self.editing = EditMenu(window, transcript, session.undo)
        self.states = CommandStates(session, self.by_name, self.editing, self)

    def bind(
        self, *offers: Mapping[str, Callable[[], object]], instead: Callable[[str], bool] = lambda name: False
    ) -> None:
        """Run the handlers that the controllers offer; `instead(name)` is asked first, and may do it itself.

        Raises ValueError unless the commands of the table, and no others, have one handler each.
        """
        names = [name for offer in offers for name in offer]
        if sorted(names) != sorted(self.by_name):
            odd = {name for name in {*names, *self.by_name} if names.count(name) != (name in self.by_name)}
            raise ValueError(f"These commands do not have one row and one handler: {', '.join(sorted(odd))}")
        self._handlers = {name: handler for offer in offers for name, handler in offer.items()}
        self._instead = instead

    def check(self, shown: Mapping[str, QWidget], **others: Callable[[], bool]) -> None:
        """Give the entries of commands a tick: of those that show or hide a widget while it is there, of
        others while their function says so.
        """
        widgets = {name: widget.isVisible for name, widget in shown.items()}
        for name, is_on in (widgets | others).items():
            action = self.by_name[name]
            action.setCheckable(True)
            for menu in action.associatedObjects():
                if isinstance(menu, QMenu):
                    menu.aboutToShow.connect(lambda action=action, is_on=is_on: action.setChecked(is_on()))

    def _run(self, name: str) -> None:
        if not self._instead(name):
            self._handlers[name]()

    def commands(self) -> dict[str, Callable[[], object]]:
        """The Edit menu's commands and the list of keys."""
        return {**self.editing.commands(), "shortcuts": self.show_shortcuts}

    def show_shortcuts(self) -> None:
        """Open the list of keys."""
        from desktop.views.commands.shortcuts_dialog import ShortcutsDialog  # only when it is needed

        ShortcutsDialog(self.keymap, self._window).open()
