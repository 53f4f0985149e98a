"""LaTeX -> a picture with its baseline, drawn as paths by ziamath and QtSvg.

Slow (3 to 30 ms): not for the GUI's thread.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from desktop.services.system.formulas import formula_svg

__all__ = ["Picture", "render_math"]

_WIDEST, _HIGHEST = 8000.0, 4000.0


@dataclass(frozen=True)
class Picture:
    """`image` is to be drawn `width` by `height` (logical pixels), `descent` of them below the baseline."""

    image: QImage
    width: int
    height: int
    descent: int


def render_math(latex: str, size: float, colour: str, display: bool, ratio: float) -> Picture | None:
    """`latex` with letters of `size` logical pixels in `colour` ("#rrggbb"), sharp at `ratio` device
    pixels each; None if it cannot.
    """
    svg = formula_svg(latex, size, display)
    box = re.search(r'viewBox="(-?[\d.]+) (-?[\d.]+) (-?[\d.]+) (-?[\d.]+)"', svg) if svg else None
    if box is None:
        return None
    left, top, wide, high = (float(number) for number in box.groups())
    if not (0 < wide <= _WIDEST and 0 < high <= _HIGHEST):
        return None
    ascent, descent = math.ceil(max(0.0, -top)), math.ceil(max(0.0, top + high))
    width, height = math.ceil(wide), max(1, ascent + descent)
    renderer = QSvgRenderer(
        QByteArray(
            svg.replace("<svg ", f'<svg fill="{colour}" stroke="{colour}" stroke-width="0" ', 1).encode()
        )
    )
    if not renderer.isValid():
        return None
    renderer.setViewBox(QRectF(left, -ascent, width, height))
    image = QImage(
        max(1, round(width * ratio)), max(1, round(height * ratio)), QImage.Format.Format_ARGB32_Premultiplied
    )
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    renderer.render(painter)
    painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceIn)
    painter.fillRect(image.rect(), colour)
    painter.end()
    return Picture(image, width, height, descent)
