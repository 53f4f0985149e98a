"""The style of the transcript: its colours, fonts and distances, frozen, and replaced when theme or text size
change.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontMetrics, QPalette

from engine.lazy_dataclass import dataclass

__all__ = ["COLUMN_WIDTH", "Style", "TranscriptColours", "make_style"]

COLUMN_WIDTH = 820
"""The widest column of text in pixels at 100 %; longer lines are hard to read."""

_LIGHT_SYNTAX = ("#8a2d86", "#2f6b2f", "#9a4a00", "#1f5a96", "#716a62", "#1f6b2f", "#a8232b")
_HIGHEST, _STRONGER, _CODE_GROUND = ("#000000", "#ffffff"), 0.4, 0.1
"""The text of high contrast, and how much nearer to it the colours of code are then, and its ground on black,
than which nothing is darker.
"""
_DARK_SYNTAX = ("#d69ad8", "#9cc98a", "#e2a86b", "#8ab8e6", "#988f86", "#86c983", "#f08d86")


class TranscriptColours(NamedTuple):
    """The colours of the transcript; `from_palette` derives all of them. Boxes have an `outline` with high
    contrast, else a transparent one.
    """

    background: QColor
    text: QColor
    muted: QColor
    link: QColor
    line: QColor
    bubble: QColor
    code: QColor
    selection: QColor
    notice: QColor
    found: QColor
    on_found: QColor
    outline: QColor
    keyword: QColor
    string: QColor
    number: QColor
    name: QColor
    comment: QColor
    added: QColor
    removed: QColor

    @classmethod
    def from_palette(cls, palette: QPalette) -> TranscriptColours:
        """Colours that fit `palette`, light or dark."""
        role = QPalette.ColorRole
        background, text = palette.color(role.Window), palette.color(role.WindowText)
        dark = background.lightnessF() < 0.5
        selection = QColor(palette.color(role.Highlight))
        selection.setAlphaF(0.32 if dark else 0.22)
        syntax = [QColor(name) for name in (_DARK_SYNTAX if dark else _LIGHT_SYNTAX)]
        outline, code = QColor(Qt.GlobalColor.transparent), _mix(background, text, 0.045)
        if dark:
            code = _mix(background, QColor("black"), 0.28)
        if text.name() in _HIGHEST:
            syntax = [_mix(each, text, _STRONGER) for each in syntax]
            outline = palette.color(role.Mid)
        if code.name() == background.name():
            code = _mix(background, text, _CODE_GROUND)
        bubble = palette.color(role.AlternateBase)
        if abs(bubble.lightnessF() - background.lightnessF()) < 0.02:
            bubble = _mix(background, palette.color(role.Highlight), 0.12)
        return cls(
            background, text, palette.color(role.PlaceholderText), palette.color(role.Link),
            palette.color(role.Mid), bubble, code, selection,
            QColor("#3d3118") if dark else QColor("#fbeecb"), QColor("#e9c46a"), QColor("#22130b"), outline,
            *syntax,
        )  # fmt: skip


def _mix(first: QColor, second: QColor, share: float) -> QColor:
    return QColor.fromRgbF(
        first.redF() + (second.redF() - first.redF()) * share,
        first.greenF() + (second.greenF() - first.greenF()) * share,
        first.blueF() + (second.blueF() - first.blueF()) * share,
    )


@dataclass(frozen=True)
class Style:
    """Everything a row needs to draw itself.

    Distances in pixels follow `em`, the height of a line of text.
    """

    colours: TranscriptColours
    text_font: QFont
    code_font: QFont
    small_font: QFont
    em: int
    char_width: float
    column: int
    heading_sizes: tuple[float, ...] = field(default=(1.5, 1.3, 1.15, 1.05, 1.0, 1.0))

    def alert_colour(self, name: str) -> QColor:
        """The colour of an alert ("note", "tip", "important", "warning" or "caution"), or of a plain quote
        for "".
        """
        colours = self.colours
        known = {
            "note": colours.name,
            "tip": colours.added,
            "important": colours.keyword,
            "warning": colours.number,
        }
        return {**known, "caution": colours.removed}.get(name, colours.line)

    def px(self, ems: float) -> int:
        """`ems` in pixels."""
        return round(self.em * ems)


def make_style(font: QFont, percent: int, colours: TranscriptColours) -> Style:
    """The style for the widget's `font` with text at `percent` of its size."""
    size = font.pointSizeF() if font.pointSizeF() > 0 else 10.0
    size *= percent / 100
    text_font, small_font = QFont(font), QFont(font)
    text_font.setPointSizeF(size * 1.1)
    small_font.setPointSizeF(size * 0.95)
    code_font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    code_font.setPointSizeF(size)
    metrics = QFontMetrics(text_font)
    return Style(
        colours, text_font, code_font, small_font, metrics.height(),
        max(4.0, metrics.averageCharWidth() * 1.02), round(COLUMN_WIDTH * max(100, percent) / 100),
    )  # fmt: skip
