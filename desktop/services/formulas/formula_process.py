"""The process that draws formulas for the window.

A question is [latex, size, colour, display, ratio]; the answer is [zlib's pixels in base64, device width,
device height, width, height, descent], or null for a formula that cannot be drawn. Each is a line of JSON.
Typesetting and drawing a formula take 3 to 30 ms of Python and Qt, which would hold the window's interpreter
lock.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import re
import sys
import zlib
from typing import TextIO

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from desktop.blocks.latex import math_svg
from desktop.services.formulas.formula_images import FormulaImage
from desktop.services.formulas.rich_text import formula_colour

__all__ = ["draw", "main"]

_NICE = 5
_WIDEST, _HIGHEST = 8000.0, 4000.0
_PAINT = re.compile(r'(fill|stroke)="(?!none")([^"]*)"')
_VIEW_BOX = re.compile(r'viewBox="(-?[\d.]+) (-?[\d.]+) (-?[\d.]+) (-?[\d.]+)"')


def draw(latex: str, size: float, colour: str, display: bool, ratio: float) -> FormulaImage | None:
    """Draw `latex` with letters of `size` logical pixels in `colour` ("#rrggbb") and `ratio` device pixels
    per logical pixel.

    None if it cannot be drawn.
    """
    svg = math_svg(latex, size, display)
    box = _VIEW_BOX.search(svg)
    if box is None:
        return None
    left, top, wide, high = (float(number) for number in box.groups())
    if not (0 < wide <= _WIDEST and 0 < high <= _HIGHEST):
        return None
    ascent, descent = math.ceil(max(0.0, -top)), math.ceil(max(0.0, top + high))
    width, height = math.ceil(wide), max(1, ascent + descent)
    coloured = _PAINT.sub(lambda found: _paint(found[1], found[2], colour), svg)
    coloured = coloured.replace("<svg ", f'<svg fill="{colour}" stroke="{colour}" stroke-width="0" ', 1)
    renderer = QSvgRenderer(QByteArray(coloured.encode()))
    if not renderer.isValid():
        return None
    renderer.setViewBox(QRectF(left, -ascent, width, height))
    image = QImage(
        max(1, round(width * ratio)), max(1, round(height * ratio)), QImage.Format.Format_ARGB32_Premultiplied
    )
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    return FormulaImage(bytes(image.constBits()), image.width(), image.height(), width, height, descent)


def _paint(kind: str, given: str, text: str) -> str:
    """An SVG element's `fill` or `stroke` with its colour beside text of the colour `text`."""
    colour = formula_colour(given, text)
    return f'{kind}="{colour.name()}" {kind}-opacity="{round(colour.alphaF(), 2)}"'


def main(lines: TextIO = sys.stdin, out: TextIO = sys.stdout) -> None:
    """Answer each line until the input ends."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICE)
    for line in lines:
        latex, size, colour, display, ratio = json.loads(line)
        drawn = draw(latex, size, colour, display, ratio)
        answer = None
        if drawn is not None:
            answer = [base64.b64encode(zlib.compress(drawn.pixels, 1)).decode(), *drawn[1:]]
        out.write(json.dumps(answer) + "\n")
        out.flush()
