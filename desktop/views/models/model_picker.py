"""The button with the model's name, and its menu: known models, and ways to get others."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QAction, QPalette
from PySide6.QtWidgets import QMenu, QSizePolicy, QWidget

from desktop.items.models.local_models import ModelEntry, model_name, starter_words
from desktop.views.layout.bidi import isolated
from desktop.views.widgets.icons import tinted
from desktop.views.widgets.menu_button import MenuButton
from engine.printable import one_line
from engine.remote import split_address
from engine.words import _

__all__ = ["ModelPicker"]

_MOST_ENTRIES = 12
_NAME_CHARACTERS, _TROUBLE_CHARACTERS = 34, 60


class ModelPicker(MenuButton):
    """Shows the loaded model; the menu emits `entries_requested()` when it opens, answered by `show_entries`.

    `chosen(path)`, `library_requested()`, `open_file_requested()`, `open_folder_requested()`,
    `starter_requested()`, `unload_requested()`, `servers_requested()`; `device_chosen(value)` for a device of
    `show_devices`.
    """

    entries_requested = Signal()
    chosen = Signal(str)
    library_requested = Signal()
    open_file_requested = Signal()
    open_folder_requested = Signal()
    starter_requested = Signal()
    unload_requested = Signal()
    device_chosen = Signal(str)
    servers_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("modelButton")
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(60)
        self._path = ""
        self._entry_actions: list[QAction] = []
        self._shown: tuple[str, tuple[ModelEntry, ...]] = ("", ())
        self._menu = QMenu(self)
        self._menu.setToolTipsVisible(True)
        self._menu.aboutToShow.connect(self.entries_requested)
        self._end_of_entries = self._menu.addSeparator()
        self._end_of_servers = self._menu.addAction(_("Models on servers…"), self.servers_requested.emit)
        self._menu.addSeparator()
        self._menu.addAction(_("Model library…"), self.library_requested.emit)
        self._menu.addAction(_("Open model file…"), self.open_file_requested.emit)
        self._menu.addAction(_("Open model folder…"), self.open_folder_requested.emit)
        self._starter = self._menu.addAction(starter_words(), self.starter_requested.emit)
        self._menu.addSeparator()
        self._devices = self._menu.addMenu(_("Run on"))
        self._shown_devices: tuple[tuple[tuple[str, str], ...], str] = ((), "")
        self._unload = self._menu.addAction(_("Unload"), self.unload_requested.emit)
        self.setMenu(self._menu)
        self.show_model("", "")

    def show_model(self, path: str, name: str) -> None:
        """Show the loaded model; empty names for none."""
        self._path = path
        self.setText(f"{_shortened(name) or _('Choose a model')}  ▾")
        self.setToolTip(f"{name}\n{_place(path)}" if path else _("Choose a model"))
        self.setAccessibleName(_("Model: {name}", name=name) if name else _("Choose a model"))
        self._unload.setEnabled(bool(path))
        elsewhere = split_address(path) is not None
        self._devices.setEnabled(not elsewhere)
        why = _("The server decides where it runs the model.") if elsewhere else ""
        self._devices.menuAction().setToolTip(why)

    def show_loading(self, path: str) -> None:
        """Show which model is being loaded."""
        name = next((entry.name for entry in self._shown[1] if entry.path == path), model_name(path))
        self.show_model(path, name)
        self.setText(_("Loading {shortened}…  ▾", shortened=_shortened(name)))
        self.setToolTip(_("Loading {name}\n{place}", name=name, place=_place(path)))
        self.setAccessibleName(_("Loading model: {name}", name=name))
        self._unload.setEnabled(False)

    def show_fetching(self, running: bool) -> None:
        """Offer to cancel the download while it runs."""
        self._starter.setText(_("Cancel the download") if running else starter_words())

    def show_entries(self, entries: Iterable[ModelEntry]) -> None:
        """Fill the first part of the menu; it may be open."""
        shown = (self._path, tuple(entries)[:_MOST_ENTRIES])
        if shown == self._shown:
            return
        self._shown = shown
        for action in self._entry_actions:
            self._menu.removeAction(action)
            action.deleteLater()
        self._entry_actions = [self._action(entry) for entry in shown[1]]
        self._menu.insertActions(self._end_of_entries, self._entry_actions)
        self._end_of_entries.setVisible(bool(self._entry_actions))

    def add_menu(self, title: str) -> QMenu:
        """Add a submenu below the models of this computer."""
        menu = QMenu(title, self._menu)
        menu.setToolTipsVisible(True)
        self._menu.insertMenu(self._end_of_servers, menu)
        return menu

    def remove_menu(self, menu: QMenu) -> None:
        """Remove what `add_menu` has added."""
        self._menu.removeAction(menu.menuAction())
        menu.deleteLater()

    def show_devices(self, choices: Iterable[tuple[str, str]], current: str) -> None:
        """Show the devices as (value, text), and the current one."""
        shown = (tuple(choices), current)
        if shown == self._shown_devices:
            return
        self._shown_devices = shown
        self._devices.clear()
        for value, words in shown[0]:
            action = self._devices.addAction(words.replace("&", "&&"))
            action.setCheckable(True)
            action.setChecked(value == current)
            action.triggered.connect(partial(self.device_chosen.emit, value))
        self._devices.setTitle(
            _("Run on: {device}", device=dict(shown[0]).get(current, current)).replace("&", "&&")
        )

    def _action(self, entry: ModelEntry) -> QAction:
        words = f"{isolated(entry.name)}\t{isolated(entry.detail)}" if entry.detail else isolated(entry.name)
        action = QAction(words.replace("&", "&&"), self)
        action.setCheckable(True)
        action.setChecked(entry.path == self._path)
        action.setEnabled(not entry.trouble)
        action.setToolTip(entry.trouble or entry.path)
        if entry.trouble:
            reason = (
                entry.trouble
                if len(entry.trouble) <= _TROUBLE_CHARACTERS
                else entry.trouble[: _TROUBLE_CHARACTERS - 1] + "…"
            )
            action.setText(isolated(f"{entry.name}: {reason}".replace("&", "&&")))
        action.triggered.connect(lambda: self.chosen.emit(entry.path))
        return action

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange):
            self._tint()

    def _tint(self) -> None:
        colour = self.palette().color(QPalette.ColorRole.WindowText).name()
        side = round(self.fontMetrics().height() * 1.15)
        self.setIcon(tinted("model", colour, colour))
        self.setIconSize(QSize(side, side))


def _place(path: str) -> str:
    """Where the model is; the address of one of a server says nothing to the user."""
    return _("on a server") if split_address(path) is not None else one_line(path)


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…"
