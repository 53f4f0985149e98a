"""The menu bar, made from the table of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMainWindow, QMenu, QMenuBar, QToolButton

from desktop.views.commands.actions import MENUS, Command, command_words
from desktop.views.layout.bidi import isolated
from desktop.views.widgets.menu_button import close_after_use
from engine.words import _, translate

__all__ = ["add_menus", "with_mnemonics"]

_ROLES = {
    "quit": QAction.MenuRole.QuitRole,
    "about": QAction.MenuRole.AboutRole,
    "preferences": QAction.MenuRole.PreferencesRole,
}
"""What macOS shows in the application's own menu. The others are told that they stay: Qt would guess by words
such as "Settings".
"""


def add_menus(
    window: QMainWindow, commands: Sequence[Command], run: Callable[[str], object]
) -> dict[str, QAction]:
    """Make the menu bar, without keys; `run` gets the name of the command. Returns the actions by name."""
    titles = with_mnemonics(map(translate, MENUS))
    menus = {menu: window.menuBar().addMenu(title) for menu, title in zip(MENUS, titles, strict=True)}
    _MoreMenus(window.menuBar())
    for menu in menus.values():
        menu.setToolTipsVisible(True)
        close_after_use(menu)
        menu.aboutToShow.connect(lambda menu=menu: _mark_letters(menu))
    actions: dict[str, QAction] = {}
    for command in commands:
        if not command.text:
            menus[command.menu].addSeparator()
            continue
        action = menus[command.menu].addAction(command_words(command))
        action.setMenuRole(_ROLES.get(command.name, QAction.MenuRole.NoRole))
        action.triggered.connect(lambda _checked=False, name=command.name: run(name))
        actions[command.name] = action
    return actions


class _MoreMenus(QObject):
    """Names Qt's button for the menus that do not fit, and keeps it within the bar: Qt puts it there for 12
    pixels of width, and the style sheet makes it wide enough for a finger.
    """

    def __init__(self, bar: QMenuBar) -> None:
        super().__init__(bar)
        self._bar = bar
        for button in bar.findChildren(QToolButton):
            button.setAccessibleName(_("More menus"))
            button.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Move, QEvent.Type.Resize) and isinstance(watched, QToolButton):
            beyond = watched.geometry().right() + 1 - self._bar.width()
            if beyond > 0:
                watched.move(watched.x() - beyond, watched.y())
        return False


def _mark_letters(menu: QMenu) -> None:
    """Give every entry a letter of its own, whatever its text is now."""
    shown = [action for action in menu.actions() if not action.isSeparator()]
    for action, text in zip(shown, with_mnemonics(action.text() for action in shown), strict=True):
        action.setText(isolated(text))


def with_mnemonics(texts: Iterable[str]) -> list[str]:
    """The texts with an "&" before a letter that no other text uses: the first of a word if one is free. A
    text that finds none free takes the letter of one that has another.
    """
    plain = [text.replace("&", "") for text in texts]
    places = [_places(text) for text in plain]
    owners: dict[str, int] = {}

    def settle(number: int, tried: set[str]) -> bool:
        free = next((letter for letter in places[number] if letter not in owners), "")
        if free:
            owners[free] = number
            return True
        for letter in places[number]:
            if letter not in tried:
                tried.add(letter)
                if settle(owners[letter], tried):
                    owners[letter] = number
                    return True
        return False

    for number in range(len(plain)):
        settle(number, set())
    letters = {number: letter for letter, number in owners.items()}
    return [
        f"{text[: (place := places[number][letters[number]])]}&{text[place:]}" if number in letters else text
        for number, text in enumerate(plain)
    ]


def _places(text: str) -> dict[str, int]:
    """The first place of each letter, those that begin a word before the others."""
    letters = [place for place, letter in enumerate(text) if letter.isalnum()]
    starts = [place for place in letters if place == 0 or text[place - 1] == " "]
    found: dict[str, int] = {}
    for place in (*starts, *letters):
        found.setdefault(text[place].casefold(), place)
    return found
