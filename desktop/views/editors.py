"""One editor for each type a setting can have: numbers, on/off, choices, text, lists of texts and of token ids."""

from __future__ import annotations

import re
import types
import typing
from typing import Any

from PySide6.QtCore import QEvent, QObject, QRegularExpression, Qt, Signal
from PySide6.QtGui import QRegularExpressionValidator, QValidator
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QSlider,
    QVBoxLayout,
    QWidget,
)

from desktop.views.icons import IconButton
from engine.settings import SettingInfo

__all__ = ["Editor", "escape", "make_editor", "unescape"]

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_MOST_SLIDER_STEPS = 1000


def escape(text: str) -> str:
    """`text` on one line: line breaks, tabs and backslashes as two-character escapes."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def unescape(text: str) -> str:
    """The inverse of `escape`; a backslash before any other character stands for itself."""
    return re.sub(r"\\(.)", lambda found: _MEANINGS.get(found.group(1), found.group(0)), text)


class _WheelGuard(QObject):
    """Lets the wheel scroll the pane instead of changing a control that has no focus."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Wheel and isinstance(watched, QWidget) and not watched.hasFocus():
            event.ignore()
            return True
        return False


class Editor(QWidget):
    """A control for one setting. `edited` carries the new value when the user made it, never when the program did.

    `beside` is a part that belongs on the line of the label; `labelled` is true when the control shows the label itself.
    """

    edited = Signal(object)
    beside: QWidget | None = None
    labelled = False

    def value(self) -> Any:
        """The value shown, in the type of the setting."""
        raise AssertionError(f"{type(self).__name__} must say its value.")

    def set_value(self, value: Any) -> None:
        """Show `value`; `edited` is not emitted."""
        raise AssertionError(f"{type(self).__name__} must show {value!r}.")

    def _guard(self, *controls: QWidget) -> None:
        guard = _WheelGuard(self)
        for control in controls:
            control.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            control.installEventFilter(guard)


class _NumberBox(QDoubleSpinBox):
    """A number box that writes a word for numbers with a meaning: "off" where the setting does nothing, "auto"."""

    def __init__(self, info: SettingInfo, decimals: int) -> None:
        super().__init__()
        off = [] if info.neutral is None else [(float(info.neutral), "off")]
        self._words = dict([*off, *((float(number), word) for number, word in info.words)])
        # Qt gives the text of a styled box with NoButtons one pixel of width: the style sheet makes the buttons invisible instead
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.lineEdit().setTextMargins(0, 0, 5, 0)
        self.setKeyboardTracking(False)
        self.setDecimals(decimals)
        self.setRange(-1e9 if info.low is None else info.low, 1e9 if info.high is None else info.high)
        self.setSingleStep(info.step or 1)

    def textFromValue(self, value: float) -> str:
        return self._words.get(value, f"{value:.{self.decimals()}f}")

    def valueFromText(self, text: str) -> float:
        numbers = {word: number for number, word in self._words.items()}
        given = text.strip().lower()
        return numbers[given] if given in numbers else float(given.replace(",", "."))

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        given = text.strip().lower()
        if given in self._words.values():
            return QValidator.State.Acceptable, text, position
        if given in ("", "-", ".", "-.", ",") or any(word.startswith(given) for word in self._words.values()):
            return QValidator.State.Intermediate, text, position
        if not re.fullmatch(r"-?\d*[.,]?\d*" if self.decimals() else r"-?\d*", given):
            return QValidator.State.Invalid, text, position
        inside = self.minimum() <= float(given.replace(",", ".")) <= self.maximum()
        return (QValidator.State.Acceptable if inside else QValidator.State.Intermediate), text, position


class NumberEditor(Editor):
    """A slider and a number box bound both ways; only the box when the range is too long to slide."""

    def __init__(self, info: SettingInfo, kind: type) -> None:
        super().__init__()
        self._kind, self._step = kind, float(info.step or 1)
        self._low = _slider_low(info)
        decimals = 0 if kind is int else max(2, len(f"{self._step:g}".partition(".")[2]))
        self._box = self.beside = _NumberBox(info, decimals)
        self._box.setAccessibleName(info.label)
        self._box.lineEdit().setAccessibleName(info.label)
        self._fit_box()
        self._slider: QSlider | None = None
        end = info.slider_high if info.slider_high is not None else info.high
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        steps = 0 if end is None else round((end - self._low) / self._step)
        if end is not None and (info.slider_high is not None or steps <= _MOST_SLIDER_STEPS):
            self._slider = QSlider(Qt.Orientation.Horizontal)
            self._slider.setRange(0, steps)
            self._slider.setPageStep(max(1, steps // 10))
            self._slider.setAccessibleName(f"{info.label}, slider")
            self._slider.valueChanged.connect(self._slid)
            self._slider.sliderReleased.connect(self._tell)
            layout.addWidget(self._slider)
            self._guard(self._slider)
        self._guard(self._box)
        self._box.valueChanged.connect(self._typed)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._fit_box()

    def _fit_box(self) -> None:
        self._box.setFixedWidth(self.fontMetrics().horizontalAdvance("0" * 8) + 16)

    def value(self) -> Any:
        return self._kind(round(self._box.value(), self._box.decimals()))

    def set_value(self, value: Any) -> None:
        self._box.blockSignals(True)
        self._box.setValue(float(value))
        self._box.blockSignals(False)
        self._place_slider()

    def _place_slider(self) -> None:
        if self._slider is not None and not self._slider.isSliderDown():
            self._slider.blockSignals(True)
            self._slider.setValue(round((self._box.value() - self._low) / self._step))
            self._slider.blockSignals(False)

    def _slid(self, position: int) -> None:
        self._box.blockSignals(True)
        self._box.setValue(self._low + position * self._step)
        self._box.blockSignals(False)
        if self._slider is not None and not self._slider.isSliderDown():  # while it is dragged only the number follows
            self._tell()

    def _typed(self) -> None:
        self._place_slider()
        self._tell()

    def _tell(self) -> None:
        self.edited.emit(self.value())


def _slider_low(info: SettingInfo) -> float:
    """Where the slider begins: like its end, nearer than a true bound that is far away."""
    low = float(info.low or 0)
    return low if info.slider_high is None else max(low, -info.slider_high)


class BoolEditor(Editor):
    """A check box."""

    labelled = True

    def __init__(self, info: SettingInfo) -> None:
        super().__init__()
        self._check = QCheckBox(info.label)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._check)
        self._check.clicked.connect(lambda checked: self.edited.emit(checked))

    def value(self) -> bool:
        return self._check.isChecked()

    def set_value(self, value: Any) -> None:
        self._check.setChecked(bool(value))


class ChoiceEditor(Editor):
    """A combo box over (value, label) pairs."""

    def __init__(self, info: SettingInfo) -> None:
        super().__init__()
        self._combo = QComboBox()
        self._combo.setAccessibleName(info.label)
        self._combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self._combo.setMinimumContentsLength(8)
        for value, label in info.choices:
            self._combo.addItem(label, value)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._combo)
        self._guard(self._combo)
        self._combo.activated.connect(lambda: self.edited.emit(self.value()))

    def value(self) -> str:
        return str(self._combo.currentData())

    def set_value(self, value: Any) -> None:
        self._combo.setCurrentIndex(self._combo.findData(value))


class LineEditor(Editor):
    """One line of text in a box: read with `parse`, written with `show`; what cannot be read goes back to the last value."""

    def __init__(self, info: SettingInfo, pattern: str, placeholder: str) -> None:
        super().__init__()
        self._line = QLineEdit()
        self._line.setAccessibleName(info.label)
        self._line.setPlaceholderText(placeholder)
        if pattern:
            self._line.setValidator(QRegularExpressionValidator(QRegularExpression(pattern), self))
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._line)
        self._value: Any = self.parse("")
        self._line.editingFinished.connect(self._finish)

    def parse(self, text: str) -> Any:
        """The value that `text` stands for."""
        return text

    def show_text(self, value: Any) -> str:
        """How `value` is written."""
        return str(value)

    def value(self) -> Any:
        return self.parse(self._line.text())

    def set_value(self, value: Any) -> None:
        self._value = value
        self._line.setText(self.show_text(value))

    def _finish(self) -> None:
        value = self.value()
        self._line.setText(self.show_text(value))
        if value != self._value:
            self._value = value
            self.edited.emit(value)


class OptionalNumberEditor(LineEditor):
    """A whole number or nothing; nothing is shown as the word "random"."""

    def __init__(self, info: SettingInfo) -> None:
        self._high = None if info.high is None else int(info.high)
        super().__init__(info, r"\s*\d*\s*", "random")

    def parse(self, text: str) -> int | None:
        if not text.strip():
            return None
        return int(text) if self._high is None else min(int(text), self._high)

    def show_text(self, value: Any) -> str:
        return "" if value is None else str(value)


class IdsEditor(LineEditor):
    """Token ids with commas or spaces between them."""

    def __init__(self, info: SettingInfo) -> None:
        super().__init__(info, r"[\d,;\s]*", "none, or for example 2, 32000")

    def parse(self, text: str) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", text))

    def show_text(self, value: Any) -> str:
        return ", ".join(str(number) for number in value)


class TextsEditor(Editor):
    """A list of texts, one box for each, with buttons to add and to remove; escapes such as \\n are shown and understood."""

    def __init__(self, info: SettingInfo) -> None:
        super().__init__()
        self._label = info.label
        self._lines: list[QLineEdit] = []
        self._holders: dict[QLineEdit, QWidget] = {}
        self._told: tuple[str, ...] = ()
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(4)
        self._add = QPushButton("Add")
        self._add.setAccessibleName(f"Add to {info.label}")
        self._add.clicked.connect(self._add_clicked)
        self._layout.addWidget(self._add, alignment=Qt.AlignmentFlag.AlignLeft)

    def value(self) -> tuple[str, ...]:
        return tuple(unescape(line.text()) for line in self._lines if line.text())

    def set_value(self, value: Any) -> None:
        self._told = tuple(value)
        if self.value() != self._told:
            while self._lines:
                self._drop(self._lines[-1])
            for text in value:
                self._add_line(text)

    def _add_line(self, text: str) -> QLineEdit:
        line, number = QLineEdit(escape(text)), len(self._lines) + 1
        line.setAccessibleName(f"{self._label} {number}")
        line.setPlaceholderText("text, \\n is a line break")
        remove = IconButton("close", f"Remove {self._label.lower()} {number}")
        holder = QWidget()
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2)
        row.addWidget(line)
        row.addWidget(remove)
        line.editingFinished.connect(self._tell)
        remove.clicked.connect(lambda: self._remove(line))
        self._lines.append(line)
        self._holders[line] = holder
        self._layout.insertWidget(self._layout.count() - 1, holder)
        return line

    def _drop(self, line: QLineEdit) -> None:
        self._lines.remove(line)
        holder = self._holders.pop(line)
        holder.hide()
        holder.deleteLater()

    def _remove(self, line: QLineEdit) -> None:
        self._drop(line)
        self._tell()

    def _add_clicked(self) -> None:
        self._add_line("").setFocus()

    def _tell(self) -> None:
        if self.value() != self._told:
            self._told = self.value()
            self.edited.emit(self._told)


def make_editor(info: SettingInfo, kind: Any) -> Editor:
    """The editor for a setting of type `kind`. Raises TypeError for a type no setting has yet."""
    if info.choices:
        return ChoiceEditor(info)
    if kind is bool:
        return BoolEditor(info)
    if kind in (int, float):
        return NumberEditor(info, kind)
    if kind is str:
        return LineEditor(info, "", "")
    if isinstance(kind, types.UnionType) and set(typing.get_args(kind)) == {int, types.NoneType}:
        return OptionalNumberEditor(info)
    if typing.get_origin(kind) is tuple:
        return TextsEditor(info) if typing.get_args(kind)[0] is str else IdsEditor(info)
    raise TypeError(f"{info.label} has the type {kind}, for which there is no editor.")
