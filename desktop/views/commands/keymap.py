"""Which keys run which command: the table of commands with the user's own keys over it.

A change applies to menus, tool tips and lists at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from PySide6.QtCore import QKeyCombination, QObject, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from desktop.store.settings.preferences import Preferences
from desktop.views.commands.actions import COMMANDS, Command, command_words
from engine.words import _

__all__ = ["Keymap", "native", "portable", "typing_trouble"]

_PORTABLE, _NATIVE = QKeySequence.SequenceFormat.PortableText, QKeySequence.SequenceFormat.NativeText
_TYPING = (
    Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Tab, Qt.Key.Key_Backtab, Qt.Key.Key_Backspace,
    Qt.Key.Key_Delete, Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Home,
    Qt.Key.Key_End, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown,
)  # fmt: skip
_EDITING = (
    QKeySequence.StandardKey.MoveToNextWord, QKeySequence.StandardKey.MoveToPreviousWord,
    QKeySequence.StandardKey.SelectNextWord, QKeySequence.StandardKey.SelectPreviousWord,
    QKeySequence.StandardKey.DeleteStartOfWord, QKeySequence.StandardKey.DeleteEndOfWord,
    QKeySequence.StandardKey.MoveToStartOfDocument, QKeySequence.StandardKey.MoveToEndOfDocument,
    QKeySequence.StandardKey.Redo,
)  # fmt: skip


def portable(keys: str) -> str:
    """Keys as they are saved and compared; "" for text that names no keys."""
    sequence = QKeySequence(keys, _PORTABLE)
    known = _combinations(sequence)
    return (
        sequence.toString(_PORTABLE)
        if known and all(each.key() != Qt.Key.Key_unknown for each in known)
        else ""
    )


def _combinations(sequence: QKeySequence) -> list[QKeyCombination]:
    parts = cast(Sequence[QKeyCombination], sequence)
    return [parts[place] for place in range(sequence.count())]


def native(keys: str) -> str:
    """Keys as this system writes them."""
    return QKeySequence(keys, _PORTABLE).toString(_NATIVE)


def typing_trouble(keys: str) -> str:
    """Why these keys should not be used: text boxes need them; "" if they do not."""
    sequence = QKeySequence(keys, _PORTABLE)
    if sequence.isEmpty():
        return ""
    first = _combinations(sequence)[0]
    unused = ~(Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.KeypadModifier)
    bare = first.keyboardModifiers() & unused == Qt.KeyboardModifier.NoModifier
    key = first.key()
    if bare and (key.value < Qt.Key.Key_Escape.value or key in _TYPING):
        return _(
            "{native} is used for typing. In a text box it will type instead of running this command.",
            native=native(keys),
        )
    if any(sequence == other for standard in _EDITING for other in QKeySequence.keyBindings(standard)):
        return _(
            "{native} moves the cursor or deletes text in text boxes, where it will keep doing that.",
            native=native(keys),
        )
    return ""


class Keymap(QObject):
    """The keys of all commands. Each key belongs to one command: giving it to another takes it away.

    Saved keys that cannot be used are dropped, with a sentence in the notices of `preferences`. `changed()`
    is emitted after every change.
    """

    changed = Signal()

    def __init__(
        self, preferences: Preferences, commands: Sequence[Command] = COMMANDS, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._preferences = preferences
        self._names = {
            command.name: command_words(command).rstrip("…") for command in commands if command.text
        }
        self._defaults = {
            command.name: tuple(map(portable, command.keys)) for command in commands if command.text
        }
        self._actions: Mapping[str, QAction] = {}
        self._tips: list[tuple[QWidget, str, str]] = []
        self._keys = self._read()

    def _read(self) -> dict[str, tuple[str, ...]]:
        saved = self._preferences.shortcuts
        owners: dict[str, str] = {}
        read: dict[str, tuple[str, ...]] = {}
        for name in self._defaults:
            if name in saved:
                read[name] = tuple(
                    key
                    for key in dict.fromkeys(map(portable, saved[name]))
                    if self._usable(key, name, owners)
                )
                owners.update(dict.fromkeys(read[name], name))
                for written in saved[name]:
                    if not portable(written):
                        self._note(
                            _(
                                "“{written}” cannot be used as a key for “{names}” and was ignored.",
                                written=written,
                                names=self._names[name],
                            )
                        )
        for name, keys in self._defaults.items():
            if name not in saved:
                read[name] = tuple(key for key in keys if key not in owners)
        return read

    def _usable(self, key: str, name: str, owners: Mapping[str, str]) -> bool:
        if key in owners:
            self._note(
                _(
                    "{native} was saved for both “{names}” and “{names_2}”. It is used for the first.",
                    native=native(key),
                    names=self._names[owners[key]],
                    names_2=self._names[name],
                )
            )
        return bool(key) and key not in owners

    def _note(self, sentence: str) -> None:
        self._preferences.notices += (sentence,)

    # -- looking keys up

    def keys(self, name: str) -> tuple[str, ...]:
        """The keys of a command, as `portable` has them.

        Raises KeyError for a command that is not in the table.
        """
        return self._keys[name]

    def is_changed(self, name: str) -> bool:
        """Whether its keys differ from the defaults."""
        return self._keys[name] != self._defaults[name]

    def owner(self, key: str) -> str:
        """The command that has a key; "" if none has it."""
        return next((name for name, keys in self._keys.items() if portable(key) in keys), "")

    def words(self, name: str) -> str:
        """What a command does."""
        return self._names[name]

    def shown(self, name: str) -> str:
        """The first key of a command as this system writes it; "" if it has none."""
        return native(self._keys[name][0]) if self._keys.get(name) else ""

    # -- what the user does

    def set_keys(self, name: str, keys: Iterable[str]) -> None:
        """Give a command exactly these keys, taking them from any other command."""
        given = tuple(dict.fromkeys(key for key in map(portable, keys) if key))
        for other, its in self._keys.items():
            if other != name:
                self._keys[other] = tuple(key for key in its if key not in given)
        self._keys[name] = given
        self._save()

    def reset(self, name: str) -> None:
        """Restore the default keys of a command."""
        self.set_keys(name, self._defaults[name])

    def reset_all(self) -> None:
        """Restore the default keys of every command."""
        self._keys = dict(self._defaults)
        self._save()

    def _save(self) -> None:
        # From a later version of the program.
        unknown = {name: keys for name, keys in self._preferences.shortcuts.items() if name not in self._keys}
        own = {name: keys for name, keys in self._keys.items() if keys != self._defaults[name]}
        self._preferences.save_shortcuts({**unknown, **own})
        self._apply()
        self.changed.emit()

    # -- where keys are shown

    def attach(self, actions: Mapping[str, QAction]) -> None:
        """Keep the keys of these actions, by the command's name, up to date."""
        self._actions = actions
        self._apply()

    def tip(self, widget: QWidget, words: str, name: str) -> None:
        """Give a widget a tool tip with these words and the current keys of a command."""
        self._tips.append((widget, words, name))
        self._apply()

    def _apply(self) -> None:
        for name, action in self._actions.items():
            action.setShortcuts([QKeySequence(key, _PORTABLE) for key in self._keys[name]])
        for widget, words, name in self._tips:
            widget.setToolTip(f"{words} ({self.shown(name)})" if self.shown(name) else words)
