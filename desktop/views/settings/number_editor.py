"""The editor of numbers: a slider and a box, with words for special numbers."""

from __future__ import annotations

import re
from typing import Any

from PySide6.QtCore import QEvent, QSignalBlocker, Qt
from PySide6.QtGui import QValidator
from PySide6.QtWidgets import QDoubleSpinBox, QSlider, QVBoxLayout

from desktop.views.settings.editor import Editor
from engine.settings import SettingInfo
from engine.units import number_text
from engine.words import _

__all__ = ["NumberEditor"]

_MOST_SLIDER_STEPS = 1000


class _NumberBox(QDoubleSpinBox):
    """A number box that shows a word for special numbers: "off" if the setting does nothing, "auto"."""

    def __init__(self, info: SettingInfo, decimals: int) -> None:
        super().__init__()
        off = [] if info.neutral is None else [(float(info.neutral), _("off"))]
        self.words = dict([*off, *((float(number), word) for number, word in info.words)])
        # Qt gives the text of a styled box with NoButtons one pixel of width: the style sheet makes the
        # buttons invisible instead
        # without AlignAbsolute an Arabic word would stand at the other side than a number
        self.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignAbsolute)
        self.lineEdit().setTextMargins(5, 0, 5, 0)
        self.setKeyboardTracking(False)
        self.setDecimals(decimals)
        self.setRange(-1e9 if info.low is None else info.low, 1e9 if info.high is None else info.high)
        self.setSingleStep(info.step or 1)

    def textFromValue(self, value: float) -> str:
        return self.words.get(value, number_text(value, f".{self.decimals()}f"))

    def valueFromText(self, text: str) -> float:
        numbers = {word.casefold(): number for number, word in self.words.items()}
        given = text.strip().casefold()
        return numbers[given] if given in numbers else float(given.replace(",", "."))

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        given, words = text.strip().casefold(), [word.casefold() for word in self.words.values()]
        if given in words:
            return QValidator.State.Acceptable, text, position
        if given in ("", "-", ".", ",", "-.", "-,") or any(word.startswith(given) for word in words):
            return QValidator.State.Intermediate, text, position
        if not re.fullmatch(r"-?\d*[.,]?\d*" if self.decimals() else r"-?\d*", given):
            return QValidator.State.Invalid, text, position
        inside = self.minimum() <= float(given.replace(",", ".")) <= self.maximum()
        return (QValidator.State.Acceptable if inside else QValidator.State.Intermediate), text, position

    def fixup(self, text: str) -> str:
        """The nearest number that is allowed, for one that is not: taking the old one back would say nothing
        about the bound.
        """
        if not re.search(r"\d", text):
            return text
        nearest = min(max(self.valueFromText(text), self.minimum()), self.maximum())
        return self.textFromValue(nearest)


class NumberEditor(Editor):
    """A slider and a number box bound both ways; only the box if the range is too long for a slider."""

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
            self._slider.setAccessibleName(_("{label}, slider", label=info.label))
            self._slider.valueChanged.connect(self._slid)
            self._slider.sliderReleased.connect(self._emit_edit)
            layout.addWidget(self._slider)
            self._guard(self._slider)
        self._guard(self._box)
        self._box.valueChanged.connect(self._typed)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._fit_box()

    def _fit_box(self) -> None:
        texts = ("0" * 7, *self._box.words.values())
        self._box.setFixedWidth(max(map(self.fontMetrics().horizontalAdvance, texts)) + 20)

    def value(self) -> Any:
        return self._kind(round(self._box.value(), self._box.decimals()))

    def set_value(self, value: Any) -> None:
        with QSignalBlocker(self._box):
            self._box.setValue(float(value))
        self._place_slider()

    def _place_slider(self) -> None:
        if self._slider is not None and not self._slider.isSliderDown():
            with QSignalBlocker(self._slider):
                self._slider.setValue(round((self._box.value() - self._low) / self._step))

    def _slid(self, position: int) -> None:
        with QSignalBlocker(self._box):
            self._box.setValue(self._low + position * self._step)
        # While it is dragged only the number follows.
        if self._slider is not None and self._slider.isSliderDown():
            self.typed.emit(self.value())
        else:
            self._emit_edit()

    def _typed(self) -> None:
        self._place_slider()
        self._emit_edit()

    def _emit_edit(self) -> None:
        self.edited.emit(self.value())


def _slider_low(info: SettingInfo) -> float:
    """The slider's lower end: as far away as its upper end, if the true bound is farther."""
    low = float(info.low or 0)
    return low if info.slider_high is None else max(low, -info.slider_high)
