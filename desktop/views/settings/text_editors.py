"""The editors of texts: one line, many lines, lists of texts and of token ids."""

from __future__ import annotations

import re
from typing import Any

from PySide6.QtCore import QRegularExpression
from PySide6.QtGui import QRegularExpressionValidator
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout

from desktop.views.layout.fill import fill
from desktop.views.settings.editor import Editor
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from engine.settings import SettingInfo
from engine.words import _

__all__ = [
    "IdsEditor",
    "LineEditor",
    "LinesEditor",
    "OptionalNumberEditor",
    "TextEditor",
    "escape",
    "unescape",
]

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def escape(text: str) -> str:
    """`text` on one line: line breaks, tabs and backslashes as two-character escapes."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def unescape(text: str) -> str:
    """The inverse of `escape`; a backslash before any other character stands for itself."""
    return re.sub(r"\\(.)", lambda found: _MEANINGS.get(found.group(1), found.group(0)), text)


class LineEditor(Editor):
    """A line of text: read with `parse`, written with `show`; invalid text goes back to the last value."""

    def __init__(self, info: SettingInfo, pattern: str, placeholder: str) -> None:
        super().__init__()
        self._line = QLineEdit()
        self._line.setAccessibleName(info.label)
        self._line.setPlaceholderText(placeholder)
        if pattern:
            self._line.setValidator(QRegularExpressionValidator(QRegularExpression(pattern), self))
        fill(QHBoxLayout(self), self._line, margins=(0, 0, 0, 0))
        self._value: Any = self.parse("")
        self._line.textEdited.connect(lambda: self.typed.emit(self.value()))
        self._line.editingFinished.connect(self._finish)

    def parse(self, text: str) -> Any:
        """The value that `text` stands for."""
        return text

    def show_text(self, value: Any) -> str:
        """The text for `value`."""
        return str(value)

    def value(self) -> Any:
        return self.parse(self._line.text())

    def set_value(self, value: Any) -> None:
        self._value = value
        # Otherwise the cursor would jump while the user types.
        if self.value() != value or not self._line.hasFocus():
            self._line.setText(self.show_text(value))

    def _finish(self) -> None:
        value = self.value()
        self._line.setText(self.show_text(value))
        if value != self._value:
            self._value = value
            self.edited.emit(value)


class OptionalNumberEditor(LineEditor):
    """A whole number or None, which is shown as "random"."""

    def __init__(self, info: SettingInfo) -> None:
        self._high = None if info.high is None else int(info.high)
        super().__init__(info, r"\s*\d{0,30}\s*", _("random"))

    def parse(self, text: str) -> int | None:
        if not text.strip():
            return None
        return int(text) if self._high is None else min(int(text), self._high)

    def show_text(self, value: Any) -> str:
        return "" if value is None else str(value)


class IdsEditor(LineEditor):
    """Token ids, separated by commas or spaces."""

    def __init__(self, info: SettingInfo) -> None:
        super().__init__(info, r"(?:\d{0,10}[,;\s]+)*\d{0,10}", _("None, or for example: 2, 32000"))

    def parse(self, text: str) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", text))

    def show_text(self, value: Any) -> str:
        return ", ".join(str(number) for number in value)


class TextEditor(Editor):
    """A text of several lines; `edited` when the user pauses or leaves."""

    def __init__(self, info: SettingInfo) -> None:
        super().__init__()
        self.box = GrowingTextEdit(info.label)
        self.box.setPlaceholderText(_("none"))
        fill(QVBoxLayout(self), self.box, margins=(0, 0, 0, 0))
        self.box.typed.connect(lambda text: self.typed.emit(text))
        self.box.edited.connect(lambda text: self.edited.emit(text))

    def value(self) -> str:
        return self.box.text()

    def set_value(self, value: Any) -> None:
        self.box.show_text(value)

    def finish(self) -> None:
        self.box.commit()


class LinesEditor(Editor):
    """A list of texts, one per line; empty lines are ignored.

    Escapes such as \\n are shown and read, unless the setting leaves them to the engine.
    """

    def __init__(self, info: SettingInfo) -> None:
        super().__init__()
        self.box = GrowingTextEdit(info.label)
        self.box.setPlaceholderText(_("One per line; \\n is a line break"))
        self._escaped = info.escaped
        self._emitted: tuple[str, ...] = ()
        fill(QVBoxLayout(self), self.box, margins=(0, 0, 0, 0))
        self.box.typed.connect(lambda: self.typed.emit(self.value()))
        self.box.edited.connect(self._emit_edit)

    def value(self) -> tuple[str, ...]:
        lines = [line for line in self.box.text().split("\n") if line]
        return tuple(lines if self._escaped else map(unescape, lines))

    def set_value(self, value: Any) -> None:
        self._emitted = tuple(value)
        if self.value() != self._emitted:
            self.box.show_text("\n".join(value if self._escaped else map(escape, value)))

    def finish(self) -> None:
        self.box.commit()

    def _emit_edit(self) -> None:
        if self.value() != self._emitted:
            self._emitted = self.value()
            self.edited.emit(self._emitted)
