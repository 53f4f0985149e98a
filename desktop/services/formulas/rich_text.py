"""Formulas and images in Qt's rich text, in the transcript and in the PDF export: their size, baseline and
colours.
"""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtGui import QColor, QFont, QFontInfo, QFontMetrics, QFontMetricsF, QTextBlock, QTextCharFormat

__all__ = ["formula_colour", "formula_size", "fragments", "set_descent"]

_X_HEIGHT = 0.47
"""The height of lower-case letters in STIX Two Math, in ems."""
_DARKEST, _LIGHTEST, _BEHIND = 0.7, 0.42, 0.25
"""Least lightness of a colour among light text, greatest among dark text; the opacity of a background."""


def formula_colour(given: str, text: str) -> QColor:
    """The colour to draw for one that `math_svg` names, beside text of the colour `text`: the text's own for
    "black" and unknown names, else one that is as easy to read on its ground.
    """
    name = given.removeprefix("light ")
    if name in ("black", "currentColor") or not QColor.isValidColorName(name):
        return QColor(text if name == given else "transparent")
    colour = QColor(name)
    if name != given:
        colour.setAlphaF(_BEHIND)
        return colour
    on_dark = QColor(text).lightnessF() > 0.5
    lightness = max(colour.lightnessF(), _DARKEST) if on_dark else min(colour.lightnessF(), _LIGHTEST)
    hue = max(0.0, colour.hslHueF())  # a grey has none
    return QColor.fromHslF(hue, colour.hslSaturationF(), lightness, colour.alphaF())


def formula_size(font: QFont) -> float:
    """The pixel size at which a formula's lower-case letters are as tall as those of `font`."""
    pixels = float(QFontInfo(font).pixelSize())
    return round(min(1.25 * pixels, max(pixels, QFontMetricsF(font).xHeight() / _X_HEIGHT)), 1)


def set_descent(shape: QTextCharFormat, font: QFont, descent: int) -> None:
    """Place an inline object of this format `descent` pixels below the baseline, or on it for 0.

    Qt has no setting for this: the descent of the format's font decides.
    """
    if descent <= 0:
        shape.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignNormal)
        return
    carrier = QFont(font)
    carrier.setPixelSize(_descending(font.family(), descent))
    shape.setFont(carrier)
    shape.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignBaseline)


def fragments(block: QTextBlock) -> list[tuple[int, int, QTextCharFormat]]:
    """(position, length, format) of the runs of text in a paragraph; adjacent equal images are one run."""
    found: list[tuple[int, int, QTextCharFormat]] = []
    iterator = block.begin()
    while not iterator.atEnd():
        fragment = iterator.fragment()
        found.append((fragment.position(), fragment.length(), fragment.charFormat()))
        iterator += 1
    return found


@lru_cache(maxsize=512)
def _descending(family: str, descent: int) -> int:
    """The smallest pixel size at which a font descends at least `descent` pixels below the baseline."""
    font, low, high = QFont(family), 1, 64 * descent + 8
    while low < high:
        middle = (low + high) // 2
        font.setPixelSize(middle)
        if QFontMetrics(font).descent() < descent:
            low = middle + 1
        else:
            high = middle
    return low
