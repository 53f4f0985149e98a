"""Commands as such: their keys and states, the command palette, the list of keys, the Edit menu, going
from pane to pane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QWidget

from desktop.views.commands.action_states import CommandStates
from desktop.views.commands.edit_menu import EditMenu
from desktop.views.commands.keymap import Keymap
from desktop.views.commands.palette_controller import PaletteController, PaletteDeeds
from desktop.views.layout.pane_cycle import PaneCycle
from desktop.views.layout.panes import RIGHT
from engine.settings import Settings

if TYPE_CHECKING:
    from desktop.views.main_window import MainWindow

__all__ = ["CommandController"]


class CommandController(QObject):
    """Serves the window. `handlers` before the menus are made, `attach` after."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        session = window.session
        self.keymap = Keymap(session.preferences, parent=self)
        self.editing = EditMenu(window, window.chat.transcript, session.undo)
        self.states: CommandStates | None = None
        deeds = PaletteDeeds(
            window.open_chat,
            window.open_message,
            self.show_setting,
            lambda path: window.model_controller.open(Path(path)),
            window.model_controller.look_for_models,
            lambda: [(persona.id, persona.name) for persona in window.personas.service.personas()],
            lambda number: window.personas.choose(number),
        )
        self.finder = PaletteController(
            window, session, window.services.local_models, window.settings_controller.presets, deeds
        )
        self.ring = PaneCycle(self._panes(), self)

    def _panes(self) -> Sequence[tuple[QWidget, Callable[[], QWidget]]]:
        window = self._window
        chat, sidebar, inspector = window.chat, window.sidebar, window.inspector
        bar = window.picker.parentWidget() or window.picker
        return (
            (sidebar, lambda: sidebar.list if sidebar.list.isVisible() else sidebar.query),
            (bar, lambda: window.picker),
            (chat.transcript, lambda: chat.transcript),
            (chat.composer, lambda: chat.composer.box),
            (inspector, lambda: inspector.query),
        )

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the commands of this controller do, by name."""
        editing = {deed: partial(self.editing.do, deed) for deed in ("cut", "copy", "paste", "select_all")}
        return {
            **editing,
            "undo": self.editing.undo,
            "palette": self.finder.toggle,
            "search_settings": self.search_settings,
            "next_pane": lambda: self.ring.step(1),
            "previous_pane": lambda: self.ring.step(-1),
            "shortcuts": self.show_shortcuts,
        }

    def attach(self, actions: Mapping[str, QAction]) -> None:
        """Give the actions their keys, and keep them able or not."""
        window = self._window
        self.keymap.attach(actions)
        self.states = CommandStates(window.session, actions, self.editing, self)
        self.finder.connect_commands(actions, self.states, self.keymap)
        self.keymap.tip(window.left_button, "Chats", "sidebar")
        self.keymap.tip(window.right_button, "Settings", "inspector")
        self.keymap.tip(window.sidebar.new, "New chat", "new_chat")
        self.keymap.tip(window.sidebar.new_folder, "New folder", "new_folder")
        self.keymap.tip(window.sidebar.query, "Search titles and messages", "search")
        self.keymap.tip(window.inspector.query, "Search all settings", "search_settings")

    def show_shortcuts(self) -> None:
        """Open the list of keys."""
        from desktop.views.commands.shortcuts_dialog import ShortcutsDialog  # made only when it is wanted

        ShortcutsDialog(self.keymap, self._window).open()

    def _show_inspector(self) -> None:
        if self._window.inspector.isHidden():
            self._window.panes.toggle(RIGHT)

    def search_settings(self) -> None:
        """Put the cursor into the search of the settings."""
        self._show_inspector()
        self._window.inspector.query.setFocus()
        self._window.inspector.query.selectAll()

    def show_setting(self, cls: type[Settings], name: str) -> None:
        """Bring a setting into sight, with the keyboard in its editor; without a name the system prompt."""
        self._show_inspector()
        self._window.inspector.reveal(cls, name)
